//! `proctor config`, and how `proctor server` reads its configuration file: when it starts, and on SIGHUP.
//!
//! Promised: flags and the environment go before the file. A file with a mistake starts nothing, and on SIGHUP changes
//! nothing. What can change while the server runs is in [`RELOADED`]; of everything else that differs, the log says
//! that it needs a restart.

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use proctor_config::{ConfigError, Layers, Program, Setting};
use proctor_server::Server;
use serde_json::json;

use crate::args::{Cli, Command, Output, ServerArgs};
use crate::commands::CommandEnd;
use crate::logging;
use crate::output::{self, TextTable, or_dash, plain};

/// What SIGHUP brings into effect; certificates are read again whether their paths changed or not.
const RELOADED: [&str; 2] = ["log", "rate_limit"];

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the server's configuration file; lists every mistake and exits with 2
    Check(Box<ConfigArgs>),
    /// Show every server setting and where its value comes from
    Show(Box<ConfigArgs>),
}

/// As for `proctor server`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// The command line, with what the configuration file adds to it.
pub(crate) fn parse(arguments: &[OsString]) -> Result<(Cli, Option<Layers>)> {
    let cli = Cli::parse_from(arguments);
    let Some(program) = program(&cli.command) else { return Ok((cli, None)) };
    let layers = read(&program, arguments)?;
    let cli = Cli::from_arg_matches(&layers.matches).context("the configuration cannot be used")?;
    Ok((cli, Some(layers)))
}

fn read(program: &Program, arguments: &[OsString]) -> Result<Layers> {
    match Layers::read(program, arguments) {
        Err(ConfigError::Usage(error)) => error.exit(),
        read => Ok(read?),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other command has a configuration file")]
fn program(command: &Command) -> Option<Program> {
    let (subcommand, file): (&'static [&'static str], _) = match command {
        Command::Server(_) => (&["server"], "server.toml"),
        Command::Relay(_) => (&["relay"], "relay.toml"),
        Command::Config(ConfigCommand::Check(_)) => (&["config", "check"], "server.toml"),
        Command::Config(ConfigCommand::Show(_)) => (&["config", "show"], "server.toml"),
        _ => return None,
    };
    let mut command = Cli::command();
    command.build();
    Some(Program {
        command,
        subcommand,
        with: &["log", "log_format"],
        without: &CONNECTION,
        file: "config",
        default_file: proctor_config::system_file(file),
    })
}

/// Arguments of the whole program that are about being a client.
const CONNECTION: [&str; 8] =
    ["server", "server_fingerprint", "profile", "app_code", "app_secret", "user", "user_token", "output"];

pub(crate) fn run(command: &ConfigCommand, layers: &Layers, output: Output) -> Result<CommandEnd> {
    match command {
        ConfigCommand::Check(args) => check(&args.server, layers),
        ConfigCommand::Show(_) => show(layers, output),
    }
}

/// Beyond the values themselves: whether they can be used together, and whether the files that they name are there.
fn check(args: &ServerArgs, layers: &Layers) -> Result<CommandEnd> {
    let source = args.tls.source(args.http)?;
    args.border.settings(None)?;
    if let Some(source) = source {
        proctor_server::api::Https::check(&source)?;
    }
    let said = match &layers.file {
        Some(file) => format!("{}: no mistakes\n", file.display()),
        None => "there is no configuration file; every setting has a default\n".to_owned(),
    };
    output::write_out(&said)?;
    Ok(CommandEnd::Success)
}

fn show(layers: &Layers, output: Output) -> Result<CommandEnd> {
    let row =
        |setting: &Setting| json!({"key": setting.key, "value": setting.value, "source": setting.source.to_string()});
    let data: Vec<_> = layers.settings.iter().map(row).collect();
    output::print(output, &data, |_| {
        let mut table = TextTable::new(&["KEY", "VALUE", "FROM"]);
        for Setting { key, value, source } in &layers.settings {
            table.row([plain(key), plain(or_dash(value.clone().unwrap_or_default())), plain(source)]);
        }
        table
    })?;
    Ok(CommandEnd::Success)
}

/// Reads the configuration again when it is told to.
#[derive(Debug)]
pub(crate) struct Reloader {
    arguments: Vec<OsString>,
    settings: Vec<Setting>,
}

impl Reloader {
    pub(crate) fn new(arguments: Vec<OsString>, layers: &Layers) -> Self {
        Self { arguments, settings: layers.settings.clone() }
    }

    /// After SIGHUP.
    pub(crate) fn reload(&mut self, server: &Server) {
        if let Some(https) = &server.https {
            https.reload();
        }
        if let Err(error) = self.apply(server) {
            tracing::error!(error = format!("{error:#}"), "configuration not reloaded: everything stays as it was");
        }
    }

    fn apply(&mut self, server: &Server) -> Result<()> {
        let first = Cli::try_parse_from(&self.arguments)?;
        let program = program(&first.command).context("the command has no configuration")?;
        let layers = Layers::read(&program, &self.arguments)?;
        let cli = Cli::from_arg_matches(&layers.matches)?;
        let Command::Server(args) = &cli.command else { return Ok(()) };
        let changed: Vec<&str> = differing(&self.settings, &layers.settings);
        let (now, later): (Vec<&str>, Vec<&str>) = changed.into_iter().partition(|key| RELOADED.contains(key));
        if now.contains(&"log") {
            logging::change(cli.logging.log.as_deref())?;
        }
        if now.contains(&"rate_limit") {
            server.set_rate_limit(args.border.rate_limit());
        }
        for key in &later {
            tracing::warn!(key, "setting changed in the configuration: it needs a restart");
        }
        // What waits for a restart is told again by the next reload.
        self.settings = merged(&self.settings, &layers.settings, &later);
        tracing::info!(applied = now.join(","), restart = later.join(","), "configuration reloaded");
        Ok(())
    }
}

fn differing<'a>(old: &[Setting], new: &'a [Setting]) -> Vec<&'a str> {
    let is_old = |setting: &&Setting| old.iter().any(|old| old.key == setting.key && old.value == setting.value);
    new.iter().filter(|setting| !is_old(setting)).map(|setting| setting.key.as_str()).collect()
}

fn merged(old: &[Setting], new: &[Setting], waiting: &[&str]) -> Vec<Setting> {
    let of = |setting: &Setting| {
        let kept = || old.iter().find(|old| old.key == setting.key).cloned();
        if waiting.contains(&setting.key.as_str()) { kept() } else { None }.unwrap_or_else(|| setting.clone())
    };
    new.iter().map(of).collect()
}
