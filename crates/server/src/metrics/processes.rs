//! Usage of processes, if enabled (`--metrics-processes`).
//!
//! Promised: separate from the server's metrics, so that those stay cheap; rendered from the last observations of at
//! most [`PROCESSES_MAX`] processes.
//! Absent: history, and how often it is rendered.

use proctor_model::Phase;
use proctor_runtime::metrics::{Exposition, Kind, as_number};
use proctor_store::{ProcessQuery, ProcessRecord};

use crate::control::{Control, ControlError};

/// Each has six series; Prometheus would not like more either.
const PROCESSES_MAX: u64 = 20_000;

pub(crate) async fn process_exposition(control: &Control) -> Result<String, ControlError> {
    let query = ProcessQuery { limit: Some(PROCESSES_MAX), ..ProcessQuery::default() };
    let (all, processes) = control.all_processes(&query).await?;
    Ok(exposition(all, &processes))
}

type Value = fn(&ProcessRecord) -> Option<f64>;

/// Name, meaning, and what it is of one process; None where that was never observed.
const GAUGES: [(&str, &str, Value); 6] = [
    ("proctor_process_running", "Whether the process runs.", |process| {
        process.snapshot.as_ref().map(|seen| f64::from(u8::from(seen.phase == Phase::Running)))
    }),
    ("proctor_process_managed", "Whether the agent keeps it alive.", |process| {
        process.snapshot.as_ref().map(|seen| f64::from(u8::from(seen.managed)))
    }),
    ("proctor_process_cpu_percent", "CPU of its whole tree, in percent of the host.", |process| {
        process.snapshot.as_ref().map(|seen| seen.usage.cpu_percent)
    }),
    ("proctor_process_memory_bytes", "Memory of its whole tree.", |process| {
        process.snapshot.as_ref().map(|seen| as_number(seen.usage.memory_bytes))
    }),
    ("proctor_process_open_fds", "Open descriptors of its whole tree.", |process| {
        process.snapshot.as_ref().map(|seen| as_number(seen.usage.fds))
    }),
    ("proctor_process_restarts", "Starts by supervision since the last operation or stable run.", |process| {
        process.snapshot.as_ref().map(|seen| f64::from(seen.restarts))
    }),
];

fn exposition(all: u64, processes: &[ProcessRecord]) -> String {
    let mut text = Exposition::default();
    let left_out = all.saturating_sub(processes.len() as u64);
    text.gauge("proctor_processes", "Registered processes.", as_number(all));
    text.gauge("proctor_processes_left_out", "Those that are not shown one by one.", as_number(left_out));
    let hosts: Vec<String> = processes.iter().map(|process| process.host.to_string()).collect();
    for (name, help, value) in GAUGES {
        text.family(name, Kind::Gauge, help);
        for (process, host) in processes.iter().zip(&hosts) {
            let Some(value) = value(process) else { continue };
            let (namespace, process) = (process.key.namespace.as_str(), process.key.name.as_str());
            text.sample(name, &[("host", host), ("namespace", namespace), ("process", process)], value);
        }
    }
    text.into_text()
}
