//! docs/errors.md matches the code, and the code uses everything in the message catalogue.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proctor_server::api::error::catalogue_markdown;
use serde::Serialize;
use serde_json::{Value, json};

#[test]
fn the_error_catalogue_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let expected = catalogue_markdown();
    if std::env::var_os("PROCTOR_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }

    let written = std::fs::read_to_string(&path).unwrap();

    assert!(written == expected, "docs/errors.md is out of date; run with PROCTOR_UPDATE_DOCS=1");
}

#[test]
fn every_message_of_the_catalogue_is_said_somewhere() {
    let mut said = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            if path.is_dir() && !path.ends_with("catalogue") && !path.ends_with("tests") {
                folders.push(path);
            } else if is_source && !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let name =
                    |rest: &str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
                said.extend(text.split("messages::").skip(1).filter_map(name));
            }
        }
    }

    let unsaid: Vec<&str> = proctor_model::entries().map(|entry| entry.id).filter(|id| !said.contains(*id)).collect();

    assert!(unsaid.is_empty(), "nothing says {unsaid:?}: take them out of the catalogue");
}

/// For programs that show messages, and the Chinese alone for the console.
#[test]
fn the_exported_messages_are_current() {
    let entry = |entry: &proctor_model::Entry| {
        let said = json!({"en": entry.english, "zh": entry.chinese, "args": entry.args});
        (entry.id, said)
    };
    let entries: BTreeMap<&str, Value> = proctor_model::entries().map(entry).collect();
    let chinese: BTreeMap<&str, &str> = proctor_model::entries().map(|entry| (entry.id, entry.chinese)).collect();

    check_file("docs/messages.json", &entries);
    check_file("web/src/messages/zh/sentences.json", &chinese);
}

fn check_file(name: &str, expected: &impl Serialize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    let expected = serde_json::to_string_pretty(expected).unwrap() + "\n";
    if std::env::var_os("PROCTOR_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == expected, "{name} is out of date; run with PROCTOR_UPDATE_DOCS=1");
}
