//! Process queries as SQL conditions.

use proctor_model::{AgentId, Phase, ScopeSet, Spec};
use rusqlite::{Connection, ToSql};

use super::column::{from_json, to_json};
use super::failure::{Failure, Tried};
use crate::{CRASH_LOOP_STARTS, ProcessQuery, Trouble};

const FROM_ALL: &str = "process JOIN host ON host.id = process.host";
/// Iterates over hosts in row order, rather than over everything that the other conditions leave.
const FROM_HOSTS: &str = "json_each(:hosts) AS wanted CROSS JOIN host ON host.id = wanted.value
                          CROSS JOIN process ON process.host = host.id";

/// The same conditions for counting and for reading; only those that narrow are written, so that SQLite can use
/// their index.
pub(super) struct Filter {
    from: &'static str,
    conditions: Vec<String>,
    values: Vec<(&'static str, Box<dyn ToSql>)>,
}

/// The rows of the hosts that they serve, each once, ascending.
fn hosts_of(connection: &Connection, agents: &[AgentId]) -> Tried<Vec<i64>> {
    let mut statement = connection
        .prepare_cached("SELECT host.id FROM json_each(?1) AS wanted CROSS JOIN host ON host.agent = wanted.value")?;
    let hosts = statement.query_map([to_json(agents)], |row| row.get(0))?;
    let mut hosts = hosts.collect::<rusqlite::Result<Vec<_>>>()?;
    hosts.sort_unstable();
    hosts.dedup();
    Ok(hosts)
}

impl Filter {
    pub(super) fn new(connection: &Connection, query: &ProcessQuery) -> Tried<Self> {
        let bare = ["process.spec IS NOT NULL".to_owned(), "host.agent IS NOT NULL".to_owned()];
        let mut filter = Self { from: FROM_ALL, conditions: bare.into(), values: Vec::new() };
        if let Some(namespace) = &query.namespace {
            filter.by("process.namespace = :namespace", ":namespace", namespace.as_str().to_owned());
        }
        if let Some(name) = &query.name {
            filter.by("process.name = :name", ":name", name.as_str().to_owned());
        }
        if let Some(keys) = &query.keys {
            let names: Vec<[&str; 2]> = keys.iter().map(|key| [key.namespace.as_str(), key.name.as_str()]).collect();
            let one_of = "(process.namespace, process.name) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:keys))";
            filter.by(one_of, ":keys", to_json(&names));
        }
        if let Some(agents) = &query.agents {
            filter.from = FROM_HOSTS;
            filter.value(":hosts", to_json(&hosts_of(connection, agents)?));
        }
        if let Some(businesses) = &query.businesses {
            let known = "business IN (SELECT value FROM json_each(:businesses))";
            filter.by(known, ":businesses", to_json(businesses));
        }
        if let Some(scopes) = &query.scopes {
            filter.inside(scopes);
        }
        if !query.phases.is_empty() {
            filter.by("process.phase IN (SELECT value FROM json_each(:phases))", ":phases", to_json(&query.phases));
        }
        filter.narrow_by_columns(query);
        if !query.labels.is_empty() || query.lifetime.is_some() {
            let specs = filter.specs_with(connection, query)?;
            filter.by("process.spec IN (SELECT value FROM json_each(:specs))", ":specs", to_json(&specs));
        }
        Ok(filter)
    }

    fn narrow_by_columns(&mut self, query: &ProcessQuery) {
        if let Some(cloud) = query.cloud {
            self.by("cloud = :cloud", ":cloud", cloud);
        }
        if let Some(online) = query.online {
            self.by("host.online = :online", ":online", online);
        }
        if let Some((cordoned, now)) = query.cordoned {
            // As `Cordon::holds_at`.
            let holds =
                "(host.cordon IS NOT NULL AND coalesce(host.cordon ->> '$.until' > :cordon_now, 1)) = :cordoned";
            self.by(holds, ":cordoned", cordoned);
            self.value(":cordon_now", now);
        }
        if let Some(managed) = query.managed {
            self.by("process.managed = :managed", ":managed", managed);
        }
        if let Some(health) = query.health.clone() {
            self.by("process.health = :health", ":health", health);
        }
        match query.trouble {
            None => {}
            Some(Trouble::Evicted) => self.condition("process.evicted".to_owned()),
            Some(Trouble::CrashLooping) => {
                let looping = "process.managed AND process.restarts >= :loop_starts AND NOT process.evicted
                    AND process.phase <> :failed";
                self.by(looping, ":loop_starts", CRASH_LOOP_STARTS);
                self.value(":failed", Phase::Failed.as_str());
            }
        }
        if let Some(text) = &query.text {
            // Each host is matched once, not once per process; most processes have no version.
            let anywhere = "(instr(lower(process.namespace || '/' || process.name), :text)
                OR process.host IN (SELECT id FROM host WHERE instr(cloud || ':' || ip, :text))
                OR (process.version <> '' AND instr(lower(process.version), :text)))";
            self.by(anywhere, ":text", text.to_ascii_lowercase());
        }
    }

    fn by(&mut self, condition: impl Into<String>, name: &'static str, value: impl ToSql + 'static) {
        self.conditions.push(condition.into());
        self.value(name, value);
    }

    pub(super) fn condition(&mut self, condition: String) {
        self.conditions.push(condition);
    }

    pub(super) fn value(&mut self, name: &'static str, value: impl ToSql + 'static) {
        self.values.push((name, Box::new(value)));
    }

    fn inside(&mut self, scopes: &ScopeSet) {
        if scopes.everywhere {
            return;
        }
        let lists = [
            (
                "business IN (SELECT value FROM json_each(:in_businesses))",
                ":in_businesses",
                (!scopes.businesses.is_empty()).then(|| to_json(&scopes.businesses)),
            ),
            (
                "process.namespace IN (SELECT value FROM json_each(:in_namespaces))",
                ":in_namespaces",
                (!scopes.namespaces.is_empty()).then(|| to_json(&scopes.namespaces)),
            ),
            (
                "cloud IN (SELECT value FROM json_each(:in_clouds))",
                ":in_clouds",
                (!scopes.clouds.is_empty()).then(|| to_json(&scopes.clouds)),
            ),
        ];
        let mut any = Vec::new();
        for (condition, name, list) in lists {
            if let Some(list) = list {
                any.push(condition);
                self.value(name, list);
            }
        }
        let condition = if any.is_empty() { "0".to_owned() } else { format!("({})", any.join(" OR ")) };
        self.conditions.push(condition);
    }

    /// Many processes share a spec: each distinct one of the remaining rows is matched once.
    fn specs_with(&self, connection: &Connection, query: &ProcessQuery) -> Tried<Vec<i64>> {
        let sql = format!("SELECT spec.id, spec.json FROM spec WHERE spec.id IN (SELECT process.spec {})", self.sql());
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(self.params().as_slice())?;
        let mut specs = Vec::new();
        while let Some(row) = rows.next()? {
            let json = row.get_ref(1)?.as_str().map_err(|error| Failure::damaged("spec", error))?;
            let spec: Spec = from_json("spec", json)?;
            let is_meant = query.lifetime.is_none_or(|lifetime| spec.policy.lifetime == lifetime)
                && query.labels.iter().all(|term| term.holds(&spec.labels));
            if is_meant {
                specs.push(row.get(0)?);
            }
        }
        Ok(specs)
    }

    /// From FROM on. The address is the host's, whether it is placed or not.
    pub(super) fn sql(&self) -> String {
        self.sql_joined("")
    }

    /// With an additional join.
    pub(super) fn sql_joined(&self, join: &str) -> String {
        let Self { from, conditions, .. } = self;
        format!("FROM {from} LEFT JOIN placement USING (cloud, ip) {join} WHERE {}", conditions.join(" AND "))
    }

    pub(super) fn params(&self) -> Vec<(&'static str, &dyn ToSql)> {
        self.values.iter().map(|(name, value)| (*name, value.as_ref())).collect()
    }
}
