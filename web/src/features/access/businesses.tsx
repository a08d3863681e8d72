import { useQuery } from "@tanstack/react-query";
import { Form, Input, InputNumber } from "antd";
import { useState } from "react";
import { Link } from "react-router";
import { api, data, type Schemas } from "@/api/client";
import { businessesQuery, businessSetsQuery } from "@/api/hosts";
import { fleetMapQuery } from "@/api/overview";
import { useMessages } from "@/settings/context";
import { FormDialog, required } from "@/ui/form-dialog";
import { useNumbers } from "@/ui/format";
import { RowButton } from "@/ui/row-button";
import { SimpleTable } from "@/ui/simple-table";
import { linkTo } from "@/ui/url-state";
import { useAction } from "@/ui/use-action";
import { Section } from "./section";

type Business = Schemas["BusinessView"];

export function Businesses() {
  const { access, common } = useMessages();
  const text = access.businesses;
  const number = useNumbers();
  const query = useQuery(businessesQuery);
  const placed = useQuery(fleetMapQuery).data?.business;
  const sets = useQuery(businessSetsQuery).data ?? [];
  const { ask } = useAction();
  const [editing, setEditing] = useState<Business | "new" | null>(null);
  const remove = ({ id, name }: Business) =>
    ask(
      { title: text.deleteTitle(name), text: text.deleteText, yes: common.delete },
      () => data(api.DELETE("/api/v1/businesses/{id}", { params: { path: { id } } })),
      ["businesses"],
    );
  return (
    <Section
      query={query}
      saved={{ name: "businesses", columns: ["id", "name"] }}
      action={{ label: text.create, onClick: () => setEditing("new") }}
    >
      {(businesses) => (
        <>
          <SimpleTable
            label={access.tab.businesses}
            rows={businesses}
            rowKey={(business) => String(business.id)}
            columns={[
              { key: "id", title: text.id, isNumber: true, render: (business) => business.id },
              { key: "name", title: text.name, render: (business) => business.name },
              {
                key: "hosts",
                title: text.hosts,
                isNumber: true,
                render: (business) => (
                  <Link to={linkTo("/hosts", { business: business.id })}>
                    {placed ? number(placed.filter((each) => each === business.id).length) : "…"}
                  </Link>
                ),
              },
              {
                key: "sets",
                title: text.sets,
                isMinor: true,
                render: (business) =>
                  common.list(sets.filter((set) => set.members.includes(business.id)).map((set) => set.name)),
              },
            ]}
            actions={(business) => (
              <>
                <RowButton onClick={() => setEditing(business)}>{common.edit}</RowButton>
                <RowButton isDangerous onClick={() => remove(business)}>
                  {common.delete}
                </RowButton>
              </>
            )}
          />
          {editing && (
            <BusinessDialog business={editing === "new" ? null : editing} onClose={() => setEditing(null)} />
          )}
        </>
      )}
    </Section>
  );
}

function BusinessDialog({ business, onClose }: { business: Business | null; onClose: () => void }) {
  const { access } = useMessages();
  const { act } = useAction();
  const save = async ({ id, name }: Business) => {
    const put = () =>
      data(api.PUT("/api/v1/businesses/{id}", { params: { path: { id } }, body: { name: name.trim() } }));
    return (await act(put, ["businesses"])) !== undefined;
  };
  return (
    <FormDialog
      title={business?.name ?? access.businesses.create}
      initial={business ?? {}}
      onSave={save}
      onClose={onClose}
    >
      <Form.Item name="id" label={access.businesses.id} rules={required}>
        <InputNumber min={0} disabled={business !== null} />
      </Form.Item>
      <Form.Item name="name" label={access.businesses.name} rules={required}>
        <Input />
      </Form.Item>
    </FormDialog>
  );
}
