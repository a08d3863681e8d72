import { expect, test } from "vitest";
import { ofEvent, ofReason, told } from "./told";
import sentences from "./zh/sentences.json";

const NOT_RUNNING = {
  message: "the process is not running: no pid file /run/a.pid",
  message_id: "process_not_running",
  message_args: { reason: { id: "no_pid_file", args: { path: "/run/a.pid" } } },
};

test("a message is told by its id and its arguments", () => {
  expect(told(sentences, NOT_RUNNING)).toBe("进程未运行：没有 pid 文件 /run/a.pid");
});

test("a message that is text alone, of a newer server or incomplete stays as it is", () => {
  for (const other of [
    { message: "exit 3" },
    { ...NOT_RUNNING, message_id: "not_yet_known" },
    { ...NOT_RUNNING, message_id: "toString" },
    { ...NOT_RUNNING, message_args: { reason: { id: "not_yet_known", args: {} } } },
    { ...NOT_RUNNING, message_args: { reason: null } },
  ]) {
    expect(told(sentences, other)).toBe(other.message);
  }
});

test("an event is told by its id, too", () => {
  const event = {
    content: "process web/nginx (7) ended",
    message_id: "process_has_ended",
    message_args: { process: "web/nginx", pid: "7" },
  };
  expect(told(sentences, ofEvent(event))).toBe("进程 web/nginx（7）已结束");
});

test("a reason is told by its id, and that of an earlier agent as it is", () => {
  const process = {
    reason: "no pid file /run/a.pid",
    reason_id: "no_pid_file",
    reason_args: { path: "/run/a.pid" },
  };
  expect(told(sentences, ofReason(process))).toBe("没有 pid 文件 /run/a.pid");
  expect(told(sentences, ofReason({ reason: "exit code 1" }))).toBe("exit code 1");
});

test("an argument is not looked into", () => {
  const odd = { message: "", message_id: "no_pid_file", message_args: { path: "{path}" } };
  expect(told(sentences, odd)).toBe("没有 pid 文件 {path}");
});
