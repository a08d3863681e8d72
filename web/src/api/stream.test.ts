import { expect, test } from "vitest";
import { parseBlock } from "./stream";

test("a block of a stream is one event", () => {
  const block = 'id: 7\nevent: exited\ndata: {"id": 7, "type": "exited"}';

  expect(parseBlock(block)).toEqual([{ id: 7, type: "exited" }]);
});

test("a keep-alive is no event", () => {
  expect(parseBlock(": still here")).toEqual([]);
});
