//! What is registered where, and what it was before.

use std::collections::HashMap;
use std::sync::Arc;

use proctor_model::{AgentId, ProcessKey, Spec};
use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::column::{SpecReader, SpecWriter, counter};
use super::failure::Tried;
use super::hosts;
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
    let wanted: Vec<Wanted<'_>> =
        registrations.iter().map(|Registration { agent, key, spec }| Wanted { agent, key, spec: Some(spec) }).collect();
    registrar.change(&wanted, mode)
}

/// A tombstone's `registered_at` is the time of the unregistration.
pub(super) fn unregister(
    connection: &Connection,
    processes: &[(AgentId, ProcessKey)],
    now: Millis,
) -> Tried<Vec<bool>> {
    let mut registrar = Registrar::new(connection, now)?;
    let wanted: Vec<Wanted<'_>> = processes.iter().map(|(agent, key)| Wanted { agent, key, spec: None }).collect();
    let answers = registrar.change(&wanted, RegisterMode::Upsert)?;
    Ok(answers.into_iter().map(|answer| matches!(answer, Registered::Stored { .. })).collect())
}

/// What a process on an agent's host is to be: registered with the spec, or not registered.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) agent: &'a AgentId,
    pub(super) key: &'a ProcessKey,
    pub(super) spec: Option<&'a Arc<Spec>>,
}

/// Changes many registrations at once: a task may make one on every host.
pub(super) struct Registrar<'c> {
    connection: &'c Connection,
    now: Millis,
    specs: SpecWriter,
    insert: CachedStatement<'c>,
    change: CachedStatement<'c>,
    remember: CachedStatement<'c>,
    forget: CachedStatement<'c>,
}

/// A process on a host as the rows say, kept up to date while the rows are written.
struct Place<'a> {
    host: i64,
    key: &'a ProcessKey,
    row: Option<Row>,
}

/// The row of a process that is, or once was, registered.
struct Row {
    id: i64,
    revision: i64,
    generation: i64,
    /// None in a tombstone.
    hash: Option<String>,
    changed_at: Millis,
}

impl<'c> Registrar<'c> {
    pub(super) fn new(connection: &'c Connection, now: Millis) -> Tried<Self> {
        Ok(Self {
            connection,
            now,
            specs: SpecWriter::default(),
            insert: connection.prepare_cached(
                "INSERT INTO process (host, namespace, name, spec, generation, registered_at, changed_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
            )?,
            // A changed spec keeps the time of its registration and the last observation: it is still
            // the same process. One that goes, or comes back after a tombstone, does not.
            change: connection.prepare_cached(
                "UPDATE process SET
                     registered_at = iif(spec IS NULL OR ?2 IS NULL, ?4, registered_at),
                     snapshot = iif(?2 IS NULL, NULL, snapshot), phase = iif(?2 IS NULL, 'unknown', phase),
                     managed = iif(?2 IS NULL, 0, managed),
                     spec = ?2, generation = ?3, changed_at = ?4, revision = ?5
                 WHERE id = ?1",
            )?,
            remember: connection.prepare_cached(
                "INSERT INTO spec_revision (process, revision, generation, spec, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            forget: connection.prepare_cached("DELETE FROM spec_revision WHERE process = ?1 AND revision = ?2")?,
        })
    }

    /// Writes the spec under its hash, even if nothing is registered with it.
    pub(super) fn put_spec(&mut self, spec: &Arc<Spec>) -> Tried<String> {
        self.specs.put(self.connection, spec).map(str::to_owned)
    }

    /// One answer for each, in order. What is not registered is not unregistered: its answer is
    /// [`Registered::NoHost`].
    pub(super) fn change(&mut self, wanted: &[Wanted<'_>], mode: RegisterMode) -> Tried<Vec<Registered>> {
        let (mut places, numbers) = self.find(wanted)?;
        let before = hosts::newest_generation(self.connection)?;
        let mut newest = before;
        let mut answers = Vec::with_capacity(wanted.len());
        for (one, number) in wanted.iter().zip(numbers) {
            let answer = match number.map(|number| &mut places[number]) {
                Some(place) => self.change_one(one.spec, place, &mut newest, mode)?,
                None => Registered::NoHost,
            };
            answers.push(answer);
        }
        if newest > before {
            hosts::set_newest_generation(self.connection, newest)?;
        }
        Ok(answers)
    }

    fn change_one(
        &mut self,
        spec: Option<&Arc<Spec>>,
        place: &mut Place<'_>,
        newest: &mut i64,
        mode: RegisterMode,
    ) -> Tried<Registered> {
        let present = place.row.as_ref().and_then(|row| row.hash.as_deref().map(|hash| (hash, row.generation)));
        let hash = match (spec, present) {
            (Some(_), Some(_)) if mode == RegisterMode::Create => return Ok(Registered::Exists),
            (None, None) => return Ok(Registered::NoHost),
            (None, Some(_)) => None,
            (Some(spec), _) => Some(self.specs.put(self.connection, spec)?),
        };
        if let (Some((present, generation)), Some(hash)) = (present, hash)
            && present == hash
        {
            return Ok(Registered::Stored { generation: generation.cast_unsigned() });
        }
        *newest += 1;
        let hash = hash.map(str::to_owned);
        self.write(place, hash, *newest)?;
        Ok(Registered::Stored { generation: newest.cast_unsigned() })
    }

    /// Keeps what the process is beside what it was, forgets the oldest of that, and makes it new.
    fn write(&mut self, place: &mut Place<'_>, hash: Option<String>, generation: i64) -> Tried<()> {
        let (id, revision) = match &place.row {
            None => {
                let (namespace, name) = (place.key.namespace.as_str(), place.key.name.as_str());
                let id = self.insert.insert((place.host, namespace, name, &hash, generation, self.now))?;
                (id, 1)
            }
            Some(old) => {
                self.remember.execute((old.id, old.revision, old.generation, &old.hash, old.changed_at))?;
                let revision = old.revision + 1;
                if revision > REVISIONS_KEPT {
                    self.forget.execute((old.id, revision - REVISIONS_KEPT))?;
                }
                self.change.execute((old.id, &hash, generation, self.now, revision))?;
                (old.id, revision)
            }
        };
        place.row = Some(Row { id, revision, generation, hash, changed_at: self.now });
        Ok(())
    }

    /// Each process on each host once, and for each that is wanted the number of its place, if its
    /// agent is bound to a host.
    fn find<'a>(&self, wanted: &[Wanted<'a>]) -> Tried<(Vec<Place<'a>>, Vec<Option<usize>>)> {
        let mut finder = Finder::new(self.connection, wanted)?;
        let mut places = Vec::with_capacity(wanted.len());
        let mut known: HashMap<(i64, &ProcessKey), usize> = HashMap::with_capacity(wanted.len());
        let mut numbers = Vec::with_capacity(wanted.len());
        for Wanted { agent, key, .. } in wanted.iter().copied() {
            let Some(host) = finder.hosts.of(agent)? else {
                numbers.push(None);
                continue;
            };
            let number = *known.entry((host, key)).or_insert(places.len());
            if number == places.len() {
                places.push(Place { host, key, row: finder.row(host, key)? });
            }
            numbers.push(Some(number));
        }
        Ok((places, numbers))
    }
}

/// Finds many rows by their keys. What is asked for often is read whole, in one go: that takes a fraction
/// of what as many questions take.
struct Finder<'c, 'a> {
    connection: &'c Connection,
    /// How many rows must be wanted.
    whole_from: usize,
    hosts: Hosts<'c>,
    row: CachedStatement<'c>,
    /// How often each process is wanted, and its rows by host where that is often.
    processes: HashMap<&'a ProcessKey, Process>,
}

struct Process {
    wanted: usize,
    rows: Option<HashMap<i64, Row>>,
}

enum Hosts<'c> {
    One(CachedStatement<'c>),
    All(HashMap<String, i64>),
}

impl<'c, 'a> Finder<'c, 'a> {
    fn new(connection: &'c Connection, wanted: &[Wanted<'a>]) -> Tried<Self> {
        let mut processes = HashMap::new();
        for Wanted { key, .. } in wanted {
            processes.entry(*key).or_insert(Process { wanted: 0, rows: None }).wanted += 1;
        }
        let whole_from = hosts::whole_from(connection)?;
        Ok(Self {
            connection,
            whole_from,
            hosts: Hosts::new(connection, wanted.len() >= whole_from)?,
            row: connection.prepare_cached(
                "SELECT host, id, revision, generation, spec, changed_at FROM process
                 WHERE namespace = ?1 AND name = ?2 AND host = ?3",
            )?,
            processes,
        })
    }

    fn row(&mut self, host: i64, key: &'a ProcessKey) -> Tried<Option<Row>> {
        let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
        match self.processes.get_mut(key) {
            Some(process) if process.wanted >= self.whole_from => {
                if process.rows.is_none() {
                    process.rows = Some(rows_of(self.connection, key)?);
                }
                Ok(process.rows.as_mut().and_then(|rows| rows.remove(&host)))
            }
            Some(_) | None => Ok(self.row.query_row((namespace, name, host), |row| Ok(read_row(row)?.1)).optional()?),
        }
    }
}

impl<'c> Hosts<'c> {
    fn new(connection: &'c Connection, whole: bool) -> Tried<Self> {
        if !whole {
            return Ok(Self::One(connection.prepare_cached("SELECT id FROM host WHERE agent = ?1")?));
        }
        let mut all = connection.prepare_cached("SELECT agent, id FROM host WHERE agent IS NOT NULL")?;
        let all = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Self::All(all.collect::<rusqlite::Result<_>>()?))
    }

    fn of(&mut self, agent: &AgentId) -> Tried<Option<i64>> {
        match self {
            Self::One(statement) => Ok(statement.query_row([agent.as_str()], |row| row.get(0)).optional()?),
            Self::All(hosts) => Ok(hosts.get(agent.as_str()).copied()),
        }
    }
}

/// Of one process, by host.
fn rows_of(connection: &Connection, key: &ProcessKey) -> Tried<HashMap<i64, Row>> {
    let mut statement = connection.prepare_cached(
        "SELECT host, id, revision, generation, spec, changed_at FROM process WHERE namespace = ?1 AND name = ?2",
    )?;
    let rows = statement.query_map((key.namespace.as_str(), key.name.as_str()), read_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// With its host.
fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, Row)> {
    let [host, id, revision, generation, changed_at] =
        [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(5)?];
    Ok((host, Row { id, revision, generation, hash: row.get(4)?, changed_at }))
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
         SELECT old.generation, old.spec, old.at, old.revision
         FROM wanted JOIN spec_revision AS old ON old.process = wanted.id
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
