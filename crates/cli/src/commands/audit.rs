//! `proctor audit list|verify|export`.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::pin::pin;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use proctor_client::{AuditFilter, AuditView};
use proctor_runtime::clock;

mod archive;

use super::{CommandEnd, Session};
use crate::args::parse_duration;
use crate::output::{self, CellStyle, TextTable, or_dash, plain};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List who changed what, oldest first
    List(ListArgs),
    /// Verify the hash chain; exits with 1 if it is broken
    Verify(VerifyArgs),
    /// Export matching entries, one JSON object per line, as they are hashed
    Export(ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Also check these archive files, or all in a directory, and that the store continues them
    #[arg(long, env = "PROCTOR_AUDIT_ARCHIVE", value_name = "FILE|DIR", num_args = 1..)]
    archive: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only what this app did
    #[arg(long, env = "PROCTOR_AUDIT_APP", value_name = "CODE")]
    app: Option<String>,
    /// Only what this user did
    #[arg(long, env = "PROCTOR_AUDIT_USER", value_name = "NAME")]
    by: Option<String>,
    /// Only this action, as the list shows it
    #[arg(long, env = "PROCTOR_ACTION")]
    action: Option<String>,
    /// Only entries since 2030-01-02T03:04:05Z, or since a time ago such as 1h
    #[arg(long, env = "PROCTOR_SINCE", value_name = "TIME", value_parser = parse_moment)]
    since: Option<i64>,
    /// Only entries before 2030-01-02T03:04:05Z, or before a time ago such as 1h
    #[arg(long, env = "PROCTOR_UNTIL", value_name = "TIME", value_parser = parse_moment)]
    until: Option<i64>,
}

impl From<FilterArgs> for AuditFilter {
    fn from(args: FilterArgs) -> Self {
        let FilterArgs { app, by, action, since, until } = args;
        Self { app, user: by, action, since, until }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Maximum number of rows
    #[arg(long, env = "PROCTOR_LIMIT", value_name = "N", default_value_t = 1000)]
    limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Write to this new file instead of stdout
    #[arg(short, long, env = "PROCTOR_FILE", value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Unix seconds.
fn parse_moment(text: &str) -> Result<i64, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_second());
    }
    let ago = parse_duration(text).map_err(|_| {
        format!("'{text}' is neither a time such as 2030-01-02T03:04:05Z nor an age such as 90s, 1h or 7d")
    })?;
    Ok(clock::unix_millis() / 1000 - i64::try_from(ago.as_secs()).unwrap_or(i64::MAX / 2))
}

pub(super) async fn run(session: &Session, command: AuditCommand) -> Result<CommandEnd> {
    match command {
        AuditCommand::List(args) => {
            let filter = args.filter.into();
            let entries: Vec<AuditView> = session.client.all_audit(&filter).take(args.limit).try_collect().await?;
            output::print(session.output, &entries, |entries| table(entries))?;
            Ok(CommandEnd::Success)
        }
        AuditCommand::Verify(args) => {
            let verdict = session.client.verify_audit().await?;
            if !args.archive.is_empty() {
                match archive::verify(&args.archive, &verdict) {
                    Ok(files) => eprintln!("{} archived entries in {files} files are intact.", verdict.archived),
                    Err(problem) => {
                        eprintln!("the archive is broken: {problem:#}");
                        return Ok(CommandEnd::success_if(false));
                    }
                }
            }
            output::print_or(session.output, &verdict, || match &verdict.problem {
                None if verdict.intact => {
                    format!("{} entries are intact; the last hash is {}\n", verdict.entries, verdict.last_hash)
                }
                problem => {
                    let at = verdict.broken_at.map_or_else(String::new, |seq| format!(" at entry {seq}"));
                    format!("the chain is broken{at}: {}\n", problem.as_deref().unwrap_or("no reason was given"))
                }
            })?;
            Ok(CommandEnd::success_if(verdict.intact))
        }
        AuditCommand::Export(args) => export(session, args).await,
    }
}

async fn export(session: &Session, args: ExportArgs) -> Result<CommandEnd> {
    let filter = args.filter.into();
    let mut file = match &args.file {
        Some(path) => {
            // Whatever the umask: the entries name hosts, users and addresses.
            let private = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            let file = private.with_context(|| format!("cannot make {}", path.display()))?;
            Some(std::io::BufWriter::new(file))
        }
        None => None,
    };
    let mut entries = pin!(session.client.all_audit(&filter));
    let mut count = 0_u64;
    while let Some(entry) = entries.try_next().await? {
        let line = serde_json::to_string(&entry).context("cannot write an entry as JSON")? + "\n";
        match &mut file {
            Some(file) => file.write_all(line.as_bytes()).context("cannot write to the file")?,
            None => output::write_out(&line)?,
        }
        count += 1;
    }
    if let Some(mut file) = file {
        file.flush().context("cannot write to the file")?;
        eprintln!("{count} entries written.");
    }
    Ok(CommandEnd::Success)
}

fn table(entries: &[AuditView]) -> TextTable {
    let headers = ["SEQ", "TIME", "USER", "APP", "ACTION", "PHASE", "TARGETS", "FIRST", "FROM", "REQUEST", "OUTCOME"];
    let mut table = TextTable::new(&headers).right(&[0, 6]).only_wide(&[8, 9]);
    for entry in entries {
        let time = Timestamp::from_millisecond(entry.at).map_or_else(|_| "-".into(), |time| format!("{time:.3}"));
        let style = if entry.phase == "refused" { CellStyle::Bad } else { CellStyle::Plain };
        table.row([
            plain(entry.seq),
            plain(time),
            plain(or_dash(entry.user.clone())),
            plain(or_dash(entry.app.clone())),
            plain(&entry.action),
            (entry.phase.clone(), style),
            plain(entry.target_count),
            plain(or_dash(entry.targets.first().cloned().unwrap_or_default())),
            plain(or_dash(entry.remote.clone().unwrap_or_default())),
            plain(&entry.request_id),
            plain(or_dash(entry.outcome.clone())),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_how_long_ago() {
        assert_eq!(parse_moment("1970-01-01T00:01:00Z"), Ok(60));
        let hour_ago = parse_moment("1h").unwrap();
        let now = clock::unix_millis() / 1000;
        assert!((now - hour_ago - 3600).abs() <= 60, "{hour_ago} against {now}");
        assert!(parse_moment("yesterday").is_err());
    }
}
