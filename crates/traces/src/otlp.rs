//! Exports spans to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! Promised: spans wait in a bounded queue for a thread that sends them in batches; if the queue is full, or the
//! collector does not answer in time, spans are dropped, and the log says so. At exit, queued spans are sent, for
//! [`FLUSH_MAX`] at most. Headers, timeouts and batch sizes come from the usual `OTEL_` variables. Absent: retries
//! across restarts, sampling (a collector does it better), metrics and logs.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor};

use crate::{Span, Stage, TraceError, TraceParent, TraceSink, Traces};

/// How long the exit of the program waits for a collector.
pub const FLUSH_MAX: Duration = Duration::from_secs(2);
/// The collector's path for spans, unless the address has one.
const PATH: &str = "/v1/traces";

/// Which program sends spans, and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub service: &'static str,
    pub version: &'static str,
    pub host: &'a str,
}

/// Sends spans from now on, until [`Collector`] is dropped.
pub fn start(address: &str, source: Source<'_>) -> Result<(Traces, Collector), TraceError> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint(address)?)
        .build();
    let exporter = exporter.map_err(|error| TraceError::Exporter(error.to_string()))?;
    let mut processor = BatchSpanProcessor::builder(exporter).build();
    let attributes =
        [("service.name", source.service), ("service.version", source.version), ("host.name", source.host)];
    let attributes = attributes.map(|(name, value)| KeyValue::new(name, value.to_owned()));
    processor.set_resource(&Resource::builder().with_attributes(attributes).build());
    let shared = Arc::new(Exporter { processor, scope: InstrumentationScope::builder("proctor").build() });
    Ok((Traces::to(shared.clone()), Collector(shared)))
}

/// Whether spans can be sent there, as far as the address tells.
pub fn check(address: &str) -> Result<(), TraceError> {
    endpoint(address).map(drop)
}

fn endpoint(address: &str) -> Result<String, TraceError> {
    let wrong = || TraceError::Address(address.to_owned());
    let (scheme, rest) = address.split_once("://").ok_or_else(wrong)?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_authority = !authority.is_empty() && !authority.contains(|c: char| c.is_whitespace() || c.is_control());
    if !matches!(scheme, "http" | "https") || !is_authority {
        return Err(wrong());
    }
    Ok(format!("{scheme}://{authority}{}", if path.trim_matches('/').is_empty() { PATH } else { path }))
}

/// Sends what is queued when it is dropped, at the end of the program.
#[derive(Debug)]
pub struct Collector(Arc<Exporter>);

impl Drop for Collector {
    fn drop(&mut self) {
        // The exporter's log has said what was not sent.
        let _ = self.0.processor.shutdown_with_timeout(FLUSH_MAX);
    }
}

#[derive(Debug)]
struct Exporter {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
}

impl TraceSink for Exporter {
    fn record(&self, span: Span) {
        self.processor.on_end(data(span, self.scope.clone()));
    }
}

fn data(span: Span, scope: InstrumentationScope) -> SpanData {
    let Span { stage, name, time, attributes, failed, caller } = span;
    let parent = stage.parent();
    let links = caller.map(|caller| Link::with_context(of_caller(caller))).into_iter().collect();
    SpanData {
        span_context: context(trace_of(stage), stage.span_id(), false),
        parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.span_id().to_be_bytes())),
        parent_span_is_remote: matches!(stage, Stage::Run(_)),
        span_kind: match stage {
            Stage::Submit(_) => SpanKind::Server,
            Stage::Deliver(_) => SpanKind::Producer,
            Stage::Run(_) => SpanKind::Consumer,
        },
        name: name.into(),
        start_time: time.began,
        end_time: time.ended,
        attributes: attributes.into_iter().map(|(name, value)| KeyValue::new(name, value)).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: with(links),
        status: failed.map_or(Status::Ok, |code| Status::error(format!("code {code}"))),
        instrumentation_scope: scope,
    }
}

fn with(links: Vec<Link>) -> SpanLinks {
    let mut all = SpanLinks::default();
    all.links = links;
    all
}

fn trace_of(stage: Stage) -> u128 {
    stage.task().as_uuid().as_u128()
}

fn of_caller(caller: TraceParent) -> SpanContext {
    context(caller.trace, caller.span, true)
}

fn context(trace: u128, span: u64, is_remote: bool) -> SpanContext {
    let (trace, span) = (TraceId::from_bytes(trace.to_be_bytes()), SpanId::from_bytes(span.to_be_bytes()));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, is_remote, TraceState::default())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
    use proctor_model::{OperationId, TaskId};
    use proctor_testkit::receive_request;
    use prost::Message;
    use uuid::Uuid;

    use super::*;
    use crate::Period;

    const SOURCE: Source<'_> = Source { service: "proctor-test", version: "1", host: "here" };

    fn span(stage: Stage, failed: Option<u32>) -> Span {
        let caller = Some(TraceParent { trace: 3, span: 4 });
        let attributes = vec![("proctor.host", "10.0.0.1".to_owned())];
        Span { stage, name: "run start".to_owned(), time: Period::since(Instant::now()), attributes, failed, caller }
    }

    #[test]
    fn a_collector_gets_the_spans_of_a_task_as_one_trace() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let collector = std::thread::spawn(move || receive_request(&listener).unwrap());
        let task = TaskId::from_uuid(Uuid::from_u128(0xabc));
        let operation = OperationId::first(task, 5);

        let (traces, exporter) = start(&address, SOURCE).unwrap();
        traces.record(|| span(Stage::Deliver(operation), None));
        traces.record(|| span(Stage::Run(operation), Some(836)));
        drop(exporter);

        let (line, body) = collector.join().unwrap();
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let group = &request.resource_spans[0];
        let spans = &group.scope_spans[0].spans;
        assert_eq!(line, "POST /v1/traces HTTP/1.1");
        assert_eq!(spans.len(), 2);
        assert!(spans.iter().all(|span| span.trace_id == 0xabc_u128.to_be_bytes()), "{spans:?}");
        assert_eq!(spans[1].parent_span_id, spans[0].span_id, "the work belongs to its delivery");
        assert_eq!(spans[0].parent_span_id, Stage::Submit(task).span_id().to_be_bytes());
        assert_eq!(spans[0].links[0].trace_id, 3_u128.to_be_bytes());
        let statuses: Vec<i32> = spans.iter().map(|span| span.status.as_ref().unwrap().code).collect();
        assert_eq!(statuses, [StatusCode::Ok as i32, StatusCode::Error as i32]);
        let resource = format!("{:?}", group.resource);
        assert!(resource.contains("proctor-test") && resource.contains("host.name"), "{resource}");
    }

    #[test]
    fn an_address_gets_the_usual_path_unless_it_names_one() {
        let endpoints =
            ["http://c:4318", "https://c:4318/", "http://c/otlp/v1/traces"].map(|text| endpoint(text).unwrap());
        assert_eq!(endpoints, ["http://c:4318/v1/traces", "https://c:4318/v1/traces", "http://c/otlp/v1/traces"]);
        for wrong in ["c:4318", "grpc://c:4317", "http://", "http:// c", ""] {
            assert!(check(wrong).unwrap_err().to_string().contains("http://HOST:4318"), "{wrong}");
        }
    }

    #[test]
    fn a_collector_that_is_away_holds_up_nobody() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (traces, exporter) = start(&format!("http://{closed}"), SOURCE).unwrap();
        let operation = OperationId::first(TaskId::from_uuid(Uuid::from_u128(1)), 0);

        for _ in 0..10_000 {
            traces.record(|| span(Stage::Run(operation), None));
        }
        drop(exporter);
    }
}
