//! What the sampler says about real process trees, with and without cgroups.

#![allow(clippy::unwrap_used, reason = "test code, outside of test functions")]

mod common;

use std::io::Write;
use std::time::Duration;

use common::{PATIENCE, Started, World, eventually, exited, is_dead, kill_leaf, numbers, stat};
use proctor_host::{Command, Leaf, Method, Sample, Sampler, TrackingPreference};
use proctor_model::{BootId, Incarnation};
use proctor_testkit::skip;

const METHODS: [TrackingPreference; 3] =
    [TrackingPreference::Best, TrackingPreference::CgroupV1, TrackingPreference::Descendants];

/// Hundredths of the machine that one thread can use.
fn one_cpu() -> f64 {
    100.0 / f64::from(u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap())
}

/// Starts a daemon that runs a shell script, in a leaf of its own.
async fn started(world: &World, leaf: &Leaf, script: &str) -> Incarnation {
    let (path, pid) = (world.path("script.sh"), world.path("script.pid"));
    std::fs::write(&path, format!("echo $$ > {}\n{script}\n", pid.display())).unwrap();
    let line = format!("(setsid sh {} < /dev/null > /dev/null 2>&1 &)", path.display());
    exited(&world.host.run(Command { leaf: Some(leaf.clone()), ..world.command(&line) }).await);
    world.life("script.sh", &pid).await
}

/// Ends everything of a life.
async fn end(world: &World, life: &Incarnation, leaf: &Leaf) {
    world.host.kill_tree_in(life, leaf, 0, Vec::new()).await.unwrap();
    kill_leaf(&world.host, leaf).await;
    eventually("it is dead", || is_dead(life.pid)).await;
    let released = async {
        while !world.host.release_leaf(leaf).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, released).await.expect("the leaf is empty");
}

fn sample(world: &World, sampler: &mut Sampler, life: &Incarnation) -> Sample {
    sampler.sample(life, world.host.now()).expect("it lives")
}

/// CPU time of a process, and of the children that it has waited for, in ticks of 10 ms.
fn cpu_ticks(pid: i32) -> (f64, f64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    let sum = |user: usize| fields[user].parse::<f64>().unwrap() + fields[user + 1].parse::<f64>().unwrap();
    (sum(11), sum(13))
}

/// Two samples of a life in which only `busy` works, with half a second of CPU time between them. Times are given,
/// and the sample is compared with what the kernel has counted: how busy the machine is does not matter.
async fn sample_of_busy(sampler: &mut Sampler, life: &Incarnation, busy: i32, begin: Duration) -> Sample {
    let earlier = cpu_ticks(busy).0;
    sampler.sample(life, begin).expect("it lives");
    let before = cpu_ticks(busy).0;
    eventually("it has worked", || cpu_ticks(busy).0 >= before + 50.0).await;
    let least = cpu_ticks(busy).0 - before;
    let sample = sampler.sample(life, begin + BUSY_TIME).expect("it lives");
    let most = cpu_ticks(busy).0 - earlier;

    // The kernel rounds to ticks, and tells of a thread that runs a tick later.
    let percent = |ticks: f64| one_cpu() * ticks / 100.0 / BUSY_TIME.as_secs_f64();
    let (least, most) = (percent(least - 5.0), percent(most + 5.0));
    assert!(sample.cpu_percent > least && sample.cpu_percent < most, "{sample:?}, between {least} and {most}");
    sample
}

/// More than it takes to use half a second of CPU time.
const BUSY_TIME: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_busy_thread_is_one_cpu_of_the_machine() {
    for prefer in METHODS {
        let world = World::with_tracking(prefer);
        let leaf = Leaf::of("test:busy");
        let life = started(&world, &leaf, "while :; do :; done").await;
        let mut sampler = world.host.sampler();
        assert!(sampler.track(&life, Some(&leaf)));

        let begin = world.host.now();
        let busy = sample_of_busy(&mut sampler, &life, life.pid, begin).await;
        let again = sampler.sample(&life, begin + BUSY_TIME).expect("it lives");

        assert!((again.cpu_percent - busy.cpu_percent).abs() < f64::EPSILON, "two at once: {again:?}");
        assert!(busy.memory_bytes > 4096 && busy.memory_percent < 50.0, "{busy:?}");
        end(&world, &life, &leaf).await;
    }
}

#[tokio::test]
async fn an_idle_process_uses_nothing() {
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    std::fs::write(world.path("x.pid"), process.pid().to_string()).unwrap();
    let life = world.life("sleep", &world.path("x.pid")).await;
    let mut sampler = world.host.sampler();
    assert!(sampler.track(&life, None) && sampler.track(&life, None));

    let begin = world.host.now();
    sampler.sample(&life, begin).expect("it lives");
    let idle = sampler.sample(&life, begin + Duration::from_secs(1)).expect("it lives");
    let with_descriptors = sampler.sample_with_descriptors(&life, begin + Duration::from_secs(1)).unwrap();

    assert!(idle.cpu_percent < 1.0, "{idle:?}");
    let open = std::fs::read_dir(format!("/proc/{}/fd", life.pid)).unwrap().count();
    assert_eq!((idle.fds, with_descriptors.fds), (None, u64::try_from(open).ok()));
    assert_eq!(sampler.size(), (1, 1));
    sampler.forget(&life);
    assert_eq!(sampler.size(), (0, 0), "a descriptor leaks");
    assert_eq!(sampler.sample(&life, world.host.now()), None);
}

#[tokio::test]
async fn memory_of_a_child_of_a_child_counts() {
    for prefer in METHODS {
        let world = World::with_tracking(prefer);
        let leaf = Leaf::of("test:grandchild");
        let go = world.path("go");
        // Born after tracking has begun.
        let (child, grandchild) = (world.path("child.sh"), world.path("grandchild.sh"));
        std::fs::write(&grandchild, "x=$(head -c 64000000 /dev/zero | tr '\\0' x); sleep 1000").unwrap();
        std::fs::write(&child, format!("sh {}; :", grandchild.display())).unwrap();
        let script = format!("until [ -e {} ]; do sleep 0.02; done; sh {}; :", go.display(), child.display());
        let life = started(&world, &leaf, &script).await;
        let mut sampler = world.host.sampler();
        assert!(sampler.track(&life, Some(&leaf)));
        let before = sample(&world, &mut sampler, &life);

        std::fs::write(go, "").unwrap();
        let (mut most, mut now) = (before, world.host.now());
        eventually("its memory is counted", || {
            now += Duration::from_secs(1); // so that every sample looks for new descendants
            most = sampler.sample(&life, now).expect("it lives");
            most.memory_bytes > 60_000_000
        })
        .await;

        assert!(before.memory_bytes < 20_000_000, "{before:?}");
        assert!(most.memory_bytes > 60_000_000, "{prefer:?}: {most:?}");
        end(&world, &life, &leaf).await;
    }
}

/// Only the root of the tree is alive when a sample is taken, so that only what the root has waited for can tell.
/// Times are given, and CPU time is compared with what the kernel has counted: how busy the machine is does not
/// matter.
#[tokio::test]
async fn children_that_come_and_go_between_samples_count() {
    for prefer in METHODS {
        let world = World::with_tracking(prefer);
        let leaf = Leaf::of("test:short");
        let (orders, child) = (world.path("orders"), world.path("child.sh"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &orders, rustix::fs::Mode::RWXU).unwrap();
        std::fs::write(&child, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").unwrap();
        // Opened for both ways, so that nobody waits for the other side; `read` makes no child.
        let script = format!(
            "exec 3<>{}; while read round <&3; do sh {}; echo $round >> {}; done",
            orders.display(),
            child.display(),
            world.path("done").display()
        );
        let life = started(&world, &leaf, &script).await;
        let mut sampler = world.host.sampler();
        assert!(sampler.track(&life, Some(&leaf)));

        let begin = world.host.now();
        sampler.sample(&life, begin).expect("it lives");
        for round in 1..=3 {
            let before = cpu_ticks(life.pid).1;
            std::fs::OpenOptions::new().write(true).open(&orders).unwrap().write_all(b"1\n").unwrap();
            eventually("its child has ended", || numbers(&world.path("done")).len() == round).await;
            let used = cpu_ticks(life.pid).1 - before;

            let now = begin + Duration::from_secs(u64::try_from(round).unwrap());
            let sample = sampler.sample(&life, now).expect("it lives");

            assert!(used >= 10.0, "the child has hardly worked: {used} ticks");
            // The kernel rounds to ticks of 10 ms, and the root itself works a little.
            let (least, most) = (one_cpu() * (used - 2.0) / 100.0, one_cpu() * (used * 1.5 + 5.0) / 100.0);
            assert!(sample.cpu_percent > least, "{prefer:?}, round {round}: {sample:?}, at least {least}");
            assert!(
                sample.cpu_percent < most.min(100.0) + 0.1,
                "{prefer:?}, round {round}: {sample:?}, at most {most}"
            );
        }
        end(&world, &life, &leaf).await;
    }
}

#[tokio::test]
async fn who_belonged_once_belongs_until_its_end() {
    let world = World::with_tracking(TrackingPreference::Descendants);
    let leaf = Leaf::of("test:stays");
    let (go, busy) = (world.path("go"), world.path("busy.pid"));
    let script = format!(
        "sh -c 'sh -c \"echo \\$\\$ > {}; while :; do :; done\" & until [ -e {} ]; do sleep 0.02; done' ; sleep 1000",
        busy.display(),
        go.display()
    );
    let life = started(&world, &leaf, &script).await;
    eventually("the grandchild runs", || !numbers(&busy).is_empty()).await;
    let grandchild = numbers(&busy)[0];
    let mut sampler = world.host.sampler();
    assert!(sampler.track(&life, None));
    sample(&world, &mut sampler, &life);

    std::fs::write(go, "").unwrap();
    let us = i32::try_from(std::process::id()).unwrap();
    eventually("its parent has ended", || stat(grandchild).is_some_and(|(_, parent, _)| parent == us)).await;

    sample_of_busy(&mut sampler, &life, grandchild, world.host.now()).await;

    rustix::process::kill_process(rustix::process::Pid::from_raw(grandchild).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    end(&world, &life, &leaf).await;
}

#[tokio::test]
async fn a_reused_pid_is_not_the_old_life() {
    let world = World::new();
    let mut process = Started::new("/bin/sleep", &["1000"]);
    std::fs::write(world.path("x.pid"), process.pid().to_string()).unwrap();
    let life = world.life("sleep", &world.path("x.pid")).await;
    let earlier = Incarnation { start_ticks: life.start_ticks - 1, ..life.clone() };
    let other_inode = Incarnation { pidfd_inode: Some(1), ..life.clone() };
    let other_boot = Incarnation { boot: BootId::from("another"), ..life.clone() };
    let mut sampler = world.host.sampler();

    for other in [&earlier, &other_inode, &other_boot] {
        assert!(!sampler.track(other, None), "{other:?}");
    }
    assert!(sampler.track(&life, None));
    let of_other = sampler.sample(&earlier, world.host.now());
    let of_life = sampler.sample(&life, world.host.now());
    process.0.kill().unwrap();
    eventually("it is a zombie", || is_dead(life.pid)).await;
    let of_zombie = sampler.sample(&life, world.host.now());
    process.0.wait().unwrap();
    let of_nobody = sampler.sample(&life, world.host.now());

    assert!(of_other.is_none() && of_life.is_some());
    assert!(of_zombie.is_none() && of_nobody.is_none());
    assert_eq!(sampler.size(), (0, 0));
}

#[tokio::test]
async fn a_pid_that_comes_round_is_told_from_the_one_before() {
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    let old = process.pid();
    std::fs::write(world.path("x.pid"), old.to_string()).unwrap();
    let life = world.life("sleep", &world.path("x.pid")).await;
    let mut sampler = world.host.sampler();
    assert!(sampler.track(&life, None));
    drop(process);

    let Some(next) = reuse(old) else { return skip("no process gets the pid of one that has ended") };
    let answer = sampler.sample(&life, world.host.now());

    assert!(answer.is_none(), "{answer:?} of pid {old}, which is {:?} now", stat(next.pid()));
}

/// A process with that pid. Only root may say which pid comes next, and others fork meanwhile.
fn reuse(pid: i32) -> Option<Started> {
    for _ in 0..1000 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let process = Started::new("/bin/sleep", &["1000"]);
        if process.pid() == pid {
            return Some(process);
        }
    }
    None
}

#[tokio::test]
async fn thousands_of_threads_do_not_make_a_sample_slow() {
    let world = World::with_tracking(TrackingPreference::Descendants);
    let threads: Vec<_> = (0..4000).map_while(|_| parked().ok()).collect();
    // A pid file that names ourselves is refused, so the life is made by hand.
    let pid = i32::try_from(std::process::id()).unwrap();
    let (boot, (_, _, start_ticks)) = (world.host.boot_id().clone(), stat(pid).unwrap());
    let life = Incarnation { boot, pid, start_ticks, pidfd_inode: inode_of(pid) };
    let mut sampler = world.host.sampler();
    assert!(sampler.track(&life, None));
    let begin = world.host.now();
    sampler.sample(&life, begin).unwrap();

    // Apart in time: samples that follow at once do not read the CPU clock, which asks every thread.
    let before = thread_time();
    for number in 1..=10 {
        sampler.sample(&life, begin + Duration::from_secs(number)).unwrap();
    }
    let each = (thread_time() - before) / 10;
    eprintln!("{each:?} a sample with {} threads", threads.len());

    assert!(threads.len() >= 3000, "only {} threads could be made", threads.len());
    // A second of one CPU has room for a hundred of these.
    assert!(each < Duration::from_millis(10), "{each:?} with {} threads", threads.len());
    for thread in threads {
        thread.thread().unpark();
        thread.join().unwrap();
    }
}

fn parked() -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().stack_size(16 * 1024).spawn(std::thread::park)
}

fn inode_of(pid: i32) -> Option<u64> {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let is_own = rustix::fs::fstatfs(&fd).unwrap().f_type == 0x5049_4446;
    is_own.then(|| rustix::fs::fstat(&fd).unwrap().st_ino)
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

#[tokio::test]
async fn a_life_that_is_not_in_its_leaf_is_measured_by_descent() {
    let world = World::new();
    if world.host.tracking().method == Method::Descendants {
        return skip("there is no writable cgroup");
    }
    let (script, busy) = (world.path("busy.sh"), world.path("busy.pid"));
    let work = format!("sh -c 'echo $$ > {}; while :; do :; done' & wait", busy.display());
    std::fs::write(&script, work).unwrap();
    let process = Started::new("/bin/sh", &[script.to_str().unwrap()]);
    std::fs::write(world.path("x.pid"), process.pid().to_string()).unwrap();
    let life = world.life("busy.sh", &world.path("x.pid")).await;
    let mut sampler = world.host.sampler();

    assert!(sampler.track(&life, Some(&Leaf::of("test:elsewhere"))));
    eventually("its child works", || !numbers(&busy).is_empty()).await;
    let begin = world.host.now();
    sampler.sample(&life, begin).expect("it lives");
    // Descendants are looked for once in a second.
    sampler.sample(&life, begin + Duration::from_secs(2)).expect("it lives");

    sample_of_busy(&mut sampler, &life, numbers(&busy)[0], begin + Duration::from_secs(4)).await;
    world.host.kill_tree(&life).await.unwrap();
}

#[tokio::test]
async fn an_orphan_in_the_session_of_a_life_counts() {
    for method in METHODS {
        let world = World::with_tracking(method);
        let leaf = Leaf::of("test:orphan");
        let (orphan, child) = (world.path("orphan.pid"), world.path("child.pid"));
        let forks = |path: &std::path::Path| format!("sleep 1000 & echo $! > {}", path.display());
        let script = format!("({})\n{}\nwait", forks(&orphan), forks(&child));
        let life = started(&world, &leaf, &script).await;
        let us = i32::try_from(std::process::id()).ok();
        let is_orphan = || numbers(&orphan).first().and_then(|pid| stat(*pid)).map(|stat| stat.1) == us;
        eventually("its parent has ended", || orphan.exists() && !numbers(&child).is_empty() && is_orphan()).await;
        let descriptors = |pid: i32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let of_orphan = u64::try_from(descriptors(numbers(&orphan)[0])).unwrap();
        let mut sampler = world.host.sampler();
        assert!(of_orphan > 0 && sampler.track(&life, Some(&leaf)));

        let sample = sampler.sample_with_descriptors(&life, world.host.now()).unwrap();

        let own = u64::try_from(descriptors(life.pid) + descriptors(numbers(&child)[0])).unwrap();
        assert_eq!(sample.fds, Some(own + of_orphan), "{method:?}");
        end(&world, &life, &leaf).await;
    }
}
