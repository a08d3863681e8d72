import { expect, test } from "vitest";
import { keepPicked } from "./picked";
import { parseForm, requestsOf } from "./request";

const requests = (query: string) => requestsOf(parseForm(new URLSearchParams(query)));

test("an address stands for a call", () => {
  expect(requests("op=stop&process=web/nginx&hosts=10.0.0.1,10.0.0.2")).toEqual([
    { operation: "stop", process: "web/nginx", hosts: ["10.0.0.1", "10.0.0.2"], rolling: undefined },
  ]);
});

test("nothing is called while something is missing", () => {
  expect(requests("op=stop")).toEqual([]);
  expect(requests("op=stop&process=web/nginx&where=business")).toEqual([]);
});

test("a selector goes with its namespace and a rolling pace", () => {
  expect(requests("op=restart&selector=env%3Dprod&namespace=web&business=3&parallel=10%25&canary=2")).toEqual(
    [
      {
        operation: "restart",
        selector: "env=prod",
        namespace: "web",
        business: 3,
        rolling: { max_parallel: "10%", max_failures: 0, canary: 2, wait_healthy: false },
      },
    ],
  );
});

test("picked rows are one call for each process", () => {
  const picked = keepPicked(["web/a 0:10.0.0.1", "web/b 0:10.0.0.1", "web/a 0:10.0.0.2"]);

  expect(requests(`op=start&picked=${picked}`).map(({ process, hosts }) => [process, hosts])).toEqual([
    ["web/a", ["0:10.0.0.1", "0:10.0.0.2"]],
    ["web/b", ["0:10.0.0.1"]],
  ]);
});
