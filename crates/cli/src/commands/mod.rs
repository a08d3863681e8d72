//! What people do with a server: each command is one or two calls of the native API and one table.

mod events;
mod hosts;
mod operate;
mod pools;
mod processes;
mod wait;
mod webhooks;

use anyhow::Result;
use proctor_client::{Client, Row};

use crate::args::{Command, Connection, GroupCommand, Output};
use crate::output::{self, Sheet, Tone, plain};
use crate::profile;

pub(crate) use events::EventsArgs;
pub(crate) use webhooks::WebhookCommand;

/// How a command ended that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    /// At least one target failed; the rows say which.
    TargetFailed,
}

impl Ended {
    fn well_if(all_succeeded: bool) -> Self {
        if all_succeeded { Self::Well } else { Self::TargetFailed }
    }
}

/// A server, and how its answers are written.
struct Session {
    client: Client,
    output: Output,
}

/// Runs a command that speaks to a server.
pub(crate) async fn run(command: Command, connection: &Connection) -> Result<Ended> {
    let session = Session { client: profile::connect(connection)?, output: connection.output };
    if let Some((kind, args)) = command.operation() {
        return operate::operate(&session, kind, args).await;
    }
    match command {
        Command::Ps(args) => processes::ps(&session, args).await,
        Command::Hosts => hosts::list(&session).await,
        Command::Register(args) => processes::register(&session, args).await,
        Command::Unregister(args) => processes::unregister(&session, args).await,
        Command::Show(args) => processes::show(&session, args).await,
        Command::Status(args) => operate::status(&session, args).await,
        Command::Task(args) => operate::task(&session, args).await,
        Command::Group(GroupCommand::Set(args)) => pools::set(&session, args).await,
        Command::Group(GroupCommand::Get(args)) => pools::get(&session, args).await,
        Command::Events(args) => events::show(&session, args).await,
        Command::Webhook(command) => webhooks::run(&session, command).await,
        Command::Start(_)
        | Command::Stop(_)
        | Command::Restart(_)
        | Command::Reload(_)
        | Command::Kill(_)
        | Command::Manage(_)
        | Command::Release(_) => unreachable!("operations are handled above"),
        Command::Dev(_) | Command::Server(_) | Command::Token(_) | Command::App(_) => {
            unreachable!("main handles what needs no connection")
        }
    }
}

impl Session {
    /// One row for each host of a call that is done at once.
    fn print_rows(&self, rows: &Vec<Row>) -> Result<Ended> {
        output::print(self.output, rows, |rows| {
            let mut sheet = Sheet::new(&["HOST", "CODE", "RESULT", "MESSAGE"]).right(&[1]);
            for row in rows {
                let tone = if row.is_success() { Tone::Good } else { Tone::Bad };
                sheet.row([plain(&row.host), plain(row.code), (row.name.clone(), tone), plain(&row.message)]);
            }
            sheet
        })?;
        Ok(Ended::well_if(rows.iter().all(Row::is_success)))
    }
}
