//! Events, as people and other systems see them.
//!
//! An event is created once, by an agent or by the server, and never changes. Its details are for programs, its
//! content is a sentence for people. [`Event::gse_record`] is the format that GSE uses for the five events that both
//! have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{AgentId, FieldError, HostKey, Message, ProcessKey, messages};

/// The detail that holds the id of a pool.
pub const POOL_DETAIL: &str = "pool";

/// The data id under which GSE reports process events if the process has no other.
pub const GSE_DATA_ID: i64 = 1_100_008;

/// A sentence, perhaps with the last output of a command.
pub const EVENT_CONTENT_BYTES_MAX: usize = 4 * 1024;
/// Of the details as JSON; enough for the ranking of a large pool.
pub const EVENT_DETAILS_BYTES_MAX: usize = 16 * 1024;
pub const EVENT_DETAILS_MAX: usize = 32;
/// Enough for every legal name: 255 characters of four bytes.
pub const EVENT_PROC_NAME_BYTES_MAX: usize = 1024;

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A managed process was found dead and was restarted.
    RestartSucceeded,
    RestartFailed,
    /// Every restart failed; the process is no longer managed.
    CancelRestart,
    /// A process used more than its own limit allows.
    LimitExceeded,
    /// A pool used more than its limit allows; the process is the one that was evicted.
    PoolLimitExceeded,
    Started,
    Exited,
    /// A running process was adopted.
    Adopted,
    /// The main process was replaced by another one, not by us.
    PidChanged,
    HealthChanged,
    /// A file of the configmap differs from its checksum, or matches again.
    ConfigChanged,
    /// A periodic run was due while the previous one was still running.
    ScheduleSkipped,
    FdWarning,
    /// A pool is over its limit and cannot get below it, or soon will be over.
    PoolWarning,
    AgentOnline,
    AgentOffline,
    /// Events were dropped: an agent was without its server for too long, or sent more than its budget.
    EventsDropped,
    /// Somebody on the host operated a process there, with or without the server.
    LocalOperation,
    /// An agent refused a message that its control plane had not signed.
    CommandRefused,
    /// The agent runs another version, which has proved itself.
    AgentUpgraded,
    /// An upgrade of the agent was refused or failed; it still runs its previous version.
    AgentUpgradeFailed,
    /// A second copy of an agent's state directory tried to connect, and was refused.
    AgentCloned,
    /// A host's clock is off by more than operations and certificates tolerate, or is right again.
    ClockOff,
}

impl EventKind {
    pub const ALL: [Self; 23] = [
        Self::RestartSucceeded,
        Self::RestartFailed,
        Self::CancelRestart,
        Self::LimitExceeded,
        Self::PoolLimitExceeded,
        Self::Started,
        Self::Exited,
        Self::Adopted,
        Self::PidChanged,
        Self::HealthChanged,
        Self::ConfigChanged,
        Self::ScheduleSkipped,
        Self::FdWarning,
        Self::PoolWarning,
        Self::AgentOnline,
        Self::AgentOffline,
        Self::EventsDropped,
        Self::LocalOperation,
        Self::CommandRefused,
        Self::AgentUpgraded,
        Self::AgentUpgradeFailed,
        Self::AgentCloned,
        Self::ClockOff,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::RestartSucceeded => "restart_succeeded",
            Self::RestartFailed => "restart_failed",
            Self::CancelRestart => "cancel_restart",
            Self::LimitExceeded => "limit_exceeded",
            Self::PoolLimitExceeded => "pool_limit_exceeded",
            Self::Started => "started",
            Self::Exited => "exited",
            Self::Adopted => "adopted",
            Self::PidChanged => "pid_changed",
            Self::HealthChanged => "health_changed",
            Self::ConfigChanged => "config_changed",
            Self::ScheduleSkipped => "schedule_skipped",
            Self::FdWarning => "fd_warning",
            Self::PoolWarning => "pool_warning",
            Self::AgentOnline => "agent_online",
            Self::AgentOffline => "agent_offline",
            Self::EventsDropped => "events_dropped",
            Self::LocalOperation => "local_operation",
            Self::CommandRefused => "command_refused",
            Self::AgentUpgraded => "agent_upgraded",
            Self::AgentUpgradeFailed => "agent_upgrade_failed",
            Self::AgentCloned => "agent_cloned",
            Self::ClockOff => "clock_off",
        }
    }

    /// GSE's name for it; None for a kind that only we have.
    pub fn gse_name(self) -> Option<&'static str> {
        match self {
            Self::RestartSucceeded => Some("process_restart_success"),
            Self::RestartFailed => Some("process_restart_failed"),
            Self::CancelRestart => Some("process_cancel_restart"),
            Self::LimitExceeded => Some("process_resource_limit_exceed"),
            Self::PoolLimitExceeded => Some("process_group_resource_limit_exceed"),
            Self::Started
            | Self::Exited
            | Self::Adopted
            | Self::PidChanged
            | Self::HealthChanged
            | Self::ConfigChanged
            | Self::ScheduleSkipped
            | Self::FdWarning
            | Self::PoolWarning
            | Self::AgentOnline
            | Self::AgentOffline
            | Self::EventsDropped
            | Self::LocalOperation
            | Self::CommandRefused
            | Self::AgentUpgraded
            | Self::AgentUpgradeFailed
            | Self::AgentCloned
            | Self::ClockOff => None,
        }
    }
}

impl std::fmt::Display for EventKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for EventKind {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            FieldError::new("type", messages::not_one_of(text, known))
        })
    }
}

/// One thing that happened on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Rises with every event of its agent, with gaps, and is never reused; 0 for an event of the server.
    pub sequence: u64,
    /// Unix milliseconds, by the clock of the host.
    pub at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessKey>,
    /// The executable's name, as in the spec; empty if no process is concerned.
    #[serde(default)]
    pub proc_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_id: Option<i64>,
    pub kind: EventKind,
    /// A sentence for people.
    #[serde(flatten, with = "crate::message::as_content")]
    pub content: Message,
    /// For programs: pid, exit, attempt, ranking and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
}

impl Event {
    /// The same event, small enough for every link and store: the content is truncated, and details that do not fit
    /// are dropped as a whole, so that the rest can still be parsed.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        self.content = self.content.fitted(EVENT_CONTENT_BYTES_MAX, "");
        self.proc_name.truncate(self.proc_name.floor_char_boundary(EVENT_PROC_NAME_BYTES_MAX));
        // Two braces, and no comma after the last one.
        let (mut bytes, mut count) = (1, 0);
        self.details.retain(|name, value| {
            // A colon and a comma, where the array has a comma and two brackets.
            let more = json!([name, value]).to_string().len() - 1;
            let fits = count < EVENT_DETAILS_MAX && bytes + more <= EVENT_DETAILS_BYTES_MAX;
            if fits {
                bytes += more;
                count += 1;
            }
            fits
        });
        self
    }

    /// Approximate size on a link, in bytes.
    pub fn weight(&self) -> usize {
        let details: usize = self.details.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let process = self.process.as_ref().map_or(0, |key| key.namespace.as_str().len() + key.name.as_str().len());
        64 + self.content.bytes() + self.proc_name.len() + process + details
    }

    /// The data id under which GSE reports it: the process's own, if it has one.
    pub fn gse_data_id(&self) -> i64 {
        self.report_id.filter(|id| *id > 0).unwrap_or(GSE_DATA_ID)
    }

    /// The event as GSE reports it, one element of `data`; None for a kind that GSE does not have, and without a
    /// process. The group is the pool whose limit it is about, otherwise that of the whole namespace.
    pub fn gse_record(&self, host: &HostKey, agent: &AgentId) -> Option<Value> {
        let (name, process) = (self.kind.gse_name()?, self.process.as_ref()?);
        let proc_name = if self.proc_name.is_empty() { process.name.as_str() } else { &self.proc_name };
        Some(json!({
            "event_name": name,
            "event": { "content": self.content.as_str() },
            "target": format!("{}|{}", host.ip, host.cloud),
            "timestamp": self.at,
            "dimension": {
                "bk_target_cloud_id": host.cloud.to_string(),
                "bk_target_ip": host.ip.to_string(),
                "process_group_id": self.details.get(POOL_DETAIL).map_or(process.namespace.as_str(), String::as_str),
                "process_index": format!("{}:{}", process.namespace, process.name),
                "process_name": proc_name,
                "bk_agent_id": agent,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind) -> Event {
        Event {
            sequence: 7,
            at: 1_618_382_611_690,
            process: Some("nodeman/bkmonitorbeat".parse().unwrap()),
            proc_name: "bkmonitorbeat".to_owned(),
            report_id: None,
            kind,
            content: Message::foreign("check bkmonitorbeat not running, and restart it success"),
            details: BTreeMap::new(),
        }
    }

    fn gse(event: &Event) -> Option<Value> {
        let record = event.gse_record(&"0:127.0.0.1".parse().unwrap(), &"a-1".parse().unwrap())?;
        Some(json!({ "data": [record], "data_id": event.gse_data_id() }))
    }

    /// The example of the GSE documents, word for word.
    const DOCUMENTED: &str = r#"{"data":[{"event_name":"process_restart_success","event":{"content":"check bkmonitorbeat not running, and restart it success"},
      "target":"127.0.0.1|0","timestamp":1618382611690,
      "dimension":{"bk_target_cloud_id":"0","bk_target_ip":"127.0.0.1","process_group_id":"nodeman",
                   "process_index":"nodeman:bkmonitorbeat","process_name":"bkmonitorbeat"}}],"data_id":1100008}"#;

    #[test]
    fn the_documented_example_comes_out_with_the_agent_beside_it() {
        let mut json = gse(&event(EventKind::RestartSucceeded)).unwrap();

        let agent = json["data"][0]["dimension"].as_object_mut().unwrap().remove("bk_agent_id");
        assert_eq!(agent, Some(json!("a-1")));
        assert_eq!(json, serde_json::from_str::<Value>(DOCUMENTED).unwrap());
    }

    #[test]
    fn the_group_of_a_pool_event_is_the_pool() {
        let of_pool = Event {
            details: BTreeMap::from([(POOL_DETAIL.to_owned(), "batch".to_owned())]),
            ..event(EventKind::PoolLimitExceeded)
        };

        let group = |event: &Event| gse(event).unwrap()["data"][0]["dimension"]["process_group_id"].clone();

        assert_eq!(group(&of_pool), "batch");
        assert_eq!(group(&event(EventKind::LimitExceeded)), "nodeman");
    }

    #[test]
    fn a_report_id_of_the_process_is_the_data_id() {
        let data_id =
            |report_id| gse(&Event { report_id, ..event(EventKind::CancelRestart) }).unwrap()["data_id"].clone();

        assert_eq!(data_id(Some(9)), 9);
        assert_eq!(data_id(Some(0)), GSE_DATA_ID);
        assert_eq!(data_id(None), GSE_DATA_ID);
    }

    #[test]
    fn gse_has_five_kinds_and_needs_a_process() {
        let names: Vec<_> = EventKind::ALL.into_iter().filter_map(EventKind::gse_name).collect();

        assert_eq!(
            names,
            [
                "process_restart_success",
                "process_restart_failed",
                "process_cancel_restart",
                "process_resource_limit_exceed",
                "process_group_resource_limit_exceed"
            ]
        );
        assert_eq!(gse(&event(EventKind::Started)), None);
        assert_eq!(gse(&Event { process: None, ..event(EventKind::RestartFailed) }), None);
    }

    #[test]
    fn kinds_survive_their_text_and_json_forms_which_are_the_same() {
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert!("explode".parse::<EventKind>().unwrap_err().to_string().starts_with("type: 'explode' is not"));
    }

    #[test]
    fn an_event_that_is_too_long_is_fitted_and_stays_parsable() {
        let mut long = event(EventKind::PoolLimitExceeded);
        long.content = Message::foreign("进".repeat(EVENT_CONTENT_BYTES_MAX));
        long.details = (0..50).map(|number| (format!("{number:02}"), "x".to_owned())).collect();
        long.details.insert("00".to_owned(), "\u{1}".repeat(EVENT_DETAILS_BYTES_MAX / 2));

        let fitted = long.fitted();

        assert!(fitted.content.len() <= EVENT_CONTENT_BYTES_MAX && fitted.content.starts_with('进'));
        assert_eq!(fitted.details.len(), EVENT_DETAILS_MAX);
        assert!(!fitted.details.contains_key("00"), "too large once it is escaped");
        assert!(serde_json::to_string(&fitted.details).unwrap().len() <= EVENT_DETAILS_BYTES_MAX);
    }

    #[test]
    fn every_legal_name_and_details_up_to_the_bound_fit_as_they_are() {
        let mut longest = event(EventKind::Exited);
        longest.proc_name = "🦀".repeat(255).parse::<crate::ProcName>().unwrap().into();
        let padding = EVENT_DETAILS_BYTES_MAX - r#"{"a":"","b":""}"#.len();
        longest.details = [("a", String::new()), ("b", "x".repeat(padding))].map(|(k, v)| (k.to_owned(), v)).into();

        assert_eq!(serde_json::to_string(&longest.details).unwrap().len(), EVENT_DETAILS_BYTES_MAX);
        assert_eq!(longest.clone().fitted(), longest);
    }

    #[test]
    fn an_event_of_fewer_fields_is_read() {
        let text = r#"{"sequence":1,"at":2,"kind":"agent_online","content":"hello"}"#;

        let read: Event = serde_json::from_str(text).unwrap();

        assert_eq!((read.process, read.details.len()), (None, 0));
    }
}
