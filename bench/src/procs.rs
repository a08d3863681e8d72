//! Process data from `/proc`: what belongs to a run, and what it uses.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Every program of a run inherits this, so that all of them can be found and ended.
pub(crate) const MARK: &str = "PROCTOR_BENCH_RUN";

pub(crate) fn all() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Processes with this mark in their environment.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    let has = |pid: &i32| {
        let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    all().into_iter().filter(has).collect()
}

pub(crate) fn signal(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// SIGKILL, and the wait if it is our child: some consider a zombie alive.
pub(crate) fn kill(pid: i32) {
    signal(pid);
    reap(pid);
}

/// Reaps an orphan that was killed; the bench is their subreaper. Returns at once for a child of another process.
pub(crate) fn reap(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = waitpid(Some(pid), WaitOptions::empty());
    }
}

/// CPU time in ticks of 10 ms, with that of the children that were waited for.
pub(crate) fn ticks(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum())
}

/// Proportional set size in bytes.
pub(crate) fn pss(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(kilobytes.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// Resident memory that is not of files, in bytes.
pub(crate) fn anonymous(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(kilobytes.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}
