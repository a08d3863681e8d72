//! Upgrades of agents: each call is one transaction, so a crash leaves all of it or nothing.

use proctor_model::{Message, Phrase, Sender};
use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::column::{from_json, parsed, to_json, uuid};
use super::failure::{Failure, Tried};
use crate::{
    Millis, Upgrade, UpgradeCount, UpgradeHost, UpgradeHostChange, UpgradeHostQuery, UpgradeHostState, UpgradePlan,
    UpgradeTransition,
};

const SELECT: &str = "SELECT id, plan, state, reason, created_by, created_at, changed_at, makers, phrase FROM upgrade ";

pub(super) fn begin(connection: &Connection, upgrade: &Upgrade, hosts: &[UpgradeHost]) -> Tried<Result<(), Uuid>> {
    let other: Option<Vec<u8>> = connection
        .query_row(
            "SELECT id FROM upgrade WHERE state IN ('running', 'paused')
                 OR EXISTS (SELECT 1 FROM upgrade_host WHERE upgrade = seq AND upgrade_host.state = 'upgrading')
             ORDER BY seq DESC LIMIT 1",
            [],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(other) = other {
        return Ok(Err(Uuid::from_slice(&other).map_err(|error| Failure::damaged("upgrade", error))?));
    }
    connection
        .prepare_cached(
            "INSERT INTO upgrade (id, plan, state, reason, created_by, created_at, changed_at, makers, phrase)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute((
            upgrade.id.as_bytes().as_slice(),
            to_json(&upgrade.plan),
            upgrade.state.as_str(),
            upgrade.reason.as_str(),
            &upgrade.created_by,
            upgrade.created_at,
            upgrade.changed_at,
            to_json(&upgrade.makers),
            upgrade.reason.phrase().map(Phrase::to_json),
        ))?;
    let seq = connection.last_insert_rowid();
    let mut insert = connection.prepare_cached(
        "INSERT INTO upgrade_host (upgrade, agent, host, place, ring, state, reason, phrase, version_before, changed_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for (host, place) in hosts.iter().zip(0_i64..) {
        insert.execute((
            seq,
            host.agent.as_str(),
            host.host.to_string(),
            place,
            host.ring,
            host.state.as_str(),
            host.reason.as_str(),
            host.reason.phrase().map(Phrase::to_json),
            &host.version_before,
            host.changed_at,
        ))?;
    }
    Ok(Ok(()))
}

pub(super) fn newest(connection: &Connection, limit: u32) -> Tried<Vec<Upgrade>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} ORDER BY seq DESC LIMIT ?1"))?;
    let mut rows = statement.query([limit])?;
    let mut upgrades = Vec::new();
    while let Some(row) = rows.next()? {
        upgrades.push(upgrade(row)?);
    }
    Ok(upgrades)
}

pub(super) fn find(connection: &Connection, id: Uuid) -> Tried<Option<Upgrade>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE id = ?1"))?;
    let mut rows = statement.query([id.as_bytes().as_slice()])?;
    rows.next()?.map(upgrade).transpose()
}

fn upgrade(row: &Row<'_>) -> Tried<Upgrade> {
    let (plan, makers): (String, String) = (row.get(1)?, row.get(7)?);
    Ok(Upgrade {
        id: uuid(row, 0, "upgrade")?,
        plan: from_json::<UpgradePlan>("plan of an upgrade", &plan)?,
        state: parsed(row, 2, "state of an upgrade")?,
        reason: message(row, 3, 8)?,
        created_by: row.get(4)?,
        makers: from_json("makers of an upgrade", &makers)?,
        created_at: row.get(5)?,
        changed_at: row.get(6)?,
    })
}

/// A text with the entry of the catalogue that it is.
fn message(row: &Row<'_>, text: usize, phrase: usize) -> Tried<Message> {
    let phrase: Option<String> = row.get(phrase)?;
    let phrase = phrase.and_then(|json| Phrase::from_json(&json, Sender::Server));
    Ok(Message::of_parts(row.get::<_, String>(text)?, phrase))
}

pub(super) fn counts(connection: &Connection, id: Uuid) -> Tried<Vec<UpgradeCount>> {
    let mut statement = connection.prepare_cached(
        "SELECT ring, state, COUNT(*) FROM upgrade_host
         WHERE upgrade = (SELECT seq FROM upgrade WHERE id = ?1) GROUP BY ring, state ORDER BY ring, state",
    )?;
    let mut rows = statement.query([id.as_bytes().as_slice()])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let state = parsed(row, 1, "state of a host in an upgrade")?;
        counts.push(UpgradeCount { ring: row.get(0)?, state, hosts: row.get(2)? });
    }
    Ok(counts)
}

pub(super) fn hosts(connection: &Connection, id: Uuid, query: UpgradeHostQuery) -> Tried<Vec<(u32, UpgradeHost)>> {
    let mut statement = connection.prepare_cached(
        "SELECT agent, host, ring, state, reason, phrase, version_before, changed_at, place FROM upgrade_host
         WHERE upgrade = (SELECT seq FROM upgrade WHERE id = ?1) AND place > ?2 AND (?3 IS NULL OR state = ?3)
         ORDER BY place LIMIT ?4",
    )?;
    let after = query.after.map_or(-1, i64::from);
    let limit = query.limit.map_or(-1, i64::from);
    let state = query.state.map(UpgradeHostState::as_str);
    let mut rows = statement.query((id.as_bytes().as_slice(), after, state, limit))?;
    let mut hosts = Vec::new();
    while let Some(row) = rows.next()? {
        let host = UpgradeHost {
            agent: parsed(row, 0, "agent id")?,
            host: parsed(row, 1, "host")?,
            ring: row.get(2)?,
            state: parsed(row, 3, "state of a host in an upgrade")?,
            reason: message(row, 4, 5)?,
            version_before: row.get(6)?,
            changed_at: row.get(7)?,
        };
        hosts.push((row.get(8)?, host));
    }
    Ok(hosts)
}

pub(super) fn set_state(connection: &Connection, id: Uuid, transition: &UpgradeTransition, now: Millis) -> Tried<bool> {
    let UpgradeTransition { from, to, reason, makers } = transition;
    let Some(found) = find(connection, id)? else { return Ok(false) };
    if !from.contains(&found.state) {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "UPDATE upgrade SET state = ?2, reason = ?3, makers = ?4, changed_at = ?5, phrase = ?6 WHERE id = ?1",
        )?
        .execute((
            id.as_bytes().as_slice(),
            to.as_str(),
            reason.as_str(),
            to_json(makers.as_ref().unwrap_or(&found.makers)),
            now,
            reason.phrase().map(Phrase::to_json),
        ))?;
    if !to.is_under_way() {
        connection
            .prepare_cached(
                "UPDATE upgrade_host SET state = ?2, reason = ?3, phrase = ?6, changed_at = ?4
                 WHERE upgrade = (SELECT seq FROM upgrade WHERE id = ?1) AND state = ?5",
            )?
            .execute((
                id.as_bytes().as_slice(),
                UpgradeHostState::Skipped.as_str(),
                reason.as_str(),
                now,
                UpgradeHostState::Waiting.as_str(),
                reason.phrase().map(Phrase::to_json),
            ))?;
    }
    Ok(true)
}

pub(super) fn change_hosts(connection: &Connection, id: Uuid, changes: &[UpgradeHostChange], now: Millis) -> Tried<()> {
    let mut update = connection.prepare_cached(
        "UPDATE upgrade_host SET state = ?3, reason = ?4, phrase = ?5, changed_at = ?6
         WHERE upgrade = (SELECT seq FROM upgrade WHERE id = ?1) AND agent = ?2
           AND (state IN ('waiting', 'upgrading') OR (state = 'done' AND ?3 = 'failed'))",
    )?;
    for change in changes {
        update.execute((
            id.as_bytes().as_slice(),
            change.agent.as_str(),
            change.state.as_str(),
            change.reason.as_str(),
            change.reason.phrase().map(Phrase::to_json),
            now,
        ))?;
    }
    Ok(())
}
