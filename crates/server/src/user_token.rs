//! The text of a user's token: `pt_<id>_<secret>`. The id finds it, the secret proves it.

use std::fmt;
use std::str::FromStr;

use proctor_pki::{hex, random_bytes, random_secret};

const PREFIX: &str = "pt_";
const ID_BYTES: usize = 8;

/// A token as its user has it. Only its Display reveals the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    pub id: String,
    pub(crate) secret: String,
}

impl TokenText {
    pub(crate) fn generate() -> Self {
        let id = hex(&random_bytes::<ID_BYTES>());
        Self { id, secret: random_secret() }
    }

    /// Whether the text is meant as one of ours; tokens of other services look different.
    pub(crate) fn is_meant(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenText").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Display for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_{}", self.id, self.secret)
    }
}

/// The text does not have the form of one of our tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a user token")]
pub struct NotOurs;

impl FromStr for TokenText {
    type Err = NotOurs;

    /// The secret may hold underscores, the id may not.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (id, secret) = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(NotOurs)?;
        if id.is_empty() || secret.is_empty() {
            return Err(NotOurs);
        }
        Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text_and_hides_its_secret() {
        let token = TokenText { id: "0123abcd".into(), secret: "hush_hush-1".into() };

        assert_eq!(token.to_string(), "pt_0123abcd_hush_hush-1");
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains("hush"));
        assert_eq!(TokenText::generate().to_string().parse::<TokenText>().unwrap().id.len(), 16);
        for bad in ["", "pt_", "pt_a", "pt__x", "pt_a_", "xx_a_b"] {
            assert_eq!(bad.parse::<TokenText>(), Err(NotOurs), "{bad}");
        }
    }
}
