import { useQuery } from "@tanstack/react-query";
import { Segmented } from "antd";
import { unservedQuery } from "@/api/fleet";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { useRight } from "@/ui/rights";
import { useUrlValue } from "@/ui/url-state";

/** Whether the hosts without an agent are shown; only administrators can see them. */
export function useHostView(): { isUnserved: boolean; set: (view: string) => void } {
  const mayAdminister = useRight("admin");
  const [view, set] = useUrlValue("view", "served");
  return { isUnserved: mayAdminister && view === "unserved", set };
}

/** Between hosts with their agents and hosts that agents have left; nothing for who may not see these. */
export function HostViewSwitch() {
  const { hosts: text } = useMessages();
  const number = useNumbers();
  const mayAdminister = useRight("admin");
  const { isUnserved, set } = useHostView();
  const unserved = useQuery({ ...unservedQuery, enabled: mayAdminister }).data?.length ?? 0;
  if (!mayAdminister) return null;
  const label = unserved > 0 ? `${text.view.unserved} ${number(unserved)}` : text.view.unserved;
  return (
    <Segmented
      value={isUnserved ? "unserved" : "served"}
      onChange={set}
      options={[
        { value: "served", label: text.view.served },
        { value: "unserved", label },
      ]}
    />
  );
}
