import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Component } from "./register-page";

test("who edits a process that is not registered is told so", async () => {
  fakeApi({ "GET /api/v1/processes": () => ({ body: { processes: [] } }) });
  renderPage(<Component />, { path: "/register?process=web%2Fgone" });

  expect(await screen.findByText(/not registered on any host/)).toBeTruthy();
  expect(screen.queryByRole("status", { name: "Loading…" })).toBeNull();
});
