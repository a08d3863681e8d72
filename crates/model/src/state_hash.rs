//! Hashes of what an agent has, so that two ends that agree send nothing.
//!
//! Promised: the bytes depend only on the values, not on their order, and are the same in every version: agents and
//! servers of different versions compare them. A change of what is hashed needs another purpose, so that two
//! versions that hash differently never agree, and send everything. Usage is not included. Absent: secrecy; whoever
//! knows the values can compute the hash, so a hash proves nothing about who holds them.

use crate::{Namespace, PoolId, ProcessKey, Snapshot};

const HASH_BYTES: usize = 16;

/// What is hashed, and how; never reused for anything else.
const PURPOSE_ASSIGNED: &[u8] = b"proctor assigned 1";
const PURPOSE_OBSERVED: &[u8] = b"proctor observed 1";
const PURPOSE_PROCESS: &[u8] = b"proctor process 1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateHash([u8; HASH_BYTES]);

/// What an agent has, sent when it opens a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentState {
    /// See [`StateHash::of_assigned`].
    pub assigned: StateHash,
    /// See [`StateHash::of_observed`].
    pub observed: StateHash,
}

/// A process of a host with a 64-bit number.
type Numbered<'a> = (&'a str, &'a str, u64);

impl StateHash {
    /// Of everything that is registered on a host, by name and generation: processes, and pools that limit
    /// something. (To an agent, a pool that limits nothing is a deleted one.)
    pub fn of_assigned<'a>(
        processes: impl IntoIterator<Item = Numbered<'a>>,
        pools: impl IntoIterator<Item = Numbered<'a>>,
    ) -> Self {
        let mut hash = Hasher::new(PURPOSE_ASSIGNED);
        for list in [sorted(processes), sorted(pools)] {
            hash.number(list.len() as u64);
            for (namespace, name, generation) in list {
                hash.text(namespace);
                hash.text(name);
                hash.number(generation);
            }
        }
        hash.end()
    }

    /// Of every registered process of a host, with [`Snapshot::digest`] and whether it is managed.
    pub fn of_observed<'a>(processes: impl IntoIterator<Item = (Numbered<'a>, bool)>) -> Self {
        let mut processes: Vec<_> = processes.into_iter().collect();
        processes.sort_unstable();
        let mut hash = Hasher::new(PURPOSE_OBSERVED);
        hash.number(processes.len() as u64);
        for ((namespace, name, digest), managed) in processes {
            hash.text(namespace);
            hash.text(name);
            hash.number(digest);
            hash.number(u64::from(managed));
        }
        hash.end()
    }

    /// None for bytes that are not a hash.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn sorted<'a>(list: impl IntoIterator<Item = Numbered<'a>>) -> Vec<Numbered<'a>> {
    let mut list: Vec<_> = list.into_iter().collect();
    list.sort_unstable();
    list
}

impl ProcessKey {
    /// For [`StateHash`].
    pub fn numbered(&self, number: u64) -> (&str, &str, u64) {
        (self.namespace.as_str(), self.name.as_str(), number)
    }
}

impl PoolId {
    /// For [`StateHash`].
    pub fn numbered<'a>(&'a self, namespace: &'a Namespace, number: u64) -> (&'a str, &'a str, u64) {
        (namespace.as_str(), self.as_str(), number)
    }
}

impl Snapshot {
    /// Of everything except usage and its command line, the time of the report, and whether the process is managed,
    /// which an operation may have reported since.
    pub fn digest(&self) -> u64 {
        let Self {
            phase,
            managed: _,
            pid,
            usage: _,
            version,
            health,
            started_at,
            registered_at,
            reported_at: _,
            restarts,
            reason,
            // Equivalent.
            reason_phrase: _,
            next_run_at,
            utc_offset_secs,
        } = self;
        let mut hash = Hasher::new(PURPOSE_PROCESS);
        for text in [phase.as_str(), version, health, reason] {
            hash.text(text);
        }
        let pid = pid.map_or(-1, i64::from);
        for number in
            [pid, *started_at, *registered_at, i64::from(*restarts), *next_run_at, i64::from(*utc_offset_secs)]
        {
            hash.number(number.cast_unsigned());
        }
        let StateHash(bytes) = hash.end();
        let (first, _) = bytes.split_first_chunk().expect("a hash has more than eight bytes");
        u64::from_le_bytes(*first)
    }
}

struct Hasher(blake3::Hasher);

impl Hasher {
    fn new(purpose: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(purpose);
        Self(hasher)
    }

    /// Length-prefixed, so that no two lists of texts look alike.
    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn end(self) -> StateHash {
        let whole = self.0.finalize();
        let (first, _) = whole.as_bytes().split_first_chunk().expect("a whole hash is longer");
        StateHash(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Phase, Usage, messages};

    fn snapshot() -> Snapshot {
        Snapshot {
            phase: Phase::Running,
            pid: Some(7),
            version: "1.2".to_owned(),
            health: "ok".to_owned(),
            started_at: 10,
            registered_at: 5,
            reported_at: 20,
            restarts: 1,
            utc_offset_secs: 3600,
            ..Snapshot::default()
        }
    }

    /// Other versions compare with these.
    #[test]
    fn hashes_are_the_same_in_every_version() {
        let assigned = StateHash::of_assigned([("web", "a", 3), ("web", "b", 4)], [("web", "small", 5)]);
        let observed = StateHash::of_observed([(("web", "a", 1), true)]);

        let hex = |hash: StateHash| hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(assigned), "120ccc2e76b064b712c9b4676e5d616e");
        assert_eq!(hex(observed), "161fddd24389af2398057a3c4dd3ec1d");
        assert_eq!(format!("{:016x}", snapshot().digest()), "24aa56fe6b4d5068");
    }

    #[test]
    fn the_order_does_not_matter_and_everything_else_does() {
        let assigned = StateHash::of_assigned([("web", "a", 3), ("web", "b", 4)], [("web", "p", 5)]);

        assert_eq!(StateHash::of_assigned([("web", "b", 4), ("web", "a", 3)], [("web", "p", 5)]), assigned);
        let others = [
            StateHash::of_assigned([("web", "a", 3)], [("web", "p", 5)]),
            StateHash::of_assigned([("web", "a", 3), ("web", "b", 9)], [("web", "p", 5)]),
            StateHash::of_assigned([("web", "a", 3), ("webb", "", 4)], [("web", "p", 5)]),
            StateHash::of_assigned([("web", "a", 3), ("web", "b", 4), ("web", "p", 5)], []),
            StateHash::of_assigned([("web", "a", 3), ("web", "b", 4)], [("web", "p", 6)]),
        ];
        assert!(others.iter().all(|other| *other != assigned), "{others:?}");
        let observed = StateHash::of_observed([(("web", "a", 1), true)]);
        assert_ne!(observed, StateHash::of_observed([(("web", "a", 1), false)]));
        assert_ne!(observed, StateHash::of_observed([(("web", "a", 2), true)]));
        assert_ne!(StateHash::of_observed([]), StateHash::of_assigned([], []));
    }

    #[test]
    fn a_digest_is_of_all_but_usage_report_time_and_management() {
        let same: [fn(&mut Snapshot); 3] = [
            |it| it.usage = Usage { cpu_percent: 4.0, command_line: "web".to_owned(), ..Usage::default() },
            |it| it.reported_at = 99,
            |it| it.managed = true,
        ];
        for change in same {
            let mut changed = snapshot();
            change(&mut changed);
            assert_eq!(changed.digest(), snapshot().digest());
        }
        let others: [fn(&mut Snapshot); 10] = [
            |it| it.phase = Phase::Stopped,
            |it| it.pid = None,
            |it| it.version = "1".to_owned(),
            |it| it.health = String::new(),
            |it| it.started_at = 11,
            |it| it.registered_at = 6,
            |it| it.restarts = 2,
            |it| it.set_reason(messages::no_pid_file("/run/a.pid")),
            |it| it.next_run_at = 1,
            |it| it.utc_offset_secs = 0,
        ];
        for (number, change) in others.into_iter().enumerate() {
            let mut changed = snapshot();
            change(&mut changed);
            assert_ne!(changed.digest(), snapshot().digest(), "change {number}");
        }
    }
}
