//! Measures many process trees repeatedly, at low cost.
//!
//! Promised: a sample of a process without children costs about a microsecond, because nothing is opened or searched
//! for; members of a life are known by its leaf cgroup or by descent, and stay members until they exit, even if their
//! parent exits first; the CPU time of descendants that came and went between two samples is counted, exactly with a
//! cgroup and otherwise once somebody has waited for them; descriptors are bounded; a tracked life does not count
//! towards another one above it.
//! Absent: a clock (times are arguments), locks, and the exit of a life: a missing figure may also mean that there
//! was no descriptor left, so [`crate::Host::ended`] reports exits.

mod assign;
mod counted;
mod handle;
mod machine;
mod scan;

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{BootId, Incarnation};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::cgroup::{Groups, Leaf};
use crate::pidfd::Process;
use crate::tree::ProcessRef;
use crate::usage::Units;
#[cfg(feature = "fuzz")]
pub(crate) use counted::{cpu as leaf_cpu, memory as leaf_memory};
#[cfg(feature = "fuzz")]
pub(crate) use machine::count as cpu_count;

use counted::Counted;
use handle::{Handle, Slots};
use machine::Machine;
use scan::Scan;

/// How often new descendants are looked for.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// All processes are listed this often, or less often: so that it takes at most one part in
/// [`FULL_COST_PARTS`] of a CPU.
const FULL_PERIOD: Duration = Duration::from_secs(60);
const FULL_COST_PARTS: u32 = 500;
/// While lives are being added whose children were born earlier.
const FULL_PERIOD_NEW: Duration = Duration::from_secs(2);
const FULL_COST_PARTS_NEW: u32 = 100;
/// Below this interval, usage says more about the scheduler than about the process.
const SAMPLE_PERIOD_MIN: Duration = Duration::from_millis(100);
const LIVES_MAX: usize = 65_536;
const MEMBERS_MAX: usize = 4096;
/// Left for everything else when descriptors are kept open.
const DESCRIPTORS_RESERVED: u64 = 1024;
/// From here on the exact memory of a leaf is worth its price: reading `memory.stat` costs as much
/// as ten samples.
const EXACT_MEMORY_PERCENT: f64 = 1.0;
const EXACT_MEMORY_MEMBERS: usize = 64;

/// What a process tree uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Of the whole machine, since the previous sample; the first is since the start of the life.
    pub cpu_percent: f64,
    /// Of the whole machine, since the start of the life.
    pub cpu_percent_average: f64,
    pub memory_percent: f64,
    /// The tree's own memory: no page cache, and nothing shared as far as that is known.
    pub memory_bytes: u64,
    /// Open descriptors, if requested and permitted.
    pub fds: Option<u64>,
}

/// Measures lives. One owner, no locks.
#[derive(Debug)]
pub struct Sampler {
    boot: BootId,
    groups: Option<Arc<Groups>>,
    units: Units,
    machine: Machine,
    slots: Slots,
    scan: Scan,
    /// By the pid of the life: there is one at a time.
    lives: HashMap<i32, Tracked>,
    /// Which life a process counts towards, by pid.
    owners: HashMap<i32, i32>,
    by_leaf: HashMap<Leaf, i32>,
    /// Kept open: what all leaves together have used.
    all_leaves: Option<File>,
    looked_at: Option<Duration>,
    full_at: Option<Duration>,
    full_cost: Duration,
    /// Lives were added whose descendants are not known yet.
    has_unsearched: bool,
    newest: Option<i32>,
}

#[derive(Debug)]
struct Tracked {
    life: Incarnation,
    root: Handle,
    members: Vec<Handle>,
    counted: Option<Counted>,
    last: Option<Last>,
    /// What the processes had used at the first sample, and what was counted then.
    first: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct Last {
    at: Duration,
    cpu_nanos: u64,
    percent: f64,
    /// Since the start of the life.
    used: u64,
}

impl Sampler {
    pub(crate) fn new(boot: BootId, groups: Option<Arc<Groups>>) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let max = (limit / 2).saturating_sub(DESCRIPTORS_RESERVED.min(limit / 4));
        Self {
            boot,
            groups,
            units: Units::read(),
            machine: Machine::new(),
            slots: Slots::new(usize::try_from(max).unwrap_or(usize::MAX)),
            scan: Scan::default(),
            lives: HashMap::new(),
            owners: HashMap::new(),
            by_leaf: HashMap::new(),
            all_leaves: None,
            looked_at: None,
            full_at: None,
            full_cost: Duration::ZERO,
            has_unsearched: false,
            newest: None,
        }
    }

    /// Begins to measure a life. `leaf` is where its commands were started; a life that is not in
    /// it, because somebody else has started it, is known by descent. False: that life is over,
    /// or cannot be looked at now.
    pub fn track(&mut self, life: &Incarnation, leaf: Option<&Leaf>) -> bool {
        self.track_since(life, leaf, None)
    }

    /// As [`Self::track`]. What is in the leaf and began before `since` is not charged to this life: then
    /// it is known by descent.
    pub fn track_in(&mut self, life: &Incarnation, leaf: &Leaf, since: Option<u64>) -> bool {
        self.track_since(life, Some(leaf), since)
    }

    fn track_since(&mut self, life: &Incarnation, leaf: Option<&Leaf>, since: Option<u64>) -> bool {
        if self.is_tracked(life) {
            return true;
        }
        if self.lives.len() >= LIVES_MAX {
            return false;
        }
        let root = ProcessRef { pid: life.pid, start_ticks: life.start_ticks };
        let opened = Handle::open(root, &self.slots).ok().flatten();
        // Checked after it was opened, so that it is this life's.
        let is_alive = matches!(Process::of(life, &self.boot), Ok(Some(process)) if process.is_alive());
        let Some(root) = opened.filter(|_| is_alive) else { return false };

        self.drop_life(life.pid);
        self.disown(life.pid);
        let leaf = self.groups.as_ref().zip(leaf).filter(|(groups, leaf)| {
            let has_others = |since| groups.has_older(leaf, since);
            groups.holds(leaf, life.pid) && !since.is_some_and(has_others)
        });
        let counted = leaf.map(|(groups, leaf)| Counted::open(groups, leaf, &self.slots));
        if let Some(counted) = &counted {
            self.by_leaf.insert(counted.leaf.clone(), life.pid);
        }
        self.owners.insert(life.pid, life.pid);
        let tracked = Tracked { life: life.clone(), root, members: Vec::new(), counted, last: None, first: (0, 0) };
        self.lives.insert(life.pid, tracked);
        // One that began after the last look has descendants that began after it too.
        let born = self.units.since_boot(life.start_ticks);
        self.has_unsearched |= self.looked_at.is_none_or(|at| born <= at);
        true
    }

    /// Whether that life is being measured.
    pub fn is_tracked(&self, life: &Incarnation) -> bool {
        self.lives.get(&life.pid).is_some_and(|tracked| tracked.life == *life)
    }

    pub fn forget(&mut self, life: &Incarnation) {
        if self.is_tracked(life) {
            self.drop_life(life.pid);
        }
    }

    /// Forgets all lives but these.
    pub(crate) fn retain(&mut self, lives: &[Incarnation]) {
        let kept: HashMap<i32, &Incarnation> = lives.iter().map(|life| (life.pid, life)).collect();
        let others = self.lives.values().filter(|tracked| kept.get(&tracked.life.pid) != Some(&&tracked.life));
        for pid in others.map(|tracked| tracked.life.pid).collect::<Vec<_>>() {
            self.drop_life(pid);
        }
    }

    /// How many lives are tracked, and how many descriptors that keeps open.
    pub fn size(&self) -> (usize, usize) {
        (self.lives.len(), self.slots.kept())
    }

    /// What the life and its descendants use. None: no figure can be given now; it may be over.
    pub fn sample(&mut self, life: &Incarnation, now: Duration) -> Option<Sample> {
        self.look(now);
        self.measure(life, now, None)
    }

    /// The same with the number of open descriptors, which costs more than all the rest.
    pub fn sample_with_descriptors(&mut self, life: &Incarnation, now: Duration) -> Option<Sample> {
        self.look(now);
        let tracked = self.lives.get(&life.pid).filter(|tracked| tracked.life == *life)?;
        let all = std::iter::once(&tracked.root).chain(&tracked.members);
        let counts: Vec<u64> = all.filter_map(Handle::descriptors).collect();
        let fds = (!counts.is_empty()).then(|| counts.iter().sum());
        self.measure(life, now, fds)
    }

    fn measure(&mut self, life: &Incarnation, now: Duration, fds: Option<u64>) -> Option<Sample> {
        let tracked = self.lives.get_mut(&life.pid).filter(|tracked| tracked.life == *life)?;
        let counted = tracked.counted.as_ref().and_then(Counted::cpu_nanos);
        if counted.is_none()
            && let Some(lost) = tracked.counted.take_if(|counted| counted.has_cpu())
        {
            // Somebody has moved it elsewhere; what the leaf had counted means nothing for the members.
            tracked.last = None;
            self.by_leaf.remove(&lost.leaf);
        }
        let elapsed = tracked.last.map_or(Duration::ZERO, |last| now.saturating_sub(last.at));
        let is_early = tracked.last.is_some() && elapsed < SAMPLE_PERIOD_MIN;
        let by_members = !is_early && (counted.is_none() || tracked.last.is_none());
        let cpu_of = |handle: &mut Handle| match by_members {
            true => handle.cpu_nanos(self.units.ticks_per_second, &self.slots),
            false => 0,
        };

        let mut summed = cpu_of(&mut tracked.root);
        let Some(mut memory) = tracked.root.pages().ok()? else {
            self.drop_life(life.pid);
            return None;
        };
        let owners = &mut self.owners;
        tracked.members.retain_mut(|member| {
            let cpu = cpu_of(member);
            match member.pages() {
                Ok(Some(pages)) => {
                    summed = summed.saturating_add(cpu);
                    memory.private = memory.private.saturating_add(pages.private);
                    memory.resident = memory.resident.saturating_add(pages.resident);
                    true
                }
                Ok(None) => {
                    owners.remove(&member.member.pid);
                    false
                }
                Err(_) => true,
            }
        });

        let cpu_nanos = counted.unwrap_or(summed);
        let since_start = now.saturating_sub(self.units.since_boot(life.start_ticks));
        if tracked.last.is_none() {
            tracked.first = (summed, cpu_nanos);
        }
        let used = match tracked.last {
            Some(last) if is_early => last.used,
            Some(_) | None => tracked.first.0.saturating_add(cpu_nanos.saturating_sub(tracked.first.1)),
        };
        let cpu_percent_average = self.machine.percent_of_cpus(used, since_start);
        let cpu_percent = match tracked.last {
            // A leaf may have counted for earlier lives; the processes have not.
            None => cpu_percent_average,
            Some(last) if is_early => last.percent,
            Some(last) => self.machine.percent_of_cpus(cpu_nanos.saturating_sub(last.cpu_nanos), elapsed),
        };
        if !is_early {
            tracked.last = Some(Last { at: now, cpu_nanos, percent: cpu_percent, used });
        }

        let mut memory_bytes = memory.private.saturating_mul(self.units.page_bytes);
        let resident = self.machine.percent_of_memory(memory.resident.saturating_mul(self.units.page_bytes));
        if resident >= EXACT_MEMORY_PERCENT || tracked.members.len() >= EXACT_MEMORY_MEMBERS {
            memory_bytes = tracked.counted.as_ref().and_then(Counted::memory_bytes).unwrap_or(memory_bytes);
        }
        let memory_percent = self.machine.percent_of_memory(memory_bytes);
        Some(Sample { cpu_percent, cpu_percent_average, memory_percent, memory_bytes, fds })
    }

    fn drop_life(&mut self, pid: i32) {
        let Some(tracked) = self.lives.remove(&pid) else { return };
        self.owners.remove(&pid);
        for member in &tracked.members {
            self.owners.remove(&member.member.pid);
        }
        if let Some(counted) = tracked.counted
            && self.by_leaf.get(&counted.leaf) == Some(&pid)
        {
            self.by_leaf.remove(&counted.leaf);
        }
    }

    /// Takes a process out of the life that it counted for.
    fn disown(&mut self, pid: i32) {
        let owner = self.owners.remove(&pid);
        if let Some(tracked) = owner.and_then(|owner| self.lives.get_mut(&owner)) {
            tracked.members.retain(|member| member.member.pid != pid);
        }
    }
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
