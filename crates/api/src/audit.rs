//! The audit log: who changed what, on which targets, from where, and with what result.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::SortOrder;

/// One entry. Each contains the hash of the one before it, so that none can be changed or removed without a trace:
/// `hash` is BLAKE3 of the 32 bytes of `prev_hash` followed by the JSON of all other fields, sorted by name and
/// without spaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    pub seq: u64,
    /// Milliseconds: the entry is shown as it is hashed.
    pub at: i64,
    /// `begun`, `ended`, `done` or `refused`.
    pub phase: String,
    /// The entry that this one closes.
    #[serde(default)]
    pub of: Option<u64>,
    pub app: String,
    pub user: String,
    /// The address that the request came from.
    #[serde(default)]
    pub remote: Option<String>,
    pub request_id: String,
    pub action: String,
    /// The classes of operations that it needed.
    pub classes: Vec<String>,
    pub target_count: u64,
    /// The first thousand.
    pub targets: Vec<String>,
    pub outcome: String,
    /// In hexadecimal digits.
    pub prev_hash: String,
    pub hash: String,
}

/// Oldest first, unless the newest were requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub entries: Vec<AuditView>,
    /// `after` of the next page; newest first, `before` of the next page, and 0 if there is nothing older.
    pub next: u64,
}

/// Which entries; a field that is absent does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only entries with a higher number.
    pub after: Option<u64>,
    /// Only entries with a lower number.
    pub before: Option<u64>,
    /// Absent: the oldest first.
    pub order: Option<SortOrder>,
    /// Default: 100.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
    pub app: Option<String>,
    pub user: Option<String>,
    pub action: Option<String>,
    /// Unix seconds; from then on.
    pub since: Option<i64>,
    /// Unix seconds; before then.
    pub until: Option<i64>,
}

/// As [`AuditQuery`], for all pages together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditFilter {
    pub app: Option<String>,
    pub user: Option<String>,
    pub action: Option<String>,
    /// Unix seconds; from then on.
    pub since: Option<i64>,
    /// Unix seconds; before then.
    pub until: Option<i64>,
}

/// Whether the hash chain is intact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerdict {
    pub intact: bool,
    /// Entries that were checked.
    pub entries: u64,
    /// Entries up to this number are in the archive, not in the store.
    #[serde(default)]
    pub archived: u64,
    /// The hash of the last archived entry, which the first one in the store refers to.
    #[serde(default)]
    pub archived_hash: String,
    /// The hash of the last entry: kept elsewhere, it shows whether later entries were removed.
    pub last_hash: String,
    /// The first entry that does not fit the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
