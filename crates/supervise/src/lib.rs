//! The state machines of one host, without IO: events and the time go in, actions come out.
//!
//! Promised: the same events at the same times give the same actions; an operation that was
//! requested ends in exactly one [`Action::Finish`]; at most one command of a process runs at a
//! time; signals name the incarnation they are meant for.
//! Absent: clocks, threads, files, processes, randomness. `proctor_agent::driver` carries the
//! actions out and reports back.
//!
//! Start at `process` (its table is `Process::handle`), then `pool`, `schedule` and `limit`.

mod limit;
mod pool;
mod process;
mod schedule;
mod threshold;
mod time;

pub use limit::{Breach, LimitJudge, Sample};
pub use pool::{Member, PoolAction, PoolEvent, PoolMachine, PoolWarning, Ranked, is_member};
pub use process::{
    Action, CommandKind, Elder, Event, HealthState, Instance, Launch, LimitBreach, Notice, PoolBreach, Process, Record,
    RecordState, Registration, Request, RunningCommand, Ticket,
};
pub use schedule::{Due, Schedule, ScheduleMachine, spread};
pub use threshold::Resource;
pub use time::Time;
