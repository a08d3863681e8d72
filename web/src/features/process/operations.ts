import { queryOptions } from "@tanstack/react-query";
import { fetchTargets, fetchTasks, type Target, type Task } from "@/api/tasks";

export type Done = { task: Task; target: Target };

const TASKS_MAX = 20;

/** What the latest tasks did to a process. The server cannot be asked by process, so they are looked through. */
export const operationsQuery = (process: string) =>
  queryOptions({
    queryKey: ["process-operations", process],
    queryFn: async ({ signal }): Promise<Done[]> => {
      const { rows } = await fetchTasks({}, null, TASKS_MAX, signal);
      const found = await Promise.all(
        rows.map(async (task) => {
          const page = await fetchTargets(task.task_id, undefined, null, 200, signal);
          return page.rows.filter((target) => target.process === process).map((target) => ({ task, target }));
        }),
      );
      return found.flat();
    },
    staleTime: 10_000,
  });
