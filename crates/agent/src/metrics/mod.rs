//! The agent's own metrics, for Prometheus.
//!
//! Promised: every name and label of a counter is in this file, and of what a scrape looks up in `driver/metrics.rs`;
//! labels come from our own tables. Counting never fails and never waits.
//! Absent: who may read it: that is the control socket, or a loopback port (`endpoint`).

mod endpoint;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use proctor_model::{Code, EventKind};
use proctor_runtime::clock;
use proctor_runtime::metrics::{Counter, Exposition, Histogram, Kind, Labelled, as_number};

pub(crate) use endpoint::{Endpoint, serve};

#[derive(Debug)]
pub(crate) struct AgentMetrics {
    /// Unix milliseconds.
    started_at: i64,
    is_connected: AtomicBool,
    /// When the last message from the server arrived, in Unix milliseconds; 0 before that.
    heard_at: AtomicI64,
    /// When the certificate ends, in Unix seconds; 0 before enrolment.
    certificate_ends: AtomicI64,
    sessions: Labelled<Counter, 1>,
    commits: Histogram,
    commit_failures: Counter,
    commands: Labelled<Counter, 1>,
    refused: Counter,
    outcomes: Labelled<Counter, 1>,
    events: Labelled<Counter, 1>,
}

impl Default for AgentMetrics {
    fn default() -> Self {
        Self {
            started_at: clock::unix_millis(),
            is_connected: AtomicBool::new(false),
            heard_at: AtomicI64::new(0),
            certificate_ends: AtomicI64::new(0),
            sessions: Labelled::default(),
            commits: Histogram::default(),
            commit_failures: Counter::default(),
            commands: Labelled::default(),
            refused: Counter::default(),
            outcomes: Labelled::default(),
            events: Labelled::default(),
        }
    }
}

impl AgentMetrics {
    pub(crate) fn session_opened(&self) {
        self.is_connected.store(true, Ordering::Relaxed);
        self.heard();
        self.sessions.of(["opened"]).add(1);
    }

    pub(crate) fn session_closed(&self) {
        self.is_connected.store(false, Ordering::Relaxed);
        self.sessions.of(["closed"]).add(1);
    }

    /// An attempt that led to no session.
    pub(crate) fn session_failed(&self) {
        self.is_connected.store(false, Ordering::Relaxed);
        self.sessions.of(["failed"]).add(1);
    }

    /// A message from the server arrived.
    pub(crate) fn heard(&self) {
        self.heard_at.store(clock::unix_millis(), Ordering::Relaxed);
    }

    pub(crate) fn certificate(&self, ends_at: i64) {
        self.certificate_ends.store(ends_at, Ordering::Relaxed);
    }

    pub(crate) fn committed(&self, took: Duration, is_written: bool) {
        self.commits.observe(took);
        if !is_written {
            self.commit_failures.add(1);
        }
    }

    /// `start`, `stop`, `health`, …
    pub(crate) fn command(&self, name: &str) {
        self.commands.of([name]).add(1);
    }

    /// By the host's policy, or because its pid file is another's.
    pub(crate) fn refused(&self) {
        self.refused.add(1);
    }

    pub(crate) fn outcome(&self, code: Code) {
        self.outcomes.of([code.name()]).add(1);
    }

    pub(crate) fn event(&self, kind: EventKind) {
        self.events.of([kind.as_str()]).add(1);
    }

    /// The counters; the driver adds what it can look up.
    pub(crate) fn exposition(&self) -> Exposition {
        let mut text = Exposition::default();
        text.family("proctor_agent_build_info", Kind::Gauge, "The version that runs; always 1.");
        text.sample("proctor_agent_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        text.program(self.started_at);
        self.of_link(&mut text);
        text.histogram(
            "proctor_agent_ledger_write_seconds",
            "Transactions of the ledger, with their sync.",
            &self.commits,
        );
        let help = "Transactions of the ledger that failed.";
        text.counter("proctor_agent_ledger_failures_total", help, &self.commit_failures);
        text.counters("proctor_agent_commands_total", "Commands that were run.", ["command"], &self.commands);
        let help = "Operations that were refused: policy of the host, pid file of another process, ledger.";
        text.counter("proctor_agent_refused_operations_total", help, &self.refused);
        text.counters("proctor_agent_outcomes_total", "Operations that ended, by code.", ["outcome"], &self.outcomes);
        let help = "Events, such as restart_succeeded and limit_exceeded.";
        text.counters("proctor_agent_events_total", help, ["type"], &self.events);
        text
    }

    fn of_link(&self, text: &mut Exposition) {
        let connected = f64::from(u8::from(self.is_connected.load(Ordering::Relaxed)));
        text.gauge("proctor_agent_connected", "Whether there is a session with the server.", connected);
        let help = "Sessions with the server: opened, closed, and attempts that failed.";
        text.counters("proctor_agent_sessions_total", help, ["change"], &self.sessions);
        let heard = self.heard_at.load(Ordering::Relaxed);
        if heard > 0 {
            let age = clock::unix_millis().saturating_sub(heard).max(0).unsigned_abs();
            let age = Duration::from_millis(age).as_secs_f64();
            text.gauge("proctor_agent_server_heard_seconds", "Since the server was last heard.", age);
        }
        let ends = self.certificate_ends.load(Ordering::Relaxed);
        if ends > 0 {
            let name = "proctor_agent_certificate_expiry_timestamp_seconds";
            text.gauge(name, "When the certificate of the agent ends.", as_number(ends.unsigned_abs()));
        }
    }
}
