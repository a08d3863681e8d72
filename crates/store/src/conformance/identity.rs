//! Which key may speak for a host: revocation and removal.

use std::sync::Arc;

use super::enrolment::{GOOD, connect, token_for};
use super::{agent, enrol, enrolment, host, opening, prune, registration};
use crate::{
    EnrolRefusal, Enrolment, HostQuery, ProcessQuery, Prune, RegisterMode, Registration, SessionOpening,
    SessionRefusal, Store,
};

pub async fn a_revoked_key_opens_nothing_and_does_not_enrol_again(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.register(&[registration(0, "web/nginx", "nginx")], RegisterMode::Create, 1).await.unwrap();
    let epoch = connect(&*store, 0).await;

    let revoked = store.revoke_host(&host(0), 50).await.unwrap().unwrap();

    assert_eq!(revoked.len(), 1);
    assert_eq!((&revoked[0].0, revoked[0].1 > epoch), (&agent(0), true));
    let found = store.hosts(&HostQuery::default()).await.unwrap().remove(0);
    assert_eq!((found.revoked_at, found.online, found.presence_changed_at), (Some(50), false, 50));
    let refusal = Err(SessionRefusal::Revoked { agent: agent(0) });
    assert_eq!(store.open_session(&opening(0), 60).await.unwrap(), refusal);
    let named = token_for(&*store, 0).await;
    assert_eq!(store.enrol(enrolment("fixture", 0), 60).await.unwrap(), Err(EnrolRefusal::KeyRevoked));
    assert_eq!(store.enrol(enrolment(&named, 0), 60).await.unwrap(), Err(EnrolRefusal::KeyRevoked));
    let other_key = |token: &str| Enrolment { key_fingerprint: "second".to_owned(), ..enrolment(token, 0) };
    let taken = Err(EnrolRefusal::HostTaken { host: host(0) });
    assert_eq!(store.enrol(other_key("fixture"), 60).await.unwrap(), taken);
    store.enrol(other_key(&named), 60).await.unwrap().unwrap();
    store.open_session(&SessionOpening::new(agent(0), "second"), 70).await.unwrap().unwrap();
    assert_eq!(store.assignments(&agent(0), 0).await.unwrap().processes.len(), 1);
    assert_eq!(store.revoke_host(&host(9), 50).await.unwrap(), None);
}

/// Agent 0 serves host 1 now, and nobody serves host 0.
async fn leave(store: &dyn Store) {
    enrol(store, 2).await;
    store.register(&[registration(0, "web/nginx", "nginx")], RegisterMode::Create, 1).await.unwrap();
    let named = token_for(store, 1).await;
    store.enrol(Enrolment { host: host(1), ..enrolment(&named, 0) }, 5).await.unwrap().unwrap();
}

pub async fn a_revoked_key_does_not_enrol_for_a_host_that_its_agent_has_left(store: Arc<dyn Store>) {
    leave(&*store).await;

    store.revoke_host(&host(1), 50).await.unwrap().unwrap();

    let under_another_id = Enrolment { agent: agent(9), ..enrolment("fixture", 0) };
    assert_eq!(store.enrol(under_another_id, 60).await.unwrap(), Err(EnrolRefusal::KeyRevoked));
    let as_a_new_host = Enrolment { agent: agent(9), host: host(9), ..enrolment("fixture", 0) };
    assert_eq!(store.enrol(as_a_new_host, 60).await.unwrap(), Err(EnrolRefusal::KeyRevoked));
}

pub async fn a_key_is_revoked_on_all_of_its_hosts_at_once(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let second = Enrolment { key_fingerprint: "key-0".to_owned(), ..enrolment("fixture", 1) };
    store.enrol(second, 5).await.unwrap().unwrap();

    let mut revoked = store.revoke_host(&host(0), 50).await.unwrap().unwrap();

    revoked.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
    assert_eq!(revoked.iter().map(|(agent, _)| agent).collect::<Vec<_>>(), [&agent(0), &agent(1)]);
    let opened = store.open_session(&SessionOpening::new(agent(1), "key-0"), 60).await.unwrap();
    assert_eq!(opened, Err(SessionRefusal::Revoked { agent: agent(1) }));
}

pub async fn a_revoked_key_enrols_nowhere_after_its_host_has_another_or_is_removed(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.revoke_host(&host(0), 50).await.unwrap().unwrap();
    store.revoke_host(&host(1), 50).await.unwrap().unwrap();
    let named = token_for(&*store, 0).await;
    let other_key = Enrolment { key_fingerprint: "second".to_owned(), ..enrolment(&named, 0) };
    store.enrol(other_key, 60).await.unwrap().unwrap();
    store.remove_host(&host(1)).await.unwrap().unwrap();

    for number in [0, 1] {
        let elsewhere = Enrolment { agent: agent(9), host: host(9), ..enrolment("fixture", number) };
        assert_eq!(store.enrol(elsewhere, 70).await.unwrap(), Err(EnrolRefusal::KeyRevoked));
    }
}

pub async fn a_host_that_is_removed_is_new_when_it_comes_back(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    for process in ["web/nginx", "web/envoy"] {
        store.register(&[registration(0, process, "x")], RegisterMode::Create, 1).await.unwrap();
    }
    store.register(&[registration(0, "web/nginx", "y")], RegisterMode::Upsert, 2).await.unwrap();
    store.register(&[registration(1, "web/nginx", "x")], RegisterMode::Create, 3).await.unwrap();
    connect(&*store, 0).await;

    let removed = store.remove_host(&host(0)).await.unwrap();
    let again = store.remove_host(&host(0)).await.unwrap();

    assert_eq!((removed, again), (Some(Some(agent(0))), None));
    let unbound = Err(SessionRefusal::Unbound { agent: agent(0) });
    assert_eq!(store.open_session(&opening(0), 60).await.unwrap(), unbound);
    assert_eq!(store.processes(&ProcessQuery::default()).await.unwrap().0, 1);
    let newcomer = Enrolment { host: host(0), ..enrolment("fixture", 9) };
    assert_eq!(store.enrol(newcomer, 60).await.unwrap(), GOOD);
    assert!(store.assignments(&agent(9), 0).await.unwrap().processes.is_empty());
}

pub async fn a_host_whose_agent_has_left_is_listed_revoked_and_removed(store: Arc<dyn Store>) {
    leave(&*store).await;

    let unserved = store.unserved_hosts().await.unwrap();
    let revoked = store.revoke_host(&host(0), 50).await.unwrap();
    let removed = store.remove_host(&host(0)).await.unwrap();

    let shown = unserved.iter().map(|host| (host.key, host.key_fingerprint.as_str(), host.since, host.processes));
    assert_eq!(shown.collect::<Vec<_>>(), [(host(0), "key-0", 5, 1)]);
    assert_eq!(revoked.unwrap().into_iter().map(|(agent, _)| agent).collect::<Vec<_>>(), [agent(0)], "at its new host");
    assert_eq!(removed, Some(None));
    assert!(store.unserved_hosts().await.unwrap().is_empty());
    let newcomer = Enrolment { host: host(0), ..enrolment("fixture", 9) };
    assert_eq!(store.enrol(newcomer, 60).await.unwrap(), GOOD);
    assert!(store.assignments(&agent(9), 0).await.unwrap().processes.is_empty());
}

pub async fn a_removal_that_was_cut_short_leaves_nothing_to_who_enrols_there_next(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.register(&[registration(0, "web/nginx", "x")], RegisterMode::Create, 1).await.unwrap();
    connect(&*store, 0).await;

    let begun = store.begin_host_removal(&host(0)).await.unwrap().unwrap();

    assert_eq!(begun.agent, Some(agent(0)));
    let unbound = Err(SessionRefusal::Unbound { agent: agent(0) });
    assert_eq!(store.open_session(&opening(0), 60).await.unwrap(), unbound);
    assert_eq!(store.begin_host_removal(&host(0)).await.unwrap(), None, "the host is not known any more");
    assert!(store.unserved_hosts().await.unwrap().is_empty());
    let newcomer = Enrolment { host: host(0), ..enrolment("fixture", 9) };
    assert_eq!(store.enrol(newcomer, 60).await.unwrap(), GOOD);
    let told = |since| {
        let store = &store;
        async move { store.assignments(&agent(9), since).await.unwrap() }
    };
    assert!(told(0).await.processes.is_empty());
    let new = Registration { agent: agent(9), ..registration(0, "web/nginx", "new") };
    store.register(&[new], RegisterMode::Create, 70).await.unwrap();

    let deleted = prune(&*store, Prune::RemovedHosts).await;
    store.finish_host_removal(&begun).await.unwrap();

    assert_eq!(deleted, 2, "the process and the host");
    assert_eq!(store.processes(&ProcessQuery::default()).await.unwrap().0, 1);
    assert_eq!(told(0).await.processes.len(), 1, "what was registered since stays");
}

pub async fn an_agent_that_comes_back_with_its_ledger_after_a_removal_is_told_everything(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.register(&[registration(0, "web/nginx", "x")], RegisterMode::Create, 1).await.unwrap();
    store.register(&[registration(0, "web/envoy", "x")], RegisterMode::Create, 1).await.unwrap();
    let seen = store.assignments(&agent(0), 0).await.unwrap().processes.iter().map(|it| it.generation).max().unwrap();
    store.remove_host(&host(0)).await.unwrap();

    store.enrol(enrolment("fixture", 0), 60).await.unwrap().unwrap();

    let told = store.assignments(&agent(0), seen).await.unwrap();
    let through = told.all_through.expect("nothing else tells the agent that its processes are not registered");
    assert!(through > seen && told.processes.is_empty());
    store.register(&[registration(0, "web/nginx", "new")], RegisterMode::Create, 70).await.unwrap();
    let told = store.assignments(&agent(0), through).await.unwrap();
    assert_eq!((told.all_through, told.processes.len()), (None, 1));
}

pub async fn a_host_with_many_processes_is_removed_whole(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let many: Vec<_> = (0..450).map(|number| registration(0, &format!("web/p{number}"), "x")).collect();
    store.register(&many, RegisterMode::Create, 1).await.unwrap();
    store.register(&[registration(1, "web/p0", "x")], RegisterMode::Create, 1).await.unwrap();

    assert_eq!(store.remove_host(&host(0)).await.unwrap(), Some(Some(agent(0))));

    assert_eq!(store.processes(&ProcessQuery::default()).await.unwrap().0, 1);
    assert!(store.unserved_hosts().await.unwrap().is_empty());
}
