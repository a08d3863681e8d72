//! The commands of the process: held until they may proceed, and ended, rejoined or detached by agents.

use std::time::Duration;

use proctor_model::{CommandExit, CommandResult, Exit, Incarnation, OperationId, OperationKind};
use proctor_supervise::{CommandKind, Event};

use super::{Due, Mark, World};

/// How long supervision waits for a command slot.
const SLOT_PATIENCE_MS: u64 = 5000;

/// A command of the process. Until it may proceed it does nothing, and it vanishes with its agent.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) life: Incarnation,
    kind: CommandKind,
    /// Who waits for its end.
    pub(super) agent: u32,
    ticket: u64,
    operation: Option<OperationId>,
    timeout: Duration,
    pub(super) proceeds: bool,
}

impl World {
    pub(super) fn announce(
        &mut self,
        ticket: u64,
        kind: CommandKind,
        operation: Option<OperationId>,
        timeout: Duration,
    ) {
        let agent = self.agent;
        if self.habits.no_slot && operation.is_none() {
            let end = CommandExit { result: CommandResult::NoSlot, output: String::new() };
            return self.tell(SLOT_PATIENCE_MS, Event::CommandEnded { ticket, end, alive_at: None });
        }
        let life = self.next_life();
        self.commands.push(Command { life: life.clone(), kind, agent, ticket, operation, timeout, proceeds: false });
        self.tell(1, Event::CommandBegun { ticket, command: life });
    }

    pub(super) fn proceed(&mut self, ticket: u64) {
        let agent = self.agent;
        let Some(command) = self.commands.iter_mut().find(|c| (c.agent, c.ticket) == (agent, ticket)) else { return };
        command.proceeds = true;
        let (kind, pid, operation) = (command.kind, command.life.pid, command.operation);
        let timeout = u64::try_from(command.timeout.as_millis()).unwrap();
        self.later(timeout, Due::TimesOut { agent, ticket });
        if let Some(operation) = operation {
            assert!(!self.never.contains(&operation), "a cancelled operation runs");
            self.ran.insert(operation);
            assert!(self.ran_commands.insert((operation, kind.as_str())), "a command of an operation runs again");
        }
        if let (Some(operation), Some(life)) = (operation, self.pid()) {
            self.touch(life, Some(self.requested[&operation].kind));
        }
        let takes = match kind {
            CommandKind::Start | CommandKind::Restart => {
                assert_eq!(self.launch_commands, 0, "two start commands in flight");
                if kind == CommandKind::Start {
                    assert!(self.descendants.is_empty(), "a start beside what an earlier life has left behind");
                }
                if kind == CommandKind::Start {
                    assert!(self.life.is_none(), "a second copy is started");
                }
                if operation.is_none() {
                    let last = Some(self.named);
                    assert!(self.touched.is_none() || self.touched != last, "a start after an operator's stop or kill");
                }
                self.launch_commands += 1;
                self.launches.push((self.now, operation.is_some()));
                if operation.is_none() {
                    self.history.push(Mark::Relaunch(self.now));
                }
                if kind == CommandKind::Restart {
                    self.kill_outside();
                }
                for _ in 0..self.habits.start_forks {
                    let child = self.next_life().start_ticks;
                    self.descendants.push(child);
                }
                self.habits.start_takes_ms
            }
            CommandKind::Stop | CommandKind::Kill => self.habits.stop_takes_ms,
            CommandKind::Reload => 10,
        };
        self.later(takes, Due::Worked { command: pid });
    }

    /// The operation that has begun and not ended.
    pub(super) fn operation_under_way(&self) -> Option<OperationKind> {
        let is_open = |operation: &OperationId| !self.outcomes.contains_key(operation);
        self.begun.iter().find(|(operation, _)| is_open(operation)).map(|(_, request)| request.kind)
    }

    /// The record of a command that may run is on disk: from then on, whoever asked for a start or restart wants the
    /// process back, also if the agent ends before the command runs.
    pub(super) fn note_wish(&mut self, ticket: u64) {
        let agent = self.agent;
        let command = self.commands.iter().find(|command| (command.agent, command.ticket) == (agent, ticket));
        let kind = command.and_then(|command| command.operation).map(|operation| self.requested[&operation].kind);
        if matches!(kind, Some(OperationKind::Start | OperationKind::Restart)) {
            self.touched = None;
        }
    }

    /// Something is done to the life for such an operation.
    pub(super) fn touch(&mut self, life: i32, by: Option<OperationKind>) {
        match by {
            Some(OperationKind::Stop | OperationKind::Kill) => self.touched = Some(life),
            Some(OperationKind::Start | OperationKind::Restart) => self.touched = None,
            Some(OperationKind::Reload | OperationKind::Manage | OperationKind::Release | OperationKind::Status)
            | None => {}
        }
    }

    /// The agent kills a command, with what it has not brought to life yet.
    pub(super) fn end_command(&mut self, ticket: u64, result: CommandResult) {
        let agent = self.agent;
        let Some(index) = self.commands.iter().position(|c| (c.agent, c.ticket) == (agent, ticket)) else { return };
        let command = self.commands.remove(index);
        if self.foreground == Some(command.life.pid) {
            self.foreground = None;
            self.end_unborn();
            self.kill_outside();
        } else if command.proceeds && matches!(command.kind, CommandKind::Start | CommandKind::Restart) {
            self.launch_commands -= 1;
        }
        let end = CommandExit { result, output: String::new() };
        let alive_at = Some(self.now);
        self.tell(1, Event::CommandEnded { ticket, end, alive_at });
    }

    /// Nobody waits for its end any more.
    pub(super) fn detach(&mut self, ticket: u64) {
        let agent = self.agent;
        let Some(command) = self.commands.iter_mut().find(|c| (c.agent, c.ticket) == (agent, ticket)) else { return };
        command.agent = u32::MAX;
        if self.foreground != Some(command.life.pid) {
            self.launch_commands -= 1;
        }
    }

    /// A new agent waits for the end of a command of the one before.
    pub(super) fn rejoin(&mut self, ticket: u64, command: &Incarnation) {
        let agent = self.agent;
        match self.commands.iter_mut().find(|known| known.life == *command) {
            Some(known) => {
                (known.agent, known.ticket) = (agent, ticket);
                self.rejoined.insert((agent, ticket));
            }
            None => self.tell(0, Event::CommandEnded { ticket, end: lost(), alive_at: None }),
        }
    }

    /// The command of that pid is over; whoever started it may see how.
    pub(super) fn command_over(&mut self, pid: i32, exit: i32) {
        let Some(index) = self.commands.iter().position(|command| command.life.pid == pid) else { return };
        let Command { agent, ticket, .. } = self.commands.remove(index);
        let is_rejoined = self.rejoined.contains(&(agent, ticket));
        let end = if is_rejoined { lost() } else { end_of(exit) };
        let alive_at = Some(self.now);
        self.later(0, Due::ToMachine { agent, event: Event::CommandEnded { ticket, end, alive_at } });
    }

    pub(super) fn worked(&mut self, pid: i32) {
        let Some(kind) = self.commands.iter().find(|c| c.life.pid == pid).map(|command| command.kind) else { return };
        match kind {
            CommandKind::Start | CommandKind::Restart if self.habits.foreground => {
                self.foreground = Some(pid);
                self.later(0, Due::Appears);
            }
            CommandKind::Start | CommandKind::Restart => {
                match self.habits.appears_after_ms {
                    Some(after) => self.later(after, Due::Appears),
                    None => self.launch_commands -= 1,
                }
                self.command_over(pid, self.habits.start_exit);
            }
            CommandKind::Stop => {
                if let Some(life) = self.life.clone() {
                    self.fade(&life);
                }
                self.command_over(pid, self.habits.stop_exit);
            }
            CommandKind::Kill => self.command_over(pid, self.habits.stop_exit),
            CommandKind::Reload => self.command_over(pid, 0),
        }
    }
}

fn lost() -> CommandExit {
    CommandExit { result: CommandResult::ExitUnknown, output: String::new() }
}

pub(super) fn end_of(code: i32) -> CommandExit {
    CommandExit { result: CommandResult::Exited(Exit::Code(code)), output: format!("exit {code}") }
}
