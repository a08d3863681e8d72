//! What a life leaves behind, with cgroups and by descent.

#![allow(clippy::unwrap_used, reason = "test code, outside of test functions")]
#![allow(clippy::disallowed_methods, reason = "each test waits for what it spawns")]

mod common;

use std::time::Duration;

use common::{World, eventually, exited, is_dead, kill_leaf, numbers};
use proctor_host::{Command, CommandHold, Leaf, LeftoversResult, Method, TrackingPreference};
use proctor_model::{Incarnation, Leftovers, ProcessSession};
use proctor_testkit::skip;

const METHODS: [TrackingPreference; 3] =
    [TrackingPreference::Best, TrackingPreference::CgroupV1, TrackingPreference::Descendants];
const GRACE: Duration = Duration::from_secs(1);

/// A master that forks three workers by `script`, which write their pids; when its pid file is there all are.
async fn started(world: &World, leaf: &Leaf, name: &str, script: &str) -> (Incarnation, Vec<i32>) {
    let (path, pids) = (world.path(&format!("{name}.sh")), world.path(&format!("{name}.workers")));
    let pid = world.path(&format!("{name}.pid"));
    let workers = pids.display();
    let text = format!(
        "rm -f {workers}\nfor i in 1 2 3; do {script} & echo $! >> {workers}; done\necho $$ > {}\nwait\n",
        pid.display()
    );
    std::fs::write(&path, text).unwrap();
    let line = format!("(setsid sh {} < /dev/null > /dev/null 2>&1 &)", path.display());
    exited(&world.host.run(Command { leaf: Some(leaf.clone()), ..world.command(&line) }).await);
    let life = world.life(&format!("{name}.sh"), &pid).await;
    eventually("the workers are there", || numbers(&pids).len() == 3).await;
    (life, numbers(&pids))
}

fn session_of(life: &Incarnation, until_ms: u64) -> ProcessSession {
    ProcessSession { leader: life.pid, start_ticks: life.start_ticks, until_ms }
}

/// Since boot.
fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap()
}

fn remains_of(life: &Incarnation) -> Leftovers {
    // Its start command began a little earlier.
    Leftovers {
        since: life.start_ticks.saturating_sub(20),
        launched: true,
        sessions: vec![session_of(life, now_ms())],
        spared: Vec::new(),
    }
}

fn name_of(pid: i32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim().to_owned())
}

/// SIGKILL to the main process alone.
async fn kill_main(world: &World, life: &Incarnation) {
    world.host.signal(life, proctor_model::Signal::Kill).unwrap();
    eventually("the main process is dead", || is_dead(life.pid)).await;
}

#[tokio::test]
async fn the_workers_of_a_killed_master_are_ended() {
    for method in METHODS {
        let world = World::with_tracking(method);
        let leaf = Leaf::of("remains:workers");
        let (life, workers) = started(&world, &leaf, "master", "sleep 1000").await;
        kill_main(&world, &life).await;
        assert!(workers.iter().all(|pid| !is_dead(*pid)), "they outlive it");

        let cleared = world.host.clear_leftovers(&leaf, &remains_of(&life), GRACE).await.unwrap();

        assert_eq!(cleared, LeftoversResult { ended: 3, left: 0 }, "{method:?}");
        assert!(workers.into_iter().all(is_dead));
        let again = world.host.clear_leftovers(&leaf, &remains_of(&life), GRACE).await.unwrap();
        assert_eq!(again, LeftoversResult::default());
    }
}

#[tokio::test]
async fn workers_that_ignore_sigterm_or_have_left_the_session_are_killed() {
    for method in METHODS {
        let world = World::with_tracking(method);
        let leaf = Leaf::of("remains:deaf");
        let script = "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done'";
        let (life, _) = started(&world, &leaf, "deaf", script).await;
        kill_main(&world, &life).await;

        let cleared = world.host.clear_leftovers(&leaf, &remains_of(&life), Duration::from_millis(100)).await.unwrap();

        assert!(cleared.ended >= 3 && cleared.left == 0, "{method:?}: {cleared:?}");
        assert_eq!(kill_leaf(&world.host, &leaf).await, 0, "{method:?}: something is left");
    }
}

#[tokio::test]
async fn workers_that_have_overwritten_their_environment_are_known_by_their_session() {
    let world = World::with_tracking(TrackingPreference::Descendants);
    let leaf = Leaf::of("remains:bare");
    let (life, workers) = started(&world, &leaf, "bare", "env -i /bin/sleep 1000").await;
    kill_main(&world, &life).await;

    let cleared = world.host.clear_leftovers(&leaf, &remains_of(&life), GRACE).await.unwrap();

    assert_eq!(cleared, LeftoversResult { ended: 3, left: 0 });
    assert!(workers.into_iter().all(is_dead));
}

#[tokio::test]
async fn workers_in_a_later_session_of_the_same_number_are_spared() {
    let world = World::with_tracking(TrackingPreference::Descendants);
    let leaf = Leaf::of("remains:reused");
    let (life, workers) = started(&world, &leaf, "reused", "env -i /bin/sleep 1000").await;
    kill_main(&world, &life).await;
    let earlier = ProcessSession { start_ticks: 1, ..session_of(&life, 10 * (life.start_ticks - 10)) };
    let later = ProcessSession { start_ticks: life.start_ticks + 100_000, ..session_of(&life, u64::MAX) };
    let remains = Leftovers { since: 0, sessions: vec![earlier, later], ..remains_of(&life) };

    let cleared = world.host.clear_leftovers(&leaf, &remains, GRACE).await.unwrap();

    assert_eq!(cleared, LeftoversResult::default());
    assert!(workers.iter().all(|pid| !is_dead(*pid)));
    let own = world.host.clear_leftovers(&leaf, &remains_of(&life), GRACE).await.unwrap();
    assert_eq!(own.ended, 3);
}

#[tokio::test]
async fn who_holds_the_number_of_a_session_vouches_for_those_that_began_when_its_leader_was_dead() {
    let world = World::with_tracking(TrackingPreference::Descendants);
    let leaf = Leaf::of("remains:late");
    // Each replaces its child now and then; an orphan of that has only its session.
    let forks = "env -i /bin/sh -c 'while [ -p FIFO ]; do (/bin/sleep 1000 & echo $! >> LATE); read go < FIFO; done'";
    let (late, fifo) = (world.path("late.pids"), world.path("late.fifo"));
    let forks = forks.replace("LATE", &late.display().to_string()).replace("FIFO", &fifo.display().to_string());
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let (life, _) = started(&world, &leaf, "late", &forks).await;
    eventually("each has forked", || numbers(&late).len() == 3).await;
    let remains = remains_of(&life);
    kill_main(&world, &life).await;
    std::fs::write(&fifo, "go\n").unwrap();
    eventually("one has forked again", || numbers(&late).len() > 3).await;

    let cleared = world.host.clear_leftovers(&leaf, &remains, GRACE).await.unwrap();

    assert!(cleared.ended >= 7 && cleared.left == 0, "{cleared:?}");
    assert!(numbers(&late).into_iter().all(is_dead));
}

#[tokio::test]
async fn a_process_is_in_a_session_only_if_it_began_while_the_number_was_taken() {
    let world = World::with_tracking(TrackingPreference::Descendants);
    let leaf = Leaf::of("remains:within");
    let (life, workers) = started(&world, &leaf, "within", "sleep 1000").await;
    std::fs::write(world.path("worker.pid"), workers[0].to_string()).unwrap();
    eventually("it runs sleep", || name_of(workers[0]).as_deref() == Some("sleep")).await;
    let worker = world.life("sleep", &world.path("worker.pid")).await;
    let own = session_of(&life, now_ms());

    assert!(world.host.is_in_session(&worker, &own));
    let others = [
        ProcessSession { leader: life.pid + 1, ..own },
        ProcessSession { start_ticks: worker.start_ticks + 1, ..own },
        ProcessSession { start_ticks: 1, until_ms: 10 * (life.start_ticks - 10), ..own },
    ];
    for other in others {
        assert!(!world.host.is_in_session(&worker, &other), "{other:?}");
    }
    assert!(kill_leaf(&world.host, &leaf).await >= 4);
}

#[tokio::test]
async fn what_is_older_and_what_it_has_forked_since_is_never_touched() {
    for method in METHODS {
        let world = World::with_tracking(method);
        let leaf = Leaf::of("remains:elder");
        // Forks all the time, so that some of its children are younger than the other life.
        let (elder, _) = started(&world, &leaf, "elder", "while :; do sleep 0.2; done").await;
        let begun = elder.start_ticks;
        let (life, workers) = loop {
            let (life, workers) = started(&world, &leaf, "younger", "sleep 1000").await;
            if life.start_ticks > begun + 50 {
                break (life, workers);
            }
            world.host.kill_tree(&life).await.unwrap();
            eventually("it is dead", || is_dead(life.pid) && workers.iter().copied().all(is_dead)).await;
        };
        let elders = numbers(&world.path("elder.workers"));
        let remains = Leftovers { since: begun + 45, ..remains_of(&life) };

        let killed = world.host.kill_tree_in(&life, &leaf, remains.since, Vec::new()).await.unwrap();
        eventually("the life is dead", || is_dead(life.pid) && workers.iter().copied().all(is_dead)).await;
        let cleared = world.host.clear_leftovers(&leaf, &remains, GRACE).await.unwrap();

        assert_eq!((killed, cleared), (4, LeftoversResult::default()), "{method:?}");
        assert!(world.host.is_alive(&elder) && elders.iter().all(|pid| !is_dead(*pid)), "{method:?}");
        assert!(kill_leaf(&world.host, &leaf).await >= 4);
    }
}

#[tokio::test]
async fn another_known_process_that_a_command_of_this_one_has_started_is_spared() {
    for method in METHODS {
        let world = World::with_tracking(method);
        let (leaf, other_leaf) = (Leaf::of("remains:outer"), Leaf::of("remains:inner"));
        let (pid, child) = (world.path("inner.sh.pid"), world.path("inner.child"));
        // The first of the three workers is the other process.
        let is_first = format!("mkdir {} 2> /dev/null || exec sleep 1000", world.path("is-first").display());
        let text =
            format!("{is_first}\nsleep 1000 & echo $! > {}\necho $$ > {}\nwait\n", child.display(), pid.display());
        std::fs::write(world.path("inner.sh"), text).unwrap();
        let (life, workers) =
            started(&world, &leaf, "outer", &format!("sh {}", world.path("inner.sh").display())).await;
        let other = world.life("inner.sh", &pid).await;
        let is_set_up = |pid: &i32| *pid == other.pid || name_of(*pid).as_deref() == Some("sleep");
        eventually("the workers run nothing but sleep", || workers.iter().all(is_set_up)).await;
        let others_child = numbers(&child)[0];
        world.host.set_lives(&leaf, Some(&life), []);
        world.host.set_lives(&other_leaf, Some(&other), []);

        let killed = world.host.kill_tree_in(&life, &leaf, remains_of(&life).since, Vec::new()).await.unwrap();
        let is_over = |pid: &i32| *pid == other.pid || is_dead(*pid);
        eventually("the life is dead", || is_dead(life.pid) && workers.iter().all(is_over)).await;
        world.host.set_lives(&leaf, None, []);
        let cleared = world.host.clear_leftovers(&leaf, &remains_of(&life), GRACE).await.unwrap();

        assert_eq!((killed, cleared), (3, LeftoversResult::default()), "{method:?}");
        assert!(world.host.is_alive(&other) && !is_dead(others_child), "{method:?}");
        world.host.kill_tree(&other).await.unwrap();
        eventually("it is dead", || is_dead(other.pid) && is_dead(others_child)).await;
    }
}

#[tokio::test]
async fn another_known_process_is_spared_by_the_timeout_of_the_command_that_has_started_it() {
    for method in METHODS {
        let world = World::with_tracking(method);
        let (leaf, other_leaf) = (Leaf::of("remains:slow"), Leaf::of("remains:neighbour"));
        let path = |name: &str| world.path(name).display().to_string();
        let (pid, child, pids) = (world.path("neighbour.pid"), world.path("child"), world.path("pids"));
        let text = format!("sleep 1000 & echo $! > {}\necho $$ > {}\nwait\n", path("child"), path("neighbour.pid"));
        std::fs::write(world.path("neighbour.sh"), text).unwrap();
        let line = format!("sh {} & sleep 1000 & echo $! > {}; wait", path("neighbour.sh"), path("pids"));
        let (ask, end) = tokio::sync::oneshot::channel();
        let (begun, _is_begun) = tokio::sync::oneshot::channel();
        let (let_go, held) = proctor_host::command_release();
        let_go.proceed();
        let command = Command { leaf: Some(leaf), timeout: Duration::from_secs(1000), ..world.command(&line) };
        let host = world.host.clone();
        let running = tokio::spawn(async move { host.run_held(command, CommandHold { begun, held, end }).await.0 });
        let other = world.life("neighbour.sh", &pid).await;
        world.host.set_lives(&other_leaf, Some(&other), []);
        eventually("its child is there", || !numbers(&pids).is_empty()).await;

        ask.send(()).unwrap();
        running.await.unwrap();

        eventually("its own child is dead", || numbers(&pids).into_iter().all(is_dead)).await;
        let others_child = numbers(&child)[0];
        assert!(world.host.is_alive(&other) && !is_dead(others_child), "{method:?}");
        world.host.kill_tree(&other).await.unwrap();
        eventually("it is dead", || is_dead(other.pid) && is_dead(others_child)).await;
    }
}

/// The directory of a leaf, where there are cgroups.
fn directory(world: &World, leaf: &Leaf) -> Option<std::path::PathBuf> {
    let tracking = world.host.tracking();
    let scope = tracking.detail.split([',', ';']).next().unwrap();
    (tracking.method != Method::Descendants).then(|| std::path::Path::new(scope).join(leaf.as_str()))
}

#[tokio::test]
async fn nobody_is_killed_for_being_a_child_of_an_agent_that_is_in_the_leaf() {
    let world = World::new();
    let leaf = Leaf::of("remains:agent");
    let (life, workers) = started(&world, &leaf, "starter", "sleep 1000").await;
    let Some(directory) = directory(&world, &leaf) else { return skip("there are no cgroups") };
    let mut innocent = std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
    let elsewhere = directory.parent().and_then(std::path::Path::parent).unwrap().join("cgroup.procs");
    let us = std::process::id().to_string();
    std::fs::write(directory.join("cgroup.procs"), &us).unwrap();
    kill_main(&world, &life).await;

    // Young, like an agent that a start script has just started; and old, like one that was there before.
    let all = Leftovers { since: 0, ..remains_of(&life) };
    let cleared = world.host.clear_leftovers(&leaf, &remains_of(&life), GRACE).await.unwrap();
    let again = world.host.clear_leftovers(&leaf, &all, GRACE).await.unwrap();
    std::fs::write(elsewhere, &us).unwrap();

    assert_eq!((cleared, again), (LeftoversResult { ended: 3, left: 0 }, LeftoversResult::default()));
    assert!(workers.into_iter().all(is_dead));
    assert!(innocent.try_wait().unwrap().is_none(), "a child of the agent");
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

#[tokio::test]
async fn an_agent_that_a_command_of_its_own_has_started_leaves_the_cgroup_of_that() {
    for method in [TrackingPreference::Best, TrackingPreference::CgroupV1] {
        let world = World::with_tracking(method);
        let leaf = Leaf::of("remains:upgrade");
        let (_, workers) = started(&world, &leaf, "starter", "sleep 1000").await;
        let Some(directory) = directory(&world, &leaf) else { return skip("there are no cgroups") };
        let us = i32::try_from(std::process::id()).unwrap();
        std::fs::write(directory.join("cgroup.procs"), us.to_string()).unwrap();
        assert!(numbers(&directory.join("cgroup.procs")).contains(&us), "{method:?}");

        let host = world.again(method);

        let members = numbers(&directory.join("cgroup.procs"));
        assert!(!members.contains(&us) && workers.iter().all(|pid| members.contains(pid)), "{method:?}: {members:?}");
        kill_leaf(&host, &leaf).await;
        eventually("nothing holds the leaf", || numbers(&directory.join("cgroup.procs")).is_empty()).await;
        assert!(host.release_leaf(&leaf).await.unwrap(), "{method:?}");
    }
}

#[tokio::test]
async fn what_has_left_the_cgroup_is_known_by_its_mark() {
    let world = World::new();
    let leaf = Leaf::of("remains:moved");
    let (life, workers) = started(&world, &leaf, "moved", "sleep 1000").await;
    let Some(directory) = directory(&world, &leaf) else { return skip("there are no cgroups") };
    let elsewhere = directory.parent().and_then(std::path::Path::parent).unwrap().join("cgroup.procs");
    std::fs::write(elsewhere, workers[0].to_string()).unwrap();
    kill_main(&world, &life).await;

    let cleared = world.host.clear_leftovers(&leaf, &remains_of(&life), GRACE).await.unwrap();

    assert_eq!(cleared, LeftoversResult { ended: 3, left: 0 });
    assert!(workers.into_iter().all(is_dead));
}

#[tokio::test]
async fn what_commands_of_a_living_elder_have_started_is_spared_however_young_it_is() {
    for method in METHODS {
        let world = World::with_tracking(method);
        let leaf = Leaf::of("remains:orphans");
        let path = |name: &str| world.path(name).display().to_string();
        // Each has a child that forks and exits: nobody in the elder's tree is the parent of what that has forked.
        let text = format!("sleep 1000 & echo $! >> {}; echo $$ >> {}\n", path("late"), path("parents"));
        std::fs::write(world.path("parent.sh"), text).unwrap();
        let wait = format!("until [ -e {} ]; do sleep 0.01; done", path("go"));
        std::fs::write(world.path("worker.sh"), format!("{wait}\nsh {}\nexec sleep 1000\n", path("parent.sh")))
            .unwrap();
        let (elder, _) = started(&world, &leaf, "elder", &format!("sh {}", path("worker.sh"))).await;
        // It is unregistered, and another one is launched at once.
        let until = elder.start_ticks + 1;
        eventually("the clock has gone on", || ticks_since_boot() > until + 1).await;
        let (life, workers) = started(&world, &leaf, "next", "sleep 1000").await;
        std::fs::write(world.path("go"), "").unwrap();
        let parents = world.path("parents");
        let are_orphans = || numbers(&parents).len() == 3 && numbers(&parents).into_iter().all(is_dead);
        eventually("they are orphans", are_orphans).await;
        let late = numbers(&world.path("late"));
        assert_eq!(late.len(), 3);
        let remains = Leftovers { since: life.start_ticks, spared: vec![(0, until)], ..remains_of(&life) };

        let killed = world.host.kill_tree_in(&life, &leaf, remains.since, remains.spared.clone()).await.unwrap();
        let are_dead = || is_dead(life.pid) && workers.iter().copied().all(is_dead);
        eventually("the life and its workers are dead", are_dead).await;
        let cleared = world.host.clear_leftovers(&leaf, &remains, GRACE).await.unwrap();

        assert_eq!((killed, cleared), (4, LeftoversResult::default()), "{method:?}");
        assert!(world.host.is_alive(&elder) && !late.iter().copied().any(is_dead), "{method:?}");
        let without_elder = Leftovers { spared: Vec::new(), ..remains };
        let cleared = world.host.clear_leftovers(&leaf, &without_elder, GRACE).await.unwrap();
        assert_eq!(cleared.ended, 3, "{method:?}: nobody else speaks for them");
        kill_leaf(&world.host, &leaf).await;
    }
}

fn ticks_since_boot() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    (uptime.split(' ').next().unwrap().parse::<f64>().unwrap() * 100.0) as u64
}

#[tokio::test]
async fn every_command_of_a_process_tells_when_it_began() {
    let world = World::with_tracking(TrackingPreference::Best);
    let before = ticks_since_boot();

    let line = format!("echo $PROCTOR_LAUNCH > {}", world.path("launch").display());
    exited(&world.host.run(Command { leaf: Some(Leaf::of("remains:told")), ..world.command(&line) }).await);

    let told = u64::try_from(numbers(&world.path("launch"))[0]).unwrap();
    assert!((before.saturating_sub(2)..=ticks_since_boot() + 2).contains(&told), "{told}");
}
