import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component, safeTarget } from "./sign-in-page";

test("after the sign-in one is where one wanted to go", async () => {
  const asked = fakeApi({
    "POST /api/v1/session": () => ({ body: { user: "ana", allowed: [], csrf: "c" } }),
  });
  const { router } = renderPage(<Component />, { path: "/sign-in?to=%2Ftasks" });

  await userEvent.type(screen.getByLabelText("Token"), "pt_1");
  await userEvent.click(screen.getByRole("button", { name: "Sign in" }));

  expect(await screen.findByText("elsewhere")).toBeTruthy();
  expect(router.state.location.pathname).toBe("/tasks");
  expect(asked[0]?.body).toEqual({ token: "pt_1" });
});

test("a wrong token says so", async () => {
  fakeApi({
    "POST /api/v1/session": () => ({
      status: 401,
      body: { error: { code: "unauthenticated", message: "no such token" } },
    }),
  });
  renderPage(<Component />, { path: "/sign-in" });

  await userEvent.type(screen.getByLabelText("Token"), "pt_1");
  await userEvent.click(screen.getByRole("button", { name: "Sign in" }));

  expect(await screen.findByText("no such token")).toBeTruthy();
});

test("a link can lead only to this console", () => {
  expect(safeTarget("/tasks")).toBe("/tasks");
  expect(safeTarget("//evil.example")).toBe("/");
  expect(safeTarget("https://evil.example")).toBe("/");
  expect(safeTarget("/\\evil.example")).toBe("/");
  expect(safeTarget("/\t/evil.example")).toBe("/");
  expect(safeTarget("/\n\\evil.example")).toBe("/");
  expect(safeTarget("/.//evil.example")).toBe("/");
  expect(safeTarget("/tasks/..//evil.example")).toBe("/");
  expect(safeTarget("javascript:alert(1)")).toBe("/");
  expect(safeTarget("/hosts?state=online#x")).toBe("/hosts?state=online#x");
});

test("who signs in sees nothing that somebody else had read before", async () => {
  fakeApi({ "POST /api/v1/session": () => ({ body: { user: "eve", allowed: [], csrf: "c" } }) });
  const { client } = renderPage(<Component />, { path: "/sign-in" });
  client.setQueryData(["hosts"], ["of an administrator"]);

  await userEvent.type(screen.getByLabelText("Token"), "pt_1");
  await userEvent.click(screen.getByRole("button", { name: "Sign in" }));

  expect(await screen.findByText("elsewhere")).toBeTruthy();
  expect(client.getQueryData(["hosts"])).toBeUndefined();
});
