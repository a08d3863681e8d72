//! The user commands: each is one or two calls of the native API and one table.
//!
//! Absent: flags (`args`), output formats (`output`), exit codes (`report`), and business logic. Start at
//! `processes`.

mod access;
mod apply;
mod audit;
mod authority;
mod businesses;
mod doctor;
mod events;
mod history;
mod host_identity;
mod hosts;
mod join;
mod logs;
mod maintenance;
mod operate;
mod pools;
mod processes;
mod relays;
mod tasks;
mod tokens;
mod top;
mod upgrades;
mod usage;
mod wait;
mod watch;
mod webhooks;

use anyhow::Result;
use proctor_client::{Client, Row};

use crate::args::{Command, Connection, GroupCommand, Output, TokenCommand};
use crate::output::{self, CellStyle, TextTable, plain};
use crate::profile;

pub(crate) use access::{AppCommand, BindingCommand, RoleCommand, RotateArgs, UserCommand};
pub(crate) use apply::{ApplyArgs, FilesArgs};
pub(crate) use audit::AuditCommand;
pub(crate) use authority::AuthorityCommand;
pub(crate) use businesses::{BusinessCommand, BusinessSetCommand, HostsCommand};
pub(crate) use events::EventsArgs;
pub(crate) use history::HistoryArgs;
pub(crate) use join::JoinArgs;
pub(crate) use logs::LogsArgs;
pub(crate) use relays::RelaysCommand;
pub(crate) use tasks::TaskArgs;
pub(crate) use top::TopArgs;
pub(crate) use upgrades::UpgradeCommand;
pub(crate) use usage::UsageArgs;
pub(crate) use watch::WatchArgs;
pub(crate) use webhooks::WebhookCommand;

/// How a command that was carried out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    Success,
    /// At least one target failed; the rows say which.
    TargetFailed,
}

impl CommandEnd {
    fn success_if(all_succeeded: bool) -> Self {
        if all_succeeded { Self::Success } else { Self::TargetFailed }
    }
}

/// A server, and the output format of its answers.
struct Session {
    client: Client,
    output: Output,
}

/// Runs a command that calls a server.
pub(crate) async fn run(command: Command, connection: &Connection) -> Result<CommandEnd> {
    let session = Session { client: profile::connect(connection)?, output: connection.output };
    if let Some((kind, args)) = command.operation() {
        return operate::operate(&session, kind, args).await;
    }
    match command {
        Command::Ps(args) => processes::ps(&session, args).await,
        Command::Hosts(args) => hosts::run(&session, args).await,
        Command::Register(args) => processes::register(&session, args).await,
        Command::Apply(args) => apply::apply(&session, args).await,
        Command::Diff(args) => apply::diff(&session, args).await,
        Command::Unregister(args) => processes::unregister(&session, args).await,
        Command::Show(args) => processes::show(&session, args).await,
        Command::Status(args) => operate::status(&session, args).await,
        Command::History(args) => history::show(&session, args).await,
        Command::Usage(args) => usage::show(&session, args).await,
        Command::Logs(args) => logs::show(&session, args).await,
        Command::Task(args) => tasks::run(&session, args).await,
        Command::Group(GroupCommand::Set(args)) => pools::set(&session, args).await,
        Command::Group(GroupCommand::Get(args)) => pools::get(&session, args).await,
        Command::Group(GroupCommand::Delete(args)) => pools::delete(&session, args).await,
        Command::Events(args) => events::show(&session, args).await,
        Command::Webhook(command) => webhooks::run(&session, command).await,
        Command::Builds => upgrades::builds(&session).await,
        Command::Upgrade(command) => upgrades::run(&session, command).await,
        Command::Top(args) => top::top(&session, args).await,
        Command::Whoami => access::whoami(&session).await,
        Command::Grants(args) => access::grants(&session, args).await,
        Command::Doctor => doctor::examine(&session).await,
        Command::App(command) => access::app(&session, command).await,
        Command::User(command) => access::user(&session, command).await,
        Command::Role(command) => access::role(&session, command).await,
        Command::Binding(command) => access::binding(&session, command).await,
        Command::Audit(command) => audit::run(&session, command).await,
        Command::Business(command) => businesses::business(&session, command).await,
        Command::BusinessSet(command) => businesses::business_set(&session, command).await,
        Command::Start(_)
        | Command::Stop(_)
        | Command::Restart(_)
        | Command::Reload(_)
        | Command::Kill(_)
        | Command::Manage(_)
        | Command::Release(_) => unreachable!("operations are handled above"),
        Command::Join(args) => join::run(&session, args).await,
        Command::Authority(command) => authority::run(&session, command).await,
        Command::Relays(command) => relays::run(&session, command).await,
        Command::Token(TokenCommand::List) => tokens::list(&session).await,
        Command::Token(TokenCommand::Revoke(args)) => tokens::revoke(&session, &args.id).await,
        Command::Dev(_)
        | Command::Server(_)
        | Command::Relay(_)
        | Command::Backup(_)
        | Command::Config(_)
        | Command::Restore(_)
        | Command::Keys(_)
        | Command::Token(TokenCommand::Create(_))
        | Command::Swarm(_)
        | Command::Completion(_)
        | Command::Man(_) => {
            unreachable!("main handles what needs no connection")
        }
    }
}

impl Session {
    /// One row per host of a call that completes at once.
    fn print_rows(&self, rows: &Vec<Row>) -> Result<CommandEnd> {
        output::print(self.output, rows, |rows| {
            let mut table = TextTable::new(&["HOST", "CODE", "RESULT", "MESSAGE"]).right(&[1]);
            for row in rows {
                let style = if row.is_success() { CellStyle::Good } else { CellStyle::Bad };
                table.row([
                    plain(&row.host),
                    plain(row.code),
                    (row.name.clone(), style),
                    plain(&row.localized.message),
                ]);
            }
            table
        })?;
        Ok(CommandEnd::success_if(rows.iter().all(Row::is_success)))
    }
}
