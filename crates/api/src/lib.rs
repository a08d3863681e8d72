//! Request and response types of the native API, `/api/v1`.
//!
//! Server and client use the same types, and the OpenAPI document is generated from them. Promised: a
//! request rejects unknown fields, so that a typo is noticed; a response may have fields of a newer
//! server. Times are Unix seconds, unless a name ends in `_ms`. A host is written `CLOUD:IP`, a process
//! `NAMESPACE/NAME`. Absent: what the calls do, and permissions.
//!
//! Start at `operations` and `tasks`; the table of registration fields is in `registration`.

mod access;
mod audit;
mod authority;
mod businesses;
mod count_or_percent;
mod error;
mod events;
mod hosts;
mod id;
mod localized;
mod logs;
mod object;
mod operations;
mod overview;
mod pools;
mod process_lists;
mod processes;
mod registration;
mod relays;
mod session;
mod tasks;
mod text;
mod upgrades;
mod usage;

pub use access::{
    Allowed, AllowedWithin, AppList, AppQuery, AppView, BindingList, BindingQuery, BindingView, CreatedApp,
    CreatedToken, CreatedUserToken, GrantList, GrantQuery, GrantView, NewApp, NewBinding, NewGrant, NewRole, NewToken,
    NewUser, NewUserToken, RoleList, RoleView, TokenList, TokenView, UserChange, UserList, UserTokenList,
    UserTokenView, UserView, Who,
};
pub use audit::{AuditFilter, AuditPage, AuditQuery, AuditVerdict, AuditView};
pub use authority::{
    AuthorityBehind, AuthorityBehindWhy, AuthorityFollowers, AuthorityPhase, AuthorityStep, AuthorityView,
};
pub use businesses::{BusinessList, BusinessName, BusinessSetList, BusinessSetSetting, BusinessSetView, BusinessView};
pub use count_or_percent::CountOrPercent;
pub use error::{ErrorBody, ErrorDetail};
pub use events::{
    EventFilter, EventHistogram, EventList, EventQuery, EventView, HistogramQuery, NewWebhook, StreamQuery,
    WebhookFormat, WebhookList, WebhookTested, WebhookView,
};
pub use hosts::{
    ApproveRequest, CordonRequest, CordonView, DownloadList, DownloadView, HostPage, HostQuery, HostStatus,
    HostTrouble, HostView, ImportRow, Imported, LinkView, Placed, Placement, RejoinRequest, RejoinView, ServerView,
    StorageView, TableView, UnservedHostList, UnservedHostView,
};
pub use id::ID_MAX;
pub use localized::{LocalizedMessage, OptionalFailure, OptionalNote, OptionalReason, Reason, Sentence};
pub use logs::{LogQuery, LogState, LogView};
pub use object::Object;
pub use operations::{Accepted, ExactTarget, OperationRequest, Plan, PlannedTarget, Refusal, Rolling};
pub use overview::{
    AgentVersion, Attention, AttentionKind, CloudHosts, EarlierCounts, EndingCertificate, FleetMap, FoundHost,
    HostCounts, HostState, Overview, ProcessCounts, SearchQuery, SearchResult, Severity, TaskCounts,
};
pub use pools::{
    PlannedPool, PlannedUsage, PoolList, PoolMember, PoolPlan, PoolQuery, PoolSetting, PoolUsage, PoolView, SetPools,
};
pub use process_lists::{
    FacetCount, FacetQuery, Facets, GroupPage, GroupQuery, GroupSort, HealthState, LabelFacet, PhaseCounts,
    ProcessFilter, ProcessGroup, ProcessQuery, ProcessSort, SEARCH_CHARS_MAX, SortOrder, Trouble,
};
pub use processes::{
    Change, DiffQuery, HistoryQuery, PlannedUnregistration, ProcessPage, ProcessView, RegisterQuery,
    RegistrationChange, RegistrationPlan, Revision, Row, Rows, ShowQuery, SpecDiff, SpecHistory, Unregistration,
    UnregistrationPlan,
};
pub use registration::Registration;
pub use relays::{RelayList, RelayView};
pub use session::{NewPassword, OwnPassword, Session, SignIn, SignInLink};
pub use tasks::{
    GridQuery, ProcessOperation, ProcessOperationQuery, ProcessOperations, RolloutState, RolloutView, TargetPage,
    TargetQuery, TargetRow, TargetState, TaskGrid, TaskPage, TaskQuery, TaskState, TaskView,
};
pub use text::Text;

/// Default and maximum number of rows in one answer.
pub const LIMIT: u32 = 100;
pub const LIMIT_MAX: u32 = 1000;

/// The answer to a removal.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Removed {
    /// What was removed, as it was named.
    pub removed: String,
}
pub use upgrades::{
    BuildList, BuildView, NewUpgrade, UpgradeDetail, UpgradeHostQuery, UpgradeHostState, UpgradeHostView, UpgradeList,
    UpgradePlanView, UpgradeRing, UpgradeRingProgress, UpgradeState, UpgradeView,
};
pub use usage::{UsagePointView, UsageQuery, UsageSpan, UsageState, UsageView};
