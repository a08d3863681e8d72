//! What the ledger owes and cannot write, in a file whose room was taken at the start.
//!
//! Promised: what an operator has stopped, killed, released or unregistered while the disk was full stays so
//! when the agent, or the host, restarts before there is room; and the outcomes of such operations are known.
//! The newest write that is whole counts. Absent: a bound that is never reached. Beyond [`SLOT_BYTES`], some
//! thousand processes, the rest is as on a ledger without a reserve. A file system that needs room to overwrite
//! (btrfs) may refuse.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proctor_model::{Incarnation, OperationId, OperationKind, Outcome, ProcessKey};
use proctor_runtime::private;
use proctor_supervise::Record;
use serde::{Deserialize, Serialize};

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

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Owed {
    Process { key: ProcessKey, managed: bool, life: Option<Incarnation>, unwanted: Option<Incarnation> },
    Begun(OperationId, ProcessKey, OperationKind),
    Outcome(OperationId, Box<Outcome>),
}

impl Reserve {
    pub(super) fn open(ledger: &Path) -> Self {
        let file = open(&ledger.with_extension("reserve")).inspect_err(|error| {
            tracing::warn!(%error, "no reserve: what is stopped on a full disk is not remembered over a restart");
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

    /// Brings what the ledger has told up to date, unless the ledger has it: `taken` is the number of the newest
    /// reserve that it took.
    pub(super) fn apply(&mut self, taken: u64, memory: &mut LedgerState) {
        if self.number <= taken {
            // A file that was made anew counts on from what the ledger knows, or its next write would look old.
            self.number = taken;
            return self.clear();
        }
        let lines = self.written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for line in lines {
            match serde_json::from_slice(line) {
                Ok(owed) => memory.catch_up(owed),
                Err(error) => tracing::error!(%error, "skipped an unreadable line of the reserve"),
            }
        }
    }

    /// In the place of what was written before.
    pub(super) fn write(&mut self, batch: &LedgerBatch) {
        let mut text = Vec::new();
        let mut left_out = 0;
        for owed in owed(batch) {
            let line = super::json(&owed);
            if text.len() + line.len() < SLOT_BYTES - HEADER_BYTES {
                text.extend_from_slice(line.as_bytes());
                text.push(b'\n');
            } else {
                left_out += 1;
            }
        }
        if left_out > 0 {
            tracing::error!(left_out, "the reserve is full: the rest is lost if the agent restarts now");
        }
        self.put(text);
    }

    /// The ledger has it.
    pub(super) fn clear(&mut self) {
        self.put(Vec::new());
    }

    fn put(&mut self, text: Vec<u8>) {
        if text == self.written {
            return;
        }
        let Some(file) = &self.file else { return };
        let number = self.number + 1;
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + text.len());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(hash(number, &text).as_bytes());
        bytes.extend_from_slice(&text);
        let place = (number % 2) * SLOT_BYTES as u64;
        match file.write_all_at(&bytes, place).and_then(|()| file.sync_data()) {
            Ok(()) => (self.number, self.written) = (number, text),
            Err(error) => tracing::error!(%error, "cannot write the reserve of the ledger"),
        }
    }

    fn read(&self, slot: u64) -> Option<(u64, Vec<u8>)> {
        let file = self.file.as_ref()?;
        let place = slot * SLOT_BYTES as u64;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, place).ok()?;
        let (number, rest) = header.split_first_chunk::<8>()?;
        let (length, expected) = rest.split_first_chunk::<4>()?;
        let (number, length) = (u64::from_le_bytes(*number), u32::from_le_bytes(*length) as usize);
        if length > SLOT_BYTES - HEADER_BYTES {
            return None;
        }
        let mut text = vec![0; length];
        file.read_exact_at(&mut text, place + HEADER_BYTES as u64).ok()?;
        (hash(number, &text).as_bytes() == expected).then_some((number, text))
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    let file = private::file(path)?;
    // Where the file system cannot do that, it takes the room when it writes.
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 * SLOT_BYTES as u64) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(file),
        Err(error) => Err(error.into()),
    }
}

fn hash(number: u64, text: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(&number.to_le_bytes()).update(text).finalize()
}

/// What matters most comes first: it may not all fit.
fn owed(batch: &LedgerBatch) -> Vec<Owed> {
    let begun = batch.begun.iter().map(|(operation, key, kind)| Owed::Begun(*operation, key.clone(), *kind));
    let outcomes =
        batch.outcomes.iter().map(|(operation, outcome)| Owed::Outcome(*operation, Box::new(short(outcome))));
    let (managed, ended): (Vec<_>, Vec<_>) =
        batch.processes.iter().partition(|(_, record)| record.managed && record.unwanted.is_none());
    let forgotten = batch.forgotten.iter().map(|key| Owed::Process {
        key: key.clone(),
        managed: false,
        life: None,
        unwanted: None,
    });
    let ended = ended.into_iter().map(of_process).chain(forgotten);
    ended.chain(begun).chain(outcomes).chain(managed.into_iter().map(of_process)).collect()
}

fn of_process((key, record): (&ProcessKey, &Record)) -> Owed {
    let Record { managed, life, unwanted, .. } = record.clone();
    Owed::Process { key: key.clone(), managed, life, unwanted }
}

fn short(outcome: &Outcome) -> Outcome {
    let message = outcome.message.chars().take(MESSAGE_CHARS_MAX).collect();
    Outcome { message, output: String::new(), snapshot: None, ..outcome.clone() }
}

impl LedgerState {
    fn catch_up(&mut self, owed: Owed) {
        match owed {
            Owed::Process { key, managed, life, unwanted } => {
                if let Some((_, record)) = self.processes.iter_mut().find(|(known, _)| *known == key) {
                    (record.managed, record.life, record.unwanted) = (managed, life, unwanted);
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

#[cfg(test)]
mod tests {
    use proctor_model::samples::spec;
    use proctor_model::{Code, TaskId};

    use super::*;

    fn operation(index: u32) -> OperationId {
        OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index)
    }

    fn key(name: &str) -> ProcessKey {
        format!("ns/{name}").parse().unwrap()
    }

    fn record(managed: bool) -> Record {
        let mut process = proctor_supervise::Process::new(key("p"), spec(|_| {}), 1);
        let mut record = process.take_record().unwrap().clone();
        record.managed = managed;
        record
    }

    fn memory() -> LedgerState {
        LedgerState { processes: vec![(key("p"), record(true)), (key("q"), record(true))], ..LedgerState::default() }
    }

    fn stopped() -> LedgerBatch {
        let mut batch = LedgerBatch::default();
        batch.put(key("p"), record(false));
        batch.begun.push((operation(1), key("p"), OperationKind::Stop));
        batch.outcomes.push((operation(1), Outcome::new(Code::Success, "success", false)));
        batch
    }

    #[test]
    fn what_was_owed_is_known_again_until_the_ledger_has_it() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("ledger.db");
        Reserve::open(&path).write(&stopped());
        let mut memory = memory();

        let mut reserve = Reserve::open(&path);
        reserve.apply(0, &mut memory);

        let managed: Vec<bool> = memory.processes.iter().map(|(_, record)| record.managed).collect();
        assert_eq!(managed, [false, true]);
        assert_eq!(memory.outcomes.len(), 1);
        assert_eq!((memory.unfinished.len(), memory.owed.begun.len(), memory.owed.outcomes.len()), (0, 1, 1));
        reserve.clear();
        assert!(Reserve::open(&path).written.is_empty());
    }

    #[test]
    fn a_reserve_that_was_made_anew_is_not_taken_for_an_old_one() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("ledger.db");
        let (taken, mut memory) = (21, memory());
        let mut reserve = Reserve::open(&path);
        reserve.apply(taken, &mut memory);

        reserve.write(&stopped());
        Reserve::open(&path).apply(taken, &mut memory);

        assert!(!memory.processes[0].1.managed);
    }

    #[test]
    fn what_the_ledger_took_before_the_agent_died_is_not_applied_again() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("ledger.db");
        let mut reserve = Reserve::open(&path);
        reserve.write(&stopped());
        let (taken, mut memory) = (reserve.number().unwrap(), memory());

        Reserve::open(&path).apply(taken, &mut memory);

        assert!(memory.processes[0].1.managed && memory.outcomes.is_empty());
    }

    #[test]
    fn a_torn_write_leaves_the_one_before() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("ledger.db");
        let mut reserve = Reserve::open(&path);
        reserve.write(&stopped());
        let before = reserve.written.clone();
        let mut more = stopped();
        more.forget(key("q"));
        reserve.write(&more);
        assert_ne!(reserve.written, before);

        let place = (reserve.number % 2) * SLOT_BYTES as u64 + HEADER_BYTES as u64 + 5;
        reserve.file.as_ref().unwrap().write_all_at(b"torn", place).unwrap();

        assert_eq!(Reserve::open(&path).written, before);
    }

    #[test]
    fn stops_have_room_before_all_else() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("ledger.db");
        let mut batch = stopped();
        for index in 0..20_000 {
            batch.put(key(&format!("a-managed-one-{index}")), record(true));
        }
        let mut memory = memory();

        Reserve::open(&path).write(&batch);
        Reserve::open(&path).apply(0, &mut memory);

        assert!(!memory.processes[0].1.managed);
        assert_eq!(memory.outcomes.len(), 1);
        assert_eq!(std::fs::metadata(path.with_extension("reserve")).unwrap().len(), 2 * SLOT_BYTES as u64);
    }
}
