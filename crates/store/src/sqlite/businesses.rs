//! Businesses, sets of them, and which host belongs to which.

use std::collections::{BTreeMap, BTreeSet};

use proctor_model::{HostKey, Scope};
use rusqlite::{Connection, OptionalExtension};

use super::access::forget_scope;
use super::column::{counter, exact};
use super::failure::Tried;
use crate::{Business, BusinessSet, Refusal};

pub(super) fn put(connection: &Connection, business: &Business) -> Tried<()> {
    connection
        .prepare_cached(
            "INSERT INTO business (id, name) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        )?
        .execute((exact(business.id)?, &business.name))?;
    Ok(())
}

pub(super) fn all(connection: &Connection) -> Tried<Vec<Business>> {
    let mut statement = connection.prepare_cached("SELECT id, name FROM business ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut businesses = Vec::new();
    while let Some(row) = rows.next()? {
        businesses.push(Business { id: counter(row, 0)?, name: row.get(1)? });
    }
    Ok(businesses)
}

/// Foreign keys remove it from placements, memberships and tokens.
pub(super) fn delete(connection: &Connection, id: u64) -> Tried<bool> {
    forget_scope(connection, &Scope::Business(id))?;
    let deleted = connection.prepare_cached("DELETE FROM business WHERE id = ?1")?.execute([exact(id)?])?;
    Ok(deleted == 1)
}

pub(super) fn exists(connection: &Connection, id: u64) -> Tried<bool> {
    Ok(connection.prepare_cached("SELECT 1 FROM business WHERE id = ?1")?.exists([exact(id)?])?)
}

fn unknown(connection: &Connection, ids: impl IntoIterator<Item = u64>) -> Tried<Option<Refusal>> {
    for id in ids {
        if !exists(connection, id)? {
            return Ok(Some(Refusal::UnknownBusiness(id)));
        }
    }
    Ok(None)
}

pub(super) fn put_set(connection: &Connection, set: &BusinessSet) -> Tried<Result<(), Refusal>> {
    if let Some(refusal) = unknown(connection, set.members.iter().copied())? {
        return Ok(Err(refusal));
    }
    let id = exact(set.id)?;
    connection
        .prepare_cached(
            "INSERT INTO business_set (id, name) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        )?
        .execute((id, &set.name))?;
    connection.prepare_cached("DELETE FROM business_set_member WHERE business_set = ?1")?.execute([id])?;
    let mut add =
        connection.prepare_cached("INSERT INTO business_set_member (business_set, business) VALUES (?1, ?2)")?;
    for member in &set.members {
        add.execute((id, exact(*member)?))?;
    }
    Ok(Ok(()))
}

pub(super) fn sets(connection: &Connection) -> Tried<Vec<BusinessSet>> {
    let mut members = members(connection)?;
    let mut statement = connection.prepare_cached("SELECT id, name FROM business_set ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut sets = Vec::new();
    while let Some(row) = rows.next()? {
        let id = counter(row, 0)?;
        sets.push(BusinessSet { id, name: row.get(1)?, members: members.remove(&id).unwrap_or_default() });
    }
    Ok(sets)
}

/// The members of each set that has any.
pub(super) fn members(connection: &Connection) -> Tried<BTreeMap<u64, BTreeSet<u64>>> {
    let mut statement = connection.prepare_cached("SELECT business_set, business FROM business_set_member")?;
    let mut rows = statement.query([])?;
    let mut members: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        members.entry(counter(row, 0)?).or_default().insert(counter(row, 1)?);
    }
    Ok(members)
}

pub(super) fn delete_set(connection: &Connection, id: u64) -> Tried<bool> {
    forget_scope(connection, &Scope::BusinessSet(id))?;
    let deleted = connection.prepare_cached("DELETE FROM business_set WHERE id = ?1")?.execute([exact(id)?])?;
    Ok(deleted == 1)
}

pub(super) fn set_exists(connection: &Connection, id: u64) -> Tried<bool> {
    Ok(connection.prepare_cached("SELECT 1 FROM business_set WHERE id = ?1")?.exists([exact(id)?])?)
}

pub(super) fn place(connection: &Connection, placements: &[(HostKey, Option<u64>)]) -> Tried<Result<(), Refusal>> {
    let named: BTreeSet<u64> = placements.iter().filter_map(|(_, business)| *business).collect();
    if let Some(refusal) = unknown(connection, named)? {
        return Ok(Err(refusal));
    }
    for (host, business) in placements {
        place_one(connection, host, *business)?;
    }
    Ok(Ok(()))
}

/// Checks for unknown businesses first: a refusal must leave nothing behind.
pub(super) fn import(
    connection: &Connection,
    businesses: &[Business],
    placements: &[(HostKey, Option<u64>)],
) -> Tried<Result<(), Refusal>> {
    let mut named: BTreeSet<u64> = placements.iter().filter_map(|(_, business)| *business).collect();
    for business in businesses {
        named.remove(&business.id);
    }
    if let Some(refusal) = unknown(connection, named)? {
        return Ok(Err(refusal));
    }
    for business in businesses {
        put(connection, business)?;
    }
    place(connection, placements)
}

/// The business must exist.
pub(super) fn place_one(connection: &Connection, host: &HostKey, business: Option<u64>) -> Tried<()> {
    let ip = host.ip.to_string();
    match business {
        Some(business) => connection
            .prepare_cached(
                "INSERT INTO placement (cloud, ip, business) VALUES (?1, ?2, ?3)
                 ON CONFLICT (cloud, ip) DO UPDATE SET business = excluded.business",
            )?
            .execute((host.cloud, ip, exact(business)?))?,
        None => connection
            .prepare_cached("DELETE FROM placement WHERE cloud = ?1 AND ip = ?2")?
            .execute((host.cloud, ip))?,
    };
    Ok(())
}

/// The business of the address.
pub(super) fn business_of(connection: &Connection, host: &HostKey) -> Tried<Option<u64>> {
    let business: Option<i64> = connection
        .prepare_cached("SELECT business FROM placement WHERE cloud = ?1 AND ip = ?2")?
        .query_row((host.cloud, host.ip.to_string()), |row| row.get(0))
        .optional()?;
    Ok(business.map(i64::cast_unsigned))
}

/// A host that changes its address takes its placement along, unless the new address has one.
pub(super) fn carry_over(connection: &Connection, from: &HostKey, to: &HostKey) -> Tried<()> {
    connection
        .prepare_cached("UPDATE OR IGNORE placement SET cloud = ?3, ip = ?4 WHERE cloud = ?1 AND ip = ?2")?
        .execute((from.cloud, from.ip.to_string(), to.cloud, to.ip.to_string()))?;
    Ok(())
}
