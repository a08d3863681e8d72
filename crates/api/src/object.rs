//! Objects inside requests, which must be written as objects.
//!
//! serde also reads a struct from a list of its values. Nobody writes that on purpose, and its meaning would depend
//! on the order of fields; so it is refused.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// `T`, and written as an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OnlyMaps(PhantomData)).map(Self)
    }
}

struct OnlyMaps<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMaps<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// For a field that may be absent or null.
pub(crate) fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(value)| value))
}

/// For a list of objects.
pub(crate) fn each<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<Object<T>>::deserialize(deserializer)?.into_iter().map(|Object(value)| value).collect())
}

#[cfg(test)]
mod tests {
    use crate::{OperationRequest, SetPools};

    #[test]
    fn a_list_is_no_object() {
        let rolling = |text: &str| {
            serde_json::from_str::<OperationRequest>(&format!(r#"{{"operation":"stop","all":true,"rolling":{text}}}"#))
        };
        let pools =
            serde_json::from_str::<SetPools>(r#"{"all":true,"pools":[["web","web",1,1,"usage","usage",false]]}"#);

        assert_eq!(rolling(r#"{"max_parallel":1}"#).unwrap().rolling.unwrap().max_failures, 0);
        assert_eq!(rolling("null").unwrap().rolling, None);
        for error in [rolling("[1,0,0,false]").unwrap_err(), pools.unwrap_err()] {
            assert!(error.to_string().starts_with("invalid type: sequence, expected an object"), "{error}");
        }
    }
}
