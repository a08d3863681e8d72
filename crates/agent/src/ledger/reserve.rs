//! What the ledger owes and cannot write, in a file preallocated at startup.
//!
//! Promised: what an operator has stopped, killed, released or unregistered while the disk was full stays that way if
//! the agent, or the host, restarts before there is space; the outcomes of such operations are known; and so is
//! everything else that decides about a process except its spec, so that a start in progress is not repeated. The
//! newest complete write counts.
//! Absent: an unlimited size. Beyond [`SLOT_BYTES`], about a thousand processes, the latest changes are kept: stops
//! first, then starts in progress, then the rest. A file system that needs space to overwrite (btrfs) may fail. A
//! process that was registered meanwhile is not included: the server assigns it again.

use std::cmp::Reverse;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proctor_model::{BootId, Message, OperationId, OperationKind, Outcome, ProcessKey};
use proctor_runtime::private;
use proctor_supervise::{Elder, Record, RecordState};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{LedgerBatch, LedgerState};

/// Two slots are written in turns, so that a torn write leaves the other.
const SLOT_BYTES: usize = 512 * 1024;
/// Number, length and hash.
const HEADER_BYTES: usize = 8 + 4 + 32;
/// Of an outcome only the beginning of its message is kept.
const MESSAGE_CHARS_MAX: usize = 200;

#[derive(Debug)]
pub(super) struct Reserve {
    /// None: there is no room for it, or it cannot be opened.
    file: Option<File>,
    number: u64,
    written: Vec<u8>,
}

/// One line of the file, as it is written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Boot(&'a BootId),
    Process {
        key: &'a ProcessKey,
        #[serde(flatten)]
        state: RecordState<'a>,
    },
    Forgotten {
        key: &'a ProcessKey,
        elder: Option<&'a Elder>,
    },
    Begun(OperationId, &'a ProcessKey, OperationKind),
    Outcome(OperationId, Box<Outcome>),
}

/// The same, as it is read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Owed {
    /// The boot that all others are of.
    Boot(BootId),
    /// What it omits is as the ledger has it: another version of the agent may have written it.
    Process {
        key: ProcessKey,
        #[serde(flatten)]
        state: Map<String, Value>,
    },
    Forgotten {
        key: ProcessKey,
        elder: Option<Elder>,
    },
    Begun(OperationId, ProcessKey, OperationKind),
    Outcome(OperationId, Box<Outcome>),
}

impl Reserve {
    pub(super) fn open(ledger: &Path) -> Self {
        let file = open(&ledger.with_extension("reserve")).inspect_err(|error| {
            tracing::warn!(%error, "no ledger reserve; stops on a full disk will not survive a restart");
        });
        let mut reserve = Self { file: file.ok(), number: 0, written: Vec::new() };
        for slot in [0, 1] {
            if let Some((number, text)) = reserve.read(slot).filter(|(number, _)| *number > reserve.number) {
                (reserve.number, reserve.written) = (number, text);
            }
        }
        reserve
    }

    /// The number of what is owed.
    pub(super) fn number(&self) -> Option<u64> {
        (!self.written.is_empty()).then_some(self.number)
    }

    /// Applies the reserve to what was read from the ledger, unless the ledger has it: `taken` is the number of the
    /// newest reserve that it took.
    pub(super) fn apply(&mut self, taken: u64, memory: &mut LedgerState) {
        if self.number <= taken {
            // A recreated file continues counting from what the ledger knows, or its next write would look old.
            self.number = taken;
            return self.clear();
        }
        let lines = self.written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let readable = lines.filter_map(|line| {
            let unreadable = |error: &_| tracing::error!(%error, "skipped unreadable line of the ledger reserve");
            serde_json::from_slice(line).inspect_err(unreadable).ok()
        });
        let (boots, others): (Vec<Owed>, Vec<Owed>) = readable.partition(|owed| matches!(owed, Owed::Boot(_)));
        // The newest of a kind was written first.
        for owed in boots.into_iter().chain(others.into_iter().rev()) {
            memory.catch_up(owed);
        }
    }

    /// Overwrites the previous contents. Returns whether every stop and every start in progress fit.
    pub(super) fn write(&mut self, batch: &LedgerBatch) -> bool {
        let mut text = Vec::new();
        let (decisive, others) = lines(batch);
        let left_out_decisive = append(&mut text, &decisive);
        let left_out = left_out_decisive + append(&mut text, &others);
        if left_out > 0 {
            tracing::error!(left_out, "ledger reserve full; further stops will not survive a restart");
        }
        self.put(text) && left_out_decisive == 0
    }

    /// The ledger has it.
    pub(super) fn clear(&mut self) {
        self.put(Vec::new());
    }

    /// Whether it is there.
    fn put(&mut self, text: Vec<u8>) -> bool {
        if text == self.written {
            return true;
        }
        let Some(file) = &self.file else { return false };
        let number = self.number + 1;
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + text.len());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(hash(number, &text).as_bytes());
        bytes.extend_from_slice(&text);
        let offset = (number % 2) * SLOT_BYTES as u64;
        let written = file.write_all_at(&bytes, offset).and_then(|()| file.sync_data());
        match &written {
            Ok(()) => (self.number, self.written) = (number, text),
            Err(error) => tracing::error!(%error, "cannot write ledger reserve"),
        }
        written.is_ok()
    }

    fn read(&self, slot: u64) -> Option<(u64, Vec<u8>)> {
        let file = self.file.as_ref()?;
        let offset = slot * SLOT_BYTES as u64;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, offset).ok()?;
        let (number, rest) = header.split_first_chunk::<8>()?;
        let (length, expected) = rest.split_first_chunk::<4>()?;
        let (number, length) = (u64::from_le_bytes(*number), u32::from_le_bytes(*length) as usize);
        if length > SLOT_BYTES - HEADER_BYTES {
            return None;
        }
        let mut text = vec![0; length];
        file.read_exact_at(&mut text, offset + HEADER_BYTES as u64).ok()?;
        (hash(number, &text).as_bytes() == expected).then_some((number, text))
    }
}

/// The file with its contents, even if no space can be allocated for it.
fn open(path: &Path) -> std::io::Result<File> {
    let file = private::file(path)?;
    // Where the file system cannot do that, it takes the room when it writes.
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 * SLOT_BYTES as u64) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => tracing::warn!(%error, "cannot preallocate space for the ledger reserve"),
    }
    Ok(file)
}

fn hash(number: u64, text: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(&number.to_le_bytes()).update(text).finalize()
}

/// Adds the lines that there is room for; how many there is none for.
fn append(text: &mut Vec<u8>, lines: &[Line<'_>]) -> usize {
    let mut left_out = 0;
    for line in lines {
        let line = super::json(line);
        if text.len() + line.len() < SLOT_BYTES - HEADER_BYTES {
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        } else {
            left_out += 1;
        }
    }
    left_out
}

/// Stops and starts in progress, then the rest. What matters most comes first, and within that what changed last: it
/// may not all fit.
fn lines(batch: &LedgerBatch) -> (Vec<Line<'_>>, Vec<Line<'_>>) {
    let mut lines: Vec<Line<'_>> = batch.boot.iter().map(Line::Boot).collect();
    let all = batch.processes.iter();
    let (stopped, others): (Vec<_>, Vec<_>) = all.partition(|(_, record)| !record.managed || record.unwanted.is_some());
    let is_under_way = |record: &Record| record.launch.is_some() || record.running.is_some();
    let (under_way, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, record)| is_under_way(record));
    let forgotten = batch.forgotten.iter().map(|key| {
        let elder = batch.estates.get(key).and_then(Option::as_ref);
        (key, Line::Forgotten { key, elder })
    });
    lines.extend(newest_first(batch, stopped.into_iter().map(of_process).chain(forgotten).collect()));
    lines.extend(newest_first(batch, under_way.into_iter().map(of_process).collect()));
    let outcomes = batch.outcomes.iter().rev();
    let outcomes = outcomes.map(|(operation, outcome)| Line::Outcome(*operation, Box::new(short(outcome))));
    let begun = batch.begun.iter().rev().map(|(operation, key, kind)| Line::Begun(*operation, key, *kind));
    let others = newest_first(batch, others.into_iter().map(of_process).collect());
    (lines, outcomes.chain(begun).chain(others).collect())
}

fn newest_first<'a>(
    batch: &LedgerBatch,
    mut processes: Vec<(&'a ProcessKey, Line<'a>)>,
) -> impl Iterator<Item = Line<'a>> + use<'a> {
    processes.sort_by_key(|(key, _)| Reverse(batch.last_change(key)));
    processes.into_iter().map(|(_, line)| line)
}

fn of_process<'a>((key, record): (&'a ProcessKey, &'a Record)) -> (&'a ProcessKey, Line<'a>) {
    (key, Line::Process { key, state: record.state() })
}

fn short(outcome: &Outcome) -> Outcome {
    let text: String = outcome.message.chars().take(MESSAGE_CHARS_MAX).collect();
    Outcome { message: Message::foreign(text), output: String::new(), snapshot: None, ..outcome.clone() }
}

impl LedgerState {
    fn catch_up(&mut self, owed: Owed) {
        match owed {
            Owed::Boot(boot) => {
                // What is not in the reserve is from an earlier boot.
                if self.boot.as_ref() != Some(&boot) {
                    self.processes.iter_mut().for_each(|(_, record)| record.forget_boot());
                    let estates = std::mem::take(&mut self.estates);
                    self.owed.estates.extend(estates.into_keys().map(|key| (key, None)));
                    self.boot = Some(boot);
                }
            }
            Owed::Process { key, state } => {
                if let Some((_, record)) = self.processes.iter_mut().find(|(known, _)| *known == key) {
                    take_over(record, state);
                }
            }
            Owed::Forgotten { key, elder } => {
                self.processes.retain(|(known, _)| *known != key);
                self.owed.forget(key.clone());
                if let Some(elder) = elder {
                    self.owed.estates.insert(key.clone(), Some(elder.clone()));
                    self.estates.insert(key, elder);
                }
            }
            Owed::Begun(operation, key, kind) => {
                if !self.unfinished.iter().any(|(known, ..)| *known == operation) {
                    self.unfinished.push((operation, key.clone(), kind));
                    self.owed.begun.push((operation, key, kind));
                }
            }
            Owed::Outcome(operation, outcome) => {
                self.unfinished.retain(|(known, ..)| *known != operation);
                if !self.outcomes.iter().any(|(known, _)| *known == operation) {
                    self.outcomes.push((operation, (*outcome).clone()));
                    self.owed.outcomes.push((operation, *outcome));
                }
            }
        }
    }
}

/// What cannot be understood leaves the record as it was, but unmanaged: nothing is started by mistake.
fn take_over(record: &mut Record, state: Map<String, Value>) {
    let mut whole = serde_json::to_value(&*record).unwrap_or_default();
    if let Value::Object(whole) = &mut whole {
        whole.extend(state);
    }
    match serde_json::from_value(whole) {
        Ok(whole) => *record = whole,
        Err(error) => {
            tracing::error!(%error, "unreadable process in ledger reserve, released");
            record.managed = false;
        }
    }
}

#[cfg(test)]
mod tests;
