//! `proctor usage`: a process's resource use on a host, as bar charts.

use anyhow::Result;
use clap::{Args, ValueEnum};
use proctor_client::{UsagePointView, UsageQuery, UsageSpan, UsageState, UsageView};
use proctor_model::ProcessKey;

use super::{CommandEnd, Session};
use crate::args::parse_process;
use crate::output::{self, moment};

/// Columns of a bar chart.
const COLUMNS: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Restarts that are listed; the rest is counted.
const RESTARTS_NAMED_MAX: usize = 5;

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// Namespace and name, such as demo/heartbeat
    #[arg(value_name = "NS/NAME", value_parser = parse_process)]
    process: ProcessKey,
    /// IP address, CLOUD:IP or agent id
    #[arg(long, env = "PROCTOR_HOST")]
    host: String,
    /// How far back
    #[arg(long, env = "PROCTOR_USAGE_RANGE", default_value = "1h")]
    range: Range,
    /// Which instance of a process that has several
    #[arg(long, env = "PROCTOR_INSTANCE", value_name = "N")]
    instance: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Range {
    #[value(name = "1h")]
    Hour,
    #[value(name = "7d")]
    Week,
}

pub(super) async fn show(session: &Session, args: UsageArgs) -> Result<CommandEnd> {
    let UsageArgs { process, host, range, instance } = args;
    let range = match range {
        Range::Hour => UsageSpan::Hour,
        Range::Week => UsageSpan::Week,
    };
    let usage = session.client.usage(&process, &UsageQuery { host, range: Some(range), instance }).await?;
    output::print_or(session.output, &usage, || render(&usage))?;
    Ok(CommandEnd::success_if(usage.state == UsageState::Kept))
}

fn render(usage: &UsageView) -> String {
    let UsageView { process, host, points, .. } = usage;
    let (span, seconds) = match usage.range {
        UsageSpan::Hour => ("hour", 3600),
        UsageSpan::Week => ("7 days", 7 * 86400),
    };
    let problem = match usage.state {
        UsageState::Kept => None,
        UsageState::NotKept => Some("its host has more processes than the agent keeps the usage of"),
        UsageState::Offline => Some("its host's agent is not connected"),
        UsageState::AgentTooOld => Some("its host's agent is too old to keep usage: upgrade it"),
        UsageState::NoAnswer => Some("its host's agent did not answer in time"),
    };
    if let Some(problem) = problem {
        return format!("{process} on {host}: {problem}\n");
    }
    let Some(last) = points.last() else {
        return format!("{process} on {host}: nothing was recorded in the last {span}\n");
    };
    let end = last.at + i64::from(usage.step);
    let line = |name: &str, values: Values, limit: Option<f64>| {
        let average = points.iter().map(|point| values(point).0).sum::<f64>() / points.len() as f64;
        let max = points.iter().map(|point| values(point).1).fold(0.0, f64::max);
        let limit = limit.map(|limit| format!("  limit {limit} %")).unwrap_or_default();
        let bars = bars(points, end - seconds, seconds, values);
        format!("{name:6} {bars}  now {:.2} %  average {average:.2} %  max {max:.2} %{limit}\n", values(last).0)
    };
    let mut text = format!("{process} on {host}, last {span} until {}, one point each {} s\n", moment(end), usage.step);
    text += &line("cpu", |point| (point.cpu, point.cpu_max), usage.cpu_limit);
    text += &line("memory", |point| (point.memory, point.memory_max), usage.memory_limit);
    text += &restarts(points);
    text
}

/// The average and the maximum of a point.
type Values = fn(&UsagePointView) -> (f64, f64);

/// The highest average of each column, relative to the highest of all; blank if nothing was recorded.
fn bars(points: &[UsagePointView], begin: i64, seconds: i64, values: Values) -> String {
    let mut columns: [Option<f64>; COLUMNS] = [None; COLUMNS];
    for point in points {
        let column = (point.at - begin).clamp(0, seconds - 1) * COLUMNS as i64 / seconds;
        let column = &mut columns[usize::try_from(column).unwrap_or(0).min(COLUMNS - 1)];
        *column = Some(column.unwrap_or(0.0).max(values(point).0));
    }
    let top = columns.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |value: f64| {
        let height = if top > 0.0 { value / top * (BARS.len() - 1) as f64 } else { 0.0 };
        BARS[(height.round() as usize).min(BARS.len() - 1)]
    };
    columns.iter().map(|value| value.map_or(' ', bar)).collect()
}

fn restarts(points: &[UsagePointView]) -> String {
    let times: Vec<String> = points.iter().filter(|point| point.restarted).map(|point| moment(point.at)).collect();
    match times.len() {
        0 => String::new(),
        count => {
            let newest = times[count.saturating_sub(RESTARTS_NAMED_MAX)..].join(", ");
            format!("restarts: {count}, at {newest}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: i64, cpu: f64) -> UsagePointView {
        UsagePointView {
            at,
            cpu,
            cpu_max: cpu,
            cpu_min: None,
            memory: 1.0,
            memory_max: 1.0,
            memory_min: None,
            restarted: cpu > 7.0,
        }
    }

    fn view(points: Vec<UsagePointView>) -> UsageView {
        UsageView {
            process: "web/nginx".to_owned(),
            host: "0:10.0.0.1".to_owned(),
            range: UsageSpan::Hour,
            state: UsageState::Kept,
            step: 60,
            points,
            cpu_limit: Some(20.0),
            memory_limit: None,
        }
    }

    #[test]
    fn bars_rise_with_usage_and_gaps_stay_empty() {
        let points = vec![point(0, 0.0), point(60, 4.0), point(3540, 8.0)];

        let bars = bars(&points, 0, 3600, |point| (point.cpu, point.cpu_max));

        assert_eq!(bars.chars().count(), COLUMNS);
        assert!(bars.starts_with("▁▅ ") && bars.ends_with(" █"), "{bars}");
    }

    #[test]
    fn people_read_the_numbers_the_limit_and_the_restarts() {
        let text = render(&view(vec![point(3_600_000, 4.0), point(3_600_060, 8.0)]));

        assert!(text.contains("now 8.00 %  average 6.00 %  max 8.00 %  limit 20 %"), "{text}");
        assert!(text.contains("restarts: 1, at 1970-02-11T16:01:00Z"), "{text}");
    }

    #[test]
    fn who_cannot_be_asked_is_said() {
        let old = UsageView { state: UsageState::AgentTooOld, ..view(Vec::new()) };

        assert!(render(&old).contains("too old"));
        assert!(render(&view(Vec::new())).contains("nothing was recorded"));
    }
}
