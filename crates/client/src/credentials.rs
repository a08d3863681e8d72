//! The caller's credentials.

use std::fmt;

use serde_json::json;

const APP_HEADER: &str = "x-bkapi-authorization";
const USER_HEADER: &str = "authorization";

/// How the caller authenticates.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    App { code: String, secret: String, user: String },
    User { token: String },
}

impl Credentials {
    /// An app, its secret, and the user on whose behalf it calls.
    pub fn new(app_code: impl Into<String>, app_secret: impl Into<String>, user: impl Into<String>) -> Self {
        Self(Kind::App { code: app_code.into(), secret: app_secret.into(), user: user.into() })
    }

    /// A token of a user.
    pub fn user_token(token: impl Into<String>) -> Self {
        Self(Kind::User { token: token.into() })
    }

    /// Name and value.
    pub(crate) fn header(&self) -> (&'static str, String) {
        match &self.0 {
            Kind::App { code, secret, user } => (APP_HEADER, app_header(code, secret, user)),
            Kind::User { token } => (USER_HEADER, format!("Bearer {token}")),
        }
    }
}

/// JSON with everything outside ASCII escaped, because headers carry nothing else reliably.
fn app_header(code: &str, secret: &str, user: &str) -> String {
    let json = json!({ "bk_app_code": code, "bk_app_secret": secret, "bk_username": user });
    let mut header = String::new();
    for c in json.to_string().chars() {
        if c.is_ascii() && !c.is_ascii_control() {
            header.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                header.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    header
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credentials");
        match &self.0 {
            Kind::App { code, user, .. } => shown.field("app_code", code).field("user", user),
            Kind::User { .. } => &mut shown,
        };
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_ascii_and_says_the_same() {
        let header = Credentials::new("app", "s\"x", "进程😀").header().1;

        assert!(header.is_ascii());
        let value: serde_json::Value = serde_json::from_str(&header).unwrap();
        assert_eq!(value["bk_username"], "进程😀");
        assert_eq!(value["bk_app_secret"], "s\"x");
    }

    #[test]
    fn debug_shows_no_secret() {
        assert!(!format!("{:?}", Credentials::new("app", "hush", "me")).contains("hush"));
        assert!(!format!("{:?}", Credentials::user_token("hush")).contains("hush"));
    }
}
