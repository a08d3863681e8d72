use serde::{Deserialize, Serialize};

/// A session that a life or a command has led. The kernel frees the number of a session only when nobody is in it
/// any more, and a process enters one only by birth: whatever has this number and began while the leader lived
/// belongs to this session, however long ago that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSession {
    /// The pid of the leader, which is the number of the session.
    pub leader: i32,
    /// When the leader began, in ticks since boot.
    pub start_ticks: u64,
    /// Until when the number is proven to have been in use, in milliseconds since boot: by the leader, or by a life
    /// in its session. 0 if nobody has seen that.
    pub until_ms: u64,
}

/// How to recognise what a finished life, or a failed start, has left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftovers {
    /// Nothing that began before this belongs to it, nor does anything that descends from that. In ticks since
    /// boot, as [`crate::Incarnation::start_ticks`].
    pub since: u64,
    /// Whether one of our commands started it, so that it is in the cgroup of the process if there is one.
    pub launched: bool,
    /// Sessions of its own.
    #[serde(default)]
    pub sessions: Vec<ProcessSession>,
    /// From when to when, inclusive, earlier lives that were unregistered and are still alive ran commands, in
    /// ticks since boot: what these have started is theirs, however young it is. Only together with `launched`.
    #[serde(skip)]
    pub spared: Vec<(u64, u64)>,
}
