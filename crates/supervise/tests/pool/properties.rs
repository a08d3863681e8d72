//! What holds for all members and events.

use proctor_model::{ProcessKey, Weight};
use proptest::prelude::*;

use crate::chaos::{Chaos, any_move};
use crate::world::World;

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
                prop_assert!(members.iter().all(|member| score(member) <= score(chosen)));
            }
            None => {
                let best = members.iter().filter(|member| member.2).map(score).fold(0.0, f64::max);
                let is_blocked = members.iter().any(|member| !member.2 && score(member) >= best);
                prop_assert!(sum <= limit * 1.01 || is_blocked || best == 0.0);
            }
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
