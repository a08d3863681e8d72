import { useQuery } from "@tanstack/react-query";
import { Button, Select } from "antd";
import { businessesQuery } from "@/api/hosts";
import { lifetimes, phases } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { FilterInput } from "@/ui/filter-input";
import { useClearUrl, useUrlValue } from "@/ui/url-state";
import { filterNames } from "./filter";

export function FilterBar({ isFiltered }: { isFiltered: boolean }) {
  const { processes: text, common, terms } = useMessages();
  const [phase, setPhase] = useUrlValue("phase");
  const [lifetime, setLifetime] = useUrlValue("lifetime");
  const [business, setBusiness] = useUrlValue("business");
  const businesses = useQuery(businessesQuery).data ?? [];
  const clear = useClearUrl(filterNames);
  return (
    <div className="filters">
      <FilterInput name="q" label={text.filter.search} width={150} />
      <FilterInput name="namespace" label={text.filter.namespace} width={116} />
      <FilterInput name="selector" label={text.filter.selector} width={150} hint={text.filter.selectorHelp} />
      <FilterInput name="host" label={text.filter.host} width={120} />
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
      <Select
        allowClear
        style={{ minWidth: 110 }}
        placeholder={text.filter.lifetime}
        aria-label={text.filter.lifetime}
        value={lifetime || undefined}
        onChange={(value: string | undefined) => setLifetime(value)}
        options={lifetimes.map((value) => ({
          value,
          label: terms.lifetime[value],
        }))}
      />
      {isFiltered && (
        <Button type="text" onClick={clear}>
          {common.clearFilters}
        </Button>
      )}
    </div>
  );
}
