import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { Process } from "@/api/processes";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { UnregisterDialog } from "./unregister-dialog";

const instance = (host: string) => ({ host, process: "web/a" }) as Process;

test("the plan says what becomes of each host, and only what it says is done", async () => {
  const refused = { code: 403, name: "forbidden", message: "ana may not" };
  const asked = fakeApi({
    "POST /api/v1/processes/web/a/unregister/plan": () => ({
      body: {
        process: "web/a",
        hosts: [
          { host: "0:10.0.0.1", phase: "running", online: true },
          { host: "0:10.0.0.2", phase: "stopped", online: false },
          { host: "0:10.0.0.3", phase: "running", online: true, refused },
        ],
      },
    }),
    "DELETE /api/v1/processes/web/a": () => ({ body: { rows: [] } }),
  });
  const hosts = ["0:10.0.0.1", "0:10.0.0.2", "0:10.0.0.3"];
  renderPage(<UnregisterDialog process="web/a" instances={hosts.map(instance)} onClose={() => undefined} />);
  const button = await screen.findByRole("button", { name: "Unregister on 2 hosts" });
  expect(screen.getByText("Unregistered; keeps running unsupervised")).toBeTruthy();
  expect(screen.getByText("Not allowed: ana may not")).toBeTruthy();

  await userEvent.click(button);

  await waitFor(() => expect(asked.some((each) => each.method === "DELETE")).toBe(true));
  expect(asked.find((each) => each.method === "DELETE")?.body).toEqual({
    hosts: ["0:10.0.0.1", "0:10.0.0.2"],
  });
});

test("where nobody may, nothing can be done", async () => {
  const refused = { code: 403, name: "forbidden", message: "ana may not" };
  fakeApi({
    "POST /api/v1/processes/web/a/unregister/plan": () => ({
      body: { process: "web/a", hosts: [{ host: "0:10.0.0.1", refused }] },
    }),
  });
  renderPage(
    <UnregisterDialog process="web/a" instances={[instance("0:10.0.0.1")]} onClose={() => undefined} />,
  );

  const button = (await screen.findByRole("button", { name: "Nothing to change" })) as HTMLButtonElement;

  expect(button.disabled).toBe(true);
});
