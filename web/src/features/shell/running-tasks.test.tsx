import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { RunningTasks } from "./running-tasks";

test("tasks that could not be loaded are not told as none", async () => {
  fakeApi({
    "GET /api/v1/tasks": () => ({ status: 500, body: { error: { code: "internal", message: "no" } } }),
  });
  renderPage(<RunningTasks />);

  expect(
    await screen.findByRole("button", { name: "The tasks in progress could not be loaded" }),
  ).toBeTruthy();
});

test("where there is none, it says so", async () => {
  fakeApi({ "GET /api/v1/tasks": () => ({ body: { tasks: [] } }) });
  renderPage(<RunningTasks />);

  expect(await screen.findByRole("button", { name: "No task in progress" })).toBeTruthy();
});
