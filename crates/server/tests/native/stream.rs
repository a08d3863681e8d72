//! Events as a stream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use proctor_model::{Event, EventKind};
use proctor_server::control::Session;
use serde_json::Value;
use tower::ServiceExt;

use crate::support::{AGENT, World, credentials, error, greeting};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stream {
    body: BodyDataStream,
    text: String,
}

impl Stream {
    async fn open(world: &World, query: &str, last: Option<u64>) -> Self {
        let who = ("X-Bkapi-Authorization", credentials("boss", &world.secret));
        Self::open_as(world, who, query, last).await
    }

    /// With this header.
    pub(crate) async fn open_as(world: &World, who: (&str, String), query: &str, last: Option<u64>) -> Self {
        let mut request = Request::get(format!("/api/v1/events/stream{query}")).header(who.0, who.1);
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = world.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next event: its id, its type and itself. None at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(u64, String, Value)> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                let event = field("data:").map(|data| {
                    let id = field("id:").unwrap().parse().unwrap();
                    (id, field("event:").unwrap().to_owned(), serde_json::from_str(data).unwrap())
                });
                self.text = rest.to_owned();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let chunk = tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event in time")?;
            self.text += std::str::from_utf8(&chunk.unwrap()).unwrap();
        }
    }
}

pub(crate) async fn session(world: &World) -> Arc<Session> {
    let agent = AGENT.parse().unwrap();
    world.control.open_session(greeting(&agent)).await.unwrap().unwrap()
}

pub(crate) fn event(sequence: u64, kind: EventKind) -> Event {
    Event {
        sequence,
        at: 1,
        process: Some("web/a".parse().unwrap()),
        proc_name: "nginx".into(),
        report_id: None,
        kind,
        content: proctor_model::Message::foreign(format!("event {sequence}")),
        details: BTreeMap::new(),
    }
}

#[tokio::test]
async fn a_stream_gives_what_was_what_comes_and_nothing_else() {
    let world = World::new().await;
    let session = session(&world).await;
    world.control.events_arrived(&session, &[event(1, EventKind::Started), event(2, EventKind::Exited)]).await.unwrap();

    let mut stream = Stream::open(&world, "?after=0&type=exited", None).await;
    let first = stream.next().await.unwrap();
    world.control.events_arrived(&session, &[event(3, EventKind::Started), event(4, EventKind::Exited)]).await.unwrap();
    let second = stream.next().await.unwrap();

    assert_eq!((first.1.as_str(), &first.2["sequence"], &first.2["id"]), ("exited", &2.into(), &first.0.into()));
    assert_eq!(second.2["sequence"], 4);
}

#[tokio::test]
async fn a_stream_without_a_place_begins_now_and_one_with_an_id_goes_on_behind_it() {
    let world = World::new().await;
    let session = session(&world).await;
    world.control.events_arrived(&session, &[event(1, EventKind::Started)]).await.unwrap();

    let mut new = Stream::open(&world, "", None).await;
    world.control.events_arrived(&session, &[event(2, EventKind::Exited), event(3, EventKind::Exited)]).await.unwrap();
    let (id, _, first) = new.next().await.unwrap();
    drop(new);
    let mut resumed = Stream::open(&world, "?after=0", Some(id)).await;
    let (_, _, second) = resumed.next().await.unwrap();

    assert_eq!((&first["sequence"], &second["sequence"]), (&2.into(), &3.into()));
}

#[tokio::test]
async fn a_stream_ends_with_the_server() {
    let world = World::new().await;
    let mut stream = Stream::open(&world, "", None).await;

    let (end, ()) = tokio::join!(stream.next(), async { world.tasks.shutdown().cancel() });

    assert!(end.is_none());
}

#[tokio::test]
async fn a_stream_that_cannot_be_is_refused_as_any_call() {
    let world = World::new().await;

    let (status, answer) = world.get("/events/stream?type=exploded").await;

    assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, "type"));
}
