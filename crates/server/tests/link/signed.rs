//! What the server signs, for whom, and which reports it accepts.

use futures::{SinkExt, StreamExt};
use proctor_model::{BootId, HostFacts};
use proctor_pki::{
    AgentKey, CommandCheck, ControlTrust, HelloTerms, OldKey, ReportSeal, SessionTerms, TrustedSigner, Untrusted,
};
use proctor_runtime::clock;
use proctor_server::admin::LocalAdmin;
use proctor_server::gateway::LinkPolicy;
use proctor_wire::{AgentCodec, FromAgent, FromServer, encode_part};

use crate::support::{Agent, Link, World, dial, next, until};

const HOST: &str = "0:10.0.0.1";
const CHALLENGE: [u8; 32] = [7; 32];

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(clock::unix_millis()).unwrap()
}

/// A session of an agent that verifies.
struct Verified {
    link: Link,
    authority: String,
    check: CommandCheck,
    reports: ReportSeal,
    epoch: u64,
    control_epoch: u64,
    signed_reports: bool,
}

impl Verified {
    async fn open(world: &World, agent: &Agent, known: ControlTrust) -> Result<Self, Untrusted> {
        Self::open_as_if(world, agent, known, 0).await
    }

    /// As if something in between had told the server that the agent has seen this generation.
    async fn open_as_if(
        world: &World,
        agent: &Agent,
        known: ControlTrust,
        seen_generation: u64,
    ) -> Result<Self, Untrusted> {
        let (certificate, authority) = agent.certificate.clone().unwrap();
        let config = proctor_pki::session_config(&authority, &certificate, &agent.key).unwrap();
        let mut link = dial(world, config, AgentCodec::new()).await;
        let hello = FromAgent::Hello {
            agent: agent.id.clone(),
            boot: BootId::from("boot"),
            facts: HostFacts::default(),
            seen_generation,
            nonce: b"run".to_vec(),
            time_ms: None,
            seen_epoch: agent.seen_epoch,
            answers_usage: false,
            answers_logs: false,
            challenge: Some(CHALLENGE.to_vec()),
            upgrades: false,
            state: None,
        };
        link.send(hello).await.unwrap();
        let FromServer::Welcome { epoch, beat_interval, server_time_ms, proof: Some(proof), state_known } =
            next(&mut link).await
        else {
            panic!("a welcome with a proof")
        };
        let terms = SessionTerms {
            agent: &agent.id,
            challenge: &CHALLENGE,
            epoch,
            control_epoch: proof.control_epoch,
            beat_interval_ms: u64::try_from(beat_interval.as_millis()).unwrap(),
            server_time_ms,
            signed_reports: proof.signed_reports,
            state_known,
            hello: HelloTerms {
                boot: &BootId::from("boot"),
                nonce: b"run",
                seen_generation: 0,
                seen_epoch: agent.seen_epoch,
            },
        };
        let check = CommandCheck::of_welcome(&authority, &terms, &proof, known, now())?;
        let reports = ReportSeal::new(&terms);
        let (control_epoch, signed_reports) = (terms.control_epoch, terms.signed_reports);
        Ok(Self { link, authority, check, reports, epoch, control_epoch, signed_reports })
    }

    async fn say_signed(&mut self, key: &AgentKey, message: FromAgent) {
        let signed = self.reports.seal(key, vec![encode_part(message)]).unwrap();
        self.link.send(FromAgent::Signed(signed)).await.unwrap();
    }

    /// The messages of the next signed one; beats are not signed.
    async fn next_signed(&mut self) -> Vec<FromServer> {
        loop {
            match next(&mut self.link).await {
                FromServer::Signed(signed) => {
                    return self.check.open(&self.authority, &signed, now(), &mut None).unwrap();
                }
                FromServer::Beat => {}
                other => panic!("not signed: {other:?}"),
            }
        }
    }
}

async fn register(world: &World, agent: &Agent, name: &str) {
    let registration = proctor_store::Registration {
        agent: agent.id.clone(),
        key: format!("web/{name}").parse().unwrap(),
        spec: proctor_store::conformance::spec(name),
    };
    world.store.register(&[registration], proctor_store::RegisterMode::Create, 1).await.unwrap();
}

#[tokio::test]
async fn an_agent_that_verifies_gets_everything_signed_and_an_older_one_as_before() {
    let world = World::new().await;
    let agent = world.agent(HOST, "owner").await;
    register(&world, &agent, "nginx").await;
    let trusted = TrustedSigner::of(&agent.certificate.clone().unwrap().1, agent.signer_der.as_ref().unwrap(), now());

    let mut session = Verified::open(&world, &agent, ControlTrust::default()).await.unwrap();
    let settled = FromAgent::Settled { epoch: session.epoch, recorded: true };
    session.link.send(settled).await.unwrap();
    let assigned = session.next_signed().await;
    let csr_der = agent.key.csr_der().unwrap();
    session.link.send(FromAgent::Renew { csr_der }).await.unwrap();
    let renewed = session.next_signed().await;

    assert_eq!(trusted.unwrap().number, 1, "it is known from the enrolment on");
    assert_eq!((session.control_epoch, session.signed_reports), (1, false));
    assert!(matches!(&assigned[..], [FromServer::Assign { .. }]), "{assigned:?}");
    assert!(matches!(&renewed[..], [FromServer::Renewed { .. }]), "{renewed:?}");
    let mut older = world.agent("0:10.0.0.2", "older").await;
    register(&world, &older, "nginx").await;
    let mut link = older.session(&world, "run").await;
    assert!(matches!(next(&mut link).await, FromServer::Assign { .. }));
    world.end().await;
}

#[tokio::test]
async fn a_rotation_reaches_connected_agents_and_is_audited() {
    let world = World::new().await;
    let agent = world.agent(HOST, "owner").await;
    let mut session = Verified::open(&world, &agent, ControlTrust::default()).await.unwrap();

    let admin = LocalAdmin::new(world.store.clone(), "root");
    assert_eq!(admin.rotate_signing_key(OldKey::Refused, 0).await.unwrap(), 2);
    let announced = session.next_signed().await;

    assert!(announced.is_empty(), "there was nothing else to say: {announced:?}");
    assert_eq!(session.check.trust().oldest_signer, 2);
    let actions: Vec<_> = world.audited("rotate_signing_key").await.into_iter().map(|entry| entry.outcome).collect();
    assert_eq!(actions.last().map(String::as_str), Some("done"), "{actions:?}");
    world.end().await;
}

#[tokio::test]
async fn a_signed_session_takes_reports_of_its_agent_only() {
    let world = World::with(LinkPolicy { signed_reports: true, ..LinkPolicy::default() }).await;
    let mut agent = world.agent(HOST, "owner").await;
    register(&world, &agent, "nginx").await;
    let stranger = AgentKey::generate().unwrap();

    let mut session = Verified::open(&world, &agent, ControlTrust::default()).await.unwrap();
    assert!(session.signed_reports);
    let settled = FromAgent::Settled { epoch: session.epoch, recorded: true };
    session.say_signed(&agent.key, settled).await;
    agent.seen_epoch = Some(session.epoch);
    let assigned = session.next_signed().await;
    assert!(matches!(&assigned[..], [FromServer::Assign { .. }]), "{assigned:?}");
    session.say_signed(&stranger, FromAgent::Events { events: Vec::new() }).await;
    assert!(ends(&mut session.link).await, "a report by another key");

    let mut session = Verified::open(&world, &agent, ControlTrust::default()).await.unwrap();
    session.link.send(FromAgent::Settled { epoch: session.epoch, recorded: true }).await.unwrap();
    assert!(ends(&mut session.link).await, "a report without a signature");

    until("the agent is gone", || async { !world.server.control.is_connected(&agent.id) }).await;
    world.end().await;
}

async fn ends(link: &mut Link) -> bool {
    loop {
        match link.next().await {
            None | Some(Err(_)) => return true,
            Some(Ok(FromServer::Beat)) => {}
            Some(Ok(_)) => return false,
        }
    }
}

#[tokio::test]
async fn the_epoch_of_the_control_plane_is_in_every_welcome() {
    let world = World::new().await;
    let agent = world.agent(HOST, "owner").await;
    let known = ControlTrust { control_epoch: 2, oldest_signer: 0 };

    let refused = Verified::open(&world, &agent, known).await.map(|session| session.epoch);

    assert!(matches!(refused, Err(Untrusted::OldControlPlane { theirs: 1, ours: 2 })), "{refused:?}");
    world.end().await;
}

#[tokio::test]
async fn a_hello_that_was_changed_on_the_way_opens_no_session_that_the_agent_believes() {
    let world = World::new().await;
    let agent = world.agent(HOST, "owner").await;

    let opened = Verified::open_as_if(&world, &agent, ControlTrust::default(), 9).await.map(|session| session.epoch);

    assert!(matches!(opened, Err(Untrusted::Signature)), "{opened:?}");
    world.end().await;
}

#[tokio::test]
async fn with_signed_reports_an_agent_without_a_challenge_is_refused_and_fences_nobody() {
    let world = World::with(LinkPolicy { signed_reports: true, ..LinkPolicy::default() }).await;
    let agent = world.agent(HOST, "owner").await;
    let _session = Verified::open(&world, &agent, ControlTrust::default()).await.unwrap();

    let refused = agent.connect(&world, "run").await.map(|(epoch, _)| epoch);

    let (reason, retry) = refused.unwrap_err();
    assert!(reason.contains("--signed-reports") && reason.contains("no challenge") && !retry, "{reason}");
    assert!(world.server.control.is_connected(&agent.id));
    world.end().await;
}

#[tokio::test]
async fn agents_that_leave_before_they_settle_are_counted() {
    let world = World::new().await;
    let agent = world.agent(HOST, "owner").await;
    let unsettled = || world.metric("proctor_session_changes_total{change=\"unsettled\"}");

    let session = Verified::open(&world, &agent, ControlTrust::default()).await.unwrap();
    crate::support::leave(&world, &agent, session.link).await;
    until("it is counted", || async { unsettled().await == Some(1.0) }).await;
    let mut session = Verified::open(&world, &agent, ControlTrust::default()).await.unwrap();
    let settled = FromAgent::Settled { epoch: session.epoch, recorded: true };
    session.link.send(settled).await.unwrap();
    register(&world, &agent, "nginx").await;
    session.next_signed().await;
    crate::support::leave(&world, &agent, session.link).await;

    assert_eq!(unsettled().await, Some(1.0));
    let expires_at =
        world.metric("proctor_certificate_expiry_timestamp_seconds{certificate=\"signing\"}").await.unwrap();
    assert!(expires_at > now().as_duration().as_secs_f64(), "{expires_at}");
    world.end().await;
}
