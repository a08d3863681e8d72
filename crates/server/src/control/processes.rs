//! Registrations and pools: facts in the store that agents converge on.
//!
//! Promised: one outcome per host, in the caller's order; a host that the caller may not touch is refused in its own
//! row, whether it is known or not, and the others are served.
//! Absent: operations (see `submit`).

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use proctor_model::{AgentId, Class, Classes, Code, Namespace, Outcome, Pool, PoolId, ProcessKey, Spec, messages};
use proctor_runtime::clock;
use proctor_store::{
    HostLocation, HostQuery, HostRecord, PoolRecord, ProcessQuery, ProcessRecord, RegisterMode, Registered,
    Registration,
};

use super::access::Spot;
use super::audit::{AuditAction, TARGETS_NAMED_MAX, counted};
use super::types::Merged;
use super::{Caller, Control, GivenSpec, HostRef, Result, never_enrolled};

/// Pools that one call sets on each of its hosts.
pub const POOLS_MAX: usize = 1000;

/// From this length on, the pools of a host are counted in the audit rather than named.
const POOLS_NAMED_CHARS: usize = 1000;

impl Control {
    pub async fn register(
        &self,
        caller: &Caller,
        key: &ProcessKey,
        given: &GivenSpec,
        hosts: &[HostRef],
        mode: RegisterMode,
    ) -> Result<Vec<Outcome>> {
        let given = given.clone();
        let namespace = key.namespace.clone();
        let identity = &given.spec.identity;
        let hash = given.spec.hash();
        let spec = format!("spec {} of user {} in {}", &hash.as_str()[..16], identity.user, identity.setup_path);
        let deed = AuditAction::new("register", [Class::Register]).about(spec);
        let named = |_: usize, host: &HostRef| format!("{host} {key}");
        let carried = given.spec.clone();
        let refusal = |spot: &Spot<'_>, is_known: bool| match is_known {
            true => caller.registration_refusal(spot, &namespace, &carried),
            false => caller.refused(Class::Register, spot, std::slice::from_ref(&namespace)),
        };
        let key = key.clone();
        self.change(caller, deed, named, refusal, hosts, move |control, agents| async move {
            let before = match given.omitted.any() {
                true => control.specs_on(&key, agents.clone()).await?,
                false => HashMap::new(),
            };
            let mut merged = Merged::new(&given);
            let registration = |agent| Registration { spec: merged.over(before.get(&agent)), agent, key: key.clone() };
            let registrations: Vec<Registration> = agents.into_iter().map(registration).collect();
            let answers = control.inner.store.register(&registrations, mode, clock::unix_millis()).await?;
            control.wake(registrations.iter().map(|registration| &registration.agent));
            Ok(answers.into_iter().map(registered).collect())
        })
        .await
    }

    /// Why the caller may not register this spec, host by host; None where it may. Only for hosts that the caller
    /// may read: of the others, the answer would tell whether they are there.
    pub async fn registration_refusals(
        &self,
        caller: &Caller,
        key: &ProcessKey,
        spec: &Spec,
        hosts: &[HostRef],
    ) -> Result<Vec<Option<Outcome>>> {
        let spots = self.spots(hosts, &self.sites(hosts).await?).await?;
        Ok(spots.iter().map(|spot| caller.registration_refusal(spot, &key.namespace, spec)).collect())
    }

    /// A managed process is released and lives on.
    pub async fn unregister(&self, caller: &Caller, key: &ProcessKey, hosts: &[HostRef]) -> Result<Vec<Outcome>> {
        let namespace = key.namespace.clone();
        let deed = AuditAction::new("unregister", [Class::Register]);
        let named = |_: usize, host: &HostRef| format!("{host} {key}");
        let refusal =
            |spot: &Spot<'_>, _: bool| caller.refused(Class::Register, spot, std::slice::from_ref(&namespace));
        let key = key.clone();
        self.change(caller, deed, named, refusal, hosts, move |control, agents| async move {
            let processes: Vec<(AgentId, ProcessKey)> = agents.into_iter().map(|agent| (agent, key.clone())).collect();
            let answers = control.inner.store.unregister(&processes, clock::unix_millis()).await?;
            control.wake(processes.iter().map(|(agent, _)| agent));
            Ok(answers
                .into_iter()
                .map(|was_there| if was_there { Outcome::success(false) } else { not_registered(&key) })
                .collect())
        })
        .await
    }

    pub async fn set_pools(&self, caller: &Caller, hosts: &[HostRef], pools: &[Pool]) -> Result<Vec<Outcome>> {
        let pools = pools.to_vec();
        let namespaces: BTreeSet<Namespace> = pools.iter().map(|pool| pool.namespace.clone()).collect();
        let namespaces: Vec<Namespace> = namespaces.into_iter().collect();
        let before = self.limits_before(caller, hosts).await?;
        let set = pools.clone();
        let named = move |index: usize, host: &HostRef| match before.get(index) {
            Some(before) => format!("{host} {}", described(&set, before)),
            None => host.to_string(),
        };
        let deed = AuditAction::new("set_pools", [Class::Limits]);
        let refusal = |spot: &Spot<'_>, _: bool| caller.refused(Class::Limits, spot, &namespaces);
        self.change(caller, deed, named, refusal, hosts, move |control, agents| async move {
            let answers = control.inner.store.set_pools(&agents, &pools, clock::unix_millis()).await?;
            control.wake(agents.iter());
            Ok(answers.into_iter().map(|known| if known { Outcome::success(false) } else { no_longer() }).collect())
        })
        .await
    }

    /// Its members then have only their own limits.
    pub async fn delete_pool(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        id: &PoolId,
        hosts: &[HostRef],
    ) -> Result<Vec<Outcome>> {
        let (namespace, id) = (namespace.clone(), id.clone());
        let of = [namespace.clone()];
        let before = self.limits_before(caller, hosts).await?;
        let (of_namespace, of_id) = (namespace.clone(), id.clone());
        let named = move |index: usize, host: &HostRef| {
            let pool = format!("{}/{of_id}", of_namespace.escaped());
            let Some(before) = before.get(index) else { return format!("{host} {pool}") };
            let was = before.iter().find(|was| (&was.namespace, &was.id) == (&of_namespace, &of_id));
            let was = was.map_or_else(|| "was not set".to_owned(), |was| format!("was {}", was.limits));
            format!("{host} {pool}: {was}")
        };
        let deed = AuditAction::new("delete_pool", [Class::Limits]);
        let refusal = |spot: &Spot<'_>, _: bool| caller.refused(Class::Limits, spot, &of);
        self.change(caller, deed, named, refusal, hosts, move |control, agents| async move {
            let answers = control.inner.store.delete_pool(&agents, &namespace, &id, clock::unix_millis()).await?;
            control.wake(agents.iter());
            Ok(answers
                .into_iter()
                .map(|was_there| if was_there { Outcome::success(false) } else { no_pool(&namespace, &id) })
                .collect())
        })
        .await
    }

    /// The pools of each of the hosts that an entry of the audit names; nothing is read for a caller who may
    /// change no pool anywhere.
    async fn limits_before(&self, caller: &Caller, hosts: &[HostRef]) -> Result<Vec<Vec<Pool>>> {
        if !caller.permissions.allows_anywhere(Class::Limits) {
            return Ok(Vec::new());
        }
        let sites = self.sites(&hosts[..hosts.len().min(TARGETS_NAMED_MAX)]).await?;
        let agents: Vec<AgentId> = sites.iter().flatten().map(|site| site.agent.clone()).collect();
        let mut by_agent: HashMap<AgentId, Vec<Pool>> = HashMap::new();
        for PoolRecord { agent, pool, .. } in self.inner.store.pools(None, Some(&agents)).await? {
            by_agent.entry(agent).or_default().push(pool);
        }
        let of = |site: Option<HostLocation>| by_agent.get(&site?.agent).cloned();
        Ok(sites.into_iter().map(|site| of(site).unwrap_or_default()).collect())
    }

    /// Where each of the hosts is, as far as it is known, and why the caller may change nothing there.
    pub(super) async fn judged(
        &self,
        hosts: &[HostRef],
        refusal: impl Fn(&Spot<'_>, bool) -> Option<Outcome>,
    ) -> Result<(Vec<Option<HostLocation>>, Vec<Option<Outcome>>)> {
        let records = self.sites(hosts).await?;
        let spots = self.spots(hosts, &records).await?;
        let is_host = |spot: &&Spot<'_>| !matches!(spot.named, HostRef::Unusable(_));
        let judge = |(host, spot): (&Option<HostLocation>, &Spot<'_>)| {
            Some(spot).filter(is_host).and_then(|spot| refusal(spot, host.is_some()))
        };
        let refusals = records.iter().zip(&spots).map(judge).collect();
        Ok((records, refusals))
    }

    /// Makes one change on those of the hosts that are known and allowed, with its trace, which names these alone.
    /// Where there are none, nothing begins and the trace is small.
    async fn change<F, Fut>(
        &self,
        caller: &Caller,
        deed: AuditAction,
        named: impl Fn(usize, &HostRef) -> String,
        refusal: impl Fn(&Spot<'_>, bool) -> Option<Outcome>,
        hosts: &[HostRef],
        work: F,
    ) -> Result<Vec<Outcome>>
    where
        F: FnOnce(Self, Vec<AgentId>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Vec<Outcome>>> + Send + 'static,
    {
        let (records, refusals) = self.judged(hosts, refusal).await?;
        let allowed = records.iter().zip(&refusals).enumerate().filter(|(_, (_, refused))| refused.is_none());
        let allowed: Vec<(usize, &HostLocation)> =
            allowed.filter_map(|(index, (host, _))| Some((index, host.as_ref()?))).collect();
        // A host under two names is changed once and answers for both.
        let mut order: HashMap<AgentId, usize> = HashMap::new();
        let mut agents: Vec<AgentId> = Vec::new();
        for (_, host) in &allowed {
            order.entry(host.agent.clone()).or_insert_with(|| {
                agents.push(host.agent.clone());
                agents.len() - 1
            });
        }
        let forbidden = refusals.iter().flatten().count();
        let unknown = hosts.len() - allowed.len() - forbidden;
        let told = move |rows: &Vec<Outcome>| {
            let others = [(forbidden, "forbidden"), (unknown, "not known")].into_iter().filter(|(count, _)| *count > 0);
            others.fold(counted(rows), |told, (count, why)| format!("{told}; {count} {why}"))
        };
        let class = deed.classes.iter().next().unwrap_or(Class::Register);
        let answers = if agents.is_empty() {
            // Nothing is changed, so nothing begins: the rows say why.
            let deed = deed.on(hosts.iter().enumerate().map(|(index, host)| named(index, host)));
            if forbidden > 0 || caller.require_anywhere(class).is_err() {
                let forbidden = caller.missing(class, hosts.iter().map(ToString::to_string));
                let _ = self.audit_refusal(caller, &deed, Err(forbidden)).await;
            } else {
                self.audit_no_change(caller, &deed, "nothing was changed: no host is known".to_owned()).await;
            }
            Vec::new()
        } else {
            let deed = deed.on(allowed.iter().map(|(index, _)| named(*index, &hosts[*index]))).among(hosts.len());
            self.audited(caller, deed, move |control| work(control, agents), told).await?
        };
        let rows = hosts.iter().zip(&records).zip(refusals).map(|((named, host), refused)| match (host, refused) {
            (_, Some(refused)) => refused,
            (None, None) => never_enrolled(named),
            (Some(host), None) => {
                order.get(&host.agent).and_then(|index| answers.get(*index).cloned()).unwrap_or_else(no_longer)
            }
        });
        Ok(rows.collect())
    }

    /// Of the hosts, or of all that the caller may see.
    pub async fn pools(
        &self,
        caller: &Caller,
        namespace: Option<&Namespace>,
        hosts: Option<&[HostRef]>,
    ) -> Result<Vec<PoolRecord>> {
        if let Some(hosts) = hosts {
            let records = self.readable_sites(caller, hosts, namespace).await?;
            let agents: Vec<AgentId> = records.into_iter().flatten().map(|host| host.agent).collect();
            return Ok(self.inner.store.pools(namespace, Some(&agents)).await?);
        }
        caller.require_anywhere(Class::Read)?;
        let records = self.inner.store.pools(namespace, None).await?;
        if caller.permissions.allows_everywhere(Class::Read) {
            return Ok(records);
        }
        let hosts = self.inner.store.hosts(&HostQuery::default()).await?;
        let by_agent: HashMap<&AgentId, &HostRecord> = hosts.iter().map(|host| (&host.agent, host)).collect();
        let is_visible = |record: &PoolRecord| {
            let host = by_agent.get(&record.agent);
            host.is_some_and(|host| caller.is_allowed(Class::Read, host, Some(&record.pool.namespace)))
        };
        Ok(records.into_iter().filter(is_visible).collect())
    }

    /// Registered processes with their last observation and newest usage, and their number before paging: of the
    /// hosts, all of which the caller must be allowed to read, or of all that the caller may see.
    pub async fn processes(
        &self,
        caller: &Caller,
        query: ProcessQuery,
        hosts: Option<&[HostRef]>,
    ) -> Result<(u64, Vec<ProcessRecord>)> {
        let query = self.narrowed(caller, query, hosts).await?;
        if query.text.is_none() {
            return self.all_processes(&query).await;
        }
        let turn = self.inner.long_reads.turn(&caller.account()).await;
        self.run_to_completion("process search", |control| async move {
            let _turn = turn;
            control.all_processes(&query).await
        })
        .await
    }

    /// The registration of a process on a host, for a caller who may operate it there; None if there is none. Other
    /// callers are refused alike, whether there is one or not.
    pub async fn operable_process(
        &self,
        caller: &Caller,
        host: &HostRef,
        key: &ProcessKey,
    ) -> Result<Option<ProcessRecord>> {
        let hosts = std::slice::from_ref(host);
        let sites = self.sites(hosts).await?;
        let spots = self.spots(hosts, &sites).await?;
        let needed: Classes = [Class::Operate].into_iter().collect();
        if spots.iter().any(|spot| caller.first_missing(needed, spot, &key.namespace).is_some()) {
            return Err(caller.missing(Class::Operate, [host.to_string()]));
        }
        let agents: Vec<AgentId> = sites.into_iter().flatten().map(|site| site.agent).collect();
        let query = ProcessQuery {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            agents: Some(agents),
            is_uncounted: true,
            limit: Some(1),
            ..ProcessQuery::default()
        };
        Ok(self.all_processes(&query).await?.1.pop())
    }

    /// As [`Self::processes`], whoever the caller.
    pub(crate) async fn all_processes(&self, query: &ProcessQuery) -> Result<(u64, Vec<ProcessRecord>)> {
        let (count, mut records) = self.inner.store.processes(query).await?;
        self.refresh(&mut records);
        Ok((count, records))
    }

    /// Each of these, in order; None where it is not registered.
    pub(super) async fn processes_at(&self, wanted: Vec<(AgentId, ProcessKey)>) -> Result<Vec<Option<ProcessRecord>>> {
        let mut records = self.inner.store.processes_at(wanted).await?;
        self.refresh(records.iter_mut().flatten());
        Ok(records)
    }

    /// With what only memory knows.
    fn refresh<'a>(&self, records: impl IntoIterator<Item = &'a mut ProcessRecord>) {
        let gone = self.offline_not_stored();
        for record in records {
            record.online &= !gone.contains(&record.agent);
            if let (Some(snapshot), Some(session)) = (&mut record.snapshot, self.inner.sessions.get(&record.agent)) {
                session.usage().refresh(&record.key, snapshot);
            }
        }
    }
}

/// What is set on a host, and what it replaces.
fn described(pools: &[Pool], before: &[Pool]) -> String {
    let mut text = String::new();
    for (index, pool) in pools.iter().enumerate() {
        if text.len() >= POOLS_NAMED_CHARS {
            write!(text, "; and {} more", pools.len() - index).expect("a text takes all that is written");
            break;
        }
        let separator = if index == 0 { "" } else { "; " };
        let was = before.iter().find(|was| (&was.namespace, &was.id) == (&pool.namespace, &pool.id));
        let was = was.map_or_else(|| "new".to_owned(), |was| format!("was {}", was.limits));
        write!(text, "{separator}{}/{} {}, {was}", pool.namespace.escaped(), pool.id, pool.limits)
            .expect("a text takes all that is written");
    }
    text
}

fn registered(answer: Registered) -> Outcome {
    match answer {
        Registered::Stored { .. } => Outcome::success(false),
        Registered::Exists => Outcome::new(Code::AlreadyRegistered, messages::already_registered(), false),
        Registered::NoHost => no_longer(),
    }
}

/// Of a host where the process that is to be forgotten is not registered.
pub(super) fn not_registered(key: &ProcessKey) -> Outcome {
    Outcome::new(Code::NotRunning, messages::not_registered_there(key), false)
}

/// Of a host without the pool that is to be deleted.
pub(super) fn no_pool(namespace: &Namespace, id: &PoolId) -> Outcome {
    let pool = format!("{}/{id}", namespace.escaped());
    Outcome::new(Code::NotRunning, messages::no_pool_there(&pool), false)
}

fn no_longer() -> Outcome {
    Outcome::new(Code::AgentAbsent, messages::no_longer_enrolled(), false)
}

#[cfg(test)]
mod tests {
    use proctor_model::{Percent, PoolLimits, Weight};

    use super::*;

    #[test]
    fn the_audit_names_the_first_of_many_pools() {
        let limits = PoolLimits {
            cpu: Percent::try_from(20.0).unwrap(),
            memory: Percent::try_from(30.0).unwrap(),
            cpu_weight: Weight::Usage,
            memory_weight: Weight::Usage,
            dry_run: false,
        };
        let pool = |number: usize| Pool {
            namespace: "web".parse().unwrap(),
            id: format!("pool{number}").parse().unwrap(),
            limits: limits.clone(),
        };
        let pools: Vec<Pool> = (0..POOLS_MAX).map(pool).collect();

        let (few, many) = (described(&pools[..2], &pools[1..2]), described(&pools, &[]));

        assert!(few.starts_with("web/pool0 ") && few.contains(", new; web/pool1 ") && few.contains(", was "), "{few}");
        assert!(many.len() < 2 * POOLS_NAMED_CHARS && many.ends_with(" more"), "{many}");
    }
}
