//! `hosts` and `agent_id_list`: which hosts, and how the caller writes them.
//!
//! Promised: a text that cannot be a host's address or id is treated as a nonexistent host, so that one such entry
//! does not fail a batch; its row has the key as it was sent.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::net::IpAddr;

use proctor_model::{FieldError, HostKey, messages};

use super::Result;
use crate::api::fields::{Fields, count, each, parsed, text};
use crate::api::json::Value;
use crate::control::{HostRef, SpecSource, SubmittedItem};

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
    address: Option<Address>,
}

/// What stands in front of an address.
#[derive(Clone, Copy, Debug)]
struct Address {
    cloud: u32,
    /// None where keys are written without it.
    supplier: Option<u32>,
}

impl NamedHost {
    /// The id as it was written; None for a host that is named by address.
    pub(in crate::api) fn id(&self) -> Option<&str> {
        self.address.is_none().then_some(&*self.written)
    }

    /// The address as it was written, with its cloud area; None for a host that is named by an id.
    pub(in crate::api) fn address(&self) -> Option<(&str, u32)> {
        self.address.map(|address| (&*self.written, address.cloud))
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
        let numbers = match self.address {
            Some(Address { cloud, supplier: Some(supplier) }) => write!(key, "{cloud}:{supplier}:"),
            Some(Address { cloud, supplier: None }) => write!(key, "{cloud}:"),
            None => Ok(()),
        };
        numbers.expect("a text takes all that is written");
        key.push_str(&self.written);
    }
}

/// The hosts of a request, and the field that named them.
#[derive(Debug)]
pub(in crate::api) struct Named {
    pub(in crate::api) field: &'static str,
    pub(in crate::api) hosts: Vec<NamedHost>,
}

/// Counts the targets of one request.
#[derive(Debug, Default)]
pub(in crate::api) struct Count(usize);

impl Count {
    pub(in crate::api) fn add(&mut self, targets: usize) -> Result<()> {
        self.0 += targets;
        within_bounds(self.0)
    }
}

/// Room for a cloud and a supplier with their colons.
const NUMBERS_CHARS: usize = 8;

/// Of an id, or of what can be no address: it is given back in a row.
const WRITTEN_CHARS_MAX: usize = 128;

/// Targets per request. Clients send up to 30,000 in one item; beyond this, several requests are better for
/// everybody.
pub(in crate::api) const TARGETS_MAX: usize = 200_000;

const IDS: &str = "agent_id_list";
const HOSTS: &str = "hosts";

/// `agent_id_list` where it names anything, else `hosts`; at least one.
pub(super) fn hosts(fields: Fields<'_>, style: KeyStyle) -> Result<Named> {
    let named = hosts_or_none(fields, style)?;
    if named.hosts.is_empty() {
        return Err(FieldError::new(named.field, messages::needs_a_host()));
    }
    Ok(named)
}

/// As [`hosts`], for a query: no host is no answer.
pub(super) fn hosts_or_none(fields: Fields<'_>, style: KeyStyle) -> Result<Named> {
    let ids = fields.optional(IDS, |ids| each(bounded(ids)?, by_id))?;
    let ids = match ids {
        Some(hosts) if !hosts.is_empty() => return Ok(Named { field: IDS, hosts }),
        ids => ids,
    };
    let named = fields.optional(HOSTS, |hosts| each(bounded(hosts)?, |host| by_address(host, style)))?;
    match (named, ids) {
        (Some(hosts), _) => Ok(Named { field: HOSTS, hosts }),
        (None, Some(hosts)) => Ok(Named { field: IDS, hosts }),
        (None, None) => Err(FieldError::new(HOSTS, messages::is_missing())),
    }
}

/// A list that is not too long; whatever is no list is left to be refused for that.
pub(super) fn bounded<'a>(list: &'a Value<'a>) -> Result<&'a Value<'a>> {
    within_bounds(list.as_list().map_or(0, <[_]>::len))?;
    Ok(list)
}

/// So many targets in one request.
pub(in crate::api) fn within_bounds(targets: usize) -> Result<()> {
    if targets > TARGETS_MAX {
        let problem = messages::too_many_targets(TARGETS_MAX);
        return Err(FieldError::new("", problem));
    }
    Ok(())
}

fn by_address(value: &Value<'_>, style: KeyStyle) -> Result<NamedHost> {
    let fields = Fields::of(value)?;
    let (written, ip) = fields.required("ip", address)?;
    let cloud = fields.required("bk_cloud_id", count::<u32>)?;
    let supplier = fields.optional("bk_supplier_id", count::<u32>)?.unwrap_or(0);
    let host = address_ref(written, cloud, supplier, ip);
    let supplier = (style == KeyStyle::WithSupplier).then_some(supplier);
    Ok(NamedHost { host, written: written.to_owned(), address: Some(Address { cloud, supplier }) })
}

/// An address as it was written; None if it is not one.
pub(in crate::api) fn address<'a>(value: &'a Value<'_>) -> Result<(&'a str, Option<IpAddr>)> {
    let written = text(value)?;
    match written.parse() {
        Ok(ip) => Ok((written, Some(ip))),
        Err(_) => Ok((presentable(written)?, None)),
    }
}

pub(in crate::api) fn address_ref(written: &str, cloud: u32, supplier: u32, ip: Option<IpAddr>) -> HostRef {
    match ip {
        Some(ip) => HostRef::Key(HostKey::new(cloud, supplier, ip)),
        None => HostRef::Unusable(written.into()),
    }
}

/// A text that may stand in a row.
fn presentable(written: &str) -> Result<&str> {
    if written.chars().count() > WRITTEN_CHARS_MAX {
        return Err(FieldError::new("", messages::longer_than_chars(WRITTEN_CHARS_MAX)));
    }
    if written.chars().any(char::is_control) {
        return Err(FieldError::new("", messages::has_control_characters()));
    }
    Ok(written)
}

/// An agent id, or `cloud:ip`, which stands for the agent of that host.
fn by_id(value: &Value<'_>) -> Result<NamedHost> {
    let written = presentable(text(value)?)?;
    let host = if written.contains(':') {
        address_id(written).map(HostRef::Key)
    } else {
        parsed(value).ok().map(HostRef::Agent)
    };
    let host = host.unwrap_or_else(|| HostRef::Unusable(written.into()));
    Ok(NamedHost { host, written: written.to_owned(), address: None })
}

/// Stricter than [`HostKey`]'s own form: an address alone is no id, and the cloud has one spelling.
fn address_id(written: &str) -> Option<HostKey> {
    let (cloud, ip) = written.split_once(':')?;
    let number = cloud.parse::<u32>().ok().filter(|number| number.to_string() == cloud)?;
    Some(HostKey::new(number, 0, ip.parse().ok()?))
}

/// Each row once: a host that is written twice in the same way is one host.
pub(super) fn unrepeated(named: Vec<NamedHost>) -> Vec<NamedHost> {
    let mut taken = HashSet::with_capacity(named.len());
    named.into_iter().filter(|named| taken.insert(named.prefix())).collect()
}

/// Each row once in a request. A target that is there again with the same operation and an equal spec is
/// one target; with another operation or spec the request contradicts itself, and both paths are named.
/// `path` names the target of an item. Two names of one host are not told from two hosts here.
pub(in crate::api) fn merge_repeated(items: &mut [SubmittedItem], path: impl Fn(usize, usize) -> String) -> Result<()> {
    let mut taken: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut repeated: Vec<HashSet<usize>> = vec![HashSet::new(); items.len()];
    for (item, submitted) in items.iter().enumerate() {
        for (index, target) in submitted.targets.iter().enumerate() {
            let Some((first, first_index)) = taken.insert(&target.row_key, (item, index)) else { continue };
            if first != item && !is_same_request(&items[first], submitted) {
                let problem = messages::target_with_another_operation(&target.row_key, path(first, first_index));
                return Err(FieldError::new(path(item, index), problem));
            }
            taken.insert(&target.row_key, (first, first_index));
            repeated[item].insert(index);
        }
    }
    drop(taken);
    for (submitted, repeated) in items.iter_mut().zip(repeated).filter(|(_, repeated)| !repeated.is_empty()) {
        let mut index = 0..;
        submitted.targets.retain(|_| index.next().is_some_and(|index| !repeated.contains(&index)));
    }
    Ok(())
}

fn is_same_request(one: &SubmittedItem, other: &SubmittedItem) -> bool {
    let has_same_spec = match (&one.spec, &other.spec) {
        (SpecSource::Given(one), SpecSource::Given(other)) => one == other,
        (SpecSource::Registered, SpecSource::Registered) => true,
        (SpecSource::Given(_) | SpecSource::Registered | SpecSource::Again(_), _) => false,
    };
    has_same_spec && one.key == other.key && one.kind == other.kind
}
