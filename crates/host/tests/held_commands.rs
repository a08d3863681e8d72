//! Commands that are known before they run, killed when they are not wanted, and found again.

#![allow(clippy::disallowed_methods, reason = "each test waits for what it spawns")]

mod common;

use std::time::Duration;

use common::{PATIENCE, World, eventually, exited, is_dead, is_root, not_run, numbers, our_zombies};
use proctor_host::{CommandHold, CommandRelease, Leaf, command_release};
use proctor_model::{CommandResult, Exit, Incarnation};
use proctor_testkit::skip;
use tokio::sync::oneshot;

/// Both ends of the hold of one command.
fn hold() -> (CommandHold, oneshot::Receiver<Incarnation>, CommandRelease, oneshot::Sender<()>) {
    let (begun, is_begun) = oneshot::channel();
    let (let_go, held) = command_release();
    let (ask, end) = oneshot::channel();
    (CommandHold { begun, held, end }, is_begun, let_go, ask)
}

#[tokio::test]
async fn a_held_command_does_nothing_before_it_is_let_go() {
    let world = World::new();
    let (host, command) = (world.host.clone(), world.command("echo $$ > ran; exit 3"));
    let (hold, is_begun, let_go, _ask) = hold();
    let running = tokio::spawn(async move { host.run_held(command, hold).await.0 });

    let life = is_begun.await.unwrap();
    assert!(world.host.is_alive(&life) && !world.path("ran").exists());
    let_go.proceed();
    let end = running.await.unwrap();

    assert_eq!(exited(&end), Exit::Code(3));
    assert_eq!(numbers(&world.path("ran")), [life.pid], "the identity is that of the shell");
}

/// It shares the agent's memory until its exec: whoever could trace it as that user could read the agent.
#[tokio::test]
async fn a_held_command_does_not_have_its_user_before_it_is_let_go() {
    if !is_root() {
        return skip("only root runs commands as other users");
    }
    let world = World::new();
    let mut command = world.command("id -un");
    (command.user, command.directory) = ("nobody".to_owned(), "/".into());
    let host = world.host.clone();
    let (hold, is_begun, let_go, _ask) = hold();
    let running = tokio::spawn(async move { host.run_held(command, hold).await.0 });

    let life = is_begun.await.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", life.pid)).unwrap();
    let_go.proceed();
    let end = running.await.unwrap();

    let ids = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!((ids("Uid:"), ids("Gid:")), ("0\t0\t0\t0".to_owned(), "0\t0\t0\t0".to_owned()));
    assert_eq!(end.output.trim(), "nobody", "{end:?}");
}

#[tokio::test]
async fn a_held_command_that_nobody_lets_go_never_runs_and_leaves_no_zombie() {
    let world = World::new();
    let (host, command) = (world.host.clone(), world.command("touch ran"));
    let (hold, is_begun, let_go, _ask) = hold();
    let running = tokio::spawn(async move { host.run_held(command, hold).await.0 });
    let life = is_begun.await.unwrap();

    drop(let_go);
    let end = running.await.unwrap();

    assert!(not_run(&end).contains("no longer wanted"), "{end:?}");
    assert!(is_dead(life.pid) && !world.path("ran").exists());
    eventually("no zombie is left", || our_zombies().is_empty()).await;
}

#[tokio::test]
async fn a_held_command_in_a_missing_directory_says_so() {
    let world = World::new();
    let mut command = world.command("true");
    command.directory = world.path("missing");
    let (hold, _is_begun, let_go, _ask) = hold();
    let_go.proceed();

    let end = world.host.run_held(command, hold).await.0;

    assert!(not_run(&end).contains("does not exist"), "{end:?}");
}

#[tokio::test]
async fn a_command_that_is_no_longer_wanted_is_killed_with_its_tree() {
    let world = World::new();
    let (host, command) =
        (world.host.clone(), world.command("echo $$ > pids; sleep 1000 & echo $! >> pids; touch ready; wait"));
    let (hold, _is_begun, let_go, ask) = hold();
    let_go.proceed();
    let running = tokio::spawn(async move { host.run_held(command, hold).await.0 });
    eventually("it runs", || world.path("ready").exists()).await;

    ask.send(()).unwrap();
    let end = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();

    assert_eq!(end.result, CommandResult::Cancelled);
    eventually("its tree is gone", || numbers(&world.path("pids")).into_iter().all(is_dead)).await;
}

#[tokio::test]
async fn a_command_that_is_no_longer_wanted_before_its_exec_is_ended_too() {
    let world = World::new();
    let (host, command) = (world.host.clone(), world.command("touch ran"));
    let (hold, is_begun, let_go, ask) = hold();
    let running = tokio::spawn(async move { host.run_held(command, hold).await.0 });
    let life = is_begun.await.unwrap();
    // Released but not yet at its exec, as in a directory that hangs.
    let child = rustix::process::Pid::from_raw(life.pid).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::STOP).unwrap();
    let_go.proceed();

    ask.send(()).unwrap();
    let end = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();

    assert_eq!(end.result, CommandResult::Cancelled);
    assert!(is_dead(life.pid) && !world.path("ran").exists());
    eventually("no zombie is left", || our_zombies().is_empty()).await;
}

#[tokio::test]
async fn a_command_of_an_agent_before_is_waited_for_and_ended_in_time() {
    let world = World::new();
    let commands =
        ["touch ready; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.01; done", "exec sleep 1000", "exec sleep 1000"];
    let mut lives = Vec::new();
    for line in commands {
        let (host, command) = (world.host.clone(), world.command(line));
        let (hold, is_begun, let_go, _ask) = hold();
        let_go.proceed();
        // An agent that ends leaves its commands alone.
        let running = tokio::spawn(async move { host.run_held(command, hold).await.0 });
        lives.push(is_begun.await.unwrap());
        running.abort();
    }
    eventually("it runs", || world.path("ready").exists()).await;
    let (ask, asked) = oneshot::channel();
    std::fs::write(world.path("go"), "").unwrap();
    ask.send(()).unwrap();

    let leaf = Leaf::of("hold:before");
    let over = world.host.rejoin(&lives[0], &leaf, PATIENCE, oneshot::channel().1).await;
    let late = world.host.rejoin(&lives[1], &leaf, Duration::from_millis(10), oneshot::channel().1).await;
    let unwanted = world.host.rejoin(&lives[2], &leaf, PATIENCE, asked).await;
    let gone = world.host.rejoin(&lives[2], &leaf, PATIENCE, oneshot::channel().1).await;

    assert!(matches!(over.result, CommandResult::Exited(Exit::Code(0)) | CommandResult::ExitUnknown), "{over:?}");
    assert_eq!((late.result, unwanted.result), (CommandResult::TimedOut, CommandResult::Cancelled));
    assert!(matches!(gone.result, CommandResult::Exited(Exit::Signal(9)) | CommandResult::ExitUnknown), "{gone:?}");
    assert!(lives.iter().all(|life| is_dead(life.pid)));
}
