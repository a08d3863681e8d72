//! An event as our own API and native webhooks show it.

use proctor_api::EventView;
use proctor_model::{Event, Phrase, ProcessKey};
use proctor_store::StoredEvent;
use serde_json::Value;

pub(crate) fn event_json(stored: &StoredEvent) -> Value {
    serde_json::to_value(event_view(stored)).expect("an event has only string keys")
}

pub(crate) fn event_view(stored: &StoredEvent) -> EventView {
    let Event { sequence, at, process, proc_name, report_id, kind, content, details } = &stored.event;
    EventView {
        id: stored.id,
        at_ms: *at,
        stored_at_ms: stored.stored_at,
        host: stored.host.to_string(),
        agent: stored.agent.clone(),
        sequence: *sequence,
        kind: kind.as_str().to_owned(),
        process: process.as_ref().map(ProcessKey::to_string),
        proc_name: proc_name.clone(),
        report_id: *report_id,
        content: content.to_string(),
        message_id: content.phrase().map(|phrase| phrase.id().to_owned()),
        message_args: content.phrase().map(Phrase::args_json),
        details: details.clone(),
        muted: stored.muted,
    }
}
