//! `proctor`: the server, the one-command start, and the command line for people.
//!
//! Promised: data on stdout and all else on stderr; the exit codes that `--help` lists.

mod admin;
mod args;
mod commands;
mod demo;
mod dev;
mod logging;
mod output;
mod papers;
mod profile;
mod report;
mod serve;
mod swarm;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use args::{Cli, Command, TokenCommand};
use commands::{AppCommand, Ended};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_service = cli.command.is_service();
    if is_service {
        proctor_host::memory::use_few_heaps();
    }
    // Kept until everything is said.
    let _log = match logging::start(&cli.logging, &cli.command) {
        Ok(log) => log,
        Err(error) => return report::report(&error, is_service),
    };
    match start(cli) {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::TargetFailed) => ExitCode::from(report::TARGET_FAILED),
        Err(error) => report::report(&error, is_service),
    }
}

fn start(cli: Cli) -> Result<Ended> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the program")?;
    runtime.block_on(Box::pin(run(cli)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other command speaks to a server")]
async fn run(cli: Cli) -> Result<Ended> {
    let connection = cli.connection;
    match cli.command {
        Command::Dev(args) => dev::run(args, &connection).await,
        Command::Server(args) => serve::run(args).await,
        Command::Backup(args) => serve::back_up(args).await,
        Command::Token(TokenCommand::Create(args)) => admin::create_token(args, &connection).await,
        Command::App(AppCommand::Create(args)) => admin::create_app(args, &connection).await,
        Command::App(AppCommand::Rotate(args)) => admin::rotate_app(args, &connection).await,
        Command::Swarm(args) => swarm::run(args, &connection).await,
        Command::Completion(args) => papers::completion(&args),
        Command::Man(args) => papers::man(&args),
        other => commands::run(other, &connection).await,
    }
}
