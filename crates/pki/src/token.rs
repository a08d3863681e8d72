//! Join tokens: what an operator hands to a new agent.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::secret::{SECRET_BYTES, hex, parse_fingerprint, random_bytes};
use crate::{PkiError, Result, TokenProblem, random_secret};

const PREFIX: &str = "PT1.";
const ID_BYTES_MAX: usize = 64;
/// Prefix of the id of a token whose control plane signs what it sends to agents. It is part of the id so that
/// older agents can read the token as well; older ids are hexadecimal digits.
const SIGNS: &str = "signs-";

/// The right to enrol, and the authority that the agent must trust. Its text form (Display) contains the secret: it
/// is for whoever requested the token, never for a log.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Identifies the token; not secret.
    pub id: String,
    pub secret: String,
    /// SHA-256 of the authority's certificate, in lower-case hexadecimal digits.
    pub authority_fingerprint: String,
}

impl JoinToken {
    pub fn generate(authority_fingerprint: &str) -> Result<Self> {
        let authority_fingerprint = parse_fingerprint(authority_fingerprint).ok_or(PkiError::Fingerprint)?;
        let id = format!("{SIGNS}{}", hex(&random_bytes::<8>()));
        Ok(Self { id, secret: random_secret(), authority_fingerprint })
    }

    /// Whether the control plane signed when it made the token. Then it has a signing key to present, and whoever
    /// has none is not the control plane.
    pub fn signs(&self) -> bool {
        self.id.starts_with(SIGNS)
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}.{}.{}", self.id, self.secret, self.authority_fingerprint)
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken")
            .field("id", &self.id)
            .field("authority_fingerprint", &self.authority_fingerprint)
            .finish_non_exhaustive()
    }
}

impl FromStr for JoinToken {
    type Err = PkiError;

    /// Surrounding whitespace is ignored: the token comes from files and clipboards.
    fn from_str(text: &str) -> Result<Self> {
        parse(text.trim()).map_err(|problem| PkiError::Token { problem })
    }
}

fn parse(text: &str) -> Result<JoinToken, TokenProblem> {
    let rest = text.strip_prefix(PREFIX).ok_or(TokenProblem::Prefix)?;
    let mut parts = rest.split('.');
    let (Some(id), Some(secret), Some(fingerprint), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenProblem::Parts);
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(legal) {
        return Err(TokenProblem::Id);
    }
    if URL_SAFE_NO_PAD.decode(secret).map(|bytes| bytes.len()) != Ok(SECRET_BYTES) {
        return Err(TokenProblem::Secret);
    }
    let authority_fingerprint = parse_fingerprint(fingerprint).ok_or(TokenProblem::Fingerprint)?;
    Ok(JoinToken { id: id.to_owned(), secret: secret.to_owned(), authority_fingerprint })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> JoinToken {
        JoinToken::generate(&"Ab".repeat(32)).unwrap()
    }

    #[test]
    fn a_token_survives_its_text_form() {
        let token = token();

        let read: JoinToken = format!(" {token}\n").parse().unwrap();

        assert_eq!(read, token);
        assert_eq!(read.authority_fingerprint, "ab".repeat(32));
    }

    #[test]
    fn a_token_says_that_its_control_plane_signs_and_one_from_before_does_not() {
        let new = token();
        let old = format!("PT1.0123456789abcdef.{}.{}", new.secret, new.authority_fingerprint);

        let read: JoinToken = new.to_string().parse().unwrap();

        assert!(read.signs());
        assert!(!old.parse::<JoinToken>().unwrap().signs());
    }

    #[test]
    fn a_wrong_text_is_explained_and_not_repeated() {
        let JoinToken { id, secret, authority_fingerprint: pin } = token();
        let cases = [
            (String::new(), TokenProblem::Prefix),
            (format!("PT2.{id}.{secret}.{pin}"), TokenProblem::Prefix),
            (format!("PT1.{id}.{secret}"), TokenProblem::Parts),
            (format!("PT1.{id}.{secret}.{pin}.x"), TokenProblem::Parts),
            (format!("PT1..{secret}.{pin}"), TokenProblem::Id),
            (format!("PT1.a b.{secret}.{pin}"), TokenProblem::Id),
            (format!("PT1.{id}.{}.{pin}", &secret[1..]), TokenProblem::Secret),
            (format!("PT1.{id}.{}.{pin}", secret.replace(&secret[..1], "!")), TokenProblem::Secret),
            (format!("PT1.{id}.{secret}.{}", &pin[1..]), TokenProblem::Fingerprint),
        ];
        for (text, expected) in cases {
            let error = text.parse::<JoinToken>().unwrap_err();

            assert!(matches!(error, PkiError::Token { problem } if problem == expected), "{text}: {error:?}");
            assert!(!error.to_string().contains(&secret[1..]), "{error}");
        }
    }

    #[test]
    fn a_token_for_something_that_is_no_fingerprint_is_refused() {
        assert!(matches!(JoinToken::generate("abc"), Err(PkiError::Fingerprint)));
    }

    #[test]
    fn debug_shows_no_secret() {
        let token = token();

        let shown = format!("{token:?}");

        assert!(shown.contains(&token.id));
        assert!(!shown.contains(&token.secret));
    }
}
