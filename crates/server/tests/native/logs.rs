//! Logs of processes, with hosts played by the test.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use proctor_model::{AgentId, LOG_LINES, LogPosition, LogQuery, LogState, LogTail};
use proctor_server::control::{Asked, Greeting, Question, Reply, Session};
use serde_json::{Value, json};

use crate::rights::User;
use crate::support::{AGENT, World, error, greeting};
use crate::usage::asked;

const PATH: &str = "/processes/web/m/log?host=10.0.0.1";

async fn connect(world: &World, answers_logs: bool) -> Arc<Session> {
    let agent: AgentId = AGENT.parse().unwrap();
    let greeting = Greeting { answers_logs, ..greeting(&agent) };
    world.control.open_session(greeting).await.unwrap().unwrap()
}

fn tail(bytes: &[u8]) -> LogTail {
    LogTail {
        state: LogState::Read,
        path: "/var/log/m.log".to_owned(),
        bytes: bytes.to_vec(),
        end: LogPosition { file: 10, offset: 77 },
        size: 80,
        modified_at: 1000,
        ..LogTail::default()
    }
}

/// What a caller sees of an answer, and what the host was asked.
async fn told(world: &World, session: &Session, path: &str, tail: LogTail) -> (Value, Asked) {
    let host = async {
        let questions = asked(session).await;
        let [Question { request, key: _, asked }] = &questions[..] else { panic!("{questions:?}") };
        assert!(session.answer(*request, Reply::Log(Arc::new(tail))));
        *asked
    };
    tokio::join!(world.got(path), host)
}

#[tokio::test]
async fn the_end_of_a_log_is_shown_and_then_what_was_written_since() {
    let world = World::new().await;
    world.register("m").await;
    let session = connect(&world, true).await;

    let (first, first_asked) = told(&world, &session, PATH, tail(b"a\xFFb\x1b[31m\n")).await;
    let since = format!("{PATH}&lines=5&since={}", first["position"].as_str().unwrap());
    let rotated = LogTail { restarted: true, skipped: 9, ..tail(b"") };
    let (next, next_asked) = told(&world, &session, &since, rotated).await;

    assert_eq!(first_asked, Asked::Log(LogQuery { lines: LOG_LINES, since: None }));
    let position = LogPosition { file: 10, offset: 77 };
    assert_eq!(next_asked, Asked::Log(LogQuery { lines: 5, since: Some(position) }));
    let expected = json!({
        "process": "web/m", "host": "0:10.0.0.1", "state": "read", "path": "/var/log/m.log", "problem": "",
        "text": "a\u{FFFD}b\u{1b}[31m\n", "position": "a-77", "size": 80, "modified_at": 1000, "restarted": false,
        "skipped": 0,
    });
    assert_eq!(first, expected);
    assert_eq!((&next["text"], &next["restarted"], &next["skipped"]), (&json!(""), &json!(true), &json!(9)));
}

#[tokio::test]
async fn why_there_is_no_log_is_told_apart() {
    let world = World::new().await;
    world.register("m").await;
    let state = async |path: &str| world.got(path).await["state"].clone();

    let offline = state(PATH).await;
    let old = connect(&world, false).await;
    let too_old = state(PATH).await;
    world.control.close_session(&old).await;
    let session = connect(&world, true).await;
    let mut states = vec![offline, too_old];
    let mut problems = Vec::new();
    for (lines, state) in (1..).zip(LogState::ALL.into_iter().filter(|state| *state != LogState::Busy)) {
        let answer = LogTail { state, ..LogTail::none(state, "/x", "because") };
        let (view, _) = told(&world, &session, &format!("{PATH}&lines={lines}"), answer).await;
        states.push(view["state"].clone());
        problems.push(view["problem"].clone());
    }
    let gone = async {
        asked(&session).await;
        world.control.close_session(&session).await;
    };
    states.push(tokio::join!(state("/processes/web/m/log?host=10.0.0.1&lines=99"), gone).0);

    let expected = ["offline", "agent_too_old", "read", "no_path", "missing", "denied", "not_a_log", "forbidden"];
    assert_eq!(states[..8], expected);
    assert_eq!(states[8..], ["unreadable", "not_registered", "offline"]);
    assert!(problems.iter().all(|problem| problem == "because"));
}

#[tokio::test]
async fn a_busy_host_is_to_be_asked_again_and_what_a_file_or_an_agent_claims_is_bounded() {
    let world = World::new().await;
    world.register("m").await;
    let session = connect(&world, true).await;
    let answer = async |tail: LogTail| {
        let questions = asked(&session).await;
        assert!(session.answer(questions[0].request, Reply::Log(Arc::new(tail))));
    };

    let busy = LogTail::none(LogState::Busy, "/x", "because");
    let ((status, problem), ()) = tokio::join!(world.get(PATH), answer(busy));
    let late = LogTail { modified_at: i64::MAX, ..tail(b"words") };
    let (late, _) = told(&world, &session, &format!("{PATH}&lines=1"), late).await;
    let missing = LogTail { state: LogState::Missing, ..tail(b"words") };
    let (missing, _) = told(&world, &session, &format!("{PATH}&lines=2"), missing).await;

    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{problem}");
    assert!(problem["error"]["message"].as_str().unwrap().contains("too many logs"), "{problem}");
    assert_eq!((&late["text"], &late["modified_at"]), (&json!("words"), &json!(253_402_300_799_i64)));
    assert_eq!((&missing["state"], &missing["text"]), (&json!("missing"), &json!("")));
}

#[tokio::test]
async fn to_see_a_process_is_not_enough_to_read_its_log() {
    let world = World::new().await;
    world.register("m").await;
    let callers = [
        ("viewer", "everything", StatusCode::FORBIDDEN),
        ("operator", "everything", StatusCode::OK),
        ("operator", "namespace:web", StatusCode::OK),
        ("operator", "namespace:other", StatusCode::FORBIDDEN),
        ("operator", "cloud:7", StatusCode::FORBIDDEN),
    ];
    for (number, (role, scope, expected)) in callers.into_iter().enumerate() {
        let user = User::within(&world, &format!("caller-{number}"), role, scope).await;

        let call = |path: &'static str| user.call(&world, Method::GET, path, Value::Null);
        let (status, answer) = call(PATH).await;
        assert_eq!(status, expected, "{role} in {scope}: {answer}");
        if expected == StatusCode::FORBIDDEN {
            assert_eq!(error(&answer).0, "permission_denied");
            // Whether there is such a process, or such a host, is not told.
            let there = answer["error"]["message"].as_str().unwrap().to_owned();
            let (status, absent) = call("/processes/web/absent/log?host=10.0.0.1").await;
            assert_eq!((status, absent["error"]["message"].as_str().unwrap()), (expected, there.as_str()));
        }
    }
}

#[tokio::test]
async fn questions_that_name_nothing_say_what_is_wrong() {
    let world = World::new().await;
    world.register("m").await;
    let problem = async |path: &str| {
        let (status, answer) = world.get(path).await;
        (status, error(&answer).1.to_owned())
    };
    let of = |status: StatusCode, field: &str| (status, field.to_owned());

    let bad = StatusCode::BAD_REQUEST;
    assert_eq!(problem(&format!("{PATH}&lines=0")).await, of(bad, "lines"));
    assert_eq!(problem(&format!("{PATH}&lines=2001")).await, of(bad, "lines"));
    assert_eq!(problem(&format!("{PATH}&since=yesterday")).await, of(bad, "since"));
    assert_eq!(problem(&format!("{PATH}&instance=2")).await, of(bad, "instance"));
    assert_eq!(problem("/processes/web/m/log").await.0, bad);
    assert_eq!(problem(&format!("{PATH}&file=/etc/shadow")).await.0, bad);
    assert_eq!(problem("/processes/web/x/log?host=10.0.0.1").await.0, StatusCode::NOT_FOUND);
    assert_eq!(problem("/processes/web/m/log?host=10.9.9.9").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_answer_to_another_question_is_none() {
    let world = World::new().await;
    world.register("m").await;
    let session = connect(&world, true).await;

    let host = async {
        let questions = asked(&session).await;
        let request = questions[0].request;
        let is_taken = session.answer(request, Reply::Usage(Arc::default()));
        (is_taken, session.answer(request, Reply::Log(Arc::new(tail(b"words\n")))))
    };
    let (view, taken): (Value, _) = tokio::join!(world.got(PATH), host);

    assert_eq!(taken, (false, true));
    assert_eq!(view["text"], "words\n");
}

#[tokio::test]
async fn the_host_shows_how_long_its_agent_takes_to_answer() {
    let world = World::new().await;
    let unknown = world.got("/hosts/10.0.0.1").await;
    let session = connect(&world, true).await;

    let host = async {
        let number = loop {
            match session.take_ping() {
                Some(number) => break number,
                None => session.woken().await,
            }
        };
        session.pong(number + 1);
        session.pong(number);
    };
    tokio::join!(world.got("/hosts/10.0.0.1"), host);
    let shown = world.got("/hosts/10.0.0.1").await;
    let listed = world.got("/hosts").await;
    world.control.close_session(&session).await;
    let gone = world.got("/hosts/10.0.0.1").await;

    assert_eq!((&unknown["link"], &gone["link"]), (&Value::Null, &Value::Null));
    assert!(shown["link"]["rtt_us"].as_u64().unwrap() < 60_000_000, "{shown}");
    assert!(shown["link"]["measured_at"].as_i64().unwrap() > 0, "{shown}");
    assert_eq!(listed["hosts"][0]["link"], shown["link"]);
}
