//! Random moves, and the check of every kill against what was known at that time.

use std::time::Duration;

use proctor_model::{PoolLimits, ProcessKey, Weight};
use proctor_supervise::{Member, PoolAction, PoolEvent, PoolWarning, Resource, Time};
use proptest::prelude::*;

use crate::world::{World, limits, percent};

#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// Time passes without news.
    Wait(u64),
    /// Everybody is sampled, so long ago.
    Sample(u64),
    Use(usize, f64, f64),
    Eligible(usize, bool),
    Gone(usize),
    Change(f64, f64),
    Tick,
}

pub(crate) fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => (0u64..12_000).prop_map(Move::Wait),
        16 => (0u64..2_000).prop_map(Move::Sample),
        1 => (0u64..7_000).prop_map(Move::Sample),
        2 => (0usize..6, 0.0..40.0f64, 0.0..40.0f64).prop_map(|(n, cpu, memory)| Move::Use(n, cpu, memory)),
        1 => (0usize..6, any::<bool>()).prop_map(|(n, eligible)| Move::Eligible(n, eligible)),
        2 => (0usize..6).prop_map(Move::Gone),
        1 => (0.0..60.0f64, 0.0..60.0f64).prop_map(|(cpu, memory)| Move::Change(cpu, memory)),
        2 => Just(Move::Tick),
    ]
}

/// Drives the machine by random moves and checks every kill against what was known at that time.
pub(crate) struct Chaos {
    world: World,
    /// The newest samples that the machine was told.
    told: Vec<Member>,
    in_flight: Option<(Time, ProcessKey)>,
    died: Time,
    kills: Vec<Time>,
}

impl Chaos {
    pub(crate) fn new(weight: Weight) -> Self {
        let mut world = World::new(limits(30.0, 30.0, weight));
        world.dies_after = None;
        for name in ["a", "b", "c", "d", "e", "f"] {
            world.join(name, 4.0, 4.0);
        }
        let died = Time::default();
        Self { world, told: Vec::new(), in_flight: None, died, kills: Vec::new() }
    }

    pub(crate) fn apply(&mut self, step: Move) {
        let world = &mut self.world;
        let event = match step {
            Move::Wait(millis) => {
                world.now = world.now + Duration::from_millis(millis);
                return;
            }
            Move::Use(index, cpu, memory) => {
                (world.members[index].cpu, world.members[index].memory) = (cpu, memory);
                return;
            }
            Move::Eligible(index, eligible) => {
                world.members[index].eligible = eligible;
                return;
            }
            Move::Sample(age) => {
                let sampled_at = world.now;
                world.now = world.now + Duration::from_millis(age);
                world.members.iter_mut().for_each(|member| member.sampled_at = sampled_at.max(member.sampled_at));
                self.told = world.members.clone();
                PoolEvent::Sampled { at: world.now, members: world.members.clone() }
            }
            Move::Gone(index) => {
                let key = world.members[index].key.clone();
                if self.in_flight.take_if(|(_, victim)| *victim == key).is_some() {
                    self.died = world.now;
                }
                PoolEvent::Gone { key }
            }
            Move::Change(cpu, memory) => PoolEvent::Changed(PoolLimits {
                cpu: percent(cpu),
                memory: percent(memory),
                ..world.machine.pool().limits.clone()
            }),
            Move::Tick => PoolEvent::Tick,
        };
        for action in self.world.machine.handle(self.world.now, event) {
            self.check(action);
        }
        self.world.now = self.world.now + Duration::from_millis(200);
    }

    fn check(&mut self, action: PoolAction) {
        let now = self.world.now;
        let (victim, resource, limit) = match action {
            PoolAction::Kill { victim, resource, limit, .. } => (victim, resource, limit),
            PoolAction::Warn { warning: PoolWarning::VictimSurvives(key), .. } => {
                let (since, victim) = self.in_flight.take().unwrap();
                assert!(victim == key && now.since(since) >= Duration::from_secs(60));
                self.died = now;
                return;
            }
            PoolAction::Warn { .. } => return,
            PoolAction::WouldKill { .. } => panic!("not in a dry run"),
        };
        assert_eq!(self.in_flight, None, "one victim at a time");
        self.in_flight = Some((now, victim.clone()));
        self.check_choice(&victim, resource, limit);
        self.kills.push(now);
        let minute = self.kills.iter().filter(|kill| now.since(**kill) < Duration::from_secs(60)).count();
        assert!(minute <= 6, "{minute} kills in a minute");
    }

    fn check_choice(&self, victim: &ProcessKey, resource: Resource, limit: f64) {
        let limits = &self.world.machine.pool().limits;
        let (usage, weight): (fn(&Member) -> f64, Weight) = match resource {
            Resource::Cpu => (|member| member.cpu, limits.cpu_weight),
            Resource::Memory => (|member| member.memory, limits.memory_weight),
        };
        let score = |member: &Member| match weight {
            Weight::Usage => usage(member),
            Weight::UsageByLimit => usage(member) / limit, // nobody here has an own limit
        };
        for member in &self.told {
            assert!(self.world.now.since(member.sampled_at) <= Duration::from_secs(5), "a stale sample");
            assert!(member.sampled_at > self.died, "a sample from before the death");
        }
        assert!(self.told.iter().map(usage).sum::<f64>() > limit, "inside the limit");
        let best = self.told.iter().map(score).fold(0.0, f64::max);
        let chosen = self.told.iter().find(|member| member.key == *victim).unwrap();
        assert!(chosen.eligible && score(chosen) >= best, "not the highest score");
    }
}
