//! What a store can do: one trait per area, so that a second implementation can take one at a time.
//!
//! Promised: each call is one transaction; what it guarantees is a case in `conformance`.
//! Absent: implementations (see `sqlite`), and any knowledge of HTTP or sessions. Start at `tasks`.

mod access;
mod audit;
mod events;
mod hosts;
mod processes;
mod relays;
mod tasks;
mod upgrades;
mod upkeep;

pub use access::AccessStore;
pub use audit::AuditStore;
pub use events::EventStore;
pub use hosts::HostStore;
pub use processes::ProcessStore;
pub use relays::RelayStore;
pub use tasks::TaskStore;
pub use upgrades::UpgradeStore;
pub use upkeep::UpkeepStore;

/// A whole store: all areas.
pub trait Store:
    AccessStore + AuditStore + HostStore + RelayStore + ProcessStore + TaskStore + EventStore + UpgradeStore + UpkeepStore
{
}

impl<T> Store for T where
    T: AccessStore
        + AuditStore
        + HostStore
        + RelayStore
        + ProcessStore
        + TaskStore
        + EventStore
        + UpgradeStore
        + UpkeepStore
{
}

/// All areas, for holders of a concrete implementation.
pub mod prelude {
    pub use super::{
        AccessStore as _, AuditStore as _, EventStore as _, HostStore as _, ProcessStore as _, RelayStore as _,
        TaskStore as _, UpgradeStore as _, UpkeepStore as _,
    };
}
