import { expect, test } from "vitest";
import { filterQuery, parseFilter } from "@/features/processes/filter";
import { linkPicked } from "./picked";
import { parseForm, requestOf } from "./request";

const request = (query: string) => requestOf(parseForm(new URLSearchParams(query)));

test("an address stands for a call", () => {
  expect(request("op=stop&process=web/nginx&hosts=10.0.0.1,10.0.0.2")).toEqual({
    operation: "stop",
    process: "web/nginx",
    hosts: ["10.0.0.1", "10.0.0.2"],
    rolling: undefined,
  });
});

test("nothing is called while something is missing", () => {
  expect(request("op=stop")).toBeUndefined();
  expect(request("op=stop&process=web/nginx&where=business")).toBeUndefined();
});

test("a selector goes with its namespace and a rolling pace", () => {
  expect(request("op=restart&selector=env%3Dprod&namespace=web&business=3&parallel=10%25&canary=2")).toEqual({
    operation: "restart",
    selector: "env=prod",
    namespace: "web",
    business: 3,
    rolling: { max_parallel: "10%", max_failures: 0, canary: 2, wait_healthy: false },
  });
});

test("targets wait for hosts that are away where that is wanted, but a status does not", () => {
  expect(request("op=stop&process=web/nginx&wait=300")?.wait_secs).toBe(300);
  expect(request("op=stop&process=web/nginx&wait=99999")?.wait_secs).toBe(3600);
  expect(request("op=stop&process=web/nginx")?.wait_secs).toBeUndefined();
  expect(request("op=status&process=web/nginx&wait=300")?.wait_secs).toBeUndefined();
});

test("picked rows are one call with exact targets", () => {
  const query = linkPicked(["web/a 0:10.0.0.1", "web/b 0:10.0.0.2"]);
  sessionStorage.clear();

  expect(request(`op=start&${query}`)).toEqual({
    operation: "start",
    rolling: undefined,
    targets: [
      { process: "web/a", host: "0:10.0.0.1" },
      { process: "web/b", host: "0:10.0.0.2" },
    ],
  });
});

test("more rows than an address holds are kept by the tab, and gone in another one", () => {
  const rows = Array.from({ length: 51 }, (_, index) => `web/a 0:10.0.0.${index}`);
  const query = linkPicked(rows);

  expect(query.has("target")).toBe(false);
  expect(request(`op=start&${query}`)?.targets).toHaveLength(51);
  sessionStorage.clear();
  expect(request(`op=start&${query}`)).toBeUndefined();
});

test("the filter of a list goes through an address and back", () => {
  const filter = { namespace: "web", selector: "env=prod,tier!=db", phase: "failed", business: 3 };

  expect(parseFilter(new URLSearchParams(filterQuery({ ...filter, sort: "cpu" })))).toMatchObject(filter);
  expect(filterQuery({ ...filter, sort: "cpu" })).not.toContain("sort");
});
