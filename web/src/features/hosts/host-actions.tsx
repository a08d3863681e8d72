import { EllipsisOutlined } from "@ant-design/icons";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Dropdown, Modal, Select } from "antd";
import { type ReactNode, useState } from "react";
import { useNavigate } from "react-router";
import {
  allowRejoin,
  businessesQuery,
  type Host,
  placeHosts,
  removeHost,
  revokeHost,
  withdrawRejoin,
} from "@/api/hosts";
import { facetsQuery } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { useNumbers } from "@/ui/format";
import { Guarded } from "@/ui/rights";

const REJOIN_SECS = 3600;

/** What administrators do with a host. */
export function HostActions({ host }: { host: Host }) {
  const { hosts: text, common } = useMessages();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { modal, message } = App.useApp();
  const [isPlacing, setPlacing] = useState(false);

  const act = async (call: () => Promise<unknown>, to?: string) => {
    try {
      await call();
      await client.invalidateQueries({ queryKey: ["hosts"] });
      if (to) await navigate(to);
    } catch (error) {
      void message.error(error instanceof Error ? error.message : String(error));
    }
  };
  const ask = (title: string, content: ReactNode, okText: string, run: () => Promise<void>) =>
    modal.confirm({
      title: `${host.host}: ${title}`,
      content,
      okText,
      cancelText: common.cancel,
      okButtonProps: { danger: true },
      onOk: run,
    });
  const items = [
    { key: "place", label: text.place, onClick: () => setPlacing(true) },
    host.rejoin_until
      ? { key: "withdraw", label: text.withdraw, onClick: () => void act(() => withdrawRejoin(host.host)) }
      : {
          key: "rejoin",
          label: text.rejoin,
          onClick: () =>
            ask(text.rejoin, text.rejoinText, text.rejoinDo, () =>
              act(() => allowRejoin(host.host, REJOIN_SECS)),
            ),
        },
    {
      key: "revoke",
      label: text.revoke,
      danger: true,
      onClick: () =>
        ask(text.revoke, <WithProcesses host={host.host} text={text.revokeText} />, text.revokeDo, () =>
          act(() => revokeHost(host.host)),
        ),
    },
    {
      key: "remove",
      label: text.remove,
      danger: true,
      onClick: () =>
        ask(text.remove, <WithProcesses host={host.host} text={text.removeText} />, text.removeDo, () =>
          act(() => removeHost(host.host), "/hosts"),
        ),
    },
  ];
  return (
    <Guarded need="admin" place={{ business: host.business, cloud: host.cloud }}>
      {(isAllowed) => (
        <>
          <Dropdown menu={{ items }} trigger={["click"]} disabled={!isAllowed}>
            <Button icon={<EllipsisOutlined />}>{common.actions}</Button>
          </Dropdown>
          {isPlacing && (
            <PlaceDialog
              host={host}
              onClose={() => setPlacing(false)}
              onPlace={(business) =>
                void act(() => placeHosts([host.host], business)).then(() => setPlacing(false))
              }
            />
          )}
        </>
      )}
    </Guarded>
  );
}

/** What happens, and to how many processes. */
function WithProcesses({ host, text }: { host: string; text: string }) {
  const { hosts: words, common } = useMessages();
  const number = useNumbers();
  const { data, error } = useQuery(facetsQuery({ host }));
  const running = data?.phases.find((phase) => phase.value === "running")?.count ?? 0;
  const told = data ? words.concerns(number(data.total), number(running)) : common.loading;
  return (
    <>
      <p>{text}</p>
      <p>{error && !data ? error.message : told}</p>
    </>
  );
}

type PlaceProps = { host: Host; onClose: () => void; onPlace: (business: number | null) => void };

function PlaceDialog({ host, onClose, onPlace }: PlaceProps) {
  const { hosts: text, common } = useMessages();
  const businesses = useQuery(businessesQuery).data ?? [];
  const [chosen, setChosen] = useState<number>(host.business ?? -1);
  return (
    <Modal
      open
      title={text.place}
      okText={common.save}
      cancelText={common.cancel}
      onCancel={onClose}
      onOk={() => onPlace(chosen === -1 ? null : chosen)}
    >
      <Select
        style={{ width: "100%" }}
        aria-label={text.column.business}
        value={chosen}
        onChange={setChosen}
        options={[
          { value: -1, label: common.noBusiness },
          ...businesses.map((business) => ({ value: business.id, label: business.name })),
        ]}
      />
    </Modal>
  );
}
