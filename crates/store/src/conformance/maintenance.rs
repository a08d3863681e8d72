//! Cordons, and the approval of new hosts.

use std::sync::Arc;

use proctor_model::{Code, HostFacts, Message, Outcome};

use super::events::{exits, sequences};
use super::tasks::{id, operation, task};
use super::{agent, ended, enrol, enrolment, host, opening, token};
use crate::{
    AuditQuery, Cordon, Enrolment, EventQuery, FinishedTarget, HostQuery, HostRecord, JoinToken, NewTask, PeerTrust,
    ProcessQuery, Refusal, ReturnRequest, Rollout, RolloutState, SessionOpening, SessionRefusal, Store,
};

fn cordon(reason: &str, until: Option<i64>) -> Cordon {
    Cordon { reason: reason.to_owned(), by: "user ada".to_owned(), since: 5, until, held_since: None }
}

async fn only_host(store: &dyn Store) -> HostRecord {
    store.hosts(&HostQuery::default()).await.unwrap().remove(0)
}

pub async fn a_cordon_is_read_back_with_the_host_and_replaced(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let (first, second) = (cordon("disk", None), cordon("memory \u{5185}", Some(9)));

    let before_first = store.set_cordon(&host(0), Some(first.clone())).await.unwrap();
    let before_second = store.set_cordon(&host(0), Some(second.clone())).await.unwrap();

    assert_eq!((before_first, before_second), (Some(None), Some(Some(first))));
    let second = Cordon { held_since: Some(5), ..second };
    let record = only_host(&*store).await;
    assert_eq!(record.cordon.as_deref(), Some(&second));
    assert_eq!((record.cordon_at(8), record.cordon_at(9)), (Some(&second), None));
    assert_eq!(store.sites_by_agent(&[agent(0)]).await.unwrap()[0].as_ref(), Some(&record.site));
    assert_eq!(store.fleet(None).await.unwrap().hosts[0].site, record.site);
    assert_eq!(store.set_cordon(&host(0), None).await.unwrap(), Some(Some(second)));
    assert_eq!(only_host(&*store).await.cordon, None);
    assert_eq!(store.set_cordon(&host(9), None).await.unwrap(), None);
}

pub async fn events_of_a_cordoned_host_are_muted_until_its_end(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let epoch = store.open_session(&opening(0), 0).await.unwrap().unwrap();
    store.set_cordon(&host(0), Some(cordon("disk", Some(50)))).await.unwrap();

    store.append_events(&agent(0), epoch, &exits([1]), 40).await.unwrap();
    store.end_sessions(&[ended(0, epoch), ended(1, 0)], 49).await.unwrap();
    let epoch = store.open_session(&opening(0), 49).await.unwrap().unwrap();
    store.append_events(&agent(0), epoch, &exits([2]), 50).await.unwrap();

    let query = |is_alarm| EventQuery { after: Some(0), is_alarm, limit: 9, ..EventQuery::default() };
    let all = store.events(&query(false)).await.unwrap();
    assert_eq!(all.events.iter().map(|event| event.muted).collect::<Vec<_>>(), [true, true, false, false]);
    let alarms = store.events(&query(true)).await.unwrap();
    assert_eq!(sequences(&alarms.events), [0, 2]);
    assert_eq!(alarms.next, all.next, "what is muted is not looked at again");
}

pub async fn a_new_host_that_needs_approval_opens_no_session_before_it(store: Arc<dyn Store>) {
    enrol(&*store, 0).await;
    let facts = HostFacts { hostname: "web".to_owned(), ..HostFacts::default() };
    let opening = SessionOpening { facts: facts.clone(), ..opening(0) };
    store.enrol(Enrolment { needs_approval: true, ..enrolment("fixture", 0) }, 1).await.unwrap().unwrap();

    let early = store.open_session(&opening, 2).await.unwrap();

    assert_eq!(early, Err(SessionRefusal::AwaitsApproval { host: host(0) }));
    let waiting = only_host(&*store).await;
    assert!(waiting.awaits_approval && !waiting.online && waiting.facts == facts, "{waiting:?}");
    assert_eq!((waiting.epoch, waiting.key_fingerprint.as_str()), (0, "key-0"));
    store.enrol(Enrolment { needs_approval: false, ..enrolment("fixture", 0) }, 3).await.unwrap().unwrap();
    assert!(only_host(&*store).await.awaits_approval, "a repetition approves nothing");
    let other = store.approve_host(&host(0), "key-1", 3).await.unwrap();
    assert!(matches!(other, Err(Refusal::OtherKey { found, .. }) if found == "key-0"));
    assert!(only_host(&*store).await.awaits_approval, "another key is not the one that was approved");
    assert_eq!(store.approve_host(&host(0), "KEY-0", 3).await.unwrap(), Ok(Some(true)));
    assert_eq!(store.approve_host(&host(0), "key-0", 3).await.unwrap(), Ok(Some(false)));
    assert_eq!(store.approve_host(&host(9), "key-0", 3).await.unwrap(), Ok(None));
    store.open_session(&opening, 4).await.unwrap().unwrap();
    assert!(!only_host(&*store).await.awaits_approval);
}

pub async fn an_agent_with_an_expired_certificate_comes_back_once_an_operator_says_so(store: Arc<dyn Store>) {
    const DAY: i64 = 24 * 3600 * 1000;
    enrol(&*store, 2).await;
    let agent = opening(0).agent;
    let request = |key: &str, is_served| ReturnRequest {
        agent: agent.clone(),
        key_fingerprint: key.to_owned(),
        is_valid: false,
        is_served,
        remote: None,
    };
    let let_back = async |key: &str, now| store.let_back(&request(key, false), now).await.unwrap();
    let expired = Err(SessionRefusal::CertificateExpired { host: host(0) });
    let entries = async || {
        let query = AuditQuery { action: Some("return_host".to_owned()), limit: 100, ..AuditQuery::default() };
        store.audit(&query).await.unwrap().len()
    };

    assert!(matches!(let_back("another key", 9).await, Err(SessionRefusal::KeyReplaced { .. })));
    let waiting = async || store.hosts_by_key(&[host(0)]).await.unwrap().pop().flatten().unwrap().awaits_approval;
    assert!(!waiting().await, "who has not its key does not make it wait");
    let valid = ReturnRequest { is_valid: true, ..request("key-0", false) };
    assert_eq!(store.let_back(&valid, 9).await.unwrap(), Ok(()), "its clock is ahead");
    assert!(!waiting().await);
    assert_eq!(store.approve_host(&host(0), "key-0", 9).await.unwrap(), Ok(Some(false)));
    assert_eq!(let_back("key-0", 10).await, expired, "an approval before it asked allows nothing");
    assert_eq!(let_back("key-0", 11).await, expired);
    assert!(waiting().await);
    assert_eq!(entries().await, 1, "it asks every few seconds");
    assert_eq!(store.approve_host(&host(0), "key-0", 12).await.unwrap(), Ok(Some(true)));
    assert!(!waiting().await);
    assert_eq!(let_back("key-0", 13).await, Ok(()));
    assert_eq!(let_back("key-0", 14).await, Ok(()), "the answer may have been lost");
    assert_eq!(entries().await, 2, "a leave is used once");
    assert_eq!(store.approve_host(&host(0), "key-0", 14).await.unwrap(), Ok(Some(false)));
    assert_eq!(let_back("key-0", 15).await, Ok(()), "another approval takes nothing back");
    assert_eq!(let_back("key-0", 13 + DAY / 96).await, expired, "a quarter of an hour later it has to wait again");
    assert_eq!(store.approve_host(&host(0), "key-0", 12).await.unwrap(), Ok(Some(true)));
    assert_eq!(let_back("key-0", 12 + DAY).await, expired, "and so it has a day after an approval");
    assert_eq!(store.approve_host(&host(0), "key-0", 12 + DAY).await.unwrap(), Ok(Some(true)));
    store.open_session(&opening(0), 13 + DAY).await.unwrap().unwrap();
    let of_copy = store.let_back(&request("key-0", true), 14 + DAY).await.unwrap();
    assert_eq!(of_copy, expired, "once, until it is back");
    assert!(!waiting().await, "an old copy of its state does not take a live host out of service");
    assert_eq!(store.approve_host(&host(0), "key-0", 14 + DAY).await.unwrap(), Ok(Some(false)));
    let of_copy = store.let_back(&request("key-0", true), 14 + DAY).await.unwrap();
    assert_eq!(of_copy, expired, "nor is there anything to approve");
    // A server that has just started: the store says that the host is online, and it is not.
    assert_eq!(let_back("key-0", 14 + DAY).await, expired);
    assert!(waiting().await);
    assert_eq!(store.approve_host(&host(0), "key-0", 14 + DAY).await.unwrap(), Ok(Some(true)));
    assert_eq!(store.approve_host(&host(0), "key-0", 15 + DAY).await.unwrap(), Ok(Some(true)), "said twice");
    assert_eq!(let_back("key-0", 15 + DAY).await, Ok(()));
    store.revoke_host(&host(0), 15 + DAY).await.unwrap().unwrap();
    assert!(matches!(let_back("key-0", 16 + DAY).await, Err(SessionRefusal::Revoked { .. })));
    assert!(!waiting().await, "and a revoked key waits for nothing");
}

pub async fn whom_a_peer_trusts_is_kept_replaced_and_forgotten(store: Arc<dyn Store>) {
    let trust = |authorities: &[&str]| PeerTrust {
        authorities: authorities.iter().map(|authority| (*authority).to_owned()).collect(),
        certified_by: "old".to_owned(),
    };
    store.keep_trust("relay:r", Some(trust(&["old"]))).await.unwrap();
    store.keep_trust("agent:a", Some(trust(&["old"]))).await.unwrap();
    store.keep_trust("agent:a", Some(trust(&["old", "new"]))).await.unwrap();

    let kept = store.trusts().await.unwrap();

    assert_eq!(kept, [("agent:a".to_owned(), trust(&["old", "new"])), ("relay:r".to_owned(), trust(&["old"]))]);
    store.keep_trust("agent:a", None).await.unwrap();
    store.keep_trust("agent:none", None).await.unwrap();
    assert_eq!(store.trusts().await.unwrap().len(), 1);
}

pub async fn what_a_peer_said_of_its_trust_ends_with_its_enrolment(store: Arc<dyn Store>) {
    enrol(&*store, 3).await;
    let peers = [0, 1, 2].map(|number| PeerTrust::peer_of_agent(&agent(number)));
    for peer in &peers {
        store.keep_trust(peer, Some(PeerTrust::default())).await.unwrap();
    }
    let kept = async || store.trusts().await.unwrap().into_iter().map(|(peer, _)| peer).collect::<Vec<_>>();

    store.enrol(enrolment("fixture", 0), 2).await.unwrap().unwrap();
    assert_eq!(kept().await, peers[1..]);
    store.revoke_host(&host(1), 3).await.unwrap().unwrap();
    assert_eq!(kept().await, peers[2..]);
    store.begin_host_removal(&host(2)).await.unwrap().unwrap();
    assert_eq!(kept().await, [""; 0]);
}

pub async fn an_approved_host_needs_approval_for_another_address(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = store.open_session(&opening(0), 2).await.unwrap().unwrap();
    let moved = Enrolment { needs_approval: true, host: host(9), ..enrolment("fixture", 0) };

    store.enrol(moved, 5).await.unwrap().unwrap();

    let record = only_host(&*store).await;
    assert!(record.awaits_approval && !record.online && record.epoch > epoch, "{record:?}");
    let refused = Err(SessionRefusal::AwaitsApproval { host: host(9) });
    assert_eq!(store.open_session(&opening(0), 6).await.unwrap(), refused);
    assert_eq!(store.approve_host(&host(9), "key-0", 3).await.unwrap(), Ok(Some(true)));
    store.open_session(&opening(0), 7).await.unwrap().unwrap();
}

pub async fn a_known_host_needs_no_approval_and_keeps_its_cordon(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.set_cordon(&host(0), Some(cordon("disk", None))).await.unwrap();
    store.put_token(JoinToken { host: Some(host(0)), ..token("for 0", 9) }).await.unwrap();

    let replaced = Enrolment { needs_approval: true, host: host(0), ..enrolment("for 0", 1) };
    store.enrol(replaced, 5).await.unwrap().unwrap();

    let record = only_host(&*store).await;
    assert!(!record.awaits_approval && record.cordon.is_some(), "{record:?}");
    store.remove_host(&host(0)).await.unwrap().unwrap();
    store.enrol(Enrolment { needs_approval: true, host: host(0), ..enrolment("for 0", 2) }, 6).await.unwrap().unwrap();
    let record = only_host(&*store).await;
    assert!(record.awaits_approval && record.cordon.is_none(), "a removed host is new again: {record:?}");
}

fn cordoned() -> Outcome {
    Outcome::new(Code::Cordoned, Message::foreign("disk"), false)
}

pub async fn a_cordoned_target_registers_nothing(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let mut new = task(1, 5, 2);
    new.items[0].register = true;
    new.outcomes = vec![(0, cordoned())];

    store.create_task(new).await.unwrap();

    let (_, processes) = store.processes(&ProcessQuery::default()).await.unwrap();
    assert_eq!(processes.into_iter().map(|process| process.agent).collect::<Vec<_>>(), [agent(1)]);
}

pub async fn a_cordoned_target_is_no_failure_of_an_open_rollout(store: Arc<dyn Store>) {
    let rollout = Rollout {
        max_parallel: 1,
        max_failures: 0,
        canary: 0,
        wait_healthy: true,
        released: 1,
        released_at: 4,
        earlier: Vec::new(),
        state: RolloutState::Running,
        reason: None,
        reason_phrase: None,
        makers: Vec::new(),
    };
    store.create_task(NewTask { rollout: Some(rollout), ..task(1, 5, 2) }).await.unwrap();

    store.record_outcomes(&[(operation(1, 0), cordoned())], 6).await.unwrap();

    let open = store.open_rollouts().await.unwrap().remove(0);
    assert_eq!(open.task, id(1));
    let expected = FinishedTarget { is_success: true, recorded_at: 6, healthy: Some(true) };
    assert_eq!(open.ended.into_iter().collect::<Vec<_>>(), [(0, expected)]);
}
