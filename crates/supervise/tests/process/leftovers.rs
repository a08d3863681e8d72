//! What a life forks and leaves behind: nothing of it is left after a stop, a kill or an eviction, nor when the
//! next one starts.

use std::time::Duration;

use proctor_model::{
    BootId, Code, Incarnation, Lifetime, Message, OperationId, OperationKind, Probe, ProcessSession, TaskId,
};
use proctor_supervise::{Action, Elder, Event, Notice, Process, Request, Time};

use super::world::{Habits, World, spec};
use super::{code_of, period, running};

fn forking() -> Habits {
    Habits { children: 2, ..Habits::default() }
}

#[test]
fn a_stop_and_a_kill_leave_nothing_of_the_life() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        let mut world = running(forking());
        assert_eq!(world.descendants(), 2);

        assert_eq!(code_of(&mut world, kind), Code::Success);

        assert_eq!(world.descendants(), 0, "{kind}");
    }
}

#[test]
fn an_eviction_leaves_nothing_of_the_life_long_before_the_next_one() {
    let mut world = running(forking());

    world.exceed();
    world.pass(Duration::from_secs(3));

    assert!(!world.is_alive());
    assert_eq!(world.descendants(), 0);
    world.pass(Duration::from_secs(20));
    assert!(world.is_alive(), "it comes back");
}

#[test]
fn what_a_killed_life_left_behind_is_ended_before_it_is_started_again() {
    let mut world = running(forking());
    let launches = world.launches.len();

    world.kill_outside();
    world.pass(Duration::from_secs(1));

    // The world asserts that nothing was left when the start command ran.
    assert_eq!(world.launches.len(), launches + 1);
    assert_eq!(world.descendants(), 2, "those of the new life");
}

#[test]
fn what_a_life_left_behind_that_died_while_the_agent_was_down_is_ended_too() {
    let mut world = running(forking());

    world.kill_outside_unheard();
    world.crash_agent(true);
    world.pass(Duration::from_secs(10));

    assert!(world.is_alive());
    assert_eq!(world.descendants(), 2);
}

#[test]
fn a_stop_of_a_process_that_is_not_running_ends_what_it_left_behind() {
    let mut world = running(forking());
    code_of(&mut world, OperationKind::Release);
    world.kill_outside();
    world.pass(Duration::from_secs(10));
    assert_eq!(world.descendants(), 2);

    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::NotRunning);

    assert_eq!(world.descendants(), 0);
}

#[test]
fn a_stop_says_so_if_something_of_the_life_resists() {
    let mut world = running(Habits { children_resist: true, ..forking() });
    let stop = world.request(OperationKind::Stop);

    world.pass(Duration::from_secs(60));

    let outcome = world.outcome(stop).unwrap();
    assert_eq!(outcome.code, Code::CheckFailed);
    assert_eq!(outcome.message, "stop: the process ended, but leftovers of it survived SIGKILL: 2");
    assert!(!outcome.managed, "an operator's stop is not undone");
}

#[test]
fn a_failed_start_does_not_touch_what_is_older_than_it() {
    let mut world = World::new(spec(|_| {}), Habits { appears_after_ms: None, ..Habits::default() });
    world.add_elder();

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::CheckFailed);

    assert!(world.has_elder());
}

#[test]
fn a_release_while_leftovers_are_ended_is_followed_by_no_start() {
    let mut world = running(forking());
    let launches = world.launches.len();
    world.kill_outside();
    while world.descendants() > 0 {
        world.pass(Duration::from_millis(1));
    }

    let release = world.request(OperationKind::Release);
    world.pass(Duration::from_secs(60));

    assert_eq!(world.outcome(release).map(|outcome| outcome.code), Some(Code::Success));

    assert_eq!((world.launches.len(), world.is_alive()), (launches, false));
}

/// A managed periodic process whose runs leave two processes behind.
fn leaving_runs(habits: Habits) -> World {
    let spec = spec(|spec| {
        spec.policy.lifetime = Lifetime::Periodic;
        spec.policy.cycle = Some(period(60));
    });
    let mut world = World::new(spec, Habits { appears_after_ms: None, start_forks: 2, ..habits });
    code_of(&mut world, OperationKind::Manage);
    world
}

#[test]
fn a_stop_or_kill_of_a_scheduled_run_leaves_nothing_of_it() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        let mut world = leaving_runs(Habits { start_takes_ms: 600_000, ..Habits::default() });
        world.due();
        world.pass(Duration::from_secs(2));
        assert_eq!(world.descendants(), 2);

        assert_eq!(code_of(&mut world, kind), Code::Success);

        assert_eq!(world.descendants(), 0, "{kind}");
    }
}

#[test]
fn what_a_run_left_behind_is_ended_before_the_next_one_and_by_a_stop() {
    let mut world = leaving_runs(Habits::default());
    for _ in 0..3 {
        world.due();
        world.pass(Duration::from_secs(60));
        assert_eq!(world.descendants(), 2, "those of the last run");
    }

    world.crash_agent(true);
    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::NotRunning);

    assert_eq!(world.descendants(), 0);
}

#[test]
fn a_scheduled_run_that_survivors_hold_up_tells_why_once() {
    let mut world = leaving_runs(Habits { children_resist: true, ..Habits::default() });
    world.due();
    world.pass(Duration::from_secs(60));
    let launches = world.launches.len();
    let told = |world: &World| {
        world.notices.iter().filter(|(_, notice)| matches!(notice, Notice::RestartFailed { .. })).count()
    };
    let before = told(&world);

    world.due();
    world.pass(Duration::from_secs(50));

    assert_eq!((world.launches.len(), told(&world)), (launches, before + 1));
    world.habits.children_resist = false;
    world.pass(Duration::from_secs(60));
    assert_eq!(world.launches.len(), launches + 1, "it runs when they are gone");
}

#[test]
fn what_a_process_that_ran_once_left_behind_is_ended_before_it_runs_again() {
    let spec = spec(|spec| spec.policy.lifetime = Lifetime::Once);
    let mut world = World::new(spec, Habits { appears_after_ms: None, start_forks: 2, ..Habits::default() });

    for _ in 0..2 {
        assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);
        assert_eq!(world.descendants(), 2);
    }
}

#[test]
fn a_run_that_finds_no_command_slot_is_tried_again_within_its_period() {
    let mut world = leaving_runs(Habits { no_slot: true, ..Habits::default() });
    world.due();
    world.pass(Duration::from_secs(20));
    assert_eq!(world.launches.len(), 0);

    world.habits.no_slot = false;
    world.pass(Duration::from_secs(10));

    assert_eq!(world.launches.len(), 1);
    assert!(!world.notices.iter().any(|(_, notice)| matches!(notice, Notice::RunMissed { .. })));
}

#[test]
fn a_run_that_never_finds_a_command_slot_is_reported_as_missed() {
    let mut world = leaving_runs(Habits { no_slot: true, ..Habits::default() });
    world.due();
    world.pass(Duration::from_secs(60));

    world.due();
    world.habits.no_slot = false;
    world.pass(Duration::from_secs(60));

    let missed = |(_, notice): &(_, Notice)| {
        let Notice::RunMissed { planned, .. } = notice else { return None };
        Some(*planned)
    };
    assert_eq!(world.notices.iter().filter_map(missed).collect::<Vec<_>>(), [1]);
    assert_eq!((world.launches.len(), world.machine.planned_at()), (1, Some(2)));
}

#[test]
fn a_run_whose_command_has_not_begun_when_the_agent_crashes_is_not_remembered_as_run() {
    let mut world = leaving_runs(Habits { no_slot: true, ..Habits::default() });
    world.due();
    world.pass(Duration::from_secs(3));

    world.crash_agent(true);

    assert_eq!(world.machine.planned_at(), None, "so the schedule catches it up");
}

#[test]
fn the_workers_of_an_unregistered_process_do_not_stay_beside_those_of_the_next_one() {
    for (ends_before, crash) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = running(forking());
        code_of(&mut world, OperationKind::Release);
        if ends_before {
            world.kill_outside();
            world.pass(Duration::from_secs(1));
        }
        world.forget();
        assert!(world.forget_machine(), "nothing is under way for it");
        world.kill_outside();
        world.assign(2, spec(|_| {}));
        if crash {
            world.crash_agent(true);
        }

        // The world asserts that nothing of an earlier life is there when a start command runs.
        assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);

        assert_eq!(world.descendants(), 2);
    }
}

#[test]
fn what_belongs_to_an_unregistered_process_that_lives_is_adopted_with_it_and_ended_with_it() {
    let mut world = running(Habits { start_forks: 1, ..forking() });

    assert!(world.replace());
    world.pass(Duration::from_secs(1));
    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::Success);

    assert_eq!(world.descendants(), 0, "also what its start command forked before it");
}

#[test]
fn the_late_end_of_a_life_on_which_a_stop_had_failed_leaves_nothing_behind() {
    for crash in [false, true] {
        let mut world = running(Habits { dies_after_ms: Some(60_000), ..forking() });
        assert_eq!(code_of(&mut world, OperationKind::Stop), Code::CheckFailed);
        if crash {
            world.crash_agent(true);
        }

        world.pass(Duration::from_secs(60));

        assert!(!world.is_alive() && !world.machine.managed());
        assert_eq!(world.descendants(), 0);
    }
}

#[test]
fn a_stop_that_cannot_clear_what_was_left_behind_fails_and_the_next_one_tries_again() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        let mut world = running(Habits { cannot_clear: true, ..forking() });

        for _ in 0..2 {
            let operation = world.request(kind);
            world.pass(Duration::from_secs(30));
            let outcome = world.outcome(operation).unwrap();
            assert_eq!(outcome.code, Code::CheckFailed, "{}", outcome.message);
            assert!(outcome.message.contains("too many open files"), "{}", outcome.message);
            assert!(!outcome.managed && world.descendants() == 2);
        }
        world.habits.cannot_clear = false;

        assert_eq!(code_of(&mut world, kind), Code::NotRunning);
        assert_eq!(world.descendants(), 0);
    }
}

#[test]
fn nothing_is_started_while_what_was_left_behind_cannot_be_cleared() {
    let mut world = running(Habits { cannot_clear: true, ..forking() });
    let launches = world.launches.len();
    code_of(&mut world, OperationKind::Release);
    world.kill_outside();
    world.pass(Duration::from_secs(10));

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::CheckFailed);
    assert_eq!((world.launches.len(), world.descendants()), (launches, 2));
    world.habits.cannot_clear = false;

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);
}

#[test]
fn supervision_starts_nothing_beside_what_outlives_sigkill_and_does_not_use_up_its_retries() {
    let mut world = running(Habits { children_resist: true, ..forking() });
    let launches = world.launches.len();
    world.kill_outside();

    world.pass(Duration::from_secs(600));

    assert_eq!((world.launches.len(), world.descendants()), (launches, 2));
    assert!(world.machine.managed());
    assert_eq!(world.machine.reason(), "not started: leftover processes of an earlier life that survived SIGKILL: 2");
    let told = |(_, notice): &&(_, Notice)| matches!(notice, Notice::RestartFailed { .. });
    assert_eq!(world.notices.iter().filter(told).count(), 1, "it is told once");
    world.habits.children_resist = false;
    world.pass(Duration::from_secs(30));

    assert!(world.is_alive());
    assert_eq!(world.descendants(), 2, "those of the new life");
}

#[test]
fn what_outlives_sigkill_is_known_to_the_next_operation_and_after_a_crash() {
    for (kind, crash) in [(OperationKind::Stop, false), (OperationKind::Kill, true)] {
        let mut world = running(Habits { children_resist: true, ..forking() });
        assert_eq!(code_of(&mut world, kind), Code::CheckFailed);
        if crash {
            world.crash_agent(true);
        }

        assert_eq!(code_of(&mut world, kind), Code::CheckFailed, "they are still there");
        assert_eq!(code_of(&mut world, OperationKind::Start), Code::CheckFailed);
        assert!(!world.is_alive() && world.descendants() == 2);
        world.habits.children_resist = false;

        assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);
        assert_eq!(world.descendants(), 2, "those of the new life");
    }
}

#[test]
fn a_restart_whose_leftovers_cannot_be_ended_fails_and_the_process_stays_managed() {
    let resist = Habits { children_resist: true, ..forking() };
    for habits in [resist, Habits { cannot_clear: true, ..forking() }] {
        let mut world = running(habits);
        let restart = world.request(OperationKind::Restart);

        world.pass(Duration::from_secs(60));

        let outcome = world.outcome(restart).unwrap();
        assert_eq!((outcome.code, outcome.managed), (Code::CheckFailed, true), "{}", outcome.message);
        assert!(!world.is_alive() && world.machine.managed());
        (world.habits.children_resist, world.habits.cannot_clear) = (false, false);
        world.pass(Duration::from_secs(60));
        assert!(world.is_alive(), "supervision brings it back");
    }
}

#[test]
fn a_process_that_other_hands_start_while_leftovers_are_ended_gets_no_second_copy() {
    for by_operation in [false, true] {
        let mut world = running(forking());
        let launches = world.launches.len();
        if by_operation {
            code_of(&mut world, OperationKind::Release);
        }
        world.kill_outside();
        let start = by_operation.then(|| {
            world.pass(Duration::from_millis(1));
            world.request(OperationKind::Start)
        });
        while world.descendants() > 0 {
            world.pass(Duration::from_millis(1));
        }
        world.habits.children = 0;

        world.start_by_hand();
        let by_hand = world.pid();
        world.pass(Duration::from_secs(60));

        assert_eq!((world.pid(), world.machine.life().map(|life| life.pid)), (by_hand, by_hand));
        assert_eq!((world.launches.len(), world.machine.managed()), (launches, !by_operation));
        let code = start.map(|start| world.outcome(start).unwrap().code);
        assert_eq!(code, by_operation.then_some(Code::AlreadyRunning));
    }
}

fn life(pid: i32) -> Incarnation {
    let start_ticks = u64::try_from(pid).unwrap();
    Incarnation { boot: BootId::from("b"), pid, start_ticks, pidfd_inode: None }
}

fn elders(machine: &Process) -> Vec<i32> {
    let lives = machine.elder().into_iter().flat_map(Elder::all).filter_map(|elder| elder.life.as_ref());
    lives.map(|life| life.pid).collect()
}

fn actions(machine: &mut Process) -> Vec<Action> {
    std::iter::from_fn(|| machine.poll_action()).collect()
}

/// The look that it wants.
fn wanted_look(machine: &mut Process) -> u64 {
    let ticket = |action: &Action| if let Action::Probe { ticket, .. } = action { Some(*ticket) } else { None };
    actions(machine).iter().find_map(ticket).expect("it looks")
}

/// Registers a process and tells it what its pid file names.
fn look(machine: &mut Process, registered_at: i64, look: Probe) {
    let spec = spec(|_| {});
    machine.handle(Time::default(), Event::Assigned { spec, managed: false, registered_at });
    let ticket = wanted_look(machine);
    machine.handle(Time::default(), Event::Probed { ticket, look });
}

/// The third of its name; two that were unregistered one after the other may live.
fn third() -> Process {
    let new = || Process::new("ns/p".parse().unwrap(), spec(|_| {}), 7);
    let mut machine = new();
    for (pid, registered_at) in [(10, 1), (20, 2)] {
        look(&mut machine, registered_at, Probe::Running(life(pid)));
        let estate = machine.estate(Time::since_boot(Duration::from_secs(u64::try_from(pid).unwrap())));
        machine = new();
        machine.inherit(estate.unwrap());
    }
    machine
}

#[test]
fn of_two_that_were_unregistered_in_a_row_both_are_known() {
    let mut machine = third();
    look(&mut machine, 3, Probe::Absent(Message::foreign("no pid file")));
    let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), 0);
    let expires = Time::since_boot(Duration::from_secs(1000));
    let request = Request { operation, kind: OperationKind::Start, spec: None, expires };
    machine.handle(Time::default(), Event::Requested(request));
    let (ticket, look) = (wanted_look(&mut machine), Probe::Absent(Message::foreign("no pid file")));
    machine.handle(Time::default(), Event::Probed { ticket, look });
    let cleared = |action: Action| {
        if let Action::ClearLeftovers { ticket, elder, .. } = action { Some((ticket, elder.unwrap())) } else { None }
    };
    let cleared = actions(&mut machine).into_iter().find_map(cleared);
    let (ticket, asked) = cleared.expect("what they left behind is looked for before the start");

    // The latest is over, the first lives.
    let elder = Elder::of(asked.before.clone()).map(Box::new);
    machine.handle(Time::default(), Event::LeftoversCleared { ticket, ended: 0, left: 0, elder });

    assert_eq!(asked.all().map(|elder| elder.since).collect::<Vec<_>>(), [20, 10]);
    assert_eq!(elders(&machine), [10]);
    let again = machine.estate(Time::default()).unwrap();
    assert_eq!(again.all().count(), 1, "and is known to the next one");
}

#[test]
fn one_of_several_that_were_unregistered_may_come_back_to_its_name() {
    let mut machine = third();

    look(&mut machine, 3, Probe::Running(life(10)));

    assert_eq!((machine.life().map(|life| life.pid), elders(&machine)), (Some(10), vec![20]));
}

#[test]
fn only_so_many_that_were_unregistered_are_known() {
    let elder = |since| Elder {
        life: Some(life(1)),
        since,
        launched: true,
        sessions: Vec::new(),
        until: None,
        before: Vec::new(),
    };

    let known = Elder::of((0..1000).map(elder)).unwrap();

    assert_eq!(known.all().map(|elder| elder.since).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
}

/// Leaders of the sessions by which what is left of earlier lives was last searched for.
fn asked_leaders(world: &mut World) -> Vec<i32> {
    asked_sessions(world).into_iter().map(|session| session.leader).collect()
}

fn asked_sessions(world: &mut World) -> Vec<ProcessSession> {
    let (remains, elder) = world.asked.take().expect("something is searched for");
    let of_elders = elder.iter().flat_map(|elder| elder.all()).flat_map(|elder| elder.sessions.clone());
    remains.into_iter().flat_map(|remains| remains.sessions).chain(of_elders).collect()
}

fn millis(time: Time) -> u64 {
    u64::try_from(time.since(Time::default()).as_millis()).unwrap()
}

#[test]
fn the_session_of_a_life_is_known_however_long_ago_the_life_ended() {
    let mut world = running(forking());
    let pid = world.pid().unwrap();
    code_of(&mut world, OperationKind::Release);
    world.kill_outside();

    world.pass(Duration::from_secs(60));
    code_of(&mut world, OperationKind::Start);

    assert!(asked_leaders(&mut world).contains(&pid));
}

#[test]
fn the_session_of_a_life_is_known_after_a_restart_of_the_agent() {
    for is_heard in [true, false] {
        let mut world = running(forking());
        let pid = world.pid().unwrap();
        code_of(&mut world, OperationKind::Release);
        if is_heard {
            world.kill_outside();
            world.pass(Duration::from_secs(1));
        } else {
            world.kill_outside_unheard();
        }

        world.crash_agent(true);
        world.pass(Duration::from_secs(60));
        code_of(&mut world, OperationKind::Start);

        assert!(asked_leaders(&mut world).contains(&pid), "{is_heard}");
    }
}

#[test]
fn the_session_of_a_life_that_ended_before_it_was_unregistered_is_known_to_the_next_one() {
    let mut world = running(forking());
    let pid = world.pid().unwrap();
    code_of(&mut world, OperationKind::Release);
    world.kill_outside();
    world.pass(Duration::from_secs(1));

    assert!(world.replace());
    code_of(&mut world, OperationKind::Start);

    assert!(asked_leaders(&mut world).contains(&pid));
}

#[test]
fn the_session_of_a_life_that_was_unregistered_alive_is_known_to_the_next_one_until_then() {
    let mut world = running(forking());
    let pid = world.pid().unwrap();
    code_of(&mut world, OperationKind::Release);
    world.forget();
    let forgotten = world.now;
    assert!(world.forget_machine());
    world.kill_outside();
    world.pass(Duration::from_secs(60));

    world.assign(2, spec(|_| {}));
    world.crash_agent(true);
    code_of(&mut world, OperationKind::Start);

    let session = asked_sessions(&mut world).into_iter().find(|session| session.leader == pid);
    assert_eq!(session.map(|session| session.until_ms), Some(millis(forgotten)));
}

#[test]
fn a_session_counts_until_its_life_was_last_seen_or_last_recorded() {
    for is_heard in [true, false] {
        let mut world = running(forking());
        let pid = world.pid().unwrap();
        code_of(&mut world, OperationKind::Release);
        let recorded = world.now;
        world.pass(Duration::from_secs(3600));
        let ended = world.now;
        if is_heard {
            world.kill_outside();
            world.pass(Duration::from_secs(60));
        } else {
            world.kill_outside_unheard();
            world.crash_agent(true);
        }
        code_of(&mut world, OperationKind::Start);

        let session = asked_sessions(&mut world).into_iter().find(|session| session.leader == pid).unwrap();
        let (least, most) =
            if is_heard { (ended, ended + Duration::from_secs(1)) } else { (Time::default(), recorded) };
        assert!((millis(least)..=millis(most)).contains(&session.until_ms), "{is_heard}: {session:?}");
    }
}

/// The agent sleeps for an hour, by SIGSTOP or with its host: the pids of what ended may be those of others by then.
#[test]
fn a_session_does_not_count_until_a_late_agent_hears_of_the_end_of_its_life() {
    let mut world = running(forking());
    let life = world.machine.life().unwrap().clone();
    code_of(&mut world, OperationKind::Release);
    let seen = world.now;
    world.machine.see_alive(&life, seen);
    world.kill_outside_unheard();
    world.pass(Duration::from_secs(3600));

    // An event that changes the record before the exit is heard of.
    world.machine.handle(world.now, Event::Assigned { spec: spec(|_| {}), managed: false, registered_at: 1 });
    world.machine.handle(world.now, Event::Exited { life: life.clone(), exit: None, alive_at: Some(seen) });
    code_of(&mut world, OperationKind::Start);

    let session = asked_sessions(&mut world).into_iter().find(|session| session.leader == life.pid).unwrap();
    assert_eq!(session.until_ms, millis(seen));
}

#[test]
fn a_session_counts_until_its_life_was_looked_for_not_until_the_answer_is_heard() {
    let mut machine = Process::new("ns/p".parse().unwrap(), spec(|_| {}), 7);
    let (asked, heard) = (Time::since_boot(Duration::from_secs(10)), Time::since_boot(Duration::from_secs(3610)));
    machine.handle(asked, Event::Assigned { spec: spec(|_| {}), managed: false, registered_at: 1 });
    let look = std::iter::from_fn(|| machine.poll_action()).find_map(|action| {
        let Action::Probe { ticket, .. } = action else { return None };
        Some(ticket)
    });
    let life = Incarnation { boot: BootId::from("b"), pid: 10, start_ticks: 5, pidfd_inode: None };

    machine.handle(heard, Event::Probed { ticket: look.unwrap(), look: Probe::Running(life) });

    assert_eq!(machine.sessions().iter().map(|session| session.until_ms).collect::<Vec<_>>(), [millis(asked)]);
}

#[test]
fn the_session_of_a_start_command_counts_until_that_was_last_seen() {
    let world = running(forking());
    let launched = world.launches.last().unwrap().0;
    let pid = world.pid().unwrap();
    let command = world.machine.sessions().iter().copied().find(|session| session.leader != pid).unwrap();

    assert!((millis(launched)..millis(world.now)).contains(&command.until_ms), "{command:?} {launched:?}");
}

#[test]
fn the_session_of_a_start_command_counts_as_long_as_its_life_is_in_it() {
    for is_shared in [true, false] {
        let mut world = running(forking());
        let pid = world.pid().unwrap();
        let life = world.machine.life().unwrap().clone();
        let command = world.machine.sessions().iter().copied().find(|session| session.leader != pid).unwrap();
        if is_shared {
            world.machine.handle(world.now, Event::SharesSession { life, session: command });
        }
        code_of(&mut world, OperationKind::Release);
        world.pass(Duration::from_secs(3600));
        let ended = world.now;
        world.kill_outside();
        world.pass(Duration::from_secs(60));
        code_of(&mut world, OperationKind::Start);

        let asked = asked_sessions(&mut world).into_iter().find(|session| session.leader == command.leader).unwrap();
        assert_eq!(asked.until_ms >= millis(ended), is_shared, "{asked:?}");
    }
}

#[test]
fn only_so_many_sessions_of_a_life_are_known() {
    let mut world = running(forking());
    for _ in 0..20 {
        world.kill_outside();
        world.start_by_hand();
        world.pass(Duration::from_secs(5));
    }

    assert!(world.machine.sessions().len() <= 8);
    assert_eq!(world.machine.sessions().last().map(|session| session.leader), world.pid(), "the newest");
}
