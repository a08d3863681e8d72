//! `proctor task ID`, and `proctor task list|show|cancel|pause|resume|retry`.

use anyhow::{Context, Result};
use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use futures::{StreamExt, TryStreamExt};
use proctor_client::{LIMIT_MAX, RolloutState, TaskQuery, TaskView};
use proctor_model::TaskId;

use super::{CommandEnd, Session, WatchArgs, operate, wait};
use crate::args::parse_task;
use crate::output::{self, CellStyle, TextTable, moment, or_dash, plain};

/// An id alone is `show`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct TaskArgs {
    #[command(subcommand)]
    command: Option<TaskCommand>,
    /// Task id, such as GSETASK:…
    #[arg(value_parser = parse_task)]
    task_id: Option<TaskId>,
    /// Wait until every target has its outcome
    #[arg(short, long, env = "PROCTOR_WATCH", value_parser = BoolishValueParser::new())]
    watch: bool,
}

impl TaskArgs {
    fn command(self) -> Option<TaskCommand> {
        let shown = |task_id| TaskCommand::Show(ShowArgs { task: IdArgs { task_id }, watch: self.watch });
        self.command.or_else(|| self.task_id.map(shown))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List the newest tasks
    List(ListArgs),
    /// Show the progress of a task and the outcome of each target
    Show(ShowArgs),
    /// Cancel a task: targets not yet started never run, running ones are ended
    Cancel(IdArgs),
    /// Retry the failed targets of a task as a new task
    Retry(FollowArgs),
    /// Pause a rolling task
    Pause(IdArgs),
    /// Resume a rolling task after its canary or a pause
    Resume(FollowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only tasks of this app
    #[arg(long, env = "PROCTOR_TASK_APP", value_name = "CODE")]
    app: Option<String>,
    /// Only tasks of this user
    #[arg(long, env = "PROCTOR_TASK_USER", value_name = "NAME")]
    by: Option<String>,
    /// Only tasks with pending targets
    #[arg(long, env = "PROCTOR_UNFINISHED", value_parser = BoolishValueParser::new())]
    unfinished: bool,
    /// Maximum number of rows
    #[arg(long, env = "PROCTOR_LIMIT", value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    watch: WatchArgs,
}

#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// Task id, such as GSETASK:…
    #[arg(value_parser = parse_task)]
    task_id: TaskId,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    task: IdArgs,
    /// Wait until every target has its outcome
    #[arg(short, long, env = "PROCTOR_WATCH", value_parser = BoolishValueParser::new())]
    watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    #[command(flatten)]
    task: IdArgs,
    /// Print the task id and do not wait for the outcome
    #[arg(long, env = "PROCTOR_NO_WAIT", value_parser = BoolishValueParser::new())]
    no_wait: bool,
}

pub(super) async fn run(session: &Session, args: TaskArgs) -> Result<CommandEnd> {
    let client = &session.client;
    match args.command().context("give the id of a task, or a command: see --help")? {
        TaskCommand::List(args) => list(session, args).await,
        TaskCommand::Show(args) => {
            let id = args.task.task_id;
            if args.watch {
                wait::finished(client, id).await?;
            }
            operate::print_task(session, &client.whole_task(id).await?)
        }
        TaskCommand::Cancel(args) => print(session, &client.cancel_task(args.task_id).await?),
        TaskCommand::Pause(args) => print(session, &client.pause_task(args.task_id).await?),
        TaskCommand::Retry(args) => {
            let task = client.retry_task(args.task.task_id).await?;
            operate::outcome(session, task.task_id, args.no_wait).await
        }
        TaskCommand::Resume(args) => {
            let task = client.resume_task(args.task.task_id).await?;
            operate::outcome(session, task.task_id, args.no_wait).await
        }
    }
}

fn print(session: &Session, task: &TaskView) -> Result<CommandEnd> {
    output::print(session.output, task, |task| table(std::slice::from_ref(task)))?;
    Ok(CommandEnd::Success)
}

async fn list(session: &Session, args: ListArgs) -> Result<CommandEnd> {
    let query = TaskQuery {
        app: args.app,
        user: args.by,
        unfinished: args.unfinished.then_some(true),
        limit: Some(u32::try_from(args.limit).unwrap_or(LIMIT_MAX).clamp(1, LIMIT_MAX)),
        ..TaskQuery::default()
    };
    let fetch = async || session.client.all_tasks(&query).take(args.limit).try_collect::<Vec<TaskView>>().await;
    session.list(args.watch, fetch, |tasks| table(tasks)).await
}

fn table(tasks: &[TaskView]) -> TextTable {
    let headers = [
        "TASK",
        "CREATED",
        "FINISHED",
        "USER",
        "APP",
        "FAMILY",
        "OPERATIONS",
        "PROCESSES",
        "TOTAL",
        "PENDING",
        "SUCCEEDED",
        "FAILED",
        "STATE",
    ];
    let mut table = TextTable::new(&headers).right(&[8, 9, 10, 11]).only_wide(&[2, 4, 5]);
    for task in tasks {
        let operations: Vec<String> = task.operations.iter().map(ToString::to_string).collect();
        table.row([
            plain(task.task_id),
            plain(moment(task.created_at)),
            plain(moment(task.finished_at.unwrap_or_default())),
            plain(&task.user),
            plain(&task.app),
            plain(&task.family),
            plain(or_dash(operations.join(","))),
            plain(or_dash(processes(task))),
            plain(task.total),
            plain(task.pending),
            plain(task.succeeded),
            plain(task.failed),
            state(task),
        ]);
    }
    table
}

/// The first processes of a task, with an ellipsis if there are more.
fn processes(task: &TaskView) -> String {
    let names = task.processes.join(",");
    if task.has_more_processes { format!("{names},…") } else { names }
}

/// A rolling task has a state of its own; for others, the counters tell.
fn state(task: &TaskView) -> (String, CellStyle) {
    let rollout = task.rollout.as_ref().map(|rollout| rollout.state);
    let (text, style) = match rollout {
        Some(RolloutState::Paused) => ("paused", CellStyle::Warning),
        Some(RolloutState::Failed) => ("failed", CellStyle::Bad),
        Some(RolloutState::Running | RolloutState::Cancelled | RolloutState::Done) | None => {
            match (task.is_finished(), task.cancelled_at.is_some()) {
                (_, true) => ("cancelled", CellStyle::Warning),
                (false, false) => ("running", CellStyle::Warning),
                (true, false) if task.failed > 0 => ("failed", CellStyle::Bad),
                (true, false) => ("done", CellStyle::Good),
            }
        }
    };
    (text.to_owned(), style)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn task(change: Value) -> TaskView {
        let mut task = json!({
            "created_at": 0, "app": "a", "user": "进程", "family": "native",
            "total": 3, "pending": 0, "succeeded": 3, "failed": 0,
        });
        task["task_id"] = json!(TaskId::from_uuid(uuid::Uuid::nil()));
        for (name, value) in change.as_object().unwrap() {
            task[name] = value.clone();
        }
        serde_json::from_value(task).unwrap()
    }

    #[test]
    fn the_state_of_a_task_is_one_word() {
        let rollout = |state: &str| {
            json!({ "pending": 2, "rollout": { "state": state, "max_parallel": 1, "max_failures": 0, "canary": 1,
                    "wait_healthy": false, "released": 1 } })
        };

        assert_eq!(state(&task(json!({}))).0, "done");
        assert_eq!(state(&task(json!({ "failed": 1 }))).0, "failed");
        assert_eq!(state(&task(json!({ "pending": 1 }))).0, "running");
        assert_eq!(state(&task(json!({ "cancelled_at": 5 }))).0, "cancelled");
        assert_eq!(state(&task(rollout("paused"))).0, "paused");
        assert_eq!(state(&task(rollout("running"))).0, "running");
        assert_eq!(state(&task(rollout("failed"))).0, "failed");
    }

    #[test]
    fn an_id_alone_is_shown() {
        use clap::Parser;

        use crate::args::{Cli, Command};

        let id = TaskId::from_uuid(uuid::Uuid::nil()).to_string();
        let parse = |words: &[&str]| {
            let cli = Cli::try_parse_from(["proctor", "task"].iter().chain(words)).ok()?;
            let Command::Task(args) = cli.command else { return None };
            args.command()
        };

        assert!(matches!(parse(&[&id, "--watch"]), Some(TaskCommand::Show(ShowArgs { watch: true, .. }))));
        assert!(matches!(parse(&[&id]), Some(TaskCommand::Show(ShowArgs { watch: false, .. }))));
        assert!(matches!(parse(&["show", &id]), Some(TaskCommand::Show(_))));
        assert!(matches!(parse(&["list"]), Some(TaskCommand::List(_))));
        assert!(parse(&[]).is_none() && parse(&["nonsense"]).is_none());
    }
}
