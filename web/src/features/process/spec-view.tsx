import type { ReactNode } from "react";
import type { Spec } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { CopyText } from "@/ui/copy";
import { formatRoundPercent } from "@/ui/format";
import { Facts, Panel } from "@/ui/page";

/** A spec for reading; its fields are explained where it is edited. */
export function SpecView({ spec }: { spec: Spec }) {
  const { register: text, common, terms } = useMessages();
  const { field, group } = text;
  const { identity, control, limits, policy } = spec;
  const seconds = (value: number | null | undefined) => (value == null ? common.none : common.seconds(value));
  const percent = (value: number | null | undefined) =>
    value == null ? common.none : formatRoundPercent(value);
  const path = (value: string | null | undefined) =>
    value ? <CopyText text={value} isWrapped /> : common.none;
  /** The value says its unit itself. */
  const bare = ({ label }: { label: string }) => label.replace(/\s*[(（].*[)）]$/, "");
  const commands: [string, string | null | undefined][] = [
    [field.start_cmd.label, control.start],
    [field.stop_cmd.label, control.stop],
    [field.restart_cmd.label, control.restart],
    [field.reload_cmd.label, control.reload],
    [field.kill_cmd.label, control.kill],
    [field.version_cmd.label, control.version],
    [field.health_cmd.label, control.health],
  ];
  const labels = Object.entries(spec.labels as Record<string, string>);
  const schedule: [string, ReactNode][] =
    policy.lifetime === "periodic"
      ? [
          [
            field.crontab_rule.label,
            <code key="cron">
              {policy.crontab_rule ?? (policy.cycle ? common.seconds(policy.cycle) : common.none)}
            </code>,
          ],
        ]
      : [];
  const files = spec.configmap.map((file) => `${file.path} ${file.md5}`).join("\n");
  const all: [string, ReactNode][] = [
    [field.configmap.label, files && path(files)],
    [field.report_id.label, spec.report_id],
    [field.index_key.label, identity.index_key],
    [field.disk.label, limits.disk],
    [field.net.label, limits.net],
  ];
  const further = all.filter(([, value]) => value != null && value !== "");
  return (
    <div className="spec-grid">
      <Panel title={group.identity}>
        <Facts
          items={[
            [field.proc_name.label, path(identity.proc_name)],
            [field.user.label, identity.user],
            [field.setup_path.label, path(identity.setup_path)],
            [field.pid_path.label, path(identity.pid_path)],
            [field.config_path.label, path(identity.config_path)],
            [field.log_path.label, path(identity.log_path)],
            [field.labels.label, labels.map(([key, value]) => `${key}=${value}`).join(", ") || common.none],
          ]}
        />
      </Panel>
      <Panel title={group.policy}>
        <Facts
          items={[
            [field.auto_type.label, terms.lifetime[policy.lifetime]],
            ...schedule,
            [field.instance_num.label, policy.instances],
            [bare(field.start_check_secs), seconds(policy.start_check)],
            [bare(field.stop_check_secs), seconds(policy.stop_check)],
            [bare(field.op_timeout), seconds(policy.op_timeout)],
            [field.start_retries.label, policy.start_retries],
            [bare(field.start_interval), seconds(policy.start_interval)],
          ]}
        />
      </Panel>
      <Panel title={group.control}>
        <dl className="commands">
          {commands
            .filter(([, command]) => command)
            .map(([name, command]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>
                  <CopyText text={command ?? ""} isWrapped />
                </dd>
              </div>
            ))}
        </dl>
      </Panel>
      <Panel title={group.limits}>
        <Facts
          items={[
            [bare(field.cpu), percent(limits.cpu)],
            [bare(field.mem), percent(limits.memory)],
            [field.fd.label, limits.fd ?? common.none],
          ]}
        />
      </Panel>
      {control.health && policy.health && (
        <Panel title={group.health}>
          <Facts
            items={[
              [bare(field.interval_secs), seconds(policy.health.interval)],
              [bare(field.timeout_secs), seconds(policy.health.timeout)],
              [field.failures.label, policy.health.failures],
              [bare(field.grace_secs), seconds(policy.health.grace)],
            ]}
          />
        </Panel>
      )}
      {further.length > 0 && (
        <Panel title={group.further}>
          <Facts items={further} />
        </Panel>
      )}
    </div>
  );
}
