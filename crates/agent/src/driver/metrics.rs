//! What a scrape reads from the driver: queues, processes, sizes.
//!
//! Promised: only memory and the size of one file are read, nothing is measured; individual processes only on
//! request, and at most [`PROCESSES_MAX`].

use std::collections::BTreeMap;

use proctor_model::Phase;
use proctor_runtime::metrics::{Exposition, Kind, as_number};
use proctor_supervise::Process;
use tokio::sync::mpsc;

use super::Driver;
use super::usage::wall_clock;

/// What is shown per process, in Unix seconds; None if unknown.
type Value = fn(&Driver, &Process, u64) -> Option<f64>;

/// Each has five series.
const PROCESSES_MAX: usize = 2000;

impl Driver {
    pub(super) fn metrics_text(&self, with_processes: bool) -> String {
        let mut text = self.telemetry.metrics.exposition();
        self.of_queues(&mut text);
        self.of_phases(&mut text);
        let help = "Size of the ledger's file.";
        text.gauge("proctor_agent_ledger_bytes", help, as_number(self.ledger.bytes()));
        let help = "Memory that the usage of the last hour takes.";
        text.gauge("proctor_agent_usage_ring_bytes", help, as_number(self.usage.history.ring_bytes() as u64));
        if with_processes {
            self.of_processes(&mut text);
        }
        text.into_text()
    }

    fn of_queues(&self, text: &mut Exposition) {
        text.family("proctor_agent_queued", Kind::Gauge, "What waits, by where it waits.");
        let outbox = self.outbox.link().map_or(0, queued);
        let events = self.outbox.events.newest(0).1;
        let queues = [
            ("inbox", queued(self.workers.inbox())),
            ("outbox", outbox),
            ("outcomes", self.outbox.unacknowledged()),
            ("events", events),
            ("commands_of_operations", self.commands.slots.used().0),
            ("commands_of_supervision", self.commands.slots.used().1),
        ];
        for (queue, length) in queues {
            text.sample("proctor_agent_queued", &[("queue", queue)], as_number(length as u64));
        }
        text.gauge("proctor_agent_running_commands", "Commands that run.", as_number(self.commands.len() as u64));
    }

    fn of_phases(&self, text: &mut Exposition) {
        let mut phases: BTreeMap<String, u64> = BTreeMap::new();
        let mut managed: u64 = 0;
        for process in self.processes.all() {
            *phases.entry(process.phase().to_string()).or_default() += 1;
            managed += u64::from(process.managed());
        }
        text.family("proctor_agent_processes", Kind::Gauge, "Registered processes and instances, by phase.");
        for (phase, count) in phases {
            text.sample("proctor_agent_processes", &[("phase", &phase)], as_number(count));
        }
        text.gauge("proctor_agent_managed_processes", "Those that are kept alive.", as_number(managed));
    }

    fn of_processes(&self, text: &mut Exposition) {
        let mut shown: Vec<&Process> = self.processes.all().collect();
        shown.sort_by(|one, other| one.key().cmp(other.key()));
        let left_out = shown.len().saturating_sub(PROCESSES_MAX);
        shown.truncate(PROCESSES_MAX);
        let help = "Processes that are not shown one by one.";
        text.gauge("proctor_agent_processes_left_out", help, as_number(left_out as u64));
        let now = wall_clock();
        let gauges: [(&str, &str, Value); 5] = [
            ("proctor_agent_process_running", "Whether the process runs.", |_, process, _| {
                Some(f64::from(u8::from(process.phase() == Phase::Running)))
            }),
            ("proctor_agent_process_managed", "Whether the agent keeps it alive.", |_, process, _| {
                Some(f64::from(u8::from(process.managed())))
            }),
            ("proctor_agent_process_restarts", "Starts by supervision since the last operation or stable run.", {
                |_, process, _| Some(f64::from(process.restarts()))
            }),
            ("proctor_agent_process_cpu_percent", "CPU of its whole tree, in percent of the host.", {
                |driver, process, now| Some(f64::from(driver.usage.history.newest(process.key(), now)?.cpu.avg))
            }),
            ("proctor_agent_process_memory_percent", "Memory of its whole tree, in percent of the host.", {
                |driver, process, now| Some(f64::from(driver.usage.history.newest(process.key(), now)?.memory.avg))
            }),
        ];
        for (name, help, value) in gauges {
            text.family(name, Kind::Gauge, help);
            for process in &shown {
                let Some(value) = value(self, process, now) else { continue };
                let labels =
                    [("namespace", process.key().namespace.as_str()), ("process", process.key().name.as_str())];
                text.sample(name, &labels, value);
            }
        }
    }
}

fn queued<T>(sender: &mpsc::Sender<T>) -> usize {
    sender.max_capacity() - sender.capacity()
}
