//! The running commands, one per process, and how the driver can still control them.
//!
//! Promised: a request for an older command of a process never reaches the current one.
//! Absent: running them; see `execute`.

use std::collections::HashMap;

use proctor_host::{CommandRelease, HeldCommand, command_release};
use proctor_model::ProcessKey;
use proctor_supervise::Ticket;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::slots::CommandSlots;

#[derive(Debug, Default)]
pub(super) struct CommandsUnderWay {
    /// How many may begin at once.
    pub(super) slots: CommandSlots,
    of: HashMap<ProcessKey, CommandHandle>,
}

/// The driver's end of a command.
#[derive(Debug)]
struct CommandHandle {
    ticket: Ticket,
    release: Option<CommandRelease>,
    end: Option<oneshot::Sender<()>>,
    left_alone: CancellationToken,
}

/// The command's end of it.
#[derive(Debug)]
pub(super) struct CommandChannels {
    /// It may run. Dropped on the other side, it never does.
    pub(super) held: HeldCommand,
    /// It is no longer wanted.
    pub(super) end: oneshot::Receiver<()>,
    /// Nobody waits for it any more.
    pub(super) left_alone: CancellationToken,
}

impl CommandsUnderWay {
    pub(super) fn begin(&mut self, key: ProcessKey, ticket: Ticket) -> CommandChannels {
        let (release, held) = command_release();
        let (ask, end) = oneshot::channel();
        let left_alone = CancellationToken::new();
        let channels = CommandChannels { held, end, left_alone: left_alone.clone() };
        self.of.insert(key, CommandHandle { ticket, release: Some(release), end: Some(ask), left_alone });
        channels
    }

    /// Lets a command run that was held.
    pub(super) fn proceed(&mut self, key: &ProcessKey, ticket: Ticket) {
        if let Some(release) = self.get(key, ticket).and_then(|command| command.release.take()) {
            release.proceed();
        }
    }

    /// Ends it with its tree; one that is held never runs. Its end is awaited.
    pub(super) fn kill(&mut self, key: &ProcessKey, ticket: Ticket) {
        if let Some(command) = self.get(key, ticket) {
            command.release = None;
            let _ = command.end.take().map(|end| end.send(()));
        }
    }

    /// Its exit is no longer reported; one that is held never runs. False: there is no such command.
    pub(super) fn leave(&mut self, key: &ProcessKey, ticket: Ticket) -> bool {
        let Some(command) = self.get(key, ticket) else { return false };
        command.left_alone.cancel();
        self.of.remove(key);
        true
    }

    /// It can no longer be controlled.
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
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn key() -> ProcessKey {
        "ns/p".parse().unwrap()
    }

    /// Whether the command that is held runs.
    fn runs(held: HeldCommand) -> bool {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        held.hold(ours);
        theirs.read(&mut [0]).is_ok_and(|read| read == 1)
    }

    #[test]
    fn a_held_command_runs_when_it_may_and_ends_when_it_is_told() {
        let mut commands = CommandsUnderWay::default();
        let mut channels = commands.begin(key(), 7);

        commands.proceed(&key(), 7);
        commands.kill(&key(), 7);

        assert_eq!((runs(channels.held), channels.end.try_recv()), (true, Ok(())));
        assert!(!channels.left_alone.is_cancelled());
        commands.ended(&key(), 7);
        assert_eq!(commands.len(), 0);
    }

    #[test]
    fn a_command_that_is_killed_while_it_is_held_never_runs() {
        let mut commands = CommandsUnderWay::default();
        let channels = commands.begin(key(), 7);

        commands.kill(&key(), 7);
        commands.proceed(&key(), 7);

        assert!(!runs(channels.held));
    }

    #[test]
    fn words_for_an_older_command_do_not_reach_the_present_one() {
        let mut commands = CommandsUnderWay::default();
        commands.begin(key(), 7);
        let present = commands.begin(key(), 8);

        commands.proceed(&key(), 7);
        commands.kill(&key(), 7);
        commands.ended(&key(), 7);

        assert!(!commands.leave(&key(), 7) && commands.len() == 1);
        assert!(!runs(present.held));
        assert!(commands.leave(&key(), 8) && present.left_alone.is_cancelled());
        assert_eq!(commands.len(), 0);
    }
}
