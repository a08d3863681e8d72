//! The OpenAPI document: kept, served, and whole.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use proctor_server::api::native::openapi_json;
use serde_json::Value;

use crate::support::World;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

fn document() -> Value {
    serde_json::from_str(openapi_json()).unwrap()
}

/// Every operation, as `METHOD /path`.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &'_ Value)| {
        let path = path.clone();
        item.as_object().unwrap().clone().into_iter().map(move |(method, _)| (method, path.clone())).collect::<Vec<_>>()
    };
    let names: Vec<(String, String)> = paths.iter().flat_map(of_path).collect();
    names.into_iter().map(|(method, path)| (format!("{method} {path}"), &document["paths"][&path][&method])).collect()
}

#[test]
fn the_openapi_document_that_is_kept_is_that_of_the_code() {
    if std::env::var_os("PROCTOR_UPDATE_DOCS").is_some() {
        std::fs::write(KEPT, openapi_json()).unwrap();
    }

    let kept = std::fs::read_to_string(KEPT).unwrap();

    assert!(kept == openapi_json(), "docs/openapi.json is not what the code says: run `make docs`");
}

#[tokio::test]
async fn the_openapi_document_is_served_to_everybody() {
    let world = World::new().await;

    let request = Request::get("/api/v1/openapi.json").body(Body::empty()).unwrap();
    let (status, served) = world.send(request).await;

    assert_eq!(status, StatusCode::OK);
    assert_eq!(served, document());
    assert_eq!(served["openapi"], "3.1.0");
}

#[test]
fn every_openapi_operation_has_a_name_a_summary_and_its_errors() {
    let document = document();
    let mut names = BTreeSet::new();

    for (path, operation) in operations(&document) {
        let name = operation["operationId"].as_str().unwrap();
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{path} has no summary");
        for status in ["400", "401", "403", "429", "500", "503"] {
            assert!(operation["responses"].get(status).is_some(), "{path} does not list {status}");
        }
    }
    assert!(names.len() > 15, "{names:?}");
}

#[test]
fn every_openapi_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);

    assert!(found.len() > 20);
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
    }
}
