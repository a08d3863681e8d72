import { expect, test } from "vitest";
import type { Registration } from "@/api/processes";
import { draftFrom, emptyDraft, filesOf, hostsOf, isPlannable, labelsOf, registrationOf } from "./draft";

const registration: Registration = {
  meta: { namespace: "web", name: "nginx", labels: { env: "prod" } },
  hosts: [{ ip: "10.0.0.1", bk_cloud_id: 3 }],
  spec: {
    identity: {
      proc_name: "nginx",
      setup_path: "/opt",
      pid_path: "/run/nginx.pid",
      user: "web",
      index_key: "k",
    },
    control: { start_cmd: "./nginx" },
    resource: { cpu: 20, disk: 5 },
    monitor_policy: { auto_type: 1, op_timeout: 30 },
    configmap: [
      { path: "/opt/a.conf", md5: "00" },
      { path: "/opt/b c.conf", md5: "01" },
      { path: "/opt/d e.conf", md5: "" },
      { path: "/opt/d41d8cd98f00b204e9800998ecf8427e", md5: "" },
      { path: "/opt/f d41d8cd98f00b204e9800998ecf8427e", md5: "" },
    ],
    warn_report_policy: { report_id: 9 },
  },
};

test("JSON that goes through the form comes out as it was", () => {
  expect(registrationOf(draftFrom(registration))).toEqual(registration);
});

test("every field of the documents stands in the form", () => {
  const { identity, limits, report_id } = draftFrom(registration);

  expect([identity.index_key, limits.disk, report_id]).toEqual(["k", 5, 9]);
});

test("a typed file is a path, and an md5 where one stands behind it", () => {
  const md5 = "d41d8cd98f00b204e9800998ecf8427e";

  expect(
    filesOf(`/opt/a.conf ${md5}\n\n /opt/b c.conf  ${md5} \n/opt/b c.conf\n/opt/d.conf\t${md5}`),
  ).toEqual([
    { path: "/opt/a.conf", md5 },
    { path: "/opt/b c.conf", md5 },
    { path: "/opt/b c.conf", md5: "" },
    { path: "/opt/d.conf", md5 },
  ]);
});

test("an empty form is not planned", () => {
  expect(isPlannable(registrationOf(emptyDraft))).toBe(false);
  expect(isPlannable(registration)).toBe(true);
});

test("addresses are told apart from agent ids and IPv6", () => {
  expect(hostsOf("10.0.0.1, 3:10.0.0.2 fd00::1")).toEqual({
    hosts: [
      { ip: "10.0.0.1", bk_cloud_id: 0 },
      { ip: "10.0.0.2", bk_cloud_id: 3 },
    ],
    agent_id_list: ["fd00::1"],
  });
});

test("labels are pairs with commas between them", () => {
  expect(labelsOf("env=prod, tier = web,flag")).toEqual({ env: "prod", tier: "web", flag: "" });
});
