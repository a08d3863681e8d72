import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "@/api/client";
import { splitProcess } from "@/api/processes";

export type Done = Schemas["ProcessOperation"];

export const OPERATIONS_MAX = 200;

/** What was asked of a process lately, the newest first, of the tasks that the viewer may read. */
export const operationsQuery = (process: string) =>
  queryOptions({
    queryKey: ["process-operations", process],
    queryFn: async ({ signal }): Promise<Done[]> => {
      const params = { path: splitProcess(process), query: { limit: OPERATIONS_MAX } };
      const page = await data(api.GET("/api/v1/processes/{namespace}/{name}/operations", { params, signal }));
      return page.operations;
    },
    refetchInterval: 10_000,
  });
