//! Traces to an OpenTelemetry collector, of programs that are built with the feature `otel`.

use std::net::TcpListener;
use std::sync::mpsc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use proctor_model::TaskId;
use proctor_testkit::{Fleet, PATIENCE, Subject, receive_request};
use prost::Message;
use serde_json::json;

use crate::hosts;

const IP: &str = "127.0.0.1";

/// A collector: its address and the spans that it gets, each with the service that sent it.
fn collector() -> (String, mpsc::Receiver<(String, Span)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (spans, received) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((_, body)) = receive_request(&listener) {
            let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
            for group in request.resource_spans {
                let service = format!("{:?}", group.resource);
                let of_group = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
                if of_group.into_iter().any(|span| spans.send((service.clone(), span)).is_err()) {
                    return;
                }
            }
        }
    });
    (address, received)
}

#[tokio::test]
async fn a_trace_leads_from_the_call_to_the_work_on_the_host() {
    let (address, received) = collector();
    let fleet = Fleet::start_in(tempfile::tempdir().unwrap(), &["--otlp-endpoint", &address]).await.unwrap();
    let _agent = fleet.agent_with(IP, &["--otlp-endpoint", &address]).await.unwrap();
    let subject = Subject::new(fleet.dir(), "traced").unwrap();
    let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &register).await.unwrap();

    let start = json!({"meta": subject.meta(), "op_type": 0, "hosts": hosts(&[IP])});
    let answer = fleet.gse("operate_proc", &start).await.unwrap();
    let task: TaskId = answer["data"]["task_id"].as_str().unwrap().parse().unwrap();

    let (mut submit, mut deliver, mut run) = (None, None, None);
    while submit.is_none() || deliver.is_none() || run.is_none() {
        let (service, span) = received.recv_timeout(PATIENCE).expect("three spans");
        match span.name.as_str() {
            "submit start" => submit = Some((service, span)),
            "deliver start" => deliver = Some((service, span)),
            "run start" => run = Some((service, span)),
            other => panic!("unexpected: {other}"),
        }
    }
    let [submit, deliver, run] = [submit, deliver, run].map(Option::unwrap);
    for (_, span) in [&submit, &deliver, &run] {
        assert_eq!(span.trace_id, task.as_uuid().as_bytes(), "{}", span.name);
    }
    assert_eq!((&deliver.1.parent_span_id, &run.1.parent_span_id), (&submit.1.span_id, &deliver.1.span_id));
    let services = [&submit, &deliver, &run].map(|(service, _)| service.contains("proctor-agent"));
    assert_eq!(services, [false, false, true]);
}
