import { EllipsisOutlined } from "@ant-design/icons";
import { Button, Dropdown } from "antd";
import { Link } from "react-router";
import { type Process, splitProcess } from "@/api/processes";
import { operations } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { LinkButton } from "@/ui/link-button";
import { Guarded, placesOf } from "@/ui/rights";
import { linkTo, useUrlValue } from "@/ui/url-state";
import { UnregisterDialog } from "./unregister-dialog";

/** Each leads to a plan first; edit and unregister change what is registered. */
export function ProcessActions({ process, instances }: { process: string; instances: Process[] }) {
  const { process: text, terms, common } = useMessages();
  const [shown, setShown] = useUrlValue("do");
  const { namespace } = splitProcess(process);
  const places = placesOf(namespace, instances);

  return (
    <>
      <Guarded need="operate" place={places} where={namespace}>
        {(isAllowed) => (
          <Dropdown
            disabled={!isAllowed}
            trigger={["click"]}
            menu={{
              items: operations.map((operation) => ({
                key: operation,
                label: (
                  <Link to={linkTo("/operate", { op: operation, process })}>
                    {terms.operation[operation]}…
                  </Link>
                ),
              })),
            }}
          >
            <Button type="primary">{text.operate}</Button>
          </Dropdown>
        )}
      </Guarded>
      <Guarded need="register" place={places} where={namespace}>
        {(isAllowed) => (
          <LinkButton to={linkTo("/register", { process, host: instances[0]?.host })} disabled={!isAllowed}>
            {text.edit}
          </LinkButton>
        )}
      </Guarded>
      <Guarded need="register" place={places} where={namespace}>
        {(isAllowed) => (
          <Dropdown
            disabled={!isAllowed}
            trigger={["click"]}
            menu={{
              items: [
                {
                  key: "unregister",
                  label: `${text.unregister}…`,
                  danger: true,
                  onClick: () => setShown("unregister"),
                },
              ],
            }}
          >
            <Button icon={<EllipsisOutlined />} aria-label={common.more} />
          </Dropdown>
        )}
      </Guarded>
      {shown === "unregister" && (
        <UnregisterDialog process={process} instances={instances} onClose={() => setShown(undefined)} />
      )}
    </>
  );
}
