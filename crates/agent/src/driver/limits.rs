//! Samples processes with limits, and detects breaches.
//!
//! Only processes with their own limits, or in a pool with limits, are measured here; status queries measure on
//! demand. Members of a pool are sampled together, and every sample also counts towards the member's own limits, so
//! that no CPU time is judged twice or not at all.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proctor_host::{Host, Leaf, Sampler};
use proctor_model::{Incarnation, Limits, Message, Namespace, Pool, PoolId, ProcessKey, messages};
use proctor_supervise::{
    Breach, LimitBreach, LimitJudge, Member, PoolAction, PoolBreach, PoolEvent, PoolMachine, PoolWarning, Process,
    Ranked, Resource, Sample, Time, is_member,
};

use super::processes::Processes;
use super::usage::wall_clock;
use crate::history::{History, Rate, Reading};

/// Descriptors are counted this often: counting costs more than all the rest.
const DESCRIPTORS_PERIOD: Duration = Duration::from_secs(30);
/// Samples that are in no hurry come together: to wake up costs more than to measure.
const SAMPLE_BATCH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct LimitMonitor {
    sampler: Sampler,
    /// Those that were sampled, or are about to be, in their present life.
    watched: HashMap<ProcessKey, Watched>,
    /// By the time of their next sample; stale entries are skipped.
    due: BTreeMap<Time, Vec<ProcessKey>>,
    pools: BTreeMap<(Namespace, PoolId), MonitoredPool>,
    /// What pools reported between two turns.
    said: Vec<Verdict>,
}

#[derive(Debug)]
struct Watched {
    life: Incarnation,
    judge: LimitJudge,
    due: Option<Time>,
    descriptors_due: Time,
}

#[derive(Debug)]
struct MonitoredPool {
    machine: PoolMachine,
    due: Time,
}

/// One turn: its time, where samples are recorded, and what they lead to.
#[derive(Debug)]
struct Taken<'a> {
    now: Time,
    boot_time: Duration,
    /// Unix seconds.
    wall: u64,
    history: &'a mut History,
    verdicts: Vec<Verdict>,
}

/// What has to be done about a measurement.
#[derive(Debug)]
pub(super) enum Verdict {
    Exceeded {
        key: ProcessKey,
        excess: LimitBreach,
    },
    Descriptors {
        key: ProcessKey,
        open: u64,
        limit: u64,
    },
    /// Which one a dry run would have evicted, and the candidates.
    PoolWarning {
        pool: Pool,
        content: Message,
        would_end: Option<(ProcessKey, String)>,
    },
}

impl LimitMonitor {
    pub(super) fn new(host: &Host, pools: &[Pool], now: Time) -> Self {
        let mut monitor = Self {
            sampler: host.sampler(),
            watched: HashMap::new(),
            due: BTreeMap::new(),
            pools: BTreeMap::new(),
            said: Vec::new(),
        };
        for pool in pools {
            monitor.set_pool(pool.clone(), now);
        }
        monitor
    }

    /// Follows a change of a process: its life, or its limits, may be new.
    pub(super) fn follow(&mut self, process: &Process, now: Time) {
        if has_limits(&process.spec().limits) && self.watch(process, now).is_some_and(|watched| watched.due.is_none()) {
            self.set_due(process.key(), now);
        }
    }

    /// Watches the present life of a process.
    fn watch(&mut self, process: &Process, now: Time) -> Option<&mut Watched> {
        let (key, life) = (process.key(), process.life()?);
        if self.watched.get(key).is_none_or(|watched| watched.life != *life) {
            self.forget(key, now);
            let judge = LimitJudge::new(process.running_since().unwrap_or(now));
            let watched = Watched { life: life.clone(), judge, due: None, descriptors_due: now };
            self.watched.insert(key.clone(), watched);
        }
        self.watched.get_mut(key)
    }

    /// The life is over.
    pub(super) fn forget(&mut self, key: &ProcessKey, now: Time) {
        let Some(watched) = self.watched.remove(key) else { return };
        self.sampler.forget(&watched.life);
        let names: Vec<_> = self.pools.keys().filter(|(namespace, _)| *namespace == key.namespace).cloned().collect();
        for name in names {
            self.tell_pool(&name, now, PoolEvent::Gone { key: key.clone() });
        }
    }

    /// Passes an event to a pool; its response is handled in the next turn.
    fn tell_pool(&mut self, name: &(Namespace, PoolId), now: Time, event: PoolEvent) {
        let Some(pooled) = self.pools.get_mut(name) else { return };
        let actions = pooled.machine.handle(now, event);
        let pool = pooled.machine.pool().clone();
        let verdicts: Vec<Verdict> = actions.into_iter().filter_map(|action| self.verdict_of(&pool, action)).collect();
        self.said.extend(verdicts);
    }

    pub(super) fn set_pool(&mut self, pool: Pool, now: Time) {
        let name = (pool.namespace.clone(), pool.id.clone());
        match self.pools.get_mut(&name) {
            Some(pooled) => {
                pooled.due = now;
                self.tell_pool(&name, now, PoolEvent::Changed(pool.limits));
            }
            None => drop(self.pools.insert(name, MonitoredPool { machine: PoolMachine::new(pool), due: now })),
        }
    }

    /// Those that limit something.
    pub(super) fn limiting_pools(&self) -> Vec<(Namespace, PoolId)> {
        self.pools.iter().filter(|(_, pooled)| pooled.has_limits()).map(|(name, _)| name.clone()).collect()
    }

    /// When [`LimitMonitor::turn`] has something to do.
    pub(super) fn next(&self) -> Option<Time> {
        let of_process = self.due.keys().next().copied();
        let of_pool = self.pools.values().filter(|pooled| pooled.has_limits()).map(|pooled| pooled.due).min();
        let of_said = (!self.said.is_empty()).then(Time::default);
        [of_process, of_pool, of_said].into_iter().flatten().min()
    }

    /// Measures what is due and judges it.
    pub(super) fn turn(
        &mut self,
        now: Time,
        boot_time: Duration,
        processes: &Processes,
        history: &mut History,
    ) -> Vec<Verdict> {
        let mut taken = Taken { now, boot_time, wall: wall_clock(), history, verdicts: std::mem::take(&mut self.said) };
        let names: Vec<(Namespace, PoolId)> =
            self.pools.iter().filter(|(_, p)| p.has_limits() && p.due <= now).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.turn_pool(&name, processes, &mut taken);
        }
        while let Some(first) = self.due.first_entry().filter(|first| *first.key() <= now) {
            let (time, keys) = first.remove_entry();
            for key in keys {
                let is_due = |watched: &mut Watched| watched.due.take_if(|due| *due == time).is_some();
                if !self.watched.get_mut(&key).is_some_and(is_due) {
                    continue;
                }
                match processes.get(&key) {
                    Some(process) => drop(self.sample(process, &mut taken)),
                    None => self.forget(&key, now),
                }
            }
        }
        taken.verdicts
    }

    fn turn_pool(&mut self, name: &(Namespace, PoolId), processes: &Processes, taken: &mut Taken<'_>) {
        let now = taken.now;
        let Some(pool) = self.pools.get(name).map(|pooled| pooled.machine.pool().clone()) else { return };
        // A process that is not managed may not be evicted, so no other is evicted for its usage.
        let is_member =
            |process: &&Process| process.managed() && is_member(&pool, process.key(), &process.spec().labels);
        let mut members = Vec::new();
        for process in processes.all().filter(is_member) {
            if let Some(sample) = self.sample(process, taken) {
                members.push(member_of(process, &sample));
            }
        }
        let Some(pooled) = self.pools.get_mut(name) else { return };
        let actions = pooled.machine.handle(now, PoolEvent::Sampled { at: now, members });
        pooled.due = now + pooled.machine.next_sample();
        for action in actions {
            taken.verdicts.extend(self.verdict_of(&pool, action));
        }
    }

    /// One sample, judged against the process's own limits.
    fn sample(&mut self, process: &Process, taken: &mut Taken<'_>) -> Option<Sample> {
        let (now, boot_time) = (taken.now, taken.boot_time);
        let (key, limits) = (process.key(), &process.spec().limits);
        self.watch(process, now)?;
        let watched = self.watched.get_mut(key)?;
        if !self.sampler.is_tracked(&watched.life)
            && !self.sampler.track_in(&watched.life, &cgroup_name(key), process.since())
        {
            self.set_due(key, now + Duration::from_secs(1));
            return None;
        }
        let counts_descriptors = limits.fd.is_some_and(|limit| limit > 0) && watched.descriptors_due <= now;
        let measured = if counts_descriptors {
            watched.descriptors_due = now + DESCRIPTORS_PERIOD;
            self.sampler.sample_with_descriptors(&watched.life, boot_time)
        } else {
            self.sampler.sample(&watched.life, boot_time)
        };
        let Some(measured) = measured else {
            self.set_due(key, now + Duration::from_secs(1));
            return None;
        };
        let sample = Sample { at: now, cpu: measured.cpu_percent, memory: measured.memory_percent, fds: measured.fds };
        let reading = Reading { rate: Rate::Fast, cpu: sample.cpu, memory: sample.memory };
        taken.history.record(taken.wall, key, &watched.life, reading);
        let may_end = process.may_be_evicted() || process.is_being_evicted();
        let breach = watched.judge.judge(limits, sample).filter(|_| may_end);
        if let Some(breach) = breach {
            let excess = LimitBreach { life: watched.life.clone(), breach, pool: None };
            taken.verdicts.push(Verdict::Exceeded { key: key.clone(), excess });
        }
        if let (true, Some(open), Some(limit)) = (watched.judge.fd_warning(limits), sample.fds, limits.fd) {
            taken.verdicts.push(Verdict::Descriptors { key: key.clone(), open, limit });
        }
        let wait = watched.judge.next_sample(limits, now);
        match has_limits(limits) {
            true => self.set_due(key, align_to_batch(now + wait, wait)),
            false => self.clear_due(key), // only its pools want to know
        }
        Some(sample)
    }

    fn set_due(&mut self, key: &ProcessKey, at: Time) {
        let Some(watched) = self.watched.get_mut(key) else { return };
        if watched.due.replace(at) != Some(at) {
            self.due.entry(at).or_default().push(key.clone());
        }
    }

    fn clear_due(&mut self, key: &ProcessKey) {
        if let Some(watched) = self.watched.get_mut(key) {
            watched.due = None;
        }
    }

    fn verdict_of(&self, pool: &Pool, action: PoolAction) -> Option<Verdict> {
        match action {
            PoolAction::Kill { victim, resource, usage, limit, ranking } => {
                let life = self.watched.get(&victim)?.life.clone();
                let breach = Breach { resource, usage, limit };
                let next = ranking.get(1).map(|ranked| ranked.key.clone());
                let decided = PoolBreach { id: pool.id.clone(), ranking: ranking_text(&ranking), next };
                let excess = LimitBreach { life, breach, pool: Some(decided) };
                Some(Verdict::Exceeded { key: victim, excess })
            }
            PoolAction::WouldKill { victim, resource, usage, limit, ranking } => {
                let ranking = ranking_text(&ranking);
                let (usage, limit) = (format!("{usage:.1}"), format!("{limit:.1}"));
                let content = messages::pool_would_end(of(pool, resource), &victim, usage, limit, &ranking);
                Some(Verdict::PoolWarning { pool: pool.clone(), content, would_end: Some((victim, ranking)) })
            }
            PoolAction::Warn { resource, usage, limit, warning } => {
                let (usage, limit) = (format!("{usage:.1}"), format!("{limit:.1}"));
                let content = messages::pool_warning(of(pool, resource), message_of(&warning), usage, limit);
                Some(Verdict::PoolWarning { pool: pool.clone(), content, would_end: None })
            }
        }
    }
}

impl MonitoredPool {
    fn has_limits(&self) -> bool {
        self.machine.pool().limits.limit_something()
    }
}

/// A sample after a long wait is taken a little earlier, with others.
fn align_to_batch(at: Time, wait: Duration) -> Time {
    if wait > SAMPLE_BATCH * 2 { at.rounded_down(SAMPLE_BATCH) } else { at }
}

/// The cgroup of a process, if there are cgroups.
pub(super) fn cgroup_name(key: &ProcessKey) -> Leaf {
    Leaf::of(&format!("{}\0{}", key.namespace, key.name))
}

fn has_limits(limits: &Limits) -> bool {
    limits.cpu.is_some() || limits.memory.is_some() || limits.fd.is_some_and(|limit| limit > 0)
}

fn member_of(process: &Process, sample: &Sample) -> Member {
    let limits = &process.spec().limits;
    Member {
        key: process.key().clone(),
        cpu: sample.cpu,
        memory: sample.memory,
        cpu_limit: limits.cpu.map(|limit| limit.get()),
        memory_limit: limits.memory.map(|limit| limit.get()),
        sampled_at: sample.at,
        eligible: process.may_be_evicted(),
    }
}

fn of(pool: &Pool, resource: Resource) -> Message {
    messages::pool_resource(&pool.id, &pool.namespace, resource)
}

fn ranking_text(ranking: &[Ranked]) -> String {
    let one = |ranked: &Ranked| format!("{}: {:.2} % (score {:.3})", ranked.key, ranked.usage, ranked.score);
    ranking.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn message_of(warning: &PoolWarning) -> Message {
    match warning {
        PoolWarning::Lowered => messages::pool_limit_lowered(),
        PoolWarning::NoVictim => messages::pool_has_no_victim(),
        PoolWarning::Blocked(key) => messages::pool_is_blocked(key),
        PoolWarning::KillsCapped => messages::pool_kills_capped(),
        PoolWarning::VictimSurvives(key) => messages::pool_victim_survives(key),
    }
}
