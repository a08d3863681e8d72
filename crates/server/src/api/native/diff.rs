//! What differs between two specs.

use proctor_api::Change;
use proctor_model::Spec;
use serde_json::Value;

/// Every value that differs, in the order of paths; a spec that is not there differs in everything
/// that the other one has.
pub(super) fn diff(from: Option<&Spec>, to: Option<&Spec>) -> Vec<Change> {
    let json = |spec: Option<&Spec>| spec.map_or(Value::Null, |spec| serde_json::to_value(spec).expect("as to_json"));
    changes(&json(from), &json(to))
}

/// Every value that differs, in the order of paths; null stands for what is not there.
pub(super) fn changes(from: &Value, to: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(String::new(), from, to, &mut changes);
    changes
}

fn compare(path: String, from: &Value, to: &Value, changes: &mut Vec<Change>) {
    if from == to {
        return;
    }
    match (parts(from), parts(to)) {
        (Some(from), Some(to)) if is_object(&from) == is_object(&to) => both(&path, &from, &to, changes),
        (Some(from), None) if *to == Value::Null && !from.is_empty() => both(&path, &from, &[], changes),
        (None, Some(to)) if *from == Value::Null && !to.is_empty() => both(&path, &[], &to, changes),
        (_, _) => changes.push(Change { path, from: from.clone(), to: to.clone() }),
    }
}

/// A step of a path, and what is there.
type Part<'a> = (String, &'a Value);

fn parts(value: &Value) -> Option<Vec<Part<'_>>> {
    match value {
        Value::Object(fields) => Some(fields.iter().map(|(name, value)| (name.clone(), value)).collect()),
        Value::Array(items) => Some(items.iter().enumerate().map(|(i, item)| (format!("[{i}]"), item)).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn is_object(parts: &[Part<'_>]) -> bool {
    !parts.iter().any(|(step, _)| step.starts_with('['))
}

fn both(path: &str, from: &[Part<'_>], to: &[Part<'_>], changes: &mut Vec<Change>) {
    let find = |parts: &[Part<'_>], step: &str| {
        parts.iter().find(|(name, _)| name == step).map_or(Value::Null, |(_, value)| (*value).clone())
    };
    let only_in_to = to.iter().filter(|(step, _)| !from.iter().any(|(other, _)| other == step));
    for (step, _) in from.iter().chain(only_in_to) {
        let joined = match (path, step.starts_with('[')) {
            ("", _) => step.clone(),
            (_, true) => format!("{path}{step}"),
            (_, false) => format!("{path}.{step}"),
        };
        compare(joined, &find(from, step), &find(to, step), changes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changes(from: Value, to: Value) -> Vec<String> {
        let mut changes = Vec::new();
        compare(String::new(), &from, &to, &mut changes);
        changes.into_iter().map(|change| format!("{}: {} > {}", change.path, change.from, change.to)).collect()
    }

    #[test]
    fn only_what_differs_is_listed_with_its_path() {
        let from = json!({ "a": { "b": 1, "same": true }, "list": [{ "md5": "x" }], "gone": "g" });
        let to = json!({ "a": { "b": 2, "same": true }, "list": [{ "md5": "y" }, { "md5": "z" }], "new": null });

        assert_eq!(
            changes(from, to),
            ["a.b: 1 > 2", "gone: \"g\" > null", "list[0].md5: \"x\" > \"y\"", "list[1].md5: null > \"z\""]
        );
    }

    #[test]
    fn against_nothing_every_value_differs() {
        assert_eq!(changes(Value::Null, json!({ "a": { "b": 1 }, "c": [] })), ["a.b: null > 1", "c: null > []"]);
        assert!(changes(json!({ "a": 1 }), json!({ "a": 1 })).is_empty());
    }
}
