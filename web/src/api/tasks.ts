import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import { fetchAll, type Page, pageLimit } from "./paged";

export type Task = Schemas["TaskView"];
export type Target = Schemas["TargetRow"];
export type Operation = Schemas["OperationKind"];
export type OperationRequest = Schemas["OperationRequest"];
export type PlannedTarget = Schemas["PlannedTarget"];
export type ExactTarget = Schemas["ExactTarget"];
export type Rolling = Schemas["Rolling"];
export type TargetState = Schemas["TargetState"];

export const operations: readonly Operation[] = [
  "start",
  "stop",
  "restart",
  "reload",
  "kill",
  "manage",
  "release",
  "status",
];

export type TaskState = Schemas["TaskState"];
export type TaskGrid = Schemas["TaskGrid"];
export type TaskFilter = {
  app?: string;
  user?: string;
  unfinished?: boolean;
  process?: string;
  operation?: Operation;
  state?: TaskState;
};

export async function fetchTasks(
  filter: TaskFilter,
  after: string | null,
  limit = pageLimit(after),
  signal?: AbortSignal,
): Promise<Page<Task>> {
  const query = { ...filter, after: after ?? undefined, limit };
  const page = await data(api.GET("/api/v1/tasks", { params: { query }, signal }));
  return { rows: page.tasks, next: page.next ?? null };
}

/** While tasks are under way, and while none is: what one begins oneself is asked for at once. */
const WATCH_MS = 3000;
const IDLE_MS = 10_000;

export const runningTasksQuery = queryOptions({
  queryKey: ["tasks", "running"],
  queryFn: async ({ signal }) => (await fetchTasks({ unfinished: true }, null, 20, signal)).rows,
  refetchInterval: (query) => ((query.state.data?.length ?? 0) > 0 ? WATCH_MS : IDLE_MS),
});

export const taskQuery = (id: string) =>
  queryOptions({
    queryKey: ["task", id],
    queryFn: ({ signal }) =>
      data(api.GET("/api/v1/tasks/{task_id}", { params: { path: { task_id: id } }, signal })),
    refetchInterval: (query) => (query.state.data?.finished_at ? false : 1000),
  });

export async function fetchTargets(
  id: string,
  state: TargetState | undefined,
  after: string | null,
  limit = pageLimit(after),
  signal?: AbortSignal,
): Promise<Page<Target>> {
  const query = { state, output: false, after: after === null ? undefined : Number(after), limit };
  const params = { path: { task_id: id }, query };
  const page = await data(api.GET("/api/v1/tasks/{task_id}/targets", { params, signal }));
  return { rows: page.targets, next: page.next == null ? null : String(page.next) };
}

/** All targets of a task, of one state or of all, without output. */
export function fetchAllTargets(id: string, state: TargetState | undefined, signal?: AbortSignal) {
  return fetchAll((after) => fetchTargets(id, state, after, 1000, signal), 200_000);
}

/** One target with what its command printed. */
export const targetQuery = (id: string, index: number | null) =>
  queryOptions({
    queryKey: ["task", id, "target", index],
    queryFn: async ({ signal }) => {
      const query = { after: index ? index - 1 : undefined, limit: 1 };
      const params = { path: { task_id: id }, query };
      const page = await data(api.GET("/api/v1/tasks/{task_id}/targets", { params, signal }));
      return page.targets[0] ?? null;
    },
    enabled: index !== null,
    refetchInterval: (query) => (query.state.data?.code === 115 ? 1000 : false),
  });

/** The state of every target, one letter each. */
export const gridQuery = (id: string) =>
  queryOptions({
    queryKey: ["task", id, "grid"],
    queryFn: ({ signal }) =>
      data(api.GET("/api/v1/tasks/{task_id}/grid", { params: { path: { task_id: id } }, signal })),
    staleTime: Number.POSITIVE_INFINITY,
  });

/** What an operation would do, without doing it. */
export async function planOperation(request: OperationRequest, signal?: AbortSignal) {
  const answer = await data(api.POST("/api/v1/operations", { body: { ...request, plan: true }, signal }));
  return answer.plan ?? { total: 0, refused: 0, targets: [] };
}

export async function runOperation(request: OperationRequest, key: string): Promise<string> {
  const params = { header: { "Idempotency-Key": key } };
  const answer = await data(api.POST("/api/v1/operations", { body: request, params }));
  if (!answer.task_id) throw new Error("the server made no task");
  return answer.task_id;
}

const path = (id: string) => ({ params: { path: { task_id: id } } });

export function cancelTask(id: string) {
  return data(api.POST("/api/v1/tasks/{task_id}/cancel", path(id)));
}

export function pauseTask(id: string) {
  return data(api.POST("/api/v1/tasks/{task_id}/pause", path(id)));
}

export function resumeTask(id: string) {
  return data(api.POST("/api/v1/tasks/{task_id}/resume", path(id)));
}

export function retryTask(id: string) {
  return data(api.POST("/api/v1/tasks/{task_id}/retry", path(id)));
}
