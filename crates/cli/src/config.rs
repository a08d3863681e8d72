//! `proctor config`, and how `proctor server` and `proctor relay` read their configuration files: when they start, and on
//! SIGHUP.
//!
//! Promised: flags and the environment override the file. A file with a mistake starts nothing, and on SIGHUP
//! changes nothing. [`OF_SERVER`] and [`OF_RELAY`] list what can change while a program runs; for everything else
//! that differs, the log says that it needs a restart.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use proctor_config::{ConfigError, Layers, Program, Setting};
use proctor_server::Server;
use serde_json::json;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command, Output, ServerArgs};
use crate::commands::CommandEnd;
use crate::logging;
use crate::output::{self, TextTable, or_dash, plain};
use crate::relay::RelayArgs;

/// What SIGHUP applies; certificates are read again whether or not their paths changed.
const OF_SERVER: &[&str] = &[
    "log",
    "rate_limit",
    "metrics_from",
    "drain_time",
    "keep_tasks",
    "keep_status_tasks",
    "keep_events",
    "events_max",
    "keep_audit",
    "keep_tombstones",
    "keep_tokens",
    "keep_specs",
    "audit_archive",
];
const OF_RELAY: &[&str] = &["log"];

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the server's configuration file; lists every mistake and exits with 2
    Check(Box<ConfigArgs>),
    /// Show every server setting and where its value comes from
    Show(Box<ConfigArgs>),
    /// The same for the file of a relay
    #[command(subcommand)]
    Relay(RelayConfigCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RelayConfigCommand {
    /// Check the relay's configuration file; lists every mistake and exits with 2
    Check(Box<RelayArgs>),
    /// Show every relay setting and where its value comes from
    Show(Box<RelayArgs>),
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
        Command::Config(ConfigCommand::Relay(RelayConfigCommand::Check(_))) => {
            (&["config", "relay", "check"], "relay.toml")
        }
        Command::Config(ConfigCommand::Relay(RelayConfigCommand::Show(_))) => {
            (&["config", "relay", "show"], "relay.toml")
        }
        _ => return None,
    };
    let mut command = Cli::command();
    command.build();
    Some(Program {
        command,
        subcommand,
        with: &["log", "log_format"],
        without: &NO_SETTINGS,
        file: "config",
        default_file: proctor_config::system_file(file),
    })
}

/// Global arguments that only concern clients.
const NO_SETTINGS: [&str; 8] =
    ["server", "server_fingerprint", "profile", "app_code", "app_secret", "user", "user_token", "output"];

pub(crate) fn run(command: &ConfigCommand, layers: &Layers, output: Output) -> Result<CommandEnd> {
    match command {
        ConfigCommand::Check(args) => check(&args.server, layers),
        ConfigCommand::Relay(RelayConfigCommand::Check(args)) => args.required().and_then(|_| no_mistakes(layers)),
        ConfigCommand::Show(_) | ConfigCommand::Relay(RelayConfigCommand::Show(_)) => show(layers, output),
    }
}

/// Beyond the values themselves: whether they can be combined, and whether the files that they name exist.
fn check(args: &ServerArgs, layers: &Layers) -> Result<CommandEnd> {
    let source = args.tls.source(args.http)?;
    args.border.settings(None)?;
    if let Some(source) = source {
        proctor_server::api::Https::check(&source)?;
    }
    no_mistakes(layers)
}

fn no_mistakes(layers: &Layers) -> Result<CommandEnd> {
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

/// Reads the configuration again on request.
#[derive(Debug)]
pub(crate) struct Reloader {
    arguments: Vec<OsString>,
    settings: Vec<Setting>,
    /// The difference from the configuration at the start.
    pub(crate) drain_time: Option<Duration>,
}

/// The current configuration.
struct Reread {
    cli: Cli,
    log: EnvFilter,
    settings: Vec<Setting>,
    /// Keys whose values differ: those that can change at once, and those that need a restart.
    now: Vec<String>,
    later: Vec<String>,
}

impl Reloader {
    pub(crate) fn new(arguments: Vec<OsString>, layers: &Layers) -> Self {
        Self { arguments, settings: layers.settings.clone(), drain_time: None }
    }

    /// After SIGHUP.
    pub(crate) fn reload_server(&mut self, server: &Server, data_dir: &Path) {
        if let Some(https) = &server.https {
            https.reload();
        }
        let applied = self.apply_to_server(server, data_dir);
        log_failure(applied);
    }

    /// After SIGHUP.
    pub(crate) fn reload_relay(&mut self) {
        let applied = self.read_again(OF_RELAY).and_then(|reread| self.settle(reread));
        log_failure(applied);
    }

    fn apply_to_server(&mut self, server: &Server, data_dir: &Path) -> Result<()> {
        let reread = self.read_again(OF_SERVER)?;
        let Command::Server(args) = &reread.cli.command else { return Ok(()) };
        server.set_rate_limit(args.border.rate_limit());
        server.set_metrics_from(args.border.metrics_from.clone());
        self.drain_time = Some(args.drain_time);
        server.set_retention(args.retention.retention(data_dir));
        self.settle(reread)
    }

    /// Finds every mistake before anything is applied.
    fn read_again(&self, at_once: &[&str]) -> Result<Reread> {
        let first = Cli::try_parse_from(&self.arguments)?;
        let program = program(&first.command).context("the command has no configuration")?;
        let Layers { matches, settings, .. } = Layers::read(&program, &self.arguments)?;
        let cli = Cli::from_arg_matches(&matches)?;
        let log = logging::service_filter(cli.logging.log.as_deref())?;
        let changed = differing(&self.settings, &settings);
        let (now, later) = changed.into_iter().partition(|key| at_once.contains(&key.as_str()));
        Ok(Reread { cli, log, settings, now, later })
    }

    /// Applies what all programs have, and remembers the values in force.
    fn settle(&mut self, reread: Reread) -> Result<()> {
        let Reread { log, settings, now, later, cli: _ } = reread;
        logging::change(log)?;
        for key in &later {
            tracing::warn!(key, "changed setting needs a restart");
        }
        // What needs a restart is reported again by the next reload.
        self.settings = merged(&self.settings, &settings, &later);
        tracing::info!(applied = now.join(","), restart = later.join(","), "configuration reloaded");
        Ok(())
    }
}

fn log_failure(applied: Result<()>) {
    if let Err(error) = applied {
        tracing::error!(error = format!("{error:#}"), "configuration not reloaded, keeping the previous one");
    }
}

fn differing(old: &[Setting], new: &[Setting]) -> Vec<String> {
    let is_old = |setting: &&Setting| old.iter().any(|old| old.key == setting.key && old.value == setting.value);
    new.iter().filter(|setting| !is_old(setting)).map(|setting| setting.key.clone()).collect()
}

fn merged(old: &[Setting], new: &[Setting], waiting: &[String]) -> Vec<Setting> {
    let of = |setting: &Setting| {
        let kept = || old.iter().find(|old| old.key == setting.key).cloned();
        if waiting.contains(&setting.key) { kept() } else { None }.unwrap_or_else(|| setting.clone())
    };
    new.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_files_have_no_mistakes() {
        for (words, file, key) in [
            (&["config", "show"][..], "server/server.toml", "data_dir"),
            (&["config", "relay", "show"], "relay/relay.toml", "listen"),
        ] {
            let file = format!("{}/../../packaging/deb/{file}", env!("CARGO_MANIFEST_DIR"));
            let line = [&["proctor"], words, &["--config", &file]].concat();
            let arguments: Vec<OsString> = line.into_iter().map(OsString::from).collect();

            let (_, layers) = parse(&arguments).unwrap();

            let layers = layers.unwrap();
            let setting = layers.settings.iter().find(|setting| setting.key == key).unwrap();
            assert!(setting.source.to_string().starts_with("file, line"), "{setting:?}");
        }
    }

    #[test]
    fn a_join_token_in_the_file_of_a_relay_counts_and_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("relay.toml");
        std::fs::write(&file, "token = \"PT1.secret\"\n").unwrap();
        let arguments = ["proctor", "relay", "--config"].map(OsString::from).into_iter().chain([file.into()]);

        let (cli, layers) = parse(&arguments.collect::<Vec<_>>()).unwrap();

        let Command::Relay(args) = cli.command else { panic!("it is a relay") };
        assert_eq!(args.token.as_deref(), Some("PT1.secret"));
        assert!(!format!("{:?}", layers.unwrap().settings).contains("PT1.secret"));
    }
}
