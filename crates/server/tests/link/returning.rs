//! Agents that come back with an expired certificate.

use std::time::Duration;

use futures::SinkExt;
use proctor_pki::{AgentKey, certificate_der, seal_return};
use proctor_runtime::clock;
use proctor_server::gateway;
use proctor_store::SessionOpening;
use proctor_wire::{AgentCodec, FromAgent, FromServer};

use crate::support::{Agent, World, dial, leave, next};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(clock::unix_millis()).unwrap()
}

/// An agent whose certificate was issued so long ago, for 30 days.
async fn away_for(world: &World, host: &str, id: &str, days: u32) -> Agent {
    let mut agent = world.agent(host, id).await;
    let authority = gateway::authority(&world.store).await.unwrap();
    let csr = agent.key.csr_der().unwrap();
    let certificate = authority.issue_agent(&csr, &agent.id, now() - days * DAY, 30 * DAY).unwrap();
    agent.certificate = Some((certificate, agent.certificate.unwrap().1));
    agent
}

/// Asks for another certificate with this key; the certificate, or the reason with whether to try again.
async fn come_back(world: &World, agent: &Agent, key: &AgentKey) -> Result<String, (String, bool)> {
    let (certificate, authority) = agent.certificate.as_ref().unwrap();
    let config = proctor_pki::return_config(authority).unwrap();
    let mut frames = dial(world, config, AgentCodec::enrolment()).await;
    let certificate_der = certificate_der(certificate).unwrap();
    frames.send(FromAgent::Return { certificate_der }).await.unwrap();
    let nonce = match next(&mut frames).await {
        FromServer::Challenge { nonce } => nonce,
        FromServer::Refused { reason, retry } => return Err((reason, retry)),
        other => panic!("{other:?}"),
    };
    frames.send(FromAgent::Signed(seal_return(key, &nonce).unwrap())).await.unwrap();
    match next(&mut frames).await {
        FromServer::Renewed { certificate_pem } => Ok(certificate_pem),
        FromServer::Refused { reason, retry } => Err((reason, retry)),
        other => panic!("{other:?}"),
    }
}

async fn waits(world: &World, agent: &Agent) -> bool {
    world.store.hosts_by_key(&[agent.host]).await.unwrap().pop().flatten().unwrap().awaits_approval
}

async fn approve(world: &World, agent: &Agent) {
    let approved = world.store.approve_host(&agent.host, &agent.key.fingerprint(), clock::unix_millis()).await;
    assert_eq!(approved.unwrap(), Ok(Some(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_away_for_too_long_waits_for_an_operator_and_comes_back_once() {
    let world = World::new().await;
    let mut agent = away_for(&world, "0:127.0.0.1", "one", 40).await;

    let (reason, retry) = come_back(&world, &agent, &agent.key).await.unwrap_err();
    assert!(reason.contains("proctor hosts approve 0:127.0.0.1") && retry, "{reason}");
    assert!(waits(&world, &agent).await);
    approve(&world, &agent).await;
    let certificate = come_back(&world, &agent, &agent.key).await.unwrap();
    let expired = agent.certificate.replace((certificate, agent.certificate.clone().unwrap().1)).unwrap();
    let (_, link) = agent.connect(&world, "run").await.expect("it is back");
    leave(&world, &agent, link).await;

    agent.certificate = Some(expired);
    let (reason, _) = come_back(&world, &agent, &agent.key).await.unwrap_err();
    assert!(reason.contains("has expired"), "once: {reason}");
    let audited: Vec<_> = world.audited("return_host").await.into_iter().map(|entry| entry.outcome).collect();
    assert!(audited.contains(&"expired certificate replaced".to_owned()), "{audited:?}");
    world.end().await;
}

/// As a server finds it that was restarted: the store says that the host is online.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_online_when_the_server_went_down_waits_for_an_operator_like_any_other() {
    let world = World::new().await;
    let agent = away_for(&world, "0:127.0.0.1", "one", 40).await;
    let opening = SessionOpening::new(agent.id.clone(), agent.key.fingerprint());
    world.store.open_session(&opening, clock::unix_millis()).await.unwrap().unwrap();

    let (reason, retry) = come_back(&world, &agent, &agent.key).await.unwrap_err();

    assert!(reason.contains("proctor hosts approve 0:127.0.0.1") && retry, "{reason}");
    assert!(waits(&world, &agent).await);
    approve(&world, &agent).await;
    come_back(&world, &agent, &agent.key).await.expect("the approval counts");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_key_of_a_revoked_host_and_a_stranger_with_the_certificate_alone_get_nowhere() {
    let world = World::new().await;
    let agent = away_for(&world, "0:127.0.0.1", "one", 40).await;
    let stranger = AgentKey::generate().unwrap();

    let (reason, retry) = come_back(&world, &agent, &stranger).await.unwrap_err();
    assert!(reason.contains("not by the key") && !retry, "{reason}");
    assert!(!waits(&world, &agent).await, "nobody waits for what a stranger says");
    come_back(&world, &agent, &agent.key).await.unwrap_err();
    approve(&world, &agent).await;
    world.server.control.revoke_host(&agent.host).await.unwrap().unwrap();

    let (reason, retry) = come_back(&world, &agent, &agent.key).await.unwrap_err();
    assert!(reason.contains("revoked") && !retry, "the approval from before is gone: {reason}");
    assert!(!waits(&world, &agent).await);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_brings_nobody_back() {
    let (world, other) = (World::new().await, World::new().await);
    let mut agent = away_for(&world, "0:127.0.0.1", "one", 40).await;
    let foreign = away_for(&other, "0:127.0.0.1", "one", 40).await;
    agent.certificate = Some((foreign.certificate.clone().unwrap().0, agent.certificate.unwrap().1));

    let (reason, retry) = come_back(&world, &agent, &foreign.key).await.unwrap_err();

    assert!(reason.contains("not one of this control plane") && !retry, "{reason}");
    world.end().await;
    other.end().await;
}

/// Its own clock is ahead, and says that the certificate has expired.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_in_force_by_the_server_needs_no_operator() {
    let world = World::new().await;
    let agent = away_for(&world, "0:127.0.0.1", "one", 20).await;

    let certificate = come_back(&world, &agent, &agent.key).await.unwrap();

    let (presented, _) = agent.certificate.as_ref().unwrap();
    let (new_end, end) = [&certificate, presented].map(|pem| proctor_pki::expires_at(pem).unwrap()).into();
    assert!(new_end <= end && new_end > end - DAY, "it lasts as long as the one that was presented: {new_end}");
    assert!(!waits(&world, &agent).await, "and nobody is asked to approve it");
    world.end().await;
}
