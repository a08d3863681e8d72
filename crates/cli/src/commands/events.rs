//! `proctor events`: past and new events.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::BoolishValueParser;
use futures::TryStreamExt;
use jiff::Timestamp;
use proctor_client::{ClientError, EventFilter, EventView};
use proctor_model::EventKind;

use super::{CommandEnd, Session};
use crate::args::Output;
use crate::output::{self, CellStyle, TextTable, one_line, or_dash, plain};

/// Wait before an unreachable server is tried again.
const ABSENCE_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Only events about processes of this namespace
    #[arg(short, long, env = "PROCTOR_NAMESPACE")]
    namespace: Option<String>,
    /// Only events about processes of this name
    #[arg(long, env = "PROCTOR_NAME")]
    name: Option<String>,
    /// Only events of this host: an IP address, CLOUD:IP or an agent id
    #[arg(long, env = "PROCTOR_HOST")]
    host: Option<String>,
    /// Only these types, such as exited,restart_failed
    #[arg(long = "type", env = "PROCTOR_EVENT_TYPE", value_name = "TYPE", value_delimiter = ',', value_parser = parse_type)]
    types: Vec<EventKind>,
    /// The oldest events after this id instead of the newest
    #[arg(long, env = "PROCTOR_AFTER", value_name = "ID")]
    after: Option<u64>,
    /// Maximum number of rows
    #[arg(long, env = "PROCTOR_LIMIT", value_name = "N", default_value_t = 50)]
    limit: u32,
    /// Follow new events
    #[arg(short, long, env = "PROCTOR_FOLLOW", value_parser = BoolishValueParser::new())]
    follow: bool,
}

pub(super) fn parse_type(text: &str) -> Result<EventKind, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.into_text())
}

pub(super) async fn show(session: &Session, args: EventsArgs) -> Result<CommandEnd> {
    let filter = EventFilter {
        after: args.after,
        namespace: args.namespace,
        name: args.name,
        host: args.host,
        types: args.types,
        limit: Some(args.limit),
    };
    if args.follow {
        return follow(session, filter).await;
    }
    let page = session.client.events(&filter).await?;
    output::print(session.output, &page.events, |events| table(events))?;
    Ok(CommandEnd::Success)
}

/// One line per event, until stdout is closed or the program is interrupted. A broken stream is resumed after the
/// last event.
async fn follow(session: &Session, mut filter: EventFilter) -> Result<CommandEnd> {
    let page = session.client.events(&filter).await?;
    if !write_lines(session.output, &page.events)? {
        return Ok(CommandEnd::Success);
    }
    filter.limit = None;
    filter.after = Some(page.next);
    loop {
        match stream(session, &mut filter).await {
            Ok(Some(ended)) => return Ok(ended),
            Ok(None) => {}
            Err(error) if error.downcast_ref().is_some_and(ClientError::is_unreachable) => {
                eprintln!("proctor: {error}; retrying");
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(ABSENCE_PAUSE).await;
    }
}

/// Writes until the stream ends (None) or stdout is closed.
async fn stream(session: &Session, filter: &mut EventFilter) -> Result<Option<CommandEnd>> {
    let mut events = pin!(session.client.event_stream(filter).await?);
    while let Some(event) = events.try_next().await? {
        filter.after = Some(event.id);
        if !write_lines(session.output, &[event])? {
            return Ok(Some(CommandEnd::Success));
        }
    }
    Ok(None)
}

/// False once stdout is closed.
fn write_lines(output: Output, events: &[EventView]) -> Result<bool> {
    let mut text = String::new();
    for event in events {
        text.push_str(&match output {
            Output::Json => serde_json::to_string(event).context("cannot write an event as JSON")?,
            Output::Yaml => format!("---\n{}", output::yaml(event)?.trim_end()),
            Output::Table | Output::Wide => line(event),
        });
        text.push('\n');
    }
    output::write_more(&text)
}

fn line(event: &EventView) -> String {
    let process = event.process.as_deref().unwrap_or("-");
    let text =
        format!("{} {} {} {} {}: {}", event.id, time(event.at_ms), event.host, process, event.kind, event.content);
    one_line(&text)
}

fn table(events: &[EventView]) -> TextTable {
    let mut table = TextTable::new(&["ID", "TIME", "HOST", "PROCESS", "TYPE", "EVENT"]).right(&[0]);
    for event in events {
        table.row([
            plain(event.id),
            plain(time(event.at_ms)),
            plain(&event.host),
            plain(or_dash(event.process.clone().unwrap_or_default())),
            (event.kind.clone(), style(&event.kind)),
            plain(&event.content),
        ]);
    }
    table
}

fn style(kind: &str) -> CellStyle {
    match kind.parse::<EventKind>() {
        Ok(EventKind::RestartSucceeded | EventKind::AgentUpgraded | EventKind::AgentOnline) => CellStyle::Good,
        Ok(
            EventKind::RestartFailed
            | EventKind::CancelRestart
            | EventKind::LimitExceeded
            | EventKind::PoolLimitExceeded
            | EventKind::AgentOffline
            | EventKind::CommandRefused
            | EventKind::AgentUpgradeFailed
            | EventKind::AgentCloned,
        ) => CellStyle::Bad,
        Ok(
            EventKind::HealthChanged
            | EventKind::ConfigChanged
            | EventKind::ScheduleSkipped
            | EventKind::FdWarning
            | EventKind::PidChanged
            | EventKind::PoolWarning
            | EventKind::EventsDropped
            | EventKind::LocalOperation
            | EventKind::ClockOff,
        ) => CellStyle::Warning,
        Ok(EventKind::Started | EventKind::Exited | EventKind::Adopted) | Err(_) => CellStyle::Plain,
    }
}

fn time(at_ms: i64) -> String {
    Timestamp::from_millisecond(at_ms).map_or_else(|_| "-".into(), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(content: &str) -> EventView {
        serde_json::from_value(json!({
            "id": 7, "at_ms": 1_618_382_611_690_i64, "stored_at_ms": 1_618_382_611_700_i64, "host": "0:10.0.0.1",
            "agent": "a-1", "sequence": 3, "type": "exited", "process": "web/nginx", "content": content,
        }))
        .unwrap()
    }

    #[test]
    fn an_event_is_one_line() {
        let text = line(&event("ended with\nsignal 9"));

        assert_eq!(text, "7 2021-04-14T06:43:31.690Z 0:10.0.0.1 web/nginx exited: ended with");
    }

    #[test]
    fn a_table_has_a_row_for_each_event() {
        let text = table(&[event("it ended"), event("again")]).to_text();

        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["7", "2021-04-14T06:43:31.690Z", "0:10.0.0.1", "web/nginx", "exited", "it", "ended"]);
    }
}
