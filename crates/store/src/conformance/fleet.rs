//! All hosts and processes at once.

use std::sync::Arc;

use proctor_model::{EVICTED_REASON, Lifetime, Phase, Snapshot, Usage, messages};

use super::{agent, business, enrol, host, key, opening, registration};
use crate::{Fleet, Health, Observation, RegisterMode, Store};

/// As `process host phase`.
fn processes(fleet: &Fleet) -> Vec<String> {
    let shown = |process| format!("{} {}", fleet.key(process), fleet.host(process).site.key);
    fleet.processes.iter().map(|process| format!("{} {}", shown(process), process.phase)).collect()
}

pub async fn the_fleet_has_every_host_and_process_with_what_was_observed(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.put_business(business(4)).await.unwrap();
    store.place_hosts(&[(host(1), Some(4))]).await.unwrap().unwrap();
    for number in 0..2 {
        let both = [registration(number, "web/a", "x"), registration(number, "db/b", "y")];
        store.register(&both, RegisterMode::Create, 1).await.unwrap();
    }
    store.unregister(&[(agent(1), key("db/b"))], 2).await.unwrap();
    let epoch = store.open_session(&opening(0), 7).await.unwrap().unwrap();
    let snapshot = Snapshot {
        phase: Phase::Waiting,
        managed: true,
        usage: Usage { cpu_percent: 1.5, memory_percent: 2.5, ..Usage::default() },
        reported_at: 9,
        restarts: 3,
        version: "1.0".to_owned(),
        health: "unhealthy".to_owned(),
        reason: format!("{EVICTED_REASON}memory: {}", "长".repeat(500)),
        ..Snapshot::default()
    };
    store.observe(&agent(0), epoch, &[Observation { key: key("web/a"), snapshot }]).await.unwrap();

    let fleet = store.fleet(None).await.unwrap();

    let hosts: Vec<_> = fleet.hosts.iter().map(|host| (host.site.key, host.site.business, host.online)).collect();
    assert_eq!(hosts, [(host(0), None, true), (host(1), Some(4), false)]);
    assert_eq!(processes(&fleet), ["db/b 0:10.0.0.0 unknown", "web/a 0:10.0.0.0 waiting", "web/a 0:10.0.0.1 unknown"]);
    let seen = &fleet.processes[1];
    assert_eq!((seen.cpu, seen.memory, seen.restarts, seen.phase_since), (1.5, 2.5, 3, 9));
    assert_eq!((seen.health, seen.managed, seen.evicted), (Health::Unhealthy, true, true));
    assert_eq!((&*fleet.versions[seen.version as usize], fleet.spec(seen).lifetime), ("1.0", Lifetime::Resident));
    assert_eq!(fleet.spec(seen).labels.get("tier"), Some("网关"));
    assert_eq!(fleet.specs.len(), 2);
    let reason = fleet.reason(seen).unwrap();
    assert!(reason.starts_with(EVICTED_REASON) && reason.len() <= 1024, "{reason}");
}

pub async fn a_later_fleet_is_that_of_its_moment_and_shares_what_has_not_changed(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.register(&[registration(0, "web/a", "x")], RegisterMode::Create, 1).await.unwrap();
    let before = Arc::new(store.fleet(None).await.unwrap());

    store
        .register(&[registration(0, "web/a", "y"), registration(1, "web/b", "x")], RegisterMode::Upsert, 1)
        .await
        .unwrap();
    store.remove_host(&host(0)).await.unwrap();
    let after = store.fleet(Some(before.clone())).await.unwrap();

    assert_eq!(processes(&after), ["web/b 0:10.0.0.1 unknown"]);
    assert_eq!(after.spec(&after.processes[0]), before.spec(&before.processes[0]));
    assert_eq!((after.hosts.len(), after.keys.len(), after.specs.len()), (1, 1, 1));
}

pub async fn a_reason_of_the_fleet_can_be_told_in_every_language(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.register(&[registration(0, "web/a", "x")], RegisterMode::Create, 1).await.unwrap();
    let epoch = store.open_session(&opening(0), 7).await.unwrap().unwrap();
    let mut snapshot = Snapshot { phase: Phase::Failed, ..Snapshot::default() };
    snapshot.set_reason(messages::ended_over_limit("memory", "31.2", "25.0"));
    store.observe(&agent(0), epoch, &[Observation { key: key("web/a"), snapshot: snapshot.clone() }]).await.unwrap();

    let fleet = store.fleet(None).await.unwrap();

    assert_eq!(fleet.reason(&fleet.processes[0]), Some(&snapshot.reason()));
    assert!(fleet.reason(&fleet.processes[0]).unwrap().chinese().is_some());
}

pub async fn a_reason_is_told_of_processes_of_the_same_business_alone(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.put_business(business(4)).await.unwrap();
    store.place_hosts(&[(host(1), Some(4))]).await.unwrap().unwrap();
    for number in 0..2 {
        store.register(&[registration(number, "web/a", "x")], RegisterMode::Create, 1).await.unwrap();
        let epoch = store.open_session(&opening(number), 7).await.unwrap().unwrap();
        let reason = format!("the reason on host {number}");
        let snapshot = Snapshot { phase: Phase::Failed, reason, ..Snapshot::default() };
        store.observe(&agent(number), epoch, &[Observation { key: key("web/a"), snapshot }]).await.unwrap();
    }

    let fleet = store.fleet(None).await.unwrap();

    let reasons: Vec<&str> = fleet.processes.iter().map(|process| fleet.reason(process).unwrap().as_str()).collect();
    assert_eq!(reasons, ["the reason on host 0", "the reason on host 1"]);
}
