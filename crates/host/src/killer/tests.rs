//! Kills of real processes, and of those that a dead agent had begun to kill.

use std::time::Duration;

use super::*;
use crate::{procfs, wall_clock};
use proctor_model::ProcessSession;

struct Sleeper(std::process::Child);

impl Sleeper {
    fn new() -> Self {
        Self(std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap())
    }

    fn member(&self) -> ProcessRef {
        let pid = i32::try_from(self.0.id()).unwrap();
        ProcessRef { pid, start_ticks: Stat::of(pid).unwrap().start_ticks }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn killer(directory: &tempfile::TempDir) -> Killer {
    let journal = Journal::open(directory.path(), procfs::boot_id().unwrap());
    Killer::new(None, "test".to_owned(), journal, ForeignMemory::default())
}

#[tokio::test]
async fn many_kills_at_once_each_tell_what_they_killed() {
    let directory = tempfile::tempdir().unwrap();
    let killer = killer(&directory);
    let mut sleepers: Vec<Sleeper> = (0..50).map(|_| Sleeper::new()).collect();

    let kills = sleepers.iter().map(|sleeper| killer.kill(Target::Tree(sleeper.member(), None)));
    let counts = futures_of(kills.collect()).await;

    assert_eq!(counts, vec![1; 50]);
    for sleeper in &mut sleepers {
        sleeper.0.wait().unwrap();
    }
    assert_eq!(killer.shared.frozen.interrupted(), [], "nothing is left to finish");
}

async fn futures_of(kills: Vec<impl Future<Output = io::Result<usize>>>) -> Vec<usize> {
    let mut counts = Vec::new();
    // All are asked for before the first is awaited.
    let mut kills: Vec<_> = kills.into_iter().map(Box::pin).collect();
    let waker = std::task::Waker::noop();
    for kill in &mut kills {
        let _ = kill.as_mut().poll(&mut std::task::Context::from_waker(waker)).map(|count| counts.push(count.unwrap()));
    }
    for kill in kills {
        counts.push(kill.await.unwrap());
    }
    counts
}

#[test]
fn what_was_frozen_when_the_agent_died_is_killed_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let mut sleeper = Sleeper::new();
    let innocent = Sleeper::new();
    let (member, other) = (sleeper.member(), innocent.member());
    // The agent dies here, after it has frozen the tree. Another has got the pid of a member since.
    killer(&directory).shared.frozen.add(&[member, ProcessRef { start_ticks: other.start_ticks - 1, ..other }]);
    signal(member, Signal::STOP).unwrap();

    killer(&directory).finish_interrupted();

    assert!(!sleeper.0.wait().unwrap().success());
    assert!(!Stat::of(other.pid).unwrap().is_dead());
    assert_eq!(killer(&directory).shared.frozen.interrupted(), []);
}

/// A shell with two children; their pids.
fn family() -> (Sleeper, [ProcessRef; 2]) {
    use std::io::BufRead;
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", "sleep 1000 & echo $!; sleep 1000 & echo $!; wait"]);
    let mut shell = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = io::BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut child = || {
        let pid = lines.next().unwrap().unwrap().parse().unwrap();
        ProcessRef { pid, start_ticks: Stat::of(pid).unwrap().start_ticks }
    };
    let children = [child(), child()];
    (Sleeper(shell), children)
}

fn is_dead(member: ProcessRef) -> bool {
    Stat::of(member.pid).ok().is_none_or(|stat| stat.is_dead() || stat.start_ticks != member.start_ticks)
}

#[test]
fn a_child_that_the_agent_had_spared_before_it_died_is_spared_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let (mut parent, [frozen, spared]) = family();
    killer(&directory).shared.frozen.add(&[parent.member()]);
    for member in [parent.member(), frozen] {
        signal(member, Signal::STOP).unwrap();
        while !Stat::of(member.pid).unwrap().is_stopped() {
            let _ = rustix::thread::nanosleep(&STOP_PERIOD);
        }
    }

    killer(&directory).finish_interrupted();

    assert!(!parent.0.wait().unwrap().success());
    assert!(!is_dead(spared), "it was not stopped, so it was not meant");
    signal(spared, Signal::KILL).unwrap();
    while !is_dead(frozen) {
        let _ = rustix::thread::nanosleep(&STOP_PERIOD);
    }
}

#[tokio::test]
async fn a_session_whose_number_has_come_round_is_not_killed_for_the_command_before() {
    let directory = tempfile::tempdir().unwrap();
    let mut leader = std::process::Command::new("setsid");
    let leader = Sleeper(leader.args(["/bin/sleep", "1000"]).spawn().unwrap());
    let member = leader.member();
    while Stat::of(member.pid).unwrap().session != member.pid {
        let _ = rustix::thread::nanosleep(&STOP_PERIOD);
    }
    let before = ProcessRef { start_ticks: member.start_ticks - 1, ..member };

    let killed = killer(&directory).kill(Target::Session(before, None)).await.unwrap();

    assert_eq!(killed, 0);
    assert!(!is_dead(member));
}

#[tokio::test]
async fn a_session_whose_leader_was_reaped_may_be_that_of_another_and_is_not_killed() {
    let directory = tempfile::tempdir().unwrap();
    let LeaderlessSession { _shell, leader, member } = leaderless_session();

    let killed = killer(&directory).kill(Target::Session(leader, None)).await.unwrap();

    assert_eq!(killed, 0);
    assert!(!is_dead(member));
    signal(member, Signal::KILL).unwrap();
}

#[test]
fn what_is_frozen_and_cannot_be_killed_for_lack_of_descriptors_is_killed_later() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let directory = tempfile::tempdir().unwrap();
    let (killer, mut sleeper) = (killer(&directory), Sleeper::new());
    let member = sleeper.member();
    signal(member, Signal::STOP).unwrap();
    killer.shared.frozen.add(&[member]);
    let before = getrlimit(Resource::Nofile);

    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: before.maximum }).unwrap();
    killer.shared.frozen.kill_all();
    setrlimit(Resource::Nofile, before).unwrap();
    let left = killer.shared.frozen.interrupted();
    killer.shared.work();

    assert_eq!(left, [member], "another agent would know");
    assert!(!sleeper.0.wait().unwrap().success());
    assert_eq!(killer.shared.frozen.interrupted(), []);
}

#[test]
fn a_panic_in_the_middle_of_a_kill_leaves_nobody_frozen() {
    let directory = tempfile::tempdir().unwrap();
    let (killer, mut sleeper) = (killer(&directory), Sleeper::new());
    let member = sleeper.member();

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _reset = ResetOnPanic(&killer.shared);
        killer.shared.frozen.add(&[member]);
        signal(member, Signal::STOP).unwrap();
        panic!("on purpose");
    }));

    assert!(panicked.is_err());
    assert!(!sleeper.0.wait().unwrap().success());
}

#[test]
fn only_those_that_lack_something_are_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let (killer, mut sleeper) = (killer(&directory), Sleeper::new());

    let killed = killer.shared.kill(&[Target::Tree(sleeper.member(), None)]);

    assert_eq!(killed.into_iter().flatten().collect::<Vec<_>>(), [1]);
    assert!(killer.shared.frozen.is_empty());
    sleeper.0.wait().unwrap();
}

#[tokio::test]
async fn a_kill_that_was_given_up_is_not_carried_out_later() {
    let directory = tempfile::tempdir().unwrap();
    let (killer, tree, session) = (killer(&directory), Sleeper::new(), leaderless_session());
    killer.shared.waiting.lock().has_thread = true; // which comes round later
    while !is_asleep(tree.member()) || !is_asleep(session.member) {
        let _ = rustix::thread::nanosleep(&STOP_PERIOD);
    }

    for target in [Target::Tree(tree.member(), None), Target::Session(session.leader, None)] {
        let given_up = tokio::time::timeout(Duration::from_millis(1), killer.kill(target)).await;
        assert!(given_up.is_err());
    }
    killer.shared.work();

    assert!(is_asleep(tree.member()) && is_asleep(session.member));
    signal(session.member, Signal::KILL).unwrap();
}

/// Whether it sleeps: who was frozen and killed never does again.
fn is_asleep(member: ProcessRef) -> bool {
    Stat::of(member.pid).is_ok_and(|stat| stat.state == 'S' && stat.start_ticks == member.start_ticks)
}

/// A session whose leader has ended, and its only member.
struct LeaderlessSession {
    _shell: Sleeper,
    leader: ProcessRef,
    member: ProcessRef,
}

fn leaderless_session() -> LeaderlessSession {
    use std::io::BufRead;
    let mut shell = std::process::Command::new("/bin/sh");
    // The leader tells who it is and what it has started, and ends when it has been looked at.
    shell.args(["-c", "setsid sh -c 'sleep 1000 & echo $$; echo $!; read -r go'; exec sleep 1000"]);
    let mut shell = shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = io::BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut next = || {
        let pid = lines.next().unwrap().unwrap().parse().unwrap();
        ProcessRef { pid, start_ticks: Stat::of(pid).unwrap().start_ticks }
    };
    let (leader, member) = (next(), next());
    drop(shell.stdin.take());
    while !is_dead(leader) {
        let _ = rustix::thread::nanosleep(&STOP_PERIOD);
    }
    LeaderlessSession { _shell: Sleeper(shell), leader, member }
}

#[tokio::test]
async fn what_is_known_by_other_means_is_ended_where_no_environment_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path(), procfs::boot_id().unwrap());
    let killer = Killer::new(None, "test".to_owned(), journal, ForeignMemory::exhausted());
    let LeaderlessSession { _shell, leader, member } = leaderless_session();
    let until_ms = u64::try_from(wall_clock::since_boot().as_millis()).unwrap();
    let sessions = vec![ProcessSession { leader: leader.pid, start_ticks: leader.start_ticks, until_ms }];
    let remains = Leftovers { since: leader.start_ticks, launched: true, sessions, spared: Vec::new() };
    let target = Target::Remains(Leaf::of("ns/p"), remains);

    assert_eq!(killer.count(target.clone()).await.unwrap(), 1);
    assert_eq!(killer.kill(target.clone()).await.unwrap(), 1);

    while !is_dead(member) {
        let _ = rustix::thread::nanosleep(&STOP_PERIOD);
    }
    assert!(killer.count(target).await.is_err(), "nobody can tell whether that was all");
}

/// Until the process is dead; a watch runs beside it.
async fn dies_by_the_watch(killer: &Killer, sleeper: &mut Sleeper) -> bool {
    let is_over = async {
        let begun = std::time::Instant::now();
        loop {
            // The time of the watch passes at once, that of the kernel does not.
            tokio::time::sleep(Duration::from_secs(60)).await;
            if sleeper.0.try_wait().unwrap().is_some() {
                return true;
            }
            if begun.elapsed() > Duration::from_secs(10) {
                return false;
            }
        }
    };
    tokio::select! {
        is_dead = is_over => is_dead,
        () = killer.clone().watch_frozen() => false,
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_frozen_dies_also_if_no_thread_is_to_be_had_and_nobody_asks_again() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let directory = tempfile::tempdir().unwrap();
    let (killer, mut sleeper) = (killer(&directory), Sleeper::new());
    let member = sleeper.member();
    killer.shared.frozen.add(&[member]);
    signal(member, Signal::STOP).unwrap();
    killer.shared.waiting.lock().take_thread();
    let before = getrlimit(Resource::Nofile);

    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: before.maximum }).unwrap();
    killer.shared.work_here();
    setrlimit(Resource::Nofile, before).unwrap();

    assert!(!killer.shared.waiting.lock().take_thread(), "the next one may try again");
    assert!(dies_by_the_watch(&killer, &mut sleeper).await);
}

#[tokio::test(start_paused = true)]
async fn what_a_thread_has_frozen_that_hangs_dies_and_what_it_has_not_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (killer, mut frozen, running) = (killer(&directory), Sleeper::new(), Sleeper::new());
    killer.shared.waiting.lock().take_thread(); // which hangs from here on
    killer.shared.frozen.add(&[frozen.member(), running.member()]);
    signal(frozen.member(), Signal::STOP).unwrap();

    assert!(dies_by_the_watch(&killer, &mut frozen).await);

    assert!(!is_dead(running.member()), "its kill may have been given up");
    assert!(!killer.shared.frozen.is_empty(), "it may still be stopped");
}

#[test]
fn a_panic_leaves_nobody_frozen_also_without_a_journal() {
    let (killer, mut sleeper) = (Killer::stuck(), Sleeper::new());
    let member = sleeper.member();

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _reset = ResetOnPanic(&killer.shared);
        killer.shared.frozen.add(&[member]);
        signal(member, Signal::STOP).unwrap();
        panic!("on purpose");
    }));

    assert!(panicked.is_err());
    let begun = std::time::Instant::now();
    while !is_dead(member) && begun.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    assert!(is_dead(member));
    sleeper.0.wait().unwrap();
}
