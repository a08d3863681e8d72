//! Names, secrets and tokens as a request carries them.

use std::fmt;

use serde::Deserialize;

/// The fields of a request that are credentials; they never get further than this module.
pub(in crate::api) const FIELDS: [&str; 13] = [
    "bk_app_code",
    "app_code",
    "bk_app_secret",
    "app_secret",
    "bk_username",
    "username",
    "bk_token",
    "bk_ticket",
    "access_token",
    "bk_access_token",
    "bk_signature",
    "bk_timestamp",
    "bk_nonce",
];

/// What a request says, wherever it said it. Empty text counts as absent.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Plain {
    bk_app_code: Option<String>,
    app_code: Option<String>,
    bk_app_secret: Option<String>,
    app_secret: Option<String>,
    bk_username: Option<String>,
    username: Option<String>,
    bk_token: Option<String>,
    bk_ticket: Option<String>,
    access_token: Option<String>,
    bk_access_token: Option<String>,
    /// The token came in `Authorization: Bearer`, where only tokens of our own users belong.
    #[serde(skip)]
    is_bearer: bool,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain")
            .field("app", &self.app())
            .field("user", &self.user())
            .field("has_secret", &self.secret().is_some())
            .field("has_token", &self.token().is_some())
            .finish_non_exhaustive()
    }
}

impl Plain {
    pub(super) fn of_token(token: String) -> Self {
        Self { access_token: Some(token), is_bearer: true, ..Self::default() }
    }

    pub(super) fn is_bearer(&self) -> bool {
        self.is_bearer
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.app().is_none() && self.user().is_none() && !self.has_proof()
    }

    /// More than names.
    pub(crate) fn has_proof(&self) -> bool {
        self.secret().is_some() || self.token().is_some()
    }

    pub(super) fn app(&self) -> Option<&str> {
        first(&[&self.bk_app_code, &self.app_code])
    }

    pub(super) fn secret(&self) -> Option<&str> {
        first(&[&self.bk_app_secret, &self.app_secret])
    }

    pub(super) fn user(&self) -> Option<&str> {
        first(&[&self.bk_username, &self.username])
    }

    /// In the order in which the ESB looks.
    pub(super) fn token(&self) -> Option<&str> {
        first(&[&self.access_token, &self.bk_access_token, &self.bk_token, &self.bk_ticket])
    }
}

fn first<'a>(texts: &[&'a Option<String>]) -> Option<&'a str> {
    texts.iter().find_map(|text| text.as_deref().filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(json: &str) -> Plain {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn debug_shows_neither_secret_nor_token() {
        let plain = plain(r#"{"bk_app_code":"a","bk_app_secret":"hush","bk_token":"quiet","bk_username":"u"}"#);

        let shown = format!("{plain:?}");

        assert!(!shown.contains("hush") && !shown.contains("quiet"), "{shown}");
    }

    #[test]
    fn old_names_serve_where_the_new_ones_are_empty() {
        let plain = plain(r#"{"bk_app_code":"","app_code":"a","app_secret":"s","username":"u"}"#);

        assert_eq!((plain.app(), plain.secret(), plain.user()), (Some("a"), Some("s"), Some("u")));
    }
}
