//! The rows of a task in the GSE families: `content` is text that holds JSON.

use proctor_store::{TargetView, TaskView};

use crate::api::content::content;
use crate::api::rows::{Row, Rows};

/// Every target of the task, whether it has an outcome or not, and nothing else.
pub(super) fn rows(task: &TaskView) -> Rows<String> {
    let row = |target: &TargetView| match &target.outcome {
        None => Row::pending(String::new()),
        Some(outcome) => {
            let content = content(task, target, outcome);
            Row::finished(outcome, serde_json::to_string(&content).expect("content has only string keys"))
        }
    };
    task.targets.iter().map(|target| (target.target.row_key.clone(), row(target))).collect()
}
