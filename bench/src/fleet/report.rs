//! The figures of all runs as tables.

use std::time::Duration;

use super::crash::{BusyKill, QuietKill};
use super::fan_out::Round;
use super::idle::Idle;
use super::prober::Probes;
use super::stage::{Cpu, Plan};
use super::swarm_report::SwarmReport;
use crate::figures::{Table, millis, quantile, ratio};

/// What is known of one run; a failed run has the figures until then.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) plan: Plan,
    pub(super) idle: Option<Idle>,
    pub(super) rounds: Vec<Round>,
    pub(super) nats: Vec<Duration>,
    pub(super) quiet: Option<QuietKill>,
    pub(super) busy: Option<BusyKill>,
    /// What the agents report, and how many operations were requested.
    pub(super) swarm: Option<(SwarmReport, usize)>,
    pub(super) notes: Vec<String>,
}

impl Figures {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            idle: None,
            rounds: Vec::new(),
            nats: Vec::new(),
            quiet: None,
            busy: None,
            swarm: None,
            notes: Vec::new(),
        }
    }

    fn agents(&self) -> String {
        match self.plan.relays {
            0 => self.plan.agents.to_string(),
            relays => format!("{} through {relays} relays", self.plan.agents),
        }
    }
}

/// Empty ones still say what they are for.
#[derive(Debug)]
pub(super) struct Tables {
    idle: Table,
    fan_out: Table,
    fan_out_cpu: Table,
    kills: Table,
    checks: Table,
}

impl Tables {
    /// Before the first run: they note the load of the machine.
    pub(super) fn new() -> Self {
        Self {
            idle: Table::new(
                "Idle fleet; at most 20 KiB for each agent, 5 % of a core, 0.5 ms for a reconnect, 100 ms for /metrics",
                &[
                    "agents",
                    "connected after",
                    "server memory for each",
                    "relay memory for each",
                    "idle CPU",
                    "CPU of a first join",
                    "CPU of a reconnect",
                    "/metrics, median",
                    "longest",
                ],
            ),
            fan_out: Table::new(
                "Operation on all agents, from the request until all outcomes are stored; p95 at most 2 s, 1.5 × NATS",
                &["", "agents", "rounds", "task durable", "median", "p95", "longest", "median × NATS", "p95 × NATS"],
            ),
            fan_out_cpu: Table::new(
                "CPU time of an operation for each agent, median of the rounds",
                &["agents", "server", "swarms", "relays", "all"],
            ),
            kills: Table::new(
                "Server killed and started again; all back within 120 s, no false offline, API p99 below 1 s",
                &[
                    "",
                    "agents",
                    "API back after",
                    "all agents back after",
                    "offline events",
                    "API p99, cheap",
                    "API p99, list",
                    "failed calls",
                    "outcomes of the operation",
                ],
            ),
            checks: Table::new(
                "What the agents saw",
                &[
                    "agents",
                    "sessions",
                    "resumed",
                    "told to come later",
                    "turned away",
                    "operations asked for",
                    "operations run",
                    "delivered again",
                    "violations",
                ],
            ),
        }
    }

    pub(super) fn add(&mut self, run: &Figures) {
        self.add_idle(run);
        self.add_fan_out(run);
        self.add_kills(run);
        if let Some((seen, asked)) = run.swarm {
            self.checks.row([
                run.agents(),
                seen.sessions.to_string(),
                seen.resumed.to_string(),
                seen.told_busy.to_string(),
                seen.turned_away.to_string(),
                asked.to_string(),
                seen.operations.to_string(),
                seen.repeated_deliveries.to_string(),
                seen.violations.to_string(),
            ]);
        }
        self.checks.notes.extend(run.notes.iter().cloned());
        self.checks.notes.dedup();
    }

    pub(super) fn finish(self) -> Vec<Table> {
        let all = [self.idle, self.fan_out, self.fan_out_cpu, self.kills, self.checks];
        all.into_iter().filter(|table| !table.rows.is_empty() || !table.notes.is_empty()).map(Table::finish).collect()
    }

    fn add_idle(&mut self, run: &Figures) {
        let (Some(idle), agents) = (&run.idle, run.plan.agents) else { return };
        let reconnect = run.quiet.as_ref().map(|kill| kill.cpu.saturating_sub(kill.idle_cpu).div_f64(agents as f64));
        self.idle.row([
            run.agents(),
            seconds(idle.connected.took),
            kibibytes(idle.server_memory, agents),
            if run.plan.relays > 0 { kibibytes(idle.relay_memory, agents) } else { String::new() },
            format!("{:.1} %", 100.0 * idle.cpu.as_secs_f64() / idle.time.as_secs_f64()),
            millis(idle.cpu_per_join(agents)),
            reconnect.map(millis).unwrap_or_default(),
            millis(idle.scrapes.median),
            millis(idle.scrapes.worst),
        ]);
    }

    fn add_fan_out(&mut self, run: &Figures) {
        if run.rounds.is_empty() {
            return;
        }
        let totals: Vec<Duration> = run.rounds.iter().map(|round| round.total).collect();
        let submits: Vec<Duration> = run.rounds.iter().map(|round| round.submitted).collect();
        let against = |part| {
            let is_there = !run.nats.is_empty();
            is_there.then(|| format!("{:.2}", ratio(quantile(&totals, part), quantile(&run.nats, part))))
        };
        let spread = |samples: &[Duration]| [0.5, 0.95, 1.0].map(|part| millis(quantile(samples, part)));
        let [median, p95, longest] = spread(&totals);
        self.fan_out.row([
            "Proctor".to_owned(),
            run.agents(),
            totals.len().to_string(),
            millis(quantile(&submits, 0.5)),
            median,
            p95,
            longest,
            against(0.5).unwrap_or_default(),
            against(0.95).unwrap_or_default(),
        ]);
        if !run.nats.is_empty() {
            let [median, p95, longest] = spread(&run.nats);
            let (rounds, none) = (run.nats.len().to_string(), String::new);
            let name = "NATS, no TLS, nothing stored".to_owned();
            self.fan_out.row([name, run.agents(), rounds, none(), median, p95, longest, none(), none()]);
        }
        let of_each = |part: fn(&Cpu) -> Duration| {
            let samples: Vec<Duration> = run.rounds.iter().map(|round| part(&round.cpu)).collect();
            micros(quantile(&samples, 0.5).div_f64(run.plan.agents as f64))
        };
        self.fan_out_cpu.row([
            run.agents(),
            of_each(|cpu| cpu.server),
            of_each(|cpu| cpu.swarms),
            if run.plan.relays > 0 { of_each(|cpu| cpu.relays) } else { String::new() },
            of_each(|cpu| cpu.server + cpu.swarms + cpu.relays),
        ]);
    }

    fn add_kills(&mut self, run: &Figures) {
        let none = String::new;
        let offline = run.quiet.iter().map(|kill| &kill.offline).chain(run.busy.iter().map(|kill| &kill.offline));
        self.kills.notes.extend(offline.flat_map(|offline| &offline.first).map(|event| format!("Offline {event}.")));
        if let Some(kill) = &run.quiet {
            let (api, all) = (seconds(kill.api_back), seconds(kill.all_back));
            let offline = kill.offline.count.to_string();
            self.kills.row(["idle".to_owned(), run.agents(), api, all, offline, none(), none(), none(), none()]);
        }
        let Some(kill) = &run.busy else { return };
        let p99 = |probes: &Probes| probes.p99().map(millis).unwrap_or_default();
        let [cheap, list] = &kill.probes;
        let calls = |probes: &Probes| probes.answered.len() + probes.failed;
        self.kills.row([
            "operation under way".to_owned(),
            run.agents(),
            seconds(kill.api_back),
            seconds(kill.all_back),
            kill.offline.count.to_string(),
            p99(cheap),
            p99(list),
            format!("{} of {}", cheap.failed + list.failed, calls(cheap) + calls(list)),
            format!(
                "{} open at the kill; {} succeeded, {} failed",
                kill.before.pending, kill.after.succeeded, kill.after.failed
            ),
        ]);
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn micros(time: Duration) -> String {
    format!("{:.0} µs", time.as_secs_f64() * 1e6)
}

fn kibibytes(bytes: u64, agents: usize) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0 / agents as f64)
}

#[cfg(test)]
mod tests {
    use super::super::crash::OfflineEvents;
    use super::super::fan_out::Progress;
    use super::super::stage::{Connected, Scrapes};
    use super::*;

    const PLAN: Plan = Plan { agents: 1000, relays: 0, connect_rate: 200 };

    fn measured() -> Figures {
        let second = Duration::from_secs(1);
        let idle = Idle {
            connected: Connected { took: second * 5, agent_time: Duration::ZERO },
            server_memory: 20 * 1024 * 1000,
            relay_memory: 0,
            join_cpu: second * 2,
            cpu: second,
            time: second * 50,
            scrapes: Scrapes { median: second / 50, worst: second / 20 },
        };
        let quiet = QuietKill {
            api_back: second,
            all_back: second * 9,
            cpu: second,
            idle_cpu: second / 2,
            offline: OfflineEvents::default(),
        };
        let probes = Probes { answered: vec![second / 100; 3], failed: 1 };
        let progress = |pending, succeeded| Progress { pending, succeeded, failed: 0 };
        let busy = BusyKill {
            api_back: second,
            all_back: second * 12,
            offline: OfflineEvents { count: 2, first: vec!["7 ms after the kill: 0:10.64.0.1 gone".to_owned()] },
            before: progress(700, 300),
            after: progress(0, 1000),
            probes: [probes.clone(), probes],
        };
        Figures {
            idle: Some(idle),
            rounds: vec![Round {
                submitted: second / 10,
                total: second * 3,
                cpu: Cpu { server: second / 10, swarms: second / 20, relays: Duration::ZERO },
            }],
            nats: vec![second * 2],
            quiet: Some(quiet),
            busy: Some(busy),
            swarm: Some((SwarmReport { operations: 3000, ..SwarmReport::default() }, 3000)),
            ..Figures::new(PLAN)
        }
    }

    #[test]
    fn every_figure_has_its_place() {
        let mut tables = Tables::new();
        tables.add(&measured());

        let text: String = tables.finish().iter().map(Table::markdown).collect();

        for row in [
            "| 1000 | 5.0 s | 20.0 KiB |  | 2.0 % | 2.00 ms | 0.50 ms | 20.00 ms | 50.00 ms |",
            "| Proctor | 1000 | 1 | 100 ms | 3000 ms | 3000 ms | 3000 ms | 1.50 | 1.50 |",
            "| NATS, no TLS, nothing stored | 1000 | 1 |  | 2000 ms |",
            "| 1000 | 100 µs | 50 µs |  | 150 µs |",
            "| idle | 1000 | 1.0 s | 9.0 s | 0 |",
            "| operation under way | 1000 | 1.0 s | 12.0 s | 2 | 10.00 ms | 10.00 ms | 2 of 8 | 700 open at the kill; 1000 succeeded, 0 failed |",
            "| 1000 | 0 | 0 | 0 | 0 | 3000 | 3000 | 0 | 0 |",
            "Offline 7 ms after the kill: 0:10.64.0.1 gone.",
        ] {
            assert!(text.contains(row), "{row} is not in {text}");
        }
    }

    #[test]
    fn a_run_that_failed_early_has_no_rows_but_says_why() {
        let mut tables = Tables::new();
        tables.add(&Figures { notes: vec!["1000 agents: no agent came.".to_owned()], ..Figures::new(PLAN) });

        let tables = tables.finish();

        assert_eq!(tables.len(), 1);
        assert!(tables[0].markdown().contains("no agent came"));
    }
}
