//! `proctor-agent install`: installs this program as a service on this host.
//!
//! Promised: the token goes into a root-only file, never into an argument or a unit; existing files are replaced
//! atomically or not at all; an enrolled host keeps its identity.
//! Absent: init systems other than systemd; there it prints what to run.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

const UNIT: &str = include_str!("../../../../../packaging/systemd/proctor-agent.service");

#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// The server's link, or those of the relays of this host's cloud area
    #[arg(long, value_name = "HOST:PORT[,HOST:PORT]", env = "PROCTOR_SERVER", value_parser = proctor_agent::parse_links)]
    server: String,
    /// A join token; better in the environment than here, where `ps` shows it
    #[arg(long, env = "PROCTOR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A file with the join token
    #[arg(long, value_name = "FILE", env = "PROCTOR_TOKEN_FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// The address by which callers name this host [default: the one that reaches the server]
    #[arg(long, env = "PROCTOR_IP")]
    ip: Option<std::net::IpAddr>,
    /// The cloud area of this host
    #[arg(long, value_name = "N", env = "PROCTOR_CLOUD_ID", default_value_t = 0)]
    cloud_id: u32,
    /// Install below this directory, and start nothing
    #[arg(long, value_name = "DIR", env = "PROCTOR_INSTALL_ROOT", default_value = "/")]
    root: PathBuf,
}

pub(crate) fn run(state_dir: &Path, arguments: &InstallArguments) -> ExitCode {
    match install(state_dir, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("proctor-agent: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn install(state_dir: &Path, arguments: &InstallArguments) -> Result<(), String> {
    let under_root = |path: &str| arguments.root.join(path);
    let token = match (&arguments.token, &arguments.token_file) {
        (Some(token), _) => Some(token.trim().to_owned()),
        (None, Some(file)) => Some(super::read_token(file)?),
        (None, None) => None,
    };
    if token.is_none() && !proctor_agent::is_enrolled(state_dir) {
        return Err("a new host needs a join token: set PROCTOR_TOKEN, or give --token-file".to_owned());
    }
    let program = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let content = std::fs::read(&program).map_err(|error| format!("cannot read {}: {error}", program.display()))?;
    put(&under_root("usr/local/bin/proctor-agent"), &content, 0o755)?;
    if let Some(token) = &token {
        put(&under_root("etc/proctor/join-token"), format!("{token}\n").as_bytes(), 0o600)?;
    }
    put(&under_root("etc/proctor/agent.env"), environment(state_dir, arguments).as_bytes(), 0o640)?;
    let unit = UNIT.replace("/usr/bin/proctor-agent", "/usr/local/bin/proctor-agent");
    put(&under_root("etc/systemd/system/proctor-agent.service"), unit.as_bytes(), 0o644)?;
    if arguments.root != Path::new("/") {
        return Ok(());
    }
    if !Path::new("/run/systemd/system").is_dir() {
        eprintln!("systemd does not run here. Have your init system run, as root, and again when it ends:");
        eprintln!("  env $(grep -v '^#' /etc/proctor/agent.env) /usr/local/bin/proctor-agent");
        return Ok(());
    }
    for command in [&["daemon-reload"][..], &["enable", "proctor-agent.service"], &["restart", "proctor-agent.service"]]
    {
        let status = Command::new("systemctl").args(command).status();
        if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            return Err(format!("systemctl {} failed: see journalctl -u proctor-agent", command.join(" ")));
        }
    }
    eprintln!("proctor-agent runs as a service; check it with `proctor-agent doctor`.");
    Ok(())
}

fn environment(state_dir: &Path, arguments: &InstallArguments) -> String {
    let InstallArguments { server, ip, cloud_id, .. } = arguments;
    let mut text = format!(
        "# Written by `proctor-agent install`.\nPROCTOR_SERVER={server}\nPROCTOR_TOKEN_FILE=/etc/proctor/join-token\n\
         PROCTOR_STATE_DIR={}\nPROCTOR_CLOUD_ID={cloud_id}\n",
        state_dir.display()
    );
    if let Some(ip) = ip {
        text.push_str(&format!("PROCTOR_IP={ip}\n"));
    }
    text
}

/// Written beside, then renamed: a program that runs is not overwritten.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    let beside = path.with_extension("new");
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}
