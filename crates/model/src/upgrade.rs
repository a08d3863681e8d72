//! Versions of agents, and the steps of an upgrade.
//!
//! Promised: versions compare as people expect (numbers by value, a pre-release before its release); the mark that
//! tells a program's version without running it. Absent: the programs.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{FieldError, messages};

/// Precedes the version in every agent program; the version ends with a NUL.
pub const BUILD_MARK: &str = "proctor-agent build, version ";
/// Length of a version.
pub const VERSION_BYTES_MAX: usize = 64;

/// The step of an agent upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeStep {
    /// The new program is being fetched.
    Fetching,
    /// The new program runs on trial.
    Trying,
    Done,
    /// The agent runs its previous version.
    Failed,
}

/// A version such as `1.4.0` or `1.4.0-rc.2`; what follows a `+` is ignored.
#[derive(Clone, Debug)]
pub struct AgentVersion {
    text: String,
    numbers: [u64; 3],
    /// Empty for a release.
    before: Vec<Part>,
}

/// In semantic-version order: numbers before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

impl AgentVersion {
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for AgentVersion {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let wrong = || FieldError::new("version", messages::not_a_version(text));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
        if text.len() > VERSION_BYTES_MAX || !text.chars().all(is_plain) {
            return Err(wrong());
        }
        let counted = text.split_once('+').map_or(text, |(counted, _)| counted);
        let (release, before) = match counted.split_once('-') {
            Some((_, "")) => return Err(wrong()),
            Some((release, before)) => (release, before.split('.').map(part).collect()),
            None => (counted, Vec::new()),
        };
        let numbers: Vec<u64> = release.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let numbers = numbers.try_into().map_err(|_| wrong())?;
        Ok(Self { text: text.to_owned(), numbers, before })
    }
}

fn part(text: &str) -> Part {
    text.parse().map_or_else(|_| Part::Word(text.to_owned()), Part::Number)
}

impl fmt::Display for AgentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl PartialEq for AgentVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for AgentVersion {}

impl PartialOrd for AgentVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AgentVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let released = |version: &Self| version.before.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| released(self).cmp(&released(other)))
            .then_with(|| self.before.cmp(&other.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_their_releases() {
        let ordered = ["0.9.10", "1.0.0-1", "1.0.0-alpha", "1.0.0-rc.2", "1.0.0-rc.10", "1.0.0", "1.0.1", "1.10.0"];
        let parsed = ordered.map(|text| text.parse::<AgentVersion>().unwrap());

        assert!(parsed.is_sorted());
        assert!(parsed.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!("1.0.0+a".parse::<AgentVersion>(), "1.0.0+b".parse());
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "1", "1.2", "1.2.3.4", "v1.2.3", "1.2.x", "1.2.3-", "1.2.3 ", "1.2.-3", &"1".repeat(65)] {
            assert_eq!(text.parse::<AgentVersion>().unwrap_err().field, "version", "{text}");
        }
    }
}
