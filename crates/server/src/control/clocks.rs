//! Clocks of hosts that differ from the server's.
//!
//! Promised: an offset of more than [`CLOCK_OFF`] raises the event `clock_off` once, and another one when the clock
//! is right again, however often the agent connects meanwhile; it is checked when an agent connects and with every
//! report. A delayed report looks like a clock that is behind: that counts only if a later one agrees. The delay of
//! queued frames shrinks, a wrong clock does not.
//! Absent: setting clocks; memory across a restart of the server, after which an offset is reported once more.

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

/// A report counts as another one if it was made at least so much later, by the same clock: those of one queue have
/// waited together.
const LATER_SECS: i64 = 10;
/// Two offsets are the same one within this: reports have whole seconds, and the way takes some time.
const SAME_OFFSET_MS: u64 = 2_000;

/// How an offset was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// By the agent's time when it connected.
    AtHello,
    /// By the time of a report, in Unix seconds of the agent's clock. It may have been on its way for a while: at least so
    /// much ahead.
    ByReport { at: i64 },
}

/// Agents whose clock is off, or may be.
#[derive(Debug, Default)]
pub(super) struct Clocks(Mutex<HashMap<AgentId, Doubt>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// A report of this time was late, or its clock is behind by so much.
    Late {
        at: i64,
        ahead_ms: i64,
    },
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
        let doubt = clocks.get(agent).copied();
        match (doubt, off > CLOCK_OFF) {
            (Some(Doubt::Told), true) => Verdict::Nothing,
            (None | Some(Doubt::Late { .. }), true) => {
                let (now_held, verdict) = match measured {
                    Measured::ByReport { at } if ahead_ms < 0 => doubt_of_report(doubt, at, ahead_ms),
                    Measured::ByReport { .. } | Measured::AtHello => (Doubt::Told, Verdict::Off),
                };
                clocks.insert(agent.clone(), now_held);
                verdict
            }
            (Some(Doubt::Told), false) if off <= CLOCK_RIGHT => {
                clocks.remove(agent);
                Verdict::RightAgain
            }
            (Some(Doubt::Late { .. }), false) => {
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

/// Of a report that may have been late, after what is held of the agent.
fn doubt_of_report(before: Option<Doubt>, at: i64, ahead_ms: i64) -> (Doubt, Verdict) {
    let as_late = Doubt::Late { at, ahead_ms };
    match before {
        Some(held @ Doubt::Late { at: first_at, ahead_ms: first }) if first.abs_diff(ahead_ms) <= SAME_OFFSET_MS => {
            if at.saturating_sub(first_at) >= LATER_SECS {
                (Doubt::Told, Verdict::Off)
            } else {
                (held, Verdict::Nothing)
            }
        }
        None | Some(Doubt::Late { .. } | Doubt::Told) => (as_late, Verdict::Nothing),
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
        let ahead_ms = theirs.saturating_sub(clock::unix_millis());
        self.saw_clock(session, ahead_ms, Measured::ByReport { at: reported_at }).await;
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
        use Measured::AtHello;
        let by_report = Measured::ByReport { at: 1_000 };
        let offsets =
            [(31_000, AtHello), (31_000, by_report), (40_000, AtHello), (25_000, by_report), (1_000, by_report)];

        let told = verdicts(&offsets);

        assert_eq!(told, [Verdict::Off, Verdict::Nothing, Verdict::Nothing, Verdict::Nothing, Verdict::RightAgain]);
        assert_eq!(verdicts(&[(-31_000, AtHello)]), [Verdict::Off]);
        assert_eq!(verdicts(&[(30_000, AtHello), (-30_000, AtHello)]), [Verdict::Nothing; 2]);
    }

    /// Reports of these times with their offsets, both in seconds.
    fn of_reports(reports: &[(i64, i64)]) -> Vec<Verdict> {
        let offsets: Vec<_> =
            reports.iter().map(|(at, ahead)| (ahead * 1_000, Measured::ByReport { at: *at })).collect();
        verdicts(&offsets)
    }

    #[test]
    fn a_clock_that_steps_later_is_seen_by_its_reports() {
        assert_eq!(of_reports(&[(1_000, 0), (1_090, 90)]), [Verdict::Nothing, Verdict::Off]);
        let behind = of_reports(&[(1_000, -90), (1_060, -91), (1_120, -90)]);
        assert_eq!(behind, [Verdict::Nothing, Verdict::Off, Verdict::Nothing]);
        let often = of_reports(&[(1_000, -90), (1_004, -90), (1_008, -89), (1_012, -90)]);
        assert_eq!(often, [Verdict::Nothing, Verdict::Nothing, Verdict::Nothing, Verdict::Off]);
        let hello = verdicts(&[(-90_000, Measured::ByReport { at: 1_000 }), (-90_000, Measured::AtHello)]);
        assert_eq!(hello, [Verdict::Nothing, Verdict::Off]);
    }

    #[test]
    fn a_report_that_was_long_on_its_way_is_no_alarm() {
        assert_eq!(of_reports(&[(1_000, -90), (1_060, -2), (1_120, -90)]), [Verdict::Nothing; 3]);
    }

    #[test]
    fn reports_that_have_piled_up_are_no_alarm() {
        // They come at once, each made a minute after the one before.
        assert_eq!(
            of_reports(&[(1_000, -240), (1_060, -180), (1_120, -120), (1_180, -60), (1_240, 0)]),
            [Verdict::Nothing; 5]
        );
        // And some that were made within a few seconds, as late as each other.
        assert_eq!(of_reports(&[(1_000, -90), (1_000, -90), (1_003, -89), (1_009, -88)]), [Verdict::Nothing; 4]);
    }
}
