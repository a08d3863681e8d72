//! Usage of processes, with hosts played by the test.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use proctor_model::{AgentId, Spread, UsageHistory, UsageKept, UsagePoint, UsageRange};
use proctor_server::control::{Asked, Question, Reply, Session};
use serde_json::{Value, json};

use crate::support::{AGENT, World, error, greeting, registration};

const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(world: &World, answers_usage: bool) -> Arc<Session> {
    let agent: AgentId = AGENT.parse().unwrap();
    let greeting = proctor_server::control::Greeting { answers_usage, ..greeting(&agent) };
    world.control.open_session(greeting).await.unwrap().unwrap()
}

/// Waits for the next questions of the server.
pub(crate) async fn asked(session: &Session) -> Vec<Question> {
    let asked = async {
        loop {
            let questions = session.take_questions();
            if !questions.is_empty() {
                return questions;
            }
            session.woken().await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("a question")
}

fn reply(history: UsageHistory) -> Reply {
    Reply::Usage(Arc::new(history))
}

fn history() -> UsageHistory {
    let spread = |avg| Spread { min: None, avg, max: avg * 2.0 };
    let point = |at| UsagePoint { at, cpu: spread(12.34), memory: spread(0.5), restarted: at == 1010 };
    UsageHistory { kept: UsageKept::Kept, step_secs: 10, points: vec![point(1000), point(1010), point(1060)] }
}

#[tokio::test]
async fn many_viewers_cost_the_host_one_question() {
    let world = World::new().await;
    world.register("m").await;
    let session = connect(&world, true).await;

    let viewers = futures::future::join_all((0..100).map(|_| world.got("/processes/web/m/usage?host=10.0.0.1")));
    let host = async {
        let questions = asked(&session).await;
        let [Question { request, key, asked }] = &questions[..] else { panic!("{questions:?}") };
        assert_eq!((key.to_string().as_str(), *asked), ("web/m", Asked::Usage(UsageRange::Hour)));
        assert!(!session.answer(request + 1, reply(UsageHistory::default())), "nobody asked this");
        assert!(session.answer(*request, reply(history())));
        assert!(!session.answer(*request, reply(history())), "once is enough");
    };
    let (views, ()) = tokio::join!(viewers, host);

    let view = &views[0];
    assert!(views.iter().all(|other| other == view));
    assert_eq!((&view["state"], &view["step"], &view["range"]), (&json!("kept"), &json!(10), &json!("1h")));
    assert_eq!((&view["cpu_limit"], &view["memory_limit"]), (&json!(12.5), &json!(30.0)));
    let point =
        json!({ "at": 1010, "cpu": 12.34, "cpu_max": 24.68, "memory": 0.5, "memory_max": 1.0, "restarted": true });
    assert_eq!(view["points"][1], point);
    assert!(session.take_questions().is_empty());
}

#[tokio::test]
async fn who_cannot_be_asked_is_told_apart() {
    let world = World::new().await;
    world.register("m").await;
    let state = async |path: &str| world.got(path).await["state"].clone();

    let offline = state("/processes/web/m/usage?host=10.0.0.1").await;
    let session = connect(&world, false).await;
    let too_old = state("/processes/web/m/usage?host=10.0.0.1&range=7d").await;
    world.control.close_session(&session).await;
    let session = connect(&world, true).await;
    world.register("n").await;
    let gone = async {
        asked(&session).await;
        world.control.close_session(&session).await;
    };
    let (while_asked, ()) = tokio::join!(state("/processes/web/n/usage?host=10.0.0.1"), gone);

    assert_eq!([offline, too_old, while_asked], ["offline", "agent_too_old", "offline"]);
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_given_up_after_five_seconds() {
    let world = World::new().await;
    world.register("m").await;
    let session = connect(&world, true).await;
    let never_answered = async {
        asked(&session).await;
        // The store has said what it has to say: from here on, only timers are waited for.
        tokio::time::pause();
        tokio::time::Instant::now()
    };

    let (view, begun) = tokio::join!(world.got("/processes/web/m/usage?host=10.0.0.1"), never_answered);

    assert_eq!((&view["state"], &view["points"]), (&json!("no_answer"), &json!([])));
    // The question is older than the moment from which virtual time counts, on a busy machine by more.
    let waited = begun.elapsed();
    assert!(!waited.is_zero() && waited < Duration::from_millis(5100), "{waited:?} of virtual time");
    assert!(session.take_questions().is_empty(), "nobody waits for it any more");
}

#[tokio::test]
async fn questions_that_name_nothing_say_what_is_wrong() {
    let world = World::new().await;
    world.register("m").await;
    let problem = async |path: &str| {
        let (status, answer) = world.get(path).await;
        (status, error(&answer).1.to_owned())
    };

    let bad = StatusCode::BAD_REQUEST;
    assert_eq!(problem("/processes/web/m/usage?host=10.0.0.1&range=2h").await.0, bad);
    assert_eq!(problem("/processes/web/m/usage").await.0, bad);
    assert_eq!(problem("/processes/web/m/usage?host=10.0.0.1&instance=2").await, (bad, "instance".to_owned()));
    assert_eq!(problem("/processes/web/m/usage?host=10.0.0.1&instance=0").await, (bad, "instance".to_owned()));
    assert_eq!(problem("/processes/web/x/usage?host=10.0.0.1").await.0, StatusCode::NOT_FOUND);
    assert_eq!(problem("/processes/web/m/usage?host=10.9.9.9").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_instance_is_asked_for_by_its_own_name() {
    let world = World::new().await;
    let mut body = registration("many");
    body["spec"]["identity"]["pid_path"] = json!("/run/many-{instance}.pid");
    body["spec"]["monitor_policy"]["instance_num"] = json!(3);
    let (_, answer) = world.post("/processes", body).await;
    assert_eq!(answer["rows"][0]["code"], 0, "{answer}");
    let session = connect(&world, true).await;

    let host = async {
        let questions = asked(&session).await;
        let name = questions[0].key.to_string();
        session.answer(questions[0].request, reply(UsageHistory::empty(UsageKept::NotKept, 300)));
        name
    };
    let path = "/processes/web/many/usage?host=10.0.0.1&instance=3&range=7d";
    let (view, name): (Value, String) = tokio::join!(world.got(path), host);

    assert_eq!((name.as_str(), &view["state"], &view["step"]), ("web/many#3", &json!("not_kept"), &json!(300)));
}

#[tokio::test]
async fn a_viewer_who_leaves_does_not_make_the_next_one_ask_again() {
    let world = World::new().await;
    world.register("m").await;
    let session = connect(&world, true).await;
    let path = "/processes/web/m/usage?host=10.0.0.1";
    let questions = tokio::select! {
        view = world.got(path) => panic!("{view}"),
        questions = asked(&session) => questions,
    };

    let (view, is_taken) = tokio::join!(world.got(path), async {
        tokio::task::yield_now().await;
        session.answer(questions[0].request, reply(history()))
    });

    assert_eq!((&view["state"], is_taken), (&json!("kept"), true));
    assert!(session.take_questions().is_empty());
}
