//! What is registered where, and what it was before.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use proctor_model::{AgentId, ProcessKey, Spec};
use rusqlite::{CachedStatement, Connection};

use super::column::{SpecReader, SpecWriter, counter, to_json};
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

/// Changes many registrations at once: a task may make one on every host. What is there is read by
/// one statement; what is to change is written row by row.
pub(super) struct Registrar<'c> {
    connection: &'c Connection,
    now: Millis,
    specs: SpecWriter,
    insert: CachedStatement<'c>,
    change: CachedStatement<'c>,
    remember: CachedStatement<'c>,
    forget: CachedStatement<'c>,
}

/// What is there of what is wanted.
struct Found {
    /// Each process on each host once.
    places: Vec<Place>,
    /// For each that is wanted the number of its place, if its agent is bound to a host.
    numbers: Vec<Option<usize>>,
    /// Of each host.
    generations: BTreeMap<i64, Generation>,
}

/// A process on a host as the rows say, kept up to date while the rows are written.
struct Place {
    host: i64,
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
        let Found { mut places, numbers, mut generations } = self.find(wanted)?;
        let mut answers = Vec::with_capacity(wanted.len());
        for (one, number) in wanted.iter().zip(numbers) {
            let answer = match number.map(|number| &mut places[number]) {
                Some(place) => self.change_one(one, place, &mut generations, mode)?,
                None => Registered::NoHost,
            };
            answers.push(answer);
        }
        self.raise(&generations)?;
        Ok(answers)
    }

    fn change_one(
        &mut self,
        wanted: &Wanted<'_>,
        place: &mut Place,
        generations: &mut BTreeMap<i64, Generation>,
        mode: RegisterMode,
    ) -> Tried<Registered> {
        let present = place.row.as_ref().and_then(|row| row.hash.as_deref().map(|hash| (hash, row.generation)));
        let hash = match (wanted.spec, present) {
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
        let generation = generations.entry(place.host).or_default().next();
        let hash = hash.map(str::to_owned);
        self.write(wanted.key, place, hash, generation)?;
        Ok(Registered::Stored { generation: generation.cast_unsigned() })
    }

    /// Keeps what the process is beside what it was, forgets the oldest of that, and makes it new.
    fn write(&mut self, key: &ProcessKey, place: &mut Place, hash: Option<String>, generation: i64) -> Tried<()> {
        let (id, revision) = match &place.row {
            None => {
                let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
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

    fn find(&self, wanted: &[Wanted<'_>]) -> Tried<Found> {
        let asked: Vec<(&str, &str, &str)> =
            wanted.iter().map(|one| (one.agent.as_str(), one.key.namespace.as_str(), one.key.name.as_str())).collect();
        // CROSS: the list leads, and the rest is found by index.
        let mut statement = self.connection.prepare_cached(
            "SELECT asked.key, host.id, process.id, revision, process.generation, spec, changed_at, newest.generation
             FROM json_each(?1) AS asked
             CROSS JOIN host ON host.agent = asked.value ->> 0
             CROSS JOIN host_generation AS newest ON newest.host = host.id
             LEFT JOIN process ON process.namespace = asked.value ->> 1 AND process.name = asked.value ->> 2
                              AND process.host = host.id",
        )?;
        let mut rows = statement.query([to_json(&asked)])?;
        let (mut places, mut numbers) = (Vec::new(), vec![None; wanted.len()]);
        let mut generations = BTreeMap::new();
        let mut known: HashMap<(i64, &ProcessKey), usize> = HashMap::with_capacity(wanted.len());
        while let Some(row) = rows.next()? {
            let (asked, host): (u32, i64) = (row.get(0)?, row.get(1)?);
            let asked = asked as usize;
            let number = *known.entry((host, wanted[asked].key)).or_insert(places.len());
            if number == places.len() {
                places.push(Place { host, row: read_row(row)? });
                generations.insert(host, Generation { newest: row.get(7)?, is_raised: false });
            }
            numbers[asked] = Some(number);
        }
        Ok(Found { places, numbers, generations })
    }

    fn raise(&self, generations: &BTreeMap<i64, Generation>) -> Tried<()> {
        let mut raise = self.connection.prepare_cached("UPDATE host_generation SET generation = ?2 WHERE host = ?1")?;
        for (host, generation) in generations.iter().filter(|(_, generation)| generation.is_raised) {
            raise.execute((host, generation.newest))?;
        }
        Ok(())
    }
}

/// The newest generation of a host while it is raised.
#[derive(Default)]
struct Generation {
    newest: i64,
    is_raised: bool,
}

impl Generation {
    fn next(&mut self) -> i64 {
        self.newest += 1;
        self.is_raised = true;
        self.newest
    }
}

/// From five columns beginning with the third, which are all NULL where there is no row.
fn read_row(row: &rusqlite::Row<'_>) -> Tried<Option<Row>> {
    let Some(id) = row.get(2)? else { return Ok(None) };
    Ok(Some(Row { id, revision: row.get(3)?, generation: row.get(4)?, hash: row.get(5)?, changed_at: row.get(6)? }))
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
