//! `proctor logs`: the end of a process's own log on a host.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::BoolishValueParser;
use proctor_client::{LogQuery, LogState, LogView};
use proctor_model::ProcessKey;

use super::{CommandEnd, Session};
use crate::args::{Output, parse_process};
use crate::output::{self, printable};

/// Interval between reads of a log that is followed.
const FOLLOW_PERIOD: Duration = Duration::from_secs(1);
/// Answers of an overloaded server.
const LATER: [u16; 2] = [429, 503];

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Namespace and name, such as demo/heartbeat
    #[arg(value_name = "NS/NAME", value_parser = parse_process)]
    process: ProcessKey,
    /// IP address, CLOUD:IP or agent id
    #[arg(long, env = "PROCTOR_HOST")]
    host: String,
    /// Number of lines from the end of the log, at most 60 KiB
    #[arg(short = 'n', long, env = "PROCTOR_LINES", value_name = "N", default_value = "200",
          value_parser = clap::value_parser!(u32).range(1..=2000))]
    lines: u32,
    /// Follow the log
    #[arg(short, long, env = "PROCTOR_FOLLOW", value_parser = BoolishValueParser::new())]
    follow: bool,
    /// Which instance of a process that has several
    #[arg(long, env = "PROCTOR_INSTANCE", value_name = "N")]
    instance: Option<u32>,
}

pub(super) async fn show(session: &Session, args: LogsArgs) -> Result<CommandEnd> {
    let LogsArgs { process, host, lines, follow, instance } = args;
    let query = LogQuery { host, lines: Some(lines), since: None, instance };
    if follow {
        return follow_log(session, &process, query).await;
    }
    let log = session.client.log(&process, &query).await?;
    tell_problem(&log);
    output::print_or(session.output, &log, || printable(&log.text))?;
    Ok(CommandEnd::success_if(log.state == LogState::Read))
}

/// Until stdout is closed or the program is interrupted. Waits for a host or server that is away; ends if the first
/// read shows that there is nothing to follow.
async fn follow_log(session: &Session, process: &ProcessKey, mut query: LogQuery) -> Result<CommandEnd> {
    let mut shown = None;
    loop {
        match session.client.log(process, &query).await {
            Ok(log) => {
                if query.since.is_none() && ends_at_once(log.state) {
                    tell_problem(&log);
                    return Ok(CommandEnd::success_if(false));
                }
                if shown.replace(log.state) != Some(log.state) {
                    tell_problem(&log);
                }
                tell_gap(&log);
                if !write(session.output, &log)? {
                    return Ok(CommandEnd::Success);
                }
                query.since = log.position.or(query.since);
            }
            Err(error) if error.is_unreachable() => {
                eprintln!("proctor: {error}; retrying");
            }
            Err(error) if error.status().is_some_and(|status| LATER.contains(&status)) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(FOLLOW_PERIOD).await;
    }
}

/// What waiting does not change.
fn ends_at_once(state: LogState) -> bool {
    match state {
        LogState::NoPath
        | LogState::Denied
        | LogState::NotALog
        | LogState::Forbidden
        | LogState::Unreadable
        | LogState::AgentTooOld => true,
        LogState::Read | LogState::Missing | LogState::NotRegistered | LogState::Offline | LogState::NoAnswer => false,
    }
}

/// False once stdout is closed.
fn write(output: Output, log: &LogView) -> Result<bool> {
    if log.text.is_empty() {
        return Ok(true);
    }
    output::write_more(&match output {
        Output::Json => {
            let json = serde_json::to_string(log).context("cannot write the answer as JSON")?;
            output::json_for_terminals(&json) + "\n"
        }
        Output::Yaml => format!("---\n{}", output::yaml(log)?),
        Output::Table | Output::Wide => printable(&log.text),
    })
}

fn tell_gap(log: &LogView) {
    if log.restarted {
        eprintln!("proctor: {} was rotated or truncated", printable(&log.path));
    }
    if log.skipped > 0 {
        eprintln!("proctor: {} bytes were written too fast and are left out", log.skipped);
    }
}

fn tell_problem(log: &LogView) {
    if let Some(problem) = problem(log) {
        eprintln!("proctor: {} on {}: {}", log.process, log.host, printable(&problem));
    }
}

fn problem(log: &LogView) -> Option<String> {
    let LogView { path, problem, .. } = log;
    let because = if problem.is_empty() { String::new() } else { format!(": {problem}") };
    Some(match log.state {
        LogState::Read => return None,
        LogState::NoPath => "its spec names no log_path".to_owned(),
        LogState::Missing => format!("there is no {path} on its host"),
        LogState::Denied => format!("{path} cannot be read{because}"),
        LogState::NotALog => format!("{path} is no log{because}"),
        LogState::Forbidden => format!("its host does not allow {path} to be read{because}"),
        LogState::Unreadable => format!("{path} could not be read{because}"),
        LogState::NotRegistered => "its host does not know it yet".to_owned(),
        LogState::Offline => "its host's agent is not connected".to_owned(),
        LogState::AgentTooOld => "its host's agent is too old to read logs: upgrade it".to_owned(),
        LogState::NoAnswer => "its host's agent did not answer in time".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn log(state: &str, problem: &str) -> LogView {
        serde_json::from_value(json!({
            "process": "web/m", "host": "0:10.0.0.1", "state": state, "path": "/var/log/m.log", "problem": problem,
            "text": "", "size": 0, "restarted": false, "skipped": 0,
        }))
        .unwrap()
    }

    #[test]
    fn what_is_wrong_is_said_with_the_hosts_own_reason() {
        let text = |state: &str, reason: &str| problem(&log(state, reason)).unwrap();

        assert_eq!(problem(&log("read", "")), None);
        assert_eq!(text("missing", ""), "there is no /var/log/m.log on its host");
        assert_eq!(
            text("denied", "user 'web' may not read it"),
            "/var/log/m.log cannot be read: user 'web' may not read it"
        );
        assert_eq!(text("agent_too_old", ""), "its host's agent is too old to read logs: upgrade it");
    }
}
