//! The machines of one host, without IO: events and the time go in, actions come out.
//!
//! Promised: the same events at the same times give the same actions; an operation that was
//! requested ends in exactly one [`Action::Finish`]; at most one command of a process runs at a
//! time; signals name the incarnation they are meant for.
//! Absent: clocks, threads, files, processes, randomness. `proctor_agent::driver` carries the
//! actions out and reports back.

mod process;
mod time;

pub use process::{Action, CommandKind, Event, Launch, Notice, Process, Record, Request, Ticket};
pub use time::Time;
