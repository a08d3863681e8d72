//! Who we are to a server.

use std::fmt;

use serde_json::json;

pub(crate) const HEADER: &str = "x-bkapi-authorization";

/// An app, its secret, and the user on whose behalf it calls.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    app_code: String,
    app_secret: String,
    user: String,
}

impl Credentials {
    pub fn new(app_code: impl Into<String>, app_secret: impl Into<String>, user: impl Into<String>) -> Self {
        Self { app_code: app_code.into(), app_secret: app_secret.into(), user: user.into() }
    }

    /// The value of the header: JSON in which everything outside ASCII is escaped, because headers
    /// carry nothing else reliably.
    pub(crate) fn to_header(&self) -> String {
        let json = json!({
            "bk_app_code": self.app_code,
            "bk_app_secret": self.app_secret,
            "bk_username": self.user,
        });
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
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("app_code", &self.app_code)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_ascii_and_says_the_same() {
        let header = Credentials::new("app", "s\"x", "进程😀").to_header();

        assert!(header.is_ascii());
        let value: serde_json::Value = serde_json::from_str(&header).unwrap();
        assert_eq!(value["bk_username"], "进程😀");
        assert_eq!(value["bk_app_secret"], "s\"x");
    }

    #[test]
    fn debug_shows_no_secret() {
        assert!(!format!("{:?}", Credentials::new("app", "hush", "me")).contains("hush"));
    }
}
