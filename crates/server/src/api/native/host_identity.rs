//! Which key may speak for a host: permission to rejoin, revocation, removal.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{RejoinRequest, RejoinView, Removed, UnservedHostList, UnservedHostView};
use proctor_model::{AgentId, HostKey, messages};
use proctor_store::UnservedHost;

use super::body::Body;
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::hosts::parse_host;
use super::{ApiState, Result};
use crate::control::{self, Control, HostRef};

const MILLIS: i64 = 1000;

/// The hosts whose agents have moved to other hosts.
///
/// Each keeps its registrations for an agent that enrols for it, and opens only to the key that served it, to a token
/// that names it, or after a permission to rejoin.
#[utoipa::path(get, path = "/hosts/unserved", operation_id = "unserved_hosts", tag = "hosts",
               responses((status = 200, body = UnservedHostList)))]
pub(super) async fn unserved(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<UnservedHostList>> {
    let hosts = state.control.unserved_hosts(&caller.who).await?;
    Ok(Json(UnservedHostList { hosts: hosts.into_iter().map(unserved_view).collect() }))
}

fn unserved_view(host: UnservedHost) -> UnservedHostView {
    UnservedHostView {
        host: host.key.to_string(),
        business: host.business,
        processes: host.processes,
        since: host.since / MILLIS,
        revoked_at: host.revoked_at.map(|at| at / MILLIS),
        rejoin_until: host.rejoin_until.map(|at| at / MILLIS),
        key_fingerprint: host.key_fingerprint,
    }
}

/// Lets another key take over a known host, once, until the permission expires; or an older copy of its agent's state
/// come back.
///
/// A join token is needed as well.
#[utoipa::path(post, path = "/hosts/{host}/rejoin", operation_id = "allow_rejoin", params(("host" = String, Path)),
               request_body = RejoinRequest, tag = "hosts", responses((status = 200, body = RejoinView)))]
pub(super) async fn allow_rejoin(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(host): Path<String>,
    Body(body): Body<RejoinRequest>,
) -> Result<Json<RejoinView>> {
    let until = control::rejoin_until(Duration::from_secs(body.ttl_secs))?;
    let host = key(&state.control, &host).await?;
    let target = format!("{host} until {}", until / 1000);
    let work = async move |control: Control| control.allow_rejoin(&host, Some(until)).await.map(Ok);
    if !caller.administer(&state, "allow_rejoin", [target], work).await? {
        return Err(unknown(&host));
    }
    Ok(Json(RejoinView { host: host.to_string(), rejoin_until: until / 1000 }))
}

/// Withdraws the permission to rejoin.
#[utoipa::path(delete, path = "/hosts/{host}/rejoin", operation_id = "withdraw_rejoin",
               params(("host" = String, Path)), tag = "hosts", responses((status = 200, body = Removed)))]
pub(super) async fn withdraw_rejoin(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(host): Path<String>,
) -> Result<Json<Removed>> {
    let host = key(&state.control, &host).await?;
    let what = format!("host {host}");
    let before = Some("leave to rejoin withdrawn".to_owned());
    caller
        .remove(&state, "withdraw_rejoin", what, before, async move |control| control.allow_rejoin(&host, None).await)
        .await
}

/// Revokes the certificate of a host's agent: its session is closed at once and it opens no other.
///
/// The host stays, with its registrations, until it is enrolled again with a token that names it. If another host has
/// the same key, its session is closed too; the audit entry names every agent that lost its certificate.
#[utoipa::path(delete, path = "/hosts/{host}/certificate", operation_id = "revoke_host",
               params(("host" = String, Path)), tag = "hosts", responses((status = 200, body = Removed)))]
pub(super) async fn revoke(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(host): Path<String>,
) -> Result<Json<Removed>> {
    let host = key(&state.control, &host).await?;
    let work = move |control: Control| async move { control.revoke_host(&host).await };
    let target = format!("certificate of host {host}");
    let revoked = state.control.administer(&caller.who, "revoke_host", [&target], work, told_of_revoked).await?;
    removed(revoked.is_some(), &host, target)
}

/// Removes a host: its session is closed, its certificate becomes invalid, and its registrations and pools are
/// deleted.
///
/// Its processes keep running.
#[utoipa::path(delete, path = "/hosts/{host}", operation_id = "remove_host", params(("host" = String, Path)),
               tag = "hosts", responses((status = 200, body = Removed)))]
pub(super) async fn remove(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(host): Path<String>,
) -> Result<Json<Removed>> {
    let host = key(&state.control, &host).await?;
    let work = move |control: Control| async move { control.remove_host(&host).await };
    let target = format!("host {host}");
    let site = state.control.sites(&[HostRef::Key(host)]).await?.pop().flatten();
    let agent = site.map_or_else(|| "no agent".to_owned(), |site| format!("agent {}", site.agent));
    let named = format!("{target}: {agent}, its registrations and pools");
    let was_there = state.control.administer(&caller.who, "remove_host", [&named], work, audit_result).await?;
    removed(was_there, &host, target)
}

/// Agents that an audit entry names; with one key there is mostly one.
const NAMED_MAX: usize = 20;

fn told_of_revoked(revoked: &Option<Vec<AgentId>>) -> String {
    let Some(agents) = revoked else { return audit_result(&false) };
    let names: Vec<&str> = agents.iter().take(NAMED_MAX).map(AgentId::as_str).collect();
    match agents.len() {
        0 => "done: no agent has this key now".to_owned(),
        count if count > NAMED_MAX => format!("done: agents {} and {} more", names.join(", "), count - NAMED_MAX),
        1 => format!("done: agent {}", names.join(", ")),
        _ => format!("done: agents {}", names.join(", ")),
    }
}

fn audit_result(was_there: &bool) -> String {
    if *was_there { "done" } else { "not known" }.to_owned()
}

fn removed(was_there: bool, host: &HostKey, removed: String) -> Result<Json<Removed>> {
    if was_there { Ok(Json(Removed { removed })) } else { Err(unknown(host)) }
}

/// An agent id stands for the host that it serves; an address for itself, also where no agent serves it.
pub(super) async fn key(control: &Control, text: &str) -> Result<HostKey> {
    let host = parse_host(text).map_err(|error| error.inside("host"))?;
    match host {
        HostRef::Key(key) => Ok(key),
        HostRef::Agent(_) | HostRef::Unusable(_) => {
            let site = control.sites(std::slice::from_ref(&host)).await?.pop().flatten();
            site.map(|site| site.key).ok_or_else(|| unknown(&host))
        }
    }
}

pub(super) fn unknown(host: &dyn std::fmt::Display) -> NativeError {
    NativeError::new(Kind::NotFound, messages::host_is_not_known(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(count: usize) -> String {
        let agents = (1..=count).map(|number| format!("agent-{number}").parse::<AgentId>().unwrap());
        told_of_revoked(&Some(agents.collect()))
    }

    #[test]
    fn the_audit_names_every_agent_that_lost_its_certificate_within_limits() {
        assert_eq!(told_of_revoked(&None), "not known");
        assert_eq!(told_of(0), "done: no agent has this key now");
        assert_eq!(told_of(1), "done: agent agent-1");
        assert_eq!(told_of(2), "done: agents agent-1, agent-2");
        assert!(told_of(NAMED_MAX + 3).ends_with("agent-20 and 3 more"), "{}", told_of(NAMED_MAX + 3));
    }
}
