//! Frames that no honest peer of this version sends.

use crate::strategies;
use bytes::{BufMut, BytesMut};
use proctor_wire::proto::{self, from_agent, from_server};
use proctor_wire::{
    AgentCodec, FRAME_BYTES_MAX, FRAME_BYTES_MAX_ENROL, FromAgent, FromServer, ITEMS_MAX, ServerCodec, WireError,
};
use proptest::prelude::*;
use prost::Message;
use tokio_util::codec::{Decoder, Encoder};

fn framed(payload: &[u8]) -> BytesMut {
    let mut wire = BytesMut::new();
    wire.put_u32(u32::try_from(payload.len()).expect("a test frame is small"));
    wire.put_slice(payload);
    wire
}

fn server_hears(kind: from_agent::Kind) -> Result<Option<FromAgent>, WireError> {
    ServerCodec::new().decode(&mut framed(&proto::FromAgent { kind: Some(kind) }.encode_to_vec()))
}

fn agent_hears(kind: from_server::Kind) -> Result<Option<FromServer>, WireError> {
    AgentCodec::new().decode(&mut framed(&proto::FromServer { kind: Some(kind) }.encode_to_vec()))
}

/// Why an operation cannot be parsed.
fn reason_of(heard: Result<Option<FromServer>, WireError>) -> String {
    let Ok(Some(FromServer::Unreadable { reason, .. })) = heard else { panic!("heard {heard:?}") };
    reason
}

fn operate() -> proto::Operate {
    proto::Operate {
        operation: Some(proto::OperationId {
            task: "GSETASK:00000000000000000000000000000007".to_owned(),
            index: 0,
            attempt: 0,
        }),
        key: Some(proto::ProcessKey { namespace: "gse".to_owned(), name: "proc".to_owned() }),
        kind: proto::OperationKind::Stop.into(),
        spec_json: None,
        expires_in_ms: 5,
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = ServerCodec::new().decode(&mut BytesMut::from(bytes.as_slice()));
        let _ = AgentCodec::new().decode(&mut BytesMut::from(bytes.as_slice()));
        let _ = ServerCodec::new().decode(&mut framed(&bytes));
        let _ = AgentCodec::new().decode(&mut framed(&bytes));
    }

    #[test]
    fn one_changed_byte_never_panics(message in strategies::from_agent(), at in any::<usize>(), value: u8) {
        let mut wire = BytesMut::new();
        AgentCodec::new().encode(message, &mut wire).unwrap();
        let at = at % wire.len();
        wire[at] = value;

        let _ = ServerCodec::new().decode_eof(&mut wire);
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_is_an_error(message in strategies::from_agent(), cut in any::<usize>()) {
        let mut wire = BytesMut::new();
        AgentCodec::new().encode(message, &mut wire).unwrap();
        wire.truncate(cut % (wire.len() - 1) + 1);
        let mut codec = ServerCodec::new();

        prop_assert!(codec.decode(&mut wire).unwrap().is_none());
        let end = codec.decode_eof(&mut wire);

        prop_assert!(matches!(end, Err(WireError::Truncated)), "{:?}", end);
    }
}

#[test]
fn a_message_kind_of_a_newer_version_is_unknown_and_the_next_one_is_heard() {
    // Field 500, length-delimited, holding field 1 = 7.
    let mut wire = framed(&[0xa2, 0x1f, 0x02, 0x08, 0x07]);
    AgentCodec::new().encode(FromAgent::Beat, &mut wire).unwrap();
    let mut codec = ServerCodec::new();

    assert_eq!(codec.decode(&mut wire).unwrap(), Some(FromAgent::Unknown));
    assert_eq!(codec.decode(&mut wire).unwrap(), Some(FromAgent::Beat));
    assert_eq!(
        AgentCodec::new().decode(&mut framed(&[0xa2, 0x1f, 0x02, 0x08, 0x07])).unwrap(),
        Some(FromServer::Unknown)
    );
}

#[test]
fn a_length_over_the_limit_is_refused_before_its_bytes_come() {
    let mut wire = BytesMut::new();
    wire.put_u32(u32::try_from(FRAME_BYTES_MAX).unwrap() + 1);

    let heard = ServerCodec::new().decode(&mut wire.clone());
    let enrolment = ServerCodec::enrolment().decode(&mut framed(&vec![0; FRAME_BYTES_MAX_ENROL + 1]));

    assert!(matches!(heard, Err(WireError::FrameTooLarge { bytes_max: FRAME_BYTES_MAX })), "{heard:?}");
    assert!(matches!(enrolment, Err(WireError::FrameTooLarge { bytes_max: FRAME_BYTES_MAX_ENROL })), "{enrolment:?}");
}

#[test]
fn a_message_over_the_limit_is_not_sent_and_leaves_the_stream_alone() {
    let mut wire = BytesMut::new();
    let reason = "x".repeat(FRAME_BYTES_MAX);

    let sent = ServerCodec::new().encode(FromServer::Refused { reason, retry: false }, &mut wire);

    assert!(matches!(sent, Err(WireError::FrameTooLarge { bytes_max: FRAME_BYTES_MAX })), "{sent:?}");
    assert!(wire.is_empty());
}

#[test]
fn a_small_frame_of_very_many_items_is_refused() {
    let observations = vec![proto::Observation::default(); ITEMS_MAX + 1];

    let heard = server_hears(from_agent::Kind::Observed(proto::Observed { observations }));

    assert!(matches!(heard, Err(WireError::TooManyItems { items_max: ITEMS_MAX })), "{heard:?}");
}

#[test]
fn the_most_items_that_may_be_sent_are_heard() {
    let operation = "GSETASK:00000000000000000000000000000007/1/0".parse().unwrap();
    let message = FromServer::Acknowledge { operations: vec![operation; ITEMS_MAX] };
    let mut wire = BytesMut::new();
    ServerCodec::new().encode(&message, &mut wire).unwrap();

    let heard = AgentCodec::new().decode(&mut wire).unwrap();

    assert_eq!(heard, Some(message));
}

#[test]
fn an_operation_that_is_not_understood_is_handed_on_with_the_reason() {
    let unreadable = |change: fn(&mut proto::Operate)| {
        let mut operate = operate();
        change(&mut operate);
        reason_of(agent_hears(from_server::Kind::Operate(operate)))
    };

    assert_eq!(unreadable(|operate| operate.kind = 99), "operation kind has the unknown value 99");
    assert_eq!(unreadable(|operate| operate.kind = 0), "operation kind has the unknown value 0");
    assert_eq!(unreadable(|operate| operate.key = None), "process key is missing");
    assert!(unreadable(|operate| operate.spec_json = Some("{}".to_owned())).starts_with("cannot read a spec: "));
    let nameless = agent_hears(from_server::Kind::Operate(proto::Operate { operation: None, ..operate() }));
    assert_eq!(nameless.unwrap_err().to_string(), "operation is missing");
}

#[test]
fn what_is_not_understood_of_a_list_costs_its_own_item() {
    let observation = |name: &str, phase: i32| proto::Observation {
        key: Some(proto::ProcessKey { namespace: "ns".to_owned(), name: name.to_owned() }),
        snapshot: Some(proto::Snapshot { phase, usage: Some(proto::Usage::default()), ..Default::default() }),
    };
    let observations = vec![observation("a", 99), observation("", 1), observation("b", 1)];
    let event = |sequence: u64, kind: i32| proto::Event { sequence, kind, ..Default::default() };
    let events = vec![event(1, 99), event(2, proto::EventKind::Exited.into())];
    let outcome = proto::Outcome { code: 99, message: "odd".to_owned(), ..Default::default() };
    let operation = operate().operation;

    let observed = server_hears(from_agent::Kind::Observed(proto::Observed { observations })).unwrap().unwrap();
    let told = server_hears(from_agent::Kind::Events(proto::Events { events })).unwrap().unwrap();
    let outcome = proto::OperationOutcome { operation, outcome: Some(outcome) };
    let ended = server_hears(from_agent::Kind::Outcome(outcome)).unwrap().unwrap();

    let FromAgent::Observed { observations } = observed else { panic!("{observed:?}") };
    let names: Vec<&str> = observations.iter().map(|(key, _)| key.name.as_str()).collect();
    assert_eq!((names, observations[0].1.phase), (vec!["a", "b"], proctor_model::Phase::Unknown));
    let FromAgent::Events { events } = told else { panic!("{told:?}") };
    let kinds: Vec<_> = events.iter().map(|event| (event.sequence, event.kind)).collect();
    assert_eq!(kinds, [(1, proctor_model::EventKind::EventsDropped), (2, proctor_model::EventKind::Exited)]);
    assert!(events[0].content.contains("event kind has the unknown value 99"), "{}", events[0].content);
    let FromAgent::Outcome { outcome, .. } = ended else { panic!("{ended:?}") };
    assert_eq!(outcome.code, proctor_model::Code::CommandFailed);
    assert_eq!(outcome.message, "code has the unknown value 99: odd");
}

#[test]
fn an_upgrade_with_unknown_values_and_fields_of_a_newer_version_costs_nothing_but_itself() {
    use proctor_wire::{UpgradeOrder, proto::from_server};
    let id = uuid::Uuid::from_u128(7);
    let order = |id: Vec<u8>, sha256: Vec<u8>| {
        from_server::Kind::Upgrade(proto::Upgrade {
            upgrade: id,
            version: "1.2.3".into(),
            arch: "x86_64".into(),
            sha256,
            size: 5,
            allow_downgrade: false,
            health_deadline_ms: 60_000,
        })
    };
    let heard = |kind: from_server::Kind| {
        // A field that no version has yet, behind those that this one has.
        let mut bytes = proto::FromServer { kind: Some(kind) }.encode_to_vec();
        bytes.extend([0xf8, 0xff, 0x01, 0x07]);
        AgentCodec::new().decode(&mut framed(&bytes)).unwrap().unwrap()
    };
    let report = |upgrade: Vec<u8>, step| {
        let report = proto::UpgradeReport { upgrade, step, reason: "odd".into(), phrase_json: Some("{".into()) };
        server_hears(from_agent::Kind::UpgradeReport(report)).unwrap().unwrap()
    };

    let FromServer::Upgrade(UpgradeOrder { upgrade, sha256, .. }) = heard(order(id.as_bytes().to_vec(), vec![1; 32]))
    else {
        panic!("it is understood")
    };
    assert_eq!((upgrade, sha256), (id, [1; 32]));
    assert_eq!(heard(order(id.as_bytes().to_vec(), vec![1; 31])), FromServer::Unknown);
    assert_eq!(heard(order(vec![1], vec![1; 32])), FromServer::Unknown);
    let FromAgent::UpgradeReport { reason, .. } = report(id.as_bytes().to_vec(), 3) else { panic!("understood") };
    assert_eq!(reason, "odd");
    assert_eq!(report(id.as_bytes().to_vec(), 99), FromAgent::Unknown);
    assert_eq!(report(Vec::new(), 3), FromAgent::Unknown);
}

#[test]
fn the_largest_outcome_and_observations_fit_into_a_frame() {
    let text = || "\u{1F980}".repeat(1_000_000);
    let mut snapshot =
        proctor_model::Snapshot { reason: text(), health: text(), version: text(), ..Default::default() };
    snapshot.usage.command_line = text();
    let mut outcome =
        proctor_model::Outcome::new(proctor_model::Code::CommandFailed, proctor_model::Message::foreign(text()), false);
    (outcome.output, outcome.instances) = (text(), vec![snapshot.clone(); 256]);
    let operation = proctor_model::OperationId::first(proctor_model::TaskId::from_uuid(uuid::Uuid::nil()), 0);
    let key: proctor_model::ProcessKey = "ns/p".parse().unwrap();
    let observations = vec![(key, snapshot); 500];

    for message in [FromAgent::Outcome { operation, outcome }, FromAgent::Observed { observations }] {
        let mut bytes = BytesMut::new();
        AgentCodec::new().encode(message, &mut bytes).unwrap();
        assert!(ServerCodec::new().decode(&mut bytes).unwrap().is_some());
    }
}

#[test]
fn texts_of_snapshots_and_outcomes_that_an_agent_did_not_cut_are_cut_by_the_server() {
    let text = || "x".repeat(1_200_000);
    let usage = Some(proto::Usage { state: text(), command_line: text(), ..Default::default() });
    let snapshot = proto::Snapshot { usage, version: text(), health: text(), reason: text(), ..Default::default() };
    let small = proto::Snapshot { usage: Some(proto::Usage::default()), ..Default::default() };
    let observation = proto::Observation { key: operate().key, snapshot: Some(snapshot) };
    let (message, output, instances) = (text(), text(), vec![small; 5000]);
    let outcome =
        proto::Outcome { code: 1, message, output, managed: false, snapshot: None, instances, phrase_json: None };
    let ended = proto::OperationOutcome { operation: operate().operation, outcome: Some(outcome) };

    let observed =
        server_hears(from_agent::Kind::Observed(proto::Observed { observations: vec![observation] })).unwrap();
    let ended = server_hears(from_agent::Kind::Outcome(ended)).unwrap();

    let Some(FromAgent::Observed { observations }) = observed else { panic!("heard something else") };
    let snapshot = &observations[0].1;
    assert!(*snapshot == snapshot.clone().fitted(), "a snapshot of {} bytes", snapshot.version.len());
    let Some(FromAgent::Outcome { outcome, .. }) = ended else { panic!("heard something else") };
    let lengths = (outcome.message.len(), outcome.output.len(), outcome.instances.len());
    assert!(outcome == outcome.clone().fitted(), "an outcome of {lengths:?}");
}

#[test]
fn a_phrase_is_told_in_the_words_of_the_server_and_only_if_agents_may_use_it() {
    let heard = |text: &str, phrase: &str| {
        let (message, phrase_json) = (text.to_owned(), Some(phrase.to_owned()));
        let outcome = proto::Outcome { code: 1, message, phrase_json, ..Default::default() };
        let ended = proto::OperationOutcome { operation: operate().operation, outcome: Some(outcome) };
        let Some(FromAgent::Outcome { outcome, .. }) = server_hears(from_agent::Kind::Outcome(ended)).unwrap() else {
            panic!("heard something else")
        };
        outcome.message
    };

    let known = heard("other words", r#"{"id":"process_runs_already","args":{"pid":"7"}}"#);
    let newer = heard("of a newer agent", r#"{"id":"not_yet_known","args":{}}"#);
    let servers = heard("as a server", r#"{"id":"shutting_down","args":{}}"#);
    let long = heard("long", &format!(r#"{{"id":"no_pid_file","args":{{"path":"{}"}}}}"#, "x".repeat(100_000)));

    assert_eq!((known.as_str(), known.chinese().as_deref()), ("process 7 is already running", Some("进程 7 已在运行")));
    for (message, text) in [(newer, "of a newer agent"), (servers, "as a server"), (long, "long")] {
        assert_eq!((message.as_str(), message.phrase()), (text, None));
    }
}

#[test]
fn texts_go_through_the_parsers_of_the_model() {
    let key = proto::ProcessKey { namespace: "a:b".to_owned(), name: "proc".to_owned() };

    let name = agent_hears(from_server::Kind::Operate(proto::Operate { key: Some(key), ..operate() }));
    let spec = Some(r#"{"identity":{"setup_path":"not absolute"}}"#.to_owned());
    let spec = agent_hears(from_server::Kind::Operate(proto::Operate { spec_json: spec, ..operate() }));

    assert!(reason_of(name).starts_with("cannot accept namespace: "));
    assert!(reason_of(spec).starts_with("cannot read a spec: "));
}

#[test]
fn a_spec_that_is_too_large_or_has_very_many_labels_is_refused_before_it_is_built() {
    let labels: String = (0..100_000).map(|number| format!(r#""{number}":"","#)).collect();
    let labelled = format!(r#"{{"labels":{{{}}}}}"#, labels.trim_end_matches(','));
    let long = format!(r#"{{"labels":{{}},"more":"{}"}}"#, "x".repeat(2 * 1024 * 1024));

    let labelled = agent_hears(from_server::Kind::Operate(proto::Operate { spec_json: Some(labelled), ..operate() }));
    let long = agent_hears(from_server::Kind::Operate(proto::Operate { spec_json: Some(long), ..operate() }));

    assert_eq!(reason_of(labelled), "a frame has more than 64 items");
    assert!(reason_of(long).starts_with("spec is longer than "));
}

#[test]
fn facts_that_are_too_long_and_addresses_of_a_wrong_size_are_refused() {
    let facts = proto::HostFacts { hostname: "h".repeat(2000), ..Default::default() };
    let hello = proto::Hello { agent: "a1".to_owned(), facts: Some(facts), ..Default::default() };
    let host = proto::HostKey { cloud: 0, supplier: 0, ip: vec![10, 0, 0] };
    let enrol = proto::Enrol { host: Some(host), ..Default::default() };

    let long = server_hears(from_agent::Kind::Hello(hello)).unwrap_err();
    let address = server_hears(from_agent::Kind::Enrol(enrol)).unwrap_err();

    assert_eq!(long.to_string(), "hostname is longer than 1024 bytes");
    assert_eq!(address.to_string(), "host address has 3 bytes, an IP address has 4 or 16");
}

#[test]
fn state_hashes_of_another_length_are_no_state_and_the_hello_counts_without_them() {
    let hello = |assigned: Option<usize>, observed: Option<usize>| {
        let hash = |bytes: Option<usize>| bytes.map(|bytes| vec![7; bytes]);
        let hello = proto::Hello {
            agent: "a1".to_owned(),
            boot: "boot".to_owned(),
            facts: Some(proto::HostFacts::default()),
            assigned_hash: hash(assigned),
            observed_hash: hash(observed),
            ..Default::default()
        };
        match server_hears(from_agent::Kind::Hello(hello)).unwrap() {
            Some(FromAgent::Hello { state, .. }) => state,
            other => panic!("{other:?}"),
        }
    };

    assert!(hello(Some(16), Some(16)).is_some_and(|state| state.assigned.as_bytes() == [7; 16]));
    for (assigned, observed) in
        [(None, None), (Some(16), None), (None, Some(16)), (Some(32), Some(16)), (Some(16), Some(0))]
    {
        assert_eq!(hello(assigned, observed), None);
    }
}

#[test]
fn a_number_that_is_not_finite_leaves_as_zero_and_is_refused_from_others() {
    let key: proctor_model::ProcessKey = "gse/proc".parse().unwrap();
    let mut snapshot = proctor_model::Snapshot::default();
    snapshot.usage.cpu_percent = f64::NAN;
    let mut wire = BytesMut::new();
    AgentCodec::new().encode(FromAgent::Observed { observations: vec![(key, snapshot)] }, &mut wire).unwrap();
    let mut forged = proto::Snapshot { phase: 1, usage: Some(proto::Usage::default()), ..Default::default() };
    forged.usage.as_mut().unwrap().cpu_percent = f64::INFINITY;
    let observation = proto::Observation { key: operate().key, snapshot: Some(forged) };

    let ours = ServerCodec::new().decode(&mut wire).unwrap();
    let theirs = server_hears(from_agent::Kind::Observed(proto::Observed { observations: vec![observation] }));

    let Some(FromAgent::Observed { observations }) = ours else { panic!("heard {ours:?}") };
    assert_eq!(observations[0].1.usage.cpu_percent, 0.0);
    assert_eq!(theirs.unwrap(), Some(FromAgent::Observed { observations: Vec::new() }));
}

/// Why an event is passed on as a dropped one.
fn dropped(event: proto::Event) -> String {
    let heard = server_hears(from_agent::Kind::Events(proto::Events { events: vec![event] }));
    let Ok(Some(FromAgent::Events { mut events })) = heard else { panic!("heard {heard:?}") };
    let event = events.remove(0);
    assert_eq!(event.kind, proctor_model::EventKind::EventsDropped);
    event.content.into_text()
}

#[test]
fn events_that_are_too_long_have_too_many_details_or_an_unknown_kind_are_carried_as_dropped() {
    let event = || proto::Event { kind: proto::EventKind::Exited.into(), sequence: 7, ..Default::default() };
    let details: std::collections::BTreeMap<_, _> = (0..33).map(|number| (number.to_string(), "x")).collect();

    let long = dropped(proto::Event { content: "x".repeat(4097), ..event() });
    let many = dropped(proto::Event { details_json: serde_json::to_string(&details).unwrap(), ..event() });
    let broken = dropped(proto::Event { details_json: "{\"a\":1}".to_owned(), ..event() });
    let strange = dropped(proto::Event { kind: 99, ..event() });

    assert_eq!(long, "event 7 of the agent cannot be read: content of an event is longer than 4096 bytes");
    assert!(many.ends_with("a frame has more than 32 items"), "{many}");
    assert!(broken.contains("cannot read the details of an event: "), "{broken}");
    assert!(strange.ends_with("event kind has the unknown value 99"), "{strange}");
}

#[test]
fn the_longest_event_that_is_heard_is_said_on_unchanged() {
    let padding = 16 * 1024 - r#"{"a":"","b":""}"#.len();
    let longest = proto::Event {
        kind: proto::EventKind::Exited.into(),
        proc_name: "p".repeat(1024),
        content: "c".repeat(4096),
        details_json: format!(r#"{{"a":"","b":"{}"}}"#, "x".repeat(padding)),
        ..Default::default()
    };

    let heard = server_hears(from_agent::Kind::Events(proto::Events { events: vec![longest] })).unwrap().unwrap();
    let mut wire = BytesMut::new();
    AgentCodec::new().encode(&heard, &mut wire).unwrap();

    assert_eq!(ServerCodec::new().decode(&mut wire).unwrap(), Some(heard));
}

#[test]
fn an_event_that_is_too_long_leaves_fitted_and_is_heard() {
    let event = proctor_model::Event {
        sequence: 1,
        at: 2,
        process: None,
        proc_name: String::new(),
        report_id: None,
        kind: proctor_model::EventKind::PoolLimitExceeded,
        content: proctor_model::Message::foreign("进".repeat(5000)),
        details: [("ranking".to_owned(), "\u{1}".repeat(100_000)), ("pid".to_owned(), "7".to_owned())].into(),
    };
    let mut wire = BytesMut::new();
    AgentCodec::new().encode(FromAgent::Events { events: vec![event.clone()] }, &mut wire).unwrap();

    let heard = ServerCodec::new().decode(&mut wire).unwrap();

    assert_eq!(heard, Some(FromAgent::Events { events: vec![event.fitted()] }));
}

#[test]
fn debug_shows_no_token_secret() {
    let enrol = FromAgent::Enrol {
        token_id: "t1".to_owned(),
        token_secret: "hunter2".to_owned(),
        csr_der: Vec::new(),
        agent: None,
        host: "10.0.0.1".parse().unwrap(),
    };
    let raw = proto::FromAgent {
        kind: Some(from_agent::Kind::Enrol(proto::Enrol { token_secret: "hunter2".to_owned(), ..Default::default() })),
    };

    assert!(!format!("{enrol:?} {raw:?}").contains("hunter2"));
}

#[test]
fn what_is_left_out_of_messages_is_counted_until_somebody_looks() {
    let mut codec = ServerCodec::new();
    let skipped = codec.skipped();
    let bad = || proto::Observation { key: None, snapshot: None };
    let mut hear = |count: usize| {
        let observed = proto::Observed { observations: (0..count).map(|_| bad()).collect() };
        let message = proto::FromAgent { kind: Some(from_agent::Kind::Observed(observed)) };
        codec.decode(&mut framed(&message.encode_to_vec())).unwrap().unwrap()
    };

    let first = hear(3);
    hear(2);
    let told = skipped.take().unwrap();

    assert_eq!(first, FromAgent::Observed { observations: Vec::new() });
    assert_eq!((told.what, told.count), ("observation", 5));
    assert!(told.first.contains("process key"), "{}", told.first);
    hear(0);
    assert_eq!(skipped.take(), None);
}

#[test]
fn the_reason_of_a_refusal_is_cut_to_what_a_log_can_take() {
    let reason = "é".repeat(1_000_000);

    let heard = agent_hears(from_server::Kind::Refused(proto::Refused { reason, retry: false }));

    let Ok(Some(FromServer::Refused { reason, .. })) = heard else { panic!("heard {heard:?}") };
    assert_eq!(reason, "é".repeat(512));
}
