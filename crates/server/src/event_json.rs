//! An event as our own API and native webhooks show it.

use proctor_model::{Event, ProcessKey};
use proctor_store::StoredEvent;
use serde_json::{Value, json};

/// Times are in milliseconds here, as the names say: what happened within one second has an order.
pub(crate) fn event_json(stored: &StoredEvent) -> Value {
    let Event { sequence, at, process, proc_name, report_id, kind, content, details } = &stored.event;
    json!({
        "id": stored.id,
        "at_ms": at,
        "stored_at_ms": stored.stored_at,
        "host": stored.host.to_string(),
        "agent": stored.agent,
        "sequence": sequence,
        "type": kind,
        "process": process.as_ref().map(ProcessKey::to_string),
        "proc_name": proc_name,
        "report_id": report_id,
        "content": content,
        "details": details,
    })
}
