//! Registrations, what agents must learn of them, and what was last seen of each process.

use std::sync::Arc;

use proctor_model::{AgentId, ProcessKey, Spec};
use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql};

use super::column::{
    SpecReader, SpecWriter, counter, host_and_agent, process_key, signed, snapshot, snapshot_json, to_json,
};
use super::failure::{Failure, Tried};
use crate::{Assignment, Millis, Observation, ProcessQuery, ProcessRecord, RegisterMode, Registered, Registration};

pub(super) fn register(
    connection: &Connection,
    registrations: &[Registration],
    mode: RegisterMode,
    now: Millis,
) -> Tried<Vec<Registered>> {
    let mut registrar = Registrar::new(connection, now)?;
    registrations.iter().map(|one| registrar.register(&one.agent, &one.key, &one.spec, mode)).collect()
}

/// Registers many processes with few statements for each: a task may register one on every host.
pub(super) struct Registrar<'c> {
    connection: &'c Connection,
    now: Millis,
    specs: SpecWriter,
    find: CachedStatement<'c>,
    raise: CachedStatement<'c>,
    insert: CachedStatement<'c>,
    change: CachedStatement<'c>,
}

/// Where a registration goes: the agent's host, and the row of the process there, if it has one.
struct Place {
    host: i64,
    /// The generation that a change would get.
    next_generation: i64,
    row: Option<i64>,
    /// Hash and generation, if it is registered.
    registered: Option<(String, i64)>,
}

impl<'c> Registrar<'c> {
    pub(super) fn new(connection: &'c Connection, now: Millis) -> Tried<Self> {
        Ok(Self {
            connection,
            now,
            specs: SpecWriter::default(),
            find: connection.prepare_cached(
                "SELECT host.id, host.generation + 1, process.id, process.spec, process.generation FROM host
                 LEFT JOIN process ON process.namespace = ?2 AND process.name = ?3 AND process.host = host.id
                 WHERE host.agent = ?1",
            )?,
            raise: connection.prepare_cached("UPDATE host SET generation = ?2 WHERE id = ?1")?,
            insert: connection.prepare_cached(
                "INSERT INTO process (host, namespace, name, spec, generation, registered_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            change: connection.prepare_cached(
                "UPDATE process SET registered_at = iif(spec IS NULL, ?4, registered_at), spec = ?2, generation = ?3
                 WHERE id = ?1",
            )?,
        })
    }

    /// Writes the spec under its hash, even if nothing is registered with it.
    pub(super) fn put_spec(&mut self, spec: &Arc<Spec>) -> Tried<String> {
        self.specs.put(self.connection, spec).map(str::to_owned)
    }

    /// A changed spec keeps the time of its registration and the last observation: it is still the
    /// same process. One that comes back after a tombstone is new.
    pub(super) fn register(
        &mut self,
        agent: &AgentId,
        key: &ProcessKey,
        spec: &Arc<Spec>,
        mode: RegisterMode,
    ) -> Tried<Registered> {
        let Some(place) = self.find(agent, key)? else { return Ok(Registered::NoHost) };
        if place.registered.is_some() && mode == RegisterMode::Create {
            return Ok(Registered::Exists);
        }
        let hash = self.specs.put(self.connection, spec)?;
        if let Some((present, generation)) = &place.registered
            && present == hash
        {
            return Ok(Registered::Stored { generation: generation.cast_unsigned() });
        }
        let generation = place.next_generation;
        self.raise.execute((place.host, generation))?;
        match place.row {
            Some(row) => self.change.execute((row, hash, generation, self.now))?,
            None => {
                let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
                self.insert.execute((place.host, namespace, name, hash, generation, self.now))?
            }
        };
        Ok(Registered::Stored { generation: generation.cast_unsigned() })
    }

    fn find(&mut self, agent: &AgentId, key: &ProcessKey) -> Tried<Option<Place>> {
        let place = self
            .find
            .query_row((agent.as_str(), key.namespace.as_str(), key.name.as_str()), |row| {
                let (hash, generation): (Option<String>, Option<i64>) = (row.get(3)?, row.get(4)?);
                let registered = hash.zip(generation);
                Ok(Place { host: row.get(0)?, next_generation: row.get(1)?, row: row.get(2)?, registered })
            })
            .optional()?;
        Ok(place)
    }
}

/// A tombstone's `registered_at` is the time of the unregistration.
pub(super) fn unregister(
    connection: &Connection,
    processes: &[(AgentId, ProcessKey)],
    now: Millis,
) -> Tried<Vec<bool>> {
    let mut registrar = Registrar::new(connection, now)?;
    let mut bury = connection.prepare_cached(
        "UPDATE process SET spec = NULL, snapshot = NULL, managed = 0, generation = ?2, registered_at = ?3
         WHERE id = ?1",
    )?;
    let mut one = |agent: &AgentId, key: &ProcessKey| {
        let Some(Place { host, next_generation, row, registered: Some(_) }) = registrar.find(agent, key)? else {
            return Ok(false);
        };
        registrar.raise.execute((host, next_generation))?;
        bury.execute((row, next_generation, now))?;
        Ok(true)
    };
    processes.iter().map(|(agent, key)| one(agent, key)).collect()
}

/// The same conditions for counting and for reading; only those that narrow are written, so that
/// SQLite can use the index of those that do.
struct Filter {
    sql: String,
    agents: Option<String>,
}

impl Filter {
    fn new(query: &ProcessQuery) -> Self {
        let mut sql = "FROM process JOIN host ON host.id = process.host
                       WHERE process.spec IS NOT NULL AND host.agent IS NOT NULL"
            .to_owned();
        if query.namespace.is_some() {
            sql.push_str(" AND process.namespace = :namespace");
        }
        if query.name.is_some() {
            sql.push_str(" AND process.name = :name");
        }
        if query.agents.is_some() {
            sql.push_str(" AND host.agent IN (SELECT value FROM json_each(:agents))");
        }
        Self { sql, agents: query.agents.as_ref().map(to_json) }
    }

    fn params<'a>(&'a self, query: &'a ProcessQuery) -> Vec<(&'static str, Box<dyn ToSql + 'a>)> {
        let mut params: Vec<(&'static str, Box<dyn ToSql + 'a>)> = Vec::new();
        if let Some(namespace) = &query.namespace {
            params.push((":namespace", Box::new(namespace.as_str())));
        }
        if let Some(name) = &query.name {
            params.push((":name", Box::new(name.as_str())));
        }
        if let Some(agents) = &self.agents {
            params.push((":agents", Box::new(agents)));
        }
        params
    }
}

pub(super) fn list(connection: &Connection, query: &ProcessQuery) -> Tried<(u64, Vec<ProcessRecord>)> {
    let filter = Filter::new(query);
    let mut params = filter.params(query);
    let bound: Vec<(&str, &dyn ToSql)> = params.iter().map(|(name, value)| (*name, value.as_ref())).collect();
    let total: i64 = connection
        .prepare_cached(&format!("SELECT count(*) {}", filter.sql))?
        .query_row(bound.as_slice(), |row| row.get(0))?;

    params.push((":limit", Box::new(query.limit.map_or(-1, signed))));
    params.push((":offset", Box::new(signed(query.offset))));
    let bound: Vec<(&str, &dyn ToSql)> = params.iter().map(|(name, value)| (*name, value.as_ref())).collect();
    Ok((total.cast_unsigned(), page(connection, &filter, &bound)?))
}

fn page(connection: &Connection, filter: &Filter, params: &[(&str, &dyn ToSql)]) -> Tried<Vec<ProcessRecord>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT cloud, supplier, ip, agent, online, namespace, name, spec, process.generation, registered_at, snapshot
         {} ORDER BY namespace, name, cloud, ip LIMIT :limit OFFSET :offset",
        filter.sql
    ))?;
    let mut rows = statement.query(params)?;
    let mut specs = SpecReader::default();
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let (host, agent) = host_and_agent(row, 0)?;
        let hash = row.get_ref(7)?.as_str().map_err(|error| Failure::damaged("spec hash", error))?;
        records.push(ProcessRecord {
            host,
            agent,
            online: row.get(4)?,
            key: process_key(row, 5)?,
            spec: specs.get(connection, hash)?,
            generation: counter(row, 8)?,
            registered_at: row.get(9)?,
            snapshot: snapshot(row, 10)?,
        });
    }
    Ok(records)
}

pub(super) fn assignments(connection: &Connection, agent: &AgentId, since: u64) -> Tried<Vec<Assignment>> {
    let mut statement = connection.prepare_cached(
        "SELECT process.generation, namespace, name, spec, managed, registered_at
         FROM host JOIN process ON process.host = host.id
         WHERE host.agent = ?1 AND process.generation > ?2 AND (spec IS NOT NULL OR ?2 > 0)
         ORDER BY process.generation",
    )?;
    let mut rows = statement.query((agent.as_str(), signed(since)))?;
    let mut specs = SpecReader::default();
    let mut assignments = Vec::new();
    while let Some(row) = rows.next()? {
        let hash: Option<String> = row.get(3)?;
        assignments.push(Assignment {
            generation: counter(row, 0)?,
            key: process_key(row, 1)?,
            spec: hash.map(|hash| specs.get(connection, &hash)).transpose()?,
            managed: row.get(4)?,
            registered_at: row.get(5)?,
        });
    }
    Ok(assignments)
}

pub(super) fn observe(connection: &Connection, agent: &AgentId, epoch: u64, observations: &[Observation]) -> Tried<()> {
    let host: Option<i64> = connection
        .prepare_cached("SELECT id FROM host WHERE agent = ?1 AND epoch <= ?2")?
        .query_row((agent.as_str(), signed(epoch)), |row| row.get(0))
        .optional()?;
    let Some(host) = host else { return Ok(()) };
    let mut statement = connection.prepare_cached(
        "UPDATE process SET snapshot = ?4, managed = ?5
         WHERE host = ?1 AND namespace = ?2 AND name = ?3 AND spec IS NOT NULL",
    )?;
    for Observation { key, snapshot } in observations {
        let json = snapshot_json(snapshot);
        statement.execute((host, key.namespace.as_str(), key.name.as_str(), json, snapshot.managed))?;
    }
    Ok(())
}
