import { useQuery } from "@tanstack/react-query";
import { Button, Select, Tag } from "antd";
import { businessesQuery } from "@/api/hosts";
import { type Facets, lifetimes, type ProcessFilter, phases } from "@/api/processes";
import { useMessages } from "@/settings/context";
import { FilterInput } from "@/ui/filter-input";
import { useNumbers } from "@/ui/format";
import { useClearUrl, useUrlValue } from "@/ui/url-state";
import { useBusinessName } from "@/ui/use-business-name";
import { filterNames } from "./filter";

type Counted = { value: string; count: number };

type Props = {
  filter: ProcessFilter;
  /** What each filter could be set to; undefined while that is not known. */
  facets: Facets | undefined;
  isFiltered: boolean;
};

export function FilterBar({ filter, facets, isFiltered }: Props) {
  const { processes: text, common, terms, overview } = useMessages();
  const number = useNumbers();
  const [phase, setPhase] = useUrlValue("phase");
  const [lifetime, setLifetime] = useUrlValue("lifetime");
  const [business, setBusiness] = useUrlValue("business");
  const [, setTrouble] = useUrlValue("trouble");
  const [, setCordoned] = useUrlValue("cordoned");
  const known = useQuery(businessesQuery).data ?? [];
  const businessName = useBusinessName();
  const clear = useClearUrl(filterNames);
  const namespaces = facets?.namespaces ?? [];
  const inPhase = countOf(facets?.phases ?? []);
  const ofBusiness = facets?.businesses ?? [];
  const ofLifetime = countOf(facets?.lifetimes ?? []);
  const labels = facets?.labels ?? [];
  const businessIds = [
    ...new Set([...ofBusiness.map((each) => each.value), ...known.map((each) => String(each.id))]),
  ];
  const perBusiness = countOf(ofBusiness);
  const option = (value: string, label: string, count: number | undefined) => ({
    value,
    label,
    count: count === undefined ? "" : number(count),
  });
  return (
    <div className="filters">
      <FilterInput name="q" label={text.filter.search} width={140} />
      <FilterInput
        name="namespace"
        label={text.filter.namespace}
        width={116}
        suggestions={namespaces.map(({ value, count }) => ({ value, note: number(count) }))}
      />
      <FilterInput
        name="selector"
        label={text.filter.selector}
        width={130}
        hint={text.filter.selectorHelp}
        suggestions={labels.flatMap(({ key, values }) =>
          values.map(({ value, count }) => ({ value: `${key}=${value}`, note: number(count) })),
        )}
      />
      <FilterInput name="host" label={text.filter.host} width={116} />
      <Select
        mode="multiple"
        allowClear
        maxTagCount={1}
        style={{ minWidth: 124 }}
        popupMatchSelectWidth={200}
        placeholder={text.filter.phase}
        aria-label={text.filter.phase}
        value={phase ? phase.split(",") : []}
        onChange={(values: string[]) => setPhase(values.join(","))}
        options={phases.map((value) => option(value, terms.phase[value], inPhase(value)))}
        optionRender={renderOption}
      />
      <Select
        allowClear
        showSearch={{ optionFilterProp: "label" }}
        style={{ minWidth: 112 }}
        popupMatchSelectWidth={200}
        placeholder={text.filter.business}
        aria-label={text.filter.business}
        value={business || undefined}
        onChange={(value: string | undefined) => setBusiness(value)}
        options={businessIds.map((id) => option(id, businessName(Number(id)), perBusiness(id)))}
        optionRender={renderOption}
      />
      <Select
        allowClear
        style={{ minWidth: 100 }}
        popupMatchSelectWidth={160}
        placeholder={text.filter.lifetime}
        aria-label={text.filter.lifetime}
        value={lifetime || undefined}
        onChange={(value: string | undefined) => setLifetime(value)}
        options={lifetimes.map((value) => option(value, terms.lifetime[value], ofLifetime(value)))}
        optionRender={renderOption}
      />
      {filter.trouble && (
        <Tag closable onClose={() => setTrouble(undefined)}>
          {overview.kind[filter.trouble]}
        </Tag>
      )}
      {filter.cordoned !== undefined && (
        <Tag closable onClose={() => setCordoned(undefined)}>
          {filter.cordoned ? overview.onCordoned : text.filter.notCordoned}
        </Tag>
      )}
      {isFiltered && (
        <Button type="text" onClick={clear}>
          {common.clearFilters}
        </Button>
      )}
    </div>
  );
}

/** What is not listed does not occur; nothing is said while nothing is known. */
function countOf(counts: Counted[]): (value: string) => number | undefined {
  return (value) =>
    counts.length === 0 ? undefined : (counts.find((each) => each.value === value)?.count ?? 0);
}

function renderOption({ data }: { data: { label: string; count: string } }) {
  return (
    <span className="row">
      <span className="grow truncate">{data.label}</span>
      <span className="muted">{data.count}</span>
    </span>
  );
}
