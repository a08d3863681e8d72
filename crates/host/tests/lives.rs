//! Exits, signals, process trees and their usage.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{PATIENCE, Started, World, eventually, exited, identity, is_dead, leaf, numbers, our_zombies, stat};
use proctor_host::{Leaf, MeasuredLife};
use proctor_model::{BootId, CommandResult, Exit, Incarnation, Probe, Signal};

/// A daemon that leaves the tree of its command, writes its pid and waits for the file `go`.
fn daemon(root: &Path, end: &str) -> String {
    let root = root.display();
    let body = format!("echo \\$\\$ > {root}/x.pid; until [ -e {root}/go ]; do sleep 0.02; done; {end}");
    format!("(setsid sh -c \"{body}\" < /dev/null &)")
}

/// Without a leaf.
fn measured(life: &Incarnation) -> MeasuredLife {
    MeasuredLife { life: life.clone(), leaf: Leaf::of("none"), since: None }
}

async fn end_of(world: &World, life: &Incarnation) -> Option<Exit> {
    tokio::time::timeout(PATIENCE, world.host.ended(life.clone())).await.expect("it ends")
}

#[tokio::test]
async fn the_exit_code_of_a_daemon_is_seen() {
    let world = World::new();
    exited(&world.run(&daemon(world.root.path(), "exit 7")).await);
    let life = world.life("sh", &world.path("x.pid")).await;
    assert_eq!(stat(life.pid).map(|stat| stat.1), i32::try_from(std::process::id()).ok(), "it is our child");
    let before = tokio::time::timeout(Duration::from_millis(50), world.host.ended(life.clone())).await;

    std::fs::write(world.path("go"), "").unwrap();
    let exit = end_of(&world, &life).await;

    assert!(before.is_err(), "an end before the end: {before:?}");
    assert_eq!(exit, Some(Exit::Code(7)));
    assert!(!world.host.is_alive(&life));
    assert_eq!(end_of(&world, &life).await, Some(Exit::Code(7)), "asked again");
}

/// Whoever reaps it frees its pid, however late we hear of it: its parent, or we ourselves.
#[tokio::test]
async fn an_exit_comes_with_the_time_at_which_the_process_last_held_its_pid() {
    for is_child in [false, true] {
        let world = World::new();
        let ends = world.host.ends::<&str>().unwrap();
        let (pid, go) = (world.path("pid"), world.path("go"));
        let body = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
        let parent = if is_child { "" } else { "; wait; exec sleep 1000" };
        exited(&world.run(&format!("(setsid sh -c 'sh -c \"{body}\" & echo $! > {}{parent}' &)", pid.display())).await);
        let life = world.life("sh", &pid).await;
        let before_watch = world.host.now();
        assert!(ends.watch("a", life.clone()).is_ok());
        assert!(ends.alive_at(&"a").is_some_and(|(of, at)| of == life && at >= before_watch));
        let before = world.host.now();
        ends.confirm();
        let confirmed = world.host.now();
        assert!((before..=confirmed).contains(&ends.alive_at(&"a").unwrap().1));
        std::fs::write(go, "").unwrap();
        eventually("it has ended", || is_dead(life.pid)).await;
        ends.confirm();
        let heard_late = world.host.now();

        let told = std::sync::Mutex::new(None);
        let hear = |mut ended: proctor_host::Exited<&'static str>| {
            let _ = ended.exit_now();
            *told.lock().unwrap() = Some(ended.alive_at);
        };
        let heard = eventually("the end is told", || told.lock().unwrap().is_some());
        tokio::select! {
            () = ends.tell(hear) => {}
            () = heard => {}
        }

        let alive_at = told.into_inner().unwrap().unwrap();
        if is_child {
            assert!(alive_at >= heard_late, "a zombie of ours until then");
        } else {
            assert!((before..=confirmed).contains(&alive_at), "{before:?} {alive_at:?} {confirmed:?}");
        }
        assert!(ends.alive_at(&"a").is_none(), "it is no longer watched");
    }
}

#[tokio::test]
async fn many_lives_are_watched_together_and_each_end_is_told_once() {
    let world = World::new();
    let ends = world.host.ends::<&str>().unwrap();
    let mut lives = Vec::new();
    for (name, code) in [("a", 3), ("b", 4), ("c", 5)] {
        let (pid, go) = (world.path(name), world.path(&format!("{name}.go")));
        let body = format!("until [ -e {} ]; do sleep 0.02; done; exit {code}", go.display());
        exited(&world.run(&format!("(setsid sh -c '{body}' & echo $! > {})", pid.display())).await);
        let life = world.life("sh", &pid).await;
        assert!(ends.watch(name, life.clone()).is_ok());
        lives.push(life);
    }
    let over = Incarnation { start_ticks: 1, ..lives[0].clone() };
    assert_eq!(ends.watch("over", over.clone()).unwrap_err(), ("over", over));
    for name in ["c", "a"] {
        std::fs::write(world.path(&format!("{name}.go")), "").unwrap();
    }

    let told = std::sync::Mutex::new(Vec::new());
    let hear = |mut ended: proctor_host::Exited<&'static str>| {
        told.lock().unwrap().push((ended.name, ended.exit_now(), ended.life.pid));
    };
    let heard = eventually("two ends are told", || told.lock().unwrap().len() >= 2);
    tokio::select! {
        () = ends.tell(hear) => {}
        () = heard => {}
    }

    let mut told = told.into_inner().unwrap();
    told.sort_by_key(|(name, _, _)| *name);
    assert_eq!(told, [("a", Some(Exit::Code(3)), lives[0].pid), ("c", Some(Exit::Code(5)), lives[2].pid)]);
    std::fs::write(world.path("b.go"), "").unwrap();
    assert_eq!(end_of(&world, &lives[1]).await, Some(Exit::Code(4)), "two may wait for one end");
}

#[tokio::test]
async fn an_end_that_nobody_watched_is_told_afterwards() {
    let world = World::new();
    exited(&world.run(&daemon(world.root.path(), "exit 9")).await);
    let life = world.life("sh", &world.path("x.pid")).await;

    std::fs::write(world.path("go"), "").unwrap();
    eventually("the reaper has taken it", || stat(life.pid).is_none()).await;

    assert_eq!(end_of(&world, &life).await, Some(Exit::Code(9)));
}

#[tokio::test]
async fn the_end_of_a_process_that_is_not_our_child_is_seen() {
    let world = World::new();
    let (pid, go) = (world.path("x.pid"), world.path("go"));
    let body = format!("echo $$ > {}; until [ -e {} ]; do sleep 0.02; done; exit 5", pid.display(), go.display());
    let _parent = Started::new("/bin/sh", &["-c", &format!("sh -c '{body}'; exec sleep 1000")]);
    let life = world.life("sh", &pid).await;

    std::fs::write(go, "").unwrap();
    let exit = end_of(&world, &life).await;

    // Older kernels do not tell.
    assert!(exit.is_none() || exit == Some(Exit::Code(5)), "{exit:?}");
    assert_eq!(exit.is_some(), kernel() >= (6, 15), "{exit:?}");
}

fn kernel() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[tokio::test]
async fn a_life_that_never_was_is_over() {
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    std::fs::write(world.path("x.pid"), process.pid().to_string()).unwrap();
    let life = world.life("sleep", &world.path("x.pid")).await;
    let other_ticks = Incarnation { start_ticks: life.start_ticks + 1, ..life.clone() };
    let other_boot = Incarnation { boot: BootId::from("another"), ..life.clone() };
    let other_inode = Incarnation { pidfd_inode: Some(1), ..life.clone() };

    for other in [other_ticks, other_boot, other_inode] {
        assert_eq!(end_of(&world, &other).await, None);
        assert!(!world.host.is_alive(&other));
        assert!(world.host.usage(measured(&other)).await.is_none());
        assert!(!world.host.signal(&other, Signal::Kill).unwrap());
        assert_eq!(world.host.kill_tree(&other).await.unwrap(), 0);
    }

    assert!(world.host.is_alive(&life), "the signals hit another life");
}

#[tokio::test]
async fn a_signal_ends_the_life_it_was_sent_to() {
    let world = World::new();
    for (signal, number) in [(Signal::Terminate, 15), (Signal::Kill, 9)] {
        let _ = std::fs::remove_file(world.path("x.pid"));
        exited(&world.run(&daemon(world.root.path(), "exit 0")).await);
        let life = world.life("sh", &world.path("x.pid")).await;

        assert!(world.host.signal(&life, signal).unwrap());
        let exit = end_of(&world, &life).await;

        assert_eq!(exit, Some(Exit::Signal(number)));
        assert!(!world.host.signal(&life, signal).unwrap());
    }
}

#[tokio::test]
async fn a_child_of_the_test_itself_is_not_reaped_by_the_host() {
    let world = World::new();
    let mut process = Started::new("/bin/sh", &["-c", "exit 3"]);
    eventually("it is a zombie", || is_dead(process.pid())).await;
    // An orphan that is reaped shows that the reaper has looked at our child too.
    let orphan = world.path("orphan");
    exited(&world.run(&format!("(setsid sleep 0.01 & echo $! > {})", orphan.display())).await);
    eventually("an orphan is reaped", || numbers(&orphan).first().is_some_and(|pid| stat(*pid).is_none())).await;

    let status = process.0.wait().unwrap();

    assert_eq!(status.code(), Some(3));
}

#[tokio::test]
async fn no_zombie_remains_of_orphans() {
    let world = World::new();
    let line = "for i in 1 2 3 4 5 6 7 8; do (setsid sleep 0.0$i &) ; (sleep 0.0$i &); done";

    for _ in 0..4 {
        exited(&world.run(line).await);
    }

    eventually("no zombies", || our_zombies().is_empty()).await;
}

/// As in a container that is entered from outside: there the session of the program has the number 0.
#[test]
fn orphans_are_reaped_where_the_session_has_no_number() {
    let us = std::env::current_exe().unwrap();
    let tests = ["no_zombie_remains_of_orphans", "a_child_of_the_test_itself_is_not_reaped_by_the_host"];
    let mut namespace = std::process::Command::new("unshare");
    namespace.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(us).arg("--exact").args(tests);

    let output = namespace.output().expect("unshare runs");

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("2 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn many_short_commands_never_lose_their_exit_to_the_reaper() {
    let world = World::new();
    let mut commands = tokio::task::JoinSet::new();
    for number in 0..60 {
        let mut command = world.command(&format!("(sleep 0.01 &); exit {}", number % 7));
        command.output_name = format!("many-{number}");
        let host = world.host.clone();
        commands.spawn(async move { (number, host.run(command).await) });
    }

    while let Some(ended) = commands.join_next().await {
        let (number, end) = ended.unwrap();
        assert_eq!(end.result, CommandResult::Exited(Exit::Code(number % 7)));
    }

    eventually("no zombies", || our_zombies().is_empty()).await;
}

#[tokio::test]
async fn killing_a_tree_gets_every_descendant_whatever_its_session() {
    let world = World::new();
    let pids = world.path("pids");
    let root = world.path("tree.sh");
    let script = format!(
        "note() {{ echo $1 >> {0}; }}
        sh -c 'echo $$ >> {0}; sleep 1000 & echo $! >> {0}; wait' &
        setsid sh -c 'echo $$ >> {0}; setsid sleep 1000 & echo $! >> {0}; trap : TERM INT; wait; wait' &
        wait",
        pids.display()
    );
    std::fs::write(&root, script).unwrap();
    let process = Started::new("/bin/sh", &[root.to_str().unwrap()]);
    std::fs::write(world.path("x.pid"), process.pid().to_string()).unwrap();
    let life = world.life("tree.sh", &world.path("x.pid")).await;
    eventually("the tree has grown", || numbers(&pids).len() == 4).await;
    let bystander = Started::new("/bin/sleep", &["1000"]);

    let count = world.host.kill_tree(&life).await.unwrap();

    assert!(count >= 5, "{count}");
    eventually("all are dead", || numbers(&pids).into_iter().chain([life.pid]).all(is_dead)).await;
    assert!(!is_dead(bystander.pid()));
    assert_eq!(world.host.kill_tree(&life).await.unwrap(), 0);
}

#[tokio::test]
async fn a_daemon_that_has_left_the_tree_survives_it() {
    let world = World::new();
    let line = format!("{}; exec sleep 1000", daemon(world.root.path(), "exit 0"));
    let process = Started::new("/bin/sh", &["-c", &line]);
    let left = world.life("sh", &world.path("x.pid")).await;
    std::fs::write(world.path("root.pid"), process.pid().to_string()).unwrap();
    let root = world.life("sleep", &world.path("root.pid")).await;

    world.host.kill_tree(&root).await.unwrap();

    eventually("the root is dead", || is_dead(root.pid)).await;
    assert!(world.host.is_alive(&left));
    assert!(world.host.signal(&left, Signal::Kill).unwrap());
    assert_eq!(end_of(&world, &left).await, Some(Exit::Signal(9)));
}

#[tokio::test]
async fn usage_is_that_of_the_whole_tree() {
    let world = World::new();
    let script = world.path("busy.sh");
    std::fs::write(&script, "sh -c 'while :; do :; done' & while :; do sleep 1000; done").unwrap();
    let process = Started::new("/bin/sh", &[script.to_str().unwrap(), "an argument"]);
    std::fs::write(world.path("x.pid"), process.pid().to_string()).unwrap();
    let life = world.life("busy.sh", &world.path("x.pid")).await;

    assert!(world.host.usage(measured(&life)).await.is_some(), "from now on it is measured whole");
    let cpu_percent = || world.host.usage_alone(&measured(&life)).unwrap().cpu_percent;
    eventually("the child's time is seen", || cpu_percent() > 1.0).await;
    let usage = world.host.usage(measured(&life)).await.unwrap();

    assert!(usage.cpu_percent_average > 0.0 && usage.cpu_percent_average <= 100.0, "{usage:?}");
    assert!(usage.memory_bytes > 4096 && usage.memory_percent > 0.0 && usage.memory_percent < 100.0, "{usage:?}");
    assert_eq!(usage.threads, 1);
    assert!(usage.command_line.ends_with("busy.sh an argument"), "{usage:?}");
    assert!(usage.elapsed_secs < 600, "{usage:?}");
    let age = proctor_runtime::clock::unix_millis() / 1000 - world.host.started_at(&life);
    assert!((0..600).contains(&age), "{age}");
    world.host.kill_tree(&life).await.unwrap();
    eventually("it is dead", || world.host.usage_alone(&measured(&life)).is_none()).await;
}

#[tokio::test]
async fn the_facts_of_the_machine_are_there() {
    let world = World::new();

    let facts = world.host.facts();

    assert!(facts.cpus >= 1 && facts.memory_bytes > 1024 * 1024, "{facts:?}");
    assert!(!facts.hostname.is_empty() && facts.os.contains("Linux") && !facts.arch.is_empty(), "{facts:?}");
    assert!(world.host.now() > Duration::ZERO);
    let look = world.host.look(&leaf(), &identity("x", &world.path("none")), None).await;
    assert!(matches!(look, Probe::Absent(_)));
}

#[tokio::test]
async fn a_life_that_is_watched_again_under_its_name_takes_no_second_descriptor() {
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    std::fs::write(world.path("x.pid"), process.pid().to_string()).unwrap();
    let life = world.life("sleep", &world.path("x.pid")).await;
    let ends = world.host.ends().unwrap();
    let pidfds = || {
        let own = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        own.filter(|entry| {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().display()));
            info.is_ok_and(|info| info.lines().any(|line| line == format!("Pid:\t{}", life.pid)))
        })
        .count()
    };

    for _ in 0..10 {
        ends.watch("name", life.clone()).unwrap();
    }
    assert_eq!(pidfds(), 1);
    ends.watch("another", life.clone()).unwrap();
    assert_eq!(pidfds(), 2);
    ends.forget(&"name");
    ends.forget(&"another");
    assert_eq!(pidfds(), 0);

    ends.watch("name", life.clone()).unwrap();
    drop(process);
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let telling = ends.tell(|ended| told.send(ended.name).unwrap());
    tokio::select! {
        () = telling => unreachable!("it tells for ever"),
        name = heard.recv() => assert_eq!(name, Some("name")),
        () = tokio::time::sleep(PATIENCE) => panic!("its end is not told"),
    }
}
