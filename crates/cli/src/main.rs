//! `proctor`: the server, `proctor dev`, and the command line.
//!
//! Promised: data on stdout and all else on stderr; the exit codes that `--help` lists.

mod admin;
mod args;
mod backup;
mod commands;
mod config;
mod demo;
mod dev;
mod generated_docs;
mod logging;
mod output;
mod profile;
mod relay;
mod report;
mod serve;
mod swarm;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};

use args::{Cli, Command, KeysCommand, TokenCommand};
use commands::{AppCommand, CommandEnd};
use config::Reloader;
use proctor_config::Layers;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let (cli, layers) = match config::parse(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => return report::report(&error, false),
    };
    let is_service = cli.command.is_service();
    if is_service {
        proctor_host::memory::use_few_heaps();
    }
    // Kept until everything is written.
    let _log = match logging::start(&cli.logging, &cli.command) {
        Ok(log) => log,
        Err(error) => return report::report(&error, is_service),
    };
    let reloader = layers.as_ref().map(|layers| Reloader::new(arguments, layers));
    match start(cli, layers, reloader) {
        Ok(CommandEnd::Success) => ExitCode::SUCCESS,
        Ok(CommandEnd::TargetFailed) => ExitCode::from(report::TARGET_FAILED),
        Err(error) => report::report(&error, is_service),
    }
}

fn start(cli: Cli, layers: Option<Layers>, reloader: Option<Reloader>) -> Result<CommandEnd> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")?;
    runtime.block_on(Box::pin(run(cli, layers, reloader)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other command speaks to a server")]
async fn run(cli: Cli, layers: Option<Layers>, reloader: Option<Reloader>) -> Result<CommandEnd> {
    let connection = cli.connection;
    match cli.command {
        Command::Dev(args) => dev::run(args, &connection).await,
        Command::Server(args) => serve::run(*args, reloader).await,
        Command::Relay(args) => relay::run(*args, reloader).await,
        Command::Config(command) => {
            let layers = layers.context("the settings are not known")?;
            config::run(&command, &layers, connection.output)
        }
        Command::Backup(args) => backup::back_up(args).await,
        Command::Restore(args) => backup::restore(args).await,
        Command::Keys(KeysCommand::RotateSigning(args)) => admin::rotate_signing(args).await,
        Command::Token(TokenCommand::Create(args)) => admin::create_token(args, &connection).await,
        Command::App(AppCommand::Create(args)) => admin::create_app(args, &connection).await,
        Command::App(AppCommand::Rotate(args)) => admin::rotate_app(args, &connection).await,
        Command::Swarm(args) => swarm::run(args, &connection).await,
        Command::Completion(args) => generated_docs::completion(&args),
        Command::Man(args) => generated_docs::man(&args),
        other => commands::run(other, &connection).await,
    }
}
