//! Waits for a task: polls, shows progress, and survives a short absence of the server.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use proctor_client::{Client, RolloutState, TaskView};
use proctor_model::TaskId;

/// Most outcomes arrive within a few milliseconds; a task that takes longer is polled less often.
const POLL_FIRST: Duration = Duration::from_millis(20);
const POLL_LAST: Duration = Duration::from_millis(500);
/// A task survives a restart of its server, so a server that is away for less than this is waited for.
const ABSENCE_MAX: Duration = Duration::from_secs(30);

/// Returns when every target has its outcome, or when a rolling task pauses after its canary.
pub(super) async fn finished(client: &Client, id: TaskId) -> Result<TaskView> {
    let bar = bar();
    let mut pause = POLL_FIRST;
    let mut absent = Duration::ZERO;
    loop {
        match client.task(id).await {
            Ok(task) => {
                absent = Duration::ZERO;
                bar.set_length(task.total as u64);
                bar.set_position((task.total - task.pending) as u64);
                bar.set_message(if task.failed > 0 { format!("{} failed", task.failed) } else { String::new() });
                let paused = task.rollout.as_ref().is_some_and(|rollout| rollout.state == RolloutState::Paused);
                if task.is_finished() || paused {
                    bar.finish_and_clear();
                    return Ok(task);
                }
            }
            Err(error) if error.is_unreachable() && absent < ABSENCE_MAX => {
                absent += pause;
                bar.set_message("the server is away, waiting for it");
            }
            Err(error) => {
                bar.finish_and_clear();
                return Err(anyhow::Error::new(error).context(format!("the outcome of task {id} is not known here")));
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_LAST);
    }
}

/// On stderr, and only on a terminal.
fn bar() -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("[{elapsed}] {bar:30} {pos}/{len} {msg}")
        .expect("the template is constant and well formed");
    ProgressBar::with_draw_target(None, target).with_style(style)
}
