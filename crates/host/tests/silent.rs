//! A process of the host holds its memory lock for ever, because it maps a file of a mount that hangs.

mod common;

use std::time::Duration;

use common::*;
use proctor_host::{Leaf, MeasuredLife, TrackingPreference};
use proctor_model::{Leftovers, Probe};
use proctor_testkit::{MemoryTrap, skip};

/// Such a process, which the agent has not started. It ends when the trap is gone.
struct Silent {
    trap: MemoryTrap,
    process: Started,
}

impl Silent {
    /// With its pid file.
    async fn start(world: &World) -> Option<Self> {
        let trap = MemoryTrap::mount(world.path("trap")).await?;
        let process = Started::new("/bin/sh", &["-c", &trap.command()]);
        std::fs::write(world.path("silent.pid"), process.pid().to_string()).expect("the pid file can be written");
        trap.holds(process.pid()).await;
        Some(Self { trap, process })
    }
}

#[tokio::test]
async fn a_silent_process_keeps_nobody_from_being_killed_or_cleared() {
    let world = World::with_tracking(TrackingPreference::Descendants);
    let Some(_silent) = Silent::start(&world).await else { return skip("FUSE cannot be mounted") };
    let leaf = Leaf::of("test:beside");
    let line = format!("sh -c 'echo $$ > {}; exec sleep 1000' &", world.path("x.pid").display());
    world.host.run(proctor_host::Command { leaf: Some(leaf.clone()), ..world.command(&line) }).await;
    let life = world.life("sleep", &world.path("x.pid")).await;

    for _ in 0..2 {
        let since = life.start_ticks;
        let all = Leftovers { since, launched: true, sessions: Vec::new(), spared: Vec::new() };
        assert_eq!(within(world.host.count_remains(&leaf, &all)).await.unwrap(), 1);
    }
    let killed = within(world.host.kill_tree_in(&life, &leaf, life.start_ticks, Vec::new())).await;

    assert_eq!(killed.unwrap(), 1);
}

#[tokio::test]
async fn a_silent_process_is_found_measured_and_killed() {
    let world = World::new();
    let Some(Silent { trap, process }) = Silent::start(&world).await else { return skip("FUSE cannot be mounted") };
    let pid_path = world.path("silent.pid");

    let life = within(world.life(&trap.name(), &pid_path)).await;
    let other = within(world.look("program", &pid_path)).await;
    let of = MeasuredLife { life: life.clone(), leaf: Leaf::of("test:silent"), since: None };
    world.host.note_command_lines([&life]);
    let alone = world.host.usage_alone(&of).unwrap();
    let usage = within(world.host.usage(of.clone())).await.unwrap();
    let all = within(world.host.usages(vec![of])).await;
    let killed = within(world.host.kill_tree(&life)).await;

    assert!(matches!(&other, Probe::Unclear { .. }), "{other:?}");
    assert_eq!((alone.command_line.as_str(), usage.command_line.as_str(), all.len()), ("", "", 1));
    assert_eq!(killed.unwrap(), 1);
    drop(trap);
    eventually("it is dead", || is_dead(process.pid())).await;
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it ends")
}
