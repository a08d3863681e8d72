//! Upgrades of agents: each call is one transaction, so a crash leaves all of it or nothing.

use proctor_model::{Message, Phrase, Sender};
use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::column::{from_json, parsed, to_json, uuid};
use super::failure::{Failure, Tried};
use crate::{Millis, Upgrade, UpgradeHost, UpgradeHostChange, UpgradeHostState, UpgradePlan, UpgradeTransition};

const SELECT: &str = "SELECT id, plan, state, reason, created_by, created_at, changed_at, makers FROM upgrade ";

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
            "INSERT INTO upgrade (id, plan, state, reason, created_by, created_at, changed_at, makers)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute((
            upgrade.id.as_bytes().as_slice(),
            to_json(&upgrade.plan),
            upgrade.state.as_str(),
            &upgrade.reason,
            &upgrade.created_by,
            upgrade.created_at,
            upgrade.changed_at,
            to_json(&upgrade.makers),
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
        reason: row.get(3)?,
        created_by: row.get(4)?,
        makers: from_json("makers of an upgrade", &makers)?,
        created_at: row.get(5)?,
        changed_at: row.get(6)?,
    })
}

pub(super) fn hosts(connection: &Connection, id: Uuid) -> Tried<Vec<UpgradeHost>> {
    let mut statement = connection.prepare_cached(
        "SELECT agent, host, ring, state, reason, phrase, version_before, changed_at FROM upgrade_host
         WHERE upgrade = (SELECT seq FROM upgrade WHERE id = ?1) ORDER BY place",
    )?;
    let mut rows = statement.query([id.as_bytes().as_slice()])?;
    let mut hosts = Vec::new();
    while let Some(row) = rows.next()? {
        let phrase: Option<String> = row.get(5)?;
        let phrase = phrase.and_then(|json| Phrase::from_json(&json, Sender::Server));
        hosts.push(UpgradeHost {
            agent: parsed(row, 0, "agent id")?,
            host: parsed(row, 1, "host")?,
            ring: row.get(2)?,
            state: parsed(row, 3, "state of a host in an upgrade")?,
            reason: Message::of_parts(row.get::<_, String>(4)?, phrase),
            version_before: row.get(6)?,
            changed_at: row.get(7)?,
        });
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
        .prepare_cached("UPDATE upgrade SET state = ?2, reason = ?3, makers = ?4, changed_at = ?5 WHERE id = ?1")?
        .execute((
            id.as_bytes().as_slice(),
            to.as_str(),
            reason,
            to_json(makers.as_ref().unwrap_or(&found.makers)),
            now,
        ))?;
    if !to.is_under_way() {
        connection
            .prepare_cached(
                "UPDATE upgrade_host SET state = ?2, reason = ?3, phrase = NULL, changed_at = ?4
                 WHERE upgrade = (SELECT seq FROM upgrade WHERE id = ?1) AND state = ?5",
            )?
            .execute((
                id.as_bytes().as_slice(),
                UpgradeHostState::Skipped.as_str(),
                reason,
                now,
                UpgradeHostState::Waiting.as_str(),
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
