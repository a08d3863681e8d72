//! `proctor completion` and `proctor man`: generated from the command line itself, so they are always current.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::args::Cli;
use crate::commands::CommandEnd;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    shell: ShellName,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// One page for each command into this directory, instead of one for all to stdout
    #[arg(long, env = "PROCTOR_MAN_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn completion(args: &CompletionArgs) -> Result<CommandEnd> {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "proctor", &mut script);
    output::write_out(&String::from_utf8(script).context("the completion is not text")?)?;
    Ok(CommandEnd::Success)
}

pub(crate) fn man(args: &ManArgs) -> Result<CommandEnd> {
    match &args.dir {
        Some(dir) => write_pages(dir)?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page).context("cannot write the page")?;
            output::write_out(&String::from_utf8(page).context("the page is not text")?)?;
        }
    }
    Ok(CommandEnd::Success)
}

fn write_pages(dir: &Path) -> Result<()> {
    let context = || format!("cannot write pages to {}", dir.display());
    std::fs::create_dir_all(dir).with_context(context)?;
    clap_mangen::generate_to(Cli::command(), dir).with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();

        write_pages(dir.path()).unwrap();

        for page in ["proctor.1", "proctor-apply.1", "proctor-user-token-create.1"] {
            let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
            assert!(text.contains(".TH"), "{page}");
        }
    }
}
