//! What is to be written to the ledger, and what could not be.
//!
//! Promised: all changes are written together and in order; what cannot be written is kept, in memory and, if it must
//! not be forgotten, in the ledger's reserve, and is written before anything later.
//! Absent: deciding when (`commit`), and clocks.

use proctor_model::{BootId, OperationId, Outcome};
use proctor_supervise::Time;

use crate::ledger::{CommitError, Ledger, LedgerBatch, Released};

#[derive(Debug)]
pub(super) struct LedgerWriter {
    ledger: Ledger,
    /// Changes since the last write.
    pub(super) batch: LedgerBatch,
    /// What an earlier turn could not write.
    unwritten: Option<Box<LedgerBatch>>,
    /// When deferrable changes are written and reported.
    pub(super) flush_at: Option<Time>,
}

/// Where everything that has changed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    Ledger,
    /// As far as it must not be forgotten.
    Reserve,
    Nowhere,
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) recorded: Recorded,
    /// The newest generation that the ledger has got by it.
    pub(super) generation: Option<u64>,
}

impl LedgerWriter {
    pub(super) fn new(ledger: Ledger, boot: BootId) -> Self {
        let batch = LedgerBatch { boot: Some(boot), ..LedgerBatch::default() };
        Self { ledger, batch, unwritten: None, flush_at: None }
    }

    /// `now` in Unix seconds. None: there was nothing to write.
    pub(super) fn write(&mut self, now: i64, is_registering: bool) -> Option<Written> {
        if self.is_clean() {
            self.ledger.flush_released();
            return None;
        }
        let mut batch = self.unwritten.take().unwrap_or_default();
        batch.append(std::mem::take(&mut self.batch));
        batch.now = now;
        batch.is_registering = is_registering;
        let generation = batch.generation;
        match self.ledger.commit(batch) {
            Ok(()) => Some(Written { recorded: Recorded::Ledger, generation }),
            Err(CommitError { error, is_reserved, batch }) => {
                tracing::error!(%error, is_reserved, "cannot write ledger; supervision continues from memory");
                self.unwritten = Some(batch);
                let recorded = if is_reserved { Recorded::Reserve } else { Recorded::Nowhere };
                Some(Written { recorded, generation: None })
            }
        }
    }

    fn is_clean(&self) -> bool {
        self.batch.is_empty() && self.unwritten.is_none()
    }

    /// Whether something waits to be written.
    pub(super) fn is_pending(&mut self) -> bool {
        !self.is_clean() || self.ledger.released().is_pending()
    }

    /// The outcome of an operation that is in the ledger.
    pub(super) fn outcome(&self, operation: OperationId) -> Option<Outcome> {
        self.ledger.outcome(operation)
    }

    pub(super) fn released(&mut self) -> &mut Released {
        self.ledger.released()
    }

    /// Size of the ledger's file.
    pub(super) fn bytes(&self) -> u64 {
        self.ledger.bytes()
    }

    pub(super) fn shrink(&self) {
        self.ledger.shrink();
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::TaskId;

    use super::*;

    #[test]
    fn what_has_changed_is_written_once_with_the_newest_generation() {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(&dir.path().join("ledger.db")).unwrap();
        let mut writer = LedgerWriter::new(ledger, BootId::from("boot"));
        let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), 7);
        assert!(writer.write(1, false).is_some(), "the boot is new");
        writer.batch.generation = Some(5);
        writer.batch.outcomes.push((operation, Outcome::success(true)));

        assert!(writer.is_pending());
        let written = writer.write(2, false);

        assert_eq!(written, Some(Written { recorded: Recorded::Ledger, generation: Some(5) }));
        assert_eq!((writer.write(3, false), writer.is_pending()), (None, false));
        assert!(writer.outcome(operation).is_some());
    }
}
