//! Join tokens, and the binding of hosts to agents.
//!
//! An agent is identified by the fingerprint of its key. A known host opens only to its own key, to a token that
//! names it, or once after an operator allowed it. Expiry, cloud area and host apply to repeated enrolments too: an
//! expired token opens nothing.

use proctor_model::{AgentId, HostFacts, HostKey};
use rusqlite::{Connection, Row};

use super::businesses;
use super::column::{counter, exact, host_key, parsed, signed, to_json};
use super::failure::Tried;
use super::{audit, followers, hosts, identity};
use crate::{AuditPhase, EnrolRefusal, Enrolled, Enrolment, JoinToken, JoinTokenRecord, Millis, REFUSALS_AUDITED_MAX};

/// Storing a token again keeps its count of uses.
pub(super) fn put_token(connection: &Connection, token: &JoinToken) -> Tried<()> {
    let business = token.business.map(exact).transpose()?;
    let host = token.host.map(|host| host.to_string());
    connection
        .prepare_cached(
            "INSERT INTO token (id, secret_hash, uses, expires_at, cloud, business, host)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (id) DO UPDATE SET secret_hash = excluded.secret_hash, uses = excluded.uses,
                                            expires_at = excluded.expires_at, cloud = excluded.cloud,
                                            business = excluded.business, host = excluded.host",
        )?
        .execute((&token.id, &token.secret_hash, token.uses, token.expires_at, token.cloud, business, host))?;
    Ok(())
}

const TOKEN: &str = "SELECT id, secret_hash, uses, expires_at, cloud, business, host, used, refused FROM token";

pub(super) fn tokens(connection: &Connection) -> Tried<Vec<JoinTokenRecord>> {
    let mut statement = connection.prepare_cached(&format!("{TOKEN} ORDER BY expires_at DESC, id"))?;
    let mut rows = statement.query([])?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        tokens.push(token_record(row)?);
    }
    Ok(tokens)
}

fn token_record(row: &Row<'_>) -> Tried<JoinTokenRecord> {
    let business: Option<i64> = row.get(5)?;
    let has_host = row.get_ref(6)?.data_type() != rusqlite::types::Type::Null;
    let token = JoinToken {
        id: row.get(0)?,
        secret_hash: row.get(1)?,
        uses: row.get(2)?,
        expires_at: row.get(3)?,
        cloud: row.get(4)?,
        business: business.map(i64::cast_unsigned),
        host: if has_host { Some(parsed(row, 6, "host of a join token")?) } else { None },
    };
    Ok(JoinTokenRecord { token, used: row.get(7)?, refused: row.get(8)? })
}

pub(super) fn delete_token(connection: &Connection, id: &str) -> Tried<bool> {
    Ok(connection.prepare_cached("DELETE FROM token WHERE id = ?1")?.execute([id])? == 1)
}

pub(super) fn knows_token(connection: &Connection, id: &str, secret_hash: &str) -> Tried<bool> {
    Ok(token_of(connection, id, secret_hash)?.is_some())
}

/// By its id; the secret is compared in constant time.
fn token_of(connection: &Connection, id: &str, secret_hash: &str) -> Tried<Option<JoinTokenRecord>> {
    let mut statement = connection.prepare_cached(&format!("{TOKEN} WHERE id = ?1"))?;
    let mut rows = statement.query([id])?;
    let token = rows.next()?.map(token_record).transpose()?;
    Ok(token.filter(|record| is_same_secret(&record.token.secret_hash, secret_hash)))
}

pub(super) fn is_same_secret(a: &str, b: &str) -> bool {
    let differing = a.bytes().zip(b.bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

/// All checks come before the first change to a host.
pub(super) fn enrol(
    connection: &Connection,
    enrolment: &Enrolment,
    now: Millis,
) -> Tried<Result<Enrolled, EnrolRefusal>> {
    let Some(JoinTokenRecord { token, used, refused }) =
        token_of(connection, &enrolment.token_id, &enrolment.token_secret_hash)?
    else {
        // Nothing is stored for callers without a token: they could fill the store.
        return Ok(Err(EnrolRefusal::UnknownToken));
    };
    identity::give_up_address(connection, &enrolment.host)?;
    let known = Known::find(connection, enrolment)?;
    let repeated = known.has_key(enrolment) && is_repeated(connection, enrolment)?;
    let refusal = match token_refusal(&token, used, enrolment, repeated, now) {
        Some(refusal) => Some(refusal),
        None => host_refusal(connection, &known, &token, enrolment, now)?,
    };
    if let Some(refusal) = refusal {
        keep_refusal(connection, enrolment, &refusal, refused, now)?;
        return Ok(Err(refusal));
    }
    if !repeated {
        use_token(connection, enrolment, now)?;
    }
    let outcome = known.outcome(enrolment);
    audit::append(connection, enrolment.audit_entry(AuditPhase::Done, outcome.to_owned()), now)?;
    hosts::forget_alias(connection, &enrolment.agent)?;
    let displaced = known.displaced(enrolment);
    for agent in displaced.iter().chain([&enrolment.agent]) {
        followers::forget_agent(connection, agent)?;
    }
    bind(connection, enrolment, &token, known, now)?;
    Ok(Ok(Enrolled { displaced }))
}

/// The same key for the same host again: one use admits neither a second host nor a second address of it.
fn is_repeated(connection: &Connection, enrolment: &Enrolment) -> Tried<bool> {
    let repeated = connection
        .prepare_cached("SELECT 1 FROM token_use WHERE token = ?1 AND fingerprint = ?2 AND host IN (?3, '')")?
        .exists((&enrolment.token_id, &enrolment.key_fingerprint, enrolment.host.to_string()))?;
    Ok(repeated)
}

fn token_refusal(
    token: &JoinToken,
    used: u32,
    enrolment: &Enrolment,
    repeated: bool,
    now: Millis,
) -> Option<EnrolRefusal> {
    if token.expires_at <= now {
        return Some(EnrolRefusal::Expired);
    }
    match (token.cloud, token.host) {
        (Some(allowed), _) if allowed != enrolment.host.cloud => return Some(EnrolRefusal::WrongCloud { allowed }),
        (_, Some(allowed)) if !is_same_host(&allowed, &enrolment.host) => {
            return Some(EnrolRefusal::WrongHost { allowed });
        }
        (Some(_) | None, Some(_) | None) => {}
    }
    (used >= token.uses && !repeated).then_some(EnrolRefusal::UsedUp)
}

/// The supplier is not part of a host's identity.
fn is_same_host(a: &HostKey, b: &HostKey) -> bool {
    (a.cloud, a.ip) == (b.cloud, b.ip)
}

fn host_refusal(
    connection: &Connection,
    known: &Known,
    token: &JoinToken,
    enrolment: &Enrolment,
    now: Millis,
) -> Tried<Option<EnrolRefusal>> {
    let Known { there, mine, alias } = known;
    if identity::is_revoked(connection, &enrolment.key_fingerprint)? {
        return Ok(Some(EnrolRefusal::KeyRevoked));
    }
    if there.as_ref().is_some_and(|row| !row.opens_to(enrolment, token, now)) {
        return Ok(Some(EnrolRefusal::HostTaken { host: enrolment.host }));
    }
    if [mine, alias].into_iter().flatten().any(|row| !row.opens_to(enrolment, token, now)) {
        return Ok(Some(EnrolRefusal::AgentTaken { agent: enrolment.agent.clone() }));
    }
    business_refusal(connection, known, token, enrolment)
}

/// A token never moves a host, nor an address, from one business to another.
fn business_refusal(
    connection: &Connection,
    known: &Known,
    token: &JoinToken,
    enrolment: &Enrolment,
) -> Tried<Option<EnrolRefusal>> {
    let host = enrolment.host;
    let Some(of_address) = businesses::business_of(connection, &host)? else { return Ok(None) };
    if let Some(mine) = known.mine.as_ref().filter(|mine| !is_same_host(&mine.host, &host))
        && businesses::business_of(connection, &mine.host)?.is_some_and(|of_mine| of_mine != of_address)
    {
        return Ok(Some(EnrolRefusal::MovesBusiness { host }));
    }
    let is_own = known.there.as_ref().is_some_and(|row| row.has_key(enrolment));
    let of_token = token.business.filter(|of_token| *of_token != of_address && !is_own);
    Ok(of_token.map(|of_token| EnrolRefusal::WrongBusiness { host, of_token }))
}

/// Only the first refusals of a token are audited; all are counted.
fn keep_refusal(
    connection: &Connection,
    enrolment: &Enrolment,
    refusal: &EnrolRefusal,
    refused_before: u32,
    now: Millis,
) -> Tried<()> {
    if refused_before < REFUSALS_AUDITED_MAX {
        audit::append(connection, enrolment.audit_entry(AuditPhase::Refused, refusal.to_string()), now)?;
    }
    connection
        .prepare_cached("UPDATE token SET refused = min(refused + 1, 4294967295) WHERE id = ?1")?
        .execute([&enrolment.token_id])?;
    Ok(())
}

/// The hosts that an enrolment would change.
struct Known {
    /// The row of the host's address.
    there: Option<Bound>,
    /// The row that the agent's id is bound to, which may be the same.
    mine: Option<Bound>,
    /// Another row that has the agent's id as its alias.
    alias: Option<Bound>,
}

/// The part of a host's row that enrolment needs; `agent` is None while no agent serves it.
struct Bound {
    id: i64,
    host: HostKey,
    agent: Option<AgentId>,
    fingerprint: String,
    revoked: bool,
    rejoin_until: Option<Millis>,
    epoch: u64,
}

impl Known {
    fn find(connection: &Connection, enrolment: &Enrolment) -> Tried<Self> {
        let HostKey { cloud, ip, .. } = enrolment.host;
        let agent = enrolment.agent.as_str();
        let there = bound(connection, "cloud = ?1 AND ip = ?2", (cloud, ip.to_string()))?;
        let mine = bound(connection, "agent = ?1", [agent])?;
        let alias = bound(connection, "alias = ?1", [agent])?;
        let alias = alias.filter(|alias| there.as_ref().is_none_or(|there| there.id != alias.id));
        Ok(Self { there, mine, alias })
    }

    /// Whether the key belongs to the host, or to the agent's current host.
    fn has_key(&self, enrolment: &Enrolment) -> bool {
        [&self.there, &self.mine].into_iter().flatten().any(|row| row.has_key(enrolment))
    }

    /// As the audit log says it.
    fn outcome(&self, enrolment: &Enrolment) -> &'static str {
        match (&self.there, &self.mine) {
            (None, None) if enrolment.needs_approval => "new host, awaits approval",
            (None, None) => "new host",
            (None, Some(_)) if enrolment.needs_approval => "known host at a new address, awaits approval",
            (None, Some(mine)) if mine.has_key(enrolment) => "known host at a new address, same key",
            (None, Some(_)) => "known host at a new address, key replaced",
            (Some(there), _) if there.has_key(enrolment) => "known host, same key",
            (Some(_), _) => "known host, key replaced",
        }
    }

    /// The agents that lose a host to another key, or move to another host.
    fn displaced(&self, enrolment: &Enrolment) -> Vec<AgentId> {
        let is_moving = match (&self.there, &self.mine) {
            (Some(there), Some(mine)) => there.id != mine.id,
            (None, Some(_)) => true,
            (Some(_) | None, None) => false,
        };
        let mut displaced: Vec<AgentId> = Vec::new();
        for row in [&self.there, &self.mine].into_iter().flatten() {
            let Some(agent) = &row.agent else { continue };
            let stays = *agent == enrolment.agent && row.has_key(enrolment) && !is_moving;
            if !stays && !displaced.contains(agent) {
                displaced.push(agent.clone());
            }
        }
        displaced
    }
}

impl Bound {
    fn has_key(&self, enrolment: &Enrolment) -> bool {
        self.fingerprint == enrolment.key_fingerprint
    }

    fn opens_to(&self, enrolment: &Enrolment, token: &JoinToken, now: Millis) -> bool {
        let is_own = self.has_key(enrolment) && !self.revoked;
        let is_named = token.host.is_some_and(|host| is_same_host(&host, &self.host));
        is_own || is_named || self.rejoin_until.is_some_and(|until| until > now)
    }
}

fn bound(connection: &Connection, which: &str, params: impl rusqlite::Params) -> Tried<Option<Bound>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, cloud, supplier, ip, agent, agent IS NOT NULL, fingerprint, revoked_at IS NOT NULL, rejoin_until,
                epoch
         FROM host WHERE {which}"
    ))?;
    let mut rows = statement.query(params)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Bound {
        id: row.get(0)?,
        host: host_key(row, 1)?,
        agent: if row.get(5)? { Some(parsed(row, 4, "agent id")?) } else { None },
        fingerprint: row.get(6)?,
        revoked: row.get(7)?,
        rejoin_until: row.get(8)?,
        epoch: counter(row, 9)?,
    }))
}

fn use_token(connection: &Connection, enrolment: &Enrolment, now: Millis) -> Tried<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO token_use (token, fingerprint, host, used_at) VALUES (?1, ?2, ?3, ?4)")?
        .execute((&enrolment.token_id, &enrolment.key_fingerprint, enrolment.host.to_string(), now))?;
    connection.prepare_cached("UPDATE token SET used = used + 1 WHERE id = ?1")?.execute([&enrolment.token_id])?;
    Ok(())
}

/// Only a new host gets a business from its token, and only if its address has none.
fn bind(connection: &Connection, enrolment: &Enrolment, token: &JoinToken, known: Known, now: Millis) -> Tried<()> {
    match (known.there, known.mine) {
        (None, None) => {
            insert(connection, enrolment, now)?;
            match token.business {
                Some(_) => businesses::place_one(connection, &enrolment.host, token.business),
                None => Ok(()),
            }
        }
        // Its machine has a new address; everything known about it stays. Only the old address was approved.
        (None, Some(mine)) => {
            businesses::carry_over(connection, &mine.host, &enrolment.host)?;
            if enrolment.needs_approval {
                await_approval(connection, &mine, now)?;
            }
            update(connection, mine.id, enrolment, now)
        }
        (Some(there), Some(mine)) if there.id != mine.id => {
            leave(connection, &mine, now)?;
            raise(connection, &there, &mine)?;
            update(connection, there.id, enrolment, now)
        }
        (Some(there), _) => update(connection, there.id, enrolment, now),
    }
}

/// Nothing is known about what the agent has been told: one that comes with the ledger of a removed host is sent
/// everything that is registered, and drops the rest.
fn insert(connection: &Connection, enrolment: &Enrolment, now: Millis) -> Tried<()> {
    let HostKey { cloud, supplier, ip } = enrolment.host;
    connection.prepare_cached("UPDATE generation SET newest = newest + 1 WHERE newest > 0")?.execute([])?;
    connection
        .prepare_cached(
            "INSERT INTO host (cloud, supplier, ip, agent, fingerprint, facts, enrolled_at, presence_changed_at,
                               awaits_approval, pruned_generation)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, (SELECT newest FROM generation))",
        )?
        .execute((
            cloud,
            supplier,
            ip.to_string(),
            enrolment.agent.as_str(),
            &enrolment.key_fingerprint,
            to_json(&HostFacts::default()),
            now,
            enrolment.needs_approval,
        ))?;
    Ok(())
}

/// Another agent or key closes the open session, by a higher epoch, and starts without history.
fn update(connection: &Connection, id: i64, enrolment: &Enrolment, now: Millis) -> Tried<()> {
    let HostKey { cloud, supplier, ip } = enrolment.host;
    let address = (cloud, supplier, ip.to_string());
    connection
        .prepare_cached("UPDATE host SET cloud = ?2, supplier = ?3, ip = ?4 WHERE id = ?1")?
        .execute((id, address.0, address.1, address.2))?;
    connection
        .prepare_cached(
            "UPDATE host SET agent = ?2, fingerprint = ?3, enrolled_at = ?4, epoch = epoch + 1, settled_epoch = 0,
                    revoked_at = NULL, rejoin_until = NULL, returning_since = NULL, return_until = NULL, online = 0,
                    presence_changed_at = iif(online, ?4, presence_changed_at)
             WHERE id = ?1 AND (agent IS NOT ?2 OR fingerprint <> ?3)",
        )?
        .execute((id, enrolment.agent.as_str(), &enrolment.key_fingerprint, now))?;
    Ok(())
}

/// The host that the agent served before is unserved until an agent enrols for it.
fn leave(connection: &Connection, mine: &Bound, now: Millis) -> Tried<()> {
    connection
        .prepare_cached(
            "UPDATE host SET agent = NULL, alias = NULL, online = 0, rejoin_until = NULL, returning_since = NULL,
                    return_until = NULL, presence_changed_at = ?2
             WHERE id = ?1",
        )?
        .execute((mine.id, now))?;
    Ok(())
}

/// Its session is closed, by a higher epoch, and none opens until an operator approves it.
fn await_approval(connection: &Connection, mine: &Bound, now: Millis) -> Tried<()> {
    connection
        .prepare_cached(
            "UPDATE host SET awaits_approval = 1, epoch = epoch + 1, online = 0,
                    presence_changed_at = iif(online, ?2, presence_changed_at)
             WHERE id = ?1",
        )?
        .execute((mine.id, now))?;
    Ok(())
}

/// To the agent, epochs and generations only ever rise: those of its new host must be above all that it saw at its
/// old one.
fn raise(connection: &Connection, there: &Bound, mine: &Bound) -> Tried<()> {
    // What the previous agent had seen of this host says nothing about this one.
    connection
        .prepare_cached(
            "UPDATE host SET epoch = max(epoch, ?2), pruned_generation = 0, seen_generation = 0 WHERE id = ?1",
        )?
        .execute((there.id, signed(mine.epoch)))?;
    for renumber in [
        "UPDATE process SET generation = ?2 + rank FROM
             (SELECT id AS wanted, row_number() OVER (ORDER BY generation) AS rank FROM process WHERE host = ?1)
         WHERE process.id = wanted",
        "UPDATE pool SET generation = ?2 + rank FROM
             (SELECT generation AS old, row_number() OVER (ORDER BY generation) AS rank FROM pool WHERE host = ?1)
         WHERE pool.host = ?1 AND pool.generation = old",
    ] {
        let newest = hosts::newest_generation(connection)?;
        let renumbered = connection.prepare_cached(renumber)?.execute((there.id, newest))?;
        hosts::set_newest_generation(connection, newest + signed(renumbered as u64))?;
    }
    Ok(())
}
