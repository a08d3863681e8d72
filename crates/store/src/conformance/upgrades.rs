//! Upgrades of agents.

use std::sync::Arc;

use proctor_model::{Message, Subject, messages};
use uuid::Uuid;

use crate::{
    Store, Upgrade, UpgradeBuild, UpgradeHost, UpgradeHostChange, UpgradeHostQuery, UpgradeHostState, UpgradePlan,
    UpgradeState, UpgradeTransition,
};

const NOW: i64 = 1_000;

pub(super) fn upgrade(number: u128) -> Upgrade {
    let build = UpgradeBuild { arch: "x86_64".into(), name: "agent".into(), sha256: "ab".repeat(32), size: 7 };
    Upgrade {
        id: Uuid::from_u128(number),
        plan: UpgradePlan {
            version: "1.2.3".into(),
            builds: vec![build],
            rings: vec![1, 1],
            health_deadline_secs: 60,
            failures_max: 0,
            allow_downgrade: false,
        },
        state: UpgradeState::Running,
        reason: Message::default(),
        created_by: "user ada".into(),
        makers: vec![Subject::User("ada".into())],
        created_at: NOW,
        changed_at: NOW,
    }
}

pub(super) fn host(number: u32) -> UpgradeHost {
    UpgradeHost {
        agent: format!("a-{number}").parse().unwrap(),
        host: format!("0:10.0.{}.{}", number / 250, number % 250).parse().unwrap(),
        ring: number,
        state: UpgradeHostState::Waiting,
        reason: Message::foreign(String::new()),
        version_before: "1.2.2".into(),
        changed_at: NOW,
    }
}

fn change(number: u32, state: UpgradeHostState, reason: Message) -> UpgradeHostChange {
    UpgradeHostChange { agent: host(number).agent, state, reason }
}

pub(super) fn transition(from: &[UpgradeState], to: UpgradeState, reason: &str) -> UpgradeTransition {
    UpgradeTransition { from: from.to_vec(), to, reason: Message::foreign(reason), makers: None }
}

pub async fn an_upgrade_is_read_back_exactly_with_its_hosts_in_order(store: Arc<dyn Store>) {
    let hosts = vec![host(2), host(1)];
    store.begin_upgrade(upgrade(1), hosts.clone()).await.unwrap().unwrap();

    assert_eq!(store.upgrade(Uuid::from_u128(1)).await.unwrap(), Some(upgrade(1)));
    assert_eq!(store.upgrades(10).await.unwrap(), [upgrade(1)]);
    assert_eq!(store.upgrade_hosts(Uuid::from_u128(1)).await.unwrap(), hosts);
    assert_eq!(store.upgrade(Uuid::from_u128(2)).await.unwrap(), None);
}

pub async fn the_hosts_of_an_upgrade_are_counted_by_ring_and_read_in_pages(store: Arc<dyn Store>) {
    let id = Uuid::from_u128(1);
    let of_ring = |number, ring| UpgradeHost { ring, ..host(number) };
    let hosts = vec![of_ring(4, 0), of_ring(3, 1), of_ring(2, 1), of_ring(1, 1)];
    store.begin_upgrade(upgrade(1), hosts).await.unwrap().unwrap();
    let failed = change(2, UpgradeHostState::Failed, Message::foreign("broken"));
    store.change_upgrade_hosts(id, vec![failed], NOW + 1).await.unwrap();
    let page = async |state, after, limit| {
        let query = UpgradeHostQuery { state, after, limit };
        let hosts = store.upgrade_host_page(id, query).await.unwrap();
        hosts.into_iter().map(|(place, host)| (place, host.agent.to_string())).collect::<Vec<_>>()
    };
    let named =
        |names: &[(u32, &str)]| names.iter().map(|(place, name)| (*place, (*name).to_owned())).collect::<Vec<_>>();

    assert_eq!(page(None, None, Some(2)).await, named(&[(0, "a-4"), (1, "a-3")]));
    assert_eq!(page(None, Some(1), Some(9)).await, named(&[(2, "a-2"), (3, "a-1")]));
    assert_eq!(page(Some(UpgradeHostState::Waiting), Some(0), None).await, named(&[(1, "a-3"), (3, "a-1")]));
    let counts = store.upgrade_counts(id).await.unwrap();
    let counts: Vec<_> = counts.into_iter().map(|count| (count.ring, count.state, count.hosts)).collect();
    let (failed, waiting) = (UpgradeHostState::Failed, UpgradeHostState::Waiting);
    assert_eq!(counts, [(0, waiting, 1), (1, failed, 1), (1, waiting, 2)]);
    assert_eq!(store.upgrade_counts(Uuid::from_u128(2)).await.unwrap(), []);
}

pub async fn the_reason_of_an_upgrade_is_read_back_with_its_phrase(store: Arc<dyn Store>) {
    let id = Uuid::from_u128(1);
    store.begin_upgrade(upgrade(1), vec![host(1), host(2)]).await.unwrap().unwrap();
    let reason = messages::upgrade_cancelled_by("ada");

    let cancel = UpgradeTransition {
        from: vec![UpgradeState::Running],
        to: UpgradeState::Cancelled,
        reason: reason.clone(),
        makers: None,
    };
    assert!(store.set_upgrade_state(id, cancel, NOW + 1).await.unwrap());

    assert_eq!(store.upgrade(id).await.unwrap().unwrap().reason, reason);
    let hosts = store.upgrade_hosts(id).await.unwrap();
    assert!(hosts.iter().all(|host| host.reason == reason), "{hosts:?}");
}

pub async fn one_upgrade_is_under_way_at_a_time_until_its_last_host_is_done(store: Arc<dyn Store>) {
    let (first, ended) = (Uuid::from_u128(1), "somebody cancelled it");
    store.begin_upgrade(upgrade(1), vec![host(1), host(2)]).await.unwrap().unwrap();
    assert_eq!(store.begin_upgrade(upgrade(2), vec![host(3)]).await.unwrap(), Err(first));
    let begun = change(1, UpgradeHostState::Upgrading, Message::foreign(String::new()));
    store.change_upgrade_hosts(first, vec![begun], NOW + 1).await.unwrap();
    let under_way = [UpgradeState::Running, UpgradeState::Paused];

    let cancel = transition(&under_way, UpgradeState::Cancelled, ended);
    let cancelled = store.set_upgrade_state(first, cancel, NOW + 2).await.unwrap();
    let resume = transition(&under_way, UpgradeState::Running, "");
    let again = store.set_upgrade_state(first, resume, NOW + 3).await.unwrap();
    let during = store.begin_upgrade(upgrade(2), vec![host(3)]).await.unwrap();
    let done = change(1, UpgradeHostState::Done, Message::foreign(String::new()));
    store.change_upgrade_hosts(first, vec![done], NOW + 4).await.unwrap();
    store.begin_upgrade(upgrade(2), vec![host(3)]).await.unwrap().unwrap();

    assert_eq!((cancelled, again, during), (true, false, Err(first)));
    let hosts = store.upgrade_hosts(first).await.unwrap();
    assert_eq!((hosts[0].state, hosts[1].state), (UpgradeHostState::Done, UpgradeHostState::Skipped));
    assert_eq!(hosts[1].reason, ended);
    let newest: Vec<_> = store.upgrades(10).await.unwrap().into_iter().map(|upgrade| upgrade.id).collect();
    assert_eq!(newest, [Uuid::from_u128(2), first]);
}

pub async fn who_resumes_an_upgrade_answers_for_it_from_then_on(store: Arc<dyn Store>) {
    use UpgradeState::{Paused, Running};
    let id = Uuid::from_u128(1);
    store.begin_upgrade(upgrade(1), vec![host(1)]).await.unwrap().unwrap();

    store.set_upgrade_state(id, transition(&[Running], Paused, "wait"), NOW + 1).await.unwrap();
    let paused = store.upgrade(id).await.unwrap().unwrap();
    let other = vec![Subject::App("console".into()), Subject::User("bob".into())];
    let resume = UpgradeTransition { makers: Some(other.clone()), ..transition(&[Paused], Running, "") };
    store.set_upgrade_state(id, resume, NOW + 2).await.unwrap();

    assert_eq!(paused.makers, upgrade(1).makers);
    assert_eq!(store.upgrade(id).await.unwrap().unwrap().makers, other);
}

pub async fn a_host_that_was_done_can_have_failed_after_all(store: Arc<dyn Store>) {
    use UpgradeHostState::{Done, Failed, Skipped};
    let id = Uuid::from_u128(1);
    store.begin_upgrade(upgrade(1), vec![host(1)]).await.unwrap().unwrap();
    let mut states = Vec::new();

    for state in [Done, Skipped, Failed, Done] {
        let change = change(1, state, Message::foreign(String::new()));
        store.change_upgrade_hosts(id, vec![change], NOW + 1).await.unwrap();
        states.push(store.upgrade_hosts(id).await.unwrap()[0].state);
    }

    assert_eq!(states, [Done, Done, Failed, Failed]);
}

pub async fn a_host_that_is_final_stays_so_and_keeps_its_reason_in_every_language(store: Arc<dyn Store>) {
    let id = Uuid::from_u128(1);
    store.begin_upgrade(upgrade(1), vec![host(1)]).await.unwrap().unwrap();
    let reason = messages::upgrade_hung(15);

    let failed = change(1, UpgradeHostState::Failed, reason.clone());
    store.change_upgrade_hosts(id, vec![failed], NOW + 1).await.unwrap();
    let late = change(1, UpgradeHostState::Done, Message::foreign(String::new()));
    store.change_upgrade_hosts(id, vec![late], NOW + 2).await.unwrap();

    let found = store.upgrade_hosts(id).await.unwrap().remove(0);
    assert_eq!((found.state, found.changed_at), (UpgradeHostState::Failed, NOW + 1));
    assert_eq!(found.reason, reason);
    assert!(found.reason.phrase().is_some());
}
