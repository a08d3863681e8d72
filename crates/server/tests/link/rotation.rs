//! Rotation of the authority over the live link, with agents and relays that follow, stay away, or cannot follow.

use std::sync::Arc;
use std::time::Duration;

use futures::SinkExt;
use proctor_model::Message;
use proctor_pki::{RotationPhase, authority_fingerprints, certificate_fingerprint, issuer_fingerprint};
use proctor_server::control::{Caller, RotationStatus, RotationStep};
use proctor_wire::{Announced, FromAgent, FromServer, RelayFrame, Trusted};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::relay_support::{PATIENCE, Relay, frame};
use crate::support::{Agent, Link, World, leave, next, until};

async fn status(world: &World) -> RotationStatus {
    world.server.control.rotation_status(&Caller::local("test")).await.unwrap()
}

async fn step(world: &World, step: RotationStep, force: bool) -> Result<RotationStatus, Message> {
    world.server.control.rotate_authority(&Caller::local("test"), step, force).await.unwrap()
}

/// What the server says next of its authorities; whatever else it says is for others.
async fn announced(link: &mut Link) -> Announced {
    loop {
        if let FromServer::Authorities(announced) = next(link).await {
            return announced;
        }
    }
}

/// As a real agent: believes what was announced, renews where another authority issues, and says so.
async fn follow(agent: &mut Agent, link: &mut Link) -> Announced {
    let announced = announced(link).await;
    let (certificate, _) = agent.certificate.clone().unwrap();
    agent.certificate = Some((certificate, announced.authorities_pem.clone()));
    if certified_by(agent) != announced.issuing {
        let csr_der = agent.key.csr_der().unwrap();
        link.send(FromAgent::Renew { csr_der }).await.unwrap();
        let certificate_pem = loop {
            if let FromServer::Renewed { certificate_pem } = next(link).await {
                break certificate_pem;
            }
        };
        agent.certificate = Some((certificate_pem, announced.authorities_pem.clone()));
    }
    let authorities = authority_fingerprints(&announced.authorities_pem).unwrap();
    let trusted = Trusted { authorities, certified_by: certified_by(agent) };
    link.send(FromAgent::Trusted(trusted)).await.unwrap();
    announced
}

fn certified_by(agent: &Agent) -> String {
    let (certificate, authorities) = agent.certificate.as_ref().unwrap();
    issuer_fingerprint(authorities, certificate).unwrap().unwrap_or_default()
}

/// Whether TLS comes about for the agent as it is now.
async fn reaches(world: &World, agent: &Agent) -> bool {
    let tcp = TcpStream::connect(world.server.link).await.unwrap();
    let connector = TlsConnector::from(Arc::new(agent.tls_config()));
    connector.connect(proctor_pki::server_name(), tcp).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_loses_nobody_before_its_end_and_survives_restarts_of_the_server() {
    let mut world = World::new().await;
    let (mut follower, absent) = (world.agent("0:127.0.0.1", "one").await, world.agent("0:127.0.0.2", "two").await);
    let early_token = world.token(None).await;
    let old = certificate_fingerprint(&follower.certificate.as_ref().unwrap().1).unwrap();
    let mut link = follower.session(&world, "run").await;

    let prepared = step(&world, RotationStep::Prepare, false).await.unwrap();
    assert_eq!((prepared.phase, &prepared.current, &prepared.issuing), (RotationPhase::Prepared, &old, &old));
    let new = prepared.successor.clone().unwrap();
    let refused = step(&world, RotationStep::Switch, false).await.unwrap_err();
    assert!(refused.contains("2 would be cut off") && refused.contains("0:127.0.0.2 (not connected)"), "{refused}");
    assert!(step(&world, RotationStep::Finish, true).await.unwrap_err().contains("switch to it first"));
    assert_eq!(follow(&mut follower, &mut link).await.issuing, old);
    until("it trusts both", || async { status(&world).await.agents.trust_successor == 1 }).await;
    leave(&world, &follower, link).await;
    world.restart().await;
    assert_eq!(status(&world).await.phase, RotationPhase::Prepared, "a restart loses no phase");
    assert_eq!(status(&world).await.agents.trust_successor, 1, "nor who has followed");

    assert!(step(&world, RotationStep::Switch, false).await.unwrap_err().contains("0:127.0.0.2"));
    step(&world, RotationStep::Switch, true).await.unwrap();
    let mut link = follower.session(&world, "run 2").await;
    assert_eq!(follow(&mut follower, &mut link).await.issuing, new);
    assert_eq!(certified_by(&follower), new);
    until("it has a new certificate", || async { status(&world).await.agents.new_certificate == 1 }).await;
    assert!(reaches(&world, &absent).await, "who missed it all still comes back");
    let mut late = Agent::new("0:127.0.0.3", "three");
    late.enrol(&world, &early_token).await.expect("a token from before the rotation is still good");
    assert!(reaches(&world, &late).await);
    leave(&world, &follower, link).await;
    world.restart().await;

    let refused = step(&world, RotationStep::Finish, false).await.unwrap_err();
    assert!(refused.contains("0:127.0.0.2") && refused.contains("0:127.0.0.3"), "{refused}");
    let finished = step(&world, RotationStep::Finish, true).await.unwrap();
    assert_eq!((finished.phase, finished.current, finished.successor), (RotationPhase::Idle, new.clone(), None));
    assert!(!reaches(&world, &absent).await, "the old authority is over");
    let mut link = follower.session(&world, "run 3").await;
    assert_eq!(authority_fingerprints(&follow(&mut follower, &mut link).await.authorities_pem).unwrap(), [new]);
    until("nothing more is known of it", || async { world.store.trusts().await.unwrap().is_empty() }).await;
    leave(&world, &follower, link).await;
    let (_, link) = follower.connect(&world, "run 4").await.expect("with nothing but the new authority");
    leave(&world, &follower, link).await;
    let outcomes: Vec<_> = world.audited("finish_authority").await.into_iter().map(|entry| entry.outcome).collect();
    assert!(outcomes.iter().any(|outcome| outcome.contains("done; 2 would be cut off")), "{outcomes:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_goes_back_phase_by_phase_and_leaves_nobody_with_a_certificate_of_the_successor() {
    let world = World::new().await;
    let mut agent = world.agent("0:127.0.0.1", "one").await;
    let mut link = agent.session(&world, "run").await;
    let old = status(&world).await.current;
    assert!(step(&world, RotationStep::Abort, false).await.is_err(), "there is nothing to abort");
    step(&world, RotationStep::Prepare, false).await.unwrap();
    follow(&mut agent, &mut link).await;
    until("it trusts both", || async { status(&world).await.behind.is_empty() }).await;
    step(&world, RotationStep::Switch, false).await.unwrap();
    follow(&mut agent, &mut link).await;
    until("it has a new certificate", || async { status(&world).await.agents.new_certificate == 1 }).await;

    let back = step(&world, RotationStep::Abort, false).await.unwrap();
    assert_eq!((back.phase, &back.issuing), (RotationPhase::Prepared, &old));
    let refused = step(&world, RotationStep::Abort, false).await.unwrap_err();
    assert!(refused.contains("1 would be cut off: host 0:127.0.0.1"), "{refused}");
    follow(&mut agent, &mut link).await;
    assert_eq!(certified_by(&agent), old);
    until("its certificate is of the old one", || async { status(&world).await.agents.new_certificate == 0 }).await;
    let idle = step(&world, RotationStep::Abort, false).await.unwrap();

    assert_eq!((idle.phase, &idle.current), (RotationPhase::Idle, &old));
    let announced = follow(&mut agent, &mut link).await;
    assert_eq!(authority_fingerprints(&announced.authorities_pem).unwrap(), [old]);
    until("nothing more is known of it", || async { world.store.trusts().await.unwrap().is_empty() }).await;
    leave(&world, &agent, link).await;
    assert!(reaches(&world, &agent).await);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_names_whoever_may_have_a_certificate_of_the_successor_and_has_not_said_so() {
    let world = World::new().await;
    let mut silent = world.agent("0:127.0.0.1", "one").await;
    let mut link = silent.session(&world, "run").await;
    step(&world, RotationStep::Prepare, false).await.unwrap();
    assert!(status(&world).await.behind_abort.is_empty(), "nobody can have one before the switch");
    follow(&mut silent, &mut link).await;
    until("it trusts both", || async { status(&world).await.behind.is_empty() }).await;
    step(&world, RotationStep::Switch, false).await.unwrap();
    let token = world.token(None).await;
    Agent::new("0:127.0.0.2", "two").enrol(&world, &token).await.unwrap();

    announced(&mut link).await;
    link.send(FromAgent::Renew { csr_der: silent.key.csr_der().unwrap() }).await.unwrap();
    while !matches!(next(&mut link).await, FromServer::Renewed { .. }) {}
    leave(&world, &silent, link).await;
    step(&world, RotationStep::Abort, false).await.unwrap();

    let refused = step(&world, RotationStep::Abort, false).await.unwrap_err();
    assert!(refused.contains("2 would be cut off"), "{refused}");
    assert!(refused.contains("0:127.0.0.1") && refused.contains("0:127.0.0.2"), "{refused}");
    world.server.control.revoke_host(&silent.host).await.unwrap().unwrap();
    assert!(world.store.trusts().await.unwrap().is_empty(), "a revoked host has nothing to say");
    assert!(step(&world, RotationStep::Abort, false).await.unwrap_err().contains("1 would be cut off"));
    step(&world, RotationStep::Abort, true).await.unwrap();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_does_not_outlive_the_authority_of_its_certificate() {
    let world = World::new().await;
    let agent = world.agent("0:127.0.0.1", "one").await;
    let tls = Arc::new(proctor_pki::resuming(agent.tls_config()));
    let (_, link) = agent.connect_with(&world, tls.clone(), "run").await.unwrap();
    leave(&world, &agent, link).await;
    for one in [RotationStep::Prepare, RotationStep::Switch, RotationStep::Finish] {
        step(&world, one, true).await.unwrap();
    }

    let (reason, retry) = agent.connect_with(&world, tls, "run 2").await.err().unwrap();

    assert!(reason.contains("authority") && !retry, "{reason}");
    let resumed = world.metric("proctor_link_handshakes_total{kind=\"resumed\"}").await;
    assert!(resumed.is_some_and(|resumed| resumed > 0.5), "the ticket itself was good");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_understand_is_listed_as_one_that_cannot_follow() {
    let world = World::new().await;
    let mut older = world.agent("0:127.0.0.1", "one").await;
    let mut link = older.session(&world, "run").await;

    step(&world, RotationStep::Prepare, false).await.unwrap();

    is_told_apart(&world, &mut link).await;
    leave(&world, &older, link).await;
    assert!(status(&world).await.behind[0].to_string().contains("not connected"));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_said_does_not_count_for_a_program_that_does_not_answer() {
    let world = World::new().await;
    let mut agent = world.agent("0:127.0.0.1", "one").await;
    let mut link = agent.session(&world, "run").await;
    step(&world, RotationStep::Prepare, false).await.unwrap();
    follow(&mut agent, &mut link).await;
    until("it trusts both", || async { status(&world).await.agents.trust_successor == 1 }).await;
    leave(&world, &agent, link).await;

    let mut downgraded = agent.session(&world, "run 2").await;

    is_told_apart(&world, &mut downgraded).await;
    assert_eq!(status(&world).await.agents.trust_successor, 0);
    world.end().await;
}

async fn is_told_apart(world: &World, link: &mut Link) {
    let told_apart = async {
        while !status(world).await.behind.iter().any(|one| one.to_string().contains("cannot follow: upgrade it")) {
            link.send(FromAgent::Beat).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told_apart).await.expect("it is told apart");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_is_told_and_counted_and_one_that_is_behind_holds_the_switch() {
    let world = World::new().await;
    let relay = Relay::enrolled(&world, 3).await;
    let (mut frames, _) = relay.connect(&world).await;
    step(&world, RotationStep::Prepare, false).await.unwrap();
    let announced = loop {
        if let RelayFrame::Authorities(announced) = frame(&mut frames).await.expect("an announcement") {
            break announced;
        }
    };
    assert!(step(&world, RotationStep::Switch, false).await.unwrap_err().contains("relay"));

    let authorities = authority_fingerprints(&announced.authorities_pem).unwrap();
    let trusted = Trusted { certified_by: authorities[0].clone(), authorities };
    frames.send(RelayFrame::Trusted(trusted)).await.unwrap();
    until("it is counted", || async { status(&world).await.relays.trust_successor == 1 }).await;
    step(&world, RotationStep::Switch, false).await.unwrap();
    frames.send(RelayFrame::Renew { csr_der: relay.key.csr_der().unwrap() }).await.unwrap();
    let certificate_pem = loop {
        if let RelayFrame::Renewed { certificate_pem } = frame(&mut frames).await.expect("a certificate") {
            break certificate_pem;
        }
    };

    let issuer = issuer_fingerprint(&announced.authorities_pem, &certificate_pem).unwrap();
    assert_eq!(issuer, status(&world).await.successor);
    world.end().await;
}
