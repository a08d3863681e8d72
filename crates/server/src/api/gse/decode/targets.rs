//! `hosts` and `agent_id_list`: which hosts, and how the caller writes them.

use std::collections::HashSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use proctor_model::{FieldError, HostKey};

use super::Result;
use crate::api::fields::{Fields, count, each, parsed, text};
use crate::api::json::Value;
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
    /// The id or the address as it was written.
    written: String,
    /// None for a host that is named by an id.
    style: Option<KeyStyle>,
}

impl NamedHost {
    /// The id as it was written; None for a host that is named by address.
    pub(in crate::api) fn id(&self) -> Option<&str> {
        self.style.is_none().then_some(&*self.written)
    }

    /// How the keys of its rows begin: for an id, the id as it was written.
    pub(in crate::api) fn prefix(&self) -> String {
        let mut prefix = String::with_capacity(self.written.len() + NUMBERS_CHARS);
        self.begin(&mut prefix);
        prefix
    }

    /// `what` is what the rows of the request are about: `namespace:name` or `namespace`.
    pub(in crate::api) fn row_key(&self, what: &str) -> String {
        let mut key = String::with_capacity(self.written.len() + NUMBERS_CHARS + what.len() + 1);
        self.begin(&mut key);
        key.push(':');
        key.push_str(what);
        key
    }

    fn begin(&self, key: &mut String) {
        let numbers = match (&self.host, self.style) {
            (HostRef::Key(host), Some(KeyStyle::WithSupplier)) => write!(key, "{}:{}:", host.cloud, host.supplier),
            (HostRef::Key(host), Some(KeyStyle::WithoutSupplier)) => write!(key, "{}:", host.cloud),
            (HostRef::Key(_) | HostRef::Agent(_), None) | (HostRef::Agent(_), Some(_)) => Ok(()),
        };
        numbers.expect("a text takes all that is written");
        key.push_str(&self.written);
    }
}

/// Targets of one request: what they are about, and their hosts, however these are written.
pub(in crate::api) type Taken = HashSet<(Arc<str>, HostRef)>;

/// False if the target is there already.
pub(in crate::api) fn take(taken: &mut Taken, what: &Arc<str>, host: &HostRef) -> bool {
    let host = match host {
        // The supplier is no part of a host's identity.
        HostRef::Key(key) => HostRef::Key(HostKey { supplier: 0, ..*key }),
        HostRef::Agent(agent) => HostRef::Agent(agent.clone()),
    };
    taken.insert((Arc::clone(what), host))
}

/// Room for a cloud and a supplier with their colons.
const NUMBERS_CHARS: usize = 8;

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
pub(super) fn bounded<'a>(list: &'a Value<'a>) -> Result<&'a Value<'a>> {
    within_bounds(list.as_list().map_or(0, <[_]>::len))?;
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

fn by_address(value: &Value<'_>, style: KeyStyle) -> Result<NamedHost> {
    let fields = Fields::of(value)?;
    let (written, ip) = fields.required("ip", address)?;
    let cloud = fields.required("bk_cloud_id", count::<u32>)?;
    let supplier = fields.optional("bk_supplier_id", count::<u32>)?.unwrap_or(0);
    let host = HostRef::Key(HostKey::new(cloud, supplier, ip));
    Ok(NamedHost { host, written: written.to_owned(), style: Some(style) })
}

pub(in crate::api) fn address<'a>(value: &'a Value<'_>) -> Result<(&'a str, IpAddr)> {
    let written = text(value)?;
    let ip = written.parse().map_err(|_| FieldError::new("", format!("'{written}' is not an IP address")))?;
    Ok((written, ip))
}

/// An agent id, or `cloud:ip`, which stands for the agent of that host.
fn by_id(value: &Value<'_>) -> Result<NamedHost> {
    let written = text(value)?;
    let host = if written.contains(':') { HostRef::Key(address_id(written)?) } else { HostRef::Agent(parsed(value)?) };
    Ok(NamedHost { host, written: written.to_owned(), style: None })
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
pub(super) fn unique(fields: Fields<'_>, named: &[NamedHost], what: &str, taken: &mut Taken) -> Result<()> {
    within_bounds(taken.len() + named.len())?;
    taken.reserve(named.len());
    let about: Arc<str> = what.into();
    for (index, named) in named.iter().enumerate() {
        if !take(taken, &about, &named.host) {
            let has_ids = fields.optional(IDS, |ids| Ok(ids.as_list().is_some_and(|ids| !ids.is_empty())))?;
            let list = if has_ids == Some(true) { IDS } else { HOSTS };
            let problem = format!("target {} is named twice", named.row_key(what));
            return Err(FieldError::new(format!("{list}[{index}]"), problem));
        }
    }
    Ok(())
}
