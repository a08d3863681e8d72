//! How many processes have which value of each filter, counted in one pass.

use std::cmp::Reverse;
use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use proctor_api::{FacetCount, FacetQuery, Facets, LabelFacet};
use proctor_model::Lifetime;
use proctor_store::{Fleet, FleetFilter, FleetProcess, FleetSpec, ProcessQuery, SpecNumber};

use super::body::Params;
use super::caller::Authenticated;
use super::groups::narrowed;
use super::{ApiState, Result};
use crate::control::SeenFleet;

const VALUES_MAX: usize = 50;
const LABEL_VALUES_MAX: usize = 20;

/// How many of the matching processes have which namespace, phase, business, lifetime and labels.
#[utoipa::path(get, path = "/processes/facets", operation_id = "process_facets", params(FacetQuery),
               tag = "processes", responses((status = 200, body = Facets)))]
pub(super) async fn facets(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<FacetQuery>,
) -> Result<Json<Facets>> {
    let wanted = narrowed(&caller, &state, &query.filter()).await?;
    let is_each_without = query.each_without == Some(true);
    let answer = move |seen: &SeenFleet| counted(seen, &wanted, is_each_without);
    Ok(Json(state.border.fleet_work.run(&state.control, &caller.who, answer).await?))
}

/// What is counted; a process that fails one filter alone counts for the kind of that filter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Namespace,
    Phase,
    Business,
    Lifetime,
    Labels,
}

fn counted(SeenFleet { fleet, at }: &SeenFleet, query: &ProcessQuery, is_each_without: bool) -> Facets {
    let rest = ProcessQuery {
        namespace: None,
        phases: Vec::new(),
        businesses: None,
        lifetime: None,
        labels: Vec::new(),
        ..query.clone()
    };
    let filter = FleetFilter::new(fleet, &rest);
    let failures = Failures { query, fleet };
    let mut counts = Counts::default();
    for process in fleet.processes.iter().filter(|process| filter.holds(process)) {
        let mut failed = failures.of(process);
        match (failed.next(), failed.next()) {
            (None, _) => counts.add(fleet, process, None),
            (Some(only), None) if is_each_without => counts.add(fleet, process, Some(only)),
            (Some(_), _) => {}
        }
    }
    counts.finish(fleet, *at)
}

/// The filters that can be counted without.
struct Failures<'a> {
    query: &'a ProcessQuery,
    fleet: &'a Fleet,
}

impl Failures<'_> {
    fn of(&self, process: &FleetProcess) -> impl Iterator<Item = Kind> {
        let Self { query, fleet } = self;
        let (key, site, spec) = (fleet.key(process), &fleet.host(process).site, fleet.spec(process));
        let is_of = |businesses: &Vec<u64>| site.business.is_some_and(|id| businesses.contains(&id));
        let holds = [
            (Kind::Namespace, query.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)),
            (Kind::Phase, query.phases.is_empty() || query.phases.contains(&process.phase)),
            (Kind::Business, query.businesses.as_ref().is_none_or(is_of)),
            (Kind::Lifetime, query.lifetime.is_none_or(|lifetime| lifetime == spec.lifetime)),
            (Kind::Labels, query.labels.iter().all(|term| term.holds(&spec.labels))),
        ];
        holds.into_iter().filter(|(_, holds)| !holds).map(|(kind, _)| kind)
    }
}

#[derive(Default)]
struct Counts<'a> {
    total: u64,
    namespaces: HashMap<&'a str, u64>,
    phases: HashMap<&'static str, u64>,
    businesses: HashMap<u64, u64>,
    of_lifetime: HashMap<SpecNumber, u64>,
    of_labels: HashMap<SpecNumber, u64>,
}

impl<'a> Counts<'a> {
    /// Of one kind, or of all where it fails no filter.
    fn add(&mut self, fleet: &'a Fleet, process: &FleetProcess, only: Option<Kind>) {
        let counts = |kind| only.is_none_or(|only| only == kind);
        self.total += u64::from(only.is_none());
        if counts(Kind::Namespace) {
            *self.namespaces.entry(fleet.key(process).namespace.as_str()).or_default() += 1;
        }
        if counts(Kind::Phase) {
            *self.phases.entry(process.phase.as_str()).or_default() += 1;
        }
        if let Some(business) = fleet.host(process).site.business.filter(|_| counts(Kind::Business)) {
            *self.businesses.entry(business).or_default() += 1;
        }
        if counts(Kind::Lifetime) {
            *self.of_lifetime.entry(process.spec).or_default() += 1;
        }
        if counts(Kind::Labels) {
            *self.of_labels.entry(process.spec).or_default() += 1;
        }
    }

    /// What is of specs, spec by spec: many processes share one.
    fn finish(self, fleet: &Fleet, at_ms: i64) -> Facets {
        let spec = |(number, count): (SpecNumber, u64)| Some((&**fleet.specs.get(&number)?, count));
        let mut lifetimes: HashMap<&str, u64> = HashMap::new();
        for (spec, count) in self.of_lifetime.into_iter().filter_map(spec) {
            *lifetimes.entry(name_of(spec.lifetime)).or_default() += count;
        }
        let mut labels: HashMap<&str, HashMap<&str, u64>> = HashMap::new();
        for (FleetSpec { labels: found, .. }, count) in self.of_labels.into_iter().filter_map(spec) {
            for (key, value) in found.iter() {
                *labels.entry(key).or_default().entry(value).or_default() += count;
            }
        }
        Facets {
            at_ms,
            total: self.total,
            namespaces: most(self.namespaces, VALUES_MAX),
            phases: most(self.phases, VALUES_MAX),
            businesses: most(self.businesses, VALUES_MAX),
            lifetimes: most(lifetimes, VALUES_MAX),
            labels: label_facets(labels),
        }
    }
}

fn name_of(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::Resident => "resident",
        Lifetime::Periodic => "periodic",
        Lifetime::Once => "once",
    }
}

fn most<T: ToString>(counts: HashMap<T, u64>, max: usize) -> Vec<FacetCount> {
    let mut all: Vec<FacetCount> =
        counts.into_iter().map(|(value, count)| FacetCount { value: value.to_string(), count }).collect();
    all.sort_by(|one, other| (Reverse(one.count), &one.value).cmp(&(Reverse(other.count), &other.value)));
    all.truncate(max);
    all
}

fn label_facets(labels: HashMap<&str, HashMap<&str, u64>>) -> Vec<LabelFacet> {
    let total = |values: &HashMap<&str, u64>| values.values().sum::<u64>();
    let mut all: Vec<_> = labels.into_iter().map(|(key, values)| (Reverse(total(&values)), key, values)).collect();
    all.sort_by_key(|(total, key, _)| (*total, *key));
    all.truncate(VALUES_MAX);
    let facet =
        |(_, key, values): (_, &str, _)| LabelFacet { key: key.to_owned(), values: most(values, LABEL_VALUES_MAX) };
    all.into_iter().map(facet).collect()
}
