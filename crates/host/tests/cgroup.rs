//! Processes in leaf cgroups, by every method that this machine offers, and without any.

#![allow(clippy::unwrap_used, reason = "test code, outside of test functions")]

mod common;

use std::path::{Path, PathBuf};

use common::{World, eventually, exited, is_dead, is_root, kill_leaf, numbers, our_zombies};
use proctor_host::{Command, Leaf, MeasuredLife, Method, TrackingPreference};
use proctor_model::Incarnation;
use proctor_testkit::skip;

/// Every method that works here; the tests run with each.
fn methods() -> Vec<TrackingPreference> {
    let works =
        |prefer: &TrackingPreference| World::with_tracking(*prefer).host.tracking().method != Method::Descendants;
    let methods: Vec<_> = [TrackingPreference::Best, TrackingPreference::CgroupV1].into_iter().filter(works).collect();
    if methods.is_empty() {
        skip("there is no writable cgroup");
    }
    methods
}

fn worlds() -> Vec<World> {
    methods().into_iter().map(World::with_tracking).collect()
}

fn command(world: &World, leaf: &Leaf, line: &str) -> Command {
    Command { leaf: Some(leaf.clone()), ..world.command(line) }
}

/// A daemon that forks twice and leaves its session, with a child of its own.
fn daemon(root: &Path) -> String {
    let root = root.display();
    let body = format!("echo \\$\\$ > {root}/x.pid; sleep 1000 & echo \\$! > {root}/child.pid; wait");
    format!("(setsid sh -c \"{body}\" < /dev/null > /dev/null 2>&1 &)")
}

/// The directory of a leaf in the hierarchy that lists the members.
fn directory(world: &World, leaf: &Leaf) -> PathBuf {
    let detail = &world.host.tracking().detail;
    Path::new(detail.split([',', ';']).next().unwrap()).join(leaf.as_str())
}

/// Every path where a cgroup of ours might have been left.
fn left_of(world: &World) -> Vec<PathBuf> {
    let scope = directory(world, &Leaf::of("")).parent().unwrap().file_name().unwrap().to_owned();
    let mounted = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let scopes = mounted.chain([PathBuf::from("/sys/fs/cgroup")]).map(|mount| mount.join("proctor").join(&scope));
    scopes.filter(|scope| scope.exists()).collect()
}

async fn started(world: &World, leaf: &Leaf) -> (Incarnation, i32) {
    let _ = std::fs::remove_file(world.path("x.pid"));
    let _ = std::fs::remove_file(world.path("child.pid"));
    exited(&world.host.run(command(world, leaf, &daemon(world.root.path()))).await);
    let life = world.life("sh", &world.path("x.pid")).await;
    eventually("it has a child", || numbers(&world.path("child.pid")).len() == 1).await;
    (life, numbers(&world.path("child.pid"))[0])
}

/// Kills what is in a leaf and removes it.
async fn clear(world: &World, leaf: &Leaf) {
    kill_leaf(&world.host, leaf).await;
    eventually("it is empty", || numbers(&directory(world, leaf).join("cgroup.procs")).is_empty()).await;
    assert!(world.host.release_leaf(leaf).await.unwrap());
}

#[tokio::test]
async fn what_this_machine_offers_is_said() {
    let best = World::with_tracking(TrackingPreference::Best);
    let none = World::with_tracking(TrackingPreference::Descendants);

    assert!(!best.host.tracking().detail.is_empty());
    assert_eq!(none.host.tracking().method, Method::Descendants);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    if is_root() && mounts.contains(" - cgroup2 cgroup2 rw") {
        assert_eq!(best.host.tracking().method, Method::CgroupV2, "{:?}", best.host.tracking());
    }
    assert_eq!(left_of(&best), Vec::<PathBuf>::new(), "trying out leaves something behind");
}

#[tokio::test]
async fn a_daemon_that_forked_twice_is_in_its_leaf_and_killed_with_it() {
    for world in worlds() {
        let leaf = Leaf::of("test:daemon");
        let (life, child) = started(&world, &leaf).await;
        let members = numbers(&directory(&world, &leaf).join("cgroup.procs"));
        let early = world.host.release_leaf(&leaf).await.unwrap();

        let killed = kill_leaf(&world.host, &leaf).await;
        eventually("all are dead", || is_dead(life.pid) && is_dead(child)).await;
        let released = world.host.release_leaf(&leaf).await.unwrap();

        assert!(members.contains(&life.pid) && members.contains(&child), "{members:?}");
        assert!(!early, "a leaf with members was removed");
        assert_eq!(killed, 2, "{:?}", world.host.tracking());
        assert!(released);
        assert_eq!(left_of(&world), Vec::<PathBuf>::new());
        eventually("no zombies", || our_zombies().is_empty()).await;
    }
}

#[tokio::test]
async fn a_leaf_that_was_killed_takes_the_next_life() {
    for world in worlds() {
        let leaf = Leaf::of("test:again");
        for _ in 0..2 {
            let (life, child) = started(&world, &leaf).await;
            assert!(world.host.is_alive(&life));
            assert_eq!(kill_leaf(&world.host, &leaf).await, 2, "{:?}", world.host.tracking());
            eventually("all are dead", || is_dead(life.pid) && is_dead(child)).await;
        }
        assert_eq!(kill_leaf(&world.host, &leaf).await, 0);
        exited(&world.host.run(command(&world, &leaf, "true")).await);
        clear(&world, &leaf).await;
        assert_eq!(left_of(&world), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn killing_a_tree_gets_who_left_it_for_its_leaf_but_no_later_life() {
    for world in worlds() {
        let (leaf, other) = (Leaf::of("test:tree"), Leaf::of("test:other"));
        let (left, left_child) = started(&world, &leaf).await;
        let line = format!("sh -c 'echo $$ > {}; exec sleep 1000' & exit 0", world.path("root.pid").display());
        exited(&world.host.run(command(&world, &leaf, &line)).await);
        let root = world.life("sleep", &world.path("root.pid")).await;
        let (bystander, _) = started(&world, &other).await;

        let killed = world.host.kill_tree_in(&root, &leaf, 0, Vec::new()).await.unwrap();
        eventually("all are dead", || [root.pid, left.pid, left_child].into_iter().all(is_dead)).await;
        let (next, _) = started(&world, &leaf).await;
        let late = world.host.kill_tree_in(&root, &leaf, 0, Vec::new()).await.unwrap();

        assert_eq!(killed, 3);
        assert_eq!(late, 0, "the life was over");
        assert!(world.host.is_alive(&next) && world.host.is_alive(&bystander));
        for leaf in [leaf, other] {
            clear(&world, &leaf).await;
        }
        assert_eq!(left_of(&world), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn what_is_older_in_its_leaf_is_charged_to_a_life_neither_by_status_nor_by_limits() {
    for world in worlds() {
        let leaf = Leaf::of("test:elder");
        started(&world, &leaf).await;
        // Younger than the first one by some ticks.
        let line = format!("sleep 0.1; sh -c 'echo $$ > {}; exec sleep 1000' &", world.path("new.pid").display());
        exited(&world.host.run(command(&world, &leaf, &line)).await);
        let life = world.life("sleep", &world.path("new.pid")).await;
        let since = Some(life.start_ticks);
        let mut limits = world.host.sampler();
        assert!(limits.track_in(&life, &leaf, since));

        let of = MeasuredLife { life: life.clone(), leaf: leaf.clone(), since };
        assert!(world.host.usage(of.clone()).await.is_some(), "from now on it is measured whole");
        // The loader of the new program may still have files open.
        eventually("status and limits count the files of this life alone", || {
            let usage = world.host.usage_alone(&of).unwrap();
            let sample = limits.sample_with_descriptors(&life, world.host.now()).unwrap();
            let own = std::fs::read_dir(format!("/proc/{}/fd", life.pid)).unwrap().count();
            sample.fds == Some(usage.fds) && usage.fds == u64::try_from(own).unwrap()
        })
        .await;
        clear(&world, &leaf).await;
    }
}

#[tokio::test]
async fn a_leaf_outlives_the_agent_and_its_remains_are_swept() {
    for prefer in methods() {
        let world = World::with_tracking(prefer);
        let (kept, empty) = (Leaf::of("test:kept"), Leaf::of("test:empty"));
        let (life, _) = started(&world, &kept).await;
        exited(&world.host.run(command(&world, &empty, "true")).await);
        assert!(directory(&world, &empty).exists());

        let again = world.again(prefer);

        assert!(again.is_alive(&life));
        assert!(!directory(&world, &empty).exists(), "an empty leaf is left");
        assert_eq!(kill_leaf(&again, &kept).await, 2);
        clear(&world, &kept).await;
        assert_eq!(left_of(&world), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn a_process_that_makes_cgroups_of_its_own_is_killed_and_cleared_away() {
    for world in worlds() {
        let leaf = Leaf::of("test:nested");
        let (life, child) = started(&world, &leaf).await;
        let inner = directory(&world, &leaf).join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("cgroup.procs"), child.to_string()).unwrap();

        let killed = kill_leaf(&world.host, &leaf).await;
        eventually("all are dead", || is_dead(life.pid) && is_dead(child)).await;

        assert_eq!(killed, 2);
        assert!(world.host.release_leaf(&leaf).await.unwrap());
        assert_eq!(left_of(&world), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn a_command_of_another_user_gets_into_its_leaf() {
    if !is_root() {
        return skip("only root runs commands as other users");
    }
    for world in worlds() {
        let leaf = Leaf::of("test:user");
        let mut command = command(&world, &leaf, "id -un; cat /proc/self/cgroup");
        command.user = "nobody".to_owned();
        command.directory = "/".into();

        let end = world.host.run(command).await;

        assert!(end.output.starts_with("nobody\n"), "{}", end.output);
        assert!(end.output.contains(leaf.as_str()), "{}", end.output);
        assert!(world.host.release_leaf(&leaf).await.unwrap());
        assert_eq!(left_of(&world), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn without_cgroups_everything_goes_on_by_descent() {
    let world = World::with_tracking(TrackingPreference::Descendants);
    let leaf = Leaf::of("test:none");

    let (life, child) = started(&world, &leaf).await;
    let killed = world.host.kill_tree_in(&life, &leaf, 0, Vec::new()).await.unwrap();

    assert_eq!(killed, 2);
    eventually("all are dead", || is_dead(life.pid) && is_dead(child)).await;
    assert!(world.host.release_leaf(&leaf).await.unwrap());
}
