import { EllipsisOutlined } from "@ant-design/icons";
import { useQueryClient } from "@tanstack/react-query";
import { App, Button, Dropdown } from "antd";
import { Link, useNavigate } from "react-router";
import { type Process, splitProcess, unregister } from "@/api/processes";
import { operations } from "@/api/tasks";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { LinkButton } from "@/ui/link-button";
import { Guarded, hasRight, placesOf, useSession } from "@/ui/rights";
import { linkTo } from "@/ui/url-state";
import { useConfirm } from "@/ui/use-confirm";

/** Operate leads to the plan; edit and unregister change what is registered. */
export function ProcessActions({ process, instances }: { process: string; instances: Process[] }) {
  const { process: text, terms, common } = useMessages();
  const number = useNumbers();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { message } = App.useApp();
  const confirm = useConfirm();
  const session = useSession();
  const { namespace } = splitProcess(process);
  const places = placesOf(namespace, instances);
  // It is done everywhere at once, without a plan that would tell who is refused.
  const mayUnregister = places.every((place) => hasRight(session, "register", place));

  const unregisterAll = async () => {
    try {
      const { rows } = await unregister(
        process,
        instances.map((instance) => instance.host),
      );
      const bad = rows.find((row) => row.code !== 0);
      if (bad) void message.warning(`${bad.host}: ${terms.told(bad)}`);
      else void message.success(text.unregistered);
      await client.invalidateQueries({ queryKey: ["process"] });
      await navigate("/processes");
    } catch (error) {
      void message.error(error instanceof Error ? error.message : String(error));
    }
  };
  const away = instances.filter((instance) => !instance.online).length;
  const running = instances.filter((instance) => instance.online && instance.phase === "running").length;
  const askUnregister = () =>
    confirm(
      {
        title: text.unregisterTitle(process),
        text: [
          text.unregisterText(number(instances.length)),
          text.unregisterNow(number(running), number(away)),
        ].join(" "),
        yes: text.unregisterOn(number(instances.length)),
        count: instances.length,
      },
      unregisterAll,
    );

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
      {mayUnregister && (
        <Dropdown
          trigger={["click"]}
          menu={{
            items: [
              { key: "unregister", label: `${text.unregister}…`, danger: true, onClick: askUnregister },
            ],
          }}
        >
          <Button icon={<EllipsisOutlined />} aria-label={common.more} />
        </Dropdown>
      )}
    </>
  );
}
