//! The newest usage of the processes of one session, in memory.
//!
//! Promised: an observation that differs from the stored one only in its usage costs no write, even after a server
//! restart, when every agent reports everything: the first report of a session is compared with the store. Readers
//! still get the newest usage; a report that an agent makes before it has measured does not clear any. What lists are
//! sorted by is stored when it has changed by more than a fifth, and everything once an hour.
//! Absent: history, which is not kept here, and usage of hosts that are not connected, for which the store has the
//! last written values.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;
use proctor_model::{ProcessKey, Snapshot, Usage};
use proctor_store::Observation;

/// An unchanged process is written again after so long, in seconds of the host's clock.
const REWRITE_AFTER: u64 = 3600;
/// Percentage points, and a share of the stored value: usage that moved less is not worth a write.
const POINTS_MIN: f64 = 0.5;
const SHARE_MIN: f64 = 0.2;

#[derive(Debug, Default)]
pub(super) struct NewestUsage {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_process: HashMap<ProcessKey, Known>,
    /// Counts what was forgotten, so that a write from before does not count as stored.
    forgotten: u64,
    /// What the store had when the session began is here, or of no use any more.
    is_read: bool,
}

/// What the store has of a process, and its newest usage.
#[derive(Debug)]
struct Known {
    /// Of all that is not usage, and not measured with it: what changes it is written, and so the store's hash of the host
    /// becomes that of its agent.
    digest: (u64, bool),
    command_line: u64,
    stored: Stored,
    /// Without its command line, which is the stored one.
    usage: Usage,
    reported_at: i64,
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    cpu: f64,
    memory: f64,
    at: i64,
}

/// What the store has is to be read, and counts if nothing was forgotten meanwhile.
#[derive(Debug)]
pub(super) struct ToRead {
    forgotten: u64,
}

/// Observations that the store must learn of.
#[derive(Debug)]
pub(super) struct ToStore {
    pub(super) observations: Vec<Observation>,
    forgotten: u64,
}

impl NewestUsage {
    /// Once a session, before its first report.
    pub(super) fn begin_reading(&self) -> Option<ToRead> {
        let mut state = self.state.lock();
        let is_read = std::mem::replace(&mut state.is_read, true);
        (!is_read).then_some(ToRead { forgotten: state.forgotten })
    }

    /// The store has these since before the session.
    pub(super) fn read(&self, ToRead { forgotten }: ToRead, observations: Vec<Observation>) {
        let mut state = self.state.lock();
        if state.forgotten == forgotten {
            let known = observations.into_iter().map(|Observation { key, snapshot }| (key, Known::new(snapshot)));
            state.by_process.extend(known);
        }
    }

    /// Keeps the usage of what has not changed otherwise, and returns the rest. A reading that is not finite is
    /// ignored.
    pub(super) fn sift(&self, mut observations: Vec<Observation>) -> ToStore {
        for Observation { snapshot: Snapshot { usage, .. }, .. } in &mut observations {
            for number in [&mut usage.cpu_percent, &mut usage.cpu_percent_average, &mut usage.memory_percent] {
                *number = if number.is_finite() { *number } else { 0.0 };
            }
        }
        let mut state = self.state.lock();
        observations.retain(|Observation { key, snapshot }| match state.by_process.get_mut(key) {
            Some(known) if known.is_stored(snapshot) => {
                known.see(snapshot);
                false
            }
            Some(_) | None => true,
        });
        ToStore { observations, forgotten: state.forgotten }
    }

    /// The store has these now; `is_kept` says for each whether it is registered.
    pub(super) fn stored(&self, ToStore { observations, forgotten }: ToStore, is_kept: &[bool]) {
        let mut state = self.state.lock();
        if state.forgotten != forgotten {
            return state.doubt(&observations);
        }
        for (Observation { key, snapshot }, is_kept) in observations.into_iter().zip(is_kept) {
            if *is_kept {
                state.by_process.insert(key, Known::new(snapshot));
            } else {
                state.by_process.remove(&key);
            }
        }
    }

    /// It is not known whether the store has these: the next observations of their processes are written.
    pub(super) fn not_stored(&self, ToStore { observations, .. }: &ToStore) {
        self.state.lock().doubt(observations);
    }

    /// Something else has changed the host in the store: the next observations are written.
    pub(super) fn forget_all(&self) {
        let mut state = self.state.lock();
        state.forgotten += 1;
        state.is_read = true;
        state.by_process = HashMap::new();
    }

    /// As [`Self::forget_all`], of one process; its newest usage stays known.
    pub(super) fn forget(&self, key: &ProcessKey) {
        let mut state = self.state.lock();
        state.forgotten += 1;
        state.is_read = true;
        state.doubt_one(key);
    }

    /// Replaces the stored usage by the newest.
    pub(super) fn refresh(&self, key: &ProcessKey, snapshot: &mut Snapshot) {
        if let Some(known) = self.state.lock().by_process.get(key) {
            let command_line = std::mem::take(&mut snapshot.usage.command_line);
            snapshot.usage = Usage { command_line, ..known.usage.clone() };
            snapshot.reported_at = known.reported_at;
        }
    }
}

impl State {
    fn doubt(&mut self, observations: &[Observation]) {
        observations.iter().for_each(|observation| self.doubt_one(&observation.key));
    }

    fn doubt_one(&mut self, key: &ProcessKey) {
        if let Some(known) = self.by_process.get_mut(key) {
            known.stored.at = i64::MIN;
        }
    }
}

impl Known {
    fn new(mut snapshot: Snapshot) -> Self {
        let (digest, command_line) = (digest(&snapshot), hash(&snapshot.usage.command_line));
        snapshot.usage.command_line = String::new();
        let Snapshot { usage, reported_at, .. } = snapshot;
        let stored = Stored { cpu: usage.cpu_percent, memory: usage.memory_percent, at: reported_at };
        Self { digest, command_line, stored, usage, reported_at }
    }

    fn is_stored(&self, snapshot: &Snapshot) -> bool {
        let (Stored { cpu, memory, at }, usage) = (self.stored, &snapshot.usage);
        let is_same = at.abs_diff(snapshot.reported_at) < REWRITE_AFTER && self.digest == digest(snapshot);
        let is_near = || {
            is_near(cpu, usage.cpu_percent)
                && is_near(memory, usage.memory_percent)
                && self.command_line == hash(&usage.command_line)
        };
        is_same && (is_unmeasured(snapshot) || is_near())
    }

    fn see(&mut self, snapshot: &Snapshot) {
        let usage = &snapshot.usage;
        if !is_unmeasured(snapshot) {
            self.usage = Usage { command_line: String::new(), state: usage.state.clone(), ..*usage };
        }
        self.reported_at = snapshot.reported_at;
    }
}

fn is_near(stored: f64, newest: f64) -> bool {
    (stored - newest).abs() <= POINTS_MIN + SHARE_MIN * stored.abs()
}

/// At the beginning of a session an agent reports its processes before it has measured them.
fn is_unmeasured(snapshot: &Snapshot) -> bool {
    snapshot.pid.is_some() && snapshot.usage == Usage::default()
}

fn digest(snapshot: &Snapshot) -> (u64, bool) {
    (snapshot.digest(), snapshot.managed)
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proctor_model::Phase;

    use super::*;

    fn key() -> ProcessKey {
        ProcessKey::new("ns".parse().unwrap(), "web".parse().unwrap())
    }

    fn observation(change: impl FnOnce(&mut Snapshot)) -> Observation {
        let mut snapshot = Snapshot { phase: Phase::Running, pid: Some(7), reported_at: 1000, ..Snapshot::default() };
        snapshot.usage.cpu_percent = 10.0;
        snapshot.usage.command_line = "web --port 80".to_owned();
        change(&mut snapshot);
        Observation { key: key(), snapshot }
    }

    fn known() -> NewestUsage {
        let usage = NewestUsage::default();
        let first = usage.sift(vec![observation(|_| {})]);
        assert_eq!(first.observations.len(), 1);
        usage.stored(first, &[true]);
        usage
    }

    fn is_written(usage: &NewestUsage, change: impl FnOnce(&mut Snapshot)) -> bool {
        !usage.sift(vec![observation(change)]).observations.is_empty()
    }

    #[test]
    fn usage_alone_is_not_written_and_is_what_readers_get() {
        let usage = known();
        let newest = |snapshot: &mut Snapshot| {
            snapshot.usage.cpu_percent = 11.0;
            snapshot.usage.user_ticks = 99;
            snapshot.reported_at = 1060;
        };

        assert!(!is_written(&usage, newest));

        let mut stored = observation(|_| {}).snapshot;
        usage.refresh(&key(), &mut stored);
        assert_eq!(stored, observation(newest).snapshot);
    }

    #[test]
    fn everything_else_is_written() {
        let changes: [fn(&mut Snapshot); 9] = [
            |snapshot| snapshot.phase = Phase::Stopped,
            |snapshot| snapshot.managed = true,
            |snapshot| snapshot.pid = Some(8),
            |snapshot| snapshot.health = "ill".to_owned(),
            |snapshot| snapshot.version = "2".to_owned(),
            |snapshot| snapshot.restarts = 1,
            |snapshot| snapshot.usage.cpu_percent = 13.0,
            |snapshot| snapshot.usage.command_line = "web --port 81".to_owned(),
            |snapshot| snapshot.reported_at += 3600,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert!(is_written(&known(), change), "change {index}");
        }
    }

    #[test]
    fn a_report_from_before_a_measurement_takes_no_usage_away() {
        let usage = known();
        let unmeasured = |snapshot: &mut Snapshot| {
            snapshot.usage = Usage::default();
            snapshot.reported_at = 1060;
        };

        assert!(!is_written(&usage, unmeasured));

        let mut stored = observation(|_| {}).snapshot;
        usage.refresh(&key(), &mut stored);
        assert_eq!(stored, observation(|snapshot| snapshot.reported_at = 1060).snapshot);
        assert!(is_written(&usage, |snapshot| {
            unmeasured(snapshot);
            snapshot.pid = Some(8);
        }));
    }

    #[test]
    fn what_the_store_had_before_the_session_is_not_written_again() {
        let usage = NewestUsage::default();
        let reading = usage.begin_reading().expect("nothing is known yet");
        usage.read(reading, vec![observation(|_| {})]);

        assert!(usage.begin_reading().is_none(), "once is enough");
        assert!(!is_written(&usage, |snapshot| snapshot.reported_at = 1060));
        assert!(is_written(&usage, |snapshot| snapshot.phase = Phase::Stopped));
    }

    #[test]
    fn what_was_read_while_somebody_changed_it_counts_for_nothing() {
        let forgets: [fn(&NewestUsage); 2] = [NewestUsage::forget_all, |usage| usage.forget(&key())];
        for forget in forgets {
            let usage = NewestUsage::default();
            let reading = usage.begin_reading().unwrap();
            forget(&usage);
            usage.read(reading, vec![observation(|_| {})]);

            assert!(is_written(&usage, |_| {}));
        }
    }

    #[test]
    fn a_reading_that_is_no_number_reaches_no_reader() {
        let usage = known();

        assert!(!is_written(&usage, |snapshot| snapshot.usage.memory_percent = f64::NAN));

        let mut stored = observation(|_| {}).snapshot;
        usage.refresh(&key(), &mut stored);
        assert!(stored.usage.memory_percent == 0.0, "{stored:?}");
    }

    #[test]
    fn what_is_not_registered_is_not_kept() {
        let usage = known();
        let changed = usage.sift(vec![observation(|snapshot| snapshot.pid = None)]);
        usage.stored(changed, &[false]);

        assert!(is_written(&usage, |_| {}));
        assert!(usage.state.lock().by_process.is_empty());
    }

    #[test]
    fn a_change_by_others_during_a_write_makes_the_next_one_write_too() {
        let forgets: [fn(&NewestUsage); 2] = [NewestUsage::forget_all, |usage| usage.forget(&key())];
        for forget in forgets {
            let usage = NewestUsage::default();
            let writing = usage.sift(vec![observation(|_| {})]);
            forget(&usage);
            usage.stored(writing, &[true]);

            assert!(is_written(&usage, |_| {}));
        }
    }

    #[test]
    fn a_write_of_which_nothing_is_known_makes_a_return_to_what_was_stored_before_be_written() {
        let other = ProcessKey::new("ns".parse().unwrap(), "other".parse().unwrap());
        let outcomes: [fn(&NewestUsage, ToStore); 2] =
            [|usage, writing| usage.stored(writing, &[true]), |usage, writing| usage.not_stored(&writing)];
        for outcome in outcomes {
            let usage = known();
            let writing = usage.sift(vec![observation(|snapshot| snapshot.phase = Phase::Stopped)]);
            usage.forget(&other);
            outcome(&usage, writing);

            assert!(is_written(&usage, |_| {}));
        }
    }

    #[test]
    fn a_process_that_somebody_changed_is_written_and_its_usage_stays_known() {
        let usage = known();
        assert!(!is_written(&usage, |snapshot| snapshot.reported_at = 1060));

        usage.forget(&key());

        let mut stored = observation(|_| {}).snapshot;
        usage.refresh(&key(), &mut stored);
        assert_eq!(stored.reported_at, 1060);
        assert!(is_written(&usage, |_| {}));
    }
}
