//! Ids of businesses, within the range of the store.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};

/// The largest number of a business or of a set of them.
pub const ID_MAX: u64 = i64::MAX as u64;

pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::deserialize(deserializer)?.map(checked).transpose()
}

pub(crate) fn set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<u64>, D::Error> {
    Vec::deserialize(deserializer)?.into_iter().map(checked).collect()
}

fn checked<E: serde::de::Error>(id: u64) -> Result<u64, E> {
    if id > ID_MAX { Err(E::custom(format!("{id} is larger than {ID_MAX}"))) } else { Ok(id) }
}
