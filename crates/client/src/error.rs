//! Errors of a call to a server.

use proctor_api::{ErrorBody, ErrorDetail};
use reqwest::StatusCode;

/// How much is shown of a body that is not ours.
const EXCERPT_CHARS_MAX: usize = 200;

/// Display never repeats the source; print the chain.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("'{url}' is not the address of a server: {problem}")]
    Url { url: String, problem: String },
    #[error("cannot prepare the HTTP client")]
    Setup { source: reqwest::Error },
    #[error("cannot pin the server's key")]
    Pin { source: proctor_pki::PkiError },
    /// Another server answers there, or the server has a new key.
    #[error(
        "{server} is refused: its key has the fingerprint {}, but {} is pinned; if the key was replaced on purpose, \
         pin the new one (--server-fingerprint, PROCTOR_SERVER_FINGERPRINT, or server_fingerprint in the profile)",
        other.shown, other.pinned
    )]
    OtherKey { server: String, other: proctor_pki::OtherKey },
    #[error("cannot reach {server}")]
    Unreachable { server: String, source: reqwest::Error },
    #[error("{server} gave no answer within {seconds} s")]
    NoAnswer { server: String, seconds: u64, source: reqwest::Error },
    #[error("{server} was silent for {seconds} s")]
    Silent { server: String, seconds: u64 },
    /// The server understood and refused, or said that it cannot.
    #[error("{server} refused ({code}): {message}")]
    Refused { server: String, status: u16, code: String, message: String, field: Option<String> },
    /// Something answered that does not speak our API.
    #[error("{server} answered with HTTP {status} and no error of Proctor's API: {excerpt}")]
    Foreign { server: String, status: u16, excerpt: String },
    #[error("{server} gave an answer that this version does not understand")]
    Answer { server: String, source: serde_json::Error },
}

impl ClientError {
    /// Whether the same call may well succeed a moment later: nobody answered, or too late.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NoAnswer { .. } | Self::Silent { .. })
    }

    /// The HTTP status, if the server refused.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Foreign { status, .. } => Some(*status),
            Self::Url { .. }
            | Self::Setup { .. }
            | Self::Pin { .. }
            | Self::OtherKey { .. }
            | Self::Unreachable { .. }
            | Self::NoAnswer { .. }
            | Self::Silent { .. }
            | Self::Answer { .. } => None,
        }
    }
}

pub(crate) fn refused(server: &str, status: StatusCode, body: &[u8]) -> ClientError {
    let (server, status) = (server.to_owned(), status.as_u16());
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error: ErrorDetail { code, message, field } }) => {
            ClientError::Refused { server, status, code, message, field }
        }
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            let excerpt: String = text.chars().filter(|c| !c.is_control()).take(EXCERPT_CHARS_MAX).collect();
            ClientError::Foreign { server, status, excerpt }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_api_is_told_in_its_words() {
        let body =
            br#"{"error":{"code":"invalid_argument","message":"hosts[0]: must not be empty","field":"hosts[0]"}}"#;

        let error = refused("http://h", StatusCode::BAD_REQUEST, body);

        assert_eq!(error.to_string(), "http://h refused (invalid_argument): hosts[0]: must not be empty");
        assert_eq!(error.status(), Some(400));
    }

    #[test]
    fn a_stranger_is_quoted_briefly() {
        let body = "<html>\u{1b}[31m".to_owned() + &"x".repeat(5000);

        let shown = refused("http://h", StatusCode::BAD_GATEWAY, body.as_bytes()).to_string();

        assert!(shown.contains("HTTP 502") && shown.contains("<html>"), "{shown}");
        assert!(shown.len() < 400 && !shown.contains('\u{1b}'), "{shown}");
    }
}
