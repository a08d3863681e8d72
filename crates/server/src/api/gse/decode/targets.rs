//! `hosts` and `agent_id_list`: which hosts, and how the caller writes them.

use std::collections::HashSet;
use std::net::IpAddr;

use proctor_model::{FieldError, HostKey};
use serde_json::Value;

use super::Result;
use crate::api::fields::{Fields, count, each, parsed, text};
use crate::control::HostRef;

/// How a host that is named by address begins the keys of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum KeyStyle {
    /// `cloud:supplier:ip`
    WithSupplier,
    /// `cloud:ip`
    WithoutSupplier,
}

/// A host as the caller named it.
#[derive(Debug)]
pub(in crate::api) struct NamedHost {
    pub(in crate::api) host: HostRef,
    /// How the keys of its rows begin: for an id, the id as it was written.
    pub(in crate::api) prefix: String,
    /// The id as it was written; None for a host that is named by address.
    pub(in crate::api) id: Option<String>,
}

impl NamedHost {
    /// `what` is what the rows of the request are about: `namespace:name` or `namespace`.
    pub(in crate::api) fn row_key(&self, what: &str) -> String {
        format!("{}:{what}", self.prefix)
    }
}

/// Targets of one request. Clients send up to 30,000 in one item; beyond this, several requests are
/// better for everybody.
pub(in crate::api) const TARGETS_MAX: usize = 200_000;

const IDS: &str = "agent_id_list";
const HOSTS: &str = "hosts";

/// `agent_id_list` where it names anything, else `hosts`; at least one.
pub(super) fn hosts(fields: Fields<'_>, style: KeyStyle) -> Result<Vec<NamedHost>> {
    let by_id = fields.optional(IDS, |ids| each(bounded(ids)?, by_id))?.unwrap_or_default();
    if !by_id.is_empty() {
        return Ok(by_id);
    }
    let named = fields.optional(HOSTS, |hosts| each(bounded(hosts)?, |host| by_address(host, style)))?;
    let named = named.ok_or_else(|| FieldError::new(HOSTS, "is missing"))?;
    if named.is_empty() {
        return Err(FieldError::new(HOSTS, "must name at least one host"));
    }
    Ok(named)
}

/// A list that is not too long; whatever is no list is left to be refused for that.
pub(super) fn bounded(list: &Value) -> Result<&Value> {
    within_bounds(list.as_array().map_or(0, Vec::len))?;
    Ok(list)
}

/// So many targets in one request.
pub(in crate::api) fn within_bounds(targets: usize) -> Result<()> {
    if targets > TARGETS_MAX {
        let problem = format!("more than {TARGETS_MAX} targets in one request: split it");
        return Err(FieldError::new("", problem));
    }
    Ok(())
}

fn by_address(value: &Value, style: KeyStyle) -> Result<NamedHost> {
    let fields = Fields::of(value)?;
    let (written, ip) = fields.required("ip", address)?;
    let cloud = fields.required("bk_cloud_id", count::<u32>)?;
    let supplier = fields.optional("bk_supplier_id", count::<u32>)?.unwrap_or(0);
    let prefix = match style {
        KeyStyle::WithSupplier => format!("{cloud}:{supplier}:{written}"),
        KeyStyle::WithoutSupplier => format!("{cloud}:{written}"),
    };
    Ok(NamedHost { host: HostRef::Key(HostKey::new(cloud, supplier, ip)), prefix, id: None })
}

pub(in crate::api) fn address(value: &Value) -> Result<(&str, IpAddr)> {
    let written = text(value)?;
    let ip = written.parse().map_err(|_| FieldError::new("", format!("'{written}' is not an IP address")))?;
    Ok((written, ip))
}

/// An agent id, or `cloud:ip`, which stands for the agent of that host.
fn by_id(value: &Value) -> Result<NamedHost> {
    let written = text(value)?;
    let host = if written.contains(':') { HostRef::Key(address_id(written)?) } else { HostRef::Agent(parsed(value)?) };
    Ok(NamedHost { host, prefix: written.to_owned(), id: Some(written.to_owned()) })
}

/// Stricter than [`HostKey`]'s own form: an address alone is no id.
fn address_id(written: &str) -> Result<HostKey> {
    let parts = written.split_once(':').and_then(|(cloud, ip)| Some((cloud.parse().ok()?, ip.parse().ok()?)));
    let (cloud, ip) =
        parts.ok_or_else(|| FieldError::new("", format!("'{written}' is neither an agent id nor CLOUD:IP")))?;
    Ok(HostKey::new(cloud, 0, ip))
}

/// Each target at most once in a request, however its host is written; the place of a second one is
/// named. `taken` holds those that came before. A host that is named once by its address and once
/// by its agent's id cannot be told here: it has two rows, which the agent works off one by one.
pub(super) fn unique(fields: Fields<'_>, named: &[NamedHost], what: &str, taken: &mut HashSet<String>) -> Result<()> {
    within_bounds(taken.len() + named.len())?;
    for (index, named) in named.iter().enumerate() {
        if !taken.insert(format!("{}:{what}", named.host)) {
            let has_ids = fields.optional(IDS, |ids| Ok(ids.as_array().is_some_and(|ids| !ids.is_empty())))?;
            let list = if has_ids == Some(true) { IDS } else { HOSTS };
            let problem = format!("target {} is named twice", named.row_key(what));
            return Err(FieldError::new(format!("{list}[{index}]"), problem));
        }
    }
    Ok(())
}
