//! Everything that simulated agents are told and do, as JSON lines in a file, to check a run afterwards.
//!
//! Promised: the lines of one agent are in order, each with the wall clock's time; a line is in the file before the
//! agent continues. Absent: a verdict, see `proctor_testkit::History`; a run of more than [`LINES_MAX`] lines,
//! which ends with a line that says `truncated`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use parking_lot::Mutex;
use proctor_model::OperationId;
use serde::Serialize;

/// About 15 GB.
const LINES_MAX: u64 = 100_000_000;

/// One thing that happened to an agent.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Happened {
    Connected {
        epoch: u64,
    },
    Assigned {
        generation: u64,
    },
    Delivered {
        #[serde(serialize_with = "text")]
        operation: OperationId,
        expires_in_ms: u64,
    },
    /// Its command runs from now on.
    Begun {
        #[serde(serialize_with = "text")]
        operation: OperationId,
    },
    Ended {
        #[serde(serialize_with = "text")]
        operation: OperationId,
        code: u32,
    },
    Acknowledged {
        #[serde(serialize_with = "text")]
        operation: OperationId,
    },
    /// A promise of the server was broken.
    Violated {
        promise: &'static str,
    },
}

fn text<S: serde::Serializer>(operation: &OperationId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(operation)
}

#[derive(Serialize)]
struct Line<'a> {
    at_ms: i64,
    agent: &'a str,
    #[serde(flatten)]
    happened: Happened,
}

#[derive(Debug)]
struct Lines {
    file: File,
    written: u64,
}

/// The file that all agents of a swarm share.
#[derive(Debug)]
pub(crate) struct Recorder {
    lines: Mutex<Lines>,
}

impl Recorder {
    /// Replaces the record of an earlier run.
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self { lines: Mutex::new(Lines { file: File::create(path)?, written: 0 }) })
    }

    pub(crate) fn add(&self, at_ms: i64, agent: &str, happened: Happened) {
        let line = serde_json::to_string(&Line { at_ms, agent, happened }).expect("numbers and text are JSON");
        let mut lines = self.lines.lock();
        if lines.written > LINES_MAX {
            return;
        }
        let line = if lines.written == LINES_MAX { r#"{"what":"truncated"}"#.to_owned() } else { line };
        lines.written += 1;
        if let Err(error) = writeln!(lines.file, "{line}") {
            tracing::error!(%error, "cannot write the recording, recording stopped");
            lines.written = LINES_MAX + 1;
        }
    }
}
