//! The identity of a process: a namespace and a name inside it, unique on one host.

use std::borrow::Cow;
use std::sync::Arc;

use crate::messages;
use serde::{Deserialize, Serialize};

use crate::field::{FieldError, check_text, text_type};

const NAME_CHARS_MAX: usize = 128;

/// A group of processes that belong together, for example one product of one team.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
#[serde(try_from = "String")]
pub struct Namespace(Arc<str>);

/// The name of a process inside its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
#[serde(try_from = "String")]
pub struct ProcessName(Arc<str>);

/// Which process, on whatever host. Clones are cheap: an agent refers to a process in many places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    pub namespace: Namespace,
    pub name: ProcessName,
}

text_type!(Namespace);
text_type!(ProcessName);

impl Namespace {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_name("namespace", &text)?;
        Ok(Self(text.into()))
    }
}

impl ProcessName {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_name("name", &text)?;
        Ok(Self(text.into()))
    }

    /// A name from free text (a path, an index key) that need not be a legal name: kept if it is one, otherwise
    /// made legal, with a digest so that two texts never collide.
    pub fn from_free_text(text: &str) -> Self {
        if check_name("name", text).is_ok() {
            return Self(text.into());
        }
        let digest = blake3::hash(text.as_bytes()).to_hex();
        let legal: String = text.chars().map(|c| if c == ':' || c.is_control() { '_' } else { c }).collect();
        let kept: String = legal.chars().take(NAME_CHARS_MAX - 17).collect();
        Self(format!("{kept}~{}", &digest.as_str()[..16]).into())
    }
}

/// Results are keyed `cloud:ip:namespace:name` and clients split them at the colons.
fn check_name(field: &str, text: &str) -> Result<(), FieldError> {
    check_text(field, text, NAME_CHARS_MAX)?;
    if text.contains(':') {
        return Err(FieldError::new(field, messages::has_a_colon()));
    }
    Ok(())
}

impl ProcessKey {
    pub fn new(namespace: Namespace, name: ProcessName) -> Self {
        Self { namespace, name }
    }

    /// Instance `number` of a process that has several: `name#number`.
    pub fn instance(&self, number: u32) -> Self {
        Self::new(self.namespace.clone(), ProcessName::from_free_text(&format!("{}#{number}", self.name)))
    }
}

impl Namespace {
    /// As written before a '/' and a name: '/' as `%2F` and '%' as `%25`, so that `a/b` with `c` and `a` with `b/c`
    /// differ. Both characters are legal in a namespace, and names of JOB's processes begin with '/'.
    pub fn escaped(&self) -> Cow<'_, str> {
        if self.0.contains(['/', '%']) {
            return self.0.replace('%', "%25").replace('/', "%2F").into();
        }
        Cow::Borrowed(&self.0)
    }

    /// From the part before the first '/'.
    fn from_escaped(text: &str) -> Result<Self, FieldError> {
        text.replace("%2F", "/").replace("%25", "%").parse()
    }
}

/// `namespace/name`, as people write it; see [`Namespace::escaped`].
impl std::fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace.escaped(), self.name)
    }
}

impl std::str::FromStr for ProcessKey {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text
            .split_once('/')
            .ok_or_else(|| FieldError::new("process", messages::not_of_the_form(text, "NAMESPACE/NAME")))?;
        Ok(Self { namespace: Namespace::from_escaped(namespace)?, name: name.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_is_refused_and_the_field_is_named() {
        let error = "a:b".parse::<Namespace>().unwrap_err();

        assert_eq!(error.to_string(), "namespace: must not contain ':'");
    }

    #[test]
    fn the_longest_legal_name_has_128_characters_whatever_their_bytes() {
        assert!("进".repeat(128).parse::<ProcessName>().is_ok());
        assert!("进".repeat(129).parse::<ProcessName>().is_err());
    }

    #[test]
    fn free_text_stays_readable_legal_and_distinct() {
        let long = format!("/opt/{}/a:b", "x".repeat(300));

        let one = ProcessName::from_free_text(&long);
        let two = ProcessName::from_free_text(&format!("{long}2"));

        assert!(one.as_str().parse::<ProcessName>().is_ok());
        assert_ne!(one, two);
        assert_eq!(ProcessName::from_free_text("/opt/x/nginx").as_str(), "/opt/x/nginx");
    }

    #[test]
    fn a_process_is_written_namespace_slash_name() {
        let key: ProcessKey = "gse/proc-test".parse().unwrap();

        assert_eq!(key.to_string(), "gse/proc-test");
        assert!("gse".parse::<ProcessKey>().is_err());
    }

    #[test]
    fn two_processes_are_never_written_alike_and_each_is_read_back() {
        let parts = ["a", "a/b", "b/c", "/a", "a/", "%", "%2F", "%25", "a%2Fb", "a%252Fb", "%2525"];
        let all = parts.iter().flat_map(|namespace| parts.iter().map(move |name| (namespace, name)));
        let keys: Vec<ProcessKey> =
            all.map(|(namespace, name)| ProcessKey::new(namespace.parse().unwrap(), name.parse().unwrap())).collect();

        let texts: std::collections::BTreeSet<String> = keys.iter().map(ToString::to_string).collect();

        assert_eq!(texts.len(), keys.len());
        for key in keys {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        assert_eq!(ProcessKey::new("a/b".parse().unwrap(), "c".parse().unwrap()).to_string(), "a%2Fb/c");
    }
}
