//! `proctor history`: the specs that a process had on a host.

use anyhow::Result;
use clap::Args;
use proctor_client::{Change, DiffQuery, Revision, SpecDiff};
use proctor_model::ProcessKey;
use serde_json::Value;

use super::{CommandEnd, Session};
use crate::args::parse_process;
use crate::output::{self, TextTable, moment, plain, printable};

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Namespace and name, such as demo/heartbeat
    #[arg(value_name = "NS/NAME", value_parser = parse_process)]
    process: ProcessKey,
    /// IP address, CLOUD:IP or agent id
    #[arg(long, env = "PROCTOR_HOST")]
    host: String,
    /// Show what changed from this generation on [default: the one before --to]
    #[arg(long, env = "PROCTOR_FROM", value_name = "GENERATION")]
    from: Option<u64>,
    /// Show what changed up to this generation [default: the newest]
    #[arg(long, env = "PROCTOR_TO", value_name = "GENERATION")]
    to: Option<u64>,
}

pub(super) async fn show(session: &Session, args: HistoryArgs) -> Result<CommandEnd> {
    let HistoryArgs { process, host, from, to } = args;
    if from.is_none() && to.is_none() {
        let revisions = session.client.spec_history(&process, &host).await?;
        output::print(session.output, &revisions, |revisions| table(revisions))?;
        return Ok(CommandEnd::Success);
    }
    let diff = session.client.spec_diff(&process, &DiffQuery { host, from, to }).await?;
    output::print_or(session.output, &diff, || render(&diff))?;
    Ok(CommandEnd::Success)
}

fn table(revisions: &[Revision]) -> TextTable {
    let mut table = TextTable::new(&["GENERATION", "AT", "WHAT"]).right(&[0]);
    for revision in revisions {
        let what = if revision.spec.is_some() { "registered" } else { "unregistered" };
        table.row([plain(revision.generation), plain(moment(revision.at)), plain(what)]);
    }
    table
}

fn render(diff: &SpecDiff) -> String {
    let from = diff.from.map_or_else(|| "nothing".to_owned(), |from| format!("generation {from}"));
    let mut text = format!("from {from} to generation {}\n", diff.to);
    for change in &diff.changes {
        text += &changed(change);
    }
    text
}

/// One line: `    control.start: "a" -> "b"`.
pub(super) fn changed(change: &Change) -> String {
    let value = |value: &Value| if value.is_null() { "-".to_owned() } else { printable(&value.to_string()) };
    format!("    {}: {} -> {}\n", change.path, value(&change.from), value(&change.to))
}
