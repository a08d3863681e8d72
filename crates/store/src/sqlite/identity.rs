//! Which key may speak for a host: sessions, revocation, removal, and permission to rejoin.

use proctor_model::{AgentId, Classes, HostKey};
use rusqlite::{Connection, OptionalExtension};

use super::audit;
use super::column::{counter, host_key, parsed, signed, to_json};
use super::failure::Tried;
use super::followers;
use crate::{
    AuditDraft, AuditPhase, ENROLMENT_ACTOR, HostRemoval, Millis, ReturnRequest, SessionOpening, SessionRefusal,
};

/// A replaced or revoked key, and state that is older than what was settled, open nothing. A permission to rejoin
/// admits older state once.
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
        // An operator identifies what to approve by these.
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
                    rejoin_until = iif(?4, NULL, rejoin_until), relayed = ?5, untold = 0, returning_since = NULL,
                    return_until = NULL
             WHERE id = ?1 RETURNING epoch",
        )?
        .query_row((id, to_json(&opening.facts), now, is_stale, opening.relay_cloud.is_some()), |row| row.get(0))?;
    Ok(Ok(epoch.cast_unsigned()))
}

/// How long a lost answer may be requested again.
const ASK_AGAIN_MS: Millis = 15 * 60 * 1000;

/// A replaced or revoked key never comes back; nor does one before an operator has approved it.
pub(super) fn let_back(
    connection: &Connection,
    request: &ReturnRequest,
    now: Millis,
) -> Tried<Result<(), SessionRefusal>> {
    let ReturnRequest { agent, key_fingerprint, is_valid, is_served, remote } = request;
    let mut statement = connection.prepare_cached(
        "SELECT id, fingerprint = ?2, revoked_at IS NOT NULL, awaits_approval, returning_since IS NOT NULL,
                coalesce(return_until > ?3, 0), cloud, supplier, ip
         FROM host WHERE agent = ?1",
    )?;
    let mut rows = statement.query((agent.as_str(), key_fingerprint, now))?;
    let Some(row) = rows.next()? else {
        return Ok(Err(SessionRefusal::Unbound { agent: agent.clone() }));
    };
    let (id, host): (i64, HostKey) = (row.get(0)?, host_key(row, 6)?);
    let (is_key, is_revoked, awaits_approval): (bool, bool, bool) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let (was_waiting, may_return): (bool, bool) = (row.get(4)?, row.get(5)?);
    if !is_key {
        return Ok(Err(SessionRefusal::KeyReplaced { agent: agent.clone() }));
    }
    if is_revoked || self::is_revoked(connection, key_fingerprint)? {
        return Ok(Err(SessionRefusal::Revoked { agent: agent.clone() }));
    }
    if awaits_approval {
        return Ok(Err(SessionRefusal::AwaitsApproval { host }));
    }
    if *is_valid {
        return Ok(Ok(()));
    }
    // The host is served: this is an old copy of its state, and there is nothing to approve.
    if *is_served {
        return Ok(Err(SessionRefusal::CertificateExpired { host }));
    }
    let entry = |phase, outcome: &str| AuditDraft {
        phase,
        of: None,
        app: ENROLMENT_ACTOR.to_owned(),
        user: format!("agent {agent}"),
        remote: *remote,
        request_id: String::new(),
        action: "return_host".to_owned(),
        classes: Classes::default(),
        target_count: 1,
        targets: vec![format!("host {host} agent {agent} key {key_fingerprint}")],
        outcome: outcome.to_owned(),
    };
    if may_return {
        if was_waiting {
            audit::append(connection, entry(AuditPhase::Done, "expired certificate replaced"), now)?;
            use_leave(connection, id, now)?;
        }
        return Ok(Ok(()));
    }
    if !was_waiting {
        audit::append(connection, entry(AuditPhase::Refused, "its certificate has expired; it awaits approval"), now)?;
    }
    connection
        .prepare_cached(
            "UPDATE host SET returning_since = coalesce(returning_since, ?2), return_until = NULL
             WHERE id = ?1 AND (returning_since IS NULL OR return_until IS NOT NULL)",
        )?
        .execute((id, now))?;
    Ok(Err(SessionRefusal::CertificateExpired { host }))
}

fn use_leave(connection: &Connection, id: i64, now: Millis) -> Tried<()> {
    connection
        .prepare_cached("UPDATE host SET returning_since = NULL, return_until = min(return_until, ?2) WHERE id = ?1")?
        .execute((id, now + ASK_AGAIN_MS))?;
    Ok(())
}

pub(super) fn settle_session(connection: &Connection, agent: &AgentId, epoch: u64) -> Tried<bool> {
    let settled = connection
        .prepare_cached("UPDATE host SET settled_epoch = ?2 WHERE agent = ?1 AND epoch = ?2")?
        .execute((agent.as_str(), signed(epoch)))?;
    Ok(settled == 1)
}

/// Also for a host whose agent has moved away.
pub(super) fn allow_rejoin(connection: &Connection, host: &HostKey, until: Option<Millis>) -> Tried<bool> {
    let allowed = connection
        .prepare_cached("UPDATE host SET rejoin_until = ?3 WHERE cloud = ?1 AND ip = ?2")?
        .execute((host.cloud, host.ip.to_string(), until))?;
    Ok(allowed == 1)
}

/// The key is revoked on every host that it serves or ever served, with or without an agent.
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
        "UPDATE host SET revoked_at = coalesce(revoked_at, ?2), rejoin_until = NULL, returning_since = NULL,
                return_until = NULL, epoch = epoch + 1, online = 0,
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
    for (agent, _) in &revoked {
        followers::forget_agent(connection, agent)?;
    }
    Ok(Some(revoked))
}

/// Whether the key was ever revoked, on any host.
pub(super) fn is_revoked(connection: &Connection, key_fingerprint: &str) -> Tried<bool> {
    Ok(connection.prepare_cached("SELECT 1 FROM revoked_key WHERE fingerprint = ?1")?.exists([key_fingerprint])?)
}

/// Processes removed per step, with their revisions: a few milliseconds of the writer.
const SLICE_ROWS: u32 = 200;

/// Matches the rows whose removal has begun.
pub(super) const IS_REMOVED: &str = "agent IS NULL AND fingerprint = 'removed ' || id";

/// The first step of a removal: the host has no agent, no key opens it, and it has no address, so that whoever
/// enrols there finds nothing of it.
pub(super) fn begin_removal(connection: &Connection, host: &HostKey) -> Tried<Option<HostRemoval>> {
    let mut statement =
        connection.prepare_cached("SELECT id, agent, agent IS NOT NULL FROM host WHERE cloud = ?1 AND ip = ?2")?;
    let mut rows = statement.query((host.cloud, host.ip.to_string()))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let row_id: i64 = row.get(0)?;
    let agent: Option<AgentId> = if row.get(2)? { Some(parsed(row, 1, "agent id")?) } else { None };
    if let Some(agent) = &agent {
        followers::forget_agent(connection, agent)?;
    }
    connection
        .prepare_cached(
            "UPDATE host SET agent = NULL, alias = NULL, online = 0, rejoin_until = NULL,
                    fingerprint = 'removed ' || id, ip = 'removed ' || id, epoch = epoch + 1
             WHERE id = ?1",
        )?
        .execute([row_id])?;
    Ok(Some(HostRemoval { agent, row: row_id }))
}

/// Earlier versions kept the address of a host until its removal was finished.
pub(super) fn give_up_address(connection: &Connection, host: &HostKey) -> Tried<()> {
    let sql = format!("UPDATE host SET ip = 'removed ' || id WHERE cloud = ?1 AND ip = ?2 AND {IS_REMOVED}");
    connection.prepare_cached(&sql)?.execute((host.cloud, host.ip.to_string()))?;
    Ok(())
}

/// A slice of any removal that has begun; returns how many rows were deleted.
pub(super) fn remove_any_slice(connection: &Connection) -> Tried<u64> {
    let sql = format!("SELECT id FROM host WHERE {IS_REMOVED} LIMIT 1");
    let id: Option<i64> = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0)).optional()?;
    id.map_or(Ok(0), |id| remove_slice(connection, id))
}

/// The next step; returns how many rows were deleted, 0 after the last.
pub(super) fn remove_slice(connection: &Connection, id: i64) -> Tried<u64> {
    if !connection.prepare_cached(&format!("SELECT 1 FROM host WHERE id = ?1 AND {IS_REMOVED}"))?.exists([id])? {
        return Ok(0);
    }
    for delete in [
        "DELETE FROM process WHERE id IN (SELECT id FROM process WHERE host = ?1 LIMIT ?2)",
        "DELETE FROM pool WHERE (namespace, id, host) IN (SELECT namespace, id, host FROM pool WHERE host = ?1 LIMIT ?2)",
    ] {
        let deleted = connection.prepare_cached(delete)?.execute((id, SLICE_ROWS))?;
        if deleted > 0 {
            return Ok(deleted as u64);
        }
    }
    Ok(connection.prepare_cached("DELETE FROM host WHERE id = ?1")?.execute([id])? as u64)
}
