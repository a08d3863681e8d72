use super::*;

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

fn presence(names: &[&str]) -> Presence {
    let presence = Presence::of_earlier_life(&[], Instant::now(), Some(return_grace(names.len())));
    presence.state.lock().returning = names.iter().map(|name| (agent(name), 7)).collect();
    presence
}

#[test]
fn who_is_lost_is_written_until_the_store_takes_it() {
    let presence = presence(&["a", "b"]);

    presence.lose(vec![agent("a"), agent("unknown")]);
    let due = presence.take_due();
    assert_eq!(presence.gone(Instant::now()), HashSet::from([agent("a")]), "also while it is being written");
    presence.put_back(due.clone());

    assert_eq!(due.iter().map(|ended| (&ended.agent, ended.epoch)).collect::<Vec<_>>(), [(&agent("a"), 7)]);
    assert!(presence.take_due().is_empty(), "not at once");
    presence.state.lock().failed_at = Instant::now().checked_sub(RETRY_AFTER);
    assert_eq!(presence.take_due(), due);
    presence.written(&due);
    assert!(presence.gone(Instant::now()).is_empty(), "the store knows it");
    assert_eq!(presence.agents(), HashSet::from([agent("b")]));
}

fn told_of(presence: &Presence) -> Vec<(u64, bool, bool)> {
    told(&presence.take_due())
}

fn told(ended: &[EndedSession]) -> Vec<(u64, bool, bool)> {
    let mut told: Vec<_> = ended.iter().map(|ended| (ended.epoch, ended.event.is_some(), ended.untold)).collect();
    told.sort_unstable();
    told
}

#[test]
fn who_went_with_its_relay_is_offline_only_if_its_area_is_served() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("served"), 7, 1, begun, true);
    presence.moves(&agent("unserved"), 8, 2, begun, true);
    presence.moves(&agent("quick"), 9, 1, begun, true);
    let settle = |at, served: &[u32]| presence.settle_away(at, |cloud| served.contains(&cloud));

    settle(begun + MOVING_GRACE / 2, &[1]);
    assert!(presence.take_due().is_empty());
    assert!(presence.comes_back(&agent("quick"), begun), "nobody was told");
    settle(begun + MOVING_GRACE, &[1]);

    assert_eq!(told(&presence.take_due()), [(7, true, false), (8, false, true)]);
    settle(begun + 9 * MOVING_GRACE, &[1]);
    assert!(presence.take_due().is_empty());
    settle(begun + 10 * MOVING_GRACE, &[1, 2]);
    assert_eq!(told(&presence.take_due()), [(8, true, false)]);
}

#[test]
fn while_others_of_its_area_come_back_an_agent_is_waited_for_within_limits() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("last"), 7, 1, begun, true);
    presence.moves(&agent("elsewhere"), 8, 2, begun, true);
    for number in 0..200 {
        presence.moves(&agent(&format!("a-{number}")), 9, 1, begun, true);
    }
    let mut told_at = Vec::new();

    for second in 0..200 {
        let at = begun + Duration::from_secs(second);
        presence.comes_back(&agent(&format!("a-{second}")), at);
        presence.settle_away(at, |_| true);
        told_at.extend(presence.take_due().into_iter().map(|ended| (ended.epoch, second)).filter(|told| told.0 < 9));
    }

    assert_eq!(told_at, [(8, MOVING_GRACE.as_secs()), (7, MOVING_GRACE_MAX.as_secs())]);
}

#[test]
fn while_many_agents_without_a_relay_come_back_the_others_are_waited_for_within_limits() {
    let told_after = |returns_per_second: u64| {
        let (presence, begun) = (presence(&[]), Instant::now());
        let beat = Duration::from_secs(5);
        presence.suspects(&agent("last"), 7, begun, beat);
        let mut told_at = Vec::new();
        for second in 0..200 {
            let at = begun + Duration::from_secs(second);
            for number in 0..returns_per_second {
                let other = agent(&format!("a-{second}-{number}"));
                presence.suspects(&other, 9, at, beat);
                presence.comes_back(&other, at);
            }
            presence.settle_away(at, |_| true);
            told_at.extend(presence.take_due().into_iter().map(|ended| (ended.epoch, second)));
        }
        told_at
    };

    assert_eq!(told_after(20), [(7, MOVING_GRACE_MAX.as_secs())]);
    assert_eq!(told_after(1), [(7, SUSPECT_GRACE_MIN.as_secs())], "one that comes and goes keeps nobody waiting");
}

#[test]
fn nobody_waits_for_a_host_that_is_forgotten() {
    let presence = presence(&["returning", "lost", "written"]);
    presence.lose(vec![agent("written")]);
    let due = presence.take_due();
    presence.lose(vec![agent("lost")]);

    for name in ["returning", "lost", "written"] {
        presence.forget(&agent(name));
    }

    assert!(presence.gone(presence.grace_ends()).is_empty());
    assert!(presence.agents().is_empty() && presence.take_due().is_empty());
    presence.written(&due);
    assert!(presence.gone(presence.grace_ends()).is_empty());
}

#[test]
fn an_agent_that_was_put_off_is_waited_for_from_then_on() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("busy"), 7, 1, begun, true);
    // It was told to come back in two graces: an agent that does is not gone.
    let told = begun + 2 * MOVING_GRACE;
    presence.puts_off(&agent("busy"), told);

    presence.settle_away(told + MOVING_GRACE / 2, |_| true);
    assert!(presence.take_due().is_empty());
    presence.settle_away(told + MOVING_GRACE, |_| true);

    assert_eq!(presence.take_due().len(), 1);
}

#[test]
fn an_agent_out_of_reach_that_came_and_was_put_off_is_waited_for_too() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("busy"), 7, 1, begun, true);
    presence.settle_away(begun + MOVING_GRACE, |_| false);
    assert_eq!(presence.take_due().len(), 1, "out of reach");
    // Its relay is back, and so is the agent, at the end of the area's time.
    let told = begun + 10 * MOVING_GRACE;
    presence.puts_off(&agent("busy"), told);

    presence.settle_away(told, |_| true);
    assert!(presence.take_due().is_empty());
    presence.settle_away(told + MOVING_GRACE, |_| true);

    assert_eq!(told_of(&presence), [(7, true, false)]);
}

#[test]
fn an_agent_that_came_after_a_restart_and_was_put_off_is_waited_for_from_then_on() {
    let presence = presence(&["busy", "lost"]);
    let told = presence.grace_ends() + MOVING_GRACE;
    presence.puts_off(&agent("busy"), told);

    let late = presence.grace_ends() + Duration::from_secs(1);
    presence.settle_away(late, |_| true);
    presence.lose(vec![agent("busy"), agent("lost")]);
    let lost: Vec<_> = presence.take_due().into_iter().map(|ended| ended.agent).collect();
    assert_eq!(lost, [agent("lost")]);
    assert!(presence.is_returning(&agent("busy"), late) && presence.is_moving(&agent("busy")));
    presence.settle_away(told + MOVING_GRACE, |_| true);

    let due = presence.take_due();
    let content = due[0].event.as_ref().map(|event| &event.content);
    assert_eq!(content, Some(&messages::agent_did_not_return(agent("busy"))));
}

#[test]
fn agents_that_were_put_off_are_still_expected_until_they_come_or_are_lost() {
    let presence = presence(&["a", "b", "c", "silent"]);
    let begun = presence.grace_ends() - Duration::from_secs(1);
    let until = presence.grace_ends() + MOVING_GRACE;
    let count = |at| presence.returning_count(at);

    for name in ["a", "b", "c", "a"] {
        presence.puts_off(&agent(name), until);
    }
    presence.moves(&agent("relayed"), 7, 1, begun, true);
    assert_eq!(count(begun), 4, "who moves from relay to relay comes at the pace of relays");
    assert_eq!(count(presence.grace_ends()), 3, "the silent one is no longer expected");
    presence.comes_back(&agent("a"), begun);
    presence.moves(&agent("b"), 8, 1, begun, true);
    assert_eq!(count(presence.grace_ends()), 1);
    presence.settle_away(until + MOVING_GRACE_MAX, |_| true);

    assert_eq!(count(presence.grace_ends()), 0);
}

#[test]
fn while_agents_of_an_area_are_put_off_unknown_nobody_of_it_is_offline_for_a_while() {
    let presence = presence(&["a", "b"]);
    presence.came_through(&agent("a"), Some(3));
    presence.came_through(&agent("b"), Some(4));
    let (over, mut told) = (presence.grace_ends() + Duration::from_secs(1), Vec::new());
    for second in 0..PUT_OFF_MAX.as_secs() + 60 {
        let now = over + Duration::from_secs(second);
        // Without end, as a relay that invents agents would have it.
        presence.puts_off_unknown(3, now, now + Duration::from_secs(2));
        presence.settle_away(now, |_| true);
        presence.lose(vec![agent("b")]);
        told.extend(presence.take_due().into_iter().filter(|ended| ended.event.is_some()).map(|e| (e.agent, second)));
    }

    assert_eq!(told, [(agent("b"), 0), (agent("a"), PUT_OFF_MAX.as_secs())]);
}

#[test]
fn an_agent_that_was_put_off_unknown_is_offline_soon_after_the_last_one_should_be_back() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("a"), 7, 3, begun, true);
    presence.puts_off_unknown(3, begun, begun + 2 * MOVING_GRACE);

    presence.settle_away(begun + 2 * MOVING_GRACE, |_| true);
    assert!(presence.take_due().is_empty());
    presence.settle_away(begun + 2 * MOVING_GRACE + COMING_BACK + Duration::from_secs(1), |_| true);

    assert_eq!(told_of(&presence), [(7, true, false)]);
    assert!(presence.state.lock().put_off.is_empty(), "nothing is kept of an area that is quiet");
}

#[test]
fn when_nobody_comes_back_any_more_those_who_are_left_are_offline() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("last"), 7, 1, begun, true);
    presence.moves(&agent("quick"), 8, 1, begun, true);

    presence.comes_back(&agent("quick"), begun + MOVING_GRACE);
    presence.settle_away(begun + MOVING_GRACE, |_| true);
    assert!(presence.take_due().is_empty());
    presence.settle_away(begun + MOVING_GRACE + COMING_BACK, |_| true);

    assert_eq!(told(&presence.take_due()), [(7, true, false)]);
}

#[test]
fn who_was_silent_behind_a_relay_that_is_there_is_waited_for_too() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("a"), 7, 1, begun, false);

    assert!(presence.is_returning(&agent("a"), begun) && presence.is_moving(&agent("a")));
    presence.settle_away(begun + MOVING_GRACE, |_| true);

    let due = presence.take_due();
    let content = due[0].event.as_ref().map(|event| &event.content);
    assert_eq!(content, Some(&messages::agent_disconnected(agent("a"))));
}

#[test]
fn after_a_restart_hosts_of_an_area_without_relays_are_out_of_reach_and_not_lost() {
    let (presence, begun) = (presence(&["a", "b"]), Instant::now());
    presence.came_through(&agent("a"), Some(3));

    presence.settle_away(begun, |_| false);
    assert!(presence.take_due().is_empty(), "they may still come back");
    presence.settle_away(begun + 2 * return_grace(2), |_| false);
    presence.lose(vec![agent("a"), agent("b")]);

    let mut due = presence.take_due();
    due.sort_by(|one, other| one.agent.cmp(&other.agent));
    assert_eq!(
        due.iter().map(|ended| (ended.event.is_some(), ended.untold)).collect::<Vec<_>>(),
        [(false, true), (true, false)]
    );
}

#[test]
fn a_forgotten_host_is_out_of_nobodys_reach() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.came_through(&agent("a"), Some(3));
    presence.moves(&agent("a"), 7, 3, begun, true);
    presence.settle_away(begun + MOVING_GRACE, |_| false);
    presence.take_due();

    presence.forget(&agent("a"));

    presence.settle_away(begun + 2 * MOVING_GRACE, |_| true);
    assert!(presence.take_due().is_empty() && presence.relayed_agents().is_empty());
}

#[test]
fn of_sessions_that_end_out_of_order_the_newest_counts() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("a"), 8, 3, begun, true);
    presence.moves(&agent("a"), 7, 3, begun, true);

    presence.settle_away(begun + MOVING_GRACE, |_| true);

    assert_eq!(told(&presence.take_due()), [(8, true, false)]);
}

#[test]
fn a_forgotten_host_that_was_moving_is_waited_for_no_more() {
    let (presence, begun) = (presence(&[]), Instant::now());
    presence.moves(&agent("a"), 7, 3, begun, true);

    presence.forget(&agent("a"));

    assert!(!presence.is_returning(&agent("a"), begun));
    presence.settle_away(begun + 2 * MOVING_GRACE, |_| true);
    assert!(presence.take_due().is_empty(), "nobody is told of a host that is gone");
}

#[test]
fn after_the_grace_those_who_did_not_return_are_gone_whoever_sweeps() {
    let (presence, begun) = (presence(&["a"]), Instant::now());
    let in_grace = begun + return_grace(1) / 2;

    assert!(presence.is_returning(&agent("a"), in_grace) && presence.gone(in_grace).is_empty());
    let later = begun + 2 * return_grace(1);
    assert!(!presence.is_returning(&agent("a"), later));
    assert_eq!(presence.gone(later), HashSet::from([agent("a")]));
}

#[test]
fn who_comes_back_before_anybody_was_told_was_never_away() {
    let presence = presence(&["a", "b"]);
    presence.lose(vec![agent("a")]);

    assert!(presence.comes_back(&agent("a"), Instant::now()));
    assert!(!presence.comes_back(&agent("b"), Instant::now()));
    assert!(presence.take_due().is_empty() && presence.agents().is_empty());
}

#[test]
fn an_agent_whose_connection_broke_is_offline_after_a_heartbeat_and_fails_operations_before() {
    let (presence, begun, beat) = (presence(&[]), Instant::now(), Duration::from_secs(11));
    presence.suspects(&agent("gone"), 7, begun, beat);
    presence.suspects(&agent("quick"), 8, begun, Duration::ZERO);
    presence.suspects(&agent("reset"), 9, begun, beat);

    assert!(presence.is_suspect(&agent("gone")) && presence.is_returning(&agent("gone"), begun));
    assert!(!presence.is_moving(&agent("gone")), "an operation does not wait for it");
    assert!(presence.comes_back(&agent("reset"), begun), "nobody was told");
    assert_eq!(presence.suspect_count(), 2);
    presence.settle_away(begun + SUSPECT_GRACE_MIN, |_| true);
    assert_eq!(told_of(&presence), [(8, true, false)]);
    presence.settle_away(begun + beat, |_| true);
    assert_eq!(told_of(&presence), [(7, true, false)]);
    assert_eq!(presence.suspect_count(), 0);
}
