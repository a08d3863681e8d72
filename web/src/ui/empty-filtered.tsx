import { Button } from "antd";
import { useMessages } from "@/settings/context";
import { Empty } from "./states";
import { useClearUrl } from "./url-state";

/** Filters that leave nothing, and the way back to everything; `names` are those in the address. */
export function EmptyFiltered({ names }: { names: readonly string[] }) {
  const { common } = useMessages();
  const clear = useClearUrl(names);
  return (
    <Empty title={common.emptyFiltered}>
      <Button onClick={clear}>{common.clearFilters}</Button>
    </Empty>
  );
}
