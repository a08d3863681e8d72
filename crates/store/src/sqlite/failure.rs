//! Errors inside a job, before it is known which call the job belongs to.

use std::sync::Arc;

use crate::StoreError;

pub(super) type Tried<T> = Result<T, Failure>;

/// Clonable, because one failed commit answers every call of its batch.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Sql(Arc<rusqlite::Error>),
    /// A stored value that does not parse.
    Damaged(String),
    /// An argument that contradicts itself.
    Argument(String),
    /// Out of space, detected before SQLite is.
    Full,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(Arc::new(error))
    }
}

impl Failure {
    pub(super) fn damaged(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Damaged(format!("{what}: {error}"))
    }

    /// The error of the call that wanted to do `what`.
    pub(super) fn of(self, what: &'static str) -> StoreError {
        match self {
            Self::Sql(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {
                StoreError::Full { what }
            }
            Self::Full => StoreError::Full { what },
            Self::Sql(error) => StoreError::Failed { what, source: Box::new(error) },
            Self::Damaged(what) => StoreError::Damaged { what },
            Self::Argument(problem) => StoreError::Failed { what, source: problem.into() },
        }
    }
}
