//! The end of a process's own log, as its host reads it.
//!
//! Promised: a tail has at most [`LOG_BYTES_MAX`] bytes and says where in which file it ends, so that its reader
//! can ask for what was written since. Absent: how it is read (the agent) and who may read it (the server).

use std::fmt;
use std::str::FromStr;

use crate::{FieldError, messages};

/// Of one answer: with its path, it fits a frame below 64 KiB, above which frames share a memory budget.
pub const LOG_BYTES_MAX: usize = 60 * 1024;
/// Lines that may be requested.
pub const LOG_LINES_MAX: u32 = 2000;
pub const LOG_LINES: u32 = 200;

/// A reader's position in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogPosition {
    /// Changes when the log is rotated.
    pub file: u64,
    pub offset: u64,
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.file, self.offset)
    }
}

impl FromStr for LogPosition {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let parsed = text.split_once('-').and_then(|(file, offset)| {
            let file = u64::from_str_radix(file, 16).ok()?;
            Some(Self { file, offset: offset.parse().ok()? })
        });
        parsed.ok_or_else(|| FieldError::new("since", messages::not_a_log_position()))
    }
}

/// What to read of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogQuery {
    /// The last lines, from 1 to [`LOG_LINES_MAX`].
    pub lines: u32,
    /// Only what was written since. In another file than this one, everything is new.
    pub since: Option<LogPosition>,
}

impl Default for LogQuery {
    fn default() -> Self {
        Self { lines: LOG_LINES, since: None }
    }
}

/// Whether there is something to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogState {
    #[default]
    Read,
    /// The spec names no log.
    NoPath,
    Missing,
    /// The user of the process may not read it.
    Denied,
    /// A FIFO, a device, a directory without a log, or a link made by somebody else.
    NotALog,
    /// The policy of the host's owner forbids it.
    Forbidden,
    Unreadable,
    /// The host does not know the process.
    NotRegistered,
    /// The host already reads as many logs as it may: ask again.
    Busy,
}

impl LogState {
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::NoPath,
        Self::Missing,
        Self::Denied,
        Self::NotALog,
        Self::Forbidden,
        Self::Unreadable,
        Self::NotRegistered,
        Self::Busy,
    ];
}

/// The end of a log, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    pub state: LogState,
    /// The file that was read, or could not be.
    pub path: String,
    /// Why it could not be, for people.
    pub problem: String,
    /// As in the file, in whatever encoding.
    pub bytes: Vec<u8>,
    /// Where the bytes end.
    pub end: LogPosition,
    /// Of the file, when it was read.
    pub size: u64,
    /// When it was last written, in Unix seconds of the host's clock.
    pub modified_at: i64,
    /// The bytes do not continue from the requested position: the file was replaced or truncated.
    pub restarted: bool,
    /// Bytes written since that position that are left out here.
    pub skipped: u64,
}

impl LogTail {
    pub fn none(state: LogState, path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { state, path: path.into(), problem: problem.into(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_is_written_and_nothing_else_is_one() {
        let position = LogPosition { file: u64::MAX, offset: 65536 };

        assert_eq!(position.to_string(), "ffffffffffffffff-65536");
        assert_eq!(position.to_string().parse::<LogPosition>().unwrap(), position);
        for text in ["", "-", "1", "g-1", "1-", "1-x", "1--1", "10000000000000000-1"] {
            assert_eq!(text.parse::<LogPosition>().unwrap_err().field, "since", "{text}");
        }
    }
}
