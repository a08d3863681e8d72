//! A value that is written as text.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// `T` parsed from its text form. The error says what is wrong; the reader of the request knows the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<T>(pub T);

impl<T> From<T> for Text<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err = proctor_model::FieldError>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|error: proctor_model::FieldError| serde::de::Error::custom(error.problem))
    }
}

impl<T> PartialSchema for Text<T> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).build().into()
    }
}

impl<T> ToSchema for Text<T> {
    fn name() -> std::borrow::Cow<'static, str> {
        "Text".into()
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::ProcessKey;

    use super::*;

    #[test]
    fn what_does_not_parse_says_what_is_wrong_and_not_where() {
        let error = serde_json::from_str::<Text<ProcessKey>>("\"a:b/c\"").unwrap_err();

        assert!(error.to_string().starts_with("must not contain ':'"), "{error}");
    }

    #[test]
    fn a_text_survives() {
        let key = Text("web/a".parse::<ProcessKey>().unwrap());

        assert_eq!(serde_json::to_string(&key).unwrap(), "\"web/a\"");
    }
}
