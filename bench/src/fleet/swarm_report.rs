//! What `proctor swarm -o json` prints at its end.

use anyhow::{Context, Result};
use serde_json::Value;

/// Of all swarm processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SwarmReport {
    pub(super) sessions: u64,
    /// Handshakes that used a ticket of an earlier session.
    pub(super) resumed: u64,
    pub(super) told_busy: u64,
    pub(super) turned_away: u64,
    /// Operations that ran; one that is delivered again does not run again.
    pub(super) operations: u64,
    pub(super) repeated_deliveries: u64,
    pub(super) violations: u64,
}

impl SwarmReport {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let report: Value = serde_json::from_str(text).with_context(|| format!("no report of a swarm: {text:?}"))?;
        let counter =
            |name: &str| report["counters"][name].as_u64().with_context(|| format!("the swarm reports no {name}"));
        let violations = report["violations"].as_object().context("the swarm reports no violations")?;
        Ok(Self {
            sessions: counter("sessions")?,
            resumed: counter("resumed")?,
            told_busy: counter("told_busy")?,
            turned_away: counter("turned_away")?,
            operations: counter("operations")?,
            repeated_deliveries: counter("repeated_deliveries")?,
            violations: violations.values().filter_map(Value::as_u64).sum(),
        })
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.resumed += other.resumed;
        self.told_busy += other.told_busy;
        self.turned_away += other.turned_away;
        self.operations += other.operations;
        self.repeated_deliveries += other.repeated_deliveries;
        self.violations += other.violations;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"latencies": {}, "violations": {"unsigned": 1, "epoch_went_back": 2}, "counters": {
        "enrolled": 3, "connected": 3, "sessions": 6, "resumed": 3, "connect_failures": 0, "told_busy": 1,
        "turned_away": 0, "operations": 9, "repeated_deliveries": 2, "acknowledged": 9}}"#;

    #[test]
    fn reports_are_summed() {
        let one = SwarmReport::parse(REPORT).unwrap();
        let mut sum = one;
        sum.add(&one);

        assert_eq!((one.sessions, one.operations, one.violations), (6, 9, 3));
        assert_eq!((sum.sessions, sum.operations, sum.violations), (12, 18, 6));
    }

    #[test]
    fn a_report_without_its_checks_is_refused() {
        assert!(SwarmReport::parse(&REPORT.replace("violations", "other")).is_err());
        assert!(SwarmReport::parse(&REPORT.replace("\"operations\"", "\"other\"")).is_err());
        assert!(SwarmReport::parse("").is_err());
    }
}
