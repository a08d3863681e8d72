//! The commands under way, one for each process, and what the driver can still say to them.
//!
//! Promised: a word for an older command of a process never reaches the present one. Absent: running them; see
//! `execute`.

use std::collections::HashMap;

use proctor_model::ProcessKey;
use proctor_supervise::Ticket;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(super) struct CommandsUnderWay {
    of: HashMap<ProcessKey, CommandHandle>,
}

/// The driver's end of a command.
#[derive(Debug)]
struct CommandHandle {
    ticket: Ticket,
    proceed: Option<oneshot::Sender<()>>,
    end: Option<oneshot::Sender<()>>,
    left_alone: CancellationToken,
}

/// The command's end of it.
#[derive(Debug)]
pub(super) struct CommandChannels {
    /// It may run. Dropped on the other side, it never does.
    pub(super) proceed: oneshot::Receiver<()>,
    /// It is no longer wanted.
    pub(super) end: oneshot::Receiver<()>,
    /// Nobody waits for it any more.
    pub(super) left_alone: CancellationToken,
}

impl CommandsUnderWay {
    pub(super) fn begin(&mut self, key: ProcessKey, ticket: Ticket) -> CommandChannels {
        let (let_go, proceed) = oneshot::channel();
        let (ask, end) = oneshot::channel();
        let left_alone = CancellationToken::new();
        let channels = CommandChannels { proceed, end, left_alone: left_alone.clone() };
        self.of.insert(key, CommandHandle { ticket, proceed: Some(let_go), end: Some(ask), left_alone });
        channels
    }

    /// Lets a command run that was held.
    pub(super) fn proceed(&mut self, key: &ProcessKey, ticket: Ticket) {
        if let Some(proceed) = self.get(key, ticket).and_then(|command| command.proceed.take()) {
            let _ = proceed.send(());
        }
    }

    /// Ends it with its tree; one that is held never runs. Its end is awaited.
    pub(super) fn kill(&mut self, key: &ProcessKey, ticket: Ticket) {
        if let Some(command) = self.get(key, ticket) {
            command.proceed = None;
            let _ = command.end.take().map(|end| end.send(()));
        }
    }

    /// Its end is not told any more; one that is held never runs. False: there is no such command.
    pub(super) fn leave(&mut self, key: &ProcessKey, ticket: Ticket) -> bool {
        let Some(command) = self.get(key, ticket) else { return false };
        command.left_alone.cancel();
        self.of.remove(key);
        true
    }

    /// There is nothing to say to it any more.
    pub(super) fn ended(&mut self, key: &ProcessKey, ticket: Ticket) {
        if self.get(key, ticket).is_some() {
            self.of.remove(key);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    pub(super) fn shrink(&mut self) {
        self.of.shrink_to_fit();
    }

    fn get(&mut self, key: &ProcessKey, ticket: Ticket) -> Option<&mut CommandHandle> {
        self.of.get_mut(key).filter(|command| command.ticket == ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ProcessKey {
        "ns/p".parse().unwrap()
    }

    #[test]
    fn a_held_command_runs_when_it_may_and_ends_when_it_is_told() {
        let mut commands = CommandsUnderWay::default();
        let mut channels = commands.begin(key(), 7);
        assert!(channels.proceed.try_recv().is_err());

        commands.proceed(&key(), 7);
        commands.kill(&key(), 7);

        assert_eq!((channels.proceed.try_recv(), channels.end.try_recv()), (Ok(()), Ok(())));
        assert!(!channels.left_alone.is_cancelled());
        commands.ended(&key(), 7);
        assert_eq!(commands.len(), 0);
    }

    #[test]
    fn a_command_that_is_killed_while_it_is_held_never_runs() {
        let mut commands = CommandsUnderWay::default();
        let mut channels = commands.begin(key(), 7);

        commands.kill(&key(), 7);
        commands.proceed(&key(), 7);

        assert_eq!(channels.proceed.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn words_for_an_older_command_do_not_reach_the_present_one() {
        let mut commands = CommandsUnderWay::default();
        commands.begin(key(), 7);
        let mut present = commands.begin(key(), 8);

        commands.proceed(&key(), 7);
        commands.kill(&key(), 7);
        commands.ended(&key(), 7);

        assert!(!commands.leave(&key(), 7) && commands.len() == 1);
        assert_eq!(present.proceed.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(commands.leave(&key(), 8) && present.left_alone.is_cancelled());
        assert_eq!(commands.len(), 0);
    }
}
