//! Labels that people and other systems attach to a process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// The labels of a process: each name once, with its value.
// A sorted list, because there are few labels on many processes: a map would take half a kilobyte for the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
#[serde(from = "BTreeMap<String, String>")]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        self.0.get(index).map(|(_, value)| &**value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        Self(labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// If a name is repeated, the last value wins.
impl FromIterator<(String, String)> for Labels {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(labels: T) -> Self {
        labels.into_iter().collect::<BTreeMap<String, String>>().into()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_a_map_in_order() {
        let pairs = [("tier", "db"), ("env", "prod"), ("tier", "web")];
        let labels: Labels = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();

        assert_eq!((labels.get("tier"), labels.get("env"), labels.get("zone")), (Some("web"), Some("prod"), None));
        assert_eq!(serde_json::to_string(&labels).unwrap(), r#"{"env":"prod","tier":"web"}"#);
        assert_eq!(serde_json::from_str::<Labels>(r#"{"tier":"web","env":"prod"}"#).unwrap(), labels);
        assert!(Labels::default().is_empty() && labels.len() == 2);
    }
}
