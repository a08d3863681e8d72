//! `proctor doctor`: what is wrong, and what to do about it.
//!
//! Promised: exits with 1 if a check fails, and with 0 if there are only warnings and skipped checks; what the caller
//! may not see is reported as not checked, never as wrong.
//! Absent: any change.

mod fleet;

use anyhow::Result;
use jiff::fmt::rfc2822::DateTimeParser;
use proctor_client::{Client, ClientError, Health, StorageView, Who};
use proctor_runtime::clock;
use serde::Serialize;

use super::hosts::mebibytes;
use super::{CommandEnd, Session};
use crate::output::{self, CellStyle, TextTable, plain};

/// Beyond this, times of events and tasks become confusing.
const CLOCK_WARN_SECS: i64 = 30;
/// Beyond this, signed requests are refused.
const CLOCK_FAIL_SECS: i64 = 300;
const DAY_SECS: i64 = 24 * 3600;
/// Number of tables that are listed with their size.
const LARGEST_TABLES: usize = 5;
/// With less than the first left for the store, somebody should look; with less than the second, a busy fleet fills
/// it in hours.
const FREE_WARN_BYTES: u64 = 1024 * 1024 * 1024;
const FREE_FAIL_BYTES: u64 = 128 * 1024 * 1024;
/// Enough time to get a new certificate.
const CERTIFICATE_WARN_DAYS: i64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warn,
    Fail,
    /// Could not be checked.
    Unchecked,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    check: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::Ok, found: found.into(), advice: None }
    }

    fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, state: State::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, state: State::Fail, found: found.into(), advice: Some(advice.into()) }
    }

    fn unchecked(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::Unchecked, found: found.into(), advice: None }
    }

    /// What the server does not let us see is not wrong.
    fn of_error(check: &'static str, error: &ClientError) -> Self {
        match error.status() {
            Some(403) => Self::unchecked(check, "we may not look at this"),
            Some(404 | 405) => Self::unchecked(check, "the server is too old to tell"),
            Some(_) | None => Self::fail(check, proctor_runtime::chain(error), "read the log of the server"),
        }
    }
}

pub(super) async fn examine(session: &Session) -> Result<CommandEnd> {
    let mut checks = Vec::new();
    all(&session.client, &mut checks).await;
    output::print(session.output, &checks, |checks| table(checks))?;
    Ok(CommandEnd::success_if(checks.iter().all(|check| check.state != State::Fail)))
}

fn table(checks: &[Check]) -> TextTable {
    let mut table = TextTable::new(&["STATE", "CHECK", "FOUND", "WHAT TO DO"]);
    for check in checks {
        let state = match check.state {
            State::Ok => ("ok".to_owned(), CellStyle::Good),
            State::Warn => ("warn".to_owned(), CellStyle::Warning),
            State::Fail => ("fail".to_owned(), CellStyle::Bad),
            State::Unchecked => plain("not checked"),
        };
        table.row([state, plain(check.check), plain(&check.found), plain(check.advice.as_deref().unwrap_or("-"))]);
    }
    table
}

/// Each check runs only if those before it found something to check.
async fn all(client: &Client, checks: &mut Vec<Check>) {
    let now = clock::unix_millis() / 1000;
    let health = match client.health().await {
        Ok(health) => health,
        Err(error) => {
            let found = proctor_runtime::chain(&error);
            let advice = if found.contains("certificate") {
                "give --server-fingerprint if the server has a certificate of its own (--tls-self); otherwise give the server \
                 (or the proxy before it) a certificate that is valid for this name and trusted here"
            } else {
                "start the server, or correct the address (--server, PROCTOR_SERVER, or the profile)"
            };
            checks.push(Check::fail("server", found, advice));
            return;
        }
    };
    checks.push(server(client.server(), &health));
    checks.push(certificate(client.server(), health.certificate.as_deref(), now));
    checks.push(clock_check(health.date.as_deref(), now));
    let who = match client.whoami().await {
        Ok(who) => who,
        Err(error) if error.status() == Some(401) => {
            let advice = "check app code, secret and user, or the user's token, in the profile or environment";
            checks.push(Check::fail("credentials", error.to_string(), advice));
            return;
        }
        Err(error) => {
            checks.push(Check::of_error("credentials", &error));
            return;
        }
    };
    checks.push(Check::ok("credentials", format!("we are {}", name(&who))));
    checks.push(rights(&who));
    checks.push(link(client, now).await);
    fleet::all(client, now, checks).await;
    checks.push(audit(client).await.unwrap_or_else(|error| Check::of_error("audit", &error)));
    match client.storage().await {
        Ok(view) => checks.extend([storage(&view), disk_space(&view)]),
        Err(error) => checks.push(Check::of_error("storage", &error)),
    }
}

fn server(address: &str, health: &Health) -> Check {
    let Some(problem) = &health.problem else { return Check::ok("server", format!("{address} is healthy")) };
    match health.status.as_str() {
        "waiting" | "stopping" => Check::warn("server", problem, "wait a moment; then read the log of the server"),
        _ if problem.contains("no space left") => {
            let advice = "free space on the disk of the server's data directory: until then it only serves what reads, \
                          and agents that lost their session get no new one";
            Check::fail("server", problem, advice)
        }
        _ => Check::fail("server", problem, "read the log of the server, then restart it"),
    }
}

fn name(who: &Who) -> String {
    match (&who.app, &who.user) {
        (Some(app), Some(user)) => format!("app {app} for user {user}"),
        (Some(app), None) => format!("app {app}"),
        (None, Some(user)) => format!("user {user}"),
        (None, None) => "nobody".to_owned(),
    }
}

fn rights(who: &Who) -> Check {
    if who.allowed.is_empty() {
        let advice = match (&who.app, &who.user) {
            (Some(app), _) => format!("ask an administrator: proctor binding add app:{app} viewer SCOPE"),
            (None, Some(user)) => format!("ask an administrator: proctor binding add user:{user} viewer SCOPE"),
            (None, None) => "ask an administrator for a role".to_owned(),
        };
        return Check::warn("rights", "we may do nothing", advice);
    }
    let alike = who.allowed.chunk_by(|one, next| one.scopes == next.scopes);
    let rights = alike.map(|alike| {
        let classes: Vec<&str> = alike.iter().map(|allowed| allowed.class.as_str()).collect();
        match alike[0].scopes.as_slice() {
            [one] => format!("{} on {one}", classes.join(", ")),
            several => format!("{} on {} scopes", classes.join(", "), several.len()),
        }
    });
    Check::ok("rights", rights.collect::<Vec<_>>().join("; "))
}

/// Of the HTTP side. Its name and issuer were verified, or there would be no answer.
fn certificate(server: &str, shown: Option<&[u8]>, now: i64) -> Check {
    const CHECK: &str = "server certificate";
    if server.starts_with("http:") {
        return Check::unchecked(CHECK, "the server is called without TLS");
    }
    let expires_at = shown.and_then(|der| proctor_pki::expires_at_der(der).ok());
    let Some(expires_at) = expires_at else { return Check::unchecked(CHECK, "it cannot be read") };
    let days = (expires_at.as_second() - now).div_euclid(DAY_SECS);
    let found = format!("valid for this name, until {expires_at} ({days} days)");
    if days < CERTIFICATE_WARN_DAYS {
        return Check::warn(CHECK, found, "renew it");
    }
    Check::ok(CHECK, found)
}

/// Of the side that agents connect to.
async fn link(client: &Client, now: i64) -> Check {
    const CHECK: &str = "link certificate";
    let view = match client.server_view().await {
        Ok(view) => view,
        Err(error) => return Check::of_error(CHECK, &error),
    };
    let Some(expires_at) = view.link_certificate_expires_at else {
        return Check::unchecked(CHECK, "the server does not tell");
    };
    let days = (expires_at - now).div_euclid(DAY_SECS);
    let found = format!("until {} ({days} days)", output::moment(expires_at));
    let advice = "restart the server: it makes a new one when it starts";
    match days {
        ..0 => Check::fail(CHECK, found, advice),
        0..CERTIFICATE_WARN_DAYS => Check::warn(CHECK, found, advice),
        _ => Check::ok(CHECK, found),
    }
}

fn clock_check(date: Option<&str>, now: i64) -> Check {
    let theirs = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
    let Some(theirs) = theirs else {
        return Check::unchecked("clock", "the server does not tell its time");
    };
    let apart = (theirs.as_second() - now).abs();
    let found = format!("{apart} s off the server's clock");
    match apart {
        0..=CLOCK_WARN_SECS => Check::ok("clock", found),
        ..=CLOCK_FAIL_SECS => Check::warn("clock", found, "set the clocks by NTP"),
        _ => Check::fail("clock", found, "set the clocks by NTP: signed requests are refused"),
    }
}

/// The whole, and the tables that take the most.
fn storage(storage: &StorageView) -> Check {
    let largest = storage
        .tables
        .iter()
        .take(LARGEST_TABLES)
        .map(|table| format!("{} {} ({} rows)", table.table, size(table.bytes), table.rows));
    let largest: Vec<String> = largest.collect();
    Check::ok("storage", format!("{}: {}", size(storage.bytes), largest.join(", ")))
}

/// In mebibytes, or in kibibytes where it is less than one.
fn size(bytes: u64) -> String {
    if bytes < 1024 * 1024 { format!("{}K", bytes / 1024) } else { mebibytes(bytes) }
}

/// Of the data directory.
fn disk_space(storage: &StorageView) -> Check {
    const CHECK: &str = "disk space";
    let Some(free) = storage.free_bytes else {
        return Check::unchecked(CHECK, "the server does not tell what is left for its data");
    };
    let of_all = storage.disk_bytes.map(|all| format!(" of {}", mebibytes(all))).unwrap_or_default();
    let found = format!("{}{of_all} are left for the server's data", mebibytes(free));
    let advice = "free space on the disk of the server's data directory, move it to a larger one, or keep less \
                  (--keep-tasks, --keep-events, --events-max)";
    match free {
        ..FREE_FAIL_BYTES => Check::fail(CHECK, found, advice),
        FREE_FAIL_BYTES..FREE_WARN_BYTES => Check::warn(CHECK, found, advice),
        _ => Check::ok(CHECK, found),
    }
}

async fn audit(client: &Client) -> Result<Check, ClientError> {
    let verdict = client.verify_audit().await?;
    if verdict.intact {
        let archived = match verdict.archived {
            0 => String::new(),
            archived => format!(", {archived} are archived"),
        };
        return Ok(Check::ok("audit", format!("{} entries are intact{archived}", verdict.entries)));
    }
    let problem = verdict.problem.unwrap_or_else(|| "the chain is broken".to_owned());
    Ok(Check::fail("audit", problem, "somebody changed the store: compare with an export"))
}

#[cfg(test)]
mod tests {
    use proctor_client::Allowed;

    use super::*;

    #[test]
    fn clocks_that_differ_are_reported() {
        let date = Some("Thu, 01 Jan 1970 01:00:00 GMT");

        assert_eq!(clock_check(date, 3600).state, State::Ok);
        assert_eq!(clock_check(date, 3600 - 31).state, State::Warn);
        assert_eq!(clock_check(date, 3600 + 301).state, State::Fail);
        assert_eq!(clock_check(Some("soon"), 0).state, State::Unchecked);
    }

    #[test]
    fn a_server_that_cannot_write_fails_with_what_to_do_and_one_that_waits_does_not() {
        let health = |status: &str, problem: Option<&str>| Health {
            status: status.to_owned(),
            problem: problem.map(str::to_owned),
            date: None,
            certificate: None,
        };

        assert_eq!(server("h", &health("ok", None)).state, State::Ok);
        assert_eq!(server("h", &health("waiting", Some("agent a is not connected yet"))).state, State::Warn);
        let full = server("h", &health("degraded", Some("the store has no space left to be written")));
        assert_eq!(full.state, State::Fail);
        assert!(full.advice.unwrap().starts_with("free space on the disk of the server's data directory"));
        assert_eq!(server("h", &health("failed", Some("the store is closed"))).state, State::Fail);
    }

    #[test]
    fn little_space_for_the_store_is_reported() {
        let left =
            |free_bytes| disk_space(&StorageView { bytes: 0, free_bytes, disk_bytes: Some(1 << 40), tables: vec![] });

        assert_eq!(left(None).state, State::Unchecked);
        assert_eq!(left(Some(FREE_WARN_BYTES)).state, State::Ok);
        assert_eq!(left(Some(FREE_WARN_BYTES - 1)).state, State::Warn);
        assert_eq!(left(Some(FREE_FAIL_BYTES - 1)).state, State::Fail);
        assert_eq!(left(Some(0)).found, "0M of 1048576M are left for the server's data");
    }

    #[test]
    fn a_certificate_that_expires_soon_is_reported() {
        let made = jiff::Timestamp::from_second(1_000_000_000).unwrap();
        let secret = proctor_pki::Authority::generate(made).unwrap();
        let (chain, _) = proctor_pki::Authority::load(&secret).unwrap().issue_server(made).unwrap();
        let state = |days: i64| certificate("https://h", Some(&chain[0]), made.as_second() + days * DAY_SECS).state;

        assert_eq!((state(0), state(334), state(336)), (State::Ok, State::Ok, State::Warn));
        assert_eq!(certificate("http://h", None, 0).state, State::Unchecked);
        assert_eq!(certificate("https://h", Some(b"x"), 0).state, State::Unchecked);
    }

    #[test]
    fn our_permissions_are_reported_in_one_line() {
        let allowed = |class: &str, scopes: &[&str]| Allowed {
            class: class.to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            bounds: Vec::new(),
        };
        let mut who = Who { app: Some("a".into()), user: None, allowed: Vec::new() };

        assert_eq!(rights(&who).state, State::Warn);
        let two = ["business:3", "namespace:web"];
        who.allowed = vec![allowed("read", &["everything"]), allowed("operate", &two), allowed("register", &two)];
        assert_eq!(rights(&who).found, "read on everything; operate, register on 2 scopes");
    }
}
