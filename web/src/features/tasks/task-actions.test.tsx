import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { Task } from "@/api/tasks";
import { fakeApi } from "../../../test/fake-api";
import { renderPage, sessionWith } from "../../../test/render";
import { maySteer, TaskActions } from "./task-actions";

const task = (more: Partial<Task>): Task => ({
  task_id: "GSETASK:1",
  created_at: 1,
  app: "",
  user: "bob",
  family: "native",
  operations: ["restart"],
  processes: ["web/nginx"],
  has_more_processes: false,
  total: 60,
  pending: 60,
  succeeded: 0,
  failed: 0,
  ...more,
});

const button = (name: string) => screen.getByRole<HTMLButtonElement>("button", { name });

test("a task is steered by who made it, and by who may operate everything", () => {
  const rights = { read: ["everything"], operate: ["namespace:web"] };
  renderPage(<TaskActions task={task({})} />, { rights });
  expect(button("Cancel task").disabled).toBe(true);
});

test("one's own task can be cancelled", () => {
  renderPage(<TaskActions task={task({ user: "ana" })} />, { rights: { operate: ["namespace:web"] } });
  expect(button("Cancel task").disabled).toBe(false);
});

test("so can what an app made for one, and not what an app of one's name made for itself", () => {
  const session = sessionWith({ operate: ["namespace:web"] });

  expect(maySteer(session, task({ user: "ana", app: "deploy" }))).toBe(true);
  expect(maySteer(session, task({ user: "ana", app: "ana" }))).toBe(false);
  expect(maySteer(session, task({ user: "bob", app: "deploy" }))).toBe(false);
});

test("a retry of more than 50 runs once their number is typed", async () => {
  const asked = fakeApi({
    "POST /api/v1/tasks/GSETASK%3A1/retry": () => ({ body: task({ task_id: "GSETASK:2" }) }),
  });
  renderPage(<TaskActions task={task({ pending: 0, failed: 60, finished_at: 5 })} />);

  await userEvent.click(button("Retry 60 failed"));
  const dialog = within(await screen.findByRole("dialog"));
  const retry = dialog.getByRole<HTMLButtonElement>("button", { name: "Retry 60 failed" });
  const wasOff = retry.disabled;
  await userEvent.type(dialog.getByLabelText("Type 60 to confirm"), "60");
  await userEvent.click(retry);

  expect(wasOff).toBe(true);
  expect(asked.map((each) => each.url.pathname)).toEqual(["/api/v1/tasks/GSETASK%3A1/retry"]);
});
