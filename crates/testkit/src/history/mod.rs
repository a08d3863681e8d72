//! The recorded history of a fleet under faults, and its judge.
//!
//! Promised: [`History::breaches`] is a pure function of the record. It finds every breach of these invariants that the
//! record shows:
//!
//! - I1 each target ends in exactly one terminal state
//! - I2 no operation is executed twice
//! - I3 nothing executes after its delivery has expired, or after its target was read as final (cancelled, too)
//! - I4 an accepted task id is readable, and a repeated submit with the same key is the same task
//! - I5 session epochs and generations never go backwards
//! - I6 nothing reaches an agent without a valid signature
//! - I7 an acknowledged result is what the target reads at the end
//! - I8 memory stays below its bound
//!
//! Absent: what was not recorded. An agent that is killed with its record is not judged.

mod check;
mod swarm_record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

pub use swarm_record::read_swarm_record;

/// The target has no outcome yet.
pub const HANDLING: u32 = 115;

/// An operation, by its task and the target's index in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    pub task: String,
    pub index: u32,
}

impl Operation {
    pub fn new(task: impl Into<String>, index: u32) -> Self {
        Self { task: task.into(), index }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.task, self.index)
    }
}

/// One answer to a submit; an unanswered submit leaves none.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The idempotency key that the client sent.
    pub key: String,
    pub task: String,
}

/// What a task's targets read at one moment; None: the server says that there is no such task.
#[derive(Clone, Debug)]
pub struct TaskRead {
    /// When the answer had come.
    pub at_ms: i64,
    pub task: String,
    pub targets: Option<Vec<TargetRead>>,
}

#[derive(Clone, Debug)]
pub struct TargetRead {
    pub index: u32,
    pub code: u32,
    /// Empty where the message has no id.
    pub message_id: String,
}

/// Something that happened on a host.
#[derive(Clone, Debug)]
pub struct HostRecord {
    pub at_ms: i64,
    pub host: String,
    pub what: HostEvent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    Connected {
        epoch: u64,
    },
    Assigned {
        generation: u64,
    },
    Delivered {
        operation: Operation,
        expires_in_ms: u64,
    },
    /// The command of the operation was started.
    Begun {
        operation: Operation,
    },
    Ended {
        operation: Operation,
        code: u32,
    },
    Acknowledged {
        operation: Operation,
    },
    /// A violation that the simulated agent found itself.
    Violated {
        promise: String,
    },
    /// The record is incomplete.
    Truncated,
}

/// The generation of a registration, as the API showed it.
#[derive(Clone, Debug)]
pub struct GenerationRead {
    pub process: String,
    pub generation: u64,
}

#[derive(Clone, Debug)]
pub struct MemorySample {
    pub program: String,
    pub bytes: u64,
}

/// Everything that was recorded; each list in order of time.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub answers: Vec<Answer>,
    pub reads: Vec<TaskRead>,
    pub hosts: Vec<HostRecord>,
    pub generations: Vec<GenerationRead>,
    pub memory: Vec<MemorySample>,
    /// In bytes, for each program with samples.
    pub memory_bounds: BTreeMap<String, u64>,
    /// Whether `hosts` records everything that was executed; if so, a success that nobody executed is a breach.
    pub has_all_executions: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
}

/// An invariant that did not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub invariant: Invariant,
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

impl History {
    /// All breaches that the record shows.
    pub fn breaches(&self) -> Vec<Breach> {
        check::breaches(self)
    }

    /// # Panics
    /// With the breaches, if there are any.
    pub fn assert_holds(&self) {
        let breaches = self.breaches();
        assert!(breaches.is_empty(), "{}", first_lines(&breaches));
    }

    /// One line for people: how much was judged.
    pub fn summary(&self) -> String {
        let mut codes: BTreeMap<u32, usize> = BTreeMap::new();
        let mut last: BTreeMap<&str, &TaskRead> = BTreeMap::new();
        for read in &self.reads {
            last.insert(&read.task, read);
        }
        for target in last.values().filter_map(|read| read.targets.as_ref()).flatten() {
            *codes.entry(target.code).or_default() += 1;
        }
        let codes: Vec<String> = codes.iter().map(|(code, count)| format!("{count} with code {code}")).collect();
        let begun = self.hosts.iter().filter(|record| matches!(record.what, HostEvent::Begun { .. })).count();
        format!("{} tasks, targets: {}, {begun} executions", last.len(), codes.join(", "))
    }
}

/// As many as a person reads.
pub fn first_lines(breaches: &[Breach]) -> String {
    const SHOWN_MAX: usize = 10;
    let mut lines: Vec<String> = breaches.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    if breaches.len() > SHOWN_MAX {
        lines.push(format!("and {} more", breaches.len() - SHOWN_MAX));
    }
    lines.join("\n")
}
