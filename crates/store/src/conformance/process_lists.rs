//! Narrowing processes by what was observed of them, and listing them in every order.

use std::sync::Arc;

use proctor_model::{EVICTED_REASON, HostKey, Lifetime, Phase, Policy, ScopeSet, Snapshot, Usage};

use super::{agent, business, enrol, enrolment, host, key, opening, registration, spec};
use crate::{
    Cordon, Fleet, FleetFilter, LabelTerm, Observation, ProcessOrder, ProcessQuery, ProcessSort, Rank, RegisterMode,
    Registration, Store, Trouble,
};

const SORTS: [ProcessSort; 8] = [
    ProcessSort::Name,
    ProcessSort::Host,
    ProcessSort::Phase,
    ProcessSort::Cpu,
    ProcessSort::Memory,
    ProcessSort::Restarts,
    ProcessSort::Started,
    ProcessSort::Reported,
];

fn seen(phase: Phase, number: u32) -> Snapshot {
    let share = f64::from(number) / 7.0;
    Snapshot {
        phase,
        managed: phase == Phase::Running,
        usage: Usage { cpu_percent: share, memory_percent: 3.0 - share, memory_bytes: 5, ..Usage::default() },
        restarts: number % 2,
        started_at: 100 + i64::from(number),
        reported_at: 200 + i64::from(number),
        version: format!("1.{number}-RC"),
        health: if phase == Phase::Running { "healthy" } else { "unhealthy" }.to_owned(),
        ..Snapshot::default()
    }
}

/// web/a and db/b on two hosts: those on the first observed as running and failed, those on the second not at all.
async fn observed(store: &dyn Store) -> u64 {
    enrol(store, 1).await;
    let mut elsewhere = enrolment("fixture", 1);
    elsewhere.host = HostKey::new(3, 0, "10.1.0.1".parse().unwrap());
    store.enrol(elsewhere, 0).await.unwrap().unwrap();
    for number in 0..2 {
        let both = [registration(number, "web/a", "x"), registration(number, "db/b", "x")];
        store.register(&both, RegisterMode::Create, 1).await.unwrap();
    }
    let epoch = store.open_session(&opening(0), 77).await.unwrap().unwrap();
    observe(store, epoch, "web/a", seen(Phase::Running, 1)).await;
    observe(store, epoch, "db/b", seen(Phase::Failed, 2)).await;
    epoch
}

async fn observe(store: &dyn Store, epoch: u64, process: &str, snapshot: Snapshot) {
    store.observe(&agent(0), epoch, &[Observation { key: key(process), snapshot }]).await.unwrap();
}

/// The same in the list and in the fleet.
async fn found(store: &dyn Store, query: ProcessQuery) -> Vec<String> {
    let (total, records) = store.processes(&query).await.unwrap();
    assert_eq!(total, records.len() as u64, "{query:?}");
    let found: Vec<String> = records.into_iter().map(|record| format!("{} {}", record.key, record.host)).collect();
    let fleet = store.fleet(None).await.unwrap();
    assert_eq!(in_fleet(&fleet, &query), found, "{query:?}");
    found
}

fn in_fleet(fleet: &Fleet, query: &ProcessQuery) -> Vec<String> {
    let filter = FleetFilter::new(fleet, query);
    let held = fleet.processes.iter().filter(|process| filter.holds(process));
    let mut found: Vec<String> =
        held.map(|process| format!("{} {}", fleet.key(process), fleet.host(process).site.key)).collect();
    found.sort();
    found
}

pub async fn the_fleet_is_narrowed_as_the_list_is(store: Arc<dyn Store>) {
    observed(&*store).await;
    store.put_business(business(4)).await.unwrap();
    store.place_hosts(&[(host(0), Some(4))]).await.unwrap().unwrap();
    let all = ProcessQuery::default;
    let scopes = |scopes: ScopeSet| ProcessQuery { scopes: Some(scopes), ..all() };
    let label = |value: &str| vec![LabelTerm::Equals("tier".to_owned(), value.to_owned())];

    for (query, count) in [
        (all(), 4),
        (ProcessQuery { namespace: Some("web".parse().unwrap()), ..all() }, 2),
        (ProcessQuery { name: Some("b".parse().unwrap()), phases: vec![Phase::Failed, Phase::Running], ..all() }, 1),
        (ProcessQuery { agents: Some(vec![agent(1), agent(9)]), ..all() }, 2),
        (ProcessQuery { agents: Some(Vec::new()), ..all() }, 0),
        (ProcessQuery { businesses: Some(vec![4, 9]), ..all() }, 2),
        (ProcessQuery { businesses: Some(vec![9]), ..all() }, 0),
        (ProcessQuery { labels: label("网关"), ..all() }, 4),
        (ProcessQuery { labels: label("x"), ..all() }, 0),
        (scopes(ScopeSet::default()), 0),
        (scopes(ScopeSet { businesses: [4].into(), ..ScopeSet::default() }), 2),
        (scopes(ScopeSet { clouds: [3].into(), ..ScopeSet::default() }), 2),
        (
            scopes(ScopeSet {
                namespaces: ["db".parse().unwrap()].into(),
                businesses: [4].into(),
                ..ScopeSet::default()
            }),
            3,
        ),
    ] {
        assert_eq!(found(&*store, query.clone()).await.len(), count, "{query:?}");
    }
}

pub async fn processes_are_narrowed_by_what_was_observed_of_them(store: Arc<dyn Store>) {
    observed(&*store).await;
    let all = ProcessQuery::default;
    let health = |health: &str| ProcessQuery { health: Some(health.to_owned()), ..all() };

    assert_eq!(found(&*store, ProcessQuery { online: Some(true), ..all() }).await.len(), 2);
    assert_eq!(found(&*store, ProcessQuery { online: Some(false), cloud: Some(0), ..all() }).await.len(), 0);
    assert_eq!(found(&*store, ProcessQuery { cloud: Some(3), ..all() }).await, ["db/b 3:10.1.0.1", "web/a 3:10.1.0.1"]);
    assert_eq!(found(&*store, ProcessQuery { managed: Some(true), ..all() }).await, ["web/a 0:10.0.0.0"]);
    assert_eq!(found(&*store, ProcessQuery { managed: Some(false), ..all() }).await.len(), 3);
    assert_eq!(found(&*store, health("healthy")).await, ["web/a 0:10.0.0.0"]);
    assert_eq!(found(&*store, health("unhealthy")).await, ["db/b 0:10.0.0.0"]);
}

pub async fn processes_are_narrowed_by_the_cordon_of_their_host(store: Arc<dyn Store>) {
    observed(&*store).await;
    let cordoned = |cordoned, now| ProcessQuery { cordoned: Some((cordoned, now)), ..ProcessQuery::default() };
    let cordon = |until| {
        let (reason, by) = ("new disk".to_owned(), "ada".to_owned());
        Some(Cordon { reason, by, since: 10, until, held_since: None })
    };

    assert_eq!(found(&*store, cordoned(true, 20)).await.len(), 0);
    store.set_cordon(&host(0), cordon(Some(50))).await.unwrap();
    assert_eq!(found(&*store, cordoned(true, 20)).await, ["db/b 0:10.0.0.0", "web/a 0:10.0.0.0"]);
    assert_eq!(found(&*store, cordoned(false, 20)).await.len(), 2);
    assert_eq!(found(&*store, cordoned(true, 50)).await.len(), 0);
    store.set_cordon(&host(0), cordon(None)).await.unwrap();
    assert_eq!(found(&*store, cordoned(true, 50)).await.len(), 2);
}

pub async fn processes_are_narrowed_by_their_trouble(store: Arc<dyn Store>) {
    let epoch = observed(&*store).await;
    let trouble = |trouble| ProcessQuery { trouble: Some(trouble), ..ProcessQuery::default() };
    let looping = Snapshot { restarts: 3, ..seen(Phase::Running, 1) };
    let evicted = Snapshot { phase: Phase::Waiting, reason: format!("{EVICTED_REASON}memory"), ..looping.clone() };

    observe(&*store, epoch, "web/a", Snapshot { restarts: 2, ..looping.clone() }).await;
    observe(&*store, epoch, "db/b", Snapshot { phase: Phase::Failed, ..looping.clone() }).await;
    assert_eq!(found(&*store, trouble(Trouble::CrashLooping)).await.len(), 0);
    observe(&*store, epoch, "web/a", looping).await;
    observe(&*store, epoch, "db/b", evicted).await;

    assert_eq!(found(&*store, trouble(Trouble::CrashLooping)).await, ["web/a 0:10.0.0.0"]);
    assert_eq!(found(&*store, trouble(Trouble::Evicted)).await, ["db/b 0:10.0.0.0"]);
}

pub async fn processes_are_narrowed_by_part_of_their_name_host_or_version(store: Arc<dyn Store>) {
    observed(&*store).await;
    let with = |text: &str| ProcessQuery { text: Some(text.to_owned()), ..ProcessQuery::default() };

    assert_eq!(found(&*store, with("B/A")).await.len(), 2);
    assert_eq!(found(&*store, with("3:10.1")).await.len(), 2);
    assert_eq!(found(&*store, with("1.2-rc")).await, ["db/b 0:10.0.0.0"]);
    assert!(found(&*store, with("b%a")).await.is_empty());
    assert!(found(&*store, with("_")).await.is_empty());
}

pub async fn processes_are_narrowed_by_lifetime(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let mut once = (*spec("x")).clone();
    once.policy = Policy::new(Lifetime::Once);
    let once = Registration { agent: agent(0), key: key("web/once"), spec: Arc::new(once) };
    store.register(&[once, registration(0, "web/a", "x")], RegisterMode::Create, 1).await.unwrap();
    let of = |lifetime| ProcessQuery { lifetime: Some(lifetime), ..ProcessQuery::default() };

    assert_eq!(found(&*store, of(Lifetime::Once)).await, ["web/once 0:10.0.0.0"]);
    assert_eq!(found(&*store, of(Lifetime::Resident)).await, ["web/a 0:10.0.0.0"]);
    assert!(found(&*store, of(Lifetime::Periodic)).await.is_empty());
}

pub async fn a_cursor_leads_through_every_order_once(store: Arc<dyn Store>) {
    observed(&*store).await;
    for by in SORTS {
        for is_descending in [false, true] {
            let order = ProcessOrder { by, is_descending };
            read_page_by_page(&*store, ProcessQuery { order, ..ProcessQuery::default() }).await;
            // Found in every process, but by another path than without it.
            let text = Some("/".to_owned());
            read_page_by_page(&*store, ProcessQuery { order, text, ..ProcessQuery::default() }).await;
        }
    }
}

async fn read_page_by_page(store: &dyn Store, query: ProcessQuery) {
    let (_, everything) = store.processes(&query).await.unwrap();

    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let (_, page) = store.processes(&ProcessQuery { after, limit: Some(1), ..query.clone() }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.cursor());
        read.extend(page);
    }

    assert_eq!((read.len(), &read), (4, &everything), "{query:?}");
    let ranks: Vec<Option<Rank>> = everything.into_iter().map(|record| record.rank).collect();
    let is_descending = query.order.is_descending;
    let in_order = |pair: &[Option<Rank>]| match &pair {
        [Some(Rank::Number(one)), Some(Rank::Number(other))] => one == other || (one > other) == is_descending,
        [Some(Rank::Text(one)), Some(Rank::Text(other))] => one == other || (one > other) == is_descending,
        ranks => ranks.iter().all(Option::is_none),
    };
    assert!(ranks.windows(2).all(in_order), "{query:?}: {ranks:?}");
}

pub async fn the_number_of_all_is_left_out_on_request(store: Arc<dyn Store>) {
    observed(&*store).await;
    let query = ProcessQuery { limit: Some(1), is_uncounted: true, ..ProcessQuery::default() };

    let (total, page) = store.processes(&query).await.unwrap();

    assert_eq!((total, page.len()), (0, 1));
}

pub async fn a_process_is_in_its_phase_since_it_was_first_seen_in_it(store: Arc<dyn Store>) {
    let epoch = observed(&*store).await;
    let query = ProcessQuery {
        namespace: Some("web".parse().unwrap()),
        agents: Some(vec![agent(0)]),
        ..ProcessQuery::default()
    };
    let since = async || store.processes(&query).await.unwrap().1[0].phase_since;
    let first = since().await;

    observe(&*store, epoch, "web/a", seen(Phase::Running, 50)).await;
    let later = since().await;
    observe(&*store, epoch, "web/a", seen(Phase::Stopped, 60)).await;

    assert_eq!((first, later, since().await), (Some(201), Some(201), Some(260)));
    let (_, other) = store.processes(&ProcessQuery { agents: Some(vec![agent(1)]), ..query.clone() }).await.unwrap();
    assert_eq!((other[0].phase_since, other[0].presence_changed_at), (None, 0));
    assert_eq!(store.processes(&query).await.unwrap().1[0].presence_changed_at, 77);
}

pub async fn nothing_that_was_observed_survives_a_tombstone(store: Arc<dyn Store>) {
    observed(&*store).await;

    store.unregister(&[(agent(0), key("web/a"))], 2).await.unwrap();
    store.register(&[registration(0, "web/a", "x")], RegisterMode::Create, 3).await.unwrap();

    let query = ProcessQuery {
        name: Some("a".parse().unwrap()),
        agents: Some(vec![agent(0)]),
        order: ProcessOrder { by: ProcessSort::Cpu, is_descending: true },
        ..ProcessQuery::default()
    };
    let (_, records) = store.processes(&query).await.unwrap();
    let record = &records[0];
    assert_eq!((&record.snapshot, record.phase_since, &record.rank), (&None, None, &Some(Rank::Number(0.0))));
    assert!(found(&*store, ProcessQuery { text: Some("1.1".to_owned()), ..ProcessQuery::default() }).await.is_empty());
}
