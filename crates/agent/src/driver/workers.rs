//! Background tasks of the driver, and how they answer it.
//!
//! Promised: the answer that a task owes reaches the inbox even if the task panics ([`answers`](super::answers)).
//! Absent: waiting for them.

use std::future::Future;

use proctor_runtime::Tasks;

use super::answers::{AnswerGuard, spawn_owed};
use super::{Inbox, Input};

#[derive(Clone, Debug)]
pub(super) struct Workers {
    inbox: Inbox,
    tasks: Tasks,
}

impl Workers {
    pub(super) fn new(inbox: Inbox, tasks: Tasks) -> Self {
        Self { inbox, tasks }
    }

    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// A task that need not answer.
    pub(super) fn spawn<F>(&self, name: &'static str, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(name, work);
    }

    /// The driver gets `on_panic` if the task that owes the answer panics.
    pub(super) fn owed(&self, on_panic: Input) -> AnswerGuard {
        AnswerGuard::new(&self.inbox, &self.tasks, on_panic)
    }

    /// Sends the driver the result of `work`, or `on_panic` if it panics.
    pub(super) fn spawn_owed<F>(&self, name: &'static str, on_panic: Input, work: F)
    where
        F: Future<Output = Input> + Send + 'static,
    {
        spawn_owed(&self.inbox, &self.tasks, name, on_panic, work);
    }
}
