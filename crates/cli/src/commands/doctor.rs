//! `proctor doctor`: is all well, and if not, what to do. Ends with 1 where a check fails.

use anyhow::Result;
use futures::TryStreamExt;
use jiff::fmt::rfc2822::DateTimeParser;
use proctor_client::{BindingQuery, ClientError, HostQuery, HostView, LIMIT_MAX, ProcessQuery, ProcessView};
use proctor_runtime::clock;
use serde::Serialize;

use super::{Ended, Session};
use crate::output::{self, Sheet, Tone, plain};

/// Beyond this, times of events and tasks confuse people.
const CLOCK_WARN_SECS: i64 = 30;
/// Beyond this, signed requests are refused.
const CLOCK_FAIL_SECS: i64 = 300;
/// Of what is wrong, so many are named.
const NAMED_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warn,
    Fail,
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
}

pub(super) async fn examine(session: &Session) -> Result<Ended> {
    let mut checks = Vec::new();
    server(session, &mut checks).await;
    output::print(session.output, &checks, |checks| sheet(checks))?;
    Ok(Ended::well_if(checks.iter().all(|check| check.state != State::Fail)))
}

fn sheet(checks: &[Check]) -> Sheet {
    let mut sheet = Sheet::new(&["STATE", "CHECK", "FOUND", "WHAT TO DO"]);
    for check in checks {
        let state = match check.state {
            State::Ok => ("ok".to_owned(), Tone::Good),
            State::Warn => ("warn".to_owned(), Tone::Warning),
            State::Fail => ("fail".to_owned(), Tone::Bad),
        };
        sheet.row([state, plain(check.check), plain(&check.found), plain(check.advice.as_deref().unwrap_or("-"))]);
    }
    sheet
}

/// Each check is only made where those before it found something to ask.
async fn server(session: &Session, checks: &mut Vec<Check>) {
    let client = &session.client;
    let health = match client.health().await {
        Ok(health) => health,
        Err(error) => {
            let advice = "start the server, or correct the address (--server, PROCTOR_SERVER, or the profile)";
            checks.push(Check::fail("server", error.to_string(), advice));
            return;
        }
    };
    checks.push(match &health.problem {
        None => Check::ok("server", format!("{} is well", client.server())),
        Some(problem) => Check::warn("server", problem, "wait a moment; then read the log of the server"),
    });
    checks.push(clock_check(health.date.as_deref(), clock::unix_millis() / 1000));
    if !credentials(session, checks).await {
        return;
    }
    checks.push(agents(session).await.unwrap_or_else(|error| unknown("agents", &error)));
    checks.push(processes(session).await.unwrap_or_else(|error| unknown("processes", &error)));
}

fn unknown(check: &'static str, error: &ClientError) -> Check {
    Check::fail(check, error.to_string(), "see the answer of the server")
}

fn clock_check(date: Option<&str>, now: i64) -> Check {
    let theirs = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
    let Some(theirs) = theirs else {
        return Check::warn("clock", "the server does not tell its time", "compare the clocks by hand");
    };
    let apart = (theirs.as_second() - now).abs();
    let found = format!("{apart} s apart from the server");
    match apart {
        0..=CLOCK_WARN_SECS => Check::ok("clock", found),
        ..=CLOCK_FAIL_SECS => Check::warn("clock", found, "set the clocks by NTP"),
        _ => Check::fail("clock", found, "set the clocks by NTP: signed requests are refused"),
    }
}

/// False where nothing further can be asked.
async fn credentials(session: &Session, checks: &mut Vec<Check>) -> bool {
    let one = HostQuery { limit: Some(1), ..HostQuery::default() };
    if let Err(error) = session.client.hosts(&one).await {
        let advice = match error.status() {
            Some(401) => "check app code, secret and user, or the user's token, in the profile or environment",
            Some(403) => "ask an administrator for a role: proctor binding add app:CODE viewer SCOPE",
            Some(_) | None => "see the answer of the server",
        };
        checks.push(Check::fail("credentials", error.to_string(), advice));
        return false;
    }
    checks.push(Check::ok("credentials", "the server knows who we are"));
    match session.client.bindings(&BindingQuery::default()).await {
        Ok(_) => {
            checks.push(Check::ok("rights", "may administer"));
            checks.push(audit(session).await.unwrap_or_else(|error| unknown("audit", &error)));
        }
        Err(error) if error.status() == Some(403) => {
            checks.push(Check::ok("rights", "may not administer; what else is allowed is decided by target"));
        }
        Err(error) => checks.push(unknown("rights", &error)),
    }
    true
}

async fn audit(session: &Session) -> Result<Check, ClientError> {
    let verdict = session.client.verify_audit().await?;
    if verdict.intact {
        return Ok(Check::ok("audit", format!("{} entries are intact", verdict.entries)));
    }
    let problem = verdict.problem.unwrap_or_else(|| "the chain is broken".to_owned());
    Ok(Check::fail("audit", problem, "somebody changed the store: compare with an export"))
}

async fn agents(session: &Session) -> Result<Check, ClientError> {
    let query = HostQuery { limit: Some(LIMIT_MAX), ..HostQuery::default() };
    let hosts: Vec<HostView> = session.client.all_hosts(&query).try_collect().await?;
    let offline: Vec<&str> = hosts.iter().filter(|host| !host.online).map(|host| host.host.as_str()).collect();
    Ok(match (hosts.len(), offline.len()) {
        (0, _) => Check::warn("agents", "no host that we may see", "proctor token create, then start an agent"),
        (all, 0) => Check::ok("agents", format!("{all} of {all} are connected")),
        (all, away) => {
            let found = format!("{away} of {all} are not connected: {}", named(&offline));
            Check::warn("agents", found, "see proctor hosts --offline, and the agents' logs")
        }
    })
}

async fn processes(session: &Session) -> Result<Check, ClientError> {
    let query = ProcessQuery { phase: Some("failed".into()), limit: Some(LIMIT_MAX), ..ProcessQuery::default() };
    let failed: Vec<ProcessView> = session.client.all_processes(&query).try_collect().await?;
    if failed.is_empty() {
        return Ok(Check::ok("processes", "none has failed"));
    }
    let names: Vec<String> = failed.iter().map(|process| format!("{} on {}", process.process, process.host)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = format!("{} failed: {}", failed.len(), named(&names));
    Ok(Check::warn("processes", found, "see proctor ps --phase failed, and proctor events"))
}

fn named(names: &[&str]) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_are_apart_are_told() {
        let date = Some("Thu, 01 Jan 1970 01:00:00 GMT");

        assert_eq!(clock_check(date, 3600).state, State::Ok);
        assert_eq!(clock_check(date, 3600 - 31).state, State::Warn);
        assert_eq!(clock_check(date, 3600 + 301).state, State::Fail);
        assert_eq!(clock_check(Some("soon"), 0).state, State::Warn);
    }

    #[test]
    fn of_many_only_some_are_named() {
        assert_eq!(named(&["a", "b"]), "a, b");
        assert_eq!(named(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
