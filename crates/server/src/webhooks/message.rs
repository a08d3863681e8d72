//! What one request carries: its body, its signature, and the webhook's new cursor.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use aws_lc_rs::hmac;
use proctor_model::{Event, EventKind, HostKey, messages};
use proctor_pki::hex;
use proctor_runtime::clock;
use proctor_store::{StoredEvent, WebhookFormat};
use serde_json::{Value, json};

use crate::event_json::event_json;

/// The next request of a webhook.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// None where none of the events has this form.
    pub(super) body: Option<Vec<u8>>,
    /// Every event up to this one is in it, or does not concern the webhook.
    pub(super) cursor: u64,
}

impl Message {
    /// Of `events`, as many from the beginning as go into one request; `next` is the position after
    /// all of them.
    pub(super) fn of(format: WebhookFormat, events: &[StoredEvent], next: u64) -> Self {
        match format {
            WebhookFormat::Native => {
                let events: Vec<Value> = events.iter().map(event_json).collect();
                Self { body: Some(bytes(&json!({ "events": events }))), cursor: next }
            }
            WebhookFormat::Gse => gse(events, next),
        }
    }

    /// The body of a test: one event of the type `test`, which no host ever reports, in the webhook's format.
    pub(super) fn trial(format: WebhookFormat, report_id: Option<i64>) -> Vec<u8> {
        let stored = trial_event(report_id);
        match format {
            WebhookFormat::Native => {
                let mut event = event_json(&stored);
                event["type"] = json!("test");
                bytes(&json!({ "events": [event] }))
            }
            WebhookFormat::Gse => {
                let mut record = stored.event.gse_record(&stored.host, &stored.agent).unwrap_or_default();
                record["event_name"] = json!("process_test");
                bytes(&json!({ "data": [record], "data_id": stored.event.gse_data_id() }))
            }
        }
    }
}

/// Of a host and a process that do not exist.
fn trial_event(report_id: Option<i64>) -> StoredEvent {
    let now = clock::unix_millis();
    StoredEvent {
        id: 0,
        host: HostKey { cloud: 0, supplier: 0, ip: Ipv4Addr::UNSPECIFIED.into() },
        agent: "test".parse().expect("a valid agent id"),
        event: Event {
            sequence: 0,
            at: now,
            process: Some("proctor/test".parse().expect("a valid process")),
            proc_name: String::new(),
            report_id,
            kind: EventKind::RestartSucceeded,
            content: messages::webhook_test(),
            details: BTreeMap::new(),
        },
        stored_at: now,
        muted: false,
    }
}

/// One data id for each request, and the order of events stays: up to the first one of another id.
fn gse(events: &[StoredEvent], next: u64) -> Message {
    let mut data = Vec::new();
    let mut data_id = None;
    let mut cursor = None;
    for stored in events {
        if let Some(record) = stored.event.gse_record(&stored.host, &stored.agent) {
            let id = stored.event.gse_data_id();
            if *data_id.get_or_insert(id) != id {
                let body = bytes(&json!({ "data": data, "data_id": data_id }));
                return Message { body: Some(body), cursor: cursor.unwrap_or(next) };
            }
            data.push(record);
        }
        cursor = Some(stored.id);
    }
    let body = data_id.map(|data_id| bytes(&json!({ "data": data, "data_id": data_id })));
    Message { body, cursor: next }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// `sha256=` and the hexadecimal HMAC of the time stamp, a dot and the body: an old request cannot be sent
/// again with a new time.
pub(super) fn signature(secret: &str, timestamp: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    for part in [timestamp.as_bytes(), b".", body] {
        context.update(part);
    }
    let tag = context.sign();
    format!("sha256={}", hex(tag.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(id: u64, kind: EventKind, report_id: Option<i64>) -> StoredEvent {
        let process = Some("web/nginx".parse().unwrap());
        let (proc_name, content) = ("nginx".to_owned(), proctor_model::Message::foreign(format!("event {id}")));
        let details = BTreeMap::new();
        StoredEvent {
            id,
            host: "0:10.0.0.1".parse().unwrap(),
            agent: "a-1".parse().unwrap(),
            event: Event { sequence: id, at: 1, process, proc_name, report_id, kind, content, details },
            stored_at: 2,
            muted: false,
        }
    }

    fn body(message: &Message) -> Value {
        serde_json::from_slice(message.body.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn a_native_request_carries_every_event() {
        let events = [stored(3, EventKind::Started, None), stored(5, EventKind::Exited, None)];

        let message = Message::of(WebhookFormat::Native, &events, 9);

        assert_eq!(message.cursor, 9);
        let body = body(&message);
        assert_eq!((&body["events"][1]["id"], &body["events"][1]["type"]), (&json!(5), &json!("exited")));
    }

    #[test]
    fn a_gse_request_has_one_data_id_and_leaves_out_what_gse_does_not_have() {
        let events = [
            stored(1, EventKind::Started, None),
            stored(2, EventKind::RestartFailed, Some(7)),
            stored(3, EventKind::Started, Some(8)),
            stored(4, EventKind::CancelRestart, Some(7)),
            stored(5, EventKind::RestartSucceeded, None),
            stored(6, EventKind::Exited, None),
        ];

        let first = Message::of(WebhookFormat::Gse, &events, 9);
        let second = Message::of(WebhookFormat::Gse, &events[4..], 9);
        let nothing = Message::of(WebhookFormat::Gse, &events[..1], 9);

        assert_eq!(first.cursor, 4);
        let first = body(&first);
        assert_eq!((&first["data_id"], first["data"].as_array().unwrap().len()), (&json!(7), 2));
        assert_eq!(first["data"][1]["event_name"], "process_cancel_restart");
        assert_eq!((second.cursor, &body(&second)["data_id"]), (9, &json!(1_100_008)));
        assert_eq!(nothing, Message { body: None, cursor: 9 });
    }

    #[test]
    fn a_test_has_the_form_of_an_event_and_a_type_of_its_own() {
        let parse = |body: Vec<u8>| -> Value { serde_json::from_slice(&body).unwrap() };

        let native = parse(Message::trial(WebhookFormat::Native, None));
        let gse = parse(Message::trial(WebhookFormat::Gse, Some(7)));

        assert_eq!((&native["events"][0]["type"], &native["events"][0]["id"]), (&json!("test"), &json!(0)));
        assert_eq!((&gse["data"][0]["event_name"], &gse["data_id"]), (&json!("process_test"), &json!(7)));
    }

    // python3: import hmac; hmac.digest(b"Jefe", b"1700000000.what do ya want for nothing?", "sha256").hex()
    #[test]
    fn a_signature_covers_the_time_and_the_body() {
        assert_eq!(
            signature("Jefe", "1700000000", b"what do ya want for nothing?"),
            "sha256=1cdd0650c8be1cb0974b1788d458b1e781206cfef59b85faafc582d2e182c57e"
        );
    }
}
