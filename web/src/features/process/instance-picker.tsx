import { Select } from "antd";
import type { ReactNode } from "react";
import type { Process } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { useUrlValue } from "@/ui/url-state";

export type PickedInstance = {
  host: string;
  chosen: Process | undefined;
  /** Which of its instances; undefined where there is one alone. */
  instance: number | undefined;
  picker: ReactNode;
};

/** One host of a process and, where it runs there several times, one of its instances: chosen in the address. */
export function useInstancePicker(instances: Process[]): PickedInstance {
  const { process: text } = useMessages();
  const [wantedHost, setHost] = useUrlValue("host", instances[0]?.host ?? "");
  const [wantedNumber, setNumber] = useUrlValue("instance", "1");
  const chosen = instances.find((each) => each.host === wantedHost) ?? instances[0];
  const count = chosen?.spec?.policy?.instances ?? 1;
  const instance = count > 1 ? Math.min(Math.max(Number(wantedNumber) || 1, 1), count) : undefined;
  const picker = (
    <>
      <Select
        showSearch
        style={{ minWidth: 170 }}
        aria-label={text.pickHost}
        value={chosen?.host}
        onChange={setHost}
        options={instances.map((each) => ({ value: each.host, label: each.host }))}
      />
      {instance !== undefined && (
        <Select
          aria-label={text.pickInstance}
          value={String(instance)}
          onChange={setNumber}
          options={Array.from({ length: count }, (_, index) => ({
            value: String(index + 1),
            label: `#${index + 1}`,
          }))}
        />
      )}
    </>
  );
  return { host: chosen?.host ?? "", chosen, instance, picker };
}
