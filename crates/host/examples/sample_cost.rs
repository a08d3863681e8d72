//! What it costs to measure many processes: `sample_cost [lives] [descent|leaf|leaf1]`.
//!
//! Prints CPU time of this program (not of the processes), by `getrusage`, beside the usual way of
//! opening, reading and closing `stat` and `status`.

#![allow(clippy::unwrap_used, reason = "a measurement may end as soon as something is odd")]

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use proctor_host::{Command, Host, Leaf, Options, Sampler, TrackingPreference};
use proctor_model::Incarnation;
use proctor_runtime::Tasks;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

const ROUNDS: u32 = 20;
const PIDFS_MAGIC: i64 = 0x5049_4446;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let count: usize = arguments.get(1).map_or(1000, |text| text.parse().unwrap());
    let prefer = match arguments.get(2).map_or("descent", String::as_str) {
        "leaf" => TrackingPreference::Best,
        "leaf1" => TrackingPreference::CgroupV1,
        _ => TrackingPreference::Descendants,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure(count, prefer));
}

async fn measure(count: usize, prefer: TrackingPreference) {
    let root = tempfile::tempdir().unwrap();
    let tasks = Tasks::default();
    let in_leaves = prefer != TrackingPreference::Descendants;
    let host = Host::new(Options { tracking: prefer, ..Options::new(root.path().join("state")) }, &tasks).unwrap();
    println!("{count} lives, {:?}: {}", host.tracking().method, host.tracking().detail);

    let leaf = Leaf::of("cost:run");
    let without = run_median(&host, root.path(), None).await;
    let with = run_median(&host, root.path(), Some(&leaf)).await;
    println!("a command          {without:7.0} us of time until its end, {with:.0} us in a leaf (medians)");
    host.release_leaf(&leaf).await.unwrap();

    let mut children = Vec::new();
    let mut lives = Vec::new();
    for number in 0..count {
        let leaf = Leaf::of(&format!("cost:{number}"));
        let pid = if in_leaves {
            daemon(&host, root.path(), &leaf).await
        } else {
            children.push(sleep());
            i32::try_from(children.last().unwrap().id()).unwrap()
        };
        lives.push((life(&host, pid), leaf));
    }

    let mut sampler = host.sampler();
    let mut now = host.now();
    let tracking = cost(|| lives.iter().for_each(|(life, leaf)| assert!(sampler.track(life, Some(leaf)))));
    println!("track             {:8.2} us a life", micros(tracking) / count as f64);
    let first = cost(|| round(&mut sampler, &lives, now));
    let (_, kept) = sampler.size();
    println!(
        "first round       {:8.2} us a life, with a list of all; {kept} descriptors kept",
        micros(first) / count as f64
    );

    let mut quiet = || {
        now += Duration::from_millis(1100);
        round(&mut sampler, &lives, now);
    };
    let same = average(&mut quiet);
    println!("sample            {:8.2} us a life, nothing forked on the machine", same / count as f64);
    let mut forking = 0.0;
    for _ in 0..ROUNDS {
        end(sleep());
        forking += micros(cost(&mut quiet)) / f64::from(ROUNDS);
    }
    println!("                  {:8.2} us a life, something forked", forking / count as f64);
    let full = average(|| {
        now += Duration::from_secs(100);
        sampler.sample(&lives[0].0, now).unwrap();
    });
    println!("list of all       {:8.2} ms, {:.2} us a life", full / 1000.0, full / count as f64);
    let usual = average(|| lives.iter().for_each(|(life, _)| read_usual(life.pid)));
    println!("open stat, status {:8.2} us a life: {:.1} times a sample", usual / count as f64, usual / same);
    for period in [1.0, 5.0] {
        let share = (same / period + full / 60.0) / 1e4;
        println!("every {period} s and a list every minute: {share:.3} % of one CPU");
    }

    for (life, leaf) in &lives {
        let _ = host.signal(life, proctor_model::Signal::Kill);
        while !host.release_leaf(leaf).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    children.iter_mut().for_each(|child| drop(child.wait()));
}

fn round(sampler: &mut Sampler, lives: &[(Incarnation, Leaf)], now: Duration) {
    for (life, _) in lives {
        sampler.sample(life, now).unwrap();
    }
}

fn sleep() -> Child {
    std::process::Command::new("/bin/sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap()
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

async fn run_median(host: &Host, root: &Path, leaf: Option<&Leaf>) -> f64 {
    let mut times = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        host.run(command("true", root, leaf)).await;
        times.push(micros(begun.elapsed()));
        // Apart, as restarts are: the kernel is quicker at what it has just done.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn command(line: &str, root: &Path, leaf: Option<&Leaf>) -> Command {
    Command {
        line: line.to_owned(),
        user: "root".to_owned(),
        directory: root.to_owned(),
        timeout: Duration::from_secs(60),
        output_name: "cost".to_owned(),
        leaf: leaf.cloned(),
        ..Command::default()
    }
}

async fn daemon(host: &Host, root: &Path, leaf: &Leaf) -> i32 {
    let line = "setsid sleep 1000 < /dev/null > /dev/null 2>&1 & echo $!";
    host.run(command(line, root, Some(leaf))).await.output.trim().parse().unwrap()
}

fn life(host: &Host, pid: i32) -> Incarnation {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start_ticks = text.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
    let fd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    let has_own = rustix::fs::fstatfs(&fd).unwrap().f_type == PIDFS_MAGIC;
    let pidfd_inode = has_own.then(|| rustix::fs::fstat(&fd).unwrap().st_ino);
    Incarnation { boot: host.boot_id().clone(), pid, start_ticks, pidfd_inode }
}

fn read_usual(pid: i32) {
    for name in ["stat", "status"] {
        std::hint::black_box(std::fs::read(format!("/proc/{pid}/{name}")).unwrap());
    }
}

fn average(mut work: impl FnMut()) -> f64 {
    micros(cost(|| (0..ROUNDS).for_each(|_| work()))) / f64::from(ROUNDS)
}

fn cost(work: impl FnOnce()) -> Duration {
    let before = used();
    work();
    used() - before
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// CPU time of this program, user and system.
#[allow(unsafe_code, reason = "rustix has no getrusage")]
fn used() -> Duration {
    // SAFETY: rusage is a C struct of integers, for which zeroes are a value; the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |value: libc::timeval| {
        Duration::from_secs(u64::try_from(value.tv_sec).unwrap())
            + Duration::from_micros(u64::try_from(value.tv_usec).unwrap())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
