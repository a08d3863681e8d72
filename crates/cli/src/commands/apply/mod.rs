//! `proctor apply` and `proctor diff`: make hosts match files.
//!
//! Promised: all files are read, and the server has validated each entry, before anything is changed; only
//! differences are applied; nothing is deleted without `--prune`, and then only processes in namespaces that the
//! files name. Absent: starting and stopping; processes are registered, not operated.

mod files;
mod plan;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::builder::BoolishValueParser;
use proctor_client::{Client, Hosts, Row};

use self::plan::{Action, Step, What, Work, on_hosts};
use super::{CommandEnd, Session, history};
use crate::args::Output;
use crate::output::{self, printable};

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// A TOML or JSON file, or a directory of them; may be repeated; - is stdin
    #[arg(short, long = "file", env = "PROCTOR_FILE", value_name = "DIR|FILE", required = true)]
    files: Vec<PathBuf>,
    /// Unregister the processes of the files' namespaces that are in no file; if they run, they live on
    #[arg(long, env = "PROCTOR_PRUNE", value_parser = BoolishValueParser::new())]
    prune: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    files: FilesArgs,
    /// Dry run: show what would be done, and change nothing
    #[arg(long, env = "PROCTOR_PLAN", value_parser = BoolishValueParser::new())]
    plan: bool,
}

/// Exits with 1 if anything differs.
pub(super) async fn diff(session: &Session, args: FilesArgs) -> Result<CommandEnd> {
    let steps = steps(planned(session, &args).await?);
    print(session.output, &steps)?;
    Ok(CommandEnd::success_if(steps.iter().all(|step| step.action == Action::Unchanged)))
}

pub(super) async fn apply(session: &Session, args: ApplyArgs) -> Result<CommandEnd> {
    let mut work = planned(session, &args.files).await?;
    if !args.plan {
        for work in &mut work {
            carry_out(&session.client, work).await?;
        }
    }
    let steps = steps(work);
    print(session.output, &steps)?;
    Ok(CommandEnd::success_if(steps.iter().all(|step| step.problem.is_none())))
}

async fn planned(session: &Session, args: &FilesArgs) -> Result<Vec<Work>> {
    plan::plan(&session.client, files::read(&args.files)?, args.prune).await
}

fn steps(work: Vec<Work>) -> Vec<Step> {
    work.into_iter().flat_map(|work| work.steps).collect()
}

/// Only if something differs; each step reports its own failure.
async fn carry_out(client: &Client, work: &mut Work) -> Result<()> {
    let differs = |step: &&mut Step| matches!(step.action, Action::Create | Action::Change | Action::Delete);
    let todo: Vec<&mut Step> = work.steps.iter_mut().filter(differs).collect();
    if todo.is_empty() {
        return Ok(());
    }
    let hosts: Vec<String> = todo.iter().map(|step| step.host.clone()).collect();
    let rows: Vec<Row> = match &work.what {
        What::Register(body) => client.register_or_update(&on_hosts(body, &hosts)).await?,
        What::SetPool(setting) => client.set_pools(&Hosts::These(hosts), std::slice::from_ref(setting)).await?,
        What::Unregister(key) => client.unregister(key, &Hosts::These(hosts)).await?,
    };
    for (step, row) in todo.into_iter().zip(rows) {
        if !row.is_success() {
            step.problem = Some(format!("{} ({})", row.localized.message, row.code));
        }
    }
    Ok(())
}

fn print(output: Output, steps: &Vec<Step>) -> Result<()> {
    output::print_or(output, steps, || render(steps, output == Output::Wide))
}

/// Like a diff: `+` new, `~` changed, `-` gone, `!` not possible. Unchanged entries are only counted, and the
/// fields of new ones are shown only with `-o wide`.
fn render(steps: &[Step], wide: bool) -> String {
    let mut text = String::new();
    for step in steps {
        let sign = match (step.action, &step.problem) {
            (Action::Refused, _) | (_, Some(_)) => '!',
            (Action::Create, None) => '+',
            (Action::Change, None) => '~',
            (Action::Delete, None) => '-',
            (Action::Unchanged, None) if wide => '=',
            (Action::Unchanged, None) => continue,
        };
        text += &format!("{sign} {} {} on {}", step.kind, printable(&step.name), step.host);
        text += &step.problem.as_ref().map_or_else(String::new, |problem| format!(": {}", printable(problem)));
        text.push('\n');
        if matches!(step.action, Action::Change | Action::Refused) || wide {
            text.extend(step.changes.iter().map(history::changed));
        }
    }
    let count = |action| steps.iter().filter(|step| step.action == action).count();
    text + &format!(
        "{} created, {} changed, {} deleted, {} unchanged, {} refused or failed\n",
        count(Action::Create),
        count(Action::Change),
        count(Action::Delete),
        count(Action::Unchanged),
        steps.iter().filter(|step| step.problem.is_some()).count(),
    )
}

#[cfg(test)]
mod tests {
    use proctor_client::Change;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_reads_like_a_diff() {
        let step = |action, host: &str, problem: Option<&str>| Step {
            action,
            kind: "process",
            name: "web/进程".into(),
            host: host.into(),
            changes: vec![Change { path: "control.start".into(), from: json!(null), to: json!("x") }],
            problem: problem.map(Into::into),
        };
        let steps = [
            step(Action::Create, "0:10.0.0.1", None),
            step(Action::Change, "0:10.0.0.2", None),
            step(Action::Unchanged, "0:10.0.0.3", None),
            step(Action::Refused, "0:10.0.0.4", Some("may not")),
            step(Action::Delete, "0:10.0.0.5", None),
        ];

        assert_eq!(
            render(&steps, false),
            "+ process web/进程 on 0:10.0.0.1\n\
             ~ process web/进程 on 0:10.0.0.2\n    control.start: - -> \"x\"\n\
             ! process web/进程 on 0:10.0.0.4: may not\n    control.start: - -> \"x\"\n\
             - process web/进程 on 0:10.0.0.5\n\
             1 created, 1 changed, 1 deleted, 1 unchanged, 1 refused or failed\n"
        );
    }
}
