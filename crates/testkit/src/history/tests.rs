//! A judge that cannot find anything is worthless: for each invariant, a history that breaks it and nothing else.

use super::*;

const HOST: &str = "0:10.64.0.0";

fn operation() -> Operation {
    Operation::new("task", 0)
}

fn target(code: u32, message_id: &str) -> TargetRead {
    TargetRead { index: 0, code, message_id: message_id.to_owned() }
}

fn read(at_ms: i64, targets: Option<Vec<TargetRead>>) -> TaskRead {
    TaskRead { at_ms, task: "task".to_owned(), targets }
}

fn on_host(at_ms: i64, what: HostEvent) -> HostRecord {
    HostRecord { at_ms, host: HOST.to_owned(), what }
}

/// One task that was accepted, delivered, run, acknowledged and read, with a server that stayed small.
fn good() -> History {
    let operation = operation();
    History {
        answers: vec![Answer { key: "key".to_owned(), task: "task".to_owned() }],
        reads: vec![read(500, Some(vec![target(HANDLING, "")])), read(9000, Some(vec![target(0, "")]))],
        hosts: vec![
            on_host(100, HostEvent::Connected { epoch: 1 }),
            on_host(200, HostEvent::Assigned { generation: 4 }),
            on_host(1000, HostEvent::Delivered { operation: operation.clone(), expires_in_ms: 5000 }),
            on_host(1001, HostEvent::Begun { operation: operation.clone() }),
            on_host(2000, HostEvent::Ended { operation: operation.clone(), code: 0 }),
            on_host(2100, HostEvent::Acknowledged { operation }),
        ],
        generations: [4, 4, 5]
            .map(|generation| GenerationRead { process: "swarm/p-0".to_owned(), generation })
            .to_vec(),
        memory: vec![MemorySample { program: "server".to_owned(), bytes: 50 }],
        memory_bounds: BTreeMap::from([("server".to_owned(), 100)]),
        has_all_executions: true,
    }
}

/// The invariants that a changed history breaks.
fn broken(change: impl FnOnce(&mut History)) -> Vec<Invariant> {
    let mut history = good();
    change(&mut history);
    let mut broken: Vec<Invariant> = history.breaches().into_iter().map(|breach| breach.invariant).collect();
    broken.dedup();
    broken
}

#[test]
fn a_good_history_holds() {
    assert_eq!(good().breaches(), []);
    good().assert_holds();
    assert_eq!(good().summary(), "1 tasks, targets: 1 with code 0, 1 executions");
}

#[test]
fn i1_a_target_that_never_ends_or_ends_twice_or_was_never_executed_is_found() {
    assert_eq!(broken(|history| drop(history.reads.pop())), [Invariant::I1, Invariant::I7]);
    assert_eq!(
        broken(|history| {
            history.reads.push(read(9500, Some(vec![target(65535, "agent_lost")])));
        }),
        [Invariant::I1]
    );
    assert_eq!(
        broken(|history| history.reads.push(read(9500, Some(vec![target(0, ""), target(0, "")])))),
        [Invariant::I1]
    );
    assert_eq!(broken(|history| history.hosts.truncate(3)), [Invariant::I1]);
}

#[test]
fn i2_an_operation_that_is_executed_twice_is_found_wherever_it_ran() {
    let elsewhere = |history: &mut History| {
        let begun = HostEvent::Begun { operation: operation() };
        history.hosts.insert(4, HostRecord { at_ms: 1002, host: "0:10.64.0.1".to_owned(), what: begun });
    };

    assert_eq!(broken(elsewhere), [Invariant::I2]);
    let again = HostEvent::Ended { operation: operation(), code: 0 };
    assert_eq!(broken(|history| history.hosts.push(on_host(2200, again))), [Invariant::I2]);
    assert_eq!(broken(|history| history.hosts.push(on_host(2200, HostEvent::Truncated))), [Invariant::I2]);
}

#[test]
fn i3_what_begins_after_its_delivery_expired_is_found() {
    assert_eq!(broken(|history| history.hosts[3].at_ms = 8001), [Invariant::I3]);
}

#[test]
fn i3_what_begins_after_a_cancel_was_acknowledged_is_found() {
    // The agent cancelled it before it began, said so, and began it all the same.
    let after_cancel = |history: &mut History| {
        history.reads.pop();
        history.reads.push(read(9000, Some(vec![target(126, "")])));
        history.hosts.truncate(3);
        history.hosts.push(on_host(1500, HostEvent::Ended { operation: operation(), code: 126 }));
        history.hosts.push(on_host(2000, HostEvent::Begun { operation: operation() }));
    };
    // The server ended it before it was delivered, and a client has read that.
    let after_read = |history: &mut History| {
        history.reads = vec![read(500, Some(vec![target(126, "")]))];
        history.hosts[3].at_ms = 4000;
    };

    assert_eq!(broken(after_cancel), [Invariant::I3]);
    assert_eq!(broken(after_read), [Invariant::I3]);
}

#[test]
fn i3_what_was_executed_although_its_target_says_that_nothing_was_done_is_found() {
    for (code, id) in [(127, ""), (128, ""), (117, "agent_not_connected")] {
        let change = |history: &mut History| {
            history.reads = vec![read(9000, Some(vec![target(code, id)]))];
            history.hosts.truncate(4);
        };
        assert_eq!(broken(change), [Invariant::I3], "{code}");
    }
}

#[test]
fn i4_an_accepted_task_that_is_gone_or_doubled_is_found() {
    assert_eq!(broken(|history| history.reads.push(read(9500, None))), [Invariant::I4]);
    assert_eq!(broken(|history| history.reads.push(read(9500, Some(Vec::new())))), [Invariant::I4, Invariant::I7]);
    let other = |history: &mut History| {
        history.answers.push(Answer { key: "key".to_owned(), task: "other".to_owned() });
        let mut of_other = read(9000, Some(vec![target(829, "")]));
        of_other.task = "other".to_owned();
        history.reads.push(of_other);
    };
    assert_eq!(broken(other), [Invariant::I4]);
    assert_eq!(
        broken(|history| history.answers.push(Answer { key: "b".to_owned(), task: "unread".to_owned() })),
        [Invariant::I4]
    );
}

#[test]
fn i5_epochs_and_generations_that_go_back_are_found() {
    assert_eq!(broken(|history| history.hosts.push(on_host(3000, HostEvent::Connected { epoch: 1 }))), [Invariant::I5]);
    assert_eq!(
        broken(|history| history.hosts.push(on_host(3000, HostEvent::Assigned { generation: 4 }))),
        [Invariant::I5]
    );
    let shown = GenerationRead { process: "swarm/p-0".to_owned(), generation: 4 };
    assert_eq!(broken(|history| history.generations.push(shown)), [Invariant::I5]);
}

#[test]
fn i6_what_an_agent_refused_for_its_signature_is_found() {
    let promise = "message without a valid signature".to_owned();

    assert_eq!(broken(|history| history.hosts.push(on_host(3000, HostEvent::Violated { promise }))), [Invariant::I6]);
}

#[test]
fn i7_an_acknowledged_outcome_that_reads_otherwise_or_is_gone_is_found() {
    let otherwise = |history: &mut History| history.reads[1].targets = Some(vec![target(65535, "")]);
    let gone = |history: &mut History| {
        let mut elsewhere = target(0, "");
        elsewhere.index = 1;
        history.reads[1].targets = Some(vec![elsewhere]);
        history.has_all_executions = false;
    };
    // Its time was over before the outcome arrived: the first outcome counts.
    let overtaken = |history: &mut History| history.reads[1].targets = Some(vec![target(117, "agent_lost")]);

    assert_eq!(broken(otherwise), [Invariant::I7]);
    assert_eq!(broken(gone), [Invariant::I7]);
    assert_eq!(broken(overtaken), []);
}

#[test]
fn i8_memory_above_its_bound_or_without_one_is_found() {
    let sample = |program: &str, bytes| MemorySample { program: program.to_owned(), bytes };

    assert_eq!(broken(|history| history.memory.insert(0, sample("server", 101))), [Invariant::I8]);
    assert_eq!(broken(|history| history.memory.push(sample("agent", 1))), [Invariant::I8]);
}
