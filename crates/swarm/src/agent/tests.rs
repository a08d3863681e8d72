use proctor_model::TaskId;
use uuid::Uuid;

use super::*;

fn at(seconds: u64) -> Now {
    Now {
        since_start: Duration::from_secs(seconds),
        unix_ms: 1_700_000_000_000 + i64::try_from(seconds * 1000).unwrap(),
    }
}

fn agent(group: Group) -> SimAgent {
    let mut agent = SimAgent::new(group, 1, Arc::default(), at(0));
    agent.handle_connected(at(0), 1, None);
    agent
}

fn key() -> ProcessKey {
    "swarm/p-0".parse().unwrap()
}

fn operation(index: u32) -> OperationId {
    OperationId::first(TaskId::from_uuid(Uuid::from_u128(1)), index)
}

fn operate(index: u32, kind: OperationKind) -> FromServer {
    FromServer::Operate {
        operation: operation(index),
        key: key(),
        kind,
        spec: None,
        expires_in: Duration::from_secs(60),
    }
}

fn assigned(agent: &mut SimAgent, generation: u64) {
    let spec = Some(proctor_model::samples::spec(|_| {}));
    let assign = Assign { generation, key: key(), spec, managed: false, registered_at: 0 };
    agent.handle_message(at(0), FromServer::Assign { assignments: vec![assign] });
}

/// All outcomes that the agent sends now.
fn outcomes(agent: &mut SimAgent, now: Now) -> Vec<(OperationId, Code)> {
    agent.handle_timeout(now);
    std::iter::from_fn(|| agent.poll_message(now))
        .filter_map(|message| {
            let FromAgent::Outcome { operation, outcome } = message else { return None };
            Some((operation, outcome.code))
        })
        .collect()
}

#[test]
fn an_operation_that_is_delivered_again_runs_once_and_answers_again() {
    let mut agent = agent(Group::default());
    assigned(&mut agent, 1);

    agent.handle_message(at(1), operate(0, OperationKind::Start));
    let first = outcomes(&mut agent, at(1));
    agent.handle_message(at(2), operate(0, OperationKind::Start));
    let second = outcomes(&mut agent, at(2));

    assert_eq!(first, [(operation(0), Code::Success)]);
    assert_eq!(second, first, "not 828: it did not run again");
    assert_eq!(agent.figures.counters.operations.load(Ordering::Relaxed), 1);
}

#[test]
fn outcomes_are_repeated_on_every_session_until_they_are_acknowledged() {
    let mut agent = agent(Group::default());
    assigned(&mut agent, 1);
    agent.handle_message(at(1), operate(0, OperationKind::Start));
    outcomes(&mut agent, at(1));

    agent.handle_disconnected();
    assert_eq!(agent.poll_message(at(2)), None);
    agent.handle_connected(at(3), 2, None);
    assert_eq!(outcomes(&mut agent, at(3)), [(operation(0), Code::Success)]);
    agent.handle_message(at(3), FromServer::Acknowledge { operations: vec![operation(0)] });
    agent.handle_disconnected();
    agent.handle_connected(at(4), 3, None);

    assert_eq!(outcomes(&mut agent, at(4)), []);
    assert!(!agent.figures.has_violations());
}

#[test]
fn operations_on_one_process_follow_one_another() {
    let mut agent = agent(Group { command_ms: [1000, 1000], ..Group::default() });
    assigned(&mut agent, 1);
    agent.handle_message(at(1), operate(0, OperationKind::Start));
    agent.handle_message(at(1), operate(1, OperationKind::Stop));

    assert_eq!(outcomes(&mut agent, at(1)), []);
    assert_eq!(outcomes(&mut agent, at(2)), [(operation(0), Code::Success)]);
    assert_eq!(outcomes(&mut agent, at(3)), [(operation(1), Code::Success)]);
}

#[test]
fn a_cancel_ends_what_runs_and_what_waits() {
    let mut agent = agent(Group { command_ms: [1000, 1000], ..Group::default() });
    assigned(&mut agent, 1);
    agent.handle_message(at(1), operate(0, OperationKind::Start));
    agent.handle_message(at(1), operate(1, OperationKind::Stop));

    agent.handle_message(at(1), FromServer::Cancel { operations: vec![operation(1), operation(0)] });

    assert_eq!(outcomes(&mut agent, at(1)), [(operation(1), Code::Cancelled), (operation(0), Code::Cancelled)]);
}

#[test]
fn broken_promises_of_the_server_are_noticed() {
    let mut agent = agent(Group::default());
    assigned(&mut agent, 5);
    assert!(!agent.figures.has_violations());

    assigned(&mut agent, 5);
    agent.handle_connected(at(1), 1, None);
    agent.handle_message(at(1), operate(0, OperationKind::Start));
    outcomes(&mut agent, at(1));
    agent.handle_message(at(1), FromServer::Acknowledge { operations: vec![operation(0)] });
    agent.handle_message(at(2), operate(0, OperationKind::Start));

    let report = agent.figures.to_string();
    for broken in ["epoch did not rise", "generation did not rise", "after its outcome was acknowledged"] {
        assert!(
            report.lines().any(|line| line.contains(broken) && line.trim().starts_with("1 ")),
            "{broken}: {report}"
        );
    }
}

#[test]
fn a_crash_loop_is_told_and_the_process_comes_back() {
    let mut agent = agent(Group { crash_every_secs: Some(10), ..Group::default() });
    assigned(&mut agent, 1);
    agent.handle_message(at(0), operate(0, OperationKind::Start));
    outcomes(&mut agent, at(0));

    let mut kinds = Vec::new();
    for tenth in 0..200 {
        let now = Now { since_start: Duration::from_millis(tenth * 100), unix_ms: 0 };
        agent.handle_timeout(now);
        while let Some(message) = agent.poll_message(now) {
            if let FromAgent::Events { events } = message {
                kinds.extend(events.into_iter().map(|event| event.kind));
            }
        }
    }

    assert_eq!(kinds[..2], [EventKind::Exited, EventKind::RestartSucceeded]);
    assert!(agent.processes[&key()].pid.is_some());
}

#[test]
fn an_operation_whose_time_is_over_when_its_turn_comes_is_not_begun() {
    let mut agent = agent(Group { command_ms: [90_000, 90_000], ..Group::default() });
    assigned(&mut agent, 1);
    agent.handle_message(at(1), operate(0, OperationKind::Start));
    agent.handle_message(at(1), operate(1, OperationKind::Stop));

    let ended = outcomes(&mut agent, at(91));

    assert_eq!(ended, [(operation(0), Code::Success), (operation(1), Code::CommandFailed)]);
    assert!(agent.processes[&key()].pid.is_some(), "it was not stopped");
}

#[test]
fn a_record_tells_what_happened_to_an_agent_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("record");
    let mut agent = SimAgent::new(Group::default(), 1, Arc::default(), at(0));
    agent.record_to(Arc::new(Recorder::create(&path).unwrap()), "0:10.64.0.0".to_owned());

    agent.handle_connected(at(0), 1, None);
    assigned(&mut agent, 7);
    agent.handle_message(at(1), operate(0, OperationKind::Start));
    outcomes(&mut agent, at(1));
    agent.handle_message(at(2), FromServer::Acknowledge { operations: vec![operation(0)] });
    agent.handle_message(at(3), operate(0, OperationKind::Start));

    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let what: Vec<&str> = lines.iter().map(|line| line["what"].as_str().unwrap()).collect();
    let expected = ["connected", "assigned", "delivered", "begun", "ended", "acknowledged", "delivered", "violated"];
    assert_eq!(what, expected, "{text}");
    let begun = serde_json::json!({
        "at_ms": at(1).unix_ms, "agent": "0:10.64.0.0", "what": "begun", "operation": operation(0).to_string()
    });
    assert_eq!(lines[3], begun);
}

#[test]
fn a_killed_agent_goes_on_with_what_its_ledger_holds_and_has_forgotten_what_waited() {
    let mut agent = agent(Group { command_ms: [1000, 1000], ..Group::default() });
    assigned(&mut agent, 1);
    agent.handle_message(at(1), operate(0, OperationKind::Start));
    agent.handle_message(at(1), operate(1, OperationKind::Stop));

    agent.handle_killed();
    agent.handle_connected(at(2), 2, None);

    assert_eq!(outcomes(&mut agent, at(3)), [(operation(0), Code::Success)], "it had begun");
    assert_eq!(outcomes(&mut agent, at(10)), [], "nobody has told it of the other one since");
    agent.handle_message(at(10), operate(1, OperationKind::Stop));
    assert_eq!(outcomes(&mut agent, at(11)), [(operation(1), Code::Success)]);
    agent.handle_message(at(12), operate(0, OperationKind::Start));
    assert_eq!(outcomes(&mut agent, at(13)), [(operation(0), Code::Success)], "not run again");
    assert_eq!(agent.figures.counters.operations.load(Ordering::Relaxed), 2);
}

#[test]
fn a_server_that_has_everything_as_it_is_hears_of_it_no_more() {
    let mut agent = agent(Group::default());
    assigned(&mut agent, 5);
    let observed = |agent: &mut SimAgent| {
        let messages: Vec<_> = std::iter::from_fn(|| agent.poll_message(at(2))).collect();
        messages.iter().any(|message| matches!(message, FromAgent::Observed { .. }))
    };
    assert!(observed(&mut agent));
    let state = agent.state(at(1));

    agent.handle_disconnected();
    agent.handle_connected(at(2), 2, Some(state));
    assert!(!observed(&mut agent));

    agent.handle_disconnected();
    agent.processes.get_mut(&key()).unwrap().pid = Some(7);
    agent.handle_connected(at(2), 3, Some(state));
    assert!(observed(&mut agent), "it has changed since the greeting");

    agent.handle_message(at(2), operate(0, OperationKind::Start));
    let changed = agent.state(at(3));
    assert_ne!(changed.observed, state.observed);
    assert_eq!(changed.assigned, state.assigned);
    assigned(&mut agent, 6);
    assert_ne!(agent.state(at(3)).assigned, state.assigned);
}
