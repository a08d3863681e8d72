//! Operations and live status.

use anyhow::{Context, Result, bail};
use proctor_client::{Accepted, OperationRequest, Plan, RolloutState, TargetRow, Text, WholeTask};
use proctor_model::{OperationKind, Snapshot, TaskId};
use proctor_runtime::clock;
use serde_json::json;

use super::{CommandEnd, Session, wait};
use crate::args::{OperateArgs, Output, StatusArgs};
use crate::output::{self, CellStyle, TextTable, ago, one_line, or_dash, plain, printable, yes_no};

const HANDLING: u32 = 115;

pub(super) async fn operate(session: &Session, kind: OperationKind, args: &OperateArgs) -> Result<CommandEnd> {
    let accepted = session.client.operate(&args.request(kind), args.idempotency_key.as_deref()).await?;
    match accepted {
        Accepted { plan: Some(plan), .. } => {
            output::print(session.output, &plan, plan_table)?;
            eprintln!("Nothing was done: {} targets, of which {} would be refused.", plan.total, plan.refused);
            Ok(CommandEnd::success_if(plan.refused == 0))
        }
        Accepted { task_id: Some(id), .. } if args.plan => {
            bail!("the server does not know plans and has begun task {id}: proctor task cancel {id}")
        }
        Accepted { task_id: Some(id), .. } => outcome(session, id, args.no_wait).await,
        Accepted { .. } => bail!("the server gave neither a task id nor a plan"),
    }
}

/// Waits for the task unless asked not to, and prints the result.
pub(super) async fn outcome(session: &Session, id: TaskId, no_wait: bool) -> Result<CommandEnd> {
    if no_wait {
        output::print_or(session.output, &json!({ "task_id": id }), || format!("{id}\n"))?;
        return Ok(CommandEnd::Success);
    }
    wait::finished(&session.client, id).await?;
    print_task(session, &session.client.whole_task(id).await?)
}

fn plan_table(plan: &Plan) -> TextTable {
    let mut table = TextTable::new(&["HOST", "PROCESS", "OPERATION", "REFUSED"]);
    for target in &plan.targets {
        let refused = target.refused.as_ref().map(|refusal| (refusal.localized.message.clone(), CellStyle::Bad));
        table.row([
            plain(&target.host),
            plain(&target.process),
            plain(target.operation),
            refused.unwrap_or_else(|| plain("-")),
        ]);
    }
    table
}

pub(super) fn print_task(session: &Session, whole: &WholeTask) -> Result<CommandEnd> {
    output::print(session.output, whole, |whole| task_table(&whole.targets))?;
    if matches!(session.output, Output::Table | Output::Wide) {
        for target in whole.targets.iter().filter(|target| has_hidden_output(target)) {
            eprintln!("\n{} on {} printed:\n{}", target.process, target.host, printable(target.output.trim_end()));
        }
    }
    let task = &whole.task;
    if task.rollout.as_ref().is_some_and(|rollout| rollout.state == RolloutState::Paused) {
        eprintln!("The task pauses after its canary; to continue: proctor task resume {}", task.task_id);
    } else if !task.is_finished() {
        eprintln!("{} of {} targets are pending: proctor task show {} --watch", task.pending, task.total, task.task_id);
    }
    Ok(CommandEnd::success_if(task.failed == 0))
}

/// The output of a failed command, if the row does not show all of it.
fn has_hidden_output(target: &TargetRow) -> bool {
    let shown = one_line(&target.localized.message);
    target.code != 0 && !target.output.trim().is_empty() && !shown.contains(target.output.trim())
}

fn task_table(targets: &[TargetRow]) -> TextTable {
    let mut table = TextTable::new(&["HOST", "PROCESS", "OPERATION", "CODE", "RESULT", "MESSAGE"]).right(&[3]);
    for target in targets {
        let operation = target.operation.clone().unwrap_or_default();
        table.row([
            plain(&target.host),
            plain(&target.process),
            plain(or_dash(operation)),
            plain(target.code),
            (target.name.clone(), style(target.code)),
            plain(&target.localized.message),
        ]);
    }
    table
}

fn style(code: u32) -> CellStyle {
    match code {
        0 => CellStyle::Good,
        HANDLING => CellStyle::Warning,
        _ => CellStyle::Bad,
    }
}

pub(super) async fn status(session: &Session, args: StatusArgs) -> Result<CommandEnd> {
    let (hosts, all, business) = args.hosts().into_fields();
    let process = Some(Text(args.process));
    let request = OperationRequest { process, hosts, all, business, ..OperationRequest::new(OperationKind::Status) };
    let id = session.client.operate(&request, None).await?.task_id.context("the server gave no task id")?;
    wait::finished(&session.client, id).await?;
    let whole = session.client.whole_task(id).await?;
    output::print(session.output, &whole, |whole| status_table(&whole.targets, clock::unix_millis()))?;
    Ok(CommandEnd::success_if(whole.task.failed == 0))
}

fn status_table(targets: &[TargetRow], now: i64) -> TextTable {
    let headers = ["HOST", "PHASE", "MANAGED", "PID", "CPU%", "MEM%", "UP", "RESTARTS", "VERSION", "REASON"];
    let mut table = TextTable::new(&headers).right(&[3, 4, 5, 6, 7]);
    for target in targets {
        match &target.snapshot {
            Some(snapshot) => table.row(status_row(&target.host, snapshot, now)),
            None => {
                let dash = || plain("-");
                let reason = (target.localized.message.clone(), style(target.code));
                let cells = [plain(&target.host), ("unknown".into(), CellStyle::Bad), dash(), dash(), dash(), dash()];
                let [host, phase, managed, pid, cpu, memory] = cells;
                table.row([host, phase, managed, pid, cpu, memory, dash(), dash(), dash(), reason]);
            }
        }
    }
    table
}

fn status_row(host: &str, snapshot: &Snapshot, now: i64) -> [(String, CellStyle); 10] {
    let up = if snapshot.pid.is_some() { ago(snapshot.started_at, now) } else { "-".into() };
    [
        plain(host),
        super::processes::phase(snapshot.phase, true),
        plain(yes_no(snapshot.managed)),
        plain(snapshot.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
        plain(format!("{:.1}", snapshot.usage.cpu_percent)),
        plain(format!("{:.1}", snapshot.usage.memory_percent)),
        plain(up),
        plain(snapshot.restarts),
        plain(or_dash(snapshot.version.clone())),
        plain(or_dash(snapshot.reason.clone())),
    ]
}

#[cfg(test)]
mod tests {
    use proctor_client::LocalizedMessage;

    use super::*;

    fn target(code: u32, message: &str, output: &str) -> TargetRow {
        TargetRow {
            index: 0,
            host: "0:10.0.0.1".into(),
            process: "demo/x".into(),
            operation: Some("start".into()),
            code,
            name: "name".into(),
            localized: LocalizedMessage { message: message.into(), ..LocalizedMessage::default() },
            output: output.into(),
            snapshot: None,
        }
    }

    #[test]
    fn a_target_is_one_line_with_its_code_and_message() {
        let text = task_table(&[target(828, "runs already\nsecond line", "")]).to_text();

        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["0:10.0.0.1", "demo/x", "start", "828", "name", "runs", "already"]);
    }

    #[test]
    fn only_failed_commands_with_more_output_than_their_row_are_quoted() {
        assert!(has_hidden_output(&target(65535, "command failed", "line one\nline two")));
        assert!(!has_hidden_output(&target(65535, "command failed: no", "no\n")));
        assert!(!has_hidden_output(&target(0, "success", "hello")));
    }

    #[test]
    fn a_host_without_an_answer_says_why() {
        let text = status_table(&[target(117, "agent a-1 is not connected", "")], 0).to_text();

        assert!(text.contains("unknown") && text.contains("agent a-1 is not connected"), "{text}");
    }
}
