//! All hosts and processes in two passes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use proctor_model::{Message, Phase, Phrase, Sender, Spec};
use rusqlite::{Connection, OptionalExtension, Row};
use serde::Deserialize;

use super::column::{from_json, process_key};
use super::failure::{Failure, Tried};
use super::hosts;
use crate::fleet::ReasonKey;
use crate::{Fleet, FleetHost, FleetProcess, FleetSpec, Health, SpecNumber};

/// The reason of a process: its text and its phrase.
const REASON_BYTES_MAX: usize = 1024;

/// `before` is an earlier answer: specs that it has are not parsed again.
pub(super) fn read(connection: &Connection, before: Option<&Fleet>) -> Tried<Fleet> {
    let mut fleet = Fleet::default();
    let by_row = read_hosts(connection, &mut fleet)?;
    let mut builder = Builder { connection, before, fleet, keys: HashMap::new(), versions: HashMap::new() };
    // In table order: an index would visit its pages at random.
    let mut statement = connection.prepare_cached(
        "SELECT namespace, name, host, spec, phase, managed, phase_since, restarts, cpu, memory, evicted, health, version,
                reason, id
         FROM process NOT INDEXED WHERE spec IS NOT NULL",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // A process of an unserved host is left out.
        if let Some(host) = by_row.get(&row.get(2)?) {
            builder.add(row, *host)?;
        }
    }
    Ok(builder.sorted())
}

/// Returns the index of each host by its row id.
fn read_hosts(connection: &Connection, fleet: &mut Fleet) -> Tried<HashMap<i64, u32>> {
    #[derive(Deserialize)]
    struct Facts<'a> {
        #[serde(borrow)]
        hostname: Cow<'a, str>,
        #[serde(borrow)]
        agent_version: Cow<'a, str>,
    }
    let mut statement = connection.prepare_cached(
        "SELECT cloud, supplier, ip, agent, business, alias, cordon,
                (awaits_approval OR (returning_since IS NOT NULL AND return_until IS NULL)), facts, online,
                presence_changed_at, revoked_at, host.id
         FROM host LEFT JOIN placement USING (cloud, ip) WHERE agent IS NOT NULL ORDER BY cloud, ip",
    )?;
    let mut rows = statement.query([])?;
    let mut by_row = HashMap::new();
    while let Some(row) = rows.next()? {
        let facts = text(row, 8)?;
        let facts: Facts<'_> = serde_json::from_str(facts).map_err(|error| Failure::damaged("host facts", error))?;
        by_row.insert(row.get(12)?, index(fleet.hosts.len()));
        fleet.hosts.push(FleetHost {
            site: hosts::site(row)?,
            hostname: facts.hostname.into(),
            agent_version: facts.agent_version.into(),
            online: row.get(9)?,
            presence_changed_at: row.get(10)?,
            is_revoked: row.get::<_, Option<i64>>(11)?.is_some(),
        });
    }
    Ok(by_row)
}

struct Builder<'a> {
    connection: &'a Connection,
    before: Option<&'a Fleet>,
    fleet: Fleet,
    /// By namespace, then by name.
    keys: HashMap<Box<str>, HashMap<Box<str>, u32>>,
    versions: HashMap<Box<str>, u32>,
}

impl Builder<'_> {
    fn add(&mut self, row: &Row<'_>, host: u32) -> Tried<()> {
        let key = self.key(row)?;
        let phase: Phase = text(row, 4)?.parse().map_err(|error| Failure::damaged("phase", error))?;
        let reason = text(row, 13)?;
        let of = ReasonKey::new(key, phase, &self.fleet.hosts[host as usize]);
        if !reason.is_empty() && !self.fleet.reasons.contains_key(&of) {
            let reason = self.reason(reason, row.get(14)?)?;
            self.fleet.reasons.insert(of, reason);
        }
        let process = FleetProcess {
            key,
            host,
            version: self.version(text(row, 12)?),
            restarts: row.get(7)?,
            spec: self.spec(SpecNumber(row.get(3)?))?,
            phase,
            health: Health::from_text(text(row, 11)?),
            managed: row.get(5)?,
            evicted: row.get(10)?,
            cpu: row.get(8)?,
            memory: row.get(9)?,
            phase_since: row.get(6)?,
        };
        self.fleet.processes.push(process);
        Ok(())
    }

    fn key(&mut self, row: &Row<'_>) -> Tried<u32> {
        let (namespace, name) = (text(row, 0)?, text(row, 1)?);
        if let Some(known) = self.keys.get(namespace).and_then(|names| names.get(name)) {
            return Ok(*known);
        }
        let number = index(self.fleet.keys.len());
        self.fleet.keys.push(process_key(row, 0)?);
        self.keys.entry(namespace.into()).or_default().insert(name.into(), number);
        Ok(number)
    }

    /// The reason is only in the snapshot; few of those are read.
    fn reason(&self, text: &str, process: i64) -> Tried<Message> {
        let mut statement =
            self.connection.prepare_cached("SELECT json -> '$.reason_phrase' FROM snapshot WHERE process = ?1")?;
        let phrase: Option<Option<String>> = statement.query_row([process], |row| row.get(0)).optional()?;
        let phrase = phrase.flatten().and_then(|json| Phrase::from_json(&json, Sender::Server));
        Ok(Message::of_parts(text.to_owned(), phrase).fitted(REASON_BYTES_MAX, "…"))
    }

    fn version(&mut self, version: &str) -> u32 {
        if let Some(known) = self.versions.get(version) {
            return *known;
        }
        let number = index(self.fleet.versions.len());
        self.fleet.versions.push(version.into());
        self.versions.insert(version.into(), number);
        number
    }

    fn spec(&mut self, number: SpecNumber) -> Tried<SpecNumber> {
        if self.fleet.specs.contains_key(&number) {
            return Ok(number);
        }
        let mut statement = self.connection.prepare_cached("SELECT hash, json FROM spec WHERE id = ?1")?;
        let mut rows = statement.query([number.0])?;
        let row = rows.next()?.ok_or_else(|| Failure::Damaged(format!("reference to spec {}", number.0)))?;
        let hash = text(row, 0)?;
        let before = self.before.and_then(|before| before.specs.get(&number)).filter(|spec| *spec.hash == *hash);
        let spec = match before {
            Some(before) => before.clone(),
            None => {
                let Spec { policy, labels, .. } = from_json("spec", text(row, 1)?)?;
                Arc::new(FleetSpec { hash: hash.into(), lifetime: policy.lifetime, labels })
            }
        };
        self.fleet.specs.insert(number, spec);
        Ok(number)
    }
}

impl Builder<'_> {
    /// Sorts keys by namespace and name, and processes by key and host.
    fn sorted(self) -> Fleet {
        let mut fleet = self.fleet;
        let mut order: Vec<u32> = (0..index(fleet.keys.len())).collect();
        order.sort_by(|one, other| fleet.keys[*one as usize].cmp(&fleet.keys[*other as usize]));
        let mut new_index = vec![0; order.len()];
        for (new, old) in (0..).zip(&order) {
            new_index[*old as usize] = new;
        }
        fleet.keys = order.iter().map(|old| fleet.keys[*old as usize].clone()).collect();
        for process in &mut fleet.processes {
            process.key = new_index[process.key as usize];
        }
        fleet.processes.sort_unstable_by_key(|process| (process.key, process.host));
        let moved = |(of, reason): (ReasonKey, _)| (ReasonKey { key: new_index[of.key as usize], ..of }, reason);
        fleet.reasons = fleet.reasons.into_iter().map(moved).collect();
        fleet
    }
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Tried<&'a str> {
    row.get_ref(column)?.as_str().map_err(|error| Failure::damaged("row", error))
}

fn index(length: usize) -> u32 {
    u32::try_from(length).expect("there are fewer than four billion hosts and processes")
}
