//! One configuration file for a program whose settings are flags.
//!
//! Promised: every flag of the program has a key, its long name with `_` for `-`, and there are no other keys; a
//! value is checked by the parser of its flag; a flag overrides its environment variable, which overrides the file,
//! which overrides the default. An unknown key is an error that suggests the key that was probably meant. Absent:
//! what the settings mean, and sections: the keys are few.
//!
//! Start at [`Layers::read`].

mod file;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use file::{ConfigFile, Entry};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// One line for each mistake.
    #[error("{}", lines.join("\n"))]
    Mistakes { lines: Vec<String> },
    /// An error of clap, which prints it itself.
    #[error("{0}")]
    Usage(Box<clap::Error>),
}

/// A program, and which of its arguments are settings.
#[derive(Clone, Debug)]
pub struct Program {
    pub command: Command,
    /// The path to the sub-command whose arguments are settings; empty if the program itself has them.
    pub subcommand: &'static [&'static str],
    /// Global arguments (by id) that are settings, too.
    pub with: &'static [&'static str],
    /// Arguments that are not settings: which file to read, secrets, and what is for one start only.
    pub without: &'static [&'static str],
    /// The argument that names the file.
    pub file: &'static str,
    /// The default file, if it exists.
    pub default_file: PathBuf,
}

/// Where the value of a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment(String),
    File { line: usize },
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::File { line } => write!(f, "file, line {line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Replaces a value that `--help` hides in the environment, too.
const HIDDEN: &str = "(hidden)";

/// One effective setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub key: String,
    /// None if nothing is set, and the program decides. Never a secret.
    pub value: Option<String>,
    pub source: Source,
}

/// Flags, environment, file and defaults, layered.
#[derive(Clone, Debug)]
pub struct Layers {
    /// All of them, parsed.
    pub matches: ArgMatches,
    /// None if there is no file.
    pub file: Option<PathBuf>,
    pub settings: Vec<Setting>,
}

impl Layers {
    /// `arguments` begin with the name of the program, as the operating system passes them.
    pub fn read(program: &Program, arguments: &[OsString]) -> Result<Self, ConfigError> {
        let usage = |error| ConfigError::Usage(Box::new(error));
        // The file has not been read yet.
        let given = lenient(&program.command).try_get_matches_from(arguments).map_err(usage)?;
        let given = program.part(&given);
        let file = program.open(given)?;
        let mut added = Vec::new();
        if let Some(file) = &file {
            program.check(file)?;
            for (arg, entry) in program.found_in(file) {
                if !is_given(given, arg) {
                    added.extend(entry.arguments(arg));
                }
            }
        }
        // Where the arguments of the sub-command, or the global ones, are expected.
        let at = if program.subcommand.is_empty() { 1.min(arguments.len()) } else { arguments.len() };
        let all = [&arguments[..at], &added, &arguments[at..]].concat();
        let matches = program.command.clone().try_get_matches_from(&all).map_err(usage)?;
        let settings = program.settings(given, program.part(&matches), file.as_ref());
        Ok(Self { matches, file: file.map(|file| file.path), settings })
    }
}

impl Program {
    fn part<'a>(&self, matches: &'a ArgMatches) -> &'a ArgMatches {
        let below = |matches: &'a ArgMatches, name: &&str| matches.subcommand_matches(name).unwrap_or(matches);
        self.subcommand.iter().fold(matches, below)
    }

    fn settings_command(&self) -> &Command {
        let mut command = &self.command;
        for name in self.subcommand {
            command = command.find_subcommand(name).expect("the program has this sub-command");
        }
        command
    }

    /// The arguments that are settings, in the order of `--help`.
    fn arguments(&self) -> Vec<&Arg> {
        let is_setting = |arg: &&Arg| {
            let id = arg.get_id().as_str();
            arg.get_long().is_some()
                && id != self.file
                && !self.without.contains(&id)
                && !matches!(id, "help" | "version")
        };
        let own = self.settings_command().get_arguments().filter(is_setting);
        let whole = self.command.get_arguments().filter(|arg| self.with.contains(&arg.get_id().as_str()));
        let mut all: Vec<&Arg> = Vec::new();
        for arg in own.chain(whole) {
            if !all.iter().any(|known| known.get_id() == arg.get_id()) {
                all.push(arg);
            }
        }
        all
    }

    /// A file that was named must exist; the default one need not.
    fn open(&self, given: &ArgMatches) -> Result<Option<ConfigFile>, ConfigError> {
        let named = given.try_get_one::<PathBuf>(self.file).ok().flatten();
        let path = named.unwrap_or(&self.default_file);
        match ConfigFile::read(path) {
            Err(ConfigError::Read { source, .. })
                if named.is_none() && source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// All mistakes at once: unknown keys, and values that their flags refuse.
    fn check(&self, file: &ConfigFile) -> Result<(), ConfigError> {
        let known = self.arguments();
        let mut lines = Vec::new();
        for (key, entry) in &file.entries {
            let found = known.iter().find(|arg| key_of(arg) == *key);
            let problem = match found {
                None => Some(unknown(key, &known)),
                Some(arg) => entry.mismatch(arg).or_else(|| self.refused(arg, entry)),
            };
            if let Some(problem) = problem {
                lines.push(format!("{}, line {}: {key}: {problem}", file.path.display(), entry.line));
            }
        }
        if lines.is_empty() { Ok(()) } else { Err(ConfigError::Mistakes { lines }) }
    }

    /// What the flag's parser says about the value. Conflicts with others are not checked here.
    fn refused(&self, arg: &Arg, entry: &Entry) -> Option<String> {
        let way = std::iter::once("check").chain(self.subcommand.iter().copied()).map(OsString::from);
        let line: Vec<OsString> = way.chain(entry.arguments(arg)).collect();
        let error = lenient(&self.command).try_get_matches_from(line).err()?;
        if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
            return None;
        }
        let said = error.to_string();
        let first = said.lines().next().unwrap_or_default();
        Some(first.strip_prefix("error: ").unwrap_or(first).to_owned())
    }

    fn found_in<'a>(&'a self, file: &'a ConfigFile) -> impl Iterator<Item = (&'a Arg, &'a Entry)> {
        self.arguments().into_iter().filter_map(|arg| Some((arg, file.entries.get(&key_of(arg))?)))
    }

    fn settings(&self, given: &ArgMatches, all: &ArgMatches, file: Option<&ConfigFile>) -> Vec<Setting> {
        let setting = |arg: &Arg| {
            let key = key_of(arg);
            let id = arg.get_id().as_str();
            let values = all.get_raw(id).map(|values| {
                let texts: Vec<_> = values.map(|value| value.to_string_lossy().into_owned()).collect();
                texts.join(",")
            });
            let source = match given.value_source(id) {
                Some(ValueSource::CommandLine) => Source::Flag,
                Some(ValueSource::EnvVariable) => {
                    Source::Environment(arg.get_env().unwrap_or_default().to_string_lossy().into_owned())
                }
                Some(_) | None => match file.and_then(|file| file.entries.get(&key)) {
                    Some(entry) => Source::File { line: entry.line },
                    None => Source::Default,
                },
            };
            let value = values.filter(|value| !value.is_empty());
            let value = if arg.is_hide_env_values_set() { value.map(|_| HIDDEN.to_owned()) } else { value };
            Setting { key, value, source }
        };
        self.arguments().into_iter().map(setting).collect()
    }
}

/// With nothing required: what is missing may come from the file.
fn lenient(command: &Command) -> Command {
    let command = command.clone().mut_args(|arg| arg.required(false));
    command.mut_subcommands(|sub| lenient(&sub))
}

fn is_given(given: &ArgMatches, arg: &Arg) -> bool {
    matches!(given.value_source(arg.get_id().as_str()), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// The key of a flag.
fn key_of(arg: &Arg) -> String {
    arg.get_long().unwrap_or_default().replace('-', "_")
}

fn unknown(key: &str, known: &[&Arg]) -> String {
    let near = known.iter().map(|arg| key_of(arg)).map(|known| (distance(&key.replace('-', "_"), &known), known));
    let near = near.min().filter(|(distance, known)| *distance <= (known.len() / 3).max(2));
    match near {
        Some((_, known)) => format!("there is no such setting; did you mean {known}?"),
        None => "there is no such setting; `config show` lists them".to_owned(),
    }
}

/// The edit distance.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], above + 1);
        for at in 0..other.len() {
            let changed = diagonal + usize::from(letter != other[at]);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// The default path of a program's file.
pub fn system_file(name: &str) -> PathBuf {
    Path::new("/etc/proctor").join(name)
}

#[cfg(test)]
mod tests;
