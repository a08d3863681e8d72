//! Pools in virtual time: the rules one by one, then under random members and events.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use proctor_model::{Percent, Pool, PoolLimits, ProcessKey, Weight};
use proctor_supervise::{Member, PoolAction, PoolEvent, PoolMachine, PoolWarning, Resource, Time, is_member};
use proptest::prelude::*;

fn percent(value: f64) -> Percent {
    Percent::try_from(value).unwrap()
}

fn limits(cpu: f64, memory: f64, weight: Weight) -> PoolLimits {
    PoolLimits { cpu: percent(cpu), memory: percent(memory), cpu_weight: weight, memory_weight: weight }
}

fn pool(limits: PoolLimits) -> Pool {
    Pool { namespace: "gse".parse().unwrap(), id: "gse".parse().unwrap(), limits }
}

fn key(name: &str) -> ProcessKey {
    format!("gse/{name}").parse().unwrap()
}

/// A host with one pool, where everybody is sampled every second.
struct World {
    machine: PoolMachine,
    now: Time,
    members: Vec<Member>,
    actions: Vec<(Time, PoolAction)>,
    /// How long a victim takes to die; None: for ever.
    dies_after: Option<Duration>,
    dying: Option<(Time, ProcessKey)>,
}

impl World {
    fn new(limits: PoolLimits) -> Self {
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
    fn memory(limit: f64, weight: Weight, sizes: &[f64]) -> Self {
        let mut world = Self::new(limits(0.0, limit, weight));
        for (name, size) in ('a'..).zip(sizes) {
            world.join(&name.to_string(), 0.0, *size);
        }
        world
    }

    fn join(&mut self, name: &str, cpu: f64, memory: f64) -> &mut Member {
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

    fn member(&mut self, name: &str) -> &mut Member {
        self.members.iter_mut().find(|member| member.key == key(name)).unwrap()
    }

    fn handle(&mut self, event: PoolEvent) {
        for action in self.machine.handle(self.now, event) {
            if let PoolAction::Kill { victim, .. } = &action {
                assert!(self.dying.is_none(), "one victim at a time");
                self.dying = self.dies_after.map(|after| (self.now + after, victim.clone()));
            }
            self.actions.push((self.now, action));
        }
    }

    fn sample(&mut self) {
        let now = self.now;
        self.members.iter_mut().for_each(|member| member.sampled_at = now);
        self.handle(PoolEvent::Sampled { at: now, members: self.members.clone() });
    }

    fn step(&mut self, time: Duration) {
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

    fn pass(&mut self, secs: u64) {
        for _ in 0..secs {
            self.step(Duration::from_secs(1));
            self.sample();
        }
    }

    fn kills(&self) -> Vec<(Time, ProcessKey)> {
        let kill = |(at, action): &(Time, PoolAction)| match action {
            PoolAction::Kill { victim, .. } => Some((*at, victim.clone())),
            PoolAction::WouldKill { .. } | PoolAction::Warn { .. } => None,
        };
        self.actions.iter().filter_map(kill).collect()
    }

    fn victims(&self) -> Vec<String> {
        self.kills().into_iter().map(|(_, key)| key.name.to_string()).collect()
    }

    fn warnings(&self) -> Vec<PoolWarning> {
        let warning = |(_, action): &(Time, PoolAction)| match action {
            PoolAction::Warn { warning, .. } => Some(warning.clone()),
            PoolAction::WouldKill { .. } | PoolAction::Kill { .. } => None,
        };
        self.actions.iter().filter_map(warning).collect()
    }
}

#[test]
fn members_are_the_namespace_or_those_with_the_label() {
    let labels = |id: &str| BTreeMap::from([("process_group".to_owned(), id.to_owned())]);
    let whole = pool(limits(1.0, 1.0, Weight::Usage));
    let part = Pool { id: "web".parse().unwrap(), ..whole.clone() };

    assert!(is_member(&whole, &key("a"), &BTreeMap::new()));
    assert!(is_member(&whole, &key("a"), &labels("web")));
    assert!(is_member(&part, &key("a"), &labels("web")));
    assert!(!is_member(&part, &key("a"), &labels("db")));
    assert!(!is_member(&part, &key("a"), &BTreeMap::new()));
    assert!(!is_member(&part, &"other/a".parse().unwrap(), &labels("web")));
}

#[test]
fn f8_of_10_8_5_exactly_the_10_is_killed() {
    let mut world = World::memory(22.0, Weight::Usage, &[8.0, 10.0, 5.0]);

    world.pass(60);

    let [(_, PoolAction::Kill { victim, resource, usage, limit, ranking })] = world.actions.as_slice() else {
        panic!("one kill and nothing else: {:?}", world.actions)
    };
    assert_eq!((victim, *resource, *usage, *limit), (&key("b"), Resource::Memory, 23.0, 22.0));
    let ranking: Vec<_> = ranking.iter().map(|ranked| (ranked.key.name.as_str(), ranked.score)).collect();
    assert_eq!(ranking, [("b", 10.0), ("a", 8.0), ("c", 5.0)]);
    assert_eq!(world.machine.usage(), (0.0, 13.0));
}

#[test]
fn f8_the_same_for_cpu_after_a_sustained_excess() {
    let mut world = World::new(limits(22.0, 0.0, Weight::Usage));
    for (name, cpu) in [("a", 8.0), ("b", 10.0), ("c", 5.0)] {
        world.join(name, cpu, 1.0);
    }

    world.pass(8);
    assert_eq!(world.victims(), [""; 0]);
    world.pass(60);

    assert_eq!(world.victims(), ["b"]);
}

#[test]
fn f10_a_member_without_a_limit_is_weighed_by_the_limit_of_the_pool() {
    for neutral in [None, Some(0.0)] {
        let mut world = World::memory(20.0, Weight::UsageByLimit, &[9.0, 8.0, 6.0]);
        world.member("a").memory_limit = Some(18.0); // 0.5
        world.member("b").memory_limit = neutral; // 8 of the pool's 20: 0.4
        world.member("c").memory_limit = Some(10.0); // 0.6

        world.pass(5);

        assert_eq!(world.victims(), ["c"]);
        let Some((_, PoolAction::Kill { ranking, .. })) = world.actions.first() else { panic!("a kill") };
        let scores: Vec<f64> = ranking.iter().map(|ranked| ranked.score).collect();
        assert_eq!(scores, [0.6, 0.5, 0.4]);
    }
}

#[test]
fn f13_a_victim_that_offends_again_is_the_victim_again_and_its_neighbours_live() {
    let mut world = World::memory(22.0, Weight::Usage, &[10.0, 8.0, 5.0]);
    for _ in 0..4 {
        world.pass(10);
        let offender = world.join("a", 0.0, 2.0);
        offender.eligible = false; // on its way up
        world.pass(2);
        world.member("a").memory = 10.0;
        world.pass(4);
        world.member("a").eligible = true;
    }

    assert_eq!(world.victims(), ["a"; 4]);
}

#[test]
fn f13_a_member_that_is_being_ended_is_waited_for() {
    let mut world = World::memory(22.0, Weight::Usage, &[10.0, 8.0, 5.0]);
    world.member("a").eligible = false;

    world.pass(8);
    world.members.remove(0);
    world.pass(30);

    assert_eq!(world.victims(), [""; 0]);
}

#[test]
fn f14_a_lowered_limit_is_warned_of_and_then_takes_victims_one_by_one() {
    let mut world = World::memory(40.0, Weight::Usage, &[10.0, 8.0, 5.0]);
    world.pass(30);
    assert_eq!(world.actions, []);

    let lowered = world.now;
    world.handle(PoolEvent::Changed(limits(0.0, 10.0, Weight::Usage)));
    assert_eq!(world.warnings(), [PoolWarning::Lowered]);
    world.pass(9);
    assert_eq!(world.victims(), [""; 0]);
    world.pass(60);

    assert_eq!(world.victims(), ["a", "b"]);
    let kills = world.kills();
    assert!(kills[0].0.since(lowered) >= Duration::from_secs(10));
    assert!(kills[1].0 > kills[0].0 + Duration::from_millis(300));
    assert_eq!(world.warnings(), [PoolWarning::Lowered]);
}

#[test]
fn f14_a_lowered_limit_that_is_still_kept_is_not_warned_of() {
    let mut world = World::memory(40.0, Weight::Usage, &[10.0, 8.0, 5.0]);
    world.pass(5);

    world.handle(PoolEvent::Changed(limits(0.0, 24.0, Weight::Usage)));
    world.pass(5);

    assert_eq!(world.actions, []);
}

#[test]
fn f15_noise_of_half_a_point_around_the_limit_does_nothing() {
    for rhythm in [1, 2, 3, 7, 20] {
        let mut world = World::new(limits(22.0, 22.0, Weight::Usage));
        world.join("a", 12.0, 12.0);
        world.join("b", 10.0, 10.0);
        for second in 0..600 {
            let noisy = if second / rhythm % 2 == 0 { 12.5 } else { 11.5 };
            let member = world.member("a");
            (member.cpu, member.memory) = (noisy, noisy);
            world.pass(1);
        }

        assert_eq!(world.actions, [], "rhythm {rhythm}");
    }
}

#[test]
fn memory_needs_two_samples_but_only_one_far_over() {
    let mut world = World::memory(20.0, Weight::Usage, &[21.0]);
    world.pass(1);
    world.member("a").memory = 19.0;
    world.pass(1);
    world.member("a").memory = 21.0;
    world.pass(1);
    assert_eq!(world.victims(), [""; 0]);
    world.pass(1);
    assert_eq!(world.victims(), ["a"]);

    let mut world = World::memory(20.0, Weight::Usage, &[25.1]);
    world.pass(1);
    assert_eq!(world.victims(), ["a"]);
}

#[test]
fn memory_comes_before_cpu() {
    let mut world = World::new(limits(20.0, 20.0, Weight::Usage));
    world.join("cpu", 30.0, 1.0);
    world.join("memory", 1.0, 19.0);
    world.pass(8);
    world.member("memory").memory = 30.0;

    world.pass(1);

    assert_eq!(world.victims(), ["memory"]);
}

#[test]
fn equal_scores_are_decided_by_name() {
    let mut world = World::memory(20.0, Weight::Usage, &[8.0, 8.0, 8.0]);
    world.members.reverse();

    world.pass(2);

    assert_eq!(world.victims(), ["a"]);
}

#[test]
fn a_member_over_its_own_limit_is_left_to_its_own_judge_for_ten_seconds() {
    let mut world = World::memory(20.0, Weight::Usage, &[6.0, 15.0]);
    world.member("a").memory_limit = Some(5.0);
    world.pass(2);
    let first = world.now;
    world.pass(9);
    assert_eq!(world.victims(), [""; 0]);

    world.pass(3);

    assert_eq!(world.victims(), ["b"]);
    assert_eq!(world.kills()[0].0.since(first), Duration::from_secs(10));
}

#[test]
fn nothing_more_happens_until_the_victim_is_dead() {
    let mut world = World::memory(20.0, Weight::Usage, &[15.0, 14.0, 13.0]);
    world.dies_after = Some(Duration::from_secs(45));
    world.pass(45);
    assert_eq!(world.victims(), ["a"]);

    world.pass(3);

    assert_eq!(world.victims(), ["a", "b"]);
}

#[test]
fn a_victim_that_does_not_die_is_given_up_after_a_minute() {
    let mut world = World::memory(20.0, Weight::Usage, &[15.0, 14.0]);
    world.dies_after = None;
    world.pass(2);
    world.member("a").eligible = false;
    world.pass(58);
    assert_eq!(world.victims(), ["a"]);

    world.pass(15);

    assert_eq!(world.warnings(), [PoolWarning::VictimSurvives(key("a"))]);
    assert_eq!(world.victims(), ["a", "b"]);
}

#[test]
fn samples_from_before_the_death_do_not_count_after_it() {
    let mut world = World::memory(20.0, Weight::Usage, &[15.0, 14.0, 13.0]);
    world.dies_after = None;
    world.pass(2);
    let before = world.members.clone();
    world.now = world.now + Duration::from_millis(500);
    world.handle(PoolEvent::Gone { key: key("a") });
    for _ in 0..8 {
        world.now = world.now + Duration::from_millis(500);
        world.handle(PoolEvent::Sampled { at: world.now, members: before.clone() });
    }

    assert_eq!(world.victims(), ["a"]);
}

#[test]
fn samples_on_both_sides_of_a_hole_are_not_consecutive() {
    let mut world = World::memory(20.0, Weight::Usage, &[21.0]);
    world.pass(1);
    world.now = world.now + Duration::from_secs(6);

    world.sample();
    assert_eq!(world.victims(), [""; 0]);
    world.pass(1);

    assert_eq!(world.victims(), ["a"]);
}

#[test]
fn a_pool_that_is_inside_its_limit_again_is_spared_whatever_its_mean() {
    let mut world = World::new(limits(20.0, 0.0, Weight::Usage));
    world.join("a", 40.0, 0.0);
    world.pass(8);
    world.member("a").cpu = 19.0;

    world.pass(60);

    assert_eq!(world.actions, []);
}

#[test]
fn a_pool_that_is_inside_its_limit_when_the_waiting_ends_is_spared() {
    let mut world = World::memory(20.0, Weight::Usage, &[6.0, 15.0]);
    world.member("a").memory_limit = Some(5.0);
    world.pass(11);

    world.member("b").memory = 13.0;
    world.pass(30);

    assert_eq!(world.actions, []);
}

#[test]
fn every_breach_waits_anew_for_members_over_their_own_limit() {
    let mut world = World::memory(20.0, Weight::Usage, &[6.0, 15.0]);
    world.member("a").memory_limit = Some(5.0);
    world.pass(8);
    world.member("b").memory = 13.0;
    world.pass(5);

    world.member("b").memory = 15.0;
    world.pass(9);
    assert_eq!(world.victims(), [""; 0]);
    world.pass(5);

    assert_eq!(world.victims(), ["b"]);
}

#[test]
fn a_repeated_sample_is_not_a_second_one() {
    let mut world = World::memory(20.0, Weight::Usage, &[21.0]);
    world.sample();
    for _ in 0..4 {
        world.now = world.now + Duration::from_secs(1);
        world.handle(PoolEvent::Sampled { at: world.now, members: world.members.clone() });
    }

    assert_eq!(world.victims(), [""; 0]);
}

#[test]
fn six_kills_a_minute_are_enough() {
    let sizes: Vec<f64> = (0..20).map(|n| 5.0 - f64::from(n) / 100.0).collect();
    let mut world = World::memory(10.0, Weight::Usage, &sizes);

    world.pass(50);
    assert_eq!(world.victims().len(), 6);
    assert_eq!(world.warnings(), [PoolWarning::KillsCapped]);
    world.pass(600);

    assert_eq!(world.members.len(), 2, "in the end the pool keeps its limit");
}

#[test]
fn a_dry_run_tells_once_per_breach_and_kills_nobody() {
    let mut world = World::memory(22.0, Weight::Usage, &[10.0, 8.0, 5.0]);
    world.handle(PoolEvent::DryRun(true));
    world.pass(60);
    assert!(matches!(world.actions.as_slice(), [(_, PoolAction::WouldKill { victim, .. })] if *victim == key("a")));

    world.member("c").memory = 1.0;
    world.pass(5);
    world.member("c").memory = 5.0;
    world.pass(5);
    assert_eq!(world.actions.len(), 2);
    world.handle(PoolEvent::DryRun(false));

    assert_eq!(world.victims(), ["a"]);
}

#[test]
fn a_pool_without_anybody_to_end_says_so_once() {
    let mut world = World::memory(22.0, Weight::Usage, &[23.0]);
    world.member("a").eligible = false;

    world.pass(60);

    assert_eq!(world.warnings(), [PoolWarning::NoVictim]);
    assert_eq!(world.actions.len(), 1);
}

#[test]
fn no_limit_means_no_kill() {
    let mut world = World::new(limits(0.0, 0.0, Weight::UsageByLimit));
    world.join("a", 100.0, 100.0);

    world.pass(60);

    assert_eq!(world.actions, []);
    assert_eq!(world.machine.poll_timeout(), None);
}

#[test]
fn members_are_sampled_often_near_a_limit_and_always_before_samples_are_worthless() {
    let mut world = World::memory(20.0, Weight::Usage, &[1.0]);
    assert_eq!(world.machine.next_sample(), Duration::from_secs(4));
    world.member("a").memory = 14.0;

    world.sample();

    assert_eq!(world.machine.next_sample(), Duration::from_secs(1));
}

fn any_weight() -> impl Strategy<Value = Weight> {
    prop_oneof![Just(Weight::Usage), Just(Weight::UsageByLimit)]
}

/// Usage, own limit, eligible.
type Traits = (f64, Option<f64>, bool);

fn any_members() -> impl Strategy<Value = Vec<Traits>> {
    let own = prop_oneof![Just(None), Just(Some(0.0)), (0.1..50.0f64).prop_map(Some)];
    prop::collection::vec((0.0..20.0f64, own, prop::bool::weighted(0.8)), 1..8)
}

/// Who is killed first when these members go on like this for half a minute.
fn first_victim(limit: f64, weight: Weight, members: &[Traits]) -> Option<ProcessKey> {
    let mut world = World::memory(limit, weight, &[]);
    for (name, (memory, own, eligible)) in ('a'..).zip(members) {
        let member = world.join(&name.to_string(), 0.0, *memory);
        (member.memory_limit, member.eligible) = (*own, *eligible);
    }
    world.dies_after = None;
    world.pass(45);
    world.kills().first().map(|(_, key)| key.clone())
}

fn index_of(victim: &ProcessKey) -> usize {
    usize::from(victim.name.as_str().as_bytes()[0] - b'a')
}

#[derive(Clone, Debug)]
enum Move {
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

fn any_move() -> impl Strategy<Value = Move> {
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
struct Chaos {
    world: World,
    /// The newest samples that the machine was told.
    told: Vec<Member>,
    in_flight: Option<(Time, ProcessKey)>,
    died: Time,
    kills: Vec<Time>,
}

impl Chaos {
    fn new(weight: Weight) -> Self {
        let mut world = World::new(limits(30.0, 30.0, weight));
        world.dies_after = None;
        for name in ["a", "b", "c", "d", "e", "f"] {
            world.join(name, 4.0, 4.0);
        }
        let died = Time::default();
        Self { world, told: Vec::new(), in_flight: None, died, kills: Vec::new() }
    }

    fn apply(&mut self, step: Move) {
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
        let best = self.told.iter().filter(|member| member.eligible).map(score).fold(0.0, f64::max);
        let chosen = self.told.iter().find(|member| member.key == *victim).unwrap();
        assert!(chosen.eligible && score(chosen) >= best, "not the highest score");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_kill_is_justified_whatever_happens(
        weight in any_weight(), moves in prop::collection::vec(any_move(), 1..200),
    ) {
        let mut chaos = Chaos::new(weight);
        moves.into_iter().for_each(|step| chaos.apply(step));
    }

    #[test]
    fn the_victim_is_eligible_and_of_the_highest_score(
        limit in 1.0..60.0f64, weight in any_weight(), members in any_members(),
    ) {
        let sum: f64 = members.iter().map(|(usage, ..)| usage).sum();
        let score = |(usage, own, _): &Traits| match weight {
            Weight::Usage => *usage,
            Weight::UsageByLimit => usage / own.filter(|own| *own > 0.0).unwrap_or(limit),
        };

        match first_victim(limit, weight, &members) {
            Some(victim) => {
                let chosen = &members[index_of(&victim)];
                prop_assert!(sum > limit && chosen.2);
                prop_assert!(members.iter().filter(|member| member.2).all(|member| score(member) <= score(chosen)));
            }
            None => prop_assert!(sum <= limit * 1.01 || !members.iter().any(|(usage, _, eligible)| *eligible && *usage > 0.0)),
        }
    }

    #[test]
    fn a_victim_that_uses_more_or_may_use_less_stays_the_victim(
        limit in 1.0..60.0f64, weight in any_weight(), members in any_members(), more in 0.0..20.0f64, less in 0.1..1.0f64,
    ) {
        let Some(victim) = first_victim(limit, weight, &members) else { return Ok(()) };
        let index = index_of(&victim);

        let mut greedier = members.clone();
        greedier[index].0 += more;
        prop_assert_eq!(first_victim(limit, weight, &greedier), Some(victim.clone()));
        let mut tighter = members;
        tighter[index].1 = tighter[index].1.filter(|own| *own > 0.0).map(|own| own * less);
        prop_assert_eq!(first_victim(limit, weight, &tighter), Some(victim));
    }

    #[test]
    fn nobody_is_chosen_for_being_allowed_more(
        limit in 1.0..60.0f64, members in any_members(), who in 0usize..8, more in 1.0..10.0f64,
    ) {
        let index = who % members.len();
        let mut generous = members.clone();
        generous[index].1 = generous[index].1.filter(|own| *own > 0.0).map(|own| own * more);

        let (before, after) =
            (first_victim(limit, Weight::UsageByLimit, &members), first_victim(limit, Weight::UsageByLimit, &generous));

        let is_it = |victim: &Option<ProcessKey>| victim.as_ref().is_some_and(|victim| index_of(victim) == index);
        prop_assert!(is_it(&before) || !is_it(&after));
    }
}
