import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { Awaiting } from "./awaiting";

test("a new host is found and let in by the key that was shown", async () => {
  const host = {
    host: "0:10.0.0.9",
    agent: "a-9",
    cloud: 0,
    awaits_approval: true,
    key_fingerprint: "ab12",
    enrolled_at: 1,
    facts: { hostname: "new-1" },
  };
  const asked = fakeApi({
    "GET /api/v1/hosts": (_, url) => ({
      body: { hosts: url.searchParams.get("state") === "awaits_approval" ? [host] : [] },
    }),
    "POST /api/v1/hosts/0%3A10.0.0.9/approve": () => ({ body: host }),
  });
  renderPage(<Awaiting />);

  await userEvent.click(await screen.findByRole("button", { name: "Approve 0:10.0.0.9" }));
  await userEvent.click(await screen.findByRole("button", { name: "Approve" }));

  expect(await screen.findByText("new-1")).toBeTruthy();
  const approved = asked.filter((call) => call.method === "POST").map((call) => call.body);
  expect(approved).toEqual([{ key: "ab12" }]);
});
