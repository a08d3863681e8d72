//! F. Limits and pools.

/// So many percent of the machine's memory.
pub(super) fn memory_bytes(percent: f64) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("MemTotal:")).unwrap();
    let total: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (total * 1024.0 * percent / 100.0) as u64
}
