//! How model types are stored in columns.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use proctor_model::{AgentId, HostKey, ProcessKey, Snapshot, Spec, SpecHash};
use rusqlite::{Connection, OptionalExtension, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::failure::{Failure, Tried};
use super::retention;

/// SQLite has no unsigned integers. None of our values reaches the limit, except an argument that means "no limit",
/// for which the largest value does as well.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// An identifier from outside: stored exactly or not at all.
pub(super) fn exact(number: u64) -> Tried<i64> {
    i64::try_from(number).map_err(|_| Failure::Argument(format!("{number} is larger than {}", i64::MAX)))
}

/// A counter as it was stored; counters are never negative.
pub(super) fn counter(row: &Row<'_>, column: usize) -> Tried<u64> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

pub(super) fn to_json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("the model's types have string keys and serialise without error")
}

pub(super) fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> Tried<T> {
    serde_json::from_str(text).map_err(|error| Failure::damaged(what, error))
}

/// A text column that holds a validated text type.
pub(super) fn parsed<T>(row: &Row<'_>, column: usize, what: &str) -> Tried<T>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let text = row.get_ref(column)?.as_str().map_err(|error| Failure::damaged(what, error))?;
    text.parse().map_err(|error| Failure::damaged(what, error))
}

pub(super) fn uuid(row: &Row<'_>, column: usize, what: &str) -> Tried<Uuid> {
    let bytes = row.get_ref(column)?.as_blob().map_err(|error| Failure::damaged(what, error))?;
    Uuid::from_slice(bytes).map_err(|error| Failure::damaged(what, error))
}

/// From four columns beginning with `first`: cloud, supplier, ip, agent.
pub(super) fn host_and_agent(row: &Row<'_>, first: usize) -> Tried<(HostKey, AgentId)> {
    Ok((host_key(row, first)?, parsed(row, first + 3, "agent id")?))
}

/// An agent's alias.
pub(super) fn alias(row: &Row<'_>, column: usize) -> Tried<Option<AgentId>> {
    let is_bound = row.get_ref(column)?.data_type() != rusqlite::types::Type::Null;
    is_bound.then(|| parsed(row, column, "agent id")).transpose()
}

/// From three columns beginning with `first`: cloud, supplier, ip.
pub(super) fn host_key(row: &Row<'_>, first: usize) -> Tried<HostKey> {
    Ok(HostKey::new(row.get(first)?, row.get(first + 1)?, parsed(row, first + 2, "host address")?))
}

/// From two columns beginning with `first`: namespace, name.
pub(super) fn process_key(row: &Row<'_>, first: usize) -> Tried<ProcessKey> {
    Ok(ProcessKey::new(parsed(row, first, "namespace")?, parsed(row, first + 1, "process name")?))
}

/// A reading that is not finite counts as missing.
pub(super) fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

/// JSON cannot represent a number that is not finite.
pub(super) fn snapshot_json(snapshot: &Snapshot) -> String {
    let mut snapshot = snapshot.clone();
    let usage = &mut snapshot.usage;
    for number in [&mut usage.cpu_percent, &mut usage.cpu_percent_average, &mut usage.memory_percent] {
        *number = finite(*number);
    }
    to_json(&snapshot)
}

pub(super) fn snapshot(row: &Row<'_>, column: usize) -> Tried<Option<Snapshot>> {
    let text: Option<&str> =
        row.get_ref(column)?.as_str_or_null().map_err(|error| Failure::damaged("snapshot", error))?;
    text.map(|text| from_json("snapshot", text)).transpose()
}

/// Writes specs, each once however many registrations share it.
#[derive(Default)]
pub(super) struct SpecWriter {
    /// By address.
    written: HashMap<*const Spec, WrittenSpec>,
}

pub(super) struct WrittenSpec {
    pub(super) number: i64,
    pub(super) hash: SpecHash,
    /// Keeps it alive, so that its address is not reused.
    _spec: Arc<Spec>,
}

impl SpecWriter {
    pub(super) fn put(&mut self, connection: &Connection, spec: &Arc<Spec>) -> Tried<&WrittenSpec> {
        let written = match self.written.entry(Arc::as_ptr(spec)) {
            Entry::Occupied(written) => written.into_mut(),
            Entry::Vacant(entry) => {
                let hash = spec.hash();
                connection
                    .prepare_cached(
                        "INSERT INTO spec (hash, json, used_uptime) SELECT ?1, ?2, ms FROM uptime WHERE TRUE
                         ON CONFLICT DO NOTHING",
                    )?
                    .execute((hash.as_str(), spec.to_json()))?;
                let number = number_of(connection, hash.as_str())?.ok_or_else(|| missing(hash.as_str()))?;
                retention::use_spec(connection, number)?;
                entry.insert(WrittenSpec { number, hash, _spec: Arc::clone(spec) })
            }
        };
        Ok(written)
    }
}

/// Reads specs, each once however many rows refer to it.
#[derive(Default)]
pub(super) struct SpecReader {
    read: HashMap<i64, Arc<Spec>>,
}

impl SpecReader {
    pub(super) fn get(&mut self, connection: &Connection, number: i64) -> Tried<Arc<Spec>> {
        if let Some(spec) = self.read.get(&number) {
            return Ok(Arc::clone(spec));
        }
        let json: Option<String> = connection
            .prepare_cached("SELECT json FROM spec WHERE id = ?1")?
            .query_row([number], |row| row.get(0))
            .optional()?;
        let json = json.ok_or_else(|| missing(number))?;
        let spec: Arc<Spec> = Arc::new(from_json("spec", &json)?);
        self.read.insert(number, Arc::clone(&spec));
        Ok(spec)
    }

    pub(super) fn of_hash(&mut self, connection: &Connection, hash: &str) -> Tried<Arc<Spec>> {
        let number = number_of(connection, hash)?.ok_or_else(|| missing(hash))?;
        self.get(connection, number)
    }
}

fn number_of(connection: &Connection, hash: &str) -> Tried<Option<i64>> {
    let number = connection
        .prepare_cached("SELECT id FROM spec WHERE hash = ?1")?
        .query_row([hash], |row| row.get(0))
        .optional()?;
    Ok(number)
}

fn missing(spec: impl std::fmt::Display) -> Failure {
    Failure::Damaged(format!("reference to spec {spec}, which is not there"))
}
