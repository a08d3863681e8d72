//! The JSON of a request, parsed without copying.
//!
//! Promised: a string without escapes borrows from the body; an object is a list of its fields, so that a hundred
//! thousand targets cost one allocation each. Of two fields with the same name the last one counts.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    Object(Object<'a>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

impl<'a> Value<'a> {
    pub(super) fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    pub(super) fn as_object(&self) -> Option<&Object<'a>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }
}

impl<'a> Object<'a> {
    /// Objects of requests are small: looking through one is quicker than any order.
    pub(super) fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.iter().rev().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value<'a>)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    #[must_use]
    pub(super) fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|(name, _)| !names.contains(&name.as_ref()));
        self
    }
}

impl<'a> IntoIterator for Object<'a> {
    type Item = (Cow<'a, str>, Value<'a>);
    type IntoIter = std::vec::IntoIter<Self::Item>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> FromIterator<(Cow<'a, str>, Value<'a>)> for Object<'a> {
    fn from_iter<I: IntoIterator<Item = (Cow<'a, str>, Value<'a>)>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfAnyKind)
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfObject)
    }
}

struct OfAnyKind;

impl<'de> Visitor<'de> for OfAnyKind {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value<'de>, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value<'de>, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value<'de>, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Value<'de>, A::Error> {
        OfObject.visit_map(fields).map(Value::Object)
    }
}

struct OfObject;

impl<'de> Visitor<'de> for OfObject {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Object<'de>, A::Error> {
        let mut object = Object::default();
        while let Some((Name(name), value)) = fields.next_entry()? {
            object.0.push((name, value));
        }
        Ok(object)
    }
}

struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(OfName)
    }
}

struct OfName;

impl<'de> Visitor<'de> for OfName {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

/// The same, of what was read by somebody else.
impl<'a> From<&'a serde_json::Value> for Value<'a> {
    fn from(value: &'a serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::Number(number) => Self::Number(number.clone()),
            serde_json::Value::String(text) => Self::Text(text.into()),
            serde_json::Value::Array(list) => Self::List(list.iter().map(Self::from).collect()),
            serde_json::Value::Object(object) => {
                Self::Object(object.iter().map(|(name, value)| (name.into(), Self::from(value))).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_serde_json_reads() {
        let text = r#"{"a": [null, true, 1, -2, 2.5, 18446744073709551615, "plain", "esc\n\u00e9"], "b\t": {"c": {}}}"#;
        let usual: serde_json::Value = serde_json::from_str(text).unwrap();

        let read: Value<'_> = serde_json::from_str(text).unwrap();

        assert_eq!(read, Value::from(&usual));
    }

    #[test]
    fn of_two_fields_with_one_name_the_last_counts_and_without_takes_both_away() {
        let object: Object<'_> = serde_json::from_str(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap();

        assert_eq!(object.get("a"), Some(&Value::Number(3.into())));
        assert_eq!(object.clone().without(&["a"]).iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
        assert!(serde_json::from_str::<Object<'_>>("[]").is_err());
    }

    #[test]
    fn a_body_that_is_nested_without_end_is_refused() {
        assert!(serde_json::from_str::<Value<'_>>(&"[".repeat(100_000)).is_err());
    }
}
