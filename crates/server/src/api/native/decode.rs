//! JSON and query strings into values, with structured errors.
//!
//! serde_json and serde_urlencoded distinguish a missing field from a wrong value only in the text of their messages.
//! Here the body is read into [`Value`] first, and serde reads from that with our own error type.

use std::borrow::Cow;
use std::fmt::Display;

use proctor_model::{FieldError, Message, messages};
use serde::de::value::{CowStrDeserializer, MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::api::json::Value;

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("missing field {0}")]
    Missing(&'static str),
    #[error("unknown field {field}")]
    Unknown { field: String, known: &'static [&'static str] },
    #[error("duplicate field {0}")]
    Duplicate(&'static str),
    #[error("{0}")]
    Unfit(Message),
    /// What the type of a field says of its value.
    #[error("{0}")]
    Refused(Message),
}

impl de::Error for DecodeError {
    fn custom<T: Display>(message: T) -> Self {
        Self::Refused(FieldError::message_of(&message))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::Unfit(messages::not_one_of(variant, known.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::Unknown { field: field.to_owned(), known }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::Duplicate(field)
    }
}

type Result<T> = std::result::Result<T, DecodeError>;

/// A JSON value to be read from.
pub(super) struct Json<'de>(pub(super) Value<'de>);

impl<'de> IntoDeserializer<'de, DecodeError> for Json<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Json<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(flag),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(de::Error::custom("is not a number that can be read")),
            },
            Value::Text(text) => visit_text(text, visitor),
            Value::List(list) => {
                let mut items = SeqDeserializer::new(list.into_iter().map(Self));
                let read = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(read)
            }
            Value::Object(object) => {
                let mut fields = MapDeserializer::new(object.into_iter().map(|(name, value)| (name, Self(value))));
                let read = visitor.visit_map(&mut fields)?;
                fields.end()?;
                Ok(read)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.0 == Value::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.0 {
            Value::Text(text) => visitor.visit_enum(text.into_deserializer()),
            Value::Object(object) => {
                let fields = MapDeserializer::new(object.into_iter().map(|(name, value)| (name, Self(value))));
                visitor.visit_enum(MapAccessDeserializer::new(fields))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

fn visit_text<'de, V: Visitor<'de>>(text: Cow<'de, str>, visitor: V) -> Result<V::Value> {
    match text {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

/// The pairs of a query string to be read from.
pub(super) fn query(query: &str) -> impl Deserializer<'_, Error = DecodeError> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    MapDeserializer::new(pairs.map(|(name, value)| (name, Param(value))))
}

/// The value of one: text, in which a number or a boolean may stand.
struct Param<'de>(Cow<'de, str>);

impl<'de> IntoDeserializer<'de, DecodeError> for Param<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($deserialize:ident $visit:ident $integer:ident,)+) => {
        $(
            fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
                let unfit = || messages::not_an_integer_between(&self.0, $integer::MIN, $integer::MAX);
                visitor.$visit(self.0.parse().map_err(|_| DecodeError::Unfit(unfit()))?)
            }
        )+
    };
}

impl<'de> Deserializer<'de> for Param<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visit_text(self.0, visitor)
    }

    parsed! {
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let unfit = |_| DecodeError::Unfit(messages::neither_true_nor_false(&self.0));
        visitor.visit_bool(self.0.parse().map_err(unfit)?)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let unfit = |_| DecodeError::Unfit(messages::not_a_number(format!("'{}'", self.0)));
        visitor.visit_f64(self.0.parse().map_err(unfit)?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(CowStrDeserializer::<DecodeError>::new(self.0))
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}
