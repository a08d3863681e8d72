//! What a relay can do, and above all what it cannot, with its own key and everything that it carries.

use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_model::EventKind;
use proctor_pki::{AgentKey, Authority};
use proctor_server::admin::{self, TokenRequest};
use proctor_server::control::{Caller, HostRef};
use proctor_server::gateway::LinkPolicy;
use proctor_store::EventQuery;
use proctor_wire::{
    AgentCodec, FromAgent, FromServer, RelayCodec, RelayFrame, STREAM_WINDOW_BYTES, decode_part, encode_part,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::codec::Framed;

use crate::relay_support::{
    Carried, HOST, Heard, PATIENCE, Relay, Upstream, certificate, enrol, frame, hello, now, pem_to_der, until_closed,
    until_connected,
};
use crate::support::{Agent, World, dial, until};

#[tokio::test]
async fn an_agent_has_its_ordinary_session_through_a_relay() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;

    let carried = Carried::connected(&world, &carrying, &relay, &agent).await;
    let hosts = world.store.hosts(&proctor_store::HostQuery::default()).await.unwrap();
    assert!(hosts[0].relayed && hosts[0].online);

    drop(carried);
    until("the session has ended", || async { !world.server.control.is_online(&agent.id) }).await;
    world.end().await;
}

#[tokio::test]
async fn an_agent_whose_relay_is_gone_is_waited_for_and_then_out_of_reach() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    let _carried = Carried::connected(&world, &carrying, &relay, &agent).await;

    drop(carrying);
    let control = &world.server.control;
    until("it is waited for", || async { control.is_returning(&agent.id) }).await;

    assert!(!control.is_connected(&agent.id) && control.is_online(&agent.id), "it may come back through another one");
    until("the grace is over", || async { control.unreachable_area(&agent.id) == Some(0) }).await;
    assert!(!control.is_online(&agent.id));

    // A host in maintenance raises no alarms.
    let cordons =
        async || (world.metric("proctor_hosts_unreachable").await, world.metric("proctor_hosts_cordoned_away").await);
    assert_eq!(cordons().await, (Some(1.0), Some(0.0)));
    let (caller, host) = (Caller::local("test"), HostRef::Key(HOST.parse().unwrap()));
    control.cordon(&caller, &host, "new disk".to_owned(), None).await.unwrap().unwrap();
    assert_eq!(cordons().await, (Some(0.0), Some(1.0)));
    control.uncordon(&caller, &host).await.unwrap();
    assert_eq!(cordons().await, (Some(1.0), Some(0.0)));
    world.end().await;
}

#[tokio::test]
async fn a_relay_carries_agents_of_its_own_area_only() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 7).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    let mut carried = Carried::open(&carrying, certificate(&agent)).await;

    let signed = carried.hello(&agent, &relay);
    carried.say(FromAgent::Signed(signed)).await;

    let Some(FromServer::Refused { reason, .. }) = carried.next().await else { panic!("refused") };
    assert!(reason.contains("cloud area 0, and the relay is of area 7"), "{reason}");
    assert!(!world.server.control.is_connected(&agent.id));
    world.end().await;
}

#[tokio::test]
async fn a_relay_cannot_invent_an_agent() {
    let world = World::new().await;
    let (relay, mut agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    let _direct = agent.session(&world, "run").await;
    let epoch = async || world.store.hosts(&proctor_store::HostQuery::default()).await.unwrap()[0].epoch;
    let before = epoch().await;

    // A certificate of another authority, and that of the relay itself.
    let other = Authority::load(&Authority::generate(now()).unwrap()).unwrap();
    let csr = relay.key.csr_der().unwrap();
    let forged = other.issue_agent(&csr, &agent.id, now(), PATIENCE).unwrap();
    for shown in [&forged, &relay.certificate] {
        assert_eq!(Carried::board(&carrying, shown).next().await, None);
    }
    // The right certificate, without its key; without any signature; and one for another relay.
    let of_other = Relay { id: "another".parse().unwrap(), ..Relay::enrolled(&world, 0).await };
    let stolen = Agent { key: AgentKey::generate().unwrap(), ..agent.copy() };
    for (by, to) in [(&stolen, &relay), (&agent, &of_other)] {
        let mut carried = Carried::open(&carrying, certificate(&agent)).await;
        let signed = carried.hello(by, to);
        carried.say(FromAgent::Signed(signed)).await;
        assert_eq!(carried.next().await, None);
    }
    let mut carried = Carried::open(&carrying, certificate(&agent)).await;
    carried.say(hello(&agent)).await;
    let Some(FromServer::Refused { reason, .. }) = carried.next().await else { panic!("refused") };
    assert!(reason.contains("must sign"), "{reason}");

    assert_eq!(epoch().await, before, "nothing has touched the session of the real agent");
    assert!(world.server.control.is_connected(&agent.id));
    world.end().await;
}

#[tokio::test]
async fn a_hello_cannot_be_repeated_and_a_report_cannot_be_changed() {
    let world = World::new().await;
    let (relay, mut agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    let mut first = Carried::open(&carrying, certificate(&agent)).await;
    let heard = first.hello(&agent, &relay);
    first.say(FromAgent::Signed(heard.clone())).await;
    let mut reports = first.welcomed(&agent).await;
    agent.seen_epoch = Some(1);
    until_connected(&world, &agent).await;

    let mut again = Carried::open(&carrying, certificate(&agent)).await;
    again.say(FromAgent::Signed(heard)).await;
    assert_eq!(again.next().await, None, "it was for another nonce");
    assert!(world.server.control.is_connected(&agent.id));

    let seen = encode_part(FromAgent::Seen { generation: 1 });
    let mut changed = reports.seal(&agent.key, vec![seen]).unwrap();
    changed.messages = vec![encode_part(FromAgent::Seen { generation: 2 })];
    first.say(FromAgent::Signed(changed)).await;
    while first.next().await.is_some() {}
    until("the session has ended", || async { !world.server.control.is_connected(&agent.id) }).await;
    world.end().await;
}

#[tokio::test]
async fn a_relay_that_breaks_the_rules_is_cut_off() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let certificate_der = pem_to_der(certificate(&agent));
    let open = |stream| RelayFrame::Open { stream, certificate_der: certificate_der.clone() };
    let data = |stream, count| RelayFrame::Data { stream, bytes: vec![0xff; count] };
    let crimes = [
        vec![data(1, 1)],
        vec![open(2)],
        vec![open(1), open(1)],
        vec![open(1), RelayFrame::Credit { stream: 1, bytes: u32::MAX }],
        vec![RelayFrame::Welcome { beats_interval: PATIENCE }],
    ];
    for crime in crimes {
        let (mut frames, _) = relay.connect(&world).await;
        for frame in crime {
            // It may be cut off in the middle.
            let _ = frames.send(frame).await;
        }
        until_closed(&mut frames).await;
    }
    // It comes again all the same, and so would its agents.
    let (_frames, answer) = relay.connect(&world).await;
    assert!(matches!(answer, RelayFrame::Welcome { .. }));
    world.end().await;
}

#[tokio::test]
async fn a_flood_of_streams_is_bounded_and_disturbs_nobody() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let (mut frames, _) = relay.connect(&world).await;
    let certificate_der = pem_to_der(certificate(&agent));

    for stream in 1..=1000 {
        frames.feed(RelayFrame::Open { stream, certificate_der: certificate_der.clone() }).await.unwrap();
    }
    SinkExt::<RelayFrame>::flush(&mut frames).await.unwrap();
    let (mut closed, mut beats) = (0, tokio::time::interval(Duration::from_secs(1)));
    while closed < 1000 - 128 {
        let frame = tokio::select! {
            frame = frame(&mut frames) => frame.expect("the connection lives"),
            _ = beats.tick() => {
                frames.send(RelayFrame::Beats { streams: Vec::new() }).await.unwrap();
                continue;
            }
        };
        match frame {
            RelayFrame::Close { .. } => closed += 1,
            RelayFrame::Data { .. } | RelayFrame::Beats { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    let (epoch, _session) = agent.connect(&world, "run").await.unwrap();
    assert_eq!(epoch, 1);
    world.end().await;
}

#[tokio::test]
async fn a_relay_that_opens_streams_without_end_is_cut_off() {
    let world = World::new().await;
    let relay = Relay::enrolled(&world, 0).await;
    let (mut frames, _) = relay.connect(&world).await;

    for stream in 1..=20_000 {
        if frames.feed(RelayFrame::Open { stream, certificate_der: Vec::new() }).await.is_err() {
            break;
        }
    }
    let _ = SinkExt::<RelayFrame>::flush(&mut frames).await;

    until_closed(&mut frames).await;
    world.end().await;
}

#[tokio::test]
async fn a_revoked_relay_is_cut_off_with_its_agents_and_comes_no_more() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    let mut carried = Carried::connected(&world, &carrying, &relay, &agent).await;

    world.store.revoke_relay(&relay.id, 1).await.unwrap();
    // Beside the server, it takes effect with the next connection.
    let (_, answer) = relay.connect(&world).await;
    let RelayFrame::Refused { reason, retry: false } = answer else { panic!("{answer:?}") };
    assert!(reason.contains("was revoked"), "{reason}");

    assert!(world.server.control.revoke_relay(&relay.id).await.unwrap());
    while carried.next().await.is_some() {}
    until("the session has ended", || async { !world.server.control.is_connected(&agent.id) }).await;
    world.end().await;
}

#[tokio::test]
async fn a_relay_that_is_revoked_while_it_connects_does_not_stay() {
    let world = World::new().await;
    let relay = Relay::enrolled(&world, 0).await;
    // The relay is met, revoked, and counted as connected, in this order and in others.
    let control = &world.server.control;
    let revoke = async {
        tokio::task::yield_now().await;
        control.revoke_relay(&relay.id).await.unwrap()
    };

    let ((mut frames, _), was_known) = tokio::join!(relay.connect(&world), revoke);

    assert!(was_known);
    until_closed(&mut frames).await;
    world.end().await;
}

#[tokio::test]
async fn heartbeats_of_streams_that_are_not_open_yet_cut_nobody_off() {
    let world = World::new().await;
    let relay = Relay::enrolled(&world, 0).await;
    let (mut frames, _) = relay.connect(&world).await;

    for _ in 0..2 {
        frames.send(RelayFrame::Beats { streams: vec![1, 2, 900] }).await.unwrap();
        assert_eq!(frame(&mut frames).await, Some(RelayFrame::Beats { streams: Vec::new() }));
    }
    world.end().await;
}

#[tokio::test]
async fn without_a_proof_no_large_frame_is_begun() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let (mut frames, _) = relay.connect(&world).await;
    let mut large = vec![0; STREAM_WINDOW_BYTES];
    large[..4].copy_from_slice(&(1_u32 << 20).to_be_bytes());

    let certificate_der = pem_to_der(certificate(&agent));
    frames.send(RelayFrame::Open { stream: 1, certificate_der }).await.unwrap();
    frames.send(RelayFrame::Data { stream: 1, bytes: large }).await.unwrap();

    // Credit would say that it is being read.
    let Some(RelayFrame::Data { stream: 1, .. }) = frame(&mut frames).await else { panic!("a challenge") };
    assert_eq!(frame(&mut frames).await, Some(RelayFrame::Close { stream: 1 }));
    world.end().await;
}

#[tokio::test]
async fn an_agent_whose_stream_its_relay_closes_is_waited_for() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    let carried = Carried::connected(&world, &carrying, &relay, &agent).await;
    let control = &world.server.control;

    drop(carried);
    until("the session has ended", || async { !control.is_connected(&agent.id) }).await;

    assert!(control.is_returning(&agent.id) && control.is_online(&agent.id), "a relay that stops does the same");
    let hosts = world.store.hosts(&proctor_store::HostQuery::default()).await.unwrap();
    assert!(hosts[0].online, "nobody was told");
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_leaves_before_its_welcome_is_waited_for() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    for _ in 0..10 {
        let mut carried = Carried::open(&carrying, certificate(&agent)).await;
        let signed = carried.hello(&agent, &relay);
        carried.say(FromAgent::Signed(signed)).await;
        // As a relay does whose agent was not welcomed in time.
        drop(carried);
    }
    let control = &world.server.control;
    until("it had sessions", || async { control.is_returning(&agent.id) && !control.is_connected(&agent.id) }).await;

    let kinds = vec![EventKind::AgentOffline];
    let offline = world.store.events(&EventQuery { kinds, limit: 10, ..EventQuery::default() }).await.unwrap();
    assert!(offline.events.is_empty(), "{:?}", offline.events);
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_is_silent_behind_its_relay_is_waited_for() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    let _carried = Carried::connected(&world, &carrying, &relay, &agent).await;

    let control = &world.server.control;
    until("it is waited for", || async { control.is_returning(&agent.id) }).await;

    assert!(!control.is_connected(&agent.id) && control.is_online(&agent.id));
    let hosts = world.store.hosts(&proctor_store::HostQuery::default()).await.unwrap();
    assert!(hosts[0].online, "nobody was told");
    world.end().await;
}

#[tokio::test]
async fn a_relay_that_pretends_to_hear_an_agent_does_not_lock_its_next_run_out() {
    let world = World::new().await;
    let (relay, mut agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let heard = Heard::default();
    let carrying = relay.carrying_with_beats(&world, heard.clone()).await;
    let mut carried = Carried::connected(&world, &carrying, &relay, &agent).await;

    // The agent restarts, and the relay keeps its stream open and beating.
    heard.lock().push(1);
    agent.seen_epoch = Some(1);
    let next_run = || async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        agent.connect(&world, "next run").await.is_ok()
    };
    until("the next run has a session", next_run).await;

    while carried.next().await.is_some() {}
    world.end().await;
}

#[tokio::test]
async fn a_relay_cannot_keep_an_agent_that_says_nothing_itself_online() {
    let relayed_proof_max = Duration::from_secs(6);
    let world = World::with(LinkPolicy { relayed_proof_max, ..LinkPolicy::default() }).await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let heard = Heard::default();
    let carrying = relay.carrying_with_beats(&world, heard.clone()).await;
    let mut carried = Carried::connected(&world, &carrying, &relay, &agent).await;
    heard.lock().push(1);

    let mut is_asked = false;
    while let Some(said) = carried.next().await {
        let FromServer::Signed(signed) = said else { continue };
        let mut parts = signed.messages.iter().map(|part| decode_part::<FromServer>(part, &mut None).unwrap());
        is_asked |= parts.any(|part| matches!(part, FromServer::Ping { .. }));
    }

    assert!(is_asked, "the agent could have answered");
    let control = &world.server.control;
    until("the session has ended", || async { !control.is_connected(&agent.id) }).await;
    assert!(control.is_returning(&agent.id), "it may come back before anybody is told");
    world.end().await;
}

#[tokio::test]
async fn certificates_and_tokens_of_one_kind_are_of_no_use_for_the_other() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);

    // An agent as a relay.
    let (certificate, authority) = agent.certificate.clone().unwrap();
    let impostor = Relay { key: agent.copy().key, id: relay.id.clone(), certificate, authority };
    let config = proctor_pki::relay_client_config(&impostor.authority, &impostor.certificate, &impostor.key).unwrap();
    let tcp = TcpStream::connect(world.server.link).await.unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await.unwrap();
    let mut frames: Upstream = Framed::new(tls, RelayCodec::relay());
    let _ = frames.send(RelayFrame::Hello { version: String::new() }).await;
    until_closed(&mut frames).await;
    // A relay as an agent.
    let config = proctor_pki::session_config(&relay.authority, &relay.certificate, &relay.key).unwrap();
    let mut link = dial(&world, config, AgentCodec::new()).await;
    let _ = link.send(hello(&agent)).await;
    let answer = tokio::time::timeout(PATIENCE, link.next()).await.expect("in time");
    assert!(answer.is_none_or(|answer| answer.is_err()));
    // Their tokens.
    let (_, refused) = enrol(&world, &world.token(None).await, 0).await;
    let FromServer::Refused { reason, retry: false } = refused else { panic!("{refused:?}") };
    assert!(reason.contains("not one for relays"), "{reason}");
    let request = TokenRequest::new(9, PATIENCE, Some(0)).unwrap().for_relays(true).unwrap();
    let of_relays = admin::create_token(&world.store, request).await.unwrap().0;
    assert!(Agent::new("0:10.0.0.2", "other").enrol(&world, &of_relays).await.unwrap_err().contains("unknown"));
    let (_, refused) = enrol(&world, &of_relays, 5).await;
    assert!(matches!(refused, FromServer::Refused { reason, .. } if reason.contains("only valid for cloud area 0")));
    world.end().await;
}
