//! Which processes on which hosts, and how an operation is rolled out over them.

use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use proctor_client::{CountOrPercent, Hosts, OperationRequest, Rolling, Text};
use proctor_model::{Namespace, OperationKind, ProcessKey};

use super::{parse_duration, parse_process};

/// A process, and where.
#[derive(Debug, Args)]
pub(crate) struct ChosenProcess {
    /// Namespace and name, such as demo/heartbeat
    #[arg(value_name = "NS/NAME", value_parser = parse_process)]
    pub(crate) process: ProcessKey,
    #[command(flatten)]
    pub(crate) hosts: ChosenHosts,
}

/// Which hosts; one of the three must be given.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ChosenHosts {
    /// IP address, CLOUD:IP or agent id; repeatable, or a comma-separated list
    #[arg(long = "host", env = "PROCTOR_HOST", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Every host: where a process is registered; for pools, all
    #[arg(long, env = "PROCTOR_ALL", value_parser = BoolishValueParser::new())]
    all: bool,
    /// Every host of this business
    #[arg(long, env = "PROCTOR_BUSINESS", value_name = "ID")]
    business: Option<u64>,
}

impl ChosenHosts {
    /// All hosts only if that was requested: `PROCTOR_ALL=false` without a host selects none.
    pub(crate) fn get(&self) -> Hosts {
        match self.business {
            Some(business) => Hosts::Business(business),
            None if self.all => Hosts::All,
            None => Hosts::These(self.hosts.clone()),
        }
    }
}

/// Which processes; one of the two must be given.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ChosenProcesses {
    /// Namespace and name, such as demo/heartbeat
    #[arg(value_name = "NS/NAME", value_parser = parse_process)]
    process: Option<ProcessKey>,
    /// Processes with these labels, as of now: env=prod,tier!=db,!x,y
    #[arg(short = 'l', long, env = "PROCTOR_SELECTOR", value_name = "LABELS")]
    selector: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OperateArgs {
    #[command(flatten)]
    processes: ChosenProcesses,
    /// With --selector: only this namespace
    #[arg(short, long, env = "PROCTOR_NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<Namespace>,
    #[command(flatten)]
    hosts: ChosenHosts,
    /// Dry run: show what would be done, and change nothing
    #[arg(long, env = "PROCTOR_PLAN", value_parser = BoolishValueParser::new())]
    pub(crate) plan: bool,
    /// Print the task id and do not wait for the outcome
    #[arg(long, env = "PROCTOR_NO_WAIT", value_parser = BoolishValueParser::new())]
    pub(crate) no_wait: bool,
    /// Idempotency key: a repeated call with the same key is not executed again
    #[arg(long, env = "PROCTOR_IDEMPOTENCY_KEY", value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Wait so long for hosts that are offline, such as 10m (1h at most), instead of failing at once
    #[arg(long, env = "PROCTOR_WAIT_FOR_OFFLINE", value_name = "TIME", value_parser = parse_duration)]
    wait_for_offline: Option<Duration>,
    #[command(flatten)]
    rolling: RollingArgs,
}

/// In batches instead of all at once; any of these flags turns it on.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Rolling")]
struct RollingArgs {
    /// Maximum number of targets at a time, or a share such as 10%
    #[arg(long, env = "PROCTOR_MAX_PARALLEL", value_name = "N|P%", value_parser = parse_share)]
    max_parallel: Option<CountOrPercent>,
    /// Stop the rollout after more failures than this [default: 0]
    #[arg(long, env = "PROCTOR_MAX_FAILURES", value_name = "N")]
    max_failures: Option<u32>,
    /// Run this many targets first, then pause until `proctor task resume`
    #[arg(long, env = "PROCTOR_CANARY", value_name = "N")]
    canary: Option<u32>,
    /// Count a target as done only once its process is healthy
    #[arg(long, env = "PROCTOR_WAIT_HEALTHY", value_parser = BoolishValueParser::new())]
    wait_healthy: bool,
}

impl RollingArgs {
    /// If only the others are given, all targets may run at a time.
    fn get(&self) -> Option<Rolling> {
        let asked =
            self.max_parallel.is_some() || self.max_failures.is_some() || self.canary.is_some() || self.wait_healthy;
        asked.then(|| Rolling {
            max_parallel: self.max_parallel.unwrap_or(CountOrPercent::Percent(100)),
            max_failures: self.max_failures.unwrap_or(0),
            canary: self.canary.unwrap_or(0),
            wait_healthy: self.wait_healthy,
        })
    }
}

impl OperateArgs {
    pub(crate) fn request(&self, kind: OperationKind) -> OperationRequest {
        let (hosts, all, business) = self.hosts.get().into_fields();
        let ChosenProcesses { process, selector } = &self.processes;
        let namespace = self.namespace.clone().filter(|_| selector.is_some());
        OperationRequest {
            process: process.clone().map(Text),
            selector: selector.clone(),
            namespace: namespace.map(Text),
            hosts,
            all,
            business,
            plan: self.plan,
            rolling: self.rolling.get(),
            wait_secs: self.wait_for_offline.map(|wait| wait.as_secs()),
            ..OperationRequest::new(kind)
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Namespace and name, such as demo/heartbeat
    #[arg(value_name = "NS/NAME", value_parser = parse_process)]
    pub(crate) process: ProcessKey,
    /// Only these hosts; without it, wherever the process is registered
    #[arg(long = "host", env = "PROCTOR_HOST", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<String>,
}

impl StatusArgs {
    pub(crate) fn hosts(&self) -> Hosts {
        if self.hosts.is_empty() { Hosts::All } else { Hosts::These(self.hosts.clone()) }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Namespace and name, such as demo/heartbeat
    #[arg(value_name = "NS/NAME", value_parser = parse_process)]
    pub(crate) process: ProcessKey,
}

fn parse_share(text: &str) -> Result<CountOrPercent, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.into_text())
}

fn parse_namespace(text: &str) -> Result<Namespace, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.into_text())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::Cli;

    fn request(line: &str) -> Result<serde_json::Value, clap::Error> {
        let cli = Cli::try_parse_from(line.split(' '))?;
        let (kind, args) = cli.command.operation().expect("the line is an operation");
        Ok(serde_json::to_value(args.request(kind)).expect("a request is JSON"))
    }

    #[test]
    fn an_operation_needs_processes_and_hosts() {
        assert!(request("proctor start demo/x").is_err());
        assert!(request("proctor start --all").is_err());
        assert!(request("proctor start demo/x --host 10.0.0.1 --all").is_err());
        assert!(request("proctor start demo/x --selector a=b --all").is_err());

        let start = request("proctor start demo/x --host 10.0.0.1,10.0.0.2 --host a-1").unwrap();

        let hosts = ["10.0.0.1", "10.0.0.2", "a-1"];
        assert_eq!(start, json!({ "operation": "start", "process": "demo/x", "hosts": hosts }));
    }

    #[test]
    fn all_must_be_said() {
        let hosts = |all| ChosenHosts { hosts: Vec::new(), all, business: None }.get();

        assert_eq!(hosts(true), Hosts::All);
        assert_eq!(hosts(false), Hosts::These(Vec::new()));
    }

    #[test]
    fn a_rolling_operation_says_how_it_goes_on() {
        let restart = request(
            "proctor restart -l env=prod -n web --business 3 --max-parallel 10% --max-failures 2 --canary 1 --plan",
        )
        .unwrap();

        let rolling = json!({ "max_parallel": "10%", "max_failures": 2, "canary": 1, "wait_healthy": false });
        assert_eq!(
            restart,
            json!({ "operation": "restart", "selector": "env=prod", "namespace": "web", "business": 3, "plan": true,
                    "rolling": rolling })
        );
        assert!(request("proctor stop demo/x --all --max-parallel 0").is_err());
        let waiting = request("proctor stop demo/x --all --wait-for-offline 10m").unwrap();
        assert_eq!(waiting, json!({ "operation": "stop", "process": "demo/x", "all": true, "wait_secs": 600 }));
        let healthy = request("proctor restart demo/x --all --wait-healthy").unwrap();
        assert_eq!(healthy["rolling"]["max_parallel"], "100%");
    }
}
