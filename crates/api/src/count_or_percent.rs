//! A number of targets, or a share of them.

use proctor_model::messages;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// `5`, or `"10%"`: of all targets, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountOrPercent {
    Count(u32),
    Percent(u8),
}

impl std::fmt::Display for CountOrPercent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl std::str::FromStr for CountOrPercent {
    type Err = proctor_model::FieldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || proctor_model::FieldError::new("", messages::neither_number_nor_percentage(text));
        let (digits, is_percent) = text.strip_suffix('%').map_or((text, false), |digits| (digits, true));
        let number: u32 = digits.parse().map_err(|_| bad())?;
        match (u8::try_from(number), is_percent) {
            (Ok(percent @ 1..=100), true) => Ok(Self::Percent(percent)),
            (_, false) if number > 0 => Ok(Self::Count(number)),
            (_, _) => Err(bad()),
        }
    }
}

impl Serialize for CountOrPercent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for CountOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A number is written here as in JSON; a text is a percentage, and nothing else parses.
        let value = serde_json::Value::deserialize(deserializer)?;
        let percentage = value.as_str().filter(|text| text.ends_with('%')).map(str::to_owned);
        let text = percentage.unwrap_or_else(|| value.to_string());
        text.parse().map_err(|error: proctor_model::FieldError| serde::de::Error::custom(error.problem))
    }
}

impl PartialSchema for CountOrPercent {
    fn schema() -> RefOr<Schema> {
        let count = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(u32::MAX));
        let percent = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^([1-9][0-9]?|100)%$"));
        let either = OneOfBuilder::new()
            .item(count)
            .item(percent)
            .description(Some("A number of targets, or a share of them in percent."));
        RefOr::T(Schema::OneOf(either.build()))
    }
}

impl ToSchema for CountOrPercent {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CountOrPercent, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        assert_eq!(read("5").unwrap(), CountOrPercent::Count(5));
        assert_eq!(read("\"10%\"").unwrap(), CountOrPercent::Percent(10));
        assert_eq!(serde_json::to_string(&CountOrPercent::Percent(10)).unwrap(), "\"10%\"");
        for bad in ["0", "\"0%\"", "\"101%\"", "-1", "true", "\"ten\"", "\"5\"", "1.5", "[]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
