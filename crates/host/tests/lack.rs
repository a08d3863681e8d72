//! A host that lacks descriptors or processes. In a program of its own, whose limits it changes.

mod common;

use std::os::unix::process::CommandExt;

use common::{Started, World, identity, is_root, leaf, not_run};
use proctor_model::{Probe, Signal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[tokio::test]
async fn lack_is_said_and_never_taken_for_an_end() {
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    let path = world.path("x.pid");
    std::fs::write(&path, process.pid().to_string()).unwrap();
    let life = world.life("sleep", &path).await;
    let sleep = identity("sleep", &path);
    let command = world.command("true");

    let before = limit(Resource::Nofile, 3);
    let is_alive = world.host.is_alive(&life);
    let known = world.host.look(&leaf(), &sleep, Some(&life)).await;
    let unknown = world.host.look(&leaf(), &sleep, None).await;
    let signal = world.host.signal(&life, Signal::Kill);
    let run = world.host.run(command).await;
    setrlimit(Resource::Nofile, before).unwrap();

    assert!(is_alive);
    assert_eq!(known, Probe::Running(life.clone()));
    assert!(matches!(unknown, Probe::Unclear { reason, .. } if reason.contains("Too many open files")));
    assert!(signal.is_err());
    assert!(["file descriptors", "open files"].iter().any(|words| not_run(&run).contains(words)), "{run:?}");
    common::exited(&world.run("true").await);

    if is_root() {
        // The kernel counts the processes that a user has already.
        let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
        let first = std::process::Command::new("/bin/sleep").arg("1000").uid(nobody.uid.as_raw()).spawn();
        let _first = Started(first.unwrap());
        let before = limit(Resource::Nproc, 0);
        let mut command = world.command("true");
        command.user = "nobody".to_owned();
        command.directory = "/".into();
        let run = world.host.run(command).await;
        setrlimit(Resource::Nproc, before).unwrap();

        assert!(not_run(&run).contains("no more processes"), "{run:?}");
    } else {
        proctor_testkit::skip("only root runs commands as other users, whose processes can be limited");
    }
    assert!(world.host.signal(&life, Signal::Kill).unwrap());
}

fn limit(resource: Resource, current: u64) -> Rlimit {
    let before = getrlimit(resource);
    let lower = Rlimit { current: Some(current), maximum: before.maximum };
    setrlimit(resource, lower).expect("a limit may be lowered");
    before
}
