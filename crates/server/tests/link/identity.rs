//! A host belongs to its key.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_model::EventKind;
use proctor_pki::{AgentKey, JoinToken};
use proctor_server::admin::{self, TokenRequest};
use proctor_server::control::{Caller, HostRef};
use proctor_store::{AuditPhase, Business, HostQuery};
use proctor_wire::{AgentCodec, FromAgent, FromServer};

use crate::support::{Agent, Link, World, dial, leave, next, until};

const HOST: &str = "0:10.0.0.1";

/// What the server says before it ends the session, and that it ends it.
async fn dismissal(link: &mut Link) -> String {
    let reason = loop {
        match next(link).await {
            FromServer::Refused { reason, retry } => {
                assert!(!retry);
                break reason;
            }
            FromServer::Beat | FromServer::Assign { .. } | FromServer::AssignPools { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(link.next().await.is_none_or(|last| last.is_err()), "the session is over");
    reason
}

/// A session that the server knows to be recorded: messages are handled in order.
async fn settled_session(agent: &mut Agent, world: &World) -> Link {
    let mut link = agent.session(world, "run").await;
    link.send(FromAgent::Beat).await.unwrap();
    while next(&mut link).await != FromServer::Beat {}
    link
}

#[tokio::test]
async fn a_stranger_takes_neither_a_connected_host_nor_one_that_a_restart_made_offline() {
    let mut world = World::new().await;
    let mut owner = world.agent(HOST, "owner").await;
    let link = owner.session(&world, "run").await;
    let token = world.token(None).await;
    let mut stranger = Agent::new(HOST, "stranger");
    let mut same_id = Agent::new("0:10.0.0.9", "owner");

    let while_connected = stranger.enrol(&world, &token).await.unwrap_err();
    drop(link);
    world.restart().await;
    let after_restart = stranger.enrol(&world, &token).await.unwrap_err();
    let by_id = same_id.enrol(&world, &token).await.unwrap_err();

    assert_eq!(while_connected, after_restart);
    assert!(after_restart.contains("proctor hosts allow-rejoin 0:10.0.0.1"), "{after_restart}");
    assert!(by_id.contains("agent id owner belongs to another host"), "{by_id}");
    owner.session(&world, "run").await;
    let phases: Vec<_> = world.audited("enrol").await.into_iter().map(|entry| entry.phase).collect();
    assert_eq!(phases, [AuditPhase::Done, AuditPhase::Refused, AuditPhase::Refused, AuditPhase::Refused]);
    world.end().await;
}

#[tokio::test]
async fn a_token_that_names_the_host_replaces_its_key_and_ends_the_session_of_the_old_one() {
    let world = World::new().await;
    let mut old = world.agent(HOST, "owner").await;
    let mut link = settled_session(&mut old, &world).await;
    let mut new = Agent::new(HOST, "owner");

    new.enrol(&world, &world.token(Some(HOST)).await).await.unwrap();

    assert_eq!(dismissal(&mut link).await, "host 0:10.0.0.1 was enrolled again");
    let (reason, retry) = old.connect(&world, "run").await.unwrap_err();
    assert!(reason.contains("was replaced by another enrolment"), "{reason}");
    assert!(!retry);
    until("the new key gets in", || async { new.connect(&world, "other").await.is_ok() }).await;
    world.end().await;
}

#[tokio::test]
async fn an_operator_lets_another_key_in_once() {
    let world = World::new().await;
    world.agent(HOST, "owner").await;
    let token = world.token(None).await;
    let (mut second, mut third) = (Agent::new(HOST, "second"), Agent::new(HOST, "third"));

    assert!(world.store.allow_rejoin(&second.host, Some(i64::MAX)).await.unwrap());
    second.enrol(&world, &token).await.unwrap();
    third.enrol(&world, &token).await.unwrap_err();

    second.session(&world, "run").await;
    world.end().await;
}

#[tokio::test]
async fn a_revoked_certificate_ends_the_live_session_and_opens_no_other() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let mut link = settled_session(&mut agent, &world).await;

    let revoked = world.server.control.revoke_host(&agent.host).await.unwrap();

    assert_eq!(revoked.as_deref(), Some(std::slice::from_ref(&agent.id)));

    assert_eq!(dismissal(&mut link).await, "the agent's certificate was revoked");
    let (reason, retry) = agent.connect(&world, "run").await.unwrap_err();
    assert!(reason.contains("was revoked"), "{reason}");
    assert!(!retry);
    assert!(agent.enrol(&world, &world.token(None).await).await.unwrap_err().contains("this key was revoked"));
    assert!(!world.store.hosts(&HostQuery::default()).await.unwrap()[0].online);
    world.end().await;
}

#[tokio::test]
async fn a_removed_host_is_gone_with_its_session_and_certificate() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let mut link = settled_session(&mut agent, &world).await;

    assert!(world.server.control.remove_host(&agent.host).await.unwrap());

    assert_eq!(dismissal(&mut link).await, "the host was removed");
    let (reason, retry) = agent.connect(&world, "run").await.unwrap_err();
    assert!(reason.contains("enrol again with a new join token"), "{reason}");
    assert!(!retry);
    assert!(world.store.hosts(&HostQuery::default()).await.unwrap().is_empty());
    assert!(!world.server.control.remove_host(&agent.host).await.unwrap());
    world.end().await;
}

#[tokio::test]
async fn a_cordon_is_of_the_host_whichever_agent_it_has_and_wherever_it_moves() {
    let world = World::new().await;
    let control = &world.server.control;
    let mut first = world.agent(HOST, "first").await;
    let cordoned = async || world.metric("proctor_hosts_cordoned_away").await;
    let host = HostRef::Key(first.host);
    control.cordon(&Caller::local("test"), &host, "new disk".to_owned(), None).await.unwrap().unwrap();
    let link = settled_session(&mut first, &world).await;
    assert_eq!(cordoned().await, Some(0.0));

    // Installed again.
    assert!(world.store.allow_rejoin(&first.host, Some(i64::MAX)).await.unwrap());
    let mut second = Agent::new(HOST, "second");
    second.enrol(&world, &world.token(None).await).await.unwrap();
    drop(link);
    let _link = settled_session(&mut second, &world).await;
    assert_eq!(cordoned().await, Some(0.0), "the agent that is there now is on the cordoned host");

    // Another address.
    second.host = "0:10.0.0.77".parse().unwrap();
    second.enrol(&world, &world.token(None).await).await.unwrap();
    let moved = HostRef::Key(second.host);
    control.uncordon(&Caller::local("test"), &moved).await.unwrap();
    assert_eq!(world.metric("proctor_hosts_cordoned").await, Some(0.0), "nothing is left of it");
    world.end().await;
}

#[tokio::test]
async fn a_session_renews_its_own_key_and_no_other() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let mut link = agent.session(&world, "run").await;

    link.send(FromAgent::Renew { csr_der: agent.key.csr_der().unwrap() }).await.unwrap();
    let renewed = next(&mut link).await;
    leave(&world, &agent, link).await;
    let mut link = agent.session(&world, "another run").await;
    link.send(FromAgent::Renew { csr_der: AgentKey::generate().unwrap().csr_der().unwrap() }).await.unwrap();

    assert!(matches!(renewed, FromServer::Renewed { .. }), "{renewed:?}");
    assert!(link.next().await.is_none_or(|last| last.is_err()), "nothing is signed for another key");
    world.end().await;
}

async fn certificates_signed(world: &World) -> f64 {
    world.metric("proctor_certificates_signed_total").await.unwrap()
}

#[tokio::test]
async fn an_agent_that_asks_for_certificates_all_the_time_gets_one() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let mut link = agent.session(&world, "run").await;
    let before = certificates_signed(&world).await;

    for _ in 0..100 {
        link.send(FromAgent::Renew { csr_der: agent.key.csr_der().unwrap() }).await.unwrap();
    }
    // Answered once all that was sent before has been read; the certificate may come later.
    link.send(FromAgent::Beat).await.unwrap();
    let (mut renewed, mut has_beaten) = (0, false);
    while !has_beaten || renewed == 0 {
        match next(&mut link).await {
            FromServer::Renewed { .. } => renewed += 1,
            FromServer::Beat => has_beaten = true,
            _ => {}
        }
    }

    assert_eq!((renewed, certificates_signed(&world).await - before), (1, 1.0));
    world.end().await;
}

/// For many hosts, which it places in this business.
async fn token_of_business(world: &World, business: u64) -> JoinToken {
    let request = TokenRequest::new(100, Duration::from_secs(600), None).unwrap().placing(Some(business));
    admin::create_token(&world.store, request).await.unwrap().0
}

#[tokio::test]
async fn a_token_of_another_business_takes_neither_a_known_host_nor_a_placed_address() {
    let world = World::new().await;
    for id in [1, 2] {
        world.store.put_business(Business { id, name: format!("business {id}") }).await.unwrap();
    }
    let (mut owner, free) = (Agent::new(HOST, "owner"), "0:10.0.0.5");
    owner.enrol(&world, &token_of_business(&world, 1).await).await.unwrap();
    world.store.place_hosts(&[(free.parse().unwrap(), Some(1))]).await.unwrap().unwrap();
    let foreign = token_of_business(&world, 2).await;
    let before = certificates_signed(&world).await;

    let of_known = Agent::new(HOST, "stranger").enrol(&world, &foreign).await.unwrap_err();
    // Not even if an operator has allowed another key: that was meant for the host's own business.
    assert!(world.store.allow_rejoin(&owner.host, Some(i64::MAX)).await.unwrap());
    let of_open = Agent::new(HOST, "stranger").enrol(&world, &foreign).await.unwrap_err();
    let of_placed = Agent::new(free, "stranger").enrol(&world, &foreign).await.unwrap_err();

    assert!(of_known.contains("proctor hosts allow-rejoin 0:10.0.0.1"), "{of_known}");
    for (refused, host) in [(of_open, HOST), (of_placed, free)] {
        let words = format!("the join token is for business 2, but host {host} is in another business");
        assert!(refused.starts_with(&words), "{refused}");
    }
    assert_eq!(certificates_signed(&world).await, before, "a refusal costs no signature");
    let hosts = world.store.hosts(&HostQuery::default()).await.unwrap();
    let kept: Vec<_> = hosts.iter().map(|host| (host.agent.clone(), host.business)).collect();
    assert_eq!(kept, [(owner.id.clone(), Some(1))]);
    owner.session(&world, "run").await;
    world.end().await;
}

#[tokio::test]
async fn a_token_is_checked_before_the_request_is_read_and_before_anything_is_signed() {
    let world = World::new().await;
    let mut spent = world.token(Some(HOST)).await;
    world.agent("0:10.0.0.2", "other").await;
    Agent::new(HOST, "owner").enrol(&world, &spent).await.unwrap();
    let before = certificates_signed(&world).await;
    assert!(before >= 2.0, "both agents have one: {before}");

    let used_up = Agent::new(HOST, "owner").enrol(&world, &spent).await.unwrap_err();
    let wrong_host = Agent::new("0:10.0.0.3", "third").enrol(&world, &spent).await.unwrap_err();
    spent.secret = proctor_pki::random_secret();
    let guessed = Agent::new("0:10.0.0.3", "third").enrol(&world, &spent).await.unwrap_err();
    let without_request = enrol_with(&world, &spent, Vec::new()).await;
    spent = world.token(None).await;
    let good_token_without_request = enrol_with(&world, &spent, Vec::new()).await;

    assert_eq!(used_up, "the join token has no uses left: make another one (proctor token create)");
    assert_eq!(wrong_host, "the join token is only valid for host 0:10.0.0.1");
    assert!(guessed.starts_with("the join token is unknown"), "{guessed}");
    assert_eq!(without_request, guessed, "the token comes first");
    assert!(good_token_without_request.starts_with("the certificate request cannot be used"), "the test can tell");
    assert_eq!(certificates_signed(&world).await, before);
    Agent::new("0:10.0.0.3", "third").enrol(&world, &spent).await.unwrap();
    assert_eq!(certificates_signed(&world).await, before + 1.0, "and the count counts");
    world.end().await;
}

/// The reason of the refusal of a request with these bytes instead of a signing request.
async fn enrol_with(world: &World, token: &JoinToken, csr_der: Vec<u8>) -> String {
    let config = proctor_pki::enrol_config(&token.authority_fingerprint).unwrap();
    let mut frames = dial(world, config, AgentCodec::enrolment()).await;
    let (token_id, token_secret) = (token.id.clone(), token.secret.clone());
    let host = "0:10.0.0.3".parse().unwrap();
    frames.send(FromAgent::Enrol { token_id, token_secret, csr_der, agent: None, host }).await.unwrap();
    match next(&mut frames).await {
        FromServer::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_unknown_token_reaches_neither_the_authority_nor_the_audit_log() {
    let world = World::new().await;
    let mut guessed = world.token(None).await;
    guessed.secret = proctor_pki::random_secret();
    let mut unknown = guessed.clone();
    unknown.id = "nobodys".to_owned();

    for token in [guessed, unknown] {
        let reason = Agent::new(HOST, "stranger").enrol(&world, &token).await.unwrap_err();
        assert!(reason.starts_with("the join token is unknown"), "{reason}");
    }

    assert!(world.audited("enrol").await.is_empty());
    assert!(world.store.hosts(&HostQuery::default()).await.unwrap().is_empty());
    world.end().await;
}

/// Why copies were refused, by the events that tell of them.
async fn cloned(world: &World) -> Vec<String> {
    world.events(&[EventKind::AgentCloned]).await.into_iter().map(|event| event.details["reason"].clone()).collect()
}

#[tokio::test]
async fn of_two_runs_with_one_identity_the_second_waits_while_the_first_is_heard() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let copy = agent.copy();
    let mut link = agent.session(&world, "original").await;

    let (reason, retry) = copy.connect(&world, "copy").await.unwrap_err();

    assert!(reason.contains("is this a copy of its state directory?"), "{reason}");
    assert!(retry, "the first may be a run that has just died");
    assert!(cloned(&world).await.is_empty(), "as far as is known by now");
    link.send(FromAgent::Beat).await.unwrap();
    while next(&mut link).await != FromServer::Beat {}
    for _ in 0..3 {
        copy.connect(&world, "copy").await.unwrap_err();
    }
    assert_eq!(cloned(&world).await, ["connected"], "both are there");
    let again = agent.connect(&world, "original").await;
    assert!(again.is_ok(), "the same run comes back at once");
    drop((link, again));
    world.end().await;
}

#[tokio::test]
async fn a_copy_that_comes_when_the_original_is_away_shuts_out_the_older_state() {
    let world = World::new().await;
    let mut original = world.agent(HOST, "owner").await;
    let link = original.session(&world, "first").await;
    leave(&world, &original, link).await;
    let mut copy = original.copy();

    let link = copy.session(&world, "copy").await;
    leave(&world, &copy, link).await;
    let (reason, retry) = original.connect(&world, "first").await.unwrap_err();

    assert!(reason.contains("is an old copy"), "{reason}");
    assert!(!retry);
    assert_eq!(cloned(&world).await, ["old_state"]);
    assert!(world.store.allow_rejoin(&original.host, Some(i64::MAX)).await.unwrap());
    let link = original.session(&world, "first").await;
    leave(&world, &original, link).await;
    let (reason, _) = copy.connect(&world, "copy").await.unwrap_err();
    assert!(reason.contains("is an old copy"), "the operator chose the other one: {reason}");
    world.end().await;
}

#[tokio::test]
async fn an_agent_gets_no_work_before_its_state_has_recorded_the_session() {
    let world = World::new().await;
    let agent = world.agent(HOST, "owner").await;
    let registration = proctor_store::Registration {
        agent: agent.id.clone(),
        key: "web/nginx".parse().unwrap(),
        spec: proctor_store::conformance::spec("nginx"),
    };
    world.store.register(&[registration], proctor_store::RegisterMode::Create, 1).await.unwrap();
    let (epoch, mut link) = agent.connect(&world, "run").await.unwrap();

    // The answer to a beat comes after what was to be sent before it.
    link.send(FromAgent::Beat).await.unwrap();
    let first = next(&mut link).await;
    link.send(FromAgent::Settled { epoch, recorded: false }).await.unwrap();
    let second = next(&mut link).await;

    assert_eq!(first, FromServer::Beat);
    assert!(matches!(second, FromServer::Assign { .. }), "{second:?}");
    world.end().await;
}

/// What an agent is told when it comes back, up to the answer to a beat.
async fn told(agent: &mut Agent, world: &World) -> Vec<FromServer> {
    let mut link = agent.session(world, "run").await;
    link.send(FromAgent::Beat).await.unwrap();
    let mut told = Vec::new();
    // It is told when the session is recorded, which may be after the beat was answered.
    while !told.iter().any(|message| matches!(message, FromServer::Assign { .. })) {
        told.push(next(&mut link).await);
    }
    leave(world, agent, link).await;
    told.retain(|message| *message != FromServer::Beat);
    told
}

#[tokio::test]
async fn a_host_from_an_old_snapshot_is_told_what_is_still_registered() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let id = agent.id.clone();
    let register = async |name: &str| {
        let key = name.parse().unwrap();
        let spec = proctor_store::conformance::spec("nginx");
        let registration = proctor_store::Registration { agent: id.clone(), key, spec };
        world.store.register(&[registration], proctor_store::RegisterMode::Create, 1).await.unwrap();
    };
    register("web/gone").await;
    register("web/stays").await;
    let newest = async |agent: &Agent, since| {
        let assignments = world.store.assignments(&agent.id, since).await.unwrap();
        assignments.processes.iter().map(|assigned| assigned.generation).max().unwrap()
    };
    let snapshot = newest(&agent, 0).await;
    world.store.unregister(&[(agent.id.clone(), "web/gone".parse().unwrap())], 2).await.unwrap();
    let unregistered = newest(&agent, snapshot).await;
    world.store.note_generations(&[(agent.id.clone(), unregistered)]).await.unwrap();
    let uptime = world.store.advance_uptime(Duration::from_secs(3600)).await.unwrap() + 1;
    while world.store.prune(proctor_store::Prune::Tombstones { before: uptime }).await.unwrap() > 0 {}

    agent.seen_generation = snapshot;
    let of_snapshot = told(&mut agent, &world).await;
    register("web/new").await;
    agent.seen_generation = unregistered;
    let of_current = told(&mut agent, &world).await;
    agent.seen_generation = 0;
    let of_empty = told(&mut agent, &world).await;

    let [FromServer::Registered(list), FromServer::Assign { assignments }] = &of_snapshot[..] else {
        panic!("{of_snapshot:?}")
    };
    assert_eq!((list.offset, list.is_last, list.pools.len()), (0, true, 0));
    assert_eq!(list.processes, ["web/stays".parse().unwrap()]);
    assert_eq!(assignments.len(), 1, "with its spec, and before it the list");
    for (told, count) in [(of_current, 1), (of_empty, 2)] {
        let [FromServer::Assign { assignments }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(assignments.len(), count);
    }
    world.end().await;
}
