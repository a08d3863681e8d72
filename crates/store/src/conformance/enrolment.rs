//! Join tokens and the binding of hosts to agents.

use std::sync::Arc;

use proctor_model::HostFacts;
use tokio::task::JoinSet;

use super::{EXPIRES_AT, agent, enrol, enrolment, host, key, registration, token};
use crate::{EnrolRefusal, Enrolment, HostQuery, JoinToken, RegisterMode, Store};

async fn connect(store: &dyn Store, number: usize) -> u64 {
    store.open_session(&agent(number), &HostFacts::default(), 10).await.unwrap().unwrap()
}

pub async fn enrolling_binds_the_host_to_the_agent(store: Arc<dyn Store>) {
    store.put_token(token("t", 1)).await.unwrap();

    store.enrol(enrolment("t", 1), 7).await.unwrap().unwrap();

    let hosts = store.hosts(&HostQuery::default()).await.unwrap();
    assert_eq!(hosts.len(), 1);
    assert_eq!((hosts[0].key, &hosts[0].agent), (host(1), &agent(1)));
    assert_eq!((hosts[0].enrolled_at, hosts[0].online, hosts[0].epoch), (7, false, 0));
}

pub async fn a_token_lets_exactly_its_uses_in_however_many_come_at_once(store: Arc<dyn Store>) {
    store.put_token(token("t", 20)).await.unwrap();
    let mut callers = JoinSet::new();
    for number in 0..50 {
        let store = Arc::clone(&store);
        callers.spawn(async move { store.enrol(enrolment("t", number), 0).await.unwrap() });
    }

    let answers = callers.join_all().await;

    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 20);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(EnrolRefusal::UsedUp)).count(), 30);
    assert_eq!(store.hosts(&HostQuery::default()).await.unwrap().len(), 20);
}

pub async fn a_repetition_with_the_same_key_costs_no_use(store: Arc<dyn Store>) {
    store.put_token(token("t", 2)).await.unwrap();
    store.enrol(enrolment("t", 1), 0).await.unwrap().unwrap();
    let before = store.hosts(&HostQuery::default()).await.unwrap();

    let repeated = store.enrol(enrolment("t", 1), 5).await.unwrap();
    let after = store.hosts(&HostQuery::default()).await.unwrap();
    let other = store.enrol(enrolment("t", 2), 5).await.unwrap();
    let repeated_when_used_up = store.enrol(enrolment("t", 1), 6).await.unwrap();

    assert_eq!((repeated, other, repeated_when_used_up), (Ok(()), Ok(()), Ok(())));
    assert_eq!(before, after);
    assert_eq!(store.enrol(enrolment("t", 3), 6).await.unwrap(), Err(EnrolRefusal::UsedUp));
}

pub async fn a_token_that_is_put_again_keeps_the_count_of_its_uses(store: Arc<dyn Store>) {
    store.put_token(token("t", 1)).await.unwrap();
    store.enrol(enrolment("t", 1), 0).await.unwrap().unwrap();

    store.put_token(token("t", 2)).await.unwrap();

    assert_eq!(store.enrol(enrolment("t", 2), 0).await.unwrap(), Ok(()));
    assert_eq!(store.enrol(enrolment("t", 3), 0).await.unwrap(), Err(EnrolRefusal::UsedUp));
}

pub async fn unknown_tokens_and_wrong_secrets_are_refused_alike(store: Arc<dyn Store>) {
    store.put_token(token("t", 1)).await.unwrap();
    let wrong = Enrolment { token_secret_hash: "guessed".to_owned(), ..enrolment("t", 1) };

    assert_eq!(store.enrol(enrolment("u", 1), 0).await.unwrap(), Err(EnrolRefusal::UnknownToken));
    assert_eq!(store.enrol(wrong, 0).await.unwrap(), Err(EnrolRefusal::UnknownToken));
    assert_eq!(store.enrol(enrolment("t", 1), 0).await.unwrap(), Ok(()));
}

pub async fn an_expired_token_is_refused_even_to_a_repetition(store: Arc<dyn Store>) {
    store.put_token(token("t", 5)).await.unwrap();
    store.enrol(enrolment("t", 1), EXPIRES_AT - 1).await.unwrap().unwrap();

    assert_eq!(store.enrol(enrolment("t", 1), EXPIRES_AT).await.unwrap(), Err(EnrolRefusal::Expired));
    assert_eq!(store.enrol(enrolment("t", 2), EXPIRES_AT).await.unwrap(), Err(EnrolRefusal::Expired));
}

pub async fn a_token_for_one_cloud_area_is_refused_in_another(store: Arc<dyn Store>) {
    store.put_token(JoinToken { cloud: Some(3), ..token("t", 1) }).await.unwrap();
    let mut inside = enrolment("t", 1);
    inside.host.cloud = 3;

    assert_eq!(store.enrol(enrolment("t", 1), 0).await.unwrap(), Err(EnrolRefusal::WrongCloud { allowed: 3 }));
    assert_eq!(store.enrol(inside, 0).await.unwrap(), Ok(()));
}

pub async fn a_host_whose_agent_is_connected_is_not_given_away(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    connect(&*store, 0).await;

    let answer = store.enrol(Enrolment { host: host(0), ..enrolment("fixture", 9) }, 0).await.unwrap();

    assert_eq!(answer, Err(EnrolRefusal::HostTaken { host: host(0), agent: agent(0) }));
    assert_eq!(store.hosts(&HostQuery::default()).await.unwrap()[0].agent, agent(0));
}

pub async fn a_connected_agent_is_not_replaced_by_another_key_under_its_id(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    connect(&*store, 0).await;
    let other_key = Enrolment { key_fingerprint: "another".to_owned(), ..enrolment("fixture", 0) };

    let answer = store.enrol(other_key, 0).await.unwrap();
    let repeated = store.enrol(enrolment("fixture", 0), 0).await.unwrap();

    assert_eq!(answer, Err(EnrolRefusal::HostTaken { host: host(0), agent: agent(0) }));
    assert_eq!(repeated, Ok(()));
}

pub async fn a_refused_enrolment_costs_no_use(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    connect(&*store, 0).await;
    store.put_token(token("t", 1)).await.unwrap();

    let refused = store.enrol(Enrolment { host: host(0), ..enrolment("t", 1) }, 0).await.unwrap();
    let accepted = store.enrol(enrolment("t", 2), 0).await.unwrap();

    assert!(refused.is_err());
    assert_eq!(accepted, Ok(()));
}

pub async fn a_host_whose_agent_is_gone_moves_to_the_new_agent_with_its_registrations(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.register(&[registration(0, "web/nginx", "nginx")], RegisterMode::Create, 1).await.unwrap();
    let epoch = connect(&*store, 0).await;
    store.close_session(&agent(0), epoch, 20).await.unwrap();

    store.enrol(Enrolment { host: host(0), ..enrolment("fixture", 9) }, 30).await.unwrap().unwrap();

    let found = store.hosts_by_agent(&[agent(0), agent(9)]).await.unwrap();
    assert_eq!(found[0], None);
    assert_eq!(found[1].as_ref().map(|found| (found.key, found.enrolled_at)), Some((host(0), 30)));
    assert_eq!(store.assignments(&agent(9), 0).await.unwrap().processes[0].key, key("web/nginx"));
    assert!(store.assignments(&agent(0), 0).await.unwrap().processes.is_empty());
    assert!(connect(&*store, 9).await > epoch);
}

pub async fn the_id_of_a_connected_agent_is_not_given_to_another_host(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    connect(&*store, 0).await;
    let elsewhere = Enrolment { agent: agent(0), ..enrolment("fixture", 9) };

    let answer = store.enrol(elsewhere, 0).await.unwrap();

    assert_eq!(answer, Err(EnrolRefusal::AgentTaken { agent: agent(0), host: host(0) }));
    assert_eq!(store.hosts(&HostQuery::default()).await.unwrap().len(), 1);
}

pub async fn an_agent_whose_machine_changed_its_address_keeps_its_registrations(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.register(&[registration(0, "web/nginx", "nginx")], RegisterMode::Create, 1).await.unwrap();

    store.enrol(Enrolment { host: host(9), ..enrolment("fixture", 0) }, 5).await.unwrap().unwrap();

    let hosts = store.hosts(&HostQuery::default()).await.unwrap();
    assert_eq!(hosts.len(), 1);
    assert_eq!((hosts[0].key, &hosts[0].agent), (host(9), &agent(0)));
    assert_eq!(store.assignments(&agent(0), 0).await.unwrap().processes.len(), 1);
}

pub async fn an_agent_that_moves_to_a_known_host_gets_that_hosts_registrations_as_new(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    for process in ["web/a", "web/b", "web/c"] {
        store.register(&[registration(0, process, "x")], RegisterMode::Create, 1).await.unwrap();
    }
    store.register(&[registration(1, "web/nginx", "nginx")], RegisterMode::Create, 1).await.unwrap();

    store.enrol(Enrolment { host: host(1), ..enrolment("fixture", 0) }, 5).await.unwrap().unwrap();

    let moved = store.assignments(&agent(0), 3).await.unwrap().processes;
    assert_eq!(moved.len(), 1);
    assert_eq!(moved[0].key, key("web/nginx"));
    assert_eq!(store.hosts_by_key(&[host(0)]).await.unwrap(), [None]);

    store.enrol(Enrolment { host: host(0), ..enrolment("fixture", 5) }, 6).await.unwrap().unwrap();
    assert_eq!(store.assignments(&agent(5), 0).await.unwrap().processes.len(), 3);
}
