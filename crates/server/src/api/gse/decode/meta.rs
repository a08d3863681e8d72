//! `meta`: which process, and its labels.

use proctor_model::{FieldError, Labels, Namespace, ProcessKey};
use serde_json::Value;

use super::{Result, name};
use crate::api::fields::Fields;

#[derive(Debug)]
pub(super) struct Meta {
    pub(super) key: ProcessKey,
    pub(super) labels: Labels,
}

pub(super) fn meta(value: &Value) -> Result<Meta> {
    let fields = Fields::of(value)?;
    let key = ProcessKey::new(name(fields, "namespace")?, name(fields, "name")?);
    Ok(Meta { key, labels: fields.optional("labels", labels)?.unwrap_or_default() })
}

/// For the calls that concern a whole namespace, where the name is optional and without effect.
pub(super) fn namespace(value: &Value) -> Result<Namespace> {
    name(Fields::of(value)?, "namespace")
}

/// Values are text in the documents, but clients send numbers too.
fn labels(value: &Value) -> Result<Labels> {
    let labels = value.as_object().ok_or_else(|| FieldError::new("", "must be an object"))?;
    let label = |(name, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(boolean) => boolean.to_string(),
            Value::Null => String::new(),
            Value::Array(_) | Value::Object(_) => {
                return Err(FieldError::new(name, "must be text, a number or a boolean"));
            }
        };
        Ok((name.clone(), text))
    };
    labels.iter().map(label).collect()
}
