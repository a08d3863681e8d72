//! `meta`: which process, and its labels.

use proctor_model::{FieldError, Labels, Namespace, ProcessKey, messages};

use super::{Result, name};
use crate::api::fields::Fields;
use crate::api::json::Value;

#[derive(Debug)]
pub(super) struct Meta {
    pub(super) key: ProcessKey,
    /// None where the call says nothing about them.
    pub(super) labels: Option<Labels>,
}

pub(super) fn meta(value: &Value<'_>) -> Result<Meta> {
    let fields = Fields::of(value)?;
    let key = ProcessKey::new(name(fields, "namespace")?, name(fields, "name")?);
    Ok(Meta { key, labels: fields.optional("labels", labels)? })
}

/// For the calls that concern a whole namespace, where the name is optional and without effect.
pub(super) fn namespace(value: &Value<'_>) -> Result<Namespace> {
    name(Fields::of(value)?, "namespace")
}

/// Values are text in the documents, but clients send numbers too.
fn labels(value: &Value<'_>) -> Result<Labels> {
    let labels = value.as_object().ok_or_else(|| FieldError::new("", messages::must_be_an_object()))?;
    let label = |(name, value): (&str, &Value<'_>)| {
        let text = match value {
            Value::Text(text) => text.clone().into_owned(),
            Value::Number(number) => number.to_string(),
            Value::Bool(boolean) => boolean.to_string(),
            Value::Null => String::new(),
            Value::List(_) | Value::Object(_) => {
                return Err(FieldError::new(name, messages::must_be_a_scalar()));
            }
        };
        Ok((name.to_owned(), text))
    };
    labels.iter().map(label).collect()
}
