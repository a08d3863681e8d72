//! What an agent stores, as JSON: what can be read survives a round trip.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use proctor_model::{Event, OperationKind, Outcome, Spec};
use proctor_supervise::Record;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|data: &[u8]| {
    if let Some(record) = survives::<Record>(data) {
        check_spec(&record.spec);
    }
    if let Some(spec) = survives::<Spec>(data) {
        check_spec(&spec);
    }
    survives::<Outcome>(data);
    if let Some(event) = survives::<Event>(data) {
        check_event(event);
    }
});

fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(data).ok()?;
    let text = serde_json::to_string(&value).expect("what was JSON is JSON");
    let again: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("cannot read {text}: {error}"));
    assert_eq!(value, again);
    assert_eq!(text, serde_json::to_string(&again).expect("what was JSON is JSON"));
    Some(value)
}

fn check_spec(spec: &Spec) {
    let again: Spec = serde_json::from_str(&spec.to_json()).expect("a spec reads its own text");
    assert_eq!(spec.hash(), again.hash());
    for kind in OperationKind::ALL {
        let _ = kind.time_needed(spec);
    }
}

fn check_event(event: Event) {
    let (host, agent) = ("0:127.0.0.1".parse().expect("a host"), "a-1".parse().expect("an agent"));
    let _ = (event.weight(), event.gse_record(&host, &agent));
    let fitted = event.fitted();
    assert_eq!(fitted.clone().fitted(), fitted);
}
