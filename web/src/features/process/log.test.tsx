import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { addToLog, type LogAnswer, type Process } from "@/api/processes";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import Log from "./log";
import { plainText } from "./log-text";

const answer: LogAnswer = {
  process: "web/nginx",
  host: "0:10.0.0.1",
  state: "read",
  path: "/var/log/nginx.log",
  problem: "",
  text: "one\ntwo\n",
  position: "a-8",
  size: 8,
  modified_at: 1000,
  restarted: false,
  skipped: 0,
};

const instance = { host: "0:10.0.0.1", process: "web/nginx", online: true } as Process;
const PATH = "GET /api/v1/processes/web/nginx/log";

function show(told: Partial<LogAnswer>, options: Partial<Parameters<typeof renderPage>[1]> = {}) {
  const asked = fakeApi({ [PATH]: () => ({ body: { ...answer, ...told } }) });
  renderPage(<Log process="web/nginx" instances={[instance]} />, { path: "/?follow=off", ...options });
  return asked;
}

test("the last lines are shown with the file they come from", async () => {
  const asked = show({});

  expect((await screen.findByLabelText("Log", { selector: "pre" })).textContent).toBe("one\ntwo\n");
  expect(screen.getByText("/var/log/nginx.log")).toBeTruthy();
  expect(Object.fromEntries(asked[0]?.url.searchParams ?? [])).toEqual({
    host: "0:10.0.0.1",
    lines: "200",
  });
});

test("a refresh asks only for what was written since, and adds it", async () => {
  const asked = fakeApi({
    [PATH]: (_, url) => ({
      body: url.searchParams.has("since")
        ? { ...answer, text: "three\n", position: "a-14", size: 14 }
        : answer,
    }),
  });
  renderPage(<Log process="web/nginx" instances={[instance]} />, { path: "/?follow=off" });
  await screen.findByLabelText("Log", { selector: "pre" });

  await userEvent.click(screen.getByRole("button", { name: /Refresh/ }));

  await waitFor(() => expect(document.querySelector("pre")?.textContent).toBe("one\ntwo\nthree\n"));
  expect(asked[1]?.url.searchParams.get("since")).toBe("a-8");
});

test("who may only look is told what is missing, and nothing is asked", async () => {
  const asked = show({}, { rights: { read: ["everything"] } });

  expect(await screen.findByText("You may not see this")).toBeTruthy();
  expect(asked).toHaveLength(0);
});

test.each([
  ["no_path", /names no log_path/],
  ["missing", /no such file/],
  ["denied", /may not read this file/],
  ["not_a_log", /not a log file/],
  ["forbidden", /policy/],
  ["unreadable", /could not read/],
  ["not_registered", /does not know/],
  ["offline", /not connected/],
  ["agent_too_old", /too old/],
  ["no_answer", /did not answer/],
] as const)("a log that is %s is said to be", async (state, words) => {
  show({ state, text: "", position: undefined });

  expect(await screen.findByText(words)).toBeTruthy();
});

test("an empty log and an error are two things", async () => {
  show({ text: "" });
  expect(await screen.findByText("The log is empty")).toBeTruthy();
});

test("an error can be tried again", async () => {
  fakeApi({ [PATH]: () => ({ status: 500, body: { error: { code: "internal", message: "broken" } } }) });
  renderPage(<Log process="web/nginx" instances={[instance]} />, { path: "/" });

  expect(await screen.findByRole("alert")).toBeTruthy();
});

test("what was read stays while its host is away, and a new file begins anew", () => {
  const read = addToLog(undefined, answer);
  const away = addToLog(read, { ...answer, state: "offline", text: "", path: "", position: undefined });
  const back = addToLog(away, { ...answer, text: "three\n", position: "a-14" });
  const rotated = addToLog(back, { ...answer, text: "new\n", position: "b-4", restarted: true });
  const skipped = addToLog(back, { ...answer, text: "late\n", position: "a-99999", skipped: 7 });

  expect([away.text, away.position, away.answer.state]).toEqual(["one\ntwo\n", "a-8", "offline"]);
  expect([back.text, back.gap]).toEqual(["one\ntwo\nthree\n", undefined]);
  expect([rotated.text, rotated.gap]).toEqual(["new\n", "restarted"]);
  expect([skipped.text, skipped.gap]).toEqual(["late\n", "skipped"]);
});

test("a line without an end is cut too", () => {
  const long = { ...answer, text: "x".repeat(600 * 1024) };

  for (const read of [addToLog(undefined, long), addToLog(undefined, { ...long, text: `${long.text}\n` })]) {
    expect(read.text.length).toBe(512 * 1024);
  }
});

test("a file with a time beyond all dates is shown", async () => {
  show({ modified_at: Number.MAX_SAFE_INTEGER });

  expect((await screen.findByLabelText("Log", { selector: "pre" })).textContent).toBe("one\ntwo\n");
});

test("a log that is followed for days keeps its newest lines", () => {
  let log = addToLog(undefined, answer);
  for (let number = 0; number < 20; number += 1) {
    log = addToLog(log, { ...answer, text: `${"x".repeat(65_000)} ${number}\n` });
  }

  expect(log.text.length).toBeLessThanOrEqual(512 * 1024);
  expect(log.text.endsWith(" 19\n")).toBe(true);
  expect(log.text.startsWith("xxx")).toBe(true);
});

test("colours are left out and control characters shown as such", () => {
  expect(plainText("a\u001b[31;1mred\u001b[0m\tb\r\n")).toBe("ared\tb\n");
  expect(plainText("bell\u0007 \u001b]0;title\u0007")).toBe("bell\uFFFD \uFFFD]0;title\uFFFD");
  expect(plainText("cut \u001b[31")).toBe("cut ");
});
