//! What a process tree uses of this machine, for display.
//!
//! Promised: it is measured as for limits ([`crate::sampler`]); percentages are of the whole machine, never above
//! 100; memory is what the tree has to itself, without shared pages and page cache.
//! Absent: descendants that were born within the last second.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{Incarnation, Usage};
use tokio::sync::oneshot;

use crate::cgroup::Leaf;
use crate::foreign_memory::{ForeignMemory, Patience};
use crate::pidfd::Process;
use crate::procfs::{self, Stat};
use crate::sampler::Sampler;
use crate::tree::ProcessRef;

/// Requests that are measured together: the first do not wait for all the others.
const MEASURED_AT_ONCE: usize = 64;

/// What the kernel counts in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub(crate) ticks_per_second: u64,
    pub(crate) page_bytes: u64,
}

impl Units {
    pub(crate) fn read() -> Self {
        Self {
            ticks_per_second: setting(libc::_SC_CLK_TCK).unwrap_or(100),
            page_bytes: setting(libc::_SC_PAGESIZE).unwrap_or(4096),
        }
    }

    /// When a life began, which the kernel tells in ticks since boot.
    pub(crate) fn since_boot(&self, start_ticks: u64) -> Duration {
        let (seconds, rest) = (start_ticks / self.ticks_per_second, start_ticks % self.ticks_per_second);
        Duration::from_secs(seconds) + Duration::from_secs(rest) / u32::try_from(self.ticks_per_second).unwrap_or(100)
    }
}

/// A life whose usage is requested, and what belongs to it.
#[derive(Clone, Debug)]
pub struct MeasuredLife {
    pub life: Incarnation,
    /// Where its commands were started.
    pub leaf: Leaf,
    /// What is in the leaf and began before is not charged to it; see [`Sampler::track_in`].
    pub since: Option<u64>,
}

/// Measures usage, in the same way as for limits.
#[derive(Debug)]
pub(crate) struct Meter {
    units: Units,
    memory_bytes: u64,
    sampler: Mutex<Sampler>,
    memory: ForeignMemory,
    command_lines: CommandLines,
    requested: Mutex<Requested>,
}

/// What is requested while something is being measured, and measured next, all of it together.
#[derive(Debug, Default)]
struct Requested {
    waiting: Vec<Request>,
    /// Whether somebody measures.
    is_served: bool,
}

type Request = (MeasuredLife, oneshot::Sender<Option<Usage>>);

/// As last read, even by an abandoned reader.
type CommandLines = Arc<Mutex<HashMap<ProcessRef, String>>>;

impl Meter {
    pub(crate) fn new(sampler: Sampler, memory: ForeignMemory) -> Self {
        let memory_bytes = procfs::memory_bytes().unwrap_or(0);
        let (sampler, command_lines) = (Mutex::new(sampler), CommandLines::default());
        Self { units: Units::read(), memory_bytes, sampler, memory, command_lines, requested: Mutex::default() }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Since boot, when a life began.
    pub(crate) fn start(&self, life: &Incarnation) -> Duration {
        self.units.since_boot(life.start_ticks)
    }

    /// Requests the usage of one life and its descendants. The second value is what must be run on a thread to get
    /// it; None: somebody measures already.
    pub(crate) fn request(self: &Arc<Self>, of: MeasuredLife) -> (oneshot::Receiver<Option<Usage>>, Option<Measuring>) {
        let (answer, answered) = oneshot::channel();
        let mut requested = self.requested.lock();
        requested.waiting.push((of, answer));
        let is_served = std::mem::replace(&mut requested.is_served, true);
        (answered, (!is_served).then(|| Measuring { meter: Arc::clone(self), is_over: false }))
    }

    fn measure(&self, of: &MeasuredLife, now: Duration) -> Option<Usage> {
        let MeasuredLife { life, leaf, since } = of;
        let stat = living(life)?;
        let mut sampler = self.sampler.lock();
        let is_tracked = sampler.track_in(life, leaf, *since);
        let sample = is_tracked.then(|| sampler.sample_with_descriptors(life, now)).flatten();
        drop(sampler);
        let Some(sample) = sample else { return Some(self.describe_alone(life, &stat, now)) };
        Some(Usage {
            cpu_percent: sample.cpu_percent,
            cpu_percent_average: sample.cpu_percent_average,
            memory_percent: sample.memory_percent,
            memory_bytes: sample.memory_bytes,
            fds: sample.fds.unwrap_or(0),
            ..self.describe(life, &stat, now)
        })
    }

    /// Of one life without its descendants, if it was not measured before: cheap, and enough for one that has
    /// just begun. Its command line is the one that was read last.
    pub(crate) fn usage_alone(&self, of: &MeasuredLife, now: Duration) -> Option<Usage> {
        if self.sampler.lock().is_tracked(&of.life) {
            return self.measure(of, now);
        }
        Some(self.describe_alone(&of.life, &living(&of.life)?, now))
    }

    /// Of many lives; all that run, so that others are forgotten.
    pub(crate) fn usages(&self, all: &[MeasuredLife], now: Duration) -> Vec<Option<Usage>> {
        let known: Vec<Incarnation> = all.iter().map(|one| one.life.clone()).collect();
        self.sampler.lock().retain(&known);
        let members: HashSet<ProcessRef> = known.iter().map(ProcessRef::of).collect();
        self.command_lines.lock().retain(|of, _| members.contains(of));
        self.read_command_lines(members.into_iter().collect(), Patience::THREAD);
        all.iter().map(|one| self.measure(one, now)).collect()
    }

    /// Reads the command lines that are not known yet. For the driver: returns soon, whoever is silent.
    pub(crate) fn note_command_lines<'a>(&self, lives: impl Iterator<Item = &'a Incarnation>) {
        let mut unknown: Vec<ProcessRef> = lives.map(ProcessRef::of).collect();
        {
            let known = self.command_lines.lock();
            unknown.retain(|member| !known.contains_key(member));
        }
        self.read_command_lines(unknown, Patience::DRIVER);
    }

    /// If one cannot be read, what was read before is kept.
    fn read_command_lines(&self, members: Vec<ProcessRef>, patience: Patience) {
        let command_lines = Arc::clone(&self.command_lines);
        let read = move |member: ProcessRef| {
            let line = procfs::arguments(member.pid).join(" ");
            // Empty for one that has just ended.
            if !line.is_empty() {
                command_lines.lock().insert(member, line);
            }
        };
        if let Err(error) = self.memory.read_each(members, patience, read) {
            tracing::warn!(%error, "cannot read command lines of processes");
        }
    }

    fn command_line(&self, life: &Incarnation) -> String {
        self.command_lines.lock().get(&ProcessRef::of(life)).cloned().unwrap_or_default()
    }

    /// What the kernel says of the process itself.
    fn describe_alone(&self, life: &Incarnation, stat: &Stat, now: Duration) -> Usage {
        let pages = procfs::private_pages(life.pid).unwrap_or(0);
        let memory_bytes = pages.saturating_mul(self.units.page_bytes);
        let memory_percent = percent(memory_bytes as f64, self.memory_bytes as f64);
        Usage { memory_percent, memory_bytes, ..self.describe(life, stat, now) }
    }

    /// The same without its memory.
    fn describe(&self, life: &Incarnation, stat: &Stat, now: Duration) -> Usage {
        let elapsed = now.saturating_sub(self.start(life));
        let whole = elapsed.as_secs_f64() * self.units.ticks_per_second as f64 * f64::from(cpus());
        let average = percent(stat.ticks() as f64, whole);
        Usage {
            cpu_percent: average,
            cpu_percent_average: average,
            memory_percent: 0.0,
            memory_bytes: 0,
            threads: stat.threads,
            state: stat.state.to_string(),
            command_line: self.command_line(life),
            user_ticks: stat.user_ticks.saturating_add(stat.children_user_ticks),
            system_ticks: stat.system_ticks.saturating_add(stat.children_system_ticks),
            elapsed_secs: elapsed.as_secs(),
            fds: 0,
        }
    }
}

/// The duty to measure what is requested. If it is dropped, after a panic or for lack of a thread, those who wait get no
/// figure, and the next request brings another one.
#[derive(Debug)]
pub(crate) struct Measuring {
    meter: Arc<Meter>,
    is_over: bool,
}

impl Measuring {
    /// Until nothing is requested. Takes a while if the memory of a life cannot be read.
    pub(crate) fn run(mut self, now: impl Fn() -> Duration) {
        while let Some(some) = self.take() {
            let members = some.iter().map(|(of, _)| ProcessRef::of(&of.life));
            self.meter.read_command_lines(members.collect(), Patience::THREAD);
            // All answers at once: whoever takes them wakes up once for many.
            let measured: Vec<Option<Usage>> = some.iter().map(|(of, _)| self.meter.measure(of, now())).collect();
            for ((_, answer), usage) in some.into_iter().zip(measured) {
                let _ = answer.send(usage);
            }
        }
    }

    fn take(&mut self) -> Option<Vec<Request>> {
        let mut requested = self.meter.requested.lock();
        let count = requested.waiting.len().min(MEASURED_AT_ONCE);
        if count == 0 {
            *requested = Requested::default();
            self.is_over = true;
            return None;
        }
        Some(requested.waiting.drain(..count).collect())
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        if !self.is_over {
            *self.meter.requested.lock() = Requested::default();
        }
    }
}

fn living(life: &Incarnation) -> Option<Stat> {
    match Process::of(life, &life.boot) {
        Ok(Some(process)) if process.is_alive() => Some(process.stat),
        Ok(_) | Err(_) => None,
    }
}

pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole * 100.0).clamp(0.0, 100.0) } else { 0.0 }
}

/// CPUs that are online now, whatever we may use of them ourselves.
pub(crate) fn cpus() -> u32 {
    setting(libc::_SC_NPROCESSORS_ONLN).and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

fn setting(name: libc::c_int) -> Option<u64> {
    #[allow(unsafe_code, reason = "rustix has this behind a feature that we do not take")]
    // SAFETY: sysconf takes a number and gives a number.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok().filter(|value| *value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_for_people_is_what_is_measured_for_limits() {
        let boot = procfs::boot_id().unwrap();
        let us = Process::open(i32::try_from(std::process::id()).unwrap()).unwrap().life(&boot);
        let meter = Arc::new(Meter::new(Sampler::new(boot.clone(), None), ForeignMemory::default()));
        let ours = MeasuredLife { life: us.clone(), leaf: Leaf::of("none"), since: None };
        let mut limits = Sampler::new(boot, None);
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = Duration::from_secs(u64::try_from(time.tv_sec).unwrap());

        let alone = meter.usage_alone(&ours, now).unwrap();
        assert_eq!((alone.fds, meter.sampler.lock().size().0), (0, 0), "nothing is kept for it");
        assert!(limits.track(&us, None));
        let sample = limits.sample_with_descriptors(&us, now).unwrap();
        let usage = requested(&meter, &ours, now).unwrap();

        let near = |one: f64, other: f64| (one - other).abs() <= other.max(1.0);
        assert!(near(usage.cpu_percent, sample.cpu_percent), "{usage:?} {sample:?}");
        assert!(near(usage.memory_percent, sample.memory_percent), "{usage:?} {sample:?}");
        assert!(usage.fds >= 3 && usage.fds.abs_diff(sample.fds.unwrap()) < 50, "{usage:?} {sample:?}");
        assert!(meter.usage_alone(&ours, now).unwrap().fds > 0, "what is measured already is measured whole");
        meter.usages(&[], now);
        assert_eq!(meter.sampler.lock().size(), (0, 0), "who runs no more is forgotten");
    }

    fn requested(meter: &Arc<Meter>, of: &MeasuredLife, now: Duration) -> Option<Usage> {
        let (mut answered, measuring) = meter.request(of.clone());
        measuring.expect("nobody measures").run(|| now);
        answered.try_recv().expect("it is answered")
    }

    #[test]
    fn one_measures_for_all_who_ask_and_if_it_cannot_the_next_one_does() {
        let boot = procfs::boot_id().unwrap();
        let us = Process::open(i32::try_from(std::process::id()).unwrap()).unwrap().life(&boot);
        let meter = Arc::new(Meter::new(Sampler::new(boot, None), ForeignMemory::default()));
        let ours = MeasuredLife { life: us, leaf: Leaf::of("none"), since: None };
        let now = crate::wall_clock::since_boot();

        let (mut first, measuring) = meter.request(ours.clone());
        let others: Vec<_> = (0..2 * MEASURED_AT_ONCE).map(|_| meter.request(ours.clone())).collect();
        measuring.expect("the first one measures").run(|| now);
        let is_answered = |(mut answered, measuring): (oneshot::Receiver<_>, Option<Measuring>)| {
            measuring.is_none() && matches!(answered.try_recv(), Ok(Some(_)))
        };
        assert!(first.try_recv().unwrap().is_some() && others.into_iter().all(is_answered));

        let (mut failed, measuring) = meter.request(ours.clone());
        drop(measuring); // there is no thread for it
        assert!(failed.try_recv().is_err(), "nobody answers");
        assert!(requested(&meter, &ours, now).is_some());
    }

    #[test]
    fn a_percentage_is_finite_and_at_most_the_whole() {
        assert!((percent(1.0, 4.0) - 25.0).abs() < f64::EPSILON);
        assert!((percent(5.0, 4.0) - 100.0).abs() < f64::EPSILON);
        assert!(percent(5.0, 0.0).abs() < f64::EPSILON);
    }
}
