use uuid::Uuid;

use super::*;

fn agent(number: u32) -> AgentId {
    format!("a-{number}").parse().unwrap()
}

fn machine(rings: &[u32], failures_max: u32) -> UpgradeMachine {
    let build = UpgradeBuild { arch: "x86_64".into(), name: "b".into(), sha256: "ab".into(), size: 1 };
    let plan = UpgradePlan {
        version: "2.0.0".into(),
        builds: vec![build],
        rings: rings.to_vec(),
        health_deadline_secs: 60,
        failures_max,
        allow_downgrade: false,
    };
    let upgrade = Upgrade {
        id: Uuid::nil(),
        plan,
        state: UpgradeState::Running,
        reason: Message::default(),
        created_by: String::new(),
        makers: Vec::new(),
        created_at: 0,
        changed_at: 0,
    };
    let ring_of = rings.iter().zip(0..).flat_map(|(count, ring)| std::iter::repeat_n(ring, *count as usize));
    let hosts = ring_of.zip(0..).map(|(ring, number)| UpgradeHost {
        agent: agent(number),
        host: format!("0:10.0.0.{number}").parse().unwrap(),
        ring,
        state: UpgradeHostState::Waiting,
        reason: Message::foreign(""),
        version_before: "1.0.0".into(),
        changed_at: 0,
    });
    UpgradeMachine::new(upgrade, hosts.collect(), Instant::now(), 0)
}

fn ready(_: &AgentId) -> Seen {
    version("1.0.0", 1)
}

fn version(version: &str, epoch: u64) -> Seen {
    Seen::Ready { arch: "x86_64".into(), version: version.into(), epoch }
}

/// Those of the first ring have the new version.
fn first_is_new(agent: &AgentId) -> Seen {
    if agent.as_str() == "a-0" { version("2.0.0", 7) } else { ready(agent) }
}

fn told(step: &Step) -> Vec<(String, UpgradeHostState)> {
    step.changes.iter().map(|change| (change.agent.to_string(), change.state)).collect()
}

fn ended(machine: &mut UpgradeMachine, number: u32, state: UpgradeHostState) {
    let change = UpgradeHostChange { agent: agent(number), state, reason: Message::foreign("") };
    machine.apply(&[change], Instant::now());
}

/// The machine after its first ring was upgraded.
fn first_ring_done(rings: &[u32], failures_max: u32, now: Instant) -> UpgradeMachine {
    let mut machine = machine(rings, failures_max);
    let first = machine.step(now, ready);
    machine.apply(&first.changes, now);
    for number in 0..rings[0] {
        ended(&mut machine, number, UpgradeHostState::Done);
    }
    machine
}

#[test]
fn a_ring_begins_when_the_one_before_is_over_and_failures_stop_everything() {
    use UpgradeHostState::{Done, Failed, Upgrading};
    let (mut machine, now) = (machine(&[2, 2, 1], 1), Instant::now());
    let look = |agent: &AgentId| if agent.as_str() == "a-1" { version("2.0.0", 7) } else { ready(agent) };
    let first = machine.step(now, ready);
    assert_eq!(told(&first), [("a-0".to_owned(), Upgrading), ("a-1".to_owned(), Upgrading)]);
    machine.apply(&first.changes, now);
    ended(&mut machine, 0, Failed);
    assert_eq!(machine.step(now, ready), Step::default(), "the first ring is under way");
    ended(&mut machine, 1, Done);
    assert_eq!(machine.step(now, look), Step::default(), "it has to settle");
    let later = now + SETTLE;
    let second = machine.step(later, look);
    assert_eq!(told(&second), [("a-2".to_owned(), Upgrading), ("a-3".to_owned(), Upgrading)], "one may fail");
    machine.apply(&second.changes, later);
    let all_new = |_: &AgentId| version("2.0.0", 7);
    ended(&mut machine, 2, Done);
    assert_eq!(machine.step(later, all_new), Step::default());

    ended(&mut machine, 3, Failed);

    let (state, reason) = machine.step(later, all_new).end.unwrap();
    assert_eq!((state, reason.as_str()), (UpgradeState::Failed, "failed hosts: 2 (allowed: 1)"));
}

#[test]
fn the_next_ring_waits_for_one_session_that_lasts() {
    let now = Instant::now();
    let mut machine = first_ring_done(&[1, 1], 0, now);
    let second = Duration::from_secs(1);
    let session = |epoch| {
        move |agent: &AgentId| {
            if agent.as_str() == "a-0" { version("2.0.0", epoch) } else { ready(agent) }
        }
    };

    assert_eq!(machine.step(now, session(1)), Step::default());
    assert_eq!(machine.step(now + SETTLE - second, session(1)), Step::default());
    // It crashed and came back between two looks.
    assert_eq!(machine.step(now + SETTLE, session(2)), Step::default());
    assert_eq!(machine.step(now + 2 * SETTLE - second, session(2)), Step::default());
    let begun = machine.step(now + 2 * SETTLE, session(2));

    assert_eq!(told(&begun), [("a-1".to_owned(), UpgradeHostState::Upgrading)]);
    machine.apply(&begun.changes, now);
    let gone = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { ready(agent) };
    let late = machine.step(now + 2 * SETTLE + second, gone);
    assert!(late.changes.is_empty() && late.end.is_none(), "what settled has settled");
}

#[test]
fn a_host_that_does_not_keep_the_new_version_has_failed_after_all() {
    let now = Instant::now();
    let patience = LOST_MAX + Duration::from_secs(60);
    let absent = |_: &AgentId| Seen::Absent;
    let mut gone = first_ring_done(&[1, 1], 0, now);
    assert_eq!(gone.step(now, absent), Step::default());
    assert_eq!(gone.step(now + patience / 2, absent), Step::default());
    let mut back = first_ring_done(&[1, 1], 0, now);

    for step in [gone.step(now + patience, absent), back.step(now, ready)] {
        assert_eq!(told(&step), [("a-0".to_owned(), UpgradeHostState::Failed)]);
        assert_eq!(step.end.unwrap().0, UpgradeState::Failed);
    }
    let failed = UpgradeHostChange {
        agent: agent(0),
        state: UpgradeHostState::Failed,
        reason: messages::upgrade_gone_back("1.0.0"),
    };
    back.apply(&[failed], now);
    assert_eq!(back.count(UpgradeHostState::Failed), 1);
}

#[test]
fn where_nobody_was_upgraded_a_person_decides_about_the_next_ring() {
    use UpgradeHostState::{Failed, Skipped, Upgrading};
    for of_first in [Skipped, Failed] {
        let (mut machine, now) = (machine(&[1, 1], 1), Instant::now());
        let first = machine.step(now, ready);
        machine.apply(&first.changes, now);
        ended(&mut machine, 0, of_first);

        let paused = machine.step(now, ready);

        assert_eq!((told(&paused), paused.end), (vec![], Some((UpgradeState::Paused, messages::upgrade_of_nobody()))));
        machine.upgrade.state = UpgradeState::Paused;
        assert_eq!(machine.step(now, ready), Step::default());
        machine.upgrade.state = UpgradeState::Running;
        machine.resumed();
        assert_eq!(told(&machine.step(now, ready)), [("a-1".to_owned(), Upgrading)]);
    }
}

#[test]
fn a_server_that_starts_gives_hosts_time_to_come_back_and_knows_what_had_settled() {
    use UpgradeHostState::{Done, Upgrading};
    let (fresh, now) = (machine(&[1, 1, 1], 0), Instant::now());
    let restarted = |states: [UpgradeHostState; 3]| {
        let host = |(host, state): (&Host, UpgradeHostState)| UpgradeHost {
            agent: host.agent.clone(),
            host: "0:10.0.0.1".parse().unwrap(),
            ring: host.ring,
            state,
            reason: Message::foreign(""),
            version_before: "1.0.0".into(),
            changed_at: 0,
        };
        UpgradeMachine::new(fresh.upgrade.clone(), fresh.hosts.iter().zip(states).map(host).collect(), now, 0)
    };
    let returning = |_: &AgentId| Seen::Returning;
    let waiting = UpgradeHostState::Waiting;

    let mut early = restarted([waiting, waiting, waiting]);
    assert_eq!(early.step(now, returning), Step::default());
    assert_eq!(early.step(now + 2 * ABSENT_MAX, returning), Step::default(), "nobody is skipped");
    assert_eq!(told(&early.step(now + 2 * ABSENT_MAX, ready)), [("a-0".to_owned(), Upgrading)]);
    let mut unsettled = restarted([Done, waiting, waiting]);
    assert_eq!(unsettled.step(now, first_is_new), Step::default());
    // The first ring had settled, or the second would not have begun.
    let mut later = restarted([Done, Upgrading, waiting]);
    let gone = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { version("2.0.0", 1) };
    ended(&mut later, 1, Done);
    assert_eq!(later.step(now, gone), Step::default());
    assert_eq!(told(&later.step(now + SETTLE, gone)), [("a-2".to_owned(), Done)]);
}

#[test]
fn a_host_that_was_told_is_told_again_until_it_answers() {
    let (mut machine, now) = (machine(&[2], 0), Instant::now());
    let first = machine.step(now, ready);
    machine.apply(&first.changes, now);
    let look = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { ready(agent) };
    // Also where no further host may begin.
    machine.upgrade.state = UpgradeState::Paused;
    let again = |number| Step { again: vec![agent(number)], ..Step::default() };

    assert_eq!(machine.step(now + ORDER_PERIOD / 2, look), Step::default());
    assert_eq!(machine.step(now + ORDER_PERIOD, look), again(1));
    assert_eq!(machine.step(now + ORDER_PERIOD, look), Step::default());
    ended(&mut machine, 1, UpgradeHostState::Done);
    assert_eq!(machine.step(now + 2 * ORDER_PERIOD, ready), again(0));
}

#[test]
fn a_host_that_comes_and_goes_while_others_fetch_is_not_skipped() {
    let (mut machine, now) = (machine(&[200], 0), Instant::now());
    let first = machine.step(now, ready);
    machine.apply(&first.changes, now);
    let gone = |agent: &AgentId| if agent.as_str() == "a-199" { Seen::Absent } else { ready(agent) };

    machine.step(now, gone);
    machine.step(now + ABSENT_MAX / 2, ready);
    let step = machine.step(now + ABSENT_MAX, gone);

    assert!(step.changes.is_empty(), "{step:?}");
}

#[test]
fn hosts_that_cannot_be_upgraded_are_skipped_and_the_others_go_on() {
    use UpgradeHostState::{Done, Skipped, Upgrading};
    let (mut machine, now) = (machine(&[5], 0), Instant::now());
    let look = |agent: &AgentId| match agent.as_str() {
        "a-0" => Seen::Absent,
        "a-1" => Seen::TooOld,
        "a-2" => Seen::Ready { arch: "riscv64".into(), version: "1.0.0".into(), epoch: 1 },
        "a-3" => version("2.0.0", 1),
        _ => ready(agent),
    };

    let first = machine.step(now, look);
    machine.apply(&first.changes, now);
    let later = machine.step(now + ABSENT_MAX, look);
    machine.apply(&later.changes, now);

    let name = |number: u32| format!("a-{number}");
    assert_eq!(told(&first), [(name(1), Skipped), (name(2), Skipped), (name(3), Done), (name(4), Upgrading)]);
    assert_eq!(told(&later), [(name(0), Skipped)]);
    ended(&mut machine, 4, Done);
    let all_new = |_: &AgentId| version("2.0.0", 1);
    let later = now + ABSENT_MAX;
    assert_eq!(machine.step(later, all_new), Step::default());
    assert_eq!(machine.step(later + SETTLE, all_new).end.unwrap().0, UpgradeState::Done);
}

#[test]
fn hosts_of_the_last_ring_have_to_settle_too_and_count_where_they_do_not() {
    let now = Instant::now();
    let new = |_: &AgentId| version("2.0.0", 7);
    let mut last = first_ring_done(&[1], 0, now);
    assert_eq!(last.step(now, new), Step::default(), "it is not done before");
    assert_eq!(last.step(now + SETTLE, new).end, Some((UpgradeState::Done, Message::default())));

    // One of a ring that is still under way.
    let mut current = machine(&[2], 0);
    let first = current.step(now, ready);
    current.apply(&first.changes, now);
    ended(&mut current, 0, UpgradeHostState::Done);
    let back = current.step(now, ready);

    assert_eq!(told(&back), [("a-0".to_owned(), UpgradeHostState::Failed)]);
    assert_eq!(back.end.unwrap().0, UpgradeState::Failed);
}

#[test]
fn a_host_that_was_told_and_never_comes_back_has_failed_also_while_paused() {
    let (mut machine, now) = (machine(&[2], 5), Instant::now());
    let first = machine.step(now, ready);
    machine.apply(&first.changes, now);
    machine.upgrade.state = UpgradeState::Paused;
    let gone = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { ready(agent) };

    assert_eq!(machine.step(now, gone), Step::default());
    assert!(machine.step(now + ABSENT_MAX, gone).changes.is_empty(), "longer than one that was not told");
    let later = machine.step(now + LOST_MAX + Duration::from_secs(61), gone);

    assert_eq!(told(&later), [("a-0".to_owned(), UpgradeHostState::Failed)]);
    let last = machine.step(now + UPGRADING_TIME_MAX, ready);
    assert_eq!(told(&last).len(), 2, "nor one that is connected and says nothing");
}

#[test]
fn only_so_many_hosts_fetch_at_once() {
    let (mut machine, now) = (machine(&[200], 0), Instant::now());

    let first = machine.step(now, ready);
    machine.apply(&first.changes, now);
    let second = machine.step(now, ready);

    assert_eq!((first.changes.len(), second.changes.len()), (UPGRADING_MAX, 0));
}

#[test]
fn a_cancelled_upgrade_skips_the_hosts_that_have_not_begun_their_trial() {
    let (mut machine, now) = (machine(&[5], 0), Instant::now());
    let first = machine.step(now, ready);
    machine.apply(&first.changes, now);
    machine.reported(&agent(1), UpgradeStep::Trying);
    machine.reported(&agent(4), UpgradeStep::Trying);
    machine.reported(&agent(4), UpgradeStep::Fetching);
    assert!(machine.may_fetch(&agent(0)));
    machine.upgrade.state = UpgradeState::Cancelled;
    machine.upgrade.reason = messages::upgrade_cancelled_by("ada");
    // One has a session with the new version, and one is away without having said that it tries it.
    let look = |agent: &AgentId| match agent.as_str() {
        "a-2" => version("2.0.0", 1),
        "a-3" => Seen::Absent,
        _ => ready(agent),
    };

    let step = machine.step(now + ORDER_PERIOD, look);

    let skipped = UpgradeHostState::Skipped;
    assert_eq!(told(&step), ["a-0", "a-3", "a-4"].map(|agent| (agent.to_owned(), skipped)));
    assert_eq!((step.changes[0].reason.as_str(), step.again.len()), ("cancelled by ada", 0));
    assert!(!machine.may_fetch(&agent(0)), "its next part does not come");
}

#[test]
fn a_host_that_is_away_keeps_no_upgrade_waiting_for_one_that_was_cancelled() {
    let (mut machine, now) = (machine(&[3], 0), Instant::now());
    let first = machine.step(now, ready);
    machine.apply(&first.changes, now);
    machine.reported(&agent(2), UpgradeStep::Trying);
    machine.upgrade.state = UpgradeState::Cancelled;
    // One is away, one behind relays that are, and one at its trial.
    let look = |agent: &AgentId| if agent.as_str() == "a-1" { Seen::Returning } else { Seen::Absent };

    let step = machine.step(now, look);
    let skipped = UpgradeHostState::Skipped;
    assert_eq!(told(&step), ["a-0", "a-1"].map(|agent| (agent.to_owned(), skipped)));
    machine.apply(&step.changes, now);
    assert!(machine.step(now + Duration::from_secs(60), look).changes.is_empty(), "its trial may last so long");
    let last = machine.step(now + Duration::from_secs(60) + TRIAL_ROOM, look);

    assert_eq!(told(&last), [("a-2".to_owned(), UpgradeHostState::Failed)]);
    machine.apply(&last.changes, now);
    assert!(machine.is_over());
}

#[test]
fn a_host_that_was_given_the_whole_build_may_be_at_its_trial_when_the_upgrade_is_cancelled() {
    let (mut machine, now) = (machine(&[2], 0), Instant::now());
    let first = machine.step(now, ready);
    machine.apply(&first.changes, now);
    for number in [0, 1] {
        machine.build_delivered(&agent(number), now);
        machine.reported(&agent(number), UpgradeStep::Fetching);
    }
    machine.upgrade.state = UpgradeState::Cancelled;
    // The session of one has ended; the other one, still the old program, is about to switch.
    let look = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { ready(agent) };

    assert!(machine.step(now, look).changes.is_empty(), "nobody knows what they will be");
    let later = machine.step(now + Duration::from_secs(60) + TRIAL_ROOM, look);

    assert_eq!(
        told(&later),
        [("a-0".to_owned(), UpgradeHostState::Failed), ("a-1".to_owned(), UpgradeHostState::Skipped)]
    );
}

#[test]
fn a_host_that_was_told_and_is_stuck_or_too_old_now_has_failed_also_across_restarts_of_the_server() {
    let (fresh, now) = (machine(&[2], 5), Instant::now());
    let told_at = 1_000;
    let hosts = fresh.hosts.iter().map(|host| UpgradeHost {
        agent: host.agent.clone(),
        host: "0:10.0.0.1".parse().unwrap(),
        ring: 0,
        state: UpgradeHostState::Upgrading,
        reason: Message::foreign(""),
        version_before: "1.0.0".into(),
        changed_at: told_at,
    });
    let hosts: Vec<_> = hosts.collect();
    let limit = i64::try_from(UPGRADING_TIME_MAX.as_millis()).unwrap();
    let machine_at = |unix_now| UpgradeMachine::new(fresh.upgrade.clone(), hosts.clone(), now, unix_now);
    let failed = UpgradeHostState::Failed;

    assert!(machine_at(told_at - 7).step(now, ready).changes.is_empty(), "a clock that went back");
    assert!(machine_at(told_at + limit - 1).step(now, ready).changes.is_empty());
    let late = machine_at(told_at + limit).step(now, ready);
    assert_eq!(told(&late), [("a-0".to_owned(), failed), ("a-1".to_owned(), failed)]);
    let old = |agent: &AgentId| if agent.as_str() == "a-1" { Seen::TooOld } else { ready(agent) };
    let step = machine_at(told_at).step(now, old);
    assert_eq!(
        (told(&step), &step.changes[0].reason),
        (vec![("a-1".to_owned(), failed)], &messages::upgrade_agent_too_old())
    );
}
