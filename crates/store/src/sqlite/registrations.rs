//! Registrations and their revisions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use proctor_model::{AgentId, ProcessKey, Spec};
use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::column::{SpecReader, SpecWriter, counter, signed, to_json};
use super::failure::{Failure, Tried};
use super::{hosts, processes};
use crate::{Millis, RegisterMode, Registered, Registration, SpecRevision};

/// Revisions of one process, including the current one.
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

/// The desired state of a process on an agent's host: registered with the spec, or not registered.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) agent: &'a AgentId,
    pub(super) key: &'a ProcessKey,
    pub(super) spec: Option<&'a Arc<Spec>>,
}

/// Changes many registrations at once: a task may register a process on every host. What is the same for all hosts
/// is written by one statement.
pub(super) struct Registrar<'c> {
    connection: &'c Connection,
    now: Millis,
    specs: SpecWriter,
    /// From this many on, all rows are read instead of each.
    whole_from: usize,
}

/// One of the wanted changes.
#[derive(Clone, Copy)]
struct WantedOnHost {
    /// Its index in the list.
    number: usize,
    host: i64,
}

/// The row of a process that is, or once was, registered.
struct Row {
    host: i64,
    id: i64,
    revision: i64,
    generation: i64,
    /// None in a tombstone.
    spec: Option<i64>,
}

/// Changes of one process that are the same on all hosts, each with its index in the list.
#[derive(Default)]
struct Changes {
    /// Hosts that had no row.
    new: Vec<(i64, usize)>,
    /// Rows.
    changed: Vec<(i64, usize)>,
    /// Those of them whose oldest revision is dropped.
    old: Vec<i64>,
}

impl<'c> Registrar<'c> {
    pub(super) fn new(connection: &'c Connection, now: Millis) -> Tried<Self> {
        Ok(Self { connection, now, specs: SpecWriter::default(), whole_from: hosts::whole_from(connection)? })
    }

    /// Writes the spec, even if nothing is registered with it, and returns its hash.
    pub(super) fn put_spec(&mut self, spec: &Arc<Spec>) -> Tried<String> {
        Ok(self.specs.put(self.connection, spec)?.hash.as_str().to_owned())
    }

    /// One answer each, in order. Unregistering what is not registered does nothing and answers
    /// [`Registered::NoHost`].
    pub(super) fn change(&mut self, wanted: &[Wanted<'_>], mode: RegisterMode) -> Tried<Vec<Registered>> {
        let mut answers = vec![Registered::NoHost; wanted.len()];
        let before = hosts::newest_generation(self.connection)?;
        let mut newest = before;
        for (key, mut targets) in self.by_process(wanted)? {
            // In host order, in which the rows are read and written.
            targets.sort_by_key(|target| target.host);
            while !targets.is_empty() {
                targets = self.change_process(key, &targets, wanted, mode, &mut newest, &mut answers)?;
            }
        }
        if newest > before {
            hosts::set_newest_generation(self.connection, newest)?;
        }
        Ok(answers)
    }

    /// Those whose agent is bound to a host.
    fn by_process<'a>(&self, wanted: &[Wanted<'a>]) -> Tried<Vec<(&'a ProcessKey, Vec<WantedOnHost>)>> {
        let mut hosts = Hosts::new(self.connection, wanted, self.whole_from)?;
        let mut numbers: HashMap<&ProcessKey, usize> = HashMap::new();
        let mut processes: Vec<(&ProcessKey, Vec<WantedOnHost>)> = Vec::new();
        let mut last = 0;
        for (number, Wanted { agent, key, .. }) in wanted.iter().copied().enumerate() {
            let Some(host) = hosts.of(agent)? else { continue };
            // Usually the same as before.
            if processes.get(last).is_none_or(|(last, _)| *last != key) {
                last = *numbers.entry(key).or_insert(processes.len());
                if last == processes.len() {
                    processes.push((key, Vec::new()));
                }
            }
            processes[last].1.push(WantedOnHost { number, host });
        }
        Ok(processes)
    }

    /// Each host once per pass; the rest is for hosts that were changed in this one.
    fn change_process(
        &mut self,
        key: &ProcessKey,
        targets: &[WantedOnHost],
        wanted: &[Wanted<'_>],
        mode: RegisterMode,
        newest: &mut i64,
        answers: &mut [Registered],
    ) -> Tried<Vec<WantedOnHost>> {
        let mut rows = self.rows_of(key, targets)?.into_iter().peekable();
        let mut changes: BTreeMap<Option<i64>, Changes> = BTreeMap::new();
        let mut again = Vec::new();
        let mut last_host = None;
        for target in targets {
            if last_host.replace(target.host) == Some(target.host) {
                again.push(*target);
                continue;
            }
            while rows.next_if(|row| row.host < target.host).is_some() {}
            let row = rows.next_if(|row| row.host == target.host);
            let present = row.as_ref().and_then(|row| Some((row.spec?, row.generation)));
            let spec = match wanted[target.number].spec {
                // Before the spec is written: a change without effect must leave nothing behind.
                Some(_) if present.is_some() && mode == RegisterMode::Create => {
                    answers[target.number] = Registered::Exists;
                    continue;
                }
                Some(spec) => Some(self.specs.put(self.connection, spec)?.number),
                None => None,
            };
            match (spec, present) {
                (None, None) => answers[target.number] = Registered::NoHost,
                (Some(spec), Some((present, generation))) if spec == present => {
                    answers[target.number] = Registered::Stored { generation: generation.cast_unsigned() };
                }
                (Some(_), _) | (None, Some(_)) => changes.entry(spec).or_default().add(target, row.as_ref()),
            }
        }
        for (spec, changes) in changes {
            *newest = self.write(key, spec, &changes, *newest, answers)?;
        }
        Ok(again)
    }

    /// The rows of a process that may be wanted, in host order, like the list itself. If many are wanted, all are
    /// read.
    fn rows_of(&self, key: &ProcessKey, targets: &[WantedOnHost]) -> Tried<Vec<Row>> {
        let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
        if targets.len() >= self.whole_from {
            let mut statement = self.connection.prepare_cached(
                "SELECT host, id, revision, generation, spec FROM process
                 WHERE namespace = ?1 AND name = ?2 ORDER BY host",
            )?;
            let rows = statement.query_map((namespace, name), row)?;
            return Ok(rows.collect::<rusqlite::Result<_>>()?);
        }
        let mut statement = self.connection.prepare_cached(
            "SELECT host, id, revision, generation, spec FROM process
             WHERE namespace = ?1 AND name = ?2 AND host = ?3",
        )?;
        let mut rows = Vec::with_capacity(targets.len());
        for target in targets {
            rows.extend(statement.query_row((namespace, name, target.host), row).optional()?);
        }
        Ok(rows)
    }

    /// Stores the current spec as a revision, drops the oldest one, and replaces it. Returns the newest generation.
    fn write(
        &self,
        key: &ProcessKey,
        spec: Option<i64>,
        changes: &Changes,
        newest: i64,
        answers: &mut [Registered],
    ) -> Tried<i64> {
        let Changes { new, changed, old } = changes;
        let mut generation = newest;
        for (_, number) in new.iter().chain(changed) {
            generation += 1;
            answers[*number] = Registered::Stored { generation: generation.cast_unsigned() };
        }
        if !new.is_empty() {
            self.insert(key, spec, new, newest + 1)?;
        }
        if !changed.is_empty() {
            let rows = list(changed);
            self.remember(&rows)?;
            self.forget(old)?;
            self.update(&rows, spec, generation + 1 - signed(changed.len() as u64))?;
        }
        Ok(generation)
    }

    fn insert(&self, key: &ProcessKey, spec: Option<i64>, hosts: &[(i64, usize)], generation: i64) -> Tried<()> {
        let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
        self.connection
            .prepare_cached(
                "INSERT INTO process (host, namespace, name, spec, generation, registered_at, changed_at)
                 SELECT value, ?2, ?3, ?4, ?5 + key, ?6, ?6 FROM json_each(?1)",
            )?
            .execute((list(hosts), namespace, name, spec, generation, self.now))?;
        Ok(())
    }

    fn remember(&self, rows: &str) -> Tried<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO spec_revision (process, revision, generation, spec, at)
                 SELECT process.id, revision, generation, spec, changed_at
                 FROM json_each(?1) AS wanted CROSS JOIN process ON process.id = wanted.value",
            )?
            .execute([rows])?;
        Ok(())
    }

    fn forget(&self, rows: &[i64]) -> Tried<()> {
        if !rows.is_empty() {
            self.connection
                .prepare_cached(
                    "DELETE FROM spec_revision WHERE (process, revision) IN
                         (SELECT process.id, process.revision + 1 - ?2
                          FROM json_each(?1) AS wanted CROSS JOIN process ON process.id = wanted.value)",
                )?
                .execute((to_json(rows), REVISIONS_KEPT))?;
        }
        Ok(())
    }

    /// A changed spec keeps the time of its registration and its last observation: it is still the same process.
    /// One that is unregistered, or returns after a tombstone, does not.
    fn update(&self, rows: &str, spec: Option<i64>, generation: i64) -> Tried<()> {
        self.connection
            .prepare_cached(
                "UPDATE process SET
                     registered_at = iif(spec IS NULL OR ?2 IS NULL, ?4, registered_at),
                     spec = ?2, generation = ?3 + wanted.key, changed_at = ?4, revision = revision + 1
                 FROM json_each(?1) AS wanted WHERE process.id = wanted.value",
            )?
            .execute((rows, spec, generation, self.now))?;
        if spec.is_none() { processes::forget_observations(self.connection, rows) } else { Ok(()) }
    }
}

impl Changes {
    fn add(&mut self, target: &WantedOnHost, row: Option<&Row>) {
        let Some(row) = row else {
            self.new.push((target.host, target.number));
            return;
        };
        self.changed.push((row.id, target.number));
        if row.revision >= REVISIONS_KEPT {
            self.old.push(row.id);
        }
    }
}

/// The numbers of rows, for `json_each`.
fn list(numbered: &[(i64, usize)]) -> String {
    to_json(&numbered.iter().map(|(row, _)| *row).collect::<Vec<_>>())
}

/// The hosts of agents. If many are wanted, all are read at once: that takes a fraction of the time of as many
/// queries.
enum Hosts<'c, 'a> {
    One(CachedStatement<'c>),
    Read(HashMap<&'a str, Option<i64>>),
}

impl<'c, 'a> Hosts<'c, 'a> {
    fn new(connection: &'c Connection, wanted: &[Wanted<'a>], whole_from: usize) -> Tried<Self> {
        if wanted.len() < whole_from {
            return Ok(Self::One(connection.prepare_cached("SELECT id FROM host WHERE agent = ?1")?));
        }
        let mut read: HashMap<&str, Option<i64>> = wanted.iter().map(|wanted| (wanted.agent.as_str(), None)).collect();
        let mut all = connection.prepare_cached("SELECT agent, id FROM host WHERE agent IS NOT NULL")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let agent = row.get_ref(0)?.as_str().map_err(|error| Failure::damaged("agent id", error))?;
            if let Some(host) = read.get_mut(agent) {
                *host = Some(row.get(1)?);
            }
        }
        Ok(Self::Read(read))
    }

    fn of(&mut self, agent: &AgentId) -> Tried<Option<i64>> {
        match self {
            Self::One(statement) => Ok(statement.query_row([agent.as_str()], |row| row.get(0)).optional()?),
            Self::Read(read) => Ok(read.get(agent.as_str()).copied().flatten()),
        }
    }
}

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let [host, id, revision, generation] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
    Ok(Row { host, id, revision, generation, spec: row.get(4)? })
}

/// From which generations on an agent is sent registrations and tombstones: an agent that knows nothing needs no
/// tombstones, and one that is sent everything still gets those that remain, in case it cannot read the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    pub(super) registered: u64,
    pub(super) tombstones: u64,
}

/// An agent at such a low generation has seen everything that was deleted, or knows nothing.
const ALL_AGAIN: u64 = 1;

/// The newest generation of the deleted tombstones, if an agent at this generation has not seen all of them: it
/// comes from a copy of its state directory, because they were kept until the agent had seen them.
pub(super) fn forgotten_since(connection: &Connection, agent: &AgentId, since: u64) -> Tried<Option<u64>> {
    if since <= ALL_AGAIN {
        return Ok(None);
    }
    let mut statement =
        connection.prepare_cached("SELECT pruned_generation FROM host WHERE agent = ?1 AND pruned_generation > ?2")?;
    let mut rows = statement.query((agent.as_str(), signed(since)))?;
    rows.next()?.map(|row| counter(row, 0)).transpose()
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
        let spec: Option<i64> = row.get(1)?;
        let spec = spec.map(|number| specs.get(connection, number)).transpose()?;
        revisions.push(SpecRevision { generation: counter(row, 0)?, spec, at: row.get(2)? });
    }
    Ok(revisions)
}
