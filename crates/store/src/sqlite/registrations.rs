//! What is registered where, and what it was before.

use std::sync::Arc;

use proctor_model::{AgentId, ProcessKey, Spec};
use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::column::{SpecReader, SpecWriter, counter};
use super::failure::Tried;
use crate::{Millis, RegisterMode, Registered, Registration, SpecRevision};

/// Of one process, the present one included.
const REVISIONS_KEPT: i64 = 20;

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
    remember: CachedStatement<'c>,
    forget: CachedStatement<'c>,
}

/// Where a registration goes: the agent's host, and the row of the process there, if it has one.
struct Place {
    host: i64,
    /// The generation that a change would get.
    next_generation: i64,
    row: Option<Row>,
    /// Hash and generation, if it is registered.
    registered: Option<(String, i64)>,
}

/// A process that is, or once was, registered.
#[derive(Clone, Copy)]
struct Row {
    id: i64,
    revision: i64,
}

impl<'c> Registrar<'c> {
    pub(super) fn new(connection: &'c Connection, now: Millis) -> Tried<Self> {
        Ok(Self {
            connection,
            now,
            specs: SpecWriter::default(),
            find: connection.prepare_cached(
                "SELECT host.id, host.generation + 1, process.id, process.revision, process.spec, process.generation
                 FROM host
                 LEFT JOIN process ON process.namespace = ?2 AND process.name = ?3 AND process.host = host.id
                 WHERE host.agent = ?1",
            )?,
            raise: connection.prepare_cached("UPDATE host SET generation = ?2 WHERE id = ?1")?,
            insert: connection.prepare_cached(
                "INSERT INTO process (host, namespace, name, spec, generation, registered_at, changed_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
            )?,
            change: connection.prepare_cached(
                "UPDATE process SET registered_at = iif(spec IS NULL, ?4, registered_at), spec = ?2, generation = ?3,
                        revision = revision + 1, changed_at = ?4
                 WHERE id = ?1",
            )?,
            remember: connection.prepare_cached(
                "INSERT INTO spec_revision (process, revision, generation, spec, at)
                 SELECT id, revision, generation, spec, changed_at FROM process WHERE id = ?1",
            )?,
            forget: connection.prepare_cached("DELETE FROM spec_revision WHERE process = ?1 AND revision <= ?2")?,
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
            Some(row) => {
                remember(&mut self.remember, &mut self.forget, row)?;
                self.change.execute((row.id, hash, generation, self.now))?
            }
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
                let (id, revision): (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
                let (hash, generation): (Option<String>, Option<i64>) = (row.get(4)?, row.get(5)?);
                Ok(Place {
                    host: row.get(0)?,
                    next_generation: row.get(1)?,
                    row: id.zip(revision).map(|(id, revision)| Row { id, revision }),
                    registered: hash.zip(generation),
                })
            })
            .optional()?;
        Ok(place)
    }
}

/// Keeps what the process is now beside what it was, and forgets the oldest of that. Runs before
/// the row is changed. Of two fields and not of the registrar: a hash may be borrowed from it.
fn remember(remember: &mut CachedStatement<'_>, forget: &mut CachedStatement<'_>, row: Row) -> Tried<()> {
    remember.execute([row.id])?;
    let oldest_kept = row.revision + 2 - REVISIONS_KEPT;
    if oldest_kept > 1 {
        forget.execute([row.id, oldest_kept - 1])?;
    }
    Ok(())
}

/// A tombstone's `registered_at` is the time of the unregistration.
pub(super) fn unregister(
    connection: &Connection,
    processes: &[(AgentId, ProcessKey)],
    now: Millis,
) -> Tried<Vec<bool>> {
    let mut registrar = Registrar::new(connection, now)?;
    let mut bury = connection.prepare_cached(
        "UPDATE process SET spec = NULL, snapshot = NULL, phase = 'unknown', managed = 0, generation = ?2,
                registered_at = ?3, revision = revision + 1, changed_at = ?3
         WHERE id = ?1",
    )?;
    let mut one = |agent: &AgentId, key: &ProcessKey| {
        let Some(place) = registrar.find(agent, key)? else { return Ok(false) };
        let Place { host, next_generation, row: Some(row), registered: Some(_) } = place else { return Ok(false) };
        registrar.raise.execute((host, next_generation))?;
        remember(&mut registrar.remember, &mut registrar.forget, row)?;
        bury.execute((row.id, next_generation, now))?;
        Ok(true)
    };
    processes.iter().map(|(agent, key)| one(agent, key)).collect()
}

pub(super) fn history(
    connection: &Connection,
    agent: &AgentId,
    key: &ProcessKey,
    limit: u32,
) -> Tried<Vec<SpecRevision>> {
    let mut statement = connection.prepare_cached(
        "WITH wanted AS (
             SELECT process.* FROM process JOIN host ON host.id = process.host
             WHERE host.agent = ?1 AND namespace = ?2 AND name = ?3
         )
         SELECT generation, spec, changed_at, revision FROM wanted
         UNION ALL
         SELECT old.generation, old.spec, old.at, old.revision FROM wanted JOIN spec_revision AS old ON old.process = wanted.id
         ORDER BY 4 DESC LIMIT ?4",
    )?;
    let mut rows = statement.query((agent.as_str(), key.namespace.as_str(), key.name.as_str(), limit))?;
    let mut specs = SpecReader::default();
    let mut revisions = Vec::new();
    while let Some(row) = rows.next()? {
        let hash: Option<String> = row.get(1)?;
        let spec = hash.map(|hash| specs.get(connection, &hash)).transpose()?;
        revisions.push(SpecRevision { generation: counter(row, 0)?, spec, at: row.get(2)? });
    }
    Ok(revisions)
}
