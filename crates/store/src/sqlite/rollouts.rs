//! Rolling tasks: each transition is one transaction, so a crash leaves all of it or nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use proctor_model::{Code, Outcome, TaskId};
use rusqlite::Connection;

use super::column::to_json;
use super::failure::Tried;
use super::{outcomes, tasks};
use crate::{FinishedTarget, Millis, OpenRollout, Rollout, RolloutState, RolloutStep};

/// The part of a task that its rollout depends on.
struct Task {
    seq: i64,
    id: TaskId,
    age_ms: i64,
    cancelled_at: Option<Millis>,
    rollout: Option<Rollout>,
    target_count: u32,
    open_count: u32,
}

const SELECT_TASK: &str = "SELECT seq, task.id, ms - created_uptime, cancelled_at, rollout, target_count, open_count FROM task, uptime WHERE ";

impl Task {
    fn find(connection: &Connection, id: TaskId) -> Tried<Option<Self>> {
        let mut statement = connection.prepare_cached(&format!("{SELECT_TASK} task.id = ?1"))?;
        let mut rows = statement.query([id.as_uuid().as_bytes().as_slice()])?;
        rows.next()?.map(Self::from_row).transpose()
    }

    fn from_row(row: &rusqlite::Row<'_>) -> Tried<Self> {
        Ok(Self {
            seq: row.get(0)?,
            id: tasks::task_id(row.get(1)?),
            age_ms: row.get(2)?,
            cancelled_at: row.get(3)?,
            rollout: tasks::rollout(row, 4)?,
            target_count: row.get(5)?,
            open_count: row.get(6)?,
        })
    }

    fn write(&self, connection: &Connection, rollout: &Rollout) -> Tried<()> {
        connection
            .prepare_cached("UPDATE task SET rollout = ?2 WHERE seq = ?1")?
            .execute((self.seq, to_json(rollout)))?;
        Ok(())
    }

    fn end_unreleased(&self, connection: &Connection, released: u32, outcome: &Outcome, now: Millis) -> Tried<()> {
        outcomes::end_from(connection, self.seq, released, self.target_count, outcome, now)
    }
}

pub(super) fn cancel_task(connection: &Connection, id: TaskId, unreleased: &Outcome, now: Millis) -> Tried<bool> {
    let Some(task) = Task::find(connection, id)? else { return Ok(false) };
    if task.open_count == 0 || task.cancelled_at.is_some() {
        return Ok(false);
    }
    connection.prepare_cached("UPDATE task SET cancelled_at = ?2 WHERE seq = ?1")?.execute((task.seq, now))?;
    if let Some(rollout) = task.rollout.as_ref().filter(|rollout| rollout.state.is_under_way()) {
        let ended = rollout.clone().ended(RolloutState::Cancelled, unreleased.message.clone());
        task.write(connection, &ended)?;
        task.end_unreleased(connection, rollout.released, unreleased, now)?;
    }
    Ok(true)
}

pub(super) fn step(connection: &Connection, id: TaskId, step: &RolloutStep, now: Millis) -> Tried<bool> {
    let Some(task) = Task::find(connection, id)? else { return Ok(false) };
    let Some(before) = &task.rollout else { return Ok(false) };
    let after = &step.rollout;
    let is_allowed = if before.state.is_under_way() {
        task.cancelled_at.is_none() || !after.state.is_under_way()
    } else {
        before.state == after.state
    };
    if !is_allowed {
        return Ok(false);
    }
    task.write(connection, after)?;
    for (index, healthy) in &step.judged {
        connection
            .prepare_cached(
                "INSERT INTO rollout_health (task, idx, healthy) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?
            .execute((task.seq, index, healthy))?;
    }
    if let Some(outcome) = &step.unreleased {
        task.end_unreleased(connection, after.released, outcome, now)?;
    }
    Ok(true)
}

pub(super) fn open(connection: &Connection) -> Tried<Vec<OpenRollout>> {
    let mut statement = connection.prepare_cached(&format!(
        "{SELECT_TASK} rollout IS NOT NULL AND (open_count > 0 OR rollout ->> '$.state' IN ('running', 'paused'))
         ORDER BY created_at, seq"
    ))?;
    let mut rows = statement.query([])?;
    let mut open = Vec::new();
    while let Some(row) = rows.next()? {
        let Task { seq, id, age_ms, cancelled_at, rollout, target_count, .. } = Task::from_row(row)?;
        let Some(rollout) = rollout else { continue };
        let ended = ended(connection, seq)?;
        open.push(OpenRollout {
            task: id,
            age: Duration::from_millis(age_ms.max(0).cast_unsigned()),
            cancelled_at,
            rollout,
            total: target_count,
            ended,
        });
    }
    Ok(open)
}

fn ended(connection: &Connection, task: i64) -> Tried<BTreeMap<u32, FinishedTarget>> {
    let mut statement = connection.prepare_cached(
        "SELECT idx, code IN (?2, ?3), recorded_at, iif(code = ?3, 1, healthy) FROM outcome LEFT JOIN rollout_health USING (task, idx)
         WHERE task = ?1",
    )?;
    let ended = statement.query_map((task, Code::Success.number(), Code::Cordoned.number()), |row| {
        let ended = FinishedTarget { is_success: row.get(1)?, recorded_at: row.get(2)?, healthy: row.get(3)? };
        Ok((row.get(0)?, ended))
    })?;
    Ok(ended.collect::<rusqlite::Result<_>>()?)
}
