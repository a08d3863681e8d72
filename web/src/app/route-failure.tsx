import { Button } from "antd";
import { useRouteError } from "react-router";
import { useMessages } from "@/settings/context";
import { Empty } from "@/ui/states";

/** A page that threw, or whose files are gone because the server was updated under it. */
export function RouteFailure() {
  const { states } = useMessages();
  const error = useRouteError();
  const text = error instanceof Error ? error.message : String(error);
  const isOutdated = /dynamically imported module|Importing a module script failed/i.test(text);
  return (
    <Empty title={isOutdated ? states.updateAvailable : states.crashed}>
      {!isOutdated && <p className="mono">{text}</p>}
      <Button type="primary" onClick={() => location.reload()}>
        {states.reload}
      </Button>
    </Empty>
  );
}
