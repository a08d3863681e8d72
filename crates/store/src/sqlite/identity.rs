//! Which key may speak for a host: sessions, revocation, removal, and leave to rejoin.

use proctor_model::{AgentId, HostKey};
use rusqlite::{Connection, OptionalExtension};

use super::column::{counter, host_key, parsed, signed, to_json};
use super::failure::Tried;
use crate::{Millis, SessionOpening, SessionRefusal};

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

pub(super) fn revoke(connection: &Connection, host: &HostKey, now: Millis) -> Tried<Option<(AgentId, u64)>> {
    let mut statement = connection.prepare_cached(
        "UPDATE host SET revoked_at = coalesce(revoked_at, ?3), rejoin_until = NULL, epoch = epoch + 1, online = 0,
                presence_changed_at = iif(online, ?3, presence_changed_at)
         WHERE cloud = ?1 AND ip = ?2 AND agent IS NOT NULL RETURNING agent, epoch",
    )?;
    let mut rows = statement.query((host.cloud, host.ip.to_string(), now))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some((parsed(row, 0, "agent id")?, counter(row, 1)?)))
}

pub(super) fn remove(connection: &Connection, host: &HostKey) -> Tried<Option<AgentId>> {
    let found = connection
        .prepare_cached("SELECT id, agent FROM host WHERE cloud = ?1 AND ip = ?2 AND agent IS NOT NULL")?
        .query_row((host.cloud, host.ip.to_string()), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    let Some((id, agent)) = found else { return Ok(None) };
    for delete in
        ["DELETE FROM process WHERE host = ?1", "DELETE FROM pool WHERE host = ?1", "DELETE FROM host WHERE id = ?1"]
    {
        connection.prepare_cached(delete)?.execute([id])?;
    }
    let agent = agent.parse().map_err(|error| super::failure::Failure::damaged("agent id", error))?;
    Ok(Some(agent))
}
