import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Bindings } from "./bindings";
import { UserTokens } from "./user-tokens";

const broken = () => ({ status: 500, body: { error: { code: "internal", message: "disk" } } });

test("tokens that could not be loaded are not told as none", async () => {
  fakeApi({ "GET /api/v1/users/ana/tokens": broken });
  renderPage(<UserTokens name="ana" />);

  expect(await screen.findByText("disk")).toBeTruthy();
  expect(screen.queryByText("No tokens", { exact: false })).toBeNull();
});

test("a form whose choices could not be loaded says so", async () => {
  const none = (name: string) => () => ({ body: { [name]: [] } });
  fakeApi({
    "GET /api/v1/bindings": none("bindings"),
    "GET /api/v1/users": none("users"),
    "GET /api/v1/apps": none("apps"),
    "GET /api/v1/roles": broken,
    "GET /api/v1/businesses": none("businesses"),
    "GET /api/v1/business-sets": none("business_sets"),
  });
  renderPage(<Bindings />);

  await userEvent.click(await screen.findByRole("button", { name: /bind/i }));

  expect(await screen.findByText("disk")).toBeTruthy();
});
