//! A host with one pool, in virtual time.

use std::time::Duration;

use proctor_model::{Percent, Pool, PoolLimits, ProcessKey, Weight};
use proctor_supervise::{Member, PoolAction, PoolEvent, PoolMachine, PoolWarning, Time};

pub(crate) fn percent(value: f64) -> Percent {
    Percent::try_from(value).unwrap()
}

pub(crate) fn limits(cpu: f64, memory: f64, weight: Weight) -> PoolLimits {
    PoolLimits { cpu: percent(cpu), memory: percent(memory), cpu_weight: weight, memory_weight: weight, dry_run: false }
}

pub(crate) fn pool(limits: PoolLimits) -> Pool {
    Pool { namespace: "gse".parse().unwrap(), id: "gse".parse().unwrap(), limits }
}

pub(crate) fn key(name: &str) -> ProcessKey {
    format!("gse/{name}").parse().unwrap()
}

/// A host with one pool, where everybody is sampled every second.
pub(crate) struct World {
    pub(crate) machine: PoolMachine,
    pub(crate) now: Time,
    pub(crate) members: Vec<Member>,
    pub(crate) actions: Vec<(Time, PoolAction)>,
    /// How long a victim takes to die; None: for ever.
    pub(crate) dies_after: Option<Duration>,
    dying: Option<(Time, ProcessKey)>,
}

impl World {
    pub(crate) fn dry_run(&mut self, dry_run: bool) {
        let limits = PoolLimits { dry_run, ..self.machine.pool().limits.clone() };
        self.handle(PoolEvent::Changed(limits));
    }

    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self {
            machine: PoolMachine::new(pool(limits)),
            now: Time::since_boot(Duration::from_secs(1000)),
            members: Vec::new(),
            actions: Vec::new(),
            dies_after: Some(Duration::from_millis(300)),
            dying: None,
        }
    }

    /// A pool of memory with members of these sizes, named a, b, c, …
    pub(crate) fn memory(limit: f64, weight: Weight, sizes: &[f64]) -> Self {
        let mut world = Self::new(limits(0.0, limit, weight));
        for (name, size) in ('a'..).zip(sizes) {
            world.join(&name.to_string(), 0.0, *size);
        }
        world
    }

    pub(crate) fn join(&mut self, name: &str, cpu: f64, memory: f64) -> &mut Member {
        let sampled_at = self.now;
        self.members.push(Member {
            key: key(name),
            cpu,
            memory,
            cpu_limit: None,
            memory_limit: None,
            sampled_at,
            eligible: true,
        });
        self.members.last_mut().unwrap()
    }

    pub(crate) fn member(&mut self, name: &str) -> &mut Member {
        self.members.iter_mut().find(|member| member.key == key(name)).unwrap()
    }

    pub(crate) fn handle(&mut self, event: PoolEvent) {
        for action in self.machine.handle(self.now, event) {
            if let PoolAction::Kill { victim, .. } = &action {
                assert!(self.dying.is_none(), "one victim at a time");
                self.dying = self.dies_after.map(|after| (self.now + after, victim.clone()));
            }
            self.actions.push((self.now, action));
        }
    }

    pub(crate) fn sample(&mut self) {
        let now = self.now;
        self.members.iter_mut().for_each(|member| member.sampled_at = now);
        self.handle(PoolEvent::Sampled { at: now, members: self.members.clone() });
    }

    pub(crate) fn step(&mut self, time: Duration) {
        let target = self.now + time;
        if let Some((at, key)) = self.dying.take_if(|(at, _)| *at <= target) {
            self.now = at;
            self.members.retain(|member| member.key != key);
            self.handle(PoolEvent::Gone { key });
        }
        if let Some(at) = self.machine.poll_timeout().filter(|at| *at <= target) {
            self.now = at.max(self.now);
            self.handle(PoolEvent::Tick);
        }
        self.now = target;
    }

    pub(crate) fn pass(&mut self, secs: u64) {
        for _ in 0..secs {
            self.step(Duration::from_secs(1));
            self.sample();
        }
    }

    pub(crate) fn kills(&self) -> Vec<(Time, ProcessKey)> {
        let kill = |(at, action): &(Time, PoolAction)| match action {
            PoolAction::Kill { victim, .. } => Some((*at, victim.clone())),
            PoolAction::WouldKill { .. } | PoolAction::Warn { .. } => None,
        };
        self.actions.iter().filter_map(kill).collect()
    }

    pub(crate) fn victims(&self) -> Vec<String> {
        self.kills().into_iter().map(|(_, key)| key.name.to_string()).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<PoolWarning> {
        let warning = |(_, action): &(Time, PoolAction)| match action {
            PoolAction::Warn { warning, .. } => Some(warning.clone()),
            PoolAction::WouldKill { .. } | PoolAction::Kill { .. } => None,
        };
        self.actions.iter().filter_map(warning).collect()
    }
}
