//! Maps of rows, one per target, in the order in which the caller named them.

use proctor_model::{Code, Outcome};
use serde::{Serialize, Serializer};

use super::language;

/// `content` is text in the GSE families and an object in JOB's.
#[derive(Debug, Serialize)]
pub(super) struct Row<C> {
    error_code: u32,
    error_msg: String,
    content: C,
}

impl<C> Row<C> {
    /// Clients compare both number and text.
    pub(super) fn pending(content: C) -> Self {
        Self { error_code: Code::Handling.number(), error_msg: Code::Handling.name().to_owned(), content }
    }

    /// In the language of the caller.
    pub(super) fn finished(outcome: &Outcome, content: C) -> Self {
        Self { error_code: outcome.code.number(), error_msg: language::of_outcome(outcome), content }
    }
}

#[derive(Debug)]
pub(super) struct Rows<C>(Vec<(String, Row<C>)>);

impl<C> FromIterator<(String, Row<C>)> for Rows<C> {
    fn from_iter<I: IntoIterator<Item = (String, Row<C>)>>(rows: I) -> Self {
        Self(rows.into_iter().collect())
    }
}

impl<C: Serialize> Serialize for Rows<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, row)| (key, row)))
    }
}
