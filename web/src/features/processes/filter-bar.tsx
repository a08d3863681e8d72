import { useQuery } from "@tanstack/react-query";
import { Button, Select } from "antd";
import { businessesQuery } from "@/api/hosts";
import { phases } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { FilterInput } from "@/ui/filter-input";
import { useClearUrl, useUrlValue } from "@/ui/url-state";
import { filterNames } from "./filter";

export function FilterBar({ isFiltered }: { isFiltered: boolean }) {
  const { processes: text, common, terms } = useMessages();
  const [phase, setPhase] = useUrlValue("phase");
  const [business, setBusiness] = useUrlValue("business");
  const businesses = useQuery(businessesQuery).data ?? [];
  const clear = useClearUrl(filterNames);
  return (
    <div className="filters">
      <FilterInput name="namespace" label={text.filter.namespace} width={130} />
      <FilterInput name="name" label={text.filter.name} width={150} />
      <FilterInput name="selector" label={text.filter.selector} width={200} hint={text.filter.selectorHelp} />
      <FilterInput name="host" label={text.filter.host} width={150} />
      <Select
        mode="multiple"
        allowClear
        maxTagCount={1}
        style={{ minWidth: 140 }}
        placeholder={text.filter.phase}
        aria-label={text.filter.phase}
        value={phase ? phase.split(",") : []}
        onChange={(values: string[]) => setPhase(values.join(","))}
        options={phases.map((value) => ({ value, label: terms.phase[value] }))}
      />
      <Select
        allowClear
        showSearch={{ optionFilterProp: "label" }}
        style={{ minWidth: 130 }}
        placeholder={text.filter.business}
        aria-label={text.filter.business}
        value={business || undefined}
        onChange={(value: string | undefined) => setBusiness(value)}
        options={businesses.map((each) => ({ value: String(each.id), label: each.name }))}
      />
      {isFiltered && (
        <Button type="text" onClick={clear}>
          {common.clearFilters}
        </Button>
      )}
    </div>
  );
}
