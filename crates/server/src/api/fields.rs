//! Walks through the JSON of a request: liberal about forms, exact about field paths.
//!
//! Promised: null counts as absent; integers may be sent as text; an error names the path of its field, which is
//! built only on error, so that a hundred thousand targets cost nothing extra. Derived deserialisers are not used for
//! requests: they cannot say where in a list they failed.

use std::str::FromStr;

use proctor_model::{FieldError, Message, Percent, messages};

use super::json::{Object, Value};

type Result<T> = std::result::Result<T, FieldError>;

/// The fields of one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a Object<'a>);

impl<'a> Fields<'a> {
    pub(super) fn of(value: &'a Value<'_>) -> Result<Self> {
        value.as_object().map(Self).ok_or_else(|| wrong(value, messages::an_object()))
    }

    pub(super) fn optional<T>(self, name: &str, read: impl FnOnce(&'a Value<'a>) -> Result<T>) -> Result<Option<T>> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).map_err(|error| error.inside(name)),
        }
    }

    pub(super) fn required<T>(self, name: &str, read: impl FnOnce(&'a Value<'a>) -> Result<T>) -> Result<T> {
        self.optional(name, read)?.ok_or_else(|| FieldError::new(name, messages::is_missing()))
    }

    /// The first of several names for one thing that is present.
    pub(super) fn name_of(self, names: [&'static str; 2]) -> &'static str {
        let is_present = |name: &&str| self.0.get(name).is_some_and(|value| *value != Value::Null);
        names.into_iter().find(is_present).unwrap_or(names[0])
    }

    /// Text in which "" means that there is none.
    pub(super) fn filled<T>(self, name: &str) -> Result<Option<T>>
    where
        T: FromStr<Err = FieldError>,
    {
        self.optional(name, |value| if text(value)?.trim().is_empty() { Ok(None) } else { parsed(value).map(Some) })
            .map(Option::flatten)
    }

    /// Free text; "" where there is none.
    pub(super) fn text_or_empty(self, name: &str) -> Result<String> {
        Ok(self.optional(name, text)?.unwrap_or_default().to_owned())
    }
}

fn wrong(value: &Value<'_>, expected: Message) -> FieldError {
    let found = match value {
        Value::Null => messages::null(),
        Value::Bool(_) => messages::a_boolean(),
        Value::Number(_) => messages::a_number(),
        Value::Text(_) => messages::some_text(),
        Value::List(_) => messages::a_list(),
        Value::Object(_) => messages::an_object(),
    };
    FieldError::new("", messages::must_be(expected, found))
}

pub(super) fn text<'a>(value: &'a Value<'_>) -> Result<&'a str> {
    if let Value::Text(text) = value { Ok(text) } else { Err(wrong(value, messages::some_text())) }
}

pub(super) fn flag(value: &Value<'_>) -> Result<bool> {
    if let Value::Bool(flag) = value { Ok(*flag) } else { Err(wrong(value, messages::true_or_false())) }
}

/// A text of a model type. The path is the caller's to name, not the type's.
pub(super) fn parsed<T: FromStr<Err = FieldError>>(value: &Value<'_>) -> Result<T> {
    text(value)?.parse().map_err(|error: FieldError| FieldError::new("", error.problem))
}

/// A whole number, also as text or as `5.0`.
pub(super) fn integer(value: &Value<'_>) -> Result<i64> {
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(whole)),
        Value::Text(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => {
            return Err(wrong(value, messages::an_integer()));
        }
    };
    number.ok_or_else(|| FieldError::new("", messages::not_an_integer(shortened(value))))
}

#[allow(clippy::cast_possible_truncation, reason = "whole and within 2^53, where every integer is exact")]
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
}

/// An integer that is not negative.
pub(super) fn count<T: TryFrom<i64>>(value: &Value<'_>) -> Result<T> {
    let number = integer(value)?;
    let fits = T::try_from(number).ok().filter(|_| number >= 0);
    let problem =
        |number| if number < 0 { messages::must_not_be_negative(number) } else { messages::too_large(number) };
    fits.ok_or_else(|| FieldError::new("", problem(number)))
}

pub(super) fn number(value: &Value<'_>) -> Result<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::Text(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => {
            return Err(wrong(value, messages::a_number()));
        }
    };
    number.ok_or_else(|| FieldError::new("", messages::not_a_number(shortened(value))))
}

pub(super) fn percent(value: &Value<'_>) -> Result<Percent> {
    Percent::try_from(number(value)?)
}

/// [`proctor_model::Seconds`] or [`proctor_model::Period`].
pub(super) fn seconds<T: TryFrom<u32, Error = FieldError>>(value: &Value<'_>) -> Result<T> {
    T::try_from(count::<u32>(value)?)
}

/// Every element of a list; the path of a wrong one is `[index]`.
pub(super) fn each<'a, T>(value: &'a Value<'a>, mut read: impl FnMut(&'a Value<'a>) -> Result<T>) -> Result<Vec<T>> {
    let items = value.as_list().ok_or_else(|| wrong(value, messages::a_list()))?;
    let one = |(index, item)| read(item).map_err(|error| error.inside(&format!("[{index}]")));
    items.iter().enumerate().map(one).collect()
}

/// Of a number or a text, as it may stand in JSON.
fn shortened(value: &Value<'_>) -> String {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) => serde_json::Value::from(text.as_ref()).to_string(),
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => String::new(),
    };
    if text.chars().count() <= 64 { text } else { text.chars().take(60).chain("…".chars()).collect() }
}

/// For the tests of every module that reads fields.
#[cfg(test)]
pub(super) mod testing {
    use serde_json::Value;

    /// `body` with the value at `pointer` put in or replaced; null counts as absent.
    pub(in crate::api) fn with(mut body: Value, pointer: &str, value: Value) -> Value {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = body.pointer_mut(parent).unwrap();
        match parent.as_array_mut() {
            Some(list) => list[field.parse::<usize>().unwrap()] = value,
            None => parent[field] = value,
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integers_may_be_text_but_not_fractions() {
        for good in [json!(7), json!("7"), json!(7.0), json!(" 7 ")] {
            assert_eq!(integer(&(&good).into()), Ok(7), "{good}");
        }
        for bad in [json!(7.5), json!("7.5"), json!("x"), json!(true), json!([7]), json!(1e300)] {
            assert!(integer(&(&bad).into()).is_err(), "{bad}");
        }
        assert_eq!(count::<u32>(&(&json!(-1)).into()).unwrap_err().problem, "-1 must not be negative");
        assert_eq!(count::<u32>(&(&json!(1_u64 << 40)).into()).unwrap_err().problem, "1099511627776 is too large");
    }

    #[test]
    fn an_error_names_the_path_inside_lists() {
        let body = json!({"hosts": [{"ip": "a"}, {"ip": 7}]});
        let value = Value::from(&body);
        let read = |item| Fields::of(item)?.required("ip", text);

        let error = Fields::of(&value).unwrap().required("hosts", |hosts| each(hosts, read)).unwrap_err();

        assert_eq!(error.to_string(), "hosts[1].ip: must be text, not a number");
    }

    #[test]
    fn null_is_absent() {
        let body = json!({"a": null});
        let value = Value::from(&body);
        let fields = Fields::of(&value).unwrap();

        assert_eq!(fields.optional("a", integer), Ok(None));
        assert_eq!(fields.required("a", integer).unwrap_err().to_string(), "a: is missing");
    }
}
