//! The size of the whole machine, which percentages refer to.
//!
//! Promised: all online CPUs and all memory, whatever part of them the agent itself may use, re-read from time to
//! time.
//! Absent: what a container may use of the machine.

use std::path::Path;
use std::time::Duration;

use crate::{procfs, usage};

/// CPUs and memory come and go while the machine runs, but not often.
const PERIOD: Duration = Duration::from_secs(30);
const ONLINE: &str = "/sys/devices/system/cpu/online";

#[derive(Debug)]
pub(crate) struct Machine {
    read_at: Option<Duration>,
    cpus: u32,
    memory_bytes: u64,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { read_at: None, cpus: 1, memory_bytes: 0 }
    }

    pub(crate) fn refresh(&mut self, now: Duration) {
        if self.read_at.is_some_and(|at| now.saturating_sub(at) < PERIOD) {
            return;
        }
        self.read_at = Some(now);
        // Not by libc alone: some count only what this process may run on.
        let online = procfs::read(Path::new(ONLINE), 4096).ok().and_then(|text| count(&String::from_utf8(text).ok()?));
        self.cpus = online.unwrap_or_else(usage::cpus).max(1);
        self.memory_bytes = procfs::memory_bytes().unwrap_or(self.memory_bytes);
    }

    pub(crate) fn percent_of_memory(&self, bytes: u64) -> f64 {
        usage::percent(bytes as f64, self.memory_bytes as f64)
    }

    pub(crate) fn percent_of_cpus(&self, nanos: u64, elapsed: Duration) -> f64 {
        usage::percent(nanos as f64, elapsed.as_secs_f64() * 1e9 * f64::from(self.cpus))
    }
}

/// How many CPUs a list like `0-3,8` names.
pub(crate) fn count(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_is_counted() {
        for (list, cpus) in [("0", 1), ("0-1\n", 2), ("0-3,8,10-11", 7)] {
            assert_eq!(count(list), Some(cpus), "{list}");
        }
        for list in ["", "x", "3-1", "0-4294967295", "0-"] {
            assert_eq!(count(list), None, "{list}");
        }
    }

    #[test]
    fn one_busy_cpu_of_many_is_its_share_of_the_machine() {
        let machine = Machine { read_at: None, cpus: 64, memory_bytes: 1000 };

        let percent = machine.percent_of_cpus(1_000_000_000, Duration::from_secs(1));

        assert!((percent - 1.5625).abs() < 1e-9, "{percent}");
        assert!((machine.percent_of_memory(10) - 1.0).abs() < 1e-9);
    }
}
