//! Pools in virtual time: the rules one by one; `properties` for random members and events.

#![allow(clippy::unwrap_used, reason = "tests")]

mod chaos;
mod properties;
mod world;

use std::time::Duration;

use proctor_model::{Labels, Pool, Weight};
use proctor_supervise::{PoolAction, PoolEvent, PoolWarning, Resource, is_member};
use world::{World, key, limits, pool};

#[test]
fn members_are_the_namespace_or_those_with_the_label() {
    let labels = |id: &str| Labels::from_iter([("process_group".to_owned(), id.to_owned())]);
    let whole = pool(limits(1.0, 1.0, Weight::Usage));
    let part = Pool { id: "web".parse().unwrap(), ..whole.clone() };

    assert!(is_member(&whole, &key("a"), &Labels::default()));
    assert!(is_member(&whole, &key("a"), &labels("web")));
    assert!(is_member(&part, &key("a"), &labels("web")));
    assert!(!is_member(&part, &key("a"), &labels("db")));
    assert!(!is_member(&part, &key("a"), &Labels::default()));
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
fn f15_a_breach_that_dips_under_the_limit_is_told_once() {
    let mut world = World::memory(22.0, Weight::Usage, &[12.0, 10.0]);
    world.dry_run(true);
    for second in 0..600 {
        world.member("a").memory = if second / 5 % 2 == 0 { 13.0 } else { 11.8 };
        world.pass(1);
    }

    assert_eq!(world.actions.len(), 1, "{:?}", world.actions);
}

#[test]
fn a_sample_from_the_future_counts_for_nothing() {
    let mut world = World::memory(20.0, Weight::Usage, &[30.0]);
    world.member("a").sampled_at = world.now + Duration::from_secs(60);

    world.handle(PoolEvent::Sampled { at: world.now, members: world.members.clone() });

    assert_eq!(world.actions, []);
    assert_eq!(world.machine.usage(), (0.0, 0.0));
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

    assert_eq!(world.warnings(), [PoolWarning::VictimSurvives(key("a")), PoolWarning::Blocked(key("a"))]);
    assert_eq!(world.victims(), ["a"], "its neighbour is not ended in its place");
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
    world.dry_run(true);
    world.pass(60);
    assert!(matches!(world.actions.as_slice(), [(_, PoolAction::WouldKill { victim, .. })] if *victim == key("a")));

    world.member("c").memory = 1.0;
    world.pass(5);
    world.member("c").memory = 5.0;
    world.pass(5);
    assert_eq!(world.actions.len(), 2);
    world.dry_run(false);
    world.pass(1);

    assert_eq!(world.victims(), ["a"]);
}

#[test]
fn a_pool_without_anybody_to_end_says_so_once() {
    let mut world = World::memory(22.0, Weight::Usage, &[23.0]);
    world.member("a").eligible = false;

    world.pass(60);

    assert_eq!(world.warnings(), [PoolWarning::Blocked(key("a"))]);
    assert_eq!(world.actions.len(), 1);
}

#[test]
fn nobody_is_ended_in_the_place_of_a_member_that_may_not_be() {
    let mut world = World::memory(22.0, Weight::Usage, &[15.0, 8.0, 5.0]);
    world.member("a").eligible = false;

    world.pass(120);

    assert_eq!(world.victims(), [""; 0]);
    assert_eq!(world.warnings(), [PoolWarning::Blocked(key("a"))]);
    world.member("a").eligible = true;
    world.pass(5);
    assert_eq!(world.victims(), ["a"]);
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
