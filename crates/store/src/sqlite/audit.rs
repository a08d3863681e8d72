//! The audit log: one row per entry, chained inside the writer's transaction.

use rusqlite::{Connection, OptionalExtension, Row};

use super::column::{counter, from_json, parsed, signed, to_json};
use super::failure::{Failure, Tried};
use super::retention;
use super::where_clause::WhereClause;
use crate::audit::{AuditDraft, AuditEntry, AuditQuery};
use crate::{AuditAnchor, Millis};

/// Nobody can write between the newest entry and this one: there is only one write transaction at a time, even if a
/// second process has the file open.
pub(super) fn append(connection: &Connection, draft: AuditDraft, now: Millis) -> Tried<u64> {
    let AuditAnchor { seq, hash } = retention::newest_audit(connection)?;
    let entry = AuditEntry::new(seq + 1, now, draft.bounded(), hash);
    insert(connection, &entry)?;
    Ok(entry.seq)
}

pub(super) fn newest(connection: &Connection) -> Tried<Option<AuditAnchor>> {
    let newest = connection
        .prepare_cached("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))
        .optional()?;
    Ok(newest.map(|(seq, hash)| AuditAnchor { seq: seq.cast_unsigned(), hash }))
}

fn insert(connection: &Connection, entry: &AuditEntry) -> Tried<()> {
    let draft = &entry.draft;
    connection
        .prepare_cached(
            "INSERT INTO audit (seq, at, phase, of_seq, app, user, remote, request_id, action, classes, target_count,
                                targets, outcome, prev_hash, hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?
        .execute((
            signed(entry.seq),
            entry.at,
            draft.phase.as_str(),
            draft.of.map(signed),
            &draft.app,
            &draft.user,
            draft.remote.map(|remote| remote.to_string()),
            &draft.request_id,
            &draft.action,
            to_json(&draft.classes),
            signed(draft.target_count),
            to_json(&draft.targets),
            &draft.outcome,
            entry.prev_hash.as_slice(),
            entry.hash.as_slice(),
        ))?;
    Ok(())
}

pub(super) fn list(connection: &Connection, query: &AuditQuery) -> Tried<Vec<AuditEntry>> {
    let mut narrowed = WhereClause::default();
    narrowed.by("seq > ?", signed(query.after));
    narrowed.by_some("seq < ?", query.before.map(signed));
    narrowed.by_some("app = ?", query.app.clone());
    narrowed.by_some("user = ?", query.user.clone());
    narrowed.by_some("action = ?", query.action.clone());
    narrowed.by_some("at >= ?", query.since);
    narrowed.by_some("at < ?", query.until);
    let order = if query.newest { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT seq, at, phase, of_seq, app, user, remote, request_id, action, classes, target_count, targets,
                outcome, prev_hash, hash
         FROM audit WHERE {} ORDER BY seq {order} LIMIT ?",
        narrowed.conditions()
    );
    let mut entries = narrowed.read(connection, &sql, query.limit, entry)?;
    if query.newest {
        entries.reverse();
    }
    Ok(entries)
}

fn entry(row: &Row<'_>) -> Tried<AuditEntry> {
    let text = |column| row.get_ref(column)?.as_str().map_err(|error| Failure::damaged("audit entry", error));
    let remote: Option<String> = row.get(6)?;
    let remote = remote.map(|remote| remote.parse().map_err(|error| Failure::damaged("audit entry", error)));
    let draft = AuditDraft {
        phase: parsed(row, 2, "audit entry")?,
        of: row.get::<_, Option<i64>>(3)?.map(i64::cast_unsigned),
        app: row.get(4)?,
        user: row.get(5)?,
        remote: remote.transpose()?,
        request_id: row.get(7)?,
        action: row.get(8)?,
        classes: from_json("audit entry", text(9)?)?,
        target_count: counter(row, 10)?,
        targets: from_json("audit entry", text(11)?)?,
        outcome: row.get(12)?,
    };
    Ok(AuditEntry { seq: counter(row, 0)?, at: row.get(1)?, draft, prev_hash: row.get(13)?, hash: row.get(14)? })
}
