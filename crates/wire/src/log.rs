//! Conversions of log queries and their answers.
//!
//! From the wire: a query that cannot be parsed is skipped; an answer of an unknown kind counts as unreadable; what
//! is longer than any honest answer is truncated.

use proctor_model::{LOG_BYTES_MAX, LOG_LINES_MAX, LogPosition, LogQuery, LogState, LogTail, ProcessKey};

use crate::message::FromServer;
use crate::value::{numbered, reason_text, required};
use crate::{WireError, proto};

/// The longest path of a spec below the longest setup path.
const PATH_BYTES_MAX: usize = 2 * 4096 + 256;

numbered!(
    number_of_state,
    state,
    LogState,
    "log state",
    Read,
    NoPath,
    Missing,
    Denied,
    NotALog,
    Forbidden,
    Unreadable,
    NotRegistered,
    Busy,
);

pub(crate) fn query_to(request: u64, key: ProcessKey, query: LogQuery) -> proto::QueryLog {
    let LogQuery { lines, since } = query;
    proto::QueryLog { request, key: Some(key.into()), lines, since: since.map(position_to) }
}

pub(crate) fn query_from(query: proto::QueryLog) -> FromServer {
    let request = query.request;
    let understood = || -> Result<FromServer, WireError> {
        let key = required("process key", query.key)?.try_into()?;
        let (lines, since) = (query.lines.clamp(1, LOG_LINES_MAX), query.since.map(position_from));
        Ok(FromServer::QueryLog { request, key, query: LogQuery { lines, since } })
    };
    understood().unwrap_or(FromServer::Unknown)
}

pub(crate) fn tail_to(request: u64, tail: LogTail) -> proto::LogTail {
    let LogTail { state, path, problem, mut bytes, end, size, modified_at, restarted, skipped } = tail;
    bytes.truncate(LOG_BYTES_MAX);
    proto::LogTail {
        request,
        state: number_of_state(state),
        path,
        problem: reason_text(problem),
        bytes,
        end: Some(position_to(end)),
        size,
        modified_at,
        restarted,
        skipped,
    }
}

pub(crate) fn tail_from(tail: proto::LogTail) -> LogTail {
    let (mut path, mut bytes) = (tail.path, tail.bytes);
    path.truncate(path.floor_char_boundary(PATH_BYTES_MAX));
    bytes.truncate(LOG_BYTES_MAX);
    LogTail {
        state: state(tail.state).unwrap_or(LogState::Unreadable),
        path,
        problem: reason_text(tail.problem),
        bytes,
        end: tail.end.map(position_from).unwrap_or_default(),
        size: tail.size,
        modified_at: tail.modified_at,
        restarted: tail.restarted,
        skipped: tail.skipped,
    }
}

fn position_to(LogPosition { file, offset }: LogPosition) -> proto::LogPosition {
    proto::LogPosition { file, offset }
}

fn position_from(proto::LogPosition { file, offset }: proto::LogPosition) -> LogPosition {
    LogPosition { file, offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_longer_than_an_honest_one_and_an_unknown_state_is_no_text() {
        let long = proto::LogTail {
            state: 99,
            path: "é".repeat(PATH_BYTES_MAX),
            problem: "x".repeat(1 << 20),
            bytes: vec![b'x'; 1 << 20],
            ..Default::default()
        };

        let tail = tail_from(long);

        assert_eq!((tail.state, tail.bytes.len()), (LogState::Unreadable, LOG_BYTES_MAX));
        assert!(tail.path.len() <= PATH_BYTES_MAX && tail.problem.len() <= 1024);
    }

    #[test]
    fn a_question_without_a_process_is_none_and_lines_are_bounded() {
        let key = Some(proto::ProcessKey { namespace: "ns".to_owned(), name: "p".to_owned() });
        let lines = |lines| {
            let query = proto::QueryLog { request: 1, key: key.clone(), lines, since: None };
            let FromServer::QueryLog { query, .. } = query_from(query) else { panic!("it is understood") };
            query.lines
        };

        assert_eq!(query_from(proto::QueryLog::default()), FromServer::Unknown);
        assert_eq!([0, 7, u32::MAX].map(lines), [1, 7, LOG_LINES_MAX]);
    }
}
