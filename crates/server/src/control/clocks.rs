//! Clocks of hosts that differ from the server's.
//!
//! Promised: an offset of more than [`CLOCK_OFF`] raises the event `clock_off` once, and another one when the clock is right
//! again, however often the agent connects meanwhile; it is looked at when an agent connects and with every report. A
//! report that was long on its way looks like a clock that is behind: that counts only where the next one says so, too.
//! Absent: setting clocks; memory across a restart of the server, after which an offset is told once more.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{AgentId, EventKind, Message, messages};
use proctor_runtime::clock;

use super::{Control, Session};

/// Certificates, deadlines and what people read in logs tolerate less.
const CLOCK_OFF: Duration = Duration::from_secs(30);
/// Right again, with some distance: an offset at the bound must not come and go.
const CLOCK_RIGHT: Duration = Duration::from_secs(20);

/// How an offset was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// By the agent's time when it connected.
    AtHello,
    /// By the time of a report, which may have been on its way for a while: at least so much ahead.
    ByReport,
}

/// Agents whose clock is off, or may be.
#[derive(Debug, Default)]
pub(super) struct Clocks(Mutex<HashMap<AgentId, Doubt>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// One report was late.
    Late,
    Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Off,
    RightAgain,
}

impl Clocks {
    fn judge(&self, agent: &AgentId, ahead_ms: i64, measured: Measured) -> Verdict {
        let mut clocks = self.0.lock();
        let off = Duration::from_millis(ahead_ms.unsigned_abs());
        let may_be_late = measured == Measured::ByReport && ahead_ms < 0;
        match (clocks.get(agent), off > CLOCK_OFF) {
            (Some(Doubt::Told), true) => Verdict::Nothing,
            (None, true) if may_be_late => {
                clocks.insert(agent.clone(), Doubt::Late);
                Verdict::Nothing
            }
            (None | Some(Doubt::Late), true) => {
                clocks.insert(agent.clone(), Doubt::Told);
                Verdict::Off
            }
            (Some(Doubt::Told), false) if off <= CLOCK_RIGHT => {
                clocks.remove(agent);
                Verdict::RightAgain
            }
            (Some(Doubt::Late), false) => {
                clocks.remove(agent);
                Verdict::Nothing
            }
            (None | Some(Doubt::Told), false) => Verdict::Nothing,
        }
    }

    fn told(&self) -> Vec<AgentId> {
        let clocks = self.0.lock();
        clocks.iter().filter(|(_, doubt)| **doubt == Doubt::Told).map(|(agent, _)| agent.clone()).collect()
    }

    pub(super) fn forget(&self, agent: &AgentId) {
        self.0.lock().remove(agent);
    }
}

impl Control {
    /// The newest report of the agent is of this time by its own clock, in Unix seconds.
    pub(crate) async fn saw_report(&self, session: &Session, reported_at: i64) {
        if reported_at <= 0 {
            return;
        }
        // A second has no more.
        let theirs = reported_at.saturating_mul(1000).saturating_add(500);
        self.saw_clock(session, theirs.saturating_sub(clock::unix_millis()), Measured::ByReport).await;
    }

    /// The agent's clock was ahead of ours by so much.
    pub(crate) async fn saw_clock(&self, session: &Session, ahead_ms: i64, measured: Measured) {
        let agent = session.agent();
        let verdict = self.inner.clocks.judge(agent, ahead_ms, measured);
        if verdict != Verdict::Nothing {
            session.set_clock_ahead(ahead_ms);
        }
        let secs = ahead_ms.unsigned_abs() / 1000;
        match verdict {
            Verdict::Nothing => {}
            Verdict::Off if ahead_ms > 0 => self.tell_clock(agent, messages::clock_ahead(secs), ahead_ms, "off").await,
            Verdict::Off => self.tell_clock(agent, messages::clock_behind(secs), ahead_ms, "off").await,
            Verdict::RightAgain => self.tell_clock(agent, messages::clock_right(), ahead_ms, "right").await,
        }
    }

    async fn tell_clock(&self, agent: &AgentId, content: Message, ahead_ms: i64, state: &str) {
        let details = [("ahead_ms", ahead_ms.to_string()), ("state", state.to_owned())];
        let details: BTreeMap<_, _> = details.map(|(name, value)| (name.to_owned(), value)).into();
        self.tell_of_agent(agent, EventKind::ClockOff, content, details).await;
    }

    /// Connected agents whose clock is off.
    pub(super) fn clocks_off(&self) -> usize {
        self.inner.clocks.told().iter().filter(|agent| self.is_connected(agent)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(offsets: &[(i64, Measured)]) -> Vec<Verdict> {
        let (clocks, agent) = (Clocks::default(), "a".parse().unwrap());
        offsets.iter().map(|(ahead_ms, measured)| clocks.judge(&agent, *ahead_ms, *measured)).collect()
    }

    #[test]
    fn an_offset_is_told_once_until_the_clock_is_right_again() {
        use Measured::{AtHello, ByReport};
        let offsets = [(31_000, AtHello), (31_000, ByReport), (40_000, AtHello), (25_000, ByReport), (1_000, ByReport)];

        let told = verdicts(&offsets);

        assert_eq!(told, [Verdict::Off, Verdict::Nothing, Verdict::Nothing, Verdict::Nothing, Verdict::RightAgain]);
        assert_eq!(verdicts(&[(-31_000, AtHello)]), [Verdict::Off]);
        assert_eq!(verdicts(&[(30_000, AtHello), (-30_000, AtHello)]), [Verdict::Nothing; 2]);
    }

    #[test]
    fn a_clock_that_steps_later_is_seen_by_its_reports() {
        let behind = (-90_000, Measured::ByReport);

        assert_eq!(verdicts(&[(0, Measured::AtHello), (90_000, Measured::ByReport)]), [Verdict::Nothing, Verdict::Off]);
        assert_eq!(verdicts(&[behind, behind, behind]), [Verdict::Nothing, Verdict::Off, Verdict::Nothing]);
    }

    #[test]
    fn a_report_that_was_long_on_its_way_is_no_alarm() {
        let told =
            verdicts(&[(-90_000, Measured::ByReport), (-2_000, Measured::ByReport), (-90_000, Measured::ByReport)]);

        assert_eq!(told, [Verdict::Nothing; 3]);
    }
}
