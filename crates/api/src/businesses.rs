//! Businesses, to which hosts belong, and sets of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BusinessView {
    pub id: u64,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BusinessList {
    pub businesses: Vec<BusinessView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BusinessName {
    #[schema(min_length = 1, max_length = 128)]
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BusinessSetView {
    pub id: u64,
    pub name: String,
    /// The ids of its businesses.
    pub members: BTreeSet<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BusinessSetList {
    pub business_sets: Vec<BusinessSetView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BusinessSetSetting {
    #[schema(min_length = 1, max_length = 128)]
    pub name: String,
    /// The ids of its businesses.
    #[serde(deserialize_with = "crate::id::set")]
    pub members: BTreeSet<u64>,
}
