import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Check } from "./check";

const empty = (name: string) => () => ({ body: { [name]: [] } });
const GRANTS = "GET /api/v1/access/grants";
const places = {
  "GET /api/v1/users": empty("users"),
  "GET /api/v1/apps": empty("apps"),
  "GET /api/v1/businesses": empty("businesses"),
  "GET /api/v1/business-sets": empty("business_sets"),
};
const grant = (more: object) => ({
  subject: "user:ana",
  class: "register",
  role: "owner",
  scope: "namespace:web",
  binding: "1",
  ...more,
});

test("what could not be loaded is not told as nobody", async () => {
  fakeApi({
    ...places,
    [GRANTS]: () => ({ status: 500, body: { error: { code: "internal", message: "away" } } }),
  });
  renderPage(<Check />);

  expect(await screen.findByText("away")).toBeTruthy();
  expect(screen.queryByText("Nobody")).toBeNull();
});

test("without a place, who may do it everywhere is asked for", async () => {
  const asked = fakeApi({ ...places, [GRANTS]: empty("grants") });
  renderPage(<Check />);

  expect(await screen.findByText("Nobody")).toBeTruthy();
  const query = asked.find((call) => call.url.pathname.endsWith("/grants"))?.url.searchParams;
  expect(Object.fromEntries(query ?? [])).toEqual({ class: "operate", everywhere: "true" });
});

test("who may do it on a process is asked with its namespace and host", async () => {
  const grants = [
    grant({ allow_users: ["web"] }),
    grant({ subject: "user:bo", binding: "2", disabled: true }),
  ];
  const asked = fakeApi({ ...places, [GRANTS]: () => ({ body: { grants } }) });
  renderPage(<Check />, { path: "/?right=register&namespace=web&host=0:10.0.0.1&cloud=7" });

  expect(await screen.findByText("owner on namespace:web (only as web)")).toBeTruthy();
  expect(screen.getByText("disabled")).toBeTruthy();
  const query = asked.find((call) => call.url.pathname.endsWith("/grants"))?.url.searchParams;
  expect(Object.fromEntries(query ?? [])).toEqual({
    class: "register",
    namespace: "web",
    host: "0:10.0.0.1",
  });
});
