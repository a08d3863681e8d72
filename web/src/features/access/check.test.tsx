import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Check } from "./check";

const empty = (name: string) => () => ({ body: { [name]: [] } });
const places = {
  "GET /api/v1/users": empty("users"),
  "GET /api/v1/apps": empty("apps"),
  "GET /api/v1/businesses": empty("businesses"),
  "GET /api/v1/business-sets": empty("business_sets"),
};

test("what could not be loaded is not told as nobody", async () => {
  fakeApi({
    ...places,
    "GET /api/v1/roles": empty("roles"),
    "GET /api/v1/bindings": () => ({ status: 500, body: { error: { code: "internal", message: "away" } } }),
  });
  renderPage(<Check />);

  expect((await screen.findAllByText("away")).length).toBe(2);
  expect(screen.queryByText("Nobody")).toBeNull();
});

test("without a binding nobody may", async () => {
  fakeApi({
    ...places,
    "GET /api/v1/roles": empty("roles"),
    "GET /api/v1/bindings": empty("bindings"),
  });
  renderPage(<Check />);

  expect(await screen.findByText("Nobody")).toBeTruthy();
});
