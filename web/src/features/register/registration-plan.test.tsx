import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import type { Registration } from "@/api/processes";
import { fakeApi } from "../../../test/fake-api";
import { renderPage } from "../../../test/render";
import { RegistrationPlan } from "./registration-plan";

const registrationWith = (cpu: number, hosts = 1): Registration => ({
  meta: { namespace: "web", name: "nginx", labels: {} },
  hosts: Array.from({ length: hosts }, (_, index) => ({ ip: `10.0.0.${index}`, bk_cloud_id: 0 })),
  spec: {
    identity: { proc_name: "nginx", setup_path: "/opt", pid_path: "/run/nginx.pid", user: "web" },
    control: {},
    resource: { cpu },
    monitor_policy: { auto_type: 1 },
  },
});

/** A text that changes at a click, beside its plan. */
function Page() {
  const [registration, setRegistration] = useState(registrationWith(10));
  return (
    <>
      <button type="button" onClick={() => setRegistration(registrationWith(90))}>
        change
      </button>
      <RegistrationPlan registration={registration} />
    </>
  );
}

const planOf = ({ hosts = [] }: Registration) => ({
  process: "web/nginx",
  hosts: hosts.map((host) => ({ host: `0:${host.ip}`, registered: false, changes: [] })),
});

test("what is typed is saved only under its own plan", async () => {
  let release = () => {};
  const isReleased = new Promise<void>((resolve) => {
    release = resolve;
  });
  fakeApi({
    "POST /api/v1/processes/plan": async (request) => {
      const registration = (await request.clone().json()) as Registration;
      if (registration.spec.resource.cpu === 90) await isReleased;
      return { body: planOf(registration) };
    },
  });
  renderPage(<Page />);
  const button = () => screen.findByRole<HTMLButtonElement>("button", { name: "Register on 1 host" });
  expect((await button()).disabled).toBe(false);

  await userEvent.click(screen.getByText("change"));

  expect((await button()).disabled).toBe(true);
  release();
  await expect.poll(async () => (await button()).disabled).toBe(false);
});

test("on more than 50 hosts it is saved once their number is typed", async () => {
  fakeApi({
    "POST /api/v1/processes/plan": async (request) => ({
      body: planOf((await request.clone().json()) as Registration),
    }),
  });
  renderPage(<RegistrationPlan registration={registrationWith(10, 51)} />);
  const button = await screen.findByRole<HTMLButtonElement>("button", { name: "Register on 51 hosts" });
  expect(button.disabled).toBe(true);

  await userEvent.type(screen.getByLabelText("Type 51 to confirm"), "51");

  expect(button.disabled).toBe(false);
});
