//! Join tokens, and the binding of hosts to agents.
//!
//! Who is at the door is told by the fingerprint of its key. A connected agent is never displaced,
//! not even by another key under its own id. Expiry and cloud area bind repetitions too: a token
//! whose time is over opens nothing.

use proctor_model::{AgentId, HostFacts, HostKey};
use rusqlite::{Connection, OptionalExtension};

use super::businesses;
use super::column::{exact, host_and_agent, signed, to_json};
use super::failure::Tried;
use super::hosts;
use crate::{EnrolRefusal, Enrolment, JoinToken, Millis};

/// A token that is put again keeps the count of its uses.
pub(super) fn put_token(connection: &Connection, token: &JoinToken) -> Tried<()> {
    let business = token.business.map(exact).transpose()?;
    connection
        .prepare_cached(
            "INSERT INTO token (id, secret_hash, uses, expires_at, cloud, business) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (id) DO UPDATE SET secret_hash = excluded.secret_hash, uses = excluded.uses,
                                            expires_at = excluded.expires_at, cloud = excluded.cloud,
                                            business = excluded.business",
        )?
        .execute((&token.id, &token.secret_hash, token.uses, token.expires_at, token.cloud, business))?;
    Ok(())
}

/// All checks come before the first write, so that a refusal changes nothing.
pub(super) fn enrol(connection: &Connection, enrolment: &Enrolment, now: Millis) -> Tried<Result<(), EnrolRefusal>> {
    let repeated = is_repeated(connection, enrolment)?;
    if let Some(refusal) = token_refusal(connection, enrolment, repeated, now)? {
        return Ok(Err(refusal));
    }
    let there = bound(connection, "cloud = ?1 AND ip = ?2", (enrolment.host.cloud, enrolment.host.ip.to_string()))?;
    let mine = bound(connection, "agent = ?1", [enrolment.agent.as_str()])?;
    if let Some(refusal) = presence_refusal(enrolment, there.as_ref(), mine.as_ref()) {
        return Ok(Err(refusal));
    }
    if !repeated {
        use_token(connection, enrolment, now)?;
    }
    hosts::forget_alias(connection, &enrolment.agent)?;
    bind(connection, enrolment, there, mine, now)?;
    // Somebody may have placed the host elsewhere since the first time.
    if !repeated {
        place(connection, enrolment)?;
    }
    Ok(Ok(()))
}

fn is_repeated(connection: &Connection, enrolment: &Enrolment) -> Tried<bool> {
    let repeated = connection
        .prepare_cached("SELECT 1 FROM token_use WHERE token = ?1 AND fingerprint = ?2")?
        .exists((&enrolment.token_id, &enrolment.key_fingerprint))?;
    Ok(repeated)
}

fn token_refusal(
    connection: &Connection,
    enrolment: &Enrolment,
    repeated: bool,
    now: Millis,
) -> Tried<Option<EnrolRefusal>> {
    let token: Option<(Millis, Option<u32>, bool)> = connection
        .prepare_cached("SELECT expires_at, cloud, used < uses FROM token WHERE id = ?1 AND secret_hash = ?2")?
        .query_row((&enrolment.token_id, &enrolment.token_secret_hash), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    Ok(match token {
        None => Some(EnrolRefusal::UnknownToken),
        Some((expires_at, _, _)) if expires_at <= now => Some(EnrolRefusal::Expired),
        Some((_, Some(allowed), _)) if allowed != enrolment.host.cloud => Some(EnrolRefusal::WrongCloud { allowed }),
        Some((_, _, has_uses)) if !has_uses && !repeated => Some(EnrolRefusal::UsedUp),
        Some(_) => None,
    })
}

/// What enrolment needs of a host's row; `host` is None while no agent serves it.
struct Bound {
    id: i64,
    host: Option<(HostKey, AgentId)>,
    online: bool,
    fingerprint: String,
    epoch: i64,
}

fn bound(connection: &Connection, which: &str, params: impl rusqlite::Params) -> Tried<Option<Bound>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, cloud, supplier, ip, agent, agent IS NOT NULL, online, fingerprint, epoch FROM host WHERE {which}"
    ))?;
    let mut rows = statement.query(params)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let host = if row.get(5)? { Some(host_and_agent(row, 1)?) } else { None };
    Ok(Some(Bound { id: row.get(0)?, host, online: row.get(6)?, fingerprint: row.get(7)?, epoch: row.get(8)? }))
}

fn presence_refusal(enrolment: &Enrolment, there: Option<&Bound>, mine: Option<&Bound>) -> Option<EnrolRefusal> {
    if let Some(Bound { host: Some((host, agent)), online: true, fingerprint, .. }) = there
        && (*agent != enrolment.agent || *fingerprint != enrolment.key_fingerprint)
    {
        return Some(EnrolRefusal::HostTaken { host: *host, agent: agent.clone() });
    }
    if let Some(Bound { id, host: Some((host, agent)), online: true, .. }) = mine
        && there.is_none_or(|there| there.id != *id)
    {
        return Some(EnrolRefusal::AgentTaken { agent: agent.clone(), host: *host });
    }
    None
}

fn use_token(connection: &Connection, enrolment: &Enrolment, now: Millis) -> Tried<()> {
    connection.prepare_cached("INSERT INTO token_use (token, fingerprint, used_at) VALUES (?1, ?2, ?3)")?.execute((
        &enrolment.token_id,
        &enrolment.key_fingerprint,
        now,
    ))?;
    connection.prepare_cached("UPDATE token SET used = used + 1 WHERE id = ?1")?.execute([&enrolment.token_id])?;
    Ok(())
}

/// Where the token says so.
fn place(connection: &Connection, enrolment: &Enrolment) -> Tried<()> {
    let business: Option<i64> = connection
        .prepare_cached("SELECT business FROM token WHERE id = ?1")?
        .query_row([&enrolment.token_id], |row| row.get(0))?;
    match business {
        Some(id) => businesses::place_one(connection, &enrolment.host, Some(id.cast_unsigned())),
        None => Ok(()),
    }
}

/// `there` is the row of the host's address, `mine` the row that the agent is bound to.
fn bind(
    connection: &Connection,
    enrolment: &Enrolment,
    there: Option<Bound>,
    mine: Option<Bound>,
    now: Millis,
) -> Tried<()> {
    match (there, mine) {
        (None, None) => insert(connection, enrolment, now),
        // Its machine has a new address; all that is known of it stays.
        (None, Some(mine)) => {
            if let Some((host, _)) = &mine.host {
                businesses::carry_over(connection, host, &enrolment.host)?;
            }
            update(connection, mine.id, enrolment, now)
        }
        (Some(there), Some(mine)) if there.id != mine.id => {
            leave(connection, &mine)?;
            raise(connection, &there, &mine)?;
            update(connection, there.id, enrolment, now)
        }
        (Some(there), _) => update(connection, there.id, enrolment, now),
    }
}

fn insert(connection: &Connection, enrolment: &Enrolment, now: Millis) -> Tried<()> {
    let HostKey { cloud, supplier, ip } = enrolment.host;
    connection
        .prepare_cached(
            "INSERT INTO host (cloud, supplier, ip, agent, fingerprint, facts, enrolled_at, presence_changed_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
        )?
        .execute((
            cloud,
            supplier,
            ip.to_string(),
            enrolment.agent.as_str(),
            &enrolment.key_fingerprint,
            to_json(&HostFacts::default()),
            now,
        ))?;
    Ok(())
}

fn update(connection: &Connection, id: i64, enrolment: &Enrolment, now: Millis) -> Tried<()> {
    let HostKey { cloud, supplier, ip } = enrolment.host;
    connection
        .prepare_cached(
            "UPDATE host SET cloud = ?2, supplier = ?3, ip = ?4, agent = ?5, fingerprint = ?6,
                    enrolled_at = iif(agent IS ?5 AND fingerprint = ?6, enrolled_at, ?7)
             WHERE id = ?1",
        )?
        .execute((id, cloud, supplier, ip.to_string(), enrolment.agent.as_str(), &enrolment.key_fingerprint, now))?;
    Ok(())
}

/// The host that the agent served before is served by nobody until an agent enrols for it.
fn leave(connection: &Connection, mine: &Bound) -> Tried<()> {
    connection.prepare_cached("UPDATE host SET agent = NULL, alias = NULL WHERE id = ?1")?.execute([mine.id])?;
    Ok(())
}

/// To the agent, epochs and generations only ever rise: what it meets at its new host must be
/// newer than all that it saw at the one it left.
fn raise(connection: &Connection, there: &Bound, mine: &Bound) -> Tried<()> {
    connection
        .prepare_cached("UPDATE host SET epoch = max(epoch, ?2) WHERE id = ?1")?
        .execute((there.id, mine.epoch))?;
    for renumber in [
        "UPDATE process SET generation = ?2 + place FROM
             (SELECT id AS wanted, row_number() OVER (ORDER BY generation) AS place FROM process WHERE host = ?1)
         WHERE process.id = wanted",
        "UPDATE pool SET generation = ?2 + place FROM
             (SELECT generation AS old, row_number() OVER (ORDER BY generation) AS place FROM pool WHERE host = ?1)
         WHERE pool.host = ?1 AND pool.generation = old",
    ] {
        let newest = hosts::newest_generation(connection)?;
        let renumbered = connection.prepare_cached(renumber)?.execute((there.id, newest))?;
        hosts::set_newest_generation(connection, newest + signed(renumbered as u64))?;
    }
    Ok(())
}
