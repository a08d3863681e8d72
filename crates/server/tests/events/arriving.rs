//! What an agent reports, and what the server reports about agents.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proctor_model::Event;
use proctor_model::EventKind::{AgentOffline, AgentOnline, EventsDropped, Exited, Started};
use proctor_store::{EventQuery, Store};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::{AGENT, World, event, eventually};

fn agent(kind: proctor_model::EventKind) -> (proctor_model::EventKind, String) {
    (kind, AGENT.to_owned())
}

#[tokio::test]
async fn events_of_a_session_are_stored_once_and_the_agent_is_told_how_far() {
    let world = World::new().await;
    let session = world.session(AGENT).await;
    let before = session.take_events_seen();

    let events = [event(4, Started, "web/a"), event(7, Exited, "web/a")];
    world.control.events_arrived(&session, &events).await.unwrap();
    world.control.events_arrived(&session, &events).await.unwrap();

    assert_eq!(before, None);
    assert_eq!((session.take_events_seen(), session.take_events_seen()), (Some(7), None));
    let stored: Vec<_> = world.all().await.into_iter().map(|stored| stored.event.sequence).collect();
    assert_eq!(stored, [0, 4, 7], "the first is that the agent came");
}

#[tokio::test]
async fn a_host_that_floods_is_acknowledged_stored_up_to_its_budget_and_counted() {
    const SENT: u64 = 4_500;
    let world = World::new().await;
    let session = world.session(AGENT).await;
    let large = |sequence| Event {
        content: proctor_model::Message::foreign("x".repeat(4_000)),
        details: [("ranking".to_owned(), "y".repeat(16_000))].into(),
        ..event(sequence, Started, "web/a")
    };

    for first in (1..=SENT).step_by(500) {
        let events: Vec<Event> = (first..first + 500).map(large).collect();
        world.control.events_arrived(&session, &events).await.unwrap();
    }

    assert_eq!(session.take_events_seen(), Some(SENT), "the agent may forget them");
    let count = async |kinds| {
        let query = EventQuery { after: Some(0), kinds, limit: 10_000, ..EventQuery::default() };
        world.store.events(&query).await.unwrap().events
    };
    let stored = count(vec![Started]).await.len() as u64;
    assert!((2_000..3_500).contains(&stored), "{stored} of 20 kB each");
    let told = eventually("the loss is told", || async { count(vec![EventsDropped]).await.pop() }).await;
    let told: u64 = told.event.details["count"].parse().unwrap();
    assert!((1..=SENT - stored).contains(&told), "{told}: what is dropped after it is told in the next period");
    world.control.close_session(&session).await;
    assert_eq!(count(vec![AgentOffline]).await.len(), 1, "presence has room of its own");
}

#[tokio::test]
async fn a_session_that_was_taken_over_stores_nothing_and_acknowledges_only_what_is_there() {
    let world = World::new().await;
    let older = world.session(AGENT).await;
    let newer = world.session(AGENT).await;

    world.control.events_arrived(&newer, &[event(1, Started, "web/a")]).await.unwrap();
    world.control.events_arrived(&older, &[event(2, Exited, "web/a")]).await.unwrap();

    assert_eq!((older.take_events_seen(), newer.take_events_seen()), (Some(1), Some(1)));
    assert_eq!(world.all().await.iter().filter(|stored| stored.event.sequence > 0).count(), 1);
}

#[tokio::test]
async fn an_agent_that_comes_and_goes_is_told_of() {
    let world = World::new().await;
    let session = world.session(AGENT).await;

    world.control.close_session(&session).await;
    world.control.close_session(&session).await;

    assert_eq!(world.presence().await, [agent(AgentOnline), agent(AgentOffline)]);
    let online = &world.all().await[0];
    assert_eq!(
        (online.host.to_string(), online.event.details["agent_version"].as_str()),
        ("0:10.0.0.1".into(), "1.2.3")
    );
}

#[tokio::test]
async fn a_session_that_takes_over_from_another_is_no_news() {
    let world = World::new().await;
    let older = world.session(AGENT).await;
    let _newer = world.session(AGENT).await;

    world.control.close_session(&older).await;

    assert_eq!(world.presence().await, [agent(AgentOnline)]);
}

#[tokio::test]
async fn a_restart_of_the_server_is_no_news_about_an_agent_that_comes_back() {
    let mut world = World::new().await;
    world.session(AGENT).await;

    world.restart().await;
    let session = world.session(AGENT).await;
    let after = world.presence().await;
    world.control.close_session(&session).await;

    assert_eq!(after, [agent(AgentOnline)]);
    assert_eq!(world.presence().await, [agent(AgentOnline), agent(AgentOffline)]);
}

async fn host(world: &World) -> Value {
    let (_, hosts) = world.get("/hosts").await;
    hosts["hosts"].as_array().unwrap().iter().find(|host| host["agent"] == AGENT).unwrap().clone()
}

#[tokio::test]
async fn after_a_restart_nobody_is_offline_before_the_grace_is_over_and_then_with_an_event() {
    let mut world = World::new().await;
    world.session(AGENT).await;
    let seen = host(&world).await;
    assert_eq!((&seen["online"], &seen["returning"]), (&json!(true), &Value::Null));

    world.restart_with(Some(Duration::from_secs(3600))).await;
    // By the time that the sweeper has ended what was for a host that is away, it has looked at the returning one, too.
    let stop = json!({ "operation": "stop", "process": "web/a", "hosts": ["10.0.0.2"] });
    let (_, task) = world.post("/operations", stop).await;
    let task = format!("/tasks/{}", task["task_id"].as_str().unwrap());
    eventually("the sweeper was there", || async { (world.get(&task).await.1["pending"] == 0).then_some(()) }).await;
    let seen = host(&world).await;
    assert_eq!((&seen["online"], &seen["returning"]), (&json!(true), &json!(true)), "{seen}");
    assert_eq!(world.presence().await, [agent(AgentOnline)]);

    // That one did not live until the end of its grace; the next one does.
    world.restart_with(Some(Duration::ZERO)).await;
    eventually("it is offline", || async { (host(&world).await["online"] == false).then_some(()) }).await;
    world.until_presence(&[agent(AgentOnline), agent(AgentOffline)]).await;
    let (_, online) = world.get("/hosts?online=true").await;
    assert_eq!(online["hosts"], json!([]));
    world.session(AGENT).await;
    assert_eq!(world.presence().await, [agent(AgentOnline), agent(AgentOffline), agent(AgentOnline)]);
}

/// Notes, when it is given back, how many sessions the store has opened by then.
struct Permit {
    store: Arc<dyn Store>,
    opened: Arc<OnceLock<u64>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let operations = self.store.stats().operations;
        let opened = operations.iter().find(|operation| operation.what == "open a session");
        let _ = self.opened.set(opened.map_or(0, |operation| operation.count));
    }
}

#[tokio::test]
async fn the_permit_of_an_opening_is_kept_until_the_store_has_answered_although_nobody_waits() {
    let (world, opened) = (World::new().await, Arc::new(OnceLock::new()));
    let permit = Permit { store: world.store.clone(), opened: opened.clone() };

    let mut opening = Box::pin(world.session_with(AGENT, permit));
    assert!(futures::poll!(&mut opening).is_pending());
    drop(opening);

    assert_eq!(opened.get(), None, "the store is still at it");
    let opened = eventually("the permit is given back", || async { opened.get().copied() }).await;
    assert_eq!(opened, 1);
}

#[tokio::test]
async fn a_session_whose_connection_has_gone_while_it_was_opened_is_closed_again() {
    let world = World::new().await;

    let mut opening = Box::pin(world.session(AGENT));
    assert!(futures::poll!(&mut opening).is_pending());
    drop(opening);

    world.until_presence(&[agent(AgentOnline), agent(AgentOffline)]).await;
    assert_eq!(host(&world).await["online"], false);
}

#[tokio::test]
async fn an_agent_whose_connection_goes_on_its_way_back_is_still_waited_for() {
    let mut world = World::new().await;
    world.session(AGENT).await;
    world.restart_with(Some(Duration::from_secs(3600))).await;

    let (answered, answer) = oneshot::channel::<()>();
    let mut opening = Box::pin(world.session_with(AGENT, answered));
    assert!(futures::poll!(&mut opening).is_pending());
    drop(opening);

    // The store has opened it, and the server has noticed that nobody is there.
    let _ = answer.await;
    eventually("it is taken back", || async { (host(&world).await["returning"] == true).then_some(()) }).await;
    assert_eq!(world.presence().await, [agent(AgentOnline)]);
    world.session(AGENT).await;
    assert_eq!(world.presence().await, [agent(AgentOnline)], "nobody was told that it was away");
}
