//! Errors for people: what failed, why, and what to do; and the exit code.

use std::process::ExitCode;

use anyhow::Error;
use proctor_client::ClientError;
use proctor_server::ServerError;

use crate::logging::note;

pub(crate) const TARGET_FAILED: u8 = 1;
const SERVICE_FAILED: u8 = 1;
const USAGE: u8 = 2;
const SERVER: u8 = 3;

pub(crate) fn report(error: &Error, is_service: bool) -> ExitCode {
    note(&format!("proctor: {}", describe(error)));
    if let Some(hint) = hint(error) {
        note(hint);
    }
    ExitCode::from(code(error, is_service))
}

pub(crate) fn code(error: &Error, is_service: bool) -> u8 {
    match client_error(error) {
        Some(ClientError::Url { .. } | ClientError::Pin { .. }) => USAGE,
        Some(_) => SERVER,
        None if is_service => SERVICE_FAILED,
        None => USAGE,
    }
}

fn client_error(error: &Error) -> Option<&ClientError> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// The whole chain; of the many layers below a failed connection only the last one is shown, in our own words where
/// we have better ones.
fn describe(error: &Error) -> String {
    match client_error(error) {
        Some(unreachable) if unreachable.is_unreachable() => {
            let cause = wrong_port(error).map_or_else(|| error.root_cause().to_string(), str::to_owned);
            let mut parts: Vec<String> = Vec::new();
            for cause in error.chain() {
                parts.push(cause.to_string());
                if cause.downcast_ref::<ClientError>().is_some() {
                    break;
                }
            }
            parts.push(cause);
            parts.join(": ")
        }
        Some(_) | None => format!("{error:#}"),
    }
}

/// What is wrong with the address, if the port speaks another protocol.
fn wrong_port(error: &Error) -> Option<&'static str> {
    if error.root_cause().to_string().contains("InvalidContentType") {
        return Some("this port does not speak TLS: write http:// instead of https://");
    }
    // The link offers only its own protocols.
    if says(error, &["NoApplicationProtocol"]) {
        return Some("this is the port of its link, where agents connect: give that of its API (8080 if not set)");
    }
    // The link closes connections that are not TLS without an answer.
    if is_hung_up(error) {
        return Some(
            "it closed the connection without an answer: if this is the port of its link, give that of its API (8080 if \
             not set); otherwise it is shutting down or has too many connections (--max-connections): try again in a moment",
        );
    }
    is_no_http(error).then_some(
        "this port does not speak HTTP: write https:// if the server has a certificate, or give the port of \
                    its API (8080 if not set), not that of its link",
    )
}

/// How a server with a certificate answers plain HTTP: that says what to do.
const HTTPS_ONLY: &str = "This port speaks HTTPS";

/// What hyper reports for an answer that is not HTTP.
fn is_no_http(error: &Error) -> bool {
    let words = ["invalid HTTP version", "message head", "HTTP/0.9"];
    says(error, &words)
}

/// What hyper reports for a connection that is closed without an answer.
fn is_hung_up(error: &Error) -> bool {
    says(error, &["connection closed before message", "Connection reset by peer"])
}

fn says(error: &Error, words: &[&str]) -> bool {
    error.chain().any(|cause| words.iter().any(|word| cause.to_string().contains(word)))
}

fn hint(error: &Error) -> Option<&'static str> {
    if let Some(client) = client_error(error) {
        return match (client, client.status()) {
            (ClientError::Unreachable { .. }, _) if wrong_port(error).is_some() => None,
            (ClientError::Unreachable { .. }, _) if error.root_cause().to_string().contains("certificate") => Some(
                "If the server has a certificate of its own (--tls-self), give the fingerprint that it logs when it starts\n\
                     (--server-fingerprint, PROCTOR_SERVER_FINGERPRINT, or the profile). Otherwise it needs a certificate for this\n\
                     name from an authority that is trusted here.",
            ),
            (ClientError::Unreachable { .. } | ClientError::NoAnswer { .. }, _) => Some(
                "Check that the server runs and that the address is right (--server, PROCTOR_SERVER, or the profile).",
            ),
            (_, Some(401)) => Some(
                "Check app code, secret and user (PROCTOR_APP_CODE, PROCTOR_APP_SECRET, PROCTOR_USER, or the profile),\n\
                 or the user's token (PROCTOR_USER_TOKEN), which may be over, taken back, or of a disabled user.\n\
                 An app that is not trusted calls as itself: its user is its own code.",
            ),
            (ClientError::Foreign { excerpt, .. }, _) if excerpt.contains(HTTPS_ONLY) => None,
            (ClientError::Foreign { .. }, _) => Some("Something else seems to listen at that address."),
            _ => None,
        };
    }
    let server = error.chain().find_map(|cause| cause.downcast_ref::<ServerError>())?;
    matches!(server, ServerError::Listen { .. })
        .then_some("Choose another address with --http or --link; port 0 is any free one.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> Error {
        let (server, code, message) = ("http://h".into(), "unauthenticated".into(), "who are you".into());
        ClientError::Refused { server, status, code, message, field: None }.into()
    }

    #[test]
    fn what_a_server_says_ends_with_3_and_a_bad_file_with_2() {
        assert_eq!(code(&refused(401).context("cannot list"), false), 3);
        assert_eq!(code(&anyhow::anyhow!("cannot read x.json"), false), 2);
        assert_eq!(code(&anyhow::anyhow!("cannot listen"), true), 1);
    }

    #[test]
    fn a_wrong_secret_is_reported_with_what_to_do() {
        let error = refused(401);

        assert_eq!(describe(&error), "http://h refused (unauthenticated): who are you");
        assert!(hint(&error).unwrap().contains("PROCTOR_APP_SECRET"));
        assert!(hint(&refused(404)).is_none());
    }

    #[test]
    fn plain_http_at_an_https_port_gets_no_second_guess() {
        let answer = |excerpt: &str| {
            let (server, excerpt) = ("http://h".to_owned(), excerpt.to_owned());
            Error::from(ClientError::Foreign { server, status: 400, excerpt })
        };

        assert!(hint(&answer("This port speaks HTTPS: write https:// here")).is_none());
        assert!(hint(&answer("<html>")).unwrap().contains("Something else"));
    }

    /// What the CLI prints for a call to a server's link port, in one line.
    #[tokio::test]
    async fn the_port_of_the_link_is_named_where_that_of_the_api_belongs() {
        let dir = tempfile::tempdir().unwrap();
        let store = proctor_store::sqlite::SqliteStore::open(&dir.path().join("proctor.db")).await.unwrap();
        let (tasks, loopback) = (proctor_runtime::Tasks::default(), "127.0.0.1:0".parse().unwrap());
        let options = proctor_server::Options {
            http: loopback,
            link: loopback,
            wait_for: None,
            border: proctor_server::api::Settings::default(),
            tls: None,
            retention: proctor_server::control::Retention::default(),
            link_policy: proctor_server::gateway::LinkPolicy::default(),
            traces: proctor_traces::Traces::default(),
        };
        let server = proctor_server::Server::start(options, std::sync::Arc::new(store), &tasks).await.unwrap();
        let link = server.link;
        let credentials = || proctor_client::Credentials::new("app", "secret", "ada");
        let pinned =
            proctor_client::Client::pinned(&format!("https://{link}"), &"0".repeat(64), credentials()).unwrap();

        let secure = Error::from(pinned.whoami().await.unwrap_err());
        let plain = proctor_client::Client::new(&format!("http://{link}"), credentials()).unwrap();
        let plain = Error::from(plain.whoami().await.unwrap_err());

        assert_eq!(
            describe(&secure),
            format!(
                "cannot reach https://{link}: this is the port of its link, where agents connect: give that of its API \
                 (8080 if not set)"
            )
        );
        // Whether the link's alert arrives before the connection is closed is up to the network.
        let plain_words = describe(&plain);
        assert!(plain_words.starts_with(&format!("cannot reach http://{link}: ")), "{plain_words}");
        assert!(plain_words.contains("its link") && plain_words.contains("API (8080 if"), "{plain_words}");
        assert_eq!(plain_words.lines().count(), 1, "{plain_words}");
        assert!(hint(&secure).is_none() && hint(&plain).is_none());
        assert_eq!((code(&secure, false), code(&plain, false)), (3, 3));
        assert!(tasks.end(std::time::Duration::from_secs(60)).await);
    }

    #[test]
    fn a_server_that_hangs_up_is_not_taken_for_another_protocol() {
        let hung_up = anyhow::anyhow!("connection closed before message completed").context("error sending request");
        let foreign = anyhow::anyhow!("invalid HTTP version parsed");

        assert!(is_hung_up(&hung_up) && !is_no_http(&hung_up));
        assert!(is_no_http(&foreign) && !is_hung_up(&foreign));
    }
}
