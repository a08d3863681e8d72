//! Traces: a task is one trace, from the call to the outcome of each target.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use parking_lot::Mutex;
use proctor_model::{Code, Message, Outcome};
use proctor_server::control::StartOptions;
use proctor_traces::{Span, Stage, TraceParent, TraceSink, Traces};
use serde_json::{Value, json};

use crate::support::{APP, ESB, SECRET, World, on_host, post_request, registered};

const AGENT: &str = "020000000052540a9b2c1641";

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Span>>);

impl TraceSink for Recorder {
    fn record(&self, span: Span) {
        self.0.lock().push(span);
    }
}

fn body(op_type: i64) -> Value {
    json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin", "op_type": op_type,
        "meta": on_host("a", "10.0.0.1")["meta"], "hosts": on_host("a", "10.0.0.1")["hosts"]})
}

#[tokio::test]
async fn a_task_is_one_trace_that_names_the_span_of_its_caller() {
    let recorder = Arc::new(Recorder::default());
    let options = StartOptions { traces: Traces::to(recorder.clone()), ..StartOptions::default() };
    let world = World::started(options).await;
    world.post(&format!("{ESB}/register_proc_info/"), registered("a", "10.0.0.1")).await.data();
    let session = world.connect(AGENT).await;
    let mut request = post_request(&format!("{ESB}/operate_proc/"), body(0).to_string());
    let parent = HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    request.headers_mut().insert("traceparent", parent);

    let task = world.send(request).await.data()["task_id"].clone();
    let operation = world.control.take_deliveries(&session, 10)[0].operation;
    let failure = Outcome::new(Code::CommandFailed, Message::foreign("exit 1: hunter2"), false);
    world.control.arrived(&session, operation, failure).await.unwrap();
    let traced = async {
        while recorder.0.lock().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), traced).await.expect("the outcome is traced once it is stored");

    let spans = recorder.0.lock().clone();
    assert_eq!(spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["submit start", "deliver start"]);
    assert_eq!(spans[0].stage, Stage::Submit(task.as_str().unwrap().parse().unwrap()));
    let caller = TraceParent { trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, span: 0x00f0_67aa_0ba9_02b7 };
    assert_eq!(spans[0].caller, Some(caller));
    assert_eq!((spans[1].stage, spans[1].failed), (Stage::Deliver(operation), Some(Code::CommandFailed.number())));
    assert_eq!(spans[1].stage.parent(), Some(spans[0].stage));
    assert!(spans.iter().all(|span| span.time.began <= span.time.ended));
    assert!(!format!("{spans:?}").contains("hunter2"), "what a command said stays out");
    world.end().await;
}

#[tokio::test]
async fn a_refused_call_and_a_garbled_header_leave_no_trace() {
    let recorder = Arc::new(Recorder::default());
    let options = StartOptions { traces: Traces::to(recorder.clone()), ..StartOptions::default() };
    let world = World::started(options).await;
    world.connect(AGENT).await;

    world.post(&format!("{ESB}/operate_proc/"), json!({"op_type": 0})).await;
    assert_eq!(recorder.0.lock().len(), 0);
    let mut request = post_request(&format!("{ESB}/operate_proc/"), body(0).to_string());
    request.headers_mut().insert("traceparent", HeaderValue::from_static("00-nonsense"));
    world.send(request).await.data();

    assert_eq!(recorder.0.lock().iter().map(|span| span.caller).collect::<Vec<_>>(), [None]);
    world.end().await;
}
