//! Join tokens and the binding of hosts to agents.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{EXPIRES_AT, agent, ended, enrol, enrolment, host, key, opening, registration, token};
use crate::{
    AuditPhase, AuditQuery, ENROLMENT_ACTOR, EnrolRefusal, Enrolled, Enrolment, HostQuery, JoinToken,
    REFUSALS_AUDITED_MAX, RegisterMode, SessionOpening, SessionRefusal, Store,
};

pub(super) const GOOD: Result<Enrolled, EnrolRefusal> = Ok(Enrolled { displaced: Vec::new() });

pub(super) async fn connect(store: &dyn Store, number: usize) -> u64 {
    store.open_session(&opening(number), 10).await.unwrap().unwrap()
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

    assert_eq!((repeated, other, repeated_when_used_up), (GOOD, GOOD, GOOD));
    assert_eq!(before, after);
    assert_eq!(store.enrol(enrolment("t", 3), 6).await.unwrap(), Err(EnrolRefusal::UsedUp));
}

pub async fn one_use_of_a_token_lets_no_second_host_of_the_same_key_in(store: Arc<dyn Store>) {
    store.put_token(token("t", 2)).await.unwrap();
    let first = enrolment("t", 1);
    let of_first_key = |number| Enrolment { key_fingerprint: first.key_fingerprint.clone(), ..enrolment("t", number) };

    assert_eq!(store.enrol(first.clone(), 5).await.unwrap(), GOOD);
    assert_eq!(store.enrol(of_first_key(2), 5).await.unwrap(), GOOD);

    assert_eq!(store.enrol(of_first_key(3), 5).await.unwrap(), Err(EnrolRefusal::UsedUp));
    assert_eq!(store.enrol(first.clone(), 6).await.unwrap(), GOOD);
    assert_eq!(store.enrol(of_first_key(2), 6).await.unwrap(), GOOD);
}

pub async fn one_use_of_a_token_lets_no_host_move_to_another_address(store: Arc<dyn Store>) {
    store.put_token(token("t", 1)).await.unwrap();
    store.enrol(enrolment("t", 1), 5).await.unwrap().unwrap();

    let moved = store.enrol(Enrolment { host: host(2), ..enrolment("t", 1) }, 6).await.unwrap();

    assert_eq!(moved, Err(EnrolRefusal::UsedUp));
    assert_eq!(store.enrol(enrolment("t", 1), 6).await.unwrap(), GOOD);
}

pub async fn a_token_that_is_put_again_keeps_the_count_of_its_uses(store: Arc<dyn Store>) {
    store.put_token(token("t", 1)).await.unwrap();
    store.enrol(enrolment("t", 1), 0).await.unwrap().unwrap();

    store.put_token(token("t", 2)).await.unwrap();

    assert_eq!(store.enrol(enrolment("t", 2), 0).await.unwrap(), GOOD);
    assert_eq!(store.enrol(enrolment("t", 3), 0).await.unwrap(), Err(EnrolRefusal::UsedUp));
}

pub async fn unknown_tokens_and_wrong_secrets_are_refused_alike(store: Arc<dyn Store>) {
    store.put_token(token("t", 1)).await.unwrap();
    let wrong = Enrolment { token_secret_hash: "guessed".to_owned(), ..enrolment("t", 1) };

    assert_eq!(store.enrol(enrolment("u", 1), 0).await.unwrap(), Err(EnrolRefusal::UnknownToken));
    assert_eq!(store.enrol(wrong, 0).await.unwrap(), Err(EnrolRefusal::UnknownToken));
    assert_eq!(store.enrol(enrolment("t", 1), 0).await.unwrap(), GOOD);
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
    assert_eq!(store.enrol(inside, 0).await.unwrap(), GOOD);
}

/// A token that names the host.
pub(super) async fn token_for(store: &dyn Store, number: usize) -> String {
    let id = format!("for {number}");
    store.put_token(JoinToken { host: Some(host(number)), ..token(&id, 9) }).await.unwrap();
    id
}

pub async fn a_known_host_is_not_given_to_another_key_connected_or_not(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let epoch = connect(&*store, 0).await;
    let other_agent = || Enrolment { host: host(0), ..enrolment("fixture", 9) };
    let other_key = || Enrolment { key_fingerprint: "another".to_owned(), ..enrolment("fixture", 0) };
    let other_host = || Enrolment { agent: agent(0), ..enrolment("fixture", 9) };
    let taken = || Err(EnrolRefusal::HostTaken { host: host(0) });

    for offline in [false, true] {
        if offline {
            store.end_sessions(&[ended(0, epoch)], 20).await.unwrap();
        }
        assert_eq!(store.enrol(other_agent(), 20).await.unwrap(), taken());
        assert_eq!(store.enrol(other_key(), 20).await.unwrap(), taken());
        let answer = store.enrol(other_host(), 20).await.unwrap();
        assert_eq!(answer, Err(EnrolRefusal::AgentTaken { agent: agent(0) }));
        assert_eq!(store.enrol(enrolment("fixture", 0), 20).await.unwrap(), GOOD, "its own key");
    }

    let hosts = store.hosts(&HostQuery::default()).await.unwrap();
    assert_eq!(
        hosts.iter().map(|host| (host.key, host.agent.clone())).collect::<Vec<_>>(),
        [(host(0), agent(0)), (host(1), agent(1))]
    );
}

pub async fn a_refused_enrolment_costs_no_use(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.put_token(token("t", 1)).await.unwrap();

    let refused = store.enrol(Enrolment { host: host(0), ..enrolment("t", 1) }, 0).await.unwrap();
    let accepted = store.enrol(enrolment("t", 2), 0).await.unwrap();

    assert!(refused.is_err());
    assert_eq!(accepted, GOOD);
}

pub async fn a_token_that_names_a_host_takes_it_over_with_its_registrations_and_nothing_else(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.register(&[registration(0, "web/nginx", "nginx")], RegisterMode::Create, 1).await.unwrap();
    let epoch = connect(&*store, 0).await;
    let named = token_for(&*store, 0).await;

    let elsewhere = store.enrol(Enrolment { host: host(1), ..enrolment(&named, 9) }, 30).await.unwrap();
    let taken = store.enrol(Enrolment { host: host(0), ..enrolment(&named, 9) }, 30).await.unwrap();

    assert_eq!(elsewhere, Err(EnrolRefusal::WrongHost { allowed: host(0) }));
    assert_eq!(taken, Ok(Enrolled { displaced: vec![agent(0)] }));
    let found = store.hosts_by_agent(&[agent(0), agent(9)]).await.unwrap();
    assert_eq!(found[0], None);
    assert_eq!(found[1].as_ref().map(|found| (found.key, found.enrolled_at, found.online)), Some((host(0), 30, false)));
    assert_eq!(store.assignments(&agent(9), 0).await.unwrap().processes[0].key, key("web/nginx"));
    assert!(store.assignments(&agent(0), 0).await.unwrap().processes.is_empty());
    assert!(connect(&*store, 9).await > epoch);
}

pub async fn a_host_that_may_rejoin_opens_to_another_key_once_and_in_time(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let by_key = |key: &str| Enrolment { key_fingerprint: key.to_owned(), ..enrolment("fixture", 0) };
    let taken = Err(EnrolRefusal::HostTaken { host: host(0) });

    assert!(store.allow_rejoin(&host(0), Some(100)).await.unwrap());
    assert!(!store.allow_rejoin(&host(9), Some(100)).await.unwrap());
    assert_eq!(store.enrol(by_key("late"), 100).await.unwrap(), taken);
    assert_eq!(store.enrol(by_key("second"), 99).await.unwrap(), Ok(Enrolled { displaced: vec![agent(0)] }));
    assert_eq!(store.enrol(by_key("third"), 99).await.unwrap(), taken);
    assert_eq!(store.enrol(enrolment("fixture", 0), 99).await.unwrap(), taken, "the first key is another one now");

    store.allow_rejoin(&host(0), Some(200)).await.unwrap();
    store.allow_rejoin(&host(0), None).await.unwrap();
    assert_eq!(store.enrol(by_key("fourth"), 99).await.unwrap(), taken, "it was withdrawn");
}

pub async fn only_the_present_key_of_a_host_opens_sessions(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let older = connect(&*store, 0).await;
    let named = token_for(&*store, 0).await;
    let second = SessionOpening::new(agent(0), "second");
    let replaced = Err(SessionRefusal::KeyReplaced { agent: agent(0) });
    assert_eq!(store.open_session(&second, 10).await.unwrap(), replaced);

    let other_key = Enrolment { key_fingerprint: "second".to_owned(), ..enrolment(&named, 0) };
    store.enrol(other_key, 20).await.unwrap().unwrap();

    assert_eq!(store.open_session(&opening(0), 30).await.unwrap(), replaced);
    assert!(store.open_session(&second, 30).await.unwrap().unwrap() > older + 1, "no session of the old key is as new");
}

pub async fn an_older_copy_of_settled_state_opens_no_session_unless_it_may_rejoin(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let with = |seen: u64| SessionOpening { seen_epoch: Some(seen), ..opening(0) };
    let first = store.open_session(&with(0), 1).await.unwrap().unwrap();
    let second = store.open_session(&with(0), 2).await.unwrap().unwrap();

    assert!(!store.settle_session(&agent(0), first).await.unwrap(), "a newer session is open");
    assert!(store.settle_session(&agent(0), second).await.unwrap());

    let stale = Err(SessionRefusal::StaleState { agent: agent(0) });
    assert_eq!(store.open_session(&with(first), 3).await.unwrap(), stale);
    let third = store.open_session(&with(second), 3).await.unwrap().unwrap();
    assert!(store.open_session(&with(second), 4).await.unwrap().is_ok(), "the welcome of the third was lost");
    assert!(store.open_session(&with(third), 4).await.unwrap().is_ok());
    store.allow_rejoin(&host(0), Some(100)).await.unwrap();
    assert!(store.open_session(&with(first), 5).await.unwrap().is_ok());
    assert_eq!(store.open_session(&with(first), 6).await.unwrap(), stale, "once");
    assert!(store.open_session(&opening(0), 6).await.unwrap().is_ok(), "older agents keep no epoch");
}

pub async fn tokens_are_listed_with_their_uses_and_deleted(store: Arc<dyn Store>) {
    store.put_token(JoinToken { host: Some(host(7)), ..token("a", 2) }).await.unwrap();
    store.put_token(JoinToken { expires_at: EXPIRES_AT + 1, ..token("b", 3) }).await.unwrap();
    store.enrol(enrolment("b", 1), 0).await.unwrap().unwrap();
    store.enrol(enrolment("a", 1), 0).await.unwrap().unwrap_err();

    let tokens = store.tokens().await.unwrap();

    let shown: Vec<_> = tokens.iter().map(|it| (it.token.id.as_str(), it.used, it.refused, it.token.host)).collect();
    assert_eq!(shown, [("b", 1, 0, None), ("a", 0, 1, Some(host(7)))]);
    assert!(store.knows_token("b", &tokens[0].token.secret_hash).await.unwrap());
    assert!(!store.knows_token("b", "guessed").await.unwrap());
    assert!(store.delete_token("b").await.unwrap());
    assert!(!store.delete_token("b").await.unwrap());
    assert_eq!(store.enrol(enrolment("b", 1), 0).await.unwrap(), Err(EnrolRefusal::UnknownToken));
    assert_eq!(store.hosts(&HostQuery::default()).await.unwrap().len(), 1);
}

pub async fn enrolments_are_audited_and_refusals_only_with_a_known_token_and_up_to_a_bound(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.enrol(enrolment("nobody's", 1), 5).await.unwrap().unwrap_err();
    for _ in 0..REFUSALS_AUDITED_MAX + 3 {
        store.enrol(Enrolment { host: host(0), ..enrolment("fixture", 9) }, 6).await.unwrap().unwrap_err();
    }

    let query = AuditQuery { action: Some("enrol".to_owned()), limit: 1000, ..AuditQuery::default() };
    let entries = store.audit(&query).await.unwrap();

    assert_eq!(entries.len(), 1 + REFUSALS_AUDITED_MAX as usize);
    let done = &entries[0].draft;
    assert_eq!(
        (done.phase, done.app.as_str(), done.user.as_str()),
        (AuditPhase::Done, ENROLMENT_ACTOR, "join token fixture")
    );
    assert_eq!(
        (done.targets.as_slice(), done.outcome.as_str()),
        (&["host 0:10.0.0.0 agent agent-0 key key-0".to_owned()][..], "new host")
    );
    assert!(entries[1..].iter().all(|entry| entry.draft.phase == AuditPhase::Refused));
    assert_eq!(store.tokens().await.unwrap()[0].refused, REFUSALS_AUDITED_MAX + 3);
}

pub async fn an_agent_whose_machine_changed_its_address_keeps_its_registrations(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.register(&[registration(0, "web/nginx", "nginx")], RegisterMode::Create, 1).await.unwrap();

    let moved = store.enrol(Enrolment { host: host(9), ..enrolment("fixture", 0) }, 5).await.unwrap();

    assert_eq!(moved, Ok(Enrolled { displaced: vec![agent(0)] }), "it has to open another session");
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
    let named = token_for(&*store, 1).await;

    store.enrol(Enrolment { host: host(1), ..enrolment(&named, 0) }, 5).await.unwrap().unwrap();

    let moved = store.assignments(&agent(0), 3).await.unwrap().processes;
    assert_eq!(moved.len(), 1);
    assert_eq!(moved[0].key, key("web/nginx"));
    assert_eq!(store.hosts_by_key(&[host(0)]).await.unwrap(), [None]);

    let stranger = || Enrolment { host: host(0), ..enrolment("fixture", 5) };
    let taken = Err(EnrolRefusal::HostTaken { host: host(0) });
    assert_eq!(store.enrol(stranger(), 6).await.unwrap(), taken, "it waits for its own, or for leave");
    assert!(store.allow_rejoin(&host(0), Some(100)).await.unwrap());
    store.enrol(stranger(), 6).await.unwrap().unwrap();
    assert_eq!(store.assignments(&agent(5), 0).await.unwrap().processes.len(), 3);
}
