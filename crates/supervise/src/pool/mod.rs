//! The state machine of one pool on one host: which member is evicted when they exceed their shared limit.
//!
//! As in every machine, [`PoolMachine::handle`] takes events and returns actions, [`PoolMachine::poll_timeout`] tells
//! when to come back with [`PoolEvent::Tick`], and [`PoolMachine::next_sample`] how soon with samples: only they lead
//! to an eviction.
//!
//! Promised: a victim is an eligible member with the highest score, and at the moment of the kill the newest samples
//! put the pool above its limit. One victim at a time: after a kill nothing happens until its death is reported (or
//! 60 s have passed), and then only samples from after the death count. No decision is based on a sample older than 5
//! s: such a member counts as using nothing, so in doubt nothing is evicted. At most six kills a minute. Members over
//! their own limit are dealt with elsewhere: the pool waits for that, at most 10 s. No other member is evicted
//! instead of one with a higher score that may not be: after 10 s the pool reports that once. A limit that is lowered
//! below the current usage is announced 10 s before it takes effect. What "over its limit" means is the table in
//! [`crate::threshold`]; memory comes before CPU.
//! Absent: killing and restarting. An observation of the pool is complete when every member has been sampled since
//! the last one, so the driver samples the members of a pool together.

mod types;

use std::collections::VecDeque;
use std::time::Duration;

use proctor_model::{Pool, PoolLimits, ProcessKey, Weight};

use crate::Time;
use crate::limit::Breach;
use crate::threshold::{Level, Mean, Resource, band, effective};
use types::SAMPLE_AGE_MAX;
pub use types::{Member, PoolAction, PoolEvent, PoolWarning, Ranked, is_member};

/// How long others may deal with a member before the pool stops waiting.
const PATIENCE: Duration = Duration::from_secs(10);
/// From the warning about a lowered limit until it takes effect.
const LOWERED_GRACE: Duration = Duration::from_secs(10);
/// A victim that is not dead by then will not free anything any more.
const DEATH_MAX: Duration = Duration::from_secs(60);
/// A limit far below what its members need must not sweep through all of them.
const KILLS_MAX: usize = 6;
const KILLS_WINDOW: Duration = Duration::from_secs(60);
/// An event with thousands of candidates helps nobody.
const RANKING_MAX: usize = 32;
const PERIOD_MIN: Duration = Duration::from_secs(1);
/// Shorter than the age at which samples become worthless.
const PERIOD_MAX: Duration = Duration::from_secs(4);
const NEAR: f64 = 0.7;

/// See the module's documentation.
#[derive(Debug)]
pub struct PoolMachine {
    pool: Pool,
    members: Vec<Member>,
    sampled: Option<Time>,
    /// Samples must be newer than this to make the next observation: the last one, or a death.
    barrier: Option<Time>,
    observed: Option<Time>,
    memory: Level,
    cpu: Mean,
    memory_side: Side,
    cpu_side: Side,
    victim: Option<Victim>,
    kills: VecDeque<Time>,
    /// Since when the pool leaves the breach to others.
    waiting: Option<Time>,
}

/// The history of one resource.
#[derive(Debug, Default)]
struct Side {
    grace: Grace,
    told: Told,
}

/// What was already reported about the current breach, so that it is reported once.
#[derive(Debug, Default)]
struct Told {
    dry_run: bool,
    no_victim: bool,
    blocked: bool,
    capped: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Grace {
    #[default]
    Over,
    /// The limit was lowered; nobody knows yet if that matters.
    Due,
    Until(Time),
}

/// The one in flight.
#[derive(Debug)]
struct Victim {
    key: ProcessKey,
    until: Time,
    resource: Resource,
    limit: f64,
}

impl PoolMachine {
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            members: Vec::new(),
            sampled: None,
            barrier: None,
            observed: None,
            memory: Level::default(),
            cpu: Mean::default(),
            memory_side: Side::default(),
            cpu_side: Side::default(),
            victim: None,
            kills: VecDeque::new(),
            waiting: None,
        }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The victim whose death is awaited.
    pub fn victim(&self) -> Option<&ProcessKey> {
        self.victim.as_ref().map(|victim| &victim.key)
    }

    /// CPU and memory of all members at the last sampling.
    pub fn usage(&self) -> (f64, f64) {
        self.sampled.map_or((0.0, 0.0), |at| (self.sum(at, Resource::Cpu), self.sum(at, Resource::Memory)))
    }

    /// When a victim is given up; everything else is driven by samples.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.victim.as_ref().map(|victim| victim.until)
    }

    /// How long to wait for the next sampling of all members: a second near a limit, else up to
    /// four.
    pub fn next_sample(&self) -> Duration {
        let (cpu, memory) = self.usage();
        let part = |usage: f64, resource| self.limit(resource).map_or(0.0, |limit| usage / limit);
        let near = part(cpu, Resource::Cpu).max(part(memory, Resource::Memory)) / NEAR;
        PERIOD_MAX - (PERIOD_MAX - PERIOD_MIN).mul_f64(near.clamp(0.0, 1.0))
    }

    pub fn handle(&mut self, now: Time, event: PoolEvent) -> Vec<PoolAction> {
        if let PoolEvent::Gone { key } = &event {
            self.gone(now, key); // late, but dead
        }
        let mut actions = self.give_victim_up(now).into_iter().collect();
        match event {
            PoolEvent::Changed(limits) => self.change(now, limits, &mut actions),
            PoolEvent::Sampled { at, members } => self.sampled(now, at.min(now), members, &mut actions),
            PoolEvent::Gone { .. } | PoolEvent::Tick => {}
        }
        actions
    }

    fn change(&mut self, now: Time, limits: PoolLimits, actions: &mut Vec<PoolAction>) {
        let before = std::mem::replace(&mut self.pool.limits, limits);
        if before.dry_run != self.pool.limits.dry_run {
            self.memory_side.told = Told::default();
            self.cpu_side.told = Told::default();
        }
        let lowered = |old: f64, new: f64| {
            effective(Some(new)).is_some_and(|new| effective(Some(old)).is_none_or(|old| new < old))
        };
        if lowered(before.memory.get(), self.pool.limits.memory.get()) {
            self.memory_side.grace = Grace::Due;
        }
        if lowered(before.cpu.get(), self.pool.limits.cpu.get()) {
            self.cpu_side.grace = Grace::Due;
        }
        for resource in [Resource::Memory, Resource::Cpu] {
            self.breach(now, resource, actions);
        }
    }

    fn gone(&mut self, now: Time, key: &ProcessKey) {
        if self.victim() == Some(key) {
            self.end_of_victim(now);
        }
    }

    /// What was seen before the victim's death says nothing about the pool without it.
    fn end_of_victim(&mut self, now: Time) {
        self.victim = None;
        self.barrier = Some(now);
        self.observed = None;
        self.memory.restart();
        self.cpu.restart();
    }

    /// New samples are the moment of decision: nothing is newer.
    fn sampled(&mut self, now: Time, at: Time, members: Vec<Member>, actions: &mut Vec<PoolAction>) {
        if self.sampled.is_some_and(|newest| at <= newest) {
            return; // out of order
        }
        self.members = members;
        self.sampled = Some(at);
        if self.victim.is_some() {
            return;
        }
        if self.is_complete(now) {
            self.observe(now, at);
        }
        self.decide(now, actions);
    }

    /// Whether everybody has been sampled since the last observation.
    fn is_complete(&self, now: Time) -> bool {
        let mut fresh = self.members.iter().filter(|member| member.is_fresh(now)).peekable();
        fresh.peek().is_some() && fresh.all(|member| self.barrier.is_none_or(|barrier| member.sampled_at > barrier))
    }

    fn observe(&mut self, now: Time, at: Time) {
        if self.observed.is_some_and(|observed| at.since(observed) > SAMPLE_AGE_MAX) {
            self.memory.restart();
            self.cpu.restart();
        }
        let (cpu, memory) = (self.sum(now, Resource::Cpu), self.sum(now, Resource::Memory));
        match self.limit(Resource::Memory) {
            Some(limit) => self.memory.observe(at, Some(memory), limit),
            None => self.memory.restart(),
        }
        match self.limit(Resource::Cpu) {
            Some(limit) => self.cpu.observe(at, Some(cpu), limit),
            None => self.cpu.restart(),
        }
        self.barrier = Some(at);
        self.observed = Some(at);
    }

    fn decide(&mut self, now: Time, actions: &mut Vec<PoolAction>) {
        let mut over = false;
        for resource in [Resource::Memory, Resource::Cpu] {
            let Some(breach) = self.breach(now, resource, actions) else { continue };
            over = true;
            if self.act(now, breach, actions) {
                break;
            }
        }
        if !over {
            self.waiting = None;
        }
    }

    fn give_victim_up(&mut self, now: Time) -> Option<PoolAction> {
        let Victim { key, resource, limit, .. } = self.victim.take_if(|victim| victim.until <= now)?;
        let usage = self.sum(now, resource);
        self.end_of_victim(now);
        Some(PoolAction::Warn { resource, usage, limit, warning: PoolWarning::VictimSurvives(key) })
    }

    /// Whether the pool is over this limit, past any grace, and still so by the newest samples.
    fn breach(&mut self, now: Time, resource: Resource, actions: &mut Vec<PoolAction>) -> Option<Breach> {
        let limit = self.limit(resource)?;
        if !self.members.iter().any(|member| member.is_fresh(now)) {
            return None;
        }
        let newest = self.sum(now, resource);
        if self.is_graced(now, Breach { resource, usage: newest, limit }, actions) {
            return None;
        }
        if newest < limit - band(limit) {
            self.side(resource).told = Told::default(); // the breach is over, not just noisy
        }
        let usage = match resource {
            Resource::Memory => self.memory.over(limit)?,
            Resource::Cpu => self.cpu.over(limit)?,
        };
        (newest > limit).then_some(Breach { resource, usage, limit })
    }

    fn is_graced(&mut self, now: Time, breach: Breach, actions: &mut Vec<PoolAction>) -> bool {
        let Breach { resource, usage, limit } = breach;
        let grace = match self.side(resource).grace {
            Grace::Due if usage > limit => {
                actions.push(PoolAction::Warn { resource, usage, limit, warning: PoolWarning::Lowered });
                Grace::Until(now + LOWERED_GRACE)
            }
            Grace::Until(until) if until > now => Grace::Until(until),
            Grace::Due | Grace::Until(_) | Grace::Over => Grace::Over,
        };
        self.side(resource).grace = grace;
        grace != Grace::Over
    }

    /// Kills, or says why not. True if a victim is in flight now.
    fn act(&mut self, now: Time, breach: Breach, actions: &mut Vec<PoolAction>) -> bool {
        let Breach { resource, usage, limit } = breach;
        let ranking = self.rank(now, breach);
        if self.is_for_others(now, &ranking) && now.since(*self.waiting.get_or_insert(now)) < PATIENCE {
            return false;
        }
        if let Some((first, _)) = ranking.first().filter(|(first, eligible)| !eligible && first.usage > 0.0) {
            if !std::mem::replace(&mut self.side(resource).told.blocked, true) {
                let warning = PoolWarning::Blocked(first.key.clone());
                actions.push(PoolAction::Warn { resource, usage, limit, warning });
            }
            return false;
        }
        let candidates: Vec<Ranked> = ranking.into_iter().filter(|(_, eligible)| *eligible).map(|(r, _)| r).collect();
        let Some(victim) = candidates.first().filter(|first| first.usage > 0.0).map(|first| first.key.clone()) else {
            if !std::mem::replace(&mut self.side(resource).told.no_victim, true) {
                actions.push(PoolAction::Warn { resource, usage, limit, warning: PoolWarning::NoVictim });
            }
            return false;
        };
        if self.pool.limits.dry_run && self.side(resource).told.dry_run {
            return false;
        }
        if self.is_capped(now) {
            if !std::mem::replace(&mut self.side(resource).told.capped, true) {
                actions.push(PoolAction::Warn { resource, usage, limit, warning: PoolWarning::KillsCapped });
            }
            return false;
        }
        let ranking = candidates.into_iter().take(RANKING_MAX).collect();
        self.kills.push_back(now);
        if self.pool.limits.dry_run {
            self.side(resource).told.dry_run = true;
            actions.push(PoolAction::WouldKill { victim, resource, usage, limit, ranking });
            return false;
        }
        self.waiting = None;
        self.victim = Some(Victim { key: victim.clone(), until: now + DEATH_MAX, resource, limit });
        actions.push(PoolAction::Kill { victim, resource, usage, limit, ranking });
        true
    }

    /// Whether a member is over its own limit, or the one with the highest score cannot be chosen: it is being
    /// ended, or still starting.
    fn is_for_others(&self, now: Time, ranking: &[(Ranked, bool)]) -> bool {
        ranking.first().is_some_and(|(_, eligible)| !eligible)
            || self.members.iter().any(|member| member.is_fresh(now) && member.is_over_its_own_limit())
    }

    fn is_capped(&mut self, now: Time) -> bool {
        self.kills.retain(|kill| now.since(*kill) < KILLS_WINDOW);
        self.kills.len() >= KILLS_MAX
    }

    /// All fresh members and whether each is eligible, the highest score first, ties by key.
    fn rank(&self, now: Time, breach: Breach) -> Vec<(Ranked, bool)> {
        let weight = match breach.resource {
            Resource::Cpu => self.pool.limits.cpu_weight,
            Resource::Memory => self.pool.limits.memory_weight,
        };
        let ranked = |member: &Member| {
            let usage = member.usage(breach.resource);
            let score = match weight {
                Weight::Usage => usage,
                Weight::UsageByLimit => usage / member.limit(breach.resource).unwrap_or(breach.limit),
            };
            (Ranked { key: member.key.clone(), usage, score }, member.eligible)
        };
        let mut ranking: Vec<_> = self.members.iter().filter(|member| member.is_fresh(now)).map(ranked).collect();
        ranking.sort_by(|(a, _), (b, _)| b.score.total_cmp(&a.score).then_with(|| a.key.cmp(&b.key)));
        ranking
    }

    fn sum(&self, now: Time, resource: Resource) -> f64 {
        self.members.iter().filter(|member| member.is_fresh(now)).map(|member| member.usage(resource)).sum()
    }

    fn limit(&self, resource: Resource) -> Option<f64> {
        match resource {
            Resource::Cpu => effective(Some(self.pool.limits.cpu.get())),
            Resource::Memory => effective(Some(self.pool.limits.memory.get())),
        }
    }

    fn side(&mut self, resource: Resource) -> &mut Side {
        match resource {
            Resource::Cpu => &mut self.cpu_side,
            Resource::Memory => &mut self.memory_side,
        }
    }
}
