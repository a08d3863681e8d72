//! `proctor-agent doctor`: checks what would keep the agent of this host from working.
//!
//! Promised: it changes nothing, needs no running agent, and says for each finding what to do. `bad` means that
//! something does not work now or soon will not; `warning` that somebody should look.
//! Absent: what the server knows; use `proctor doctor` for that.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proctor_runtime::clock;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::connect_error;
use crate::identity::Identity;
use crate::local::{self, AgentView, LocalAnswer, LocalRequest};

const CONNECT_MAX: Duration = Duration::from_secs(5);
const DAY_MS: i64 = 24 * 3600 * 1000;
/// The agent renews its certificate ten days before its end: with less, a renewal has failed.
const CERTIFICATE_DAYS_WARN: i64 = 9;
const CERTIFICATE_DAYS_BAD: i64 = 2;
/// As the server judges it.
const CLOCK_OFF_MS: i64 = 30_000;
const CLOCK_WRONG_MS: i64 = 300_000;
/// The ledger must be able to grow.
const FREE_BYTES_WARN: u64 = 256 * 1024 * 1024;
const FREE_BYTES_BAD: u64 = 16 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Good,
    Warning,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub about: &'static str,
    pub verdict: Verdict,
    pub text: String,
}

fn good(about: &'static str, text: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Good, text: text.into() }
}

fn warning(about: &'static str, text: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Warning, text: text.into() }
}

fn bad(about: &'static str, text: impl Into<String>) -> Finding {
    Finding { about, verdict: Verdict::Bad, text: text.into() }
}

/// Everything about the agent of this state directory; `server` is its link, if known.
pub async fn examine(state_dir: &Path, server: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![state_directory(state_dir)];
    if findings[0].verdict == Verdict::Bad {
        return findings;
    }
    findings.push(disk(state_dir));
    findings.push(ledger(state_dir));
    let about = about(state_dir);
    findings.push(running(about.as_ref()));
    let identity = Identity::load(state_dir);
    findings.extend(certificate(&identity));
    findings.push(clock_of(about.as_ref()));
    findings.push(tracking(about.as_ref()));
    let known = about.as_ref().ok().map(|about| about.server.as_str());
    match (server.or(known), identity) {
        (Some(servers), Ok(Some(identity))) => {
            for server in servers.split(',') {
                findings.push(reach(server, &identity).await);
            }
        }
        (Some(server), _) => {
            findings.push(warning("link", format!("{server} is not asked: this host has not enrolled")));
        }
        (None, _) => findings.push(warning("link", "give --server to see whether it can be reached")),
    }
    findings
}

fn state_directory(path: &Path) -> Finding {
    use std::os::unix::fs::MetadataExt;
    let shown = path.display();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => return bad("state directory", format!("{shown} is not a directory")),
        Err(error) => return bad("state directory", format!("{shown}: {error}; give --state-dir")),
    };
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    match mode & 0o077 {
        0 => good("state directory", format!("{shown} (mode {mode:04o}, uid {owner})")),
        _ => bad("state directory", format!("{shown} is open to others (mode {mode:04o}): chmod 700 it")),
    }
}

fn disk(path: &Path) -> Finding {
    let space = match rustix::fs::statvfs(path) {
        Ok(space) => space,
        Err(error) => return warning("disk", format!("the space at {} is not known: {error}", path.display())),
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let text = format!("{} MiB and {} inodes free", free / (1024 * 1024), space.f_favail);
    let has_inodes = space.f_files == 0 || space.f_favail > 100;
    match free {
        _ if !has_inodes => bad("disk", format!("{text}: no file can be made")),
        0..FREE_BYTES_BAD => bad("disk", format!("{text}: without space the agent only stops and kills")),
        FREE_BYTES_BAD..FREE_BYTES_WARN => warning("disk", text),
        _ => good("disk", text),
    }
}

fn ledger(state_dir: &Path) -> Finding {
    match local::recorded(state_dir, 0) {
        Ok(ledger) if ledger.check != "ok" => {
            bad("ledger", format!("{} is damaged: {}", ledger.path.display(), ledger.check))
        }
        Ok(ledger) => {
            let text = format!(
                "{} processes, {} unfinished operations, {} outcomes and {} events that the server has not seen",
                ledger.processes, ledger.unfinished, ledger.unacknowledged, ledger.events
            );
            good("ledger", text)
        }
        Err(error) => bad("ledger", proctor_runtime::chain(&error)),
    }
}

fn about(state_dir: &Path) -> Result<AgentView, String> {
    match local::ask(state_dir, &LocalRequest::About) {
        Ok(LocalAnswer::About(about)) => Ok(about),
        Ok(other) => Err(format!("the agent answered something else: {other:?}")),
        Err(error) => Err(proctor_runtime::chain(&error)),
    }
}

fn running(about: Result<&AgentView, &String>) -> Finding {
    match about {
        Ok(AgentView { version, connected: true, server, .. }) => {
            good("agent", format!("version {version} runs, connected to {server}"))
        }
        Ok(AgentView { version, server, .. }) => {
            warning("agent", format!("version {version} runs without a session with {server}: its log says why"))
        }
        Err(reason) => bad("agent", reason.clone()),
    }
}

fn certificate(identity: &std::io::Result<Option<Identity>>) -> Vec<Finding> {
    let identity = match identity {
        Ok(Some(identity)) => identity,
        Ok(None) => {
            let text = "this host has not enrolled: start the agent with a join token (`proctor join-command`)";
            return vec![bad("identity", text)];
        }
        Err(error) => return vec![bad("identity", format!("cannot be read: {error}"))],
    };
    let who = format!("agent {}, host {}, key {}", identity.agent, identity.host, identity.key.fingerprint());
    let lasts = match proctor_pki::expires_at(&identity.current_certificate()) {
        Ok(end) => lasts(end.as_millisecond() - clock::unix_millis()),
        Err(error) => bad("certificate", proctor_runtime::chain(&error)),
    };
    vec![good("identity", who), lasts]
}

fn lasts(left_ms: i64) -> Finding {
    let days = left_ms.div_euclid(DAY_MS);
    let renewed = "it is renewed over the session, so the agent has had none for long";
    match days {
        ..0 => bad("certificate", "has expired: let the host back with `proctor hosts approve` on the server"),
        0..CERTIFICATE_DAYS_BAD => bad("certificate", format!("expires in {days} days: {renewed}")),
        CERTIFICATE_DAYS_BAD..CERTIFICATE_DAYS_WARN => {
            warning("certificate", format!("expires in {days} days: {renewed}"))
        }
        _ => good("certificate", format!("valid for {days} days")),
    }
}

fn clock_of(about: Result<&AgentView, &String>) -> Finding {
    let Some(ahead) = about.ok().and_then(|about| about.clock_ahead_ms) else {
        return warning("clock", "not compared: the agent has had no session since its start");
    };
    let text = format!("{} ms {} the server's", ahead.abs(), if ahead < 0 { "behind" } else { "ahead of" });
    match ahead.abs() {
        0..CLOCK_OFF_MS => good("clock", text),
        CLOCK_OFF_MS..CLOCK_WRONG_MS => warning("clock", format!("{text}: does this host synchronise its time?")),
        _ => bad("clock", format!("{text}: certificates and schedules go by it; synchronise this host's time")),
    }
}

fn tracking(about: Result<&AgentView, &String>) -> Finding {
    let root = Path::new("/sys/fs/cgroup");
    match about {
        Ok(about) => good("processes", about.tracking.clone()),
        Err(_) if root.join("cgroup.controllers").exists() => good("processes", "cgroup v2 is there"),
        Err(_) if root.is_dir() => good("processes", "cgroup v1 is there"),
        Err(_) => warning("processes", "no cgroups: what a process forks is followed by descent only"),
    }
}

/// As far as TLS with both certificates; no session is opened, so a running agent is not disturbed.
async fn reach(server: &str, identity: &Identity) -> Finding {
    let config = match proctor_pki::session_config(
        &identity.authorities_pem(),
        &identity.current_certificate(),
        &identity.key,
    ) {
        Ok(config) => config,
        Err(error) => return bad("link", proctor_runtime::chain(&error)),
    };
    let connected = async {
        let tcp = TcpStream::connect(server).await?;
        TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await
    };
    match tokio::time::timeout(CONNECT_MAX, connected).await {
        Ok(Ok(_)) => good("link", format!("{server} answers, with a certificate of our authority")),
        Ok(Err(error)) => bad("link", connect_error::explain(&error, server)),
        Err(_) => bad("link", format!("{server} does not answer within {} s", CONNECT_MAX.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(connected: bool, clock_ahead_ms: Option<i64>) -> AgentView {
        AgentView {
            version: "1".into(),
            agent: None,
            host: None,
            server: "s:1".into(),
            connected,
            clock_ahead_ms,
            tracking: "cgroup".into(),
            policy: None,
        }
    }

    #[test]
    fn certificates_and_clocks_are_judged_by_their_limits() {
        let days = |days: i64| lasts(days * DAY_MS + 1).verdict;
        let clock = |ahead| clock_of(Ok(&about(true, Some(ahead)))).verdict;

        assert_eq!(
            [days(-1), days(1), days(5), days(20)],
            [Verdict::Bad, Verdict::Bad, Verdict::Warning, Verdict::Good]
        );
        assert_eq!([clock(-5), clock(-60_000), clock(400_000)], [Verdict::Good, Verdict::Warning, Verdict::Bad]);
        assert_eq!(clock_of(Ok(&about(true, None))).verdict, Verdict::Warning);
        assert_eq!(running(Ok(&about(false, None))).verdict, Verdict::Warning);
        assert_eq!(running(Err(&"gone".to_owned())).verdict, Verdict::Bad);
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_is_the_only_finding() {
        let dir = tempfile::tempdir().unwrap();

        let findings = examine(&dir.path().join("absent"), None).await;

        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].verdict, Verdict::Bad);
    }
}
