//! The form of every error.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sent with every HTTP status from 400 on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs: `invalid_argument`, `body_too_large`, `unauthenticated`, `permission_denied`, `not_found`,
    /// `method_not_allowed`, `conflict`, `too_many_requests`, `unavailable`, `internal`.
    pub code: String,
    /// For people.
    pub message: String,
    /// The field at fault, such as `hosts[1]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}
