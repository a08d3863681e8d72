//! Rate limits for log lines that others cause.
//!
//! Promised: a [`LogLimit`] allows at most one line per [`PERIOD`], an [`AgentLogLimit`] at most [`AGENT_LINES_MAX`]
//! per agent and [`AGENT_PERIOD`], with the number of suppressed ones.
//! Absent: what the lines say.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::AgentId;

const PERIOD: Duration = Duration::from_secs(1);
/// Enough for an agent that is upgraded, and its host restarted.
const AGENT_LINES_MAX: u32 = 6;
const AGENT_PERIOD: Duration = Duration::from_secs(60);
/// Remembered agents; expired ones are forgotten first.
const AGENTS_MAX: usize = 50_000;

#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<Unlogged>);

#[derive(Debug, Default)]
struct Unlogged {
    count: u64,
    logged_at: Option<Instant>,
}

impl LogLimit {
    /// How many lines were suppressed since the last one; None if this one is suppressed too.
    pub(crate) fn turn(&self, now: Instant) -> Option<u64> {
        let mut unlogged = self.0.lock();
        if unlogged.logged_at.is_some_and(|at| now.saturating_duration_since(at) < PERIOD) {
            unlogged.count += 1;
            return None;
        }
        unlogged.logged_at = Some(now);
        Some(std::mem::take(&mut unlogged.count))
    }
}

/// For lines that one agent among many can cause without end, such as coming and going.
#[derive(Debug, Default)]
pub(crate) struct AgentLogLimit(Mutex<HashMap<AgentId, Lines>>);

#[derive(Debug)]
struct Lines {
    since: Instant,
    logged: u32,
    unlogged: u64,
}

impl AgentLogLimit {
    /// As [`LogLimit::turn`], of this agent.
    pub(crate) fn turn(&self, agent: &AgentId, now: Instant) -> Option<u64> {
        let is_over = |lines: &Lines| now.saturating_duration_since(lines.since) >= AGENT_PERIOD;
        let mut agents = self.0.lock();
        if !agents.contains_key(agent) && agents.len() >= AGENTS_MAX {
            agents.retain(|_, lines| !is_over(lines));
            if agents.len() >= AGENTS_MAX {
                return Some(0); // so many at once are no single agent that flaps
            }
        }
        let new = || Lines { since: now, logged: 0, unlogged: 0 };
        let lines = agents.entry(agent.clone()).or_insert_with(new);
        if is_over(lines) {
            (lines.since, lines.logged) = (now, 0);
        }
        if lines.logged >= AGENT_LINES_MAX {
            lines.unlogged += 1;
            return None;
        }
        lines.logged += 1;
        Some(std::mem::take(&mut lines.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_tells_how_many_were_left_out() {
        let (limit, now) = (LogLimit::default(), Instant::now());

        let turns = [0, 1, 999, 1000, 1001, 2000].map(|millis| limit.turn(now + Duration::from_millis(millis)));

        assert_eq!(turns, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn an_agent_that_flaps_is_quiet_for_a_while_and_others_are_not() {
        let (limit, now) = (AgentLogLimit::default(), Instant::now());
        let (flapping, other) = ("a".parse().unwrap(), "b".parse().unwrap());

        let logged = (0..100).filter(|_| limit.turn(&flapping, now).is_some()).count();

        assert_eq!(logged, AGENT_LINES_MAX as usize);
        assert_eq!(limit.turn(&other, now), Some(0));
        assert_eq!(limit.turn(&flapping, now + AGENT_PERIOD), Some(100 - u64::from(AGENT_LINES_MAX)));
        assert_eq!(limit.turn(&flapping, now + AGENT_PERIOD), Some(0));
    }

    #[test]
    fn agents_that_were_quiet_are_forgotten() {
        let (limit, now) = (AgentLogLimit::default(), Instant::now());
        for number in 0..AGENTS_MAX {
            limit.turn(&format!("agent-{number}").parse().unwrap(), now);
        }

        assert_eq!(limit.turn(&"one-more".parse().unwrap(), now), Some(0));
        assert_eq!(limit.0.lock().len(), AGENTS_MAX);
        limit.turn(&"one-more".parse().unwrap(), now + AGENT_PERIOD);
        assert_eq!(limit.0.lock().len(), 1);
    }
}
