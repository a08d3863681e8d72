//! How many commands run at the same time, by what they are for: a storm of restarts must not hold
//! up an operator's stop, nor questions either of them.

use std::sync::Arc;

use proctor_host::{Command, Host};
use proctor_model::{CommandEnd, CommandResult};
use proctor_supervise::PERMIT_WAIT;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const OPERATIONS_MAX: usize = 64;
const SUPERVISION_MAX: usize = 64;
const QUESTIONS_MAX: usize = 16;

/// What a command is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Operation,
    Supervision,
    /// Version and health.
    Question,
}

#[derive(Debug)]
pub(super) struct Permits {
    operations: Permit,
    supervision: Permit,
    questions: Permit,
}

#[derive(Clone, Debug)]
pub(super) struct Permit(Arc<Semaphore>);

impl Default for Permits {
    fn default() -> Self {
        let permit = |max| Permit(Arc::new(Semaphore::new(max)));
        Self {
            operations: permit(OPERATIONS_MAX),
            supervision: permit(SUPERVISION_MAX),
            questions: permit(QUESTIONS_MAX),
        }
    }
}

impl Permits {
    pub(super) fn of(&self, kind: Kind) -> Permit {
        match kind {
            Kind::Operation => self.operations.clone(),
            Kind::Supervision => self.supervision.clone(),
            Kind::Question => self.questions.clone(),
        }
    }
}

impl Permit {
    /// None: no turn within the time that the machines count on.
    pub(super) async fn wait(self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(PERMIT_WAIT, self.0.acquire_owned()).await.ok()?.ok()
    }

    pub(super) async fn run(self, host: &Host, command: Command) -> CommandEnd {
        match self.wait().await {
            Some(_permit) => host.run(command).await,
            None => CommandEnd { result: CommandResult::Postponed, output: String::new() },
        }
    }
}
