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

test("a retry leads to its plan", async () => {
  const { router } = renderPage(<TaskActions task={task({ pending: 0, failed: 60, finished_at: 5 })} />);

  await userEvent.click(button("Retry 60 failed…"));

  expect(router.state.location.pathname + router.state.location.search).toBe("/operate?retry=GSETASK%3A1");
});

/** Clicks, and types the number that the dialog asks for. */
async function confirmTyped(opener: string, yes: string, count: string) {
  await userEvent.click(button(opener));
  const dialog = within(await screen.findByRole("dialog"));
  const confirm = dialog.getByRole<HTMLButtonElement>("button", { name: yes });
  const wasOff = confirm.disabled;
  await userEvent.type(dialog.getByLabelText(`Type ${count} to confirm`), count);
  await userEvent.click(confirm);
  return wasOff;
}

test("more than 50 targets are cancelled once their number is typed", async () => {
  const asked = fakeApi({ "POST /api/v1/tasks/GSETASK%3A1/cancel": () => ({ body: task({}) }) });
  renderPage(<TaskActions task={task({})} />);

  const wasOff = await confirmTyped("Cancel task", "Cancel 60 pending targets", "60");

  expect(wasOff).toBe(true);
  expect(asked.map((each) => each.url.pathname)).toEqual(["/api/v1/tasks/GSETASK%3A1/cancel"]);
});

test("so are more than 50 released that wait in a rollout; a few go at a click", async () => {
  const asked = fakeApi({ "POST /api/v1/tasks/GSETASK%3A1/resume": () => ({ body: task({}) }) });
  const rollout = (released: number) => ({ state: "paused", released }) as Task["rollout"];
  const view = renderPage(<TaskActions task={task({ rollout: rollout(5) })} />);

  const wasOff = await confirmTyped("Continue with the other 55", "Continue with the other 55", "55");
  expect(wasOff).toBe(true);
  view.unmount();
  renderPage(<TaskActions task={task({ rollout: rollout(58) })} />);
  await userEvent.click(button("Continue with the other 2"));

  expect(asked).toHaveLength(2);
});
