//! Where a webhook may point.

use proctor_model::{FieldError, Message, messages};
use reqwest::Url;

const URL_BYTES_MAX: usize = 2048;

/// An http or https address without a name or password in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl(Url);

impl WebhookUrl {
    pub(super) fn get(&self) -> &Url {
        &self.0
    }

    /// Without path and query, which often hold a key.
    pub(crate) fn shown(&self) -> String {
        self.0.origin().ascii_serialization()
    }

    /// If it is in the URL itself; names are resolved when connecting.
    pub(super) fn address(&self) -> Option<std::net::IpAddr> {
        let host = self.0.host_str()?;
        host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }

    pub(super) fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }
}

impl std::str::FromStr for WebhookUrl {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |problem: Message| FieldError::new("url", problem);
        if text.len() > URL_BYTES_MAX {
            return Err(bad(messages::longer_than_bytes(URL_BYTES_MAX)));
        }
        let url = Url::parse(text).map_err(|error| bad(messages::not_a_url(error)))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad(messages::url_has_wrong_scheme(url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad(messages::url_has_credentials()));
        }
        Ok(Self(url))
    }
}

impl std::fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_without_credentials_are_taken() {
        assert!("https://example.com/hook?key=1".parse::<WebhookUrl>().is_ok());
        for bad in ["", "example.com", "ftp://example.com/", "file:///etc/passwd", "http://", "http://a:b@example.com/"]
        {
            assert_eq!(bad.parse::<WebhookUrl>().unwrap_err().field, "url", "{bad}");
        }
    }
}
