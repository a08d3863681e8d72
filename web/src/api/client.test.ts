import { expect, test } from "vitest";
import { fakeApi } from "../../test/fake-api";
import { ApiError, api, data, onSignedOut, setCsrf } from "./client";

test("a change carries the CSRF token, a read does not", async () => {
  const asked = fakeApi({
    "GET /api/v1/server": () => ({ body: {} }),
    "POST /api/v1/users": () => ({ status: 201, body: {} }),
  });
  setCsrf("secret");

  await data(api.GET("/api/v1/server"));
  await data(api.POST("/api/v1/users", { body: { name: "ana" } }));

  expect(asked.map((each) => each.headers.get("x-proctor-csrf"))).toEqual([null, "secret"]);
});

test("an error carries code, field and request id", async () => {
  fakeApi({
    "GET /api/v1/hosts": () => ({
      status: 400,
      body: { error: { code: "invalid_argument", message: "cloud: is no number", field: "cloud" } },
      headers: { "x-request-id": "r-1" },
    }),
  });

  const failure = await data(api.GET("/api/v1/hosts")).catch((error: unknown) => error);

  expect(failure).toBeInstanceOf(ApiError);
  expect(failure).toMatchObject({ status: 400, code: "invalid_argument", field: "cloud", requestId: "r-1" });
});

test("an answer of 401 is told to whoever listens", async () => {
  fakeApi({ "GET /api/v1/server": () => ({ status: 401, body: {} }) });
  let isTold = false;
  const stop = onSignedOut(() => {
    isTold = true;
  });

  await data(api.GET("/api/v1/server")).catch(() => undefined);
  stop();

  expect(isTold).toBe(true);
});
