use std::collections::BTreeSet;

use super::*;

/// Braces that are meant as such.
const LITERAL: &str = "{instance}";

fn placeholders(template: &str) -> BTreeSet<&str> {
    let inner = template.split('{').skip(1).filter_map(|part| part.split_once('}'));
    inner.map(|(name, _)| name).collect()
}

#[test]
fn every_entry_uses_all_its_arguments_in_both_languages() {
    for entry in entries() {
        let names: BTreeSet<&str> = entry.args.iter().copied().collect();
        for template in [entry.english, entry.chinese] {
            assert_eq!(placeholders(&template.replace(LITERAL, "")), names, "{}: {template}", entry.id);
            assert!(!template.is_empty(), "{}", entry.id);
        }
    }
}

/// Agents of earlier versions send the text alone.
#[test]
fn an_eviction_is_known_by_its_reason() {
    let of_pool = messages::ended_over_pool_limit("memory", 9, 5, "web", messages::nobody_next());
    for reason in [messages::ended_over_limit("memory", 9, 5), of_pool] {
        assert!(reason.starts_with(crate::EVICTED_REASON), "{reason}");
        let mut snapshot = crate::Snapshot { phase: crate::Phase::Waiting, ..crate::Snapshot::default() };
        snapshot.set_reason(reason);
        assert!(snapshot.is_evicted(), "{snapshot:?}");
    }
}

#[test]
fn every_id_is_there_once() {
    let ids: Vec<&str> = entries().map(|entry| entry.id).collect();
    let distinct: BTreeSet<&str> = ids.iter().copied().collect();

    assert_eq!(ids.len(), distinct.len());
}

#[test]
fn a_message_is_told_in_both_languages() {
    let wrong = messages::in_field("hosts[1].ip", messages::must_be(messages::some_text(), messages::a_number()));

    assert_eq!(wrong, "hosts[1].ip: must be text, not a number");
    assert_eq!(wrong.chinese().as_deref(), Some("hosts[1].ip: 必须是文本，而不是数字"));
}

#[test]
fn a_message_with_a_part_that_has_no_chinese_has_none() {
    let partly = messages::in_field("host", Message::foreign("something new"));

    assert_eq!(partly, "host: something new");
    assert_eq!((partly.chinese(), partly.phrase()), (None, None));
}

#[test]
fn an_argument_is_not_looked_into() {
    let odd = messages::not_one_of("{known}", "{text}");

    assert_eq!(odd, "'{known}' is not one of {text}");
}

#[test]
fn a_phrase_survives_its_json_form() {
    let message = messages::in_field("a", messages::not_an_address("b"));
    let json = message.phrase().unwrap().to_json();

    assert_eq!(json, r#"{"id":"in_field","args":{"field":"a","problem":{"id":"not_an_address","args":{"text":"b"}}}}"#);
    assert_eq!(Phrase::from_json(&json, Sender::Server).as_ref(), message.phrase());
    assert_eq!(Phrase::from_json(&json, Sender::Server).unwrap().english(), message.as_str());
}

#[test]
fn a_phrase_that_the_catalogue_does_not_have_is_none() {
    let nested = |depth: usize| {
        let mut json = r#""x""#.to_owned();
        for _ in 0..depth {
            json = format!(r#"{{"id":"in_field","args":{{"field":"a","problem":{json}}}}}"#);
        }
        Phrase::from_json(&json, Sender::Server)
    };
    let cases = [
        r#"{"id":"of_a_newer_agent","args":{}}"#,
        r#"{"id":"not_an_address"}"#,
        r#"{"id":"not_an_address","args":{"txt":"b"}}"#,
        r#"{"id":"not_an_address","args":{"text":"b","more":"c"}}"#,
        r#"{"id":"not_an_address","args":{"text":7}}"#,
        r#"{"id":"in_field","args":{"field":"a","problem":{"id":"of_a_newer_agent","args":{}}}}"#,
        "",
        "[]",
        "{",
    ];
    for json in cases {
        assert_eq!(Phrase::from_json(json, Sender::Server), None, "{json}");
    }
    assert!(nested(16).is_some() && nested(17).is_none());
    let long = format!(r#"{{"id":"not_an_address","args":{{"text":"{}"}}}}"#, "x".repeat(PHRASE_BYTES_MAX));
    assert_eq!(Phrase::from_json(&long, Sender::Server), None);
}

#[test]
fn an_agent_cannot_speak_for_the_server() {
    let json = messages::shutting_down().phrase().unwrap().to_json();

    assert!(Phrase::from_json(&json, Sender::Server).is_some());
    assert_eq!(Phrase::from_json(&json, Sender::Agent), None);
    assert!(Phrase::from_json(r#"{"id":"start"}"#, Sender::Agent).is_some());
}

#[test]
fn what_is_too_long_is_cut_and_is_text_alone() {
    let long = messages::not_an_address("x".repeat(1000));

    let cut = long.clone().fitted(100, "…");

    assert!(cut.len() <= 100 && cut.ends_with('…') && cut.phrase().is_none());
    assert_eq!(long.clone().fitted(2000, "…"), long);
}
