//! What a process tree uses of this machine.
//!
//! Promised: percentages are of the whole machine, never above 100; memory is what the tree has
//! for itself, without shared pages and page cache. Absent: descendants that were born within the
//! last second, and those that re-parented to the agent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{BootId, Incarnation, Usage};

use crate::pidfd::Process;
use crate::procfs::{self, Stat};
use crate::tree::{Member, Table};

/// One list of all processes serves all lives that are sampled together.
const TABLE_AGE_MAX: Duration = Duration::from_secs(1);
/// CPU time comes in ticks of 10 ms, which would be most of a shorter period.
const SAMPLE_PERIOD_MIN: Duration = Duration::from_millis(500);
const SAMPLES_MAX: usize = 65_536;
const TREE_SIZE_MAX: usize = 4096;

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

#[derive(Debug)]
pub(crate) struct Meter {
    units: Units,
    memory_bytes: u64,
    table: Mutex<Option<(Duration, Arc<Table>)>>,
    samples: Mutex<HashMap<Member, Sample>>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    ticks: u64,
    percent: f64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            units: Units::read(),
            memory_bytes: procfs::memory_bytes().unwrap_or(0),
            table: Mutex::default(),
            samples: Mutex::default(),
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Since boot, when a life began.
    pub(crate) fn start(&self, life: &Incarnation) -> Duration {
        self.units.since_boot(life.start_ticks)
    }

    /// Of one life and its descendants, now.
    pub(crate) fn usage(&self, life: &Incarnation, now: Duration) -> Option<Usage> {
        let stat = self.living(life)?;
        let table = self.table(now);
        let descendants = table.as_ref().map(|table| table.tree(member_of(life))).unwrap_or_default();
        // The list may be a second old.
        let is_same = |member: &Member, stat: &Stat| stat.start_ticks == member.start_ticks;
        let alive = |member: Member| Stat::of(member.pid).ok().filter(|stat| is_same(&member, stat));
        let others = descendants.into_iter().skip(1).filter_map(|member| Some((member.pid, alive(member)?)));
        Some(self.measure(life, &stat, others, now))
    }

    /// Of one life without its descendants: cheap, and enough for one that has just begun. It is no
    /// measure for the next whole one.
    pub(crate) fn usage_alone(&self, life: &Incarnation, now: Duration) -> Option<Usage> {
        let stat = self.living(life)?;
        let mut usage = self.describe(life, &stat, stat.ticks(), procfs::private_pages(life.pid).unwrap_or(0), now);
        if let Some(last) = self.samples.lock().get(&member_of(life)) {
            usage.cpu_percent = last.percent;
        }
        Some(usage)
    }

    /// Of many lives, from one list of all processes.
    pub(crate) fn usages(&self, boot: &BootId, lives: &[Incarnation], now: Duration) -> Vec<Option<Usage>> {
        let Ok(table) = Table::read() else { return lives.iter().map(|_| None).collect() };
        self.samples.lock().retain(|member, _| table.stat(member).is_some());
        let usage_of = |life: &Incarnation| {
            let root = member_of(life);
            let stat = table.stat(&root).filter(|_| life.boot == *boot)?;
            let descendants = table.tree(root).into_iter().skip(1);
            let others = descendants.filter_map(|member| Some((member.pid, table.stat(&member)?.clone())));
            Some(self.measure(life, stat, others, now))
        };
        lives.iter().map(usage_of).collect()
    }

    fn living(&self, life: &Incarnation) -> Option<Stat> {
        match Process::of(life, &life.boot) {
            Ok(Some(process)) if process.is_alive() => Some(process.stat),
            Ok(_) | Err(_) => {
                self.samples.lock().remove(&member_of(life));
                None
            }
        }
    }

    fn measure(
        &self,
        life: &Incarnation,
        stat: &Stat,
        others: impl Iterator<Item = (i32, Stat)>,
        now: Duration,
    ) -> Usage {
        let (mut ticks, mut pages) = (stat.ticks(), procfs::private_pages(life.pid).unwrap_or(0));
        for (pid, stat) in others.take(TREE_SIZE_MAX) {
            ticks = ticks.saturating_add(stat.ticks());
            pages = pages.saturating_add(procfs::private_pages(pid).unwrap_or(0));
        }
        let mut usage = self.describe(life, stat, ticks, pages, now);
        let last = self.samples.lock().get(&member_of(life)).copied();
        usage.cpu_percent = match last {
            Some(last) if now.saturating_sub(last.at) < SAMPLE_PERIOD_MIN => last.percent,
            Some(last) => self.percent_of_cpus(ticks.saturating_sub(last.ticks), now.saturating_sub(last.at)),
            None => usage.cpu_percent_average,
        };
        if last.is_none_or(|last| now.saturating_sub(last.at) >= SAMPLE_PERIOD_MIN) {
            self.keep(life, Sample { at: now, ticks, percent: usage.cpu_percent });
        }
        usage
    }

    /// What these ticks and pages mean, from the beginning of the life until now.
    fn describe(&self, life: &Incarnation, stat: &Stat, ticks: u64, pages: u64, now: Duration) -> Usage {
        let elapsed = now.saturating_sub(self.start(life));
        let average = self.percent_of_cpus(ticks, elapsed);
        let memory_bytes = pages.saturating_mul(self.units.page_bytes);
        Usage {
            cpu_percent: average,
            cpu_percent_average: average,
            memory_percent: percent(memory_bytes as f64, self.memory_bytes as f64),
            memory_bytes,
            threads: stat.threads,
            state: stat.state.to_string(),
            command_line: procfs::arguments(life.pid).join(" "),
            user_ticks: stat.user_ticks.saturating_add(stat.children_user_ticks),
            system_ticks: stat.system_ticks.saturating_add(stat.children_system_ticks),
            elapsed_secs: elapsed.as_secs(),
        }
    }

    fn table(&self, now: Duration) -> Option<Arc<Table>> {
        let mut kept = self.table.lock();
        if let Some((at, table)) = &*kept
            && now.saturating_sub(*at) < TABLE_AGE_MAX
        {
            return Some(Arc::clone(table));
        }
        let table = Arc::new(Table::read().ok()?);
        *kept = Some((now, Arc::clone(&table)));
        Some(table)
    }

    fn keep(&self, life: &Incarnation, sample: Sample) {
        let mut samples = self.samples.lock();
        // Those that have ended go with the next list of all processes.
        if samples.len() < SAMPLES_MAX || samples.contains_key(&member_of(life)) {
            samples.insert(member_of(life), sample);
        }
    }

    fn percent_of_cpus(&self, ticks: u64, elapsed: Duration) -> f64 {
        let whole = elapsed.as_secs_f64() * self.units.ticks_per_second as f64 * f64::from(cpus());
        percent(ticks as f64, whole)
    }
}

fn member_of(life: &Incarnation) -> Member {
    Member { pid: life.pid, start_ticks: life.start_ticks }
}

pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole * 100.0).clamp(0.0, 100.0) } else { 0.0 }
}

/// CPUs that are on line now, whatever we may use of them ourselves.
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
    fn what_a_process_uses_alone_is_no_measure_for_its_tree() {
        let (meter, boot) = (Meter::new(), procfs::boot_id().unwrap());
        let us = Process::open(i32::try_from(std::process::id()).unwrap()).unwrap().life(&boot);
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = Duration::from_secs(u64::try_from(time.tv_sec).unwrap());

        assert!(meter.usage_alone(&us, now).is_some());
        assert!(meter.samples.lock().is_empty());
        let whole = meter.usages(&boot, std::slice::from_ref(&us), now);
        assert!(whole[0].is_some() && meter.samples.lock().contains_key(&member_of(&us)));
        meter.samples.lock().insert(member_of(&us), Sample { at: now, ticks: 5, percent: 7.0 });

        let later = meter.usage_alone(&us, now + Duration::from_secs(10)).unwrap();
        assert!((later.cpu_percent - 7.0).abs() < f64::EPSILON, "{later:?}");
        assert_eq!(meter.samples.lock()[&member_of(&us)].ticks, 5);
    }

    #[test]
    fn a_percentage_is_finite_and_at_most_the_whole() {
        assert!((percent(1.0, 4.0) - 25.0).abs() < f64::EPSILON);
        assert!((percent(5.0, 4.0) - 100.0).abs() < f64::EPSILON);
        assert!(percent(5.0, 0.0).abs() < f64::EPSILON);
    }
}
