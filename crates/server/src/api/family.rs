//! The names under which tasks remember the dialect that they came from.

/// By hosts, with a supplier, and a stored registration.
pub(super) const GSE_V1: &str = "gse_v1";
/// By hosts or agent ids, with the whole spec in each call.
pub(super) const GSE_V2: &str = "gse_v2";
pub(super) const JOB: &str = "job";

/// In these, a status shows the name of the meta data instead of that of the executable.
pub(super) const SHOWS_META_NAME: [&str; 1] = [GSE_V2];
