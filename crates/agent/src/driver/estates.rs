//! Forgotten processes, which may still be running or leave something behind.
//!
//! Promised: the next process of that name knows about them, even after a restart of the agent, as long as anything
//! of them is left.
//! Absent: ending anything; the machine of the next one decides that.

use std::time::Duration;

use proctor_host::Host;
use proctor_model::{Leftovers, ProcessKey};
use proctor_supervise::{Elder, Process, Time};

use super::limits::cgroup_name;
use super::{Driver, Input};

/// If it was not recorded when a process was forgotten: its commands had begun at least this long before the next
/// one's.
const LAUNCH_SLACK: Duration = Duration::from_secs(5);

/// How many are checked together for leftovers.
const SETTLED_AT_ONCE: usize = 256;

impl Driver {
    /// Takes in the machine of a process that is new here.
    pub(super) fn insert_new(&mut self, mut process: Process) {
        if let Some(elder) = self.remnants.take_estate(process.key()) {
            self.ledger.batch.estates.insert(process.key().clone(), None);
            process.inherit(elder);
        }
        self.processes.insert_new(process);
    }

    /// The process is about to be forgotten.
    pub(super) fn keep_estate(&mut self, key: &ProcessKey) {
        let now = self.now();
        if let Some(elder) = self.processes.get(key).and_then(|process| process.estate(now)) {
            self.ledger.batch.estates.insert(key.clone(), Some(elder.clone()));
            self.remnants.keep_estate(key.clone(), elder);
        }
    }

    /// Checks which forgotten processes have nothing left.
    pub(super) fn settle_estates(&self) {
        let over = self.remnants.estates().filter(|(_, elder)| !elder.all().any(|elder| lives(&self.host, elder)));
        let over: Vec<(ProcessKey, Elder)> = over.map(|(key, elder)| (key.clone(), elder.clone())).collect();
        if over.is_empty() {
            return;
        }
        let (host, inbox) = (self.host.clone(), self.workers.inbox().clone());
        self.workers.spawn("settle estates", async move {
            for some in over.chunks(SETTLED_AT_ONCE) {
                // Together, so that one pass over all processes counts for all of them.
                let counts = futures::future::join_all(some.iter().map(|(key, elder)| {
                    let remains = with_elders(None, elder.all());
                    let host = &host;
                    async move { host.count_remains(&cgroup_name(key), &remains?).await.ok() }
                }));
                for ((key, elder), count) in some.iter().zip(counts.await) {
                    if count == Some(0) {
                        let _ = inbox.send(Input::EstateSettled(key.clone(), elder.clone())).await;
                    }
                }
            }
        });
    }

    pub(super) fn estate_settled(&mut self, key: ProcessKey, elder: &Elder) {
        if self.remnants.settle_estate(&key, elder) {
            self.host.set_lives(&cgroup_name(&key), None, []);
            self.ledger.batch.estates.insert(key, None);
        }
    }
}

pub(super) fn lives(host: &Host, elder: &Elder) -> bool {
    elder.life.as_ref().is_some_and(|life| host.is_alive(life))
}

/// What is left of a process, and of earlier ones of its name.
pub(super) fn with_elders<'a>(
    remains: Option<Leftovers>,
    elders: impl IntoIterator<Item = &'a Elder>,
) -> Option<Leftovers> {
    let of_elder = |elder: &Elder| Leftovers {
        since: elder.since,
        launched: elder.launched,
        sessions: elder.sessions.clone(),
        spared: Vec::new(),
    };
    let older = elders.into_iter().map(of_elder);
    remains.into_iter().chain(older).reduce(|own, older| Leftovers {
        since: own.since.min(older.since),
        launched: own.launched && older.launched,
        sessions: own.sessions.into_iter().chain(older.sessions).collect(),
        spared: own.spared,
    })
}

/// From when to when those elders that live were given commands, in ticks since boot. `since` is when what came after
/// them began.
pub(super) fn commands_of(host: &Host, elders: &[&Elder], since: u64) -> Vec<(u64, u64)> {
    let until = |elder: &Elder| elder.until.map(|until| host.ticks(until.since(Time::default())));
    let spans = command_spans(elders, since, host.ticks(LAUNCH_SLACK), until);
    spans.zip(elders).filter(|(_, elder)| elder.launched && lives(host, elder)).map(|(span, _)| span).collect()
}

/// The same for each of them, the latest first. What claims to have been started before all of them is not theirs.
fn command_spans(
    elders: &[&Elder],
    since: u64,
    slack: u64,
    until: impl Fn(&Elder) -> Option<u64>,
) -> impl Iterator<Item = (u64, u64)> {
    let afterwards = std::iter::once(since).chain(elders.iter().map(|elder| elder.since));
    let next = afterwards.zip(elders);
    let ends: Vec<u64> = next.map(|(next, elder)| until(elder).unwrap_or_else(|| next.saturating_sub(slack))).collect();
    let before = ends.iter().skip(1).map(|end| end + 1).chain([0]);
    let begins: Vec<u64> = before
        .zip(&ends)
        .zip(elders)
        .map(|((before, end), elder)| {
            // A command is reported a moment before the kernel counts it.
            let own = elder.since.saturating_sub(slack);
            // Two are forgotten at the same moment: a run, and the process that it had started.
            if before > *end { own } else { before.max(own) }
        })
        .collect();
    begins.into_iter().zip(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_were_forgotten_at_the_same_moment_each_has_its_commands() {
        let elder = |since: u64| Elder {
            life: None,
            since,
            launched: true,
            sessions: Vec::new(),
            until: None,
            before: Vec::new(),
        };
        let (adopted, run) = (elder(3_200), elder(3_000));

        let spans: Vec<_> = command_spans(&[&adopted, &run], 9_000, 500, |_| Some(5_000)).collect();

        assert_eq!(spans, [(2_700, 5_000), (2_500, 5_000)]);
    }

    #[test]
    fn what_claims_to_be_older_than_an_elder_is_not_of_its_commands() {
        let elder = |since: u64| Elder {
            life: None,
            since,
            launched: true,
            sessions: Vec::new(),
            until: None,
            before: Vec::new(),
        };
        let (newer, older) = (elder(5_000), elder(3_000));

        let spans: Vec<_> = command_spans(&[&newer, &older], 9_000, 500, |_| None).collect();
        let until: Vec<_> = command_spans(&[&newer, &older], 9_000, 500, |of| Some(of.since + 100)).collect();

        assert_eq!(spans, [(4_501, 8_500), (2_500, 4_500)], "not from 0 on");
        assert_eq!(until, [(4_500, 5_100), (2_500, 3_100)]);
    }
}
