//! What a host reports about a process or a command.

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Message, messages};

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    Running(Incarnation),
    /// Its pid file names a process that is dead, with the reason for people.
    Dead {
        pid: i32,
        reason: Message,
    },
    /// Not running, with the reason for people: `no pid file /run/x.pid`.
    Absent(Message),
    /// Unclear whether it is running, with the reason for people: `pid file /run/x.pid cannot be read`.
    Unclear {
        reason: Message,
        /// The life that the pid file names, if only the age of the file is in doubt.
        named: Option<Incarnation>,
    },
}

/// How a process exited, if the kernel says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// In a sentence.
    pub fn message(self) -> Message {
        match self {
            Self::Code(code) => messages::exit_code(code),
            Self::Signal(signal) => messages::exit_signal(signal),
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandResult {
    Exited(Exit),
    /// Killed with its tree on timeout.
    TimedOut,
    /// Killed with its tree, because it was no longer wanted.
    Cancelled,
    /// It exited, but nobody saw how: the agent was away, and the kernel does not say.
    ExitUnknown,
    /// Never ran, because too many others did; may be retried soon.
    NoSlot,
    /// Never ran, with the reason: unknown user, missing setup_path, no more processes.
    NotStarted(String),
}

/// The exit of a command: how, and its output (bounded, head and tail).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandExit {
    pub result: CommandResult,
    pub output: String,
}

/// The signals that supervision sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Kill,
}
