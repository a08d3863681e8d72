//! Prunes old rows in slices, so that the writer is never held for long.

use proctor_model::AgentId;
use rusqlite::{Connection, OptionalExtension};

use super::column::{counter, signed};
use super::failure::Tried;
use super::{audit, identity};
use crate::audit::FIRST_HASH;
use crate::{AuditAnchor, Millis, Prune, TableSize, UPGRADES_KEPT_MAX, Uptime};

/// Rows deleted per step: a few milliseconds of the writer.
const SLICE_ROWS: u32 = 1000;
/// Chunks of a task's targets deleted per step: some hundred kilobytes each.
const SLICE_CHUNKS: u32 = 10;
/// Specs searched for at a time: that reads every task.
const SPECS_FOUND_MAX: u32 = 1000;
/// How many of these are deleted per step.
pub(super) const SLICE_SPECS: usize = 100;
/// Distance between marks, so that keeping something for a year takes a few thousand of them.
const MARK_EVERY: Uptime = 3_600_000;
/// Marks older than anything that is kept are useless.
const MARKS_KEPT: Uptime = 10 * 365 * 24 * 3_600_000;

pub(super) fn uptime(connection: &Connection) -> Tried<Uptime> {
    Ok(connection.prepare_cached("SELECT ms FROM uptime")?.query_row([], |row| row.get(0))?)
}

pub(super) fn advance(connection: &Connection, by: Uptime) -> Tried<Uptime> {
    connection.prepare_cached("UPDATE uptime SET ms = ms + ?1")?.execute([by.max(0)])?;
    let now = uptime(connection)?;
    connection
        .prepare_cached(
            "INSERT INTO uptime_mark (ms, event, audit, generation)
             SELECT ?1, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0),
                    max((SELECT coalesce(max(seq), 0) FROM audit), (SELECT seq FROM audit_anchor)),
                    (SELECT newest FROM generation)
             WHERE NOT EXISTS (SELECT 1 FROM uptime_mark WHERE ms > ?1 - ?2)",
        )?
        .execute((now, MARK_EVERY))?;
    connection.prepare_cached("DELETE FROM uptime_mark WHERE ms < ?1")?.execute([now - MARKS_KEPT])?;
    Ok(now)
}

/// The newest number in `column` that already existed then.
fn newest_before(connection: &Connection, column: &str, before: Uptime) -> Tried<i64> {
    let sql = format!("SELECT {column} FROM uptime_mark WHERE ms < ?1 ORDER BY ms DESC LIMIT 1");
    let newest = connection.prepare_cached(&sql)?.query_row([before], |row| row.get(0)).optional()?;
    Ok(newest.unwrap_or(0))
}

pub(super) fn audit_before(connection: &Connection, before: Uptime) -> Tried<u64> {
    Ok(newest_before(connection, "audit", before)?.cast_unsigned())
}

/// One slice, except of specs and nonces; returns how many rows were deleted.
pub(super) fn prune(connection: &Connection, what: Prune) -> Tried<u64> {
    match what {
        Prune::Tasks { before } => tasks(connection, FORGET_TASKS, before),
        Prune::BriefTasks { before } => tasks(connection, FORGET_BRIEF_TASKS, before),
        Prune::Events { before, keep } => events(connection, before, keep),
        Prune::RemovedHosts => identity::remove_any_slice(connection),
        Prune::Upgrades => upgrades(connection),
        Prune::Tombstones { before } => tombstones(connection, before),
        Prune::Tokens { before, now } => tokens(connection, before, now),
        Prune::Specs { .. } | Prune::Nonces { .. } => Ok(0), // found by a reader first
        Prune::Audit { through } => audit_entries(connection, through),
    }
}

const FORGET_TASKS: &str = "UPDATE task SET forgotten = 1, finished_uptime = NULL WHERE seq IN
    (SELECT seq FROM task WHERE finished_uptime < ?1 ORDER BY finished_uptime LIMIT ?2)";
const FORGET_BRIEF_TASKS: &str = r#"UPDATE task SET forgotten = 1, finished_uptime = NULL WHERE seq IN
    (SELECT seq FROM task WHERE (kinds = '["status"]' OR reached_nothing = 1) AND finished_uptime < ?1
     ORDER BY finished_uptime LIMIT ?2)"#;

/// First they become unreadable, then their rows are deleted.
fn tasks(connection: &Connection, forget: &str, before: Uptime) -> Tried<u64> {
    let forgotten: Option<i64> = connection
        .prepare_cached("SELECT seq FROM task WHERE forgotten = 1 ORDER BY seq LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(task) = forgotten else { return forget_tasks(connection, forget, before) };
    for rows in ["outcome", "rollout_health"] {
        let sql = format!(
            "DELETE FROM {rows} WHERE task = ?1 AND idx IN (SELECT idx FROM {rows} WHERE task = ?1 ORDER BY idx LIMIT ?2)"
        );
        let deleted = connection.prepare_cached(&sql)?.execute((task, SLICE_ROWS))?;
        if deleted > 0 {
            return Ok(deleted as u64);
        }
    }
    let deleted = connection
        .prepare_cached(
            "DELETE FROM task_process WHERE (namespace, name, task) IN
                 (SELECT namespace, name, task FROM task_process WHERE task = ?1 LIMIT ?2)",
        )?
        .execute((task, SLICE_ROWS))?;
    if deleted > 0 {
        return Ok(deleted as u64);
    }
    let deleted = connection
        .prepare_cached(
            "DELETE FROM task_chunk WHERE task = ?1 AND first_index IN
                 (SELECT first_index FROM task_chunk WHERE task = ?1 ORDER BY first_index LIMIT ?2)",
        )?
        .execute((task, SLICE_CHUNKS))?;
    if deleted > 0 {
        return Ok(deleted as u64);
    }
    Ok(connection.prepare_cached("DELETE FROM task WHERE seq = ?1")?.execute([task])? as u64)
}

fn forget_tasks(connection: &Connection, forget: &str, before: Uptime) -> Tried<u64> {
    let marked = connection.prepare_cached(forget)?.execute((before, SLICE_ROWS))?;
    if marked > 0 {
        connection
            .prepare_cached("DELETE FROM idempotency WHERE task IN (SELECT seq FROM task WHERE forgotten = 1)")?
            .execute([])?;
    }
    Ok(marked as u64)
}

/// Scans only what it deletes: ids rise with time.
fn events(connection: &Connection, before: Uptime, keep: u64) -> Tried<u64> {
    let by_age = newest_before(connection, "event", before)?;
    let deleted = connection
        .prepare_cached("DELETE FROM event WHERE id IN (SELECT id FROM event WHERE id <= ?1 ORDER BY id LIMIT ?2)")?
        .execute((by_age, SLICE_ROWS))?;
    if deleted > 0 { Ok(deleted as u64) } else { events_beyond(connection, keep) }
}

/// If there are more than `keep`, some agent has more than its share: the mean is above it.
fn events_beyond(connection: &Connection, keep: u64) -> Tried<u64> {
    let (all, agents) = connection
        .prepare_cached("SELECT coalesce(sum(events), 0), count(*) FROM event_count")?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned())))?;
    let mut left = all.saturating_sub(keep).min(u64::from(SLICE_ROWS));
    if left == 0 {
        return Ok(0);
    }
    let share = keep / agents.max(1);
    let mut deleted = 0;
    for (agent, events) in largest_beyond(connection, share)? {
        let rows = connection
            .prepare_cached(
                "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE agent = ?1 ORDER BY id LIMIT ?2)",
            )?
            .execute((agent, signed(left.min(events - share))))? as u64;
        deleted += rows;
        left = left.saturating_sub(rows);
        if left == 0 {
            break;
        }
    }
    Ok(deleted)
}

/// Agents with more than `share` events, with how many they have.
fn largest_beyond(connection: &Connection, share: u64) -> Tried<Vec<(String, u64)>> {
    let mut statement = connection.prepare_cached(
        "SELECT agent, events FROM event_count WHERE events > ?1 ORDER BY events DESC, agent LIMIT ?2",
    )?;
    let agents = statement
        .query_map((signed(share), SLICE_ROWS), |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))?;
    Ok(agents.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn note_generations(connection: &Connection, seen: &[(AgentId, u64)]) -> Tried<()> {
    let mut statement =
        connection.prepare_cached("UPDATE host SET seen_generation = ?2 WHERE agent = ?1 AND seen_generation <> ?2")?;
    for (agent, generation) in seen {
        statement.execute((agent.as_str(), signed(*generation)))?;
    }
    Ok(())
}

/// An agent that was not told about a tombstone would keep the process alive, so the tombstone stays. The host
/// records the newest one that was deleted, in case its agent comes back from an older snapshot.
fn tombstones(connection: &Connection, before: Uptime) -> Tried<u64> {
    let newest = newest_before(connection, "generation", before)?;
    // CROSS JOIN: the tombstones come first, by their index.
    let of_processes = "DELETE FROM process WHERE id IN
             (SELECT process.id FROM process CROSS JOIN host ON host.id = process.host
              WHERE spec IS NULL AND generation <= ?1 AND generation <= seen_generation LIMIT ?2)
         RETURNING host, generation";
    let deleted = delete_tombstones(connection, of_processes, newest)?;
    if deleted > 0 {
        return Ok(deleted);
    }
    let of_pools = "DELETE FROM pool WHERE (namespace, id, host) IN
             (SELECT pool.namespace, pool.id, pool.host FROM pool CROSS JOIN host ON host.id = pool.host
              WHERE deleted AND generation <= ?1 AND generation <= seen_generation LIMIT ?2)
         RETURNING host, generation";
    delete_tombstones(connection, of_pools, newest)
}

fn delete_tombstones(connection: &Connection, delete: &str, newest: i64) -> Tried<u64> {
    let mut statement = connection.prepare_cached(delete)?;
    let deleted: Vec<(i64, i64)> = statement
        .query_map((newest, SLICE_ROWS), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut note = connection.prepare_cached(
        "UPDATE host SET pruned_generation = max(pruned_generation, ?2) WHERE id = ?1 AND pruned_generation < ?2",
    )?;
    for (host, generation) in &deleted {
        note.execute((host, generation))?;
    }
    Ok(deleted.len() as u64)
}

/// Records which tokens have expired. One that is valid again (the clock was set back) starts over.
fn tokens(connection: &Connection, before: Uptime, now: Millis) -> Tried<u64> {
    let uptime = uptime(connection)?;
    let mut deleted = 0;
    for (table, is_over) in [
        ("token", "(expires_at <= ?1 OR used >= uses)"),
        ("relay_token", "(expires_at <= ?1 OR used >= uses)"),
        ("user_token", "(expires_at IS NOT NULL AND expires_at <= ?1)"),
    ] {
        let note = format!(
            "UPDATE {table} SET ended_uptime = iif({is_over}, ?2, NULL) WHERE {is_over} <> (ended_uptime IS NOT NULL)"
        );
        connection.prepare_cached(&note)?.execute((now, uptime))?;
        let delete = format!(
            "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {is_over} AND ended_uptime < ?2 LIMIT ?3)"
        );
        deleted += connection.prepare_cached(&delete)?.execute((now, before, SLICE_ROWS))?;
    }
    Ok(deleted as u64)
}

/// Unreferenced specs. Reads every task: not for the writer.
pub(super) fn unused_specs(connection: &Connection, before: Uptime) -> Tried<Vec<i64>> {
    let mut statement = connection.prepare_cached(
        "WITH used (id) AS (
             SELECT spec FROM process WHERE spec IS NOT NULL
             UNION SELECT spec FROM spec_revision WHERE spec IS NOT NULL
             UNION SELECT spec.id FROM task, json_each(task.items) AS item
                   JOIN spec ON spec.hash = item.value ->> '$.spec'
         )
         SELECT id FROM spec WHERE used_uptime < ?1 AND id NOT IN used ORDER BY id LIMIT ?2",
    )?;
    let ids = statement.query_map((before, SPECS_FOUND_MAX), |row| row.get(0))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// Deletes some that [`unused_specs`] found. Whoever refers to one since has also noted its use.
pub(super) fn delete_specs(connection: &Connection, ids: &[i64], before: Uptime) -> Tried<u64> {
    let mut statement = connection.prepare_cached("DELETE FROM spec WHERE id = ?1 AND used_uptime < ?2")?;
    let mut deleted = 0;
    for id in ids {
        deleted += statement.execute((id, before))?;
    }
    Ok(deleted as u64)
}

/// Those that are over, beyond the newest: their hosts first.
fn upgrades(connection: &Connection) -> Tried<u64> {
    let oldest: Option<i64> = connection
        .prepare_cached("SELECT min(seq) FROM upgrade HAVING count(*) > ?1")?
        .query_row([UPGRADES_KEPT_MAX], |row| row.get(0))
        .optional()?;
    let Some(upgrade) = oldest else { return Ok(0) };
    let deleted = connection
        .prepare_cached(
            "DELETE FROM upgrade_host WHERE upgrade = ?1 AND agent IN
                 (SELECT agent FROM upgrade_host WHERE upgrade = ?1 ORDER BY agent LIMIT ?2)",
        )?
        .execute((upgrade, SLICE_ROWS))?;
    if deleted > 0 {
        return Ok(deleted as u64);
    }
    Ok(connection.prepare_cached("DELETE FROM upgrade WHERE seq = ?1")?.execute([upgrade])? as u64)
}

/// Notes that a spec is used now.
pub(super) fn use_spec(connection: &Connection, id: i64) -> Tried<()> {
    connection
        .prepare_cached("UPDATE spec SET used_uptime = ms FROM uptime WHERE spec.id = ?1 AND used_uptime < ms - ?2")?
        .execute((id, MARK_EVERY))?;
    Ok(())
}

pub(super) fn anchor(connection: &Connection) -> Tried<AuditAnchor> {
    let mut statement = connection.prepare_cached("SELECT seq, hash FROM audit_anchor")?;
    let mut rows = statement.query([])?;
    match rows.next()? {
        Some(row) => Ok(AuditAnchor { seq: counter(row, 0)?, hash: row.get(1)? }),
        None => Ok(AuditAnchor { seq: 0, hash: FIRST_HASH }),
    }
}

/// The anchor moves with every slice, so the rest is a complete chain at any time.
fn audit_entries(connection: &Connection, through: u64) -> Tried<u64> {
    let last: Option<(i64, [u8; 32])> = connection
        .prepare_cached("SELECT seq, hash FROM audit WHERE seq <= min(?1, (SELECT seq FROM audit_anchor) + ?2) ORDER BY seq DESC LIMIT 1")?
        .query_row((signed(through), SLICE_ROWS), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((seq, hash)) = last else { return Ok(0) };
    connection.prepare_cached("UPDATE audit_anchor SET seq = ?1, hash = ?2")?.execute((seq, hash.as_slice()))?;
    Ok(connection.prepare_cached("DELETE FROM audit WHERE seq <= ?1")?.execute([seq])? as u64)
}

/// The newest entry, or where the log begins.
pub(super) fn newest_audit(connection: &Connection) -> Tried<AuditAnchor> {
    match audit::newest(connection)? {
        Some(newest) => Ok(newest),
        None => anchor(connection),
    }
}

/// Reads the whole file.
pub(super) fn sizes(connection: &Connection) -> Tried<Vec<TableSize>> {
    let mut statement = connection.prepare_cached(
        "SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_schema USING (name)
         WHERE aggregate = TRUE GROUP BY tbl_name ORDER BY 2 DESC, 1",
    )?;
    let mut rows = statement.query([])?;
    let mut sizes = Vec::new();
    while let Some(row) = rows.next()? {
        let table: String = row.get(0)?;
        let sql = format!("SELECT count(*) FROM \"{table}\"");
        let count: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
        sizes.push(TableSize { table, rows: count.cast_unsigned(), bytes: counter(row, 1)? });
    }
    Ok(sizes)
}
