//! Caches polled tasks as text.
//!
//! Promised: a response shows every outcome that was in the store when its call began, so no poll shows less than an
//! earlier one. That depends on the store alone: an outcome is added once and never changed, so the number of
//! outcomes, which every poll reads, tells whether a text is current; if not, only what is new is read and rendered.
//! The cache is bounded in bytes; the least recently read entry goes first, and any after [`AGE_MAX`]. Agent ids are
//! those bound when the text was rendered; binding an id clears the cache.
//! Absent: anything that a restart could lose; who may read a task, which is checked before, on every poll; texts of
//! calls other than the result calls.
//! Start at `rendition`, one task as text.

mod rendition;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{AgentId, TaskId};
use proctor_store::{StoreError, TaskSummary, TaskView};

use super::language::Language;
use crate::control::Control;
pub(super) use rendition::Shape;
use rendition::{BoundIds, RenderedTask};

type Result<T> = std::result::Result<T, StoreError>;

/// About fifty finished tasks of 10,000 targets.
const BYTES_MAX: usize = 128 * 1024 * 1024;
/// Clients poll more often than this.
const AGE_MAX: Duration = Duration::from_secs(600);
/// Counted per entry in addition to its text, so that their number is bounded, too.
const ENTRY_BYTES: usize = 8 * 1024;

/// One task in one shape and language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    task: TaskId,
    shape: Shape,
    language: Language,
}

/// Held while the text is brought up to date, so that many who poll one task have it done once.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<RenderedTask>>>>;

#[derive(Debug)]
pub(super) struct TaskCache {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

impl Default for TaskCache {
    fn default() -> Self {
        Self::bounded(BYTES_MAX)
    }
}

impl TaskCache {
    fn bounded(bytes_max: usize) -> Self {
        Self { kept: Mutex::default(), bytes_max }
    }

    /// Clears all texts: what they show besides outcomes has changed.
    pub(super) fn clear(&self) {
        *self.kept.lock() = Kept::default();
    }

    /// Drops the texts that nobody has read for [`AGE_MAX`].
    pub(super) fn forget_unread(&self, now: Instant) {
        let mut kept = self.kept.lock();
        let is_old = |entry: &Entry| now.saturating_duration_since(entry.read_at) >= AGE_MAX;
        let old: Vec<Key> = kept.entries.iter().filter(|(_, entry)| is_old(entry)).map(|(key, _)| *key).collect();
        for key in old {
            kept.remove(&key);
        }
    }

    /// The task in the current language, with at least the outcomes that the summary counts; None
    /// where it was forgotten meanwhile.
    pub(super) async fn of(
        &self,
        control: &Control,
        task: &TaskSummary,
        shape: Shape,
    ) -> Result<Option<Arc<RenderedTask>>> {
        let key = Key { task: task.id, shape, language: Language::current() };
        let slot = self.kept.lock().slot(key);
        let mut held = slot.lock().await;
        let is_current = |rendition: &&Arc<RenderedTask>| rendition.known() >= task.total - task.pending;
        if let Some(rendition) = held.as_ref().filter(is_current) {
            return Ok(Some(rendition.clone()));
        }
        let renewed = renewed(control, key, held.clone()).await?;
        // What was there and is gone was deleted.
        let renewed = renewed.filter(|rendition| is_current(&rendition));
        let bytes = renewed.as_ref().map(|rendition| rendition.bytes());
        held.clone_from(&renewed);
        self.kept.lock().weigh(key, bytes, self.bytes_max);
        Ok(renewed)
    }
}

/// Reads and renders what is new; None for an unknown task.
async fn renewed(control: &Control, key: Key, old: Option<Arc<RenderedTask>>) -> Result<Option<Arc<RenderedTask>>> {
    let Key { task, shape, language } = key;
    let write: Box<dyn FnOnce() -> RenderedTask + Send> = match old {
        Some(old) => {
            let new = control.new_outcomes(task, old.is_known()).await?;
            Box::new(move || old.with(&new))
        }
        None => {
            let Some(task) = control.whole_task(task).await? else { return Ok(None) };
            let bound = bound_ids(control, &task).await?;
            Box::new(move || RenderedTask::new(shape, task, bound))
        }
    };
    // Off the workers: a large task takes a few tens of milliseconds.
    let written = tokio::task::spawn_blocking(move || language.within(write)).await;
    let failed = |error| StoreError::Failed { what: "write a task", source: Box::new(error) };
    Ok(Some(Arc::new(written.map_err(failed)?)))
}

/// The ids that agents of the task were bound to, by their own.
async fn bound_ids(control: &Control, task: &TaskView) -> Result<BoundIds> {
    let agents: HashSet<&AgentId> = task.targets.iter().filter_map(|view| view.target.reached()).collect();
    let agents: Vec<AgentId> = agents.into_iter().cloned().collect();
    control.bound_ids(&agents).await
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    bytes: usize,
    /// A read counter; a higher number is later.
    reads: u64,
}

#[derive(Debug)]
struct Entry {
    slot: Slot,
    bytes: usize,
    read: u64,
    read_at: Instant,
}

impl Kept {
    fn slot(&mut self, key: Key) -> Slot {
        self.reads += 1;
        let entry = self.entries.entry(key).or_insert_with(|| {
            self.bytes += ENTRY_BYTES;
            Entry { slot: Slot::default(), bytes: ENTRY_BYTES, read: 0, read_at: Instant::now() }
        });
        (entry.read, entry.read_at) = (self.reads, Instant::now());
        entry.slot.clone()
    }

    /// After a text was written, or its task was forgotten: keeps within the bound.
    fn weigh(&mut self, key: Key, bytes: Option<usize>, bytes_max: usize) {
        match bytes {
            None => self.remove(&key),
            Some(bytes) => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    self.bytes = self.bytes - entry.bytes + bytes + ENTRY_BYTES;
                    entry.bytes = bytes + ENTRY_BYTES;
                }
            }
        }
        while self.bytes > bytes_max {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.read).map(|(key, _)| *key);
            let Some(oldest) = oldest else { break };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests;
