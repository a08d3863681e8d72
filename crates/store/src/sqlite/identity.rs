//! Which key may speak for a host: sessions, revocation, removal, and leave to rejoin.

use proctor_model::{AgentId, HostKey};
use rusqlite::{Connection, OptionalExtension};

use super::column::{counter, host_key, parsed, signed, to_json};
use super::failure::Tried;
use crate::{HostRemoval, Millis, SessionOpening, SessionRefusal};

/// A key that was replaced or revoked, and state that is older than what was settled, open nothing. One
/// leave to rejoin lets older state in, and is used up by it.
pub(super) fn open_session(
    connection: &Connection,
    opening: &SessionOpening,
    now: Millis,
) -> Tried<Result<u64, SessionRefusal>> {
    let agent = &opening.agent;
    let mut statement = connection.prepare_cached(
        "SELECT id, fingerprint = ?2, revoked_at IS NOT NULL, settled_epoch, coalesce(rejoin_until > ?3, 0),
                awaits_approval, cloud, supplier, ip
         FROM host WHERE agent = ?1",
    )?;
    let mut rows = statement.query((agent.as_str(), &opening.key_fingerprint, now))?;
    let Some(row) = rows.next()? else {
        return Ok(Err(SessionRefusal::Unbound { agent: agent.clone() }));
    };
    let (id, is_key, is_revoked, may_rejoin): (i64, bool, bool, bool) =
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(4)?);
    let settled = counter(row, 3)?;
    if !is_key {
        return Ok(Err(SessionRefusal::KeyReplaced { agent: agent.clone() }));
    }
    if is_revoked {
        return Ok(Err(SessionRefusal::Revoked { agent: agent.clone() }));
    }
    let of_host: u32 = row.get(6)?;
    if let Some(cloud) = opening.relay_cloud.filter(|cloud| *cloud != of_host) {
        return Ok(Err(SessionRefusal::OtherArea { agent: agent.clone(), of_host, cloud }));
    }
    if row.get(5)? {
        let refusal = SessionRefusal::AwaitsApproval { host: host_key(row, 6)? };
        // By these an operator tells what to approve.
        connection
            .prepare_cached("UPDATE host SET facts = ?2 WHERE id = ?1 AND facts <> ?2")?
            .execute((id, to_json(&opening.facts)))?;
        return Ok(Err(refusal));
    }
    let is_stale = opening.seen_epoch.is_some_and(|seen| seen < settled);
    if is_stale && !may_rejoin {
        return Ok(Err(SessionRefusal::StaleState { agent: agent.clone() }));
    }
    let epoch: i64 = connection
        .prepare_cached(
            "UPDATE host SET epoch = epoch + 1, online = 1, facts = ?2,
                    presence_changed_at = iif(online, presence_changed_at, ?3),
                    rejoin_until = iif(?4, NULL, rejoin_until), relayed = ?5, untold = 0
             WHERE id = ?1 RETURNING epoch",
        )?
        .query_row((id, to_json(&opening.facts), now, is_stale, opening.relay_cloud.is_some()), |row| row.get(0))?;
    Ok(Ok(epoch.cast_unsigned()))
}

pub(super) fn settle_session(connection: &Connection, agent: &AgentId, epoch: u64) -> Tried<bool> {
    let settled = connection
        .prepare_cached("UPDATE host SET settled_epoch = ?2 WHERE agent = ?1 AND epoch = ?2")?
        .execute((agent.as_str(), signed(epoch)))?;
    Ok(settled == 1)
}

/// Also for a host whose agent has left it.
pub(super) fn allow_rejoin(connection: &Connection, host: &HostKey, until: Option<Millis>) -> Tried<bool> {
    let allowed = connection
        .prepare_cached("UPDATE host SET rejoin_until = ?3 WHERE cloud = ?1 AND ip = ?2")?
        .execute((host.cloud, host.ip.to_string(), until))?;
    Ok(allowed == 1)
}

/// The key is revoked on every host that it serves or once served, with or without an agent.
pub(super) fn revoke(connection: &Connection, host: &HostKey, now: Millis) -> Tried<Option<Vec<(AgentId, u64)>>> {
    let key: Option<String> = connection
        .prepare_cached("SELECT fingerprint FROM host WHERE cloud = ?1 AND ip = ?2")?
        .query_row((host.cloud, host.ip.to_string()), |row| row.get(0))
        .optional()?;
    let Some(key) = key else { return Ok(None) };
    connection
        .prepare_cached("INSERT INTO revoked_key (fingerprint, revoked_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute((&key, now))?;
    let mut statement = connection.prepare_cached(
        "UPDATE host SET revoked_at = coalesce(revoked_at, ?2), rejoin_until = NULL, epoch = epoch + 1, online = 0,
                presence_changed_at = iif(online, ?2, presence_changed_at)
         WHERE fingerprint = ?1 RETURNING agent, epoch, agent IS NOT NULL",
    )?;
    let mut rows = statement.query((&key, now))?;
    let mut revoked = Vec::new();
    while let Some(row) = rows.next()? {
        if row.get(2)? {
            revoked.push((parsed(row, 0, "agent id")?, counter(row, 1)?));
        }
    }
    Ok(Some(revoked))
}

/// Whether the key was ever revoked, on whatever host.
pub(super) fn is_revoked(connection: &Connection, key_fingerprint: &str) -> Tried<bool> {
    Ok(connection.prepare_cached("SELECT 1 FROM revoked_key WHERE fingerprint = ?1")?.exists([key_fingerprint])?)
}

/// What is removed of a host in one go, with the revisions of each process: some milliseconds of the writer.
const SLICE_ROWS: u32 = 200;

/// The first step of a removal: the host has no agent any more and opens to no key.
pub(super) fn begin_removal(connection: &Connection, host: &HostKey) -> Tried<Option<HostRemoval>> {
    let mut statement =
        connection.prepare_cached("SELECT id, agent, agent IS NOT NULL FROM host WHERE cloud = ?1 AND ip = ?2")?;
    let mut rows = statement.query((host.cloud, host.ip.to_string()))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let row_id: i64 = row.get(0)?;
    let agent = if row.get(2)? { Some(parsed(row, 1, "agent id")?) } else { None };
    connection
        .prepare_cached(
            "UPDATE host SET agent = NULL, alias = NULL, online = 0, rejoin_until = NULL,
                    fingerprint = 'removed ' || id, epoch = epoch + 1
             WHERE id = ?1",
        )?
        .execute([row_id])?;
    Ok(Some(HostRemoval { agent, row: row_id }))
}

/// The next step; whether it was the last.
pub(super) fn remove_slice(connection: &Connection, id: i64) -> Tried<bool> {
    // An agent that was let in meanwhile keeps what is left.
    if !connection.prepare_cached("SELECT 1 FROM host WHERE id = ?1 AND agent IS NULL")?.exists([id])? {
        return Ok(true);
    }
    for delete in [
        "DELETE FROM process WHERE id IN (SELECT id FROM process WHERE host = ?1 LIMIT ?2)",
        "DELETE FROM pool WHERE (namespace, id, host) IN (SELECT namespace, id, host FROM pool WHERE host = ?1 LIMIT ?2)",
    ] {
        if connection.prepare_cached(delete)?.execute((id, SLICE_ROWS))? > 0 {
            return Ok(false);
        }
    }
    connection.prepare_cached("DELETE FROM host WHERE id = ?1")?.execute([id])?;
    Ok(true)
}
