//! `proctor join-command`: one line that enrols a machine as a host.
//!
//! The line does not trust the network: the program's digest comes over the caller's own session with the server
//! and is checked before the program runs, and the token pins the server's authority. The token is in the
//! environment of the program, never among its arguments. A shell that gets the line as an argument (`ssh HOST
//! LINE`, `sudo sh -c LINE`) exposes it, though: for that case the token can be put into a file, and the line reads
//! it from standard input.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use proctor_client::{DownloadView, NewToken};

use super::{CommandEnd, Session};
use crate::args::parse_duration;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// Where agents reach the server's link, or the relays of their cloud area [default: the server's name with its link port]
    #[arg(long, env = "PROCTOR_JOIN_LINK", value_name = "HOST:PORT[,HOST:PORT]", value_parser = proctor_agent::parse_links)]
    link: Option<String>,
    /// URL of the server as new hosts reach it [default: as this command does]
    #[arg(long, env = "PROCTOR_JOIN_URL", value_name = "URL")]
    url: Option<String>,
    /// Architecture of the new hosts, as `uname -m` prints it
    #[arg(long, env = "PROCTOR_JOIN_ARCH", value_name = "ARCH", default_value = "x86_64")]
    arch: String,
    /// Number of hosts that may join with the command
    #[arg(long, env = "PROCTOR_TOKEN_USES", value_name = "N", default_value_t = 1)]
    uses: u32,
    /// How long the command is valid: a number with s, m, h or d
    #[arg(long, env = "PROCTOR_TOKEN_TTL", value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    ttl: Duration,
    /// The business that new hosts belong to
    #[arg(long, env = "PROCTOR_BUSINESS", value_name = "ID")]
    business: Option<u64>,
    /// The cloud area of the new hosts
    #[arg(long, env = "PROCTOR_CLOUD_ID", value_name = "N")]
    cloud_id: Option<u32>,
    /// Put the token into this new file, and print a line that reads it from standard input: `ssh HOST LINE < FILE`
    #[arg(long, env = "PROCTOR_JOIN_TOKEN_TO", value_name = "FILE")]
    token_to: Option<PathBuf>,
}

pub(super) async fn run(session: &Session, args: JoinArgs) -> Result<CommandEnd> {
    let downloads = session.client.downloads().await?;
    let wanted = format!("proctor-agent-{}", args.arch);
    let Some(file) = downloads.files.iter().find(|file| file.name == wanted) else {
        let known: Vec<&str> = downloads.files.iter().map(|file| file.name.as_str()).collect();
        let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
        bail!(
            "the server has no {wanted} to download (it has {known}): put the program into its --download-dir, \
             or give another --arch"
        );
    };
    let base = args.url.unwrap_or_else(|| session.client.server().to_owned());
    let base = base.trim_end_matches('/').to_owned();
    let link = match args.link {
        Some(link) => link,
        None => default_link(&base, downloads.link_port)?,
    };
    let token = NewToken {
        uses: args.uses,
        ttl_secs: args.ttl.as_secs(),
        cloud_id: args.cloud_id,
        business: args.business,
        host: None,
        relay: false,
    };
    // Before the token is created: one that cannot be written would be lost.
    let apart = args.token_to.as_deref().map(TokenFile::make).transpose()?;
    let created = session.client.create_token(&token).await?;
    let given = match apart {
        Some(file) => {
            file.write(&created.token).context("cannot write the token")?;
            GivenToken::OnStandardInput
        }
        None => GivenToken::InLine(&created.token),
    };
    let line = line(&base, &link, file, given, args.cloud_id);
    output::print_or(
        session.output,
        &serde_json::json!({ "command": line, "expires_at": created.expires_at }),
        || format!("{line}\n"),
    )?;
    let (end, id) = (output::moment(created.expires_at), created.id);
    match &args.token_to {
        Some(path) => eprintln!(
            "Run it as root on the new host, with {} as its standard input, until {end}. That file holds a join token \
             ({id}): keep it private.",
            path.display()
        ),
        None => {
            eprintln!("Run it as root on the new host, until {end}. It holds a join token ({id}): keep it private.")
        }
    }
    Ok(CommandEnd::Success)
}

/// Where the new host gets its token from.
#[derive(Clone, Copy)]
enum GivenToken<'a> {
    InLine(&'a str),
    OnStandardInput,
}

/// A new file for a token, removed if it gets none, so that the next attempt finds no file there.
struct TokenFile<'a> {
    file: File,
    path: &'a Path,
    is_written: bool,
}

impl<'a> TokenFile<'a> {
    /// Private. Never replaces a file.
    fn make(path: &'a Path) -> Result<Self> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { file, path, is_written: false })
    }

    fn write(mut self, token: &str) -> io::Result<()> {
        writeln!(self.file, "{token}")?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for TokenFile<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            // It contains no usable secret: nothing is lost if it stays.
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// The server's name in the URL, with the port of its link.
fn default_link(base: &str, port: Option<u16>) -> Result<String> {
    let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => host,
        Some(_) | None => authority,
    };
    if host.is_empty() {
        bail!("'{base}' names no host: give --link HOST:PORT");
    }
    let port = port.context("the server does not say where its link is: give --link HOST:PORT")?;
    Ok(format!("{host}:{port}"))
}

fn line(base: &str, link: &str, file: &DownloadView, token: GivenToken<'_>, cloud_id: Option<u32>) -> String {
    let cloud = cloud_id.map_or_else(String::new, |id| format!(" --cloud-id {id}"));
    let (url, link) = (quoted(&format!("{base}/download/{}", file.name)), quoted(link));
    let (before, after) = match token {
        GivenToken::InLine(token) => (format!("PROCTOR_TOKEN={} ", quoted(token)), ""),
        GivenToken::OnStandardInput => (String::new(), " --token-file /dev/stdin"),
    };
    // The digest says what the program must be, so a certificate of the server's own authority will do.
    let curl = if base.starts_with("https://") { "curl -fsSLk --retry 20" } else { "curl -fsSL --retry 20" };
    format!(
        "d=$(mktemp -d) && {curl} -o \"$d/proctor-agent\" {url} && \
         echo '{}  '\"$d/proctor-agent\" | sha256sum -c --quiet - && chmod 755 \"$d/proctor-agent\" && \
         {before}\"$d/proctor-agent\" install{after} --server {link}{cloud}; s=$?; rm -rf \"$d\"; (exit $s)",
        file.sha256
    )
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_pins_the_digest_and_shows_the_token_to_no_argument() {
        let file = DownloadView { name: "proctor-agent-x86_64".into(), bytes: 1, sha256: "ab".repeat(32) };

        let line = line("http://s:8080", "s:9077", &file, GivenToken::InLine("PT1.x.y"), Some(3));

        assert!(line.contains(&format!("echo '{}  '", "ab".repeat(32))), "{line}");
        assert!(line.contains("PROCTOR_TOKEN='PT1.x.y' \"$d/proctor-agent\" install --server 's:9077' --cloud-id 3"));
        assert!(!line.contains("--token"), "{line}");
        assert_eq!(line.lines().count(), 1);
        assert_eq!(quoted("a'b"), r"'a'\''b'");
    }

    /// The console generates the same line; its test reads the same file.
    #[test]
    fn the_line_is_the_one_that_the_console_shows() {
        let file = DownloadView { name: "proctor-agent-x86_64".into(), bytes: 1, sha256: "ab".repeat(32) };
        let token = || GivenToken::InLine("PT1.x.y");

        let lines = [
            line("http://s:8080", "s:9077", &file, token(), Some(3)),
            line("https://s", "s:9077", &file, token(), None),
        ];

        assert_eq!(lines.join("\n"), include_str!("join_lines.txt").trim_end());
    }

    #[test]
    fn a_token_file_stays_only_with_a_token_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");

        drop(TokenFile::make(&path).unwrap());
        let is_left_empty = path.exists();
        TokenFile::make(&path).unwrap().write("PT1.x.y").unwrap();

        assert!(!is_left_empty);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "PT1.x.y\n");
        assert!(TokenFile::make(&path).is_err(), "none is replaced");
        assert!(path.exists());
    }

    #[test]
    fn the_link_is_at_the_servers_name() {
        assert_eq!(default_link("https://p.example.com:8443", Some(9077)).unwrap(), "p.example.com:9077");
        assert_eq!(default_link("http://[::1]:8080/x", Some(1)).unwrap(), "[::1]:1");
        assert!(default_link("http://s", None).unwrap_err().to_string().contains("--link"));
    }
}
