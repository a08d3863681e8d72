//! The server's own metrics, for Prometheus.
//!
//! Promised: every name and label is in this file; a scrape reads memory, the sizes of two files and `/proc/self`,
//! and no table of the store, so its cost does not grow with tasks and events, and with hosts only by one look at
//! each session. Labels come from our own tables: no caller chooses one.
//! Absent: who may read it (`api::metrics`).

mod processes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proctor_model::{Code, EventKind};
use proctor_runtime::clock;
use proctor_runtime::metrics::{Counter, Exposition, Histogram, Kind, Labelled, as_number};
use proctor_store::{OperationStats, StoreStats};

use crate::control::Control;
pub(crate) use processes::process_exposition;

/// What happens; a scrape asks the rest where it is.
#[derive(Debug)]
pub struct Metrics {
    started_at: i64,
    /// By method, route, HTTP status, and what the envelope says.
    requests: Labelled<Counter, 4>,
    request_seconds: Labelled<Histogram, 2>,
    tasks: Labelled<Counter, 1>,
    targets: Labelled<Counter, 1>,
    outcomes: Labelled<Counter, 1>,
    sessions: Labelled<Counter, 1>,
    admissions: Labelled<Counter, 1>,
    handshakes: Labelled<Counter, 1>,
    /// By what was compared, and the result.
    resyncs: Labelled<Counter, 2>,
    link: Arc<LinkGauges>,
    enrolments: Labelled<Counter, 1>,
    /// Counted by the authority itself.
    certificates: OnceLock<Arc<AtomicU64>>,
    events: Labelled<Counter, 1>,
    webhooks: Labelled<Counter, 1>,
    webhook_events: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            started_at: clock::unix_millis(),
            requests: Labelled::default(),
            request_seconds: Labelled::default(),
            tasks: Labelled::default(),
            targets: Labelled::default(),
            outcomes: Labelled::default(),
            sessions: Labelled::default(),
            admissions: Labelled::default(),
            handshakes: Labelled::default(),
            resyncs: Labelled::default(),
            link: Arc::default(),
            enrolments: Labelled::default(),
            certificates: OnceLock::new(),
            events: Labelled::default(),
            webhooks: Labelled::default(),
            webhook_events: Counter::default(),
        }
    }
}

/// Peers of the link before their handshake, kept up to date by the gateway.
#[derive(Debug, Default)]
pub(crate) struct LinkGauges {
    waiting: AtomicU64,
    greeting_ns: AtomicU64,
}

impl LinkGauges {
    /// So many wait for their turn, and a greeting costs so much.
    pub(crate) fn set(&self, waiting: usize, greeting: Duration) {
        self.waiting.store(waiting as u64, Ordering::Relaxed);
        self.greeting_ns.store(u64::try_from(greeting.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// What a scrape finds at the border.
#[derive(Clone, Debug, Default)]
pub(crate) struct Border {
    pub(crate) connections: usize,
    pub(crate) calls: u64,
    pub(crate) https_expires_at: Option<i64>,
}

impl Metrics {
    pub(crate) fn request(&self, method: &str, route: &str, status: u16, result: &str, took: Duration) {
        let status = status.to_string();
        self.requests.of([method, route, &status, result]).add(1);
        self.request_seconds.of([method, route]).observe(took);
    }

    /// A task was created, with so many targets.
    pub(crate) fn task(&self, family: &str, targets: usize) {
        self.tasks.of([family]).add(1);
        self.targets.of([family]).add(targets as u64);
    }

    /// Targets that ended; a large task has many at once.
    pub(crate) fn outcomes(&self, codes: impl IntoIterator<Item = Code>) {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for code in codes {
            *counts.entry(code.name()).or_default() += 1;
        }
        for (name, count) in counts {
            self.outcomes.of([name]).add(count);
        }
    }

    /// `opened`, `refused`, `failed`, `closed`, or `unsettled`: an agent that verifies left before it had recorded the
    /// session, as one does that does not believe the welcome.
    pub(crate) fn session(&self, what: &str) {
        self.sessions.of([what]).add(1);
    }

    /// What became of a connection before its handshake: `admitted`, `full`, `evicted`, `late` or `left`; and after it,
    /// `busy`.
    pub(crate) fn admission(&self, result: &str) {
        self.admissions.of([result]).add(1);
    }

    /// `full`, `resumed` or `failed`.
    pub(crate) fn handshake(&self, kind: &str) {
        self.handshakes.of([kind]).add(1);
    }

    /// Whether an agent that opened a session had the same `assignments` or `observations` as the store.
    pub(crate) fn resync(&self, what: &str, is_equal: bool) {
        self.resyncs.of([what, if is_equal { "equal" } else { "different" }]).add(1);
    }

    pub(crate) fn link_gauges(&self) -> Arc<LinkGauges> {
        self.link.clone()
    }

    /// `enrolled`, `refused` or `failed`.
    pub(crate) fn enrolment(&self, result: &str) {
        self.enrolments.of([result]).add(1);
    }

    /// Where the authority of the link counts what it signs.
    pub(crate) fn count_certificates(&self, signed: Arc<AtomicU64>) {
        let _ = self.certificates.set(signed); // a server has one gateway
    }

    pub(crate) fn event(&self, kind: EventKind) {
        self.events.of([kind.as_str()]).add(1);
    }

    /// One request of a webhook.
    pub(crate) fn webhook(&self, is_delivered: bool, events: usize) {
        self.webhooks.of([if is_delivered { "delivered" } else { "failed" }]).add(1);
        if is_delivered {
            self.webhook_events.add(events as u64);
        }
    }

    pub(crate) fn exposition(&self, control: &Control, border: &Border) -> String {
        let mut text = Exposition::default();
        self.of_program(&mut text);
        self.of_calls(&mut text, border);
        self.of_work(&mut text, control);
        of_store(&mut text, &control.store_stats());
        of_certificates(&mut text, control, border);
        text.into_text()
    }

    fn of_program(&self, text: &mut Exposition) {
        text.family("proctor_build_info", Kind::Gauge, "The version that runs; always 1.");
        text.sample("proctor_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        text.program(self.started_at);
    }

    fn of_calls(&self, text: &mut Exposition, border: &Border) {
        let labels = ["method", "route", "status", "result"];
        text.counters("proctor_http_requests_total", "HTTP requests that were answered.", labels, &self.requests);
        let help = "From the head of a request to the beginning of its answer; long polls include their wait.";
        text.histograms("proctor_http_request_duration_seconds", help, ["method", "route"], &self.request_seconds);
        text.gauge("proctor_http_connections", "Open HTTP connections.", as_number(border.connections as u64));
        text.gauge("proctor_http_calls", "Calls of known callers that are under way.", border.calls as f64);
    }

    fn of_work(&self, text: &mut Exposition, control: &Control) {
        let queues = control.queues();
        text.counters("proctor_tasks_total", "Tasks that were created.", ["family"], &self.tasks);
        text.counters("proctor_targets_total", "Targets of these tasks.", ["family"], &self.targets);
        text.counters("proctor_target_outcomes_total", "Targets that ended, by code.", ["outcome"], &self.outcomes);
        text.gauge("proctor_open_targets", "Targets without an outcome.", as_number(queues.open_targets));
        let help = "Outcomes of agents that wait for the store.";
        text.gauge("proctor_outcomes_queued", help, as_number(queues.outcomes));
        text.gauge("proctor_sessions", "Agents that are connected.", as_number(queues.sessions));
        text.gauge("proctor_relays", "Relays that are connected.", as_number(queues.relays));
        let help = "Relays that have enrolled, were not revoked and are not connected.";
        text.gauge("proctor_relays_away", help, as_number(queues.relays_away));
        let help =
            "Hosts, but cordoned ones, that cannot be reached because no relay of their cloud area is connected.";
        text.gauge("proctor_hosts_unreachable", help, as_number(queues.hosts_unreachable));
        let help = "Hosts whose agent is silent for longer than a heartbeat, or whose connection broke a moment ago.";
        text.gauge("proctor_hosts_suspect", help, as_number(queues.hosts_suspect));
        let help = "Connected hosts whose clock differs from the server's by more than 30 s.";
        text.gauge("proctor_hosts_clock_off", help, as_number(queues.clocks_off));
        text.gauge("proctor_hosts_cordoned", "Hosts in maintenance.", as_number(queues.hosts_cordoned));
        let help = "Hosts in maintenance whose agents are not connected.";
        text.gauge("proctor_hosts_cordoned_away", help, as_number(queues.hosts_cordoned_away));
        text.counters(
            "proctor_session_changes_total",
            "Sessions of agents, by what happened.",
            ["change"],
            &self.sessions,
        );
        self.of_link(text);
        text.counters("proctor_enrolments_total", "Hosts that tried to enrol.", ["result"], &self.enrolments);
        let name = "proctor_certificates_signed_total";
        let signed = self.certificates.get().map_or(0, |signed| signed.load(Ordering::Relaxed));
        text.family(name, Kind::Counter, "Certificates that the authority has signed for agents, relays and itself.");
        text.sample(name, &[], as_number(signed));
        text.counters("proctor_events_total", "Events of hosts that were stored.", ["type"], &self.events);
        text.counters("proctor_webhook_requests_total", "Requests to webhooks.", ["result"], &self.webhooks);
        text.counter("proctor_webhook_events_total", "Events that webhooks have taken.", &self.webhook_events);
    }

    fn of_link(&self, text: &mut Exposition) {
        let LinkGauges { waiting, greeting_ns } = &*self.link;
        let help = "Connections of agents that wait for their turn at the TLS handshake.";
        text.gauge("proctor_link_waiting", help, as_number(waiting.load(Ordering::Relaxed)));
        let help = "Processor time of one handshake and greeting, as measured lately.";
        let greeting = Duration::from_nanos(greeting_ns.load(Ordering::Relaxed));
        text.gauge("proctor_link_greeting_seconds", help, greeting.as_secs_f64());
        let help = "Connections of agents, by what became of them before a session.";
        text.counters("proctor_link_admissions_total", help, ["result"], &self.admissions);
        let help = "TLS handshakes of agents.";
        text.counters("proctor_link_handshakes_total", help, ["kind"], &self.handshakes);
        let help = "Sessions whose agent said a hash of what it has; nothing is sent of what is equal.";
        text.counters("proctor_link_resyncs_total", help, ["what", "result"], &self.resyncs);
    }
}

fn of_store(text: &mut Exposition, stats: &StoreStats) {
    let name = "proctor_store_operation_duration_seconds";
    text.family(name, Kind::Histogram, "From the call to the answer, waiting included; writes are synced by then.");
    for (kind, latency) in [("read", &stats.reads), ("write", &stats.writes)] {
        text.buckets(name, &[("kind", kind)], &latency.buckets, latency.nanoseconds);
    }
    let each = |text: &mut Exposition, name: &str, help: &str, value: fn(&OperationStats) -> f64| {
        text.family(name, Kind::Counter, help);
        for operation in &stats.operations {
            text.sample(name, &[("operation", operation.what)], value(operation));
        }
    };
    each(text, "proctor_store_operations_total", "Calls of the store.", |one| as_number(one.count));
    each(text, "proctor_store_operation_seconds_total", "Time of these calls.", |one| {
        Duration::from_nanos(one.nanoseconds).as_secs_f64()
    });
    each(text, "proctor_store_failures_total", "Calls of the store that failed.", |one| as_number(one.failures));
    text.gauge("proctor_store_writes_queued", "Writes that wait for the store.", as_number(stats.writes_queued));
    text.family("proctor_store_bytes", Kind::Gauge, "Sizes of the store's files.");
    text.sample("proctor_store_bytes", &[("file", "store")], as_number(stats.file_bytes));
    text.sample("proctor_store_bytes", &[("file", "log")], as_number(stats.log_bytes));
    if let Some(free) = stats.free_bytes {
        text.gauge("proctor_store_free_bytes", "What the file system of the store has left.", as_number(free));
    }
}

/// As times, which Prometheus compares with its own: `(x - time()) / 86400` are the days that are left.
fn of_certificates(text: &mut Exposition, control: &Control, border: &Border) {
    let name = "proctor_certificate_expiry_timestamp_seconds";
    text.family(name, Kind::Gauge, "When a certificate ends; `agents` is the first of those that are connected.");
    let ends = [
        ("link", control.link_expires_at()),
        ("signing", control.signing_expires_at()),
        ("https", border.https_expires_at),
        ("agents", control.first_agent_expiry()),
    ];
    for (certificate, end) in ends {
        if let Some(end) = end {
            text.sample(name, &[("certificate", certificate)], as_number(end.unsigned_abs()));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_store_measures_in_the_same_buckets() {
        assert_eq!(proctor_store::LATENCY_BUCKETS, proctor_runtime::metrics::LATENCY_BUCKETS);
    }
}
