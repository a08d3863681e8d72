import { queryOptions } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";

export type Binding = Schemas["BindingView"];
export type Role = Schemas["RoleView"];
export type User = Schemas["UserView"];
export type App = Schemas["AppView"];
export type JoinToken = Schemas["TokenView"];
export type Webhook = Schemas["WebhookView"];
export type WebhookTested = Schemas["WebhookTested"];
export type OperationClass = "read" | "operate" | "register" | "limits" | "admin";

export const operationClasses: readonly OperationClass[] = ["read", "operate", "register", "limits", "admin"];

export const usersQuery = queryOptions({
  queryKey: ["users"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/users", { signal }))).users,
});

export const appsQuery = queryOptions({
  queryKey: ["apps"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/apps", { signal }))).apps,
});

export const rolesQuery = queryOptions({
  queryKey: ["roles"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/roles", { signal }))).roles,
});

export const bindingsQuery = queryOptions({
  queryKey: ["bindings"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/bindings", { signal }))).bindings,
});

export type Grant = Schemas["GrantView"];
export type GrantFilter = {
  subject?: string;
  class?: string;
  namespace?: string;
  host?: string;
  business?: number;
  cloud?: number;
  everywhere?: boolean;
};

/** Who may do what where. */
export const grantsQuery = (query: GrantFilter) =>
  queryOptions({
    queryKey: ["grants", query],
    queryFn: async ({ signal }) =>
      (await data(api.GET("/api/v1/access/grants", { params: { query }, signal }))).grants,
  });

export const joinTokensQuery = queryOptions({
  queryKey: ["join-tokens"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/tokens", { signal }))).tokens,
  refetchInterval: 5000,
});

export const webhooksQuery = queryOptions({
  queryKey: ["webhooks"],
  queryFn: async ({ signal }) => (await data(api.GET("/api/v1/webhooks", { signal }))).webhooks,
  refetchInterval: 10_000,
});

export const userTokensQuery = (name: string) =>
  queryOptions({
    queryKey: ["users", name, "tokens"],
    queryFn: async ({ signal }) =>
      (await data(api.GET("/api/v1/users/{name}/tokens", { params: { path: { name } }, signal }))).tokens,
  });

export const createUser = (name: string) => data(api.POST("/api/v1/users", { body: { name } }));
export const disableUser = (name: string, disabled: boolean) =>
  data(api.PUT("/api/v1/users/{name}", { params: { path: { name } }, body: { disabled } }));
export const deleteUser = (name: string) =>
  data(api.DELETE("/api/v1/users/{name}", { params: { path: { name } } }));
export const createUserToken = (name: string, body: Schemas["NewUserToken"]) =>
  data(api.POST("/api/v1/users/{name}/tokens", { params: { path: { name } }, body }));
export const deleteUserToken = (name: string, id: string) =>
  data(api.DELETE("/api/v1/users/{name}/tokens/{id}", { params: { path: { name, id } } }));
export const setPassword = (name: string, password: string | null) =>
  data(api.PUT("/api/v1/users/{name}/password", { params: { path: { name } }, body: { password } }));
export const createSignInLink = (name: string) =>
  data(api.POST("/api/v1/users/{name}/sign-in-link", { params: { path: { name } } }));
export const createApp = (body: Schemas["NewApp"]) => data(api.POST("/api/v1/apps", { body }));
export const rotateApp = (code: string) =>
  data(api.POST("/api/v1/apps/{code}/secret", { params: { path: { code } } }));
export const deleteApp = (code: string) =>
  data(api.DELETE("/api/v1/apps/{code}", { params: { path: { code } } }));
export const putRole = (name: string, classes: string[]) =>
  data(api.PUT("/api/v1/roles/{name}", { params: { path: { name } }, body: { classes } }));
export const deleteRole = (name: string) =>
  data(api.DELETE("/api/v1/roles/{name}", { params: { path: { name } } }));
export const createBinding = (body: Schemas["NewBinding"]) => data(api.POST("/api/v1/bindings", { body }));
export const deleteBinding = (id: string) =>
  data(api.DELETE("/api/v1/bindings/{id}", { params: { path: { id } } }));
export const createJoinToken = (body: Schemas["NewToken"]) => data(api.POST("/api/v1/tokens", { body }));
export const deleteJoinToken = (id: string) =>
  data(api.DELETE("/api/v1/tokens/{id}", { params: { path: { id } } }));
export const addWebhook = (body: Schemas["NewWebhook"]) => data(api.POST("/api/v1/webhooks", { body }));
/** One request that is marked as a test; a receiver that does not take it is no error of this call. */
export const testWebhook = (id: string) =>
  data(api.POST("/api/v1/webhooks/{id}/test", { params: { path: { id } } }));
export const removeWebhook = (id: string) =>
  data(api.DELETE("/api/v1/webhooks/{id}", { params: { path: { id } } }));
