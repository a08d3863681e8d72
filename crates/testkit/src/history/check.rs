//! The rules, one function for each.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Breach, HANDLING, History, HostEvent, Invariant, Operation, TargetRead, TaskRead};

/// The server ended these targets itself, so an outcome that arrives later does not count.
const ENDED_BY_SERVER: [&str; 3] = ["agent_not_connected", "agent_lost", "agent_gave_no_outcome"];
/// Codes that say that nothing was done on the host: skipped, cordoned.
const NOTHING_DONE: [u32; 2] = [127, 128];
/// A message id that says the same.
const NOT_DELIVERED: &str = "agent_not_connected";
const CANCELLED: u32 = 126;
const SUCCESS: u32 = 0;
/// Between an agent's decision to begin and its line in the record.
const RECORDING_MS: i64 = 2000;

pub(super) fn breaches(history: &History) -> Vec<Breach> {
    let mut found = Vec::new();
    one_terminal_state(history, &mut found);
    executed_once(history, &mut found);
    nothing_too_late(history, &mut found);
    accepted_is_readable(history, &mut found);
    nothing_goes_back(history, &mut found);
    violations(history, &mut found);
    acknowledged_survives(history, &mut found);
    memory_is_bounded(history, &mut found);
    found
}

fn breach(found: &mut Vec<Breach>, invariant: Invariant, what: String) {
    found.push(Breach { invariant, what });
}

/// The last read of each task that found it.
fn last_reads(history: &History) -> BTreeMap<&str, &TaskRead> {
    let found = history.reads.iter().filter(|read| read.targets.is_some());
    found.map(|read| (read.task.as_str(), read)).collect()
}

fn final_targets(history: &History) -> HashMap<Operation, &TargetRead> {
    let mut targets = HashMap::new();
    for (task, read) in last_reads(history) {
        for target in read.targets.iter().flatten() {
            targets.insert(Operation::new(task, target.index), target);
        }
    }
    targets
}

fn one_terminal_state(history: &History, found: &mut Vec<Breach>) {
    for (task, read) in last_reads(history) {
        let mut seen = BTreeSet::new();
        for target in read.targets.iter().flatten() {
            if !seen.insert(target.index) {
                breach(found, Invariant::I1, format!("target {task}/{} is there twice", target.index));
            }
            if target.code == HANDLING {
                breach(found, Invariant::I1, format!("target {task}/{} never ended", target.index));
            }
        }
    }
    let mut terminal: HashMap<Operation, u32> = HashMap::new();
    for read in &history.reads {
        for target in read.targets.iter().flatten() {
            let operation = Operation::new(&read.task, target.index);
            match terminal.get(&operation) {
                Some(before) if *before != target.code => {
                    let what = format!("target {operation} ended with {before} and then read {}", target.code);
                    breach(found, Invariant::I1, what);
                }
                Some(_) => {}
                None if target.code == HANDLING => {}
                None => drop(terminal.insert(operation, target.code)),
            }
        }
    }
}

fn executed_once(history: &History, found: &mut Vec<Breach>) {
    let mut begun: BTreeMap<&Operation, usize> = BTreeMap::new();
    let mut ended: BTreeMap<&Operation, usize> = BTreeMap::new();
    for record in &history.hosts {
        match &record.what {
            HostEvent::Begun { operation } => *begun.entry(operation).or_default() += 1,
            HostEvent::Ended { operation, .. } => *ended.entry(operation).or_default() += 1,
            HostEvent::Connected { .. }
            | HostEvent::Assigned { .. }
            | HostEvent::Delivered { .. }
            | HostEvent::Acknowledged { .. }
            | HostEvent::Violated { .. }
            | HostEvent::Truncated => {}
        }
    }
    for (operation, count) in begun.iter().filter(|(_, count)| **count > 1) {
        breach(found, Invariant::I2, format!("operation {operation} was executed {count} times"));
    }
    for (operation, count) in ended.iter().filter(|(_, count)| **count > 1) {
        breach(found, Invariant::I2, format!("operation {operation} ended {count} times"));
    }
    if !history.has_all_executions {
        return;
    }
    for (operation, target) in final_targets(history) {
        if target.code == SUCCESS && !begun.contains_key(&operation) {
            breach(found, Invariant::I1, format!("target {operation} reads success, but nobody executed it"));
        }
    }
}

fn nothing_too_late(history: &History, found: &mut Vec<Breach>) {
    let mut deadlines: HashMap<&Operation, i64> = HashMap::new();
    let mut ended: HashSet<&Operation> = HashSet::new();
    let mut first_final: HashMap<Operation, i64> = HashMap::new();
    for read in &history.reads {
        for target in read.targets.iter().flatten().filter(|target| target.code != HANDLING) {
            first_final.entry(Operation::new(&read.task, target.index)).or_insert(read.at_ms);
        }
    }
    let last = final_targets(history);
    for record in &history.hosts {
        match &record.what {
            HostEvent::Delivered { operation, expires_in_ms } => {
                let deadline = record.at_ms.saturating_add_unsigned(*expires_in_ms);
                let latest = deadlines.entry(operation).or_insert(deadline);
                *latest = deadline.max(*latest);
            }
            HostEvent::Ended { operation, .. } => drop(ended.insert(operation)),
            HostEvent::Begun { operation } => {
                let mut late = |why: String| breach(found, Invariant::I3, format!("operation {operation} {why}"));
                if deadlines.get(operation).is_some_and(|deadline| record.at_ms > deadline + RECORDING_MS) {
                    late("was begun after its delivery had expired".to_owned());
                }
                if ended.contains(operation) {
                    late("was begun after it had ended, cancelled or not".to_owned());
                }
                if first_final.get(operation).is_some_and(|at| record.at_ms > at + RECORDING_MS) {
                    late("was begun after its target had been read as final".to_owned());
                }
                if let Some(target) = last.get(operation).filter(|target| says_nothing_was_done(target)) {
                    late(format!("was executed, but its target reads {} {}", target.code, target.message_id));
                }
            }
            HostEvent::Connected { .. }
            | HostEvent::Assigned { .. }
            | HostEvent::Acknowledged { .. }
            | HostEvent::Violated { .. }
            | HostEvent::Truncated => {}
        }
    }
}

fn says_nothing_was_done(target: &TargetRead) -> bool {
    NOTHING_DONE.contains(&target.code) || target.message_id == NOT_DELIVERED
}

fn accepted_is_readable(history: &History, found: &mut Vec<Breach>) {
    let mut by_key: BTreeMap<&str, &str> = BTreeMap::new();
    let read: HashSet<&str> = history.reads.iter().map(|read| read.task.as_str()).collect();
    for answer in &history.answers {
        let first = by_key.entry(&answer.key).or_insert(&answer.task);
        if *first != answer.task {
            let what = format!("key {} was answered with task {first} and then with {}", answer.key, answer.task);
            breach(found, Invariant::I4, what);
        }
        if !read.contains(answer.task.as_str()) {
            breach(found, Invariant::I4, format!("accepted task {} was never read", answer.task));
        }
    }
    let accepted: HashSet<&str> = history.answers.iter().map(|answer| answer.task.as_str()).collect();
    for read in history.reads.iter().filter(|read| accepted.contains(read.task.as_str())) {
        if read.targets.as_ref().is_none_or(Vec::is_empty) {
            breach(found, Invariant::I4, format!("accepted task {} is gone, or without targets", read.task));
        }
    }
}

fn nothing_goes_back(history: &History, found: &mut Vec<Breach>) {
    let mut epochs: HashMap<&str, u64> = HashMap::new();
    let mut assigned: HashMap<&str, u64> = HashMap::new();
    for record in &history.hosts {
        let (seen, now, name) = match &record.what {
            HostEvent::Connected { epoch } => (&mut epochs, *epoch, "session epoch"),
            HostEvent::Assigned { generation } => (&mut assigned, *generation, "assigned generation"),
            HostEvent::Delivered { .. }
            | HostEvent::Begun { .. }
            | HostEvent::Ended { .. }
            | HostEvent::Acknowledged { .. }
            | HostEvent::Violated { .. }
            | HostEvent::Truncated => continue,
        };
        if let Some(before) = seen.insert(&record.host, now).filter(|before| *before >= now) {
            breach(found, Invariant::I5, format!("{}: {name} {now} after {before}", record.host));
        }
    }
    let mut shown: HashMap<&str, u64> = HashMap::new();
    for read in &history.generations {
        let before = shown.insert(&read.process, read.generation);
        if let Some(before) = before.filter(|before| *before > read.generation) {
            let what = format!("{}: the API shows generation {} after {before}", read.process, read.generation);
            breach(found, Invariant::I5, what);
        }
    }
}

fn violations(history: &History, found: &mut Vec<Breach>) {
    for record in &history.hosts {
        match &record.what {
            HostEvent::Violated { promise } => {
                let invariant = if promise.contains("signature") {
                    Invariant::I6
                } else if promise.contains("rise") {
                    Invariant::I5
                } else if promise.contains("acknowledged") {
                    Invariant::I2
                } else {
                    Invariant::I3
                };
                breach(found, invariant, format!("{} noticed: {promise}", record.host));
            }
            HostEvent::Truncated => breach(found, Invariant::I2, "the record of the hosts is not complete".to_owned()),
            HostEvent::Connected { .. }
            | HostEvent::Assigned { .. }
            | HostEvent::Delivered { .. }
            | HostEvent::Begun { .. }
            | HostEvent::Ended { .. }
            | HostEvent::Acknowledged { .. } => {}
        }
    }
}

fn acknowledged_survives(history: &History, found: &mut Vec<Breach>) {
    let last = final_targets(history);
    let read: HashSet<&str> = history.reads.iter().map(|read| read.task.as_str()).collect();
    let mut codes: HashMap<&Operation, u32> = HashMap::new();
    for record in &history.hosts {
        match &record.what {
            HostEvent::Ended { operation, code } => drop(codes.insert(operation, *code)),
            HostEvent::Acknowledged { operation } => {
                let Some(code) = codes.get(operation).filter(|_| read.contains(operation.task.as_str())) else {
                    continue;
                };
                match last.get(operation) {
                    None => breach(found, Invariant::I7, format!("the acknowledged outcome of {operation} is gone")),
                    Some(target) if target.code == *code || is_ended_by_server(target) => {}
                    Some(target) => {
                        let what = format!("{operation} was acknowledged with {code}, but reads {}", target.code);
                        breach(found, Invariant::I7, what);
                    }
                }
            }
            HostEvent::Connected { .. }
            | HostEvent::Assigned { .. }
            | HostEvent::Delivered { .. }
            | HostEvent::Begun { .. }
            | HostEvent::Violated { .. }
            | HostEvent::Truncated => {}
        }
    }
}

fn is_ended_by_server(target: &TargetRead) -> bool {
    target.code == CANCELLED || ENDED_BY_SERVER.contains(&target.message_id.as_str())
}

fn memory_is_bounded(history: &History, found: &mut Vec<Breach>) {
    let mut peaks: BTreeMap<&str, u64> = BTreeMap::new();
    for sample in &history.memory {
        let peak = peaks.entry(&sample.program).or_default();
        *peak = sample.bytes.max(*peak);
    }
    for (program, peak) in peaks {
        match history.memory_bounds.get(program) {
            Some(bound) if peak > *bound => {
                breach(found, Invariant::I8, format!("{program} took {peak} bytes, more than {bound}"));
            }
            Some(_) => {}
            None => breach(found, Invariant::I8, format!("{program} has no bound of memory")),
        }
    }
}
