import { expect, test } from "vitest";
import type { Registration } from "@/api/processes";
import { emptyDraft, registrationOf } from "./draft";
import { registrationFrom, sourceOf } from "./source";

const registration: Registration = {
  meta: { namespace: "数据", name: "nginx", labels: { "a.b/c": 'say "hi"' } },
  hosts: [{ ip: "10.0.0.1", bk_cloud_id: 3 }],
  spec: {
    identity: { proc_name: "nginx", setup_path: "/opt", pid_path: "/run/nginx.pid", user: "web" },
    control: { start_cmd: "./nginx &\necho $! > 'x y.pid'" },
    resource: { cpu: 12.5 },
    monitor_policy: { auto_type: 1, op_timeout: 30 },
    configmap: [{ path: "/opt/a.conf", md5: "00" }],
  },
};

test.each(["json", "toml"] as const)("a registration that goes through %s comes out as it was", (form) => {
  expect(registrationFrom(sourceOf(registration, form))).toEqual(registration);
});

test("a text that is not TOML says where", () => {
  expect(() => registrationFrom({ form: "toml", text: "[meta\nname = 1" })).toThrow(/1/);
});

test("an empty form can be seen as TOML", () => {
  expect(sourceOf(registrationOf(emptyDraft), "toml").text).toContain("[meta]");
});
