//! Conversions of events. What a server stores for every host is bounded here, and details are counted one event at
//! a time, before the next one is read.

use std::collections::BTreeMap;

use proctor_model::{
    EVENT_CONTENT_BYTES_MAX, EVENT_DETAILS_BYTES_MAX, EVENT_DETAILS_MAX, EVENT_PROC_NAME_BYTES_MAX, Event, EventKind,
    Phrase, ProcessKey,
};

use crate::value::{bounded, message, numbered};
use crate::{WireError, proto};

numbered!(
    number_of_kind,
    kind,
    EventKind,
    "event kind",
    RestartSucceeded,
    RestartFailed,
    CancelRestart,
    LimitExceeded,
    PoolLimitExceeded,
    Started,
    Exited,
    Adopted,
    PidChanged,
    HealthChanged,
    ConfigChanged,
    ScheduleSkipped,
    FdWarning,
    AgentOnline,
    AgentOffline,
    EventsDropped,
    PoolWarning,
    LocalOperation,
    CommandRefused,
    AgentUpgraded,
    AgentUpgradeFailed,
    AgentCloned,
    ClockOff,
);

impl From<Event> for proto::Event {
    fn from(event: Event) -> Self {
        // The peer would end the session over an oversized event.
        let event = event.fitted();
        Self {
            sequence: event.sequence,
            at: event.at,
            process: event.process.map(Into::into),
            proc_name: event.proc_name,
            report_id: event.report_id,
            kind: number_of_kind(event.kind),
            phrase_json: event.content.phrase().map(Phrase::to_json),
            content: event.content.into_text(),
            details_json: details_json(&event.details),
        }
    }
}

impl TryFrom<proto::Event> for Event {
    type Error = WireError;
    fn try_from(event: proto::Event) -> Result<Self, WireError> {
        let content = bounded("content of an event", event.content, EVENT_CONTENT_BYTES_MAX)?;
        Ok(Self {
            sequence: event.sequence,
            at: event.at,
            process: event.process.map(ProcessKey::try_from).transpose()?,
            proc_name: bounded("process name of an event", event.proc_name, EVENT_PROC_NAME_BYTES_MAX)?,
            report_id: event.report_id,
            kind: kind(event.kind)?,
            content: message(content, event.phrase_json.as_deref()).fitted(EVENT_CONTENT_BYTES_MAX, ""),
            details: details(event.details_json)?,
        })
    }
}

fn details_json(details: &BTreeMap<String, String>) -> String {
    if details.is_empty() {
        return String::new();
    }
    serde_json::to_string(details).expect("texts by texts are JSON")
}

fn details(json: String) -> Result<BTreeMap<String, String>, WireError> {
    if json.is_empty() {
        return Ok(BTreeMap::new());
    }
    let json = bounded("details of an event", json, EVENT_DETAILS_BYTES_MAX)?;
    let details: BTreeMap<_, _> = serde_json::from_str(&json).map_err(|source| WireError::Details { source })?;
    if details.len() > EVENT_DETAILS_MAX {
        return Err(WireError::TooManyItems { items_max: EVENT_DETAILS_MAX });
    }
    Ok(details)
}
