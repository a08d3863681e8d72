use serde::{Deserialize, Serialize};

/// How what a life that is over, or a start that failed, has left behind is told from everything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftovers {
    /// Nothing that began before belongs to it, nor what descends from that. In ticks since boot, as
    /// [`crate::Incarnation::start_ticks`].
    pub since: u64,
    /// Whether a command of ours began it, so that it is in the cgroup of the process where there is one.
    pub launched: bool,
    /// Leaders of sessions of its own, pid and start. Only while their pids cannot have come round: not
    /// over a restart of the agent.
    #[serde(skip)]
    pub sessions: Vec<(i32, u64)>,
    /// From when to when, both included, earlier lives that were unregistered and live on were given commands, in
    /// ticks since boot: what these have started is theirs, however young it is. Only together with `launched`.
    #[serde(skip)]
    pub spared: Vec<(u64, u64)>,
}
