//! Hosts and the presence of their agents.

use std::collections::HashMap;
use std::hash::Hash;

use proctor_model::{AgentId, HostKey, ScopeSet};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::column::{alias, counter, exact, from_json, host_key, parsed, signed, to_json};
use super::failure::{Failure, Tried};
use super::where_clause::WhereClause;
use super::{events, identity};
use crate::{Cordon, EndedSession, HostLocation, HostQuery, HostRecord, Millis, Refusal, UnservedHost};

/// The columns that [`site`] reads, followed by those that [`host_record`] reads.
macro_rules! select {
    (site, $rest:literal) => {
        concat!(
            "SELECT cloud, supplier, ip, agent, business, alias, cordon,
                    (awaits_approval OR (returning_since IS NOT NULL AND return_until IS NULL))
             FROM host LEFT JOIN placement USING (cloud, ip) WHERE ",
            $rest
        )
    };
    (record, $rest:literal) => {
        concat!(
            "SELECT cloud, supplier, ip, agent, business, alias, cordon,
                    (awaits_approval OR (returning_since IS NOT NULL AND return_until IS NULL)), facts, enrolled_at, online,
                    epoch, presence_changed_at, revoked_at, rejoin_until, fingerprint, relayed, untold
             FROM host LEFT JOIN placement USING (cloud, ip) WHERE ",
            $rest
        )
    };
}

pub(super) fn list(connection: &Connection, query: &HostQuery) -> Tried<Vec<HostRecord>> {
    let mut narrowed = WhereClause::default();
    narrowed.by_fact("agent IS NOT NULL");
    narrowed.by_some("cloud = ?", query.cloud);
    narrowed.by_some("business = ?", query.business.map(exact).transpose()?);
    narrowed.by_some("online = ?", query.online);
    narrowed.by_some("json_extract(facts, '$.agent_version') = ?", query.version.clone());
    narrowed.by_some("fingerprint IN (SELECT fingerprint FROM token_use WHERE token = ?)", query.token.clone());
    let has_text = "instr(lower(cloud || ':' || ip || char(10) || agent || char(10)
        || coalesce(json_extract(facts, '$.hostname'), '')), ?)";
    narrowed.by_some(has_text, query.text.as_ref().map(|text| text.to_lowercase()));
    if let Some(ScopeSet { everywhere: false, businesses, clouds, namespaces: _ }) = &query.scopes {
        // A host as a whole has no namespace.
        let inside = "(business IN (SELECT value FROM json_each(?)) OR cloud IN (SELECT value FROM json_each(?)))";
        narrowed.by_both(inside, to_json(businesses), to_json(clouds));
    }
    if let Some(after) = &query.after {
        narrowed.by_both("(cloud, ip) > (?, ?)", after.cloud, after.ip.to_string());
    }
    let sql = format!("{} {} ORDER BY cloud, ip LIMIT ?", select!(record, ""), narrowed.conditions());
    narrowed.read(connection, &sql, query.limit.unwrap_or(u32::MAX), host_record)
}

pub(super) fn unserved(connection: &Connection) -> Tried<Vec<UnservedHost>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT cloud, supplier, ip, business, fingerprint, presence_changed_at, revoked_at, rejoin_until,
                (SELECT count(*) FROM process WHERE process.host = host.id AND spec IS NOT NULL)
         FROM host LEFT JOIN placement USING (cloud, ip)
         WHERE agent IS NULL AND NOT ({}) ORDER BY cloud, ip",
        identity::IS_REMOVED
    ))?;
    let mut rows = statement.query([])?;
    let mut unserved = Vec::new();
    while let Some(row) = rows.next()? {
        let business: Option<i64> = row.get(3)?;
        unserved.push(UnservedHost {
            key: host_key(row, 0)?,
            business: business.map(i64::cast_unsigned),
            key_fingerprint: row.get(4)?,
            since: row.get(5)?,
            revoked_at: row.get(6)?,
            rejoin_until: row.get(7)?,
            processes: counter(row, 8)?,
        });
    }
    Ok(unserved)
}

pub(super) fn by_key(connection: &Connection, keys: &[HostKey]) -> Tried<Vec<Option<HostRecord>>> {
    const SQL: &str = select!(record, "cloud = ?1 AND ip = ?2 AND agent IS NOT NULL");
    each_by_key(connection, SQL, keys, host_record)
}

pub(super) fn sites_by_key(connection: &Connection, keys: &[HostKey]) -> Tried<Vec<Option<HostLocation>>> {
    const SQL: &str = select!(site, "cloud = ?1 AND ip = ?2 AND agent IS NOT NULL");
    if keys.len() < whole_from(connection)? {
        return each_by_key(connection, SQL, keys, site);
    }
    let (slots, order) = slots(keys.iter().map(|key| (key.cloud, key.ip)));
    let mut found = vec![None; slots.len()];
    each_site(connection, |row| {
        let key = host_key(row, 0)?;
        if let Some(slot) = slots.get(&(key.cloud, key.ip)) {
            found[*slot] = Some(site_at(row, key)?);
        }
        Ok(())
    })?;
    Ok(in_order(found, &order))
}

pub(super) fn by_agent(connection: &Connection, agents: &[AgentId]) -> Tried<Vec<Option<HostRecord>>> {
    const SQL: [&str; 2] = [select!(record, "agent = ?1"), select!(record, "alias = ?1 AND agent IS NOT NULL")];
    each_by_agent(connection, SQL, agents, host_record)
}

pub(super) fn sites_by_agent(connection: &Connection, agents: &[AgentId]) -> Tried<Vec<Option<HostLocation>>> {
    const SQL: [&str; 2] = [select!(site, "agent = ?1"), select!(site, "alias = ?1 AND agent IS NOT NULL")];
    if agents.len() < whole_from(connection)? {
        return each_by_agent(connection, SQL, agents, site);
    }
    let (slots, order) = slots(agents.iter().map(AgentId::as_str));
    let mut found = vec![None; slots.len()];
    each_site(connection, |row| {
        let agent = row.get_ref(3)?.as_str().map_err(|error| Failure::damaged("agent id", error))?;
        if let Some(slot) = slots.get(agent) {
            found[*slot] = Some(site(row)?);
        }
        Ok(())
    })?;
    let mut by_alias = connection.prepare_cached(SQL[1])?;
    for (agent, slot) in slots {
        if found[slot].is_none() {
            found[slot] = by_alias.query([agent])?.next()?.map(site).transpose()?;
        }
    }
    Ok(in_order(found, &order))
}

/// From this many hosts on, reading all of them is faster than querying each.
pub(super) fn whole_from(connection: &Connection) -> Tried<usize> {
    const AT_LEAST: u32 = 1000;
    let newest: u32 =
        connection.prepare_cached("SELECT coalesce(max(id), 0) FROM host")?.query_row([], |row| row.get(0))?;
    Ok(AT_LEAST.max(newest / 4) as usize)
}

/// A slot for each distinct name, and the slot of each name in the query's order.
fn slots<K: Eq + Hash>(names: impl ExactSizeIterator<Item = K>) -> (HashMap<K, usize>, Vec<usize>) {
    let mut slots = HashMap::with_capacity(names.len());
    let slot = |name| {
        let next = slots.len();
        *slots.entry(name).or_insert(next)
    };
    let order = names.map(slot).collect();
    (slots, order)
}

/// The contents of the slots in the query's order.
fn in_order<T: Clone>(found: Vec<Option<T>>, order: &[usize]) -> Vec<Option<T>> {
    if found.len() == order.len() {
        return found; // nothing is named twice
    }
    order.iter().map(|slot| found[*slot].clone()).collect()
}

/// Visits the row of every host that an agent serves.
fn each_site(connection: &Connection, mut see: impl FnMut(&Row<'_>) -> Tried<()>) -> Tried<()> {
    let mut statement = connection.prepare_cached(select!(site, "agent IS NOT NULL"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        see(row)?;
    }
    Ok(())
}

fn each_by_key<T>(
    connection: &Connection,
    sql: &str,
    keys: &[HostKey],
    read: fn(&Row<'_>) -> Tried<T>,
) -> Tried<Vec<Option<T>>> {
    let mut statement = connection.prepare_cached(sql)?;
    let find = |key: &HostKey| {
        let mut rows = statement.query((key.cloud, key.ip.to_string()))?;
        rows.next()?.map(read).transpose()
    };
    keys.iter().map(find).collect()
}

/// By the agent's own id, otherwise by an alias.
fn each_by_agent<T>(
    connection: &Connection,
    [own, alias]: [&str; 2],
    agents: &[AgentId],
    read: fn(&Row<'_>) -> Tried<T>,
) -> Tried<Vec<Option<T>>> {
    let mut by_own = connection.prepare_cached(own)?;
    let mut by_alias = connection.prepare_cached(alias)?;
    let find = |agent: &AgentId| {
        if let Some(row) = by_own.query([agent.as_str()])?.next()? {
            return read(row).map(Some);
        }
        by_alias.query([agent.as_str()])?.next()?.map(read).transpose()
    };
    agents.iter().map(find).collect()
}

/// From eight columns: cloud, supplier, ip, agent, business, alias, cordon, awaits_approval.
pub(super) fn site(row: &Row<'_>) -> Tried<HostLocation> {
    site_at(row, host_key(row, 0)?)
}

fn site_at(row: &Row<'_>, key: HostKey) -> Tried<HostLocation> {
    let business: Option<i64> = row.get(4)?;
    Ok(HostLocation {
        key,
        agent: parsed(row, 3, "agent id")?,
        alias: alias(row, 5)?,
        business: business.map(i64::cast_unsigned),
        cordon: cordon_at(row, 6)?.map(Box::new),
        awaits_approval: row.get(7)?,
    })
}

pub(super) fn cordon_at(row: &Row<'_>, column: usize) -> Tried<Option<Cordon>> {
    let cordon = row.get_ref(column)?;
    if cordon == ValueRef::Null {
        return Ok(None);
    }
    from_json("cordon", cordon.as_str().map_err(|error| Failure::damaged("cordon", error))?).map(Some)
}

pub(super) fn set_cordon(
    connection: &Connection,
    host: &HostKey,
    cordon: Option<&Cordon>,
) -> Tried<Option<Option<Cordon>>> {
    let address = (host.cloud, host.ip.to_string());
    let before = {
        let mut statement =
            connection.prepare_cached("SELECT cordon FROM host WHERE cloud = ?1 AND ip = ?2 AND agent IS NOT NULL")?;
        let mut rows = statement.query((address.0, &address.1))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        cordon_at(row, 0)?
    };
    connection.prepare_cached("UPDATE host SET cordon = ?3 WHERE cloud = ?1 AND ip = ?2")?.execute((
        address.0,
        address.1,
        cordon.map(|cordon| to_json(&cordon.clone().replacing(before.as_ref()))),
    ))?;
    Ok(Some(before))
}

pub(super) fn approve(
    connection: &Connection,
    host: &HostKey,
    given: String,
    return_until: Millis,
) -> Tried<Result<Option<bool>, Refusal>> {
    let address = (host.cloud, host.ip.to_string());
    let known: Option<(bool, String)> = connection
        .prepare_cached(
            "SELECT awaits_approval OR returning_since IS NOT NULL, fingerprint
             FROM host WHERE cloud = ?1 AND ip = ?2 AND agent IS NOT NULL",
        )?
        .query_row((address.0, &address.1), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((was_waiting, found)) = known else { return Ok(Ok(None)) };
    if !found.eq_ignore_ascii_case(&given) {
        return Ok(Err(Refusal::OtherKey { host: *host, found, given }));
    }
    connection
        .prepare_cached(
            "UPDATE host SET awaits_approval = 0,
                    return_until = iif(returning_since IS NOT NULL, ?3, return_until)
             WHERE cloud = ?1 AND ip = ?2 AND agent IS NOT NULL",
        )?
        .execute((address.0, address.1, return_until))?;
    Ok(Ok(Some(was_waiting)))
}

fn host_record(row: &Row<'_>) -> Tried<HostRecord> {
    let facts = row.get_ref(8)?.as_str().map_err(|error| Failure::damaged("host facts", error))?;
    Ok(HostRecord {
        site: site(row)?,
        facts: from_json("host facts", facts)?,
        enrolled_at: row.get(9)?,
        online: row.get(10)?,
        epoch: counter(row, 11)?,
        presence_changed_at: row.get(12)?,
        revoked_at: row.get(13)?,
        rejoin_until: row.get(14)?,
        key_fingerprint: row.get(15)?,
        relayed: row.get(16)?,
        untold: row.get(17)?,
    })
}

pub(super) fn bind_aliases(connection: &Connection, bindings: &[(HostKey, AgentId)]) -> Tried<Vec<bool>> {
    let mut statement = connection.prepare_cached(
        "UPDATE host SET alias = iif(agent = ?3, NULL, ?3)
         WHERE cloud = ?1 AND ip = ?2 AND agent IS NOT NULL AND NOT EXISTS
             (SELECT 1 FROM host AS other WHERE other.id <> host.id AND (other.agent = ?3 OR other.alias = ?3))",
    )?;
    let bind = |(host, agent): &(HostKey, AgentId)| {
        Ok(statement.execute((host.cloud, host.ip.to_string(), agent.as_str()))? == 1)
    };
    bindings.iter().map(bind).collect()
}

/// An agent's own id takes precedence over the alias of another host.
pub(super) fn forget_alias(connection: &Connection, agent: &AgentId) -> Tried<()> {
    connection.prepare_cached("UPDATE host SET alias = NULL WHERE alias = ?1")?.execute([agent.as_str()])?;
    Ok(())
}

/// The row of the agent's host.
pub(super) fn row_of(connection: &Connection, agent: &AgentId) -> Tried<Option<i64>> {
    let id = connection
        .prepare_cached("SELECT id FROM host WHERE agent = ?1")?
        .query_row([agent.as_str()], |row| row.get(0))
        .optional()?;
    Ok(id)
}

/// For one process or pool of any host.
pub(super) fn next_generation(connection: &Connection) -> Tried<i64> {
    let next = newest_generation(connection)? + 1;
    set_newest_generation(connection, next)?;
    Ok(next)
}

/// The last generation given to a process or pool of any host.
pub(super) fn newest_generation(connection: &Connection) -> Tried<i64> {
    Ok(connection.prepare_cached("SELECT newest FROM generation")?.query_row([], |row| row.get(0))?)
}

pub(super) fn set_newest_generation(connection: &Connection, newest: i64) -> Tried<()> {
    connection.prepare_cached("UPDATE generation SET newest = ?1")?.execute([newest])?;
    Ok(())
}

/// A revoked key has a newer epoch without a session: the end of its session is still recorded.
pub(super) fn end_sessions(connection: &Connection, ended: Vec<EndedSession>, now: Millis) -> Tried<()> {
    let mut mark = connection.prepare_cached(
        "UPDATE host SET online = 0, presence_changed_at = iif(online, ?3, presence_changed_at), untold = ?4
         WHERE agent = ?1 AND epoch <= ?2 AND (online OR untold)",
    )?;
    let mut is_back = connection.prepare_cached("SELECT 1 FROM host WHERE agent = ?1 AND epoch > ?2 AND online")?;
    let mut events = Vec::with_capacity(ended.len());
    for EndedSession { agent, epoch, event, untold } in ended {
        let key = (agent.as_str(), signed(epoch));
        if is_back.exists(key)? {
            continue;
        }
        mark.execute((key.0, key.1, now, untold))?;
        events.extend(event.map(|event| (agent, event)));
    }
    events::append_own(connection, events, now)?;
    Ok(())
}
