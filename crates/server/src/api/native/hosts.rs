//! Hosts: listing them, and how a body selects them.

use std::collections::HashSet;

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{CordonView, HostPage, HostQuery, HostView, LinkView};
use proctor_model::{AgentId, Class, FieldError, HostKey, Namespace, PoolId, ProcessKey, messages};
use proctor_runtime::clock;
use proctor_store::{Cordon, HostLocation, HostRecord, ProcessQuery};

use super::body::{Params, page_limit};
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::hosts_in_state::{self, Page, Wanted};
use super::processes::search_text;
use super::{ApiState, Result, cursor};
use crate::control::{Caller, ConnectionInfo, Control, HostRef, RoundTrip};

const MILLIS: i64 = 1000;

/// The hosts that have enrolled, and whether their agents are connected.
#[utoipa::path(get, path = "/hosts", operation_id = "hosts", params(HostQuery), tag = "hosts",
               responses((status = 200, body = HostPage)))]
pub(super) async fn list(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<HostQuery>,
) -> Result<Json<HostPage>> {
    let limit = page_limit(query.limit)?;
    if query.token.is_some() {
        // Who enrolled with which token is told to those who may list the tokens.
        caller.who.require(Class::Admin)?;
    }
    let wanted = proctor_store::HostQuery {
        business: query.business,
        cloud: query.cloud,
        online: query.online,
        version: query.version,
        token: query.token,
        text: query.q.as_deref().map(search_text).transpose()?,
        after: cursor::decode(query.after.as_deref())?,
        limit: Some(limit + 1),
        scopes: None,
    };
    let at_most = limit as usize;
    let Page { records, next } = match (query.state, query.trouble) {
        (None, None) => {
            let mut records = state.control.hosts(&caller.who, wanted).await?;
            let has_more = records.len() > at_most;
            records.truncate(at_most);
            let next = records.last().filter(|_| has_more).map(|last| last.key);
            Page { records, next }
        }
        (_, _) if wanted.token.is_some() => {
            return Err(FieldError::new("token", messages::not_together_with("state, trouble")).into());
        }
        (of_state, trouble) => {
            let wanted = Wanted { state: of_state, trouble, query: wanted };
            hosts_in_state::page(&state, &caller.who, wanted, at_most).await?
        }
    };
    let next = next.map(|last| cursor::encode(&last));
    let hosts = records.into_iter().map(|record| view(record, &state.control)).collect();
    Ok(Json(HostPage { hosts, next }))
}

/// A host, by its address or by its agent's id.
#[utoipa::path(get, path = "/hosts/{host}", operation_id = "host", params(("host" = String, Path)), tag = "hosts",
               responses((status = 200, body = HostView)))]
pub(super) async fn show(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<HostView>> {
    let host = parse_host(&text).map_err(|error| error.inside("host"))?;
    let found = state.control.host(&caller.who, &host).await?;
    if let Some(record) = &found {
        state.control.measure_round_trip(&record.agent).await;
    }
    let unknown = || NativeError::new(Kind::NotFound, messages::never_enrolled(&host));
    found.map(|record| Json(view(record, &state.control))).ok_or_else(unknown)
}

pub(super) fn view(record: HostRecord, control: &Control) -> HostView {
    let ConnectionInfo { clock_ahead_ms, certificate_expires_at } = control.connection_info(&record.agent);
    let link = control.round_trip(&record.agent).map(link_view);
    let is_returning = control.is_returning(&record.agent);
    let is_suspect = control.is_suspect(&record.agent);
    let is_revoked = record.revoked_at.is_some();
    let is_unreachable = !record.online && !is_revoked && control.unreachable_area(&record.agent).is_some();
    let HostKey { cloud, supplier, ip } = record.site.key;
    let cordon = record.site.cordon_at(clock::unix_millis()).map(cordon_view);
    HostView {
        host: record.site.key.to_string(),
        cloud,
        supplier,
        ip,
        agent: record.site.agent,
        online: record.online,
        returning: record.online && is_returning,
        suspect: record.online && is_suspect,
        unreachable: is_unreachable,
        business: record.site.business,
        enrolled_at: record.enrolled_at / MILLIS,
        presence_changed_at: record.presence_changed_at / MILLIS,
        clock_ahead_ms,
        certificate_expires_at,
        link,
        revoked_at: record.revoked_at.map(|at| at / MILLIS),
        rejoin_until: record.rejoin_until.map(|at| at / MILLIS),
        cordon,
        awaits_approval: record.site.awaits_approval,
        key_fingerprint: record.key_fingerprint,
        facts: record.facts,
    }
}

fn link_view(RoundTrip { time, measured_at }: RoundTrip) -> LinkView {
    LinkView { rtt_us: u64::try_from(time.as_micros()).unwrap_or(u64::MAX), measured_at: measured_at / MILLIS }
}

pub(super) fn cordon_view(cordon: &Cordon) -> CordonView {
    let Cordon { reason, by, since, until, held_since: _ } = cordon.clone();
    CordonView { reason, by, since: since / MILLIS, until: until.map(|until| until / MILLIS) }
}

/// A host as people write it: an IP address, `CLOUD:IP`, or an agent id.
pub(super) fn parse_host(text: &str) -> std::result::Result<HostRef, FieldError> {
    if let Ok(key) = text.parse::<HostKey>() {
        return Ok(HostRef::Key(key));
    }
    let agent = text.parse::<AgentId>();
    agent.map(HostRef::Agent).map_err(|_| FieldError::new("", messages::not_a_host_reference(text)))
}

/// The host of a query.
pub(super) fn parse_host_param(text: Option<&str>) -> std::result::Result<Option<HostRef>, FieldError> {
    text.map(parse_host).transpose().map_err(|error| error.inside("host"))
}

/// `"hosts": [...]`, `"business": …` or `"all": true`, one of them.
#[derive(Debug)]
pub(super) enum Chosen {
    All,
    Business(u64),
    These(Vec<HostRef>),
}

impl Chosen {
    pub(super) fn of(
        hosts: Option<&[String]>,
        all: bool,
        business: Option<u64>,
    ) -> std::result::Result<Self, FieldError> {
        match (hosts, all, business) {
            (None, true, None) => Ok(Self::All),
            (None, false, Some(business)) => Ok(Self::Business(business)),
            (Some([]), false, None) => Err(FieldError::new("hosts", messages::must_not_be_empty())),
            (Some(hosts), false, None) => Ok(Self::These(parse_hosts(hosts)?)),
            (None, false, None) => Err(FieldError::new("hosts", messages::hosts_are_missing())),
            (_, true, _) => Err(FieldError::new("all", messages::not_together_with("hosts, business"))),
            (_, _, Some(_)) => Err(FieldError::new("business", messages::not_together_with("hosts"))),
        }
    }

    /// All: where the process is registered.
    pub(super) async fn where_registered(
        self,
        control: &Control,
        caller: &Caller,
        key: &ProcessKey,
    ) -> Result<Vec<HostRef>> {
        if let Self::These(hosts) = self {
            return distinct(control, caller, hosts, Some(&key.namespace)).await;
        }
        let query = ProcessQuery {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            ..ProcessQuery::default()
        };
        let (_, records) = control.processes(caller, query, None).await?;
        let hosts: Vec<HostRef> = records.into_iter().map(|record| HostRef::Key(record.host)).collect();
        let hosts = self.narrowed(control, hosts).await?;
        if hosts.is_empty() { Err(not_registered(key)) } else { Ok(hosts) }
    }

    /// All: where the pool is set.
    pub(super) async fn where_pooled(
        self,
        control: &Control,
        caller: &Caller,
        namespace: &Namespace,
        id: &PoolId,
    ) -> Result<Vec<HostRef>> {
        if let Self::These(hosts) = self {
            return distinct(control, caller, hosts, Some(namespace)).await;
        }
        let records = control.pools(caller, Some(namespace), None).await?;
        let hosts = records.into_iter().filter(|record| record.pool.id == *id);
        let hosts = self.narrowed(control, hosts.map(|record| HostRef::Key(record.host)).collect()).await?;
        if hosts.is_empty() {
            Err(NativeError::new(
                Kind::NotFound,
                messages::pool_on_no_host(format_args!("{}/{id}", namespace.escaped())),
            ))
        } else {
            Ok(hosts)
        }
    }

    /// All: every enrolled host.
    pub(super) async fn where_enrolled(self, control: &Control, caller: &Caller) -> Result<Vec<HostRef>> {
        if let Self::These(hosts) = self {
            return distinct(control, caller, hosts, None).await;
        }
        let business = if let Self::Business(business) = self { Some(business) } else { None };
        let query = proctor_store::HostQuery { business, ..Default::default() };
        let hosts: Vec<HostRef> =
            control.hosts(caller, query).await?.into_iter().map(|host| HostRef::Key(host.key)).collect();
        if hosts.is_empty() { Err(NativeError::new(Kind::NotFound, messages::no_such_host_yet())) } else { Ok(hosts) }
    }

    /// Those of the business, where there is one.
    async fn narrowed(&self, control: &Control, hosts: Vec<HostRef>) -> Result<Vec<HostRef>> {
        let Self::Business(business) = self else { return Ok(hosts) };
        let records = control.sites(&hosts).await?;
        let is_in =
            |record: &Option<HostLocation>| record.as_ref().is_some_and(|host| host.business == Some(*business));
        Ok(hosts.into_iter().zip(records).filter(|(_, record)| is_in(record)).map(|(host, _)| host).collect())
    }
}

pub(super) fn parse_hosts(hosts: &[String]) -> std::result::Result<Vec<HostRef>, FieldError> {
    let one = |(index, text): (usize, &String)| parse_host(text).map_err(|e| e.inside(&format!("hosts[{index}]")));
    hosts.iter().enumerate().map(one).collect()
}

/// Also of one that the caller may not read: who may not must not learn that it is there.
pub(super) fn unknown_host(host: &HostRef) -> NativeError {
    NativeError::new(Kind::NotFound, messages::host_unknown_or_hidden(host))
}

pub(super) fn not_registered(key: &ProcessKey) -> NativeError {
    NativeError::new(Kind::NotFound, messages::registered_on_no_host(key))
}

/// Refuses a host that is named twice, also where once by its address and once by its agent, if the caller may read
/// it: others must not learn that the two are one.
async fn distinct(
    control: &Control,
    caller: &Caller,
    hosts: Vec<HostRef>,
    namespace: Option<&Namespace>,
) -> Result<Vec<HostRef>> {
    let records = control.visible_sites(caller, &hosts, namespace).await?;
    let mut seen = HashSet::new();
    for (index, (host, record)) in hosts.iter().zip(records).enumerate() {
        let identity = record.map_or_else(|| host.clone(), |record| HostRef::Agent(record.agent));
        if !seen.insert(identity) {
            return Err(FieldError::new(format!("hosts[{index}]"), messages::host_is_there_twice(host)).into());
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(hosts: &[&str]) -> std::result::Result<Chosen, FieldError> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        Chosen::of(Some(&hosts), false, None)
    }

    #[test]
    fn hosts_are_addresses_or_agent_ids() {
        let Chosen::These(hosts) = chosen(&["10.0.0.1", "3:10.0.0.1", "a-1"]).unwrap() else {
            panic!("a list is these");
        };

        let shown: Vec<String> = hosts.iter().map(HostRef::to_string).collect();
        assert_eq!(shown, ["0:10.0.0.1", "3:10.0.0.1", "a-1"]);
    }

    #[test]
    fn a_bad_host_is_named_by_its_path() {
        let error = chosen(&["10.0.0.1", "no such/host"]).unwrap_err();

        assert_eq!(error.field, "hosts[1]");
    }

    #[test]
    fn exactly_one_of_hosts_business_and_all_must_be_there() {
        let one = ["10.0.0.1".to_owned()];
        let field = |hosts: Option<&[String]>, all, business| Chosen::of(hosts, all, business).unwrap_err().field;

        assert!(matches!(Chosen::of(None, true, None), Ok(Chosen::All)));
        assert!(matches!(Chosen::of(None, false, Some(3)), Ok(Chosen::Business(3))));
        assert_eq!(field(None, false, None), "hosts");
        assert_eq!(field(Some(&[]), false, None), "hosts");
        assert_eq!(field(Some(&one), true, None), "all");
        assert_eq!(field(None, true, Some(3)), "all");
        assert_eq!(field(Some(&one), false, Some(3)), "business");
    }
}
