//! Who is online, as agents come, go and vanish; and what their clocks say.

use futures::SinkExt;
use proctor_model::{EventKind, Snapshot};
use proctor_runtime::clock;
use proctor_store::HostQuery;
use proctor_wire::FromAgent;

use crate::support::{World, leave, until};

const HOST: &str = "0:10.0.0.1";
const PRESENCE: [EventKind; 2] = [EventKind::AgentOnline, EventKind::AgentOffline];

async fn is_online(world: &World) -> bool {
    world.store.hosts(&HostQuery::default()).await.unwrap()[0].online
}

async fn presence(world: &World) -> Vec<EventKind> {
    world.events(&PRESENCE).await.into_iter().map(|event| event.kind).collect()
}

#[tokio::test]
async fn an_agent_whose_connection_breaks_is_suspect_and_nobody_is_told_if_it_comes_back() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let control = &world.server.control;

    for _ in 0..5 {
        let link = agent.session(&world, "run").await;
        assert!(!control.is_suspect(&agent.id));
        leave(&world, &agent, link).await;
        assert!(control.is_suspect(&agent.id) && control.is_returning(&agent.id) && is_online(&world).await);
    }
    assert_eq!(world.metric("proctor_hosts_suspect").await, Some(1.0));
    assert_eq!(presence(&world).await, [EventKind::AgentOnline]);

    until("it is offline", || async { !is_online(&world).await }).await;
    assert_eq!(presence(&world).await, PRESENCE);
    assert_eq!(world.metric("proctor_hosts_suspect").await, Some(0.0));
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_says_goodbye_is_offline_at_once() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let control = &world.server.control;
    let mut link = agent.session(&world, "run").await;

    link.send(FromAgent::Goodbye).await.unwrap();
    leave(&world, &agent, link).await;

    assert!(!control.is_suspect(&agent.id) && !control.is_returning(&agent.id));
    until("the store knows it", || async { !is_online(&world).await }).await;
    assert_eq!(presence(&world).await, PRESENCE);
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_was_suspect_when_the_server_ended_is_not_offline_after_its_start() {
    let mut world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    let link = agent.session(&world, "run").await;
    leave(&world, &agent, link).await;

    world.restart().await;
    assert!(world.server.control.is_returning(&agent.id) && is_online(&world).await);
    let _link = agent.session(&world, "run").await;

    assert_eq!(presence(&world).await, [EventKind::AgentOnline], "the first one");
    world.end().await;
}

/// The state and the rounded offset of each event about a clock.
async fn clocks(world: &World) -> Vec<(String, i64)> {
    let of = |event: proctor_model::Event| {
        let ahead_ms: i64 = event.details["ahead_ms"].parse().unwrap();
        (event.details["state"].clone(), (ahead_ms + 30_000).div_euclid(60_000))
    };
    world.events(&[EventKind::ClockOff]).await.into_iter().map(of).collect()
}

#[tokio::test]
async fn a_clock_that_is_off_is_told_once_and_again_when_it_is_right() {
    let world = World::new().await;
    let mut agent = world.agent(HOST, "owner").await;
    agent.clock_ahead_ms = Some(-600_000);
    for _ in 0..3 {
        let link = agent.session(&world, "run").await;
        leave(&world, &agent, link).await;
    }
    assert_eq!(clocks(&world).await, [("off".to_owned(), -10)]);

    let mut link = agent.session(&world, "run").await;
    assert_eq!(world.metric("proctor_hosts_clock_off").await, Some(1.0));
    let mut report = async |ahead_secs: i64| {
        let reported_at = clock::unix_millis() / 1000 + ahead_secs;
        let snapshot = Snapshot { reported_at, ..Snapshot::default() };
        link.send(FromAgent::Observed { observations: vec![("web/a".parse().unwrap(), snapshot)] }).await.unwrap();
    };
    report(0).await;
    until("it is right", || async { clocks(&world).await.len() == 2 }).await;
    report(600).await;
    until("it is off again", || async { clocks(&world).await.len() == 3 }).await;

    assert_eq!(clocks(&world).await[1..], [("right".to_owned(), 0), ("off".to_owned(), 10)]);
    world.end().await;
}
