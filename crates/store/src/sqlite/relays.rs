//! Relays, known by their keys, and the join tokens that let them in.

use std::net::IpAddr;

use proctor_model::RelayId;
use rusqlite::{Connection, OptionalExtension, Row};

use super::audit;
use super::column::parsed;
use super::enrolment::is_same_secret;
use super::failure::{Failure, Tried};
use super::followers;
use crate::{
    AuditPhase, EnrolRefusal, Millis, REFUSALS_AUDITED_MAX, RelayEnrolment, RelayRecord, RelayToken, RelayTokenRecord,
};

const TOKEN: &str = "SELECT id, secret_hash, uses, expires_at, cloud, used, refused FROM relay_token";
const RELAY: &str = "SELECT id, cloud, fingerprint, enrolled_at, last_seen_at, remote, revoked_at FROM relay";

pub(super) fn put_token(connection: &Connection, token: &RelayToken) -> Tried<()> {
    connection
        .prepare_cached(
            "INSERT INTO relay_token (id, secret_hash, uses, expires_at, cloud) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((&token.id, &token.secret_hash, token.uses, token.expires_at, token.cloud))?;
    Ok(())
}

pub(super) fn tokens(connection: &Connection) -> Tried<Vec<RelayTokenRecord>> {
    let mut statement = connection.prepare_cached(&format!("{TOKEN} ORDER BY expires_at DESC, id"))?;
    let tokens = statement.query_map([], token_record)?;
    Ok(tokens.collect::<rusqlite::Result<_>>()?)
}

fn token_record(row: &Row<'_>) -> rusqlite::Result<RelayTokenRecord> {
    let token = RelayToken {
        id: row.get(0)?,
        secret_hash: row.get(1)?,
        uses: row.get(2)?,
        expires_at: row.get(3)?,
        cloud: row.get(4)?,
    };
    Ok(RelayTokenRecord { token, used: row.get(5)?, refused: row.get(6)? })
}

pub(super) fn delete_token(connection: &Connection, id: &str) -> Tried<bool> {
    Ok(connection.prepare_cached("DELETE FROM relay_token WHERE id = ?1")?.execute([id])? == 1)
}

pub(super) fn knows_token(connection: &Connection, id: &str, secret_hash: &str) -> Tried<bool> {
    Ok(token_of(connection, id, secret_hash)?.is_some())
}

fn token_of(connection: &Connection, id: &str, secret_hash: &str) -> Tried<Option<RelayTokenRecord>> {
    let mut statement = connection.prepare_cached(&format!("{TOKEN} WHERE id = ?1"))?;
    let found = statement.query_row([id], token_record).optional()?;
    Ok(found.filter(|found| is_same_secret(&found.token.secret_hash, secret_hash)))
}

pub(super) fn enrol(
    connection: &Connection,
    enrolment: &RelayEnrolment,
    now: Millis,
) -> Tried<Result<RelayId, EnrolRefusal>> {
    let Some(RelayTokenRecord { token, used, refused }) =
        token_of(connection, &enrolment.token_id, &enrolment.token_secret_hash)?
    else {
        return Ok(Err(EnrolRefusal::UnknownToken));
    };
    let known = by_key(connection, &enrolment.key_fingerprint)?;
    let is_repeated = known.as_ref().is_some_and(|(_, by_token)| *by_token == token.id);
    let known = known.map(|(relay, _)| relay);
    let refusal = if known.as_ref().is_some_and(|relay| relay.revoked_at.is_some()) {
        Some(EnrolRefusal::KeyRevoked)
    } else if token.expires_at <= now {
        Some(EnrolRefusal::Expired)
    } else if token.cloud != enrolment.cloud {
        Some(EnrolRefusal::WrongCloud { allowed: token.cloud })
    } else {
        (used >= token.uses && !is_repeated).then_some(EnrolRefusal::UsedUp)
    };
    let relay = known.as_ref().map_or(&enrolment.relay, |known| &known.id);
    if let Some(refusal) = refusal {
        if refused < REFUSALS_AUDITED_MAX {
            let entry = enrolment.audit_entry(AuditPhase::Refused, relay, refusal.to_string());
            audit::append(connection, entry, now)?;
        }
        connection
            .prepare_cached("UPDATE relay_token SET refused = min(refused + 1, 4294967295) WHERE id = ?1")?
            .execute([&token.id])?;
        return Ok(Err(refusal));
    }
    if !is_repeated {
        connection.prepare_cached("UPDATE relay_token SET used = used + 1 WHERE id = ?1")?.execute([&token.id])?;
    }
    let outcome = if known.is_some() { "known relay, same key" } else { "new relay" };
    audit::append(connection, enrolment.audit_entry(AuditPhase::Done, relay, outcome.to_owned()), now)?;
    followers::forget_relay(connection, relay)?;
    connection
        .prepare_cached(
            "INSERT INTO relay (id, cloud, fingerprint, token, remote, enrolled_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (fingerprint) DO UPDATE SET cloud = excluded.cloud, token = excluded.token,
                                                     enrolled_at = excluded.enrolled_at",
        )?
        .execute((
            relay.as_str(),
            enrolment.cloud,
            &enrolment.key_fingerprint,
            &token.id,
            enrolment.remote.map(|remote| remote.to_string()),
            now,
        ))?;
    Ok(Ok(relay.clone()))
}

/// With the token that it enrolled with.
fn by_key(connection: &Connection, fingerprint: &str) -> Tried<Option<(RelayRecord, String)>> {
    let sql = RELAY.replace(" FROM", ", token FROM");
    let mut statement = connection.prepare_cached(&format!("{sql} WHERE fingerprint = ?1"))?;
    let mut rows = statement.query([fingerprint])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some((relay_record(row)?, row.get(7)?)))
}

fn relay_record(row: &Row<'_>) -> Tried<RelayRecord> {
    let remote: Option<String> = row.get(5)?;
    let remote = remote.map(|remote| remote.parse().map_err(|error| Failure::damaged("address of a relay", error)));
    Ok(RelayRecord {
        id: parsed(row, 0, "relay id")?,
        cloud: row.get(1)?,
        key_fingerprint: row.get(2)?,
        enrolled_at: row.get(3)?,
        last_seen_at: row.get(4)?,
        remote: remote.transpose()?,
        revoked_at: row.get(6)?,
    })
}

pub(super) fn list(connection: &Connection) -> Tried<Vec<RelayRecord>> {
    let mut statement = connection.prepare_cached(&format!("{RELAY} ORDER BY cloud, id"))?;
    let mut rows = statement.query([])?;
    let mut relays = Vec::new();
    while let Some(row) = rows.next()? {
        relays.push(relay_record(row)?);
    }
    Ok(relays)
}

pub(super) fn meet(
    connection: &Connection,
    relay: &RelayId,
    fingerprint: &str,
    remote: Option<IpAddr>,
    now: Millis,
) -> Tried<Option<RelayRecord>> {
    let met = connection
        .prepare_cached(
            "UPDATE relay SET last_seen_at = ?3, remote = coalesce(?4, remote)
             WHERE id = ?1 AND fingerprint = ?2 AND revoked_at IS NULL",
        )?
        .execute((relay.as_str(), fingerprint, now, remote.map(|remote| remote.to_string())))?;
    if met == 0 {
        return Ok(None);
    }
    Ok(by_key(connection, fingerprint)?.map(|(relay, _)| relay))
}

pub(super) fn revoke(connection: &Connection, relay: &RelayId, now: Millis) -> Tried<Option<bool>> {
    let before: Option<Option<Millis>> = connection
        .prepare_cached("SELECT revoked_at FROM relay WHERE id = ?1")?
        .query_row([relay.as_str()], |row| row.get(0))
        .optional()?;
    let Some(before) = before else { return Ok(None) };
    connection
        .prepare_cached("UPDATE relay SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1")?
        .execute((relay.as_str(), now))?;
    followers::forget_relay(connection, relay)?;
    Ok(Some(before.is_none()))
}
