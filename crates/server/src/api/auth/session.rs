//! Console sessions: a special kind of user token that a browser keeps in a cookie.
//!
//! Promised: the cookie is accepted only on the native API, never in a header and never on the compatible APIs; a
//! call that may change something also needs the session's CSRF token, which a page of another origin cannot read. A
//! session lasts [`SESSION_LIFETIME`] and ends early with the token that opened it, with a new password, with its
//! user, or when it is closed. One-time links work once, for [`LINK_LIFETIME`], and not after their user was disabled
//! or removed or got another password.

use proctor_model::messages;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, Method, header};
use parking_lot::Mutex;
use proctor_pki::random_secret;
use proctor_store::UserCredential;

use super::super::error::{ApiError, Problem};
use super::super::proxies::Reached;
use crate::admin::SESSION_LIFETIME;
use crate::keys::Keys;

pub(in crate::api) const COOKIE: &str = "proctor_session";
pub(in crate::api) const CSRF_HEADER: &str = "x-proctor-csrf";
pub(in crate::api) const LINK_LIFETIME: Duration = Duration::from_secs(600);
const LINKS_MAX: usize = 256;

/// What a browser shows: the cookie and, for a change, the CSRF token.
#[derive(Clone)]
pub(crate) struct SessionProof {
    token: String,
    csrf: Option<String>,
    is_change: bool,
}

impl SessionProof {
    /// None without the cookie.
    pub(crate) fn from_headers(method: &Method, headers: &HeaderMap) -> Option<Self> {
        let token = cookie(headers)?.to_owned();
        let csrf = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Some(Self { token, csrf, is_change: !matches!(*method, Method::GET | Method::HEAD) })
    }

    pub(in crate::api) fn token(&self) -> &str {
        &self.token
    }

    /// A page of another origin can have the cookie sent, but cannot know the CSRF token.
    pub(super) fn check_csrf(&self, keys: &Keys) -> Result<(), ApiError> {
        let expected = csrf_token(keys, &self.token);
        if !self.is_change || self.csrf.as_deref().is_some_and(|csrf| proctor_pki::secrets_match(csrf, &expected)) {
            return Ok(());
        }
        Err(ApiError::new(Problem::Forbidden, messages::csrf_token_is_wrong(CSRF_HEADER)))
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == COOKIE && !value.is_empty()).then_some(value))
}

/// Made from the session's token, so that it needs no room in the store.
pub(in crate::api) fn csrf_token(keys: &Keys, token: &str) -> String {
    proctor_pki::hex(&keys.fingerprint(&["console csrf", token]))
}

/// The value of `Set-Cookie` for a session, or for its end where there is no token.
pub(in crate::api) fn set_cookie(token: Option<&str>, reached: Reached, headers: &HeaderMap) -> HeaderValue {
    // A browser behind an unknown proxy reports the scheme of its own page; it can only deceive itself.
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_https = reached.is_https || origin.is_some_and(|origin| origin.starts_with("https://"));
    let secure = if is_https { "; Secure" } else { "" };
    let (value, seconds) = token.map_or(("", 0), |token| (token, SESSION_LIFETIME.as_secs()));
    let cookie = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::try_from(cookie).expect("a token is ASCII")
}

/// Unused one-time links. They do not outlive the server.
#[derive(Debug, Default)]
pub(in crate::api) struct Links(Mutex<HashMap<String, Link>>);

#[derive(Debug)]
struct Link {
    user: String,
    /// As it was when the link was made.
    credential: UserCredential,
    end: Instant,
}

impl Links {
    /// The code of a new link for this user; beyond [`LINKS_MAX`] the oldest are dropped.
    pub(in crate::api) fn create(&self, user: &str, credential: UserCredential, now: Instant) -> String {
        let mut links = self.0.lock();
        links.retain(|_, link| link.end > now);
        if links.len() >= LINKS_MAX {
            let oldest = links.iter().min_by_key(|(_, link)| link.end).map(|(code, _)| code.clone());
            oldest.and_then(|code| links.remove(&code));
        }
        let code = random_secret();
        links.insert(code.clone(), Link { user: user.to_owned(), credential, end: now + LINK_LIFETIME });
        code
    }

    /// The user of the link and what was the credential when it was made, once.
    pub(in crate::api) fn take(&self, code: &str, now: Instant) -> Option<(String, UserCredential)> {
        let link = self.0.lock().remove(code)?;
        (link.end > now).then_some((link.user, link.credential))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        for (text, expected) in [
            ("proctor_session=pt_1_x", Some("pt_1_x")),
            ("theme=dark; proctor_session=pt_1_x;a=b", Some("pt_1_x")),
            ("proctor_session=", None),
            ("xproctor_session=1", None),
            ("", None),
        ] {
            assert_eq!(cookie(&headers(&[("cookie", text)])), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_change_needs_the_csrf_token_of_this_very_session() {
        let keys = Keys::from_master(b"master");
        let proof = |method: &Method, csrf: Option<String>| SessionProof {
            csrf,
            ..SessionProof::from_headers(method, &headers(&[("cookie", "proctor_session=pt_1_x")])).unwrap()
        };

        assert!(proof(&Method::GET, None).check_csrf(&keys).is_ok());
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            assert!(proof(&method, Some(csrf_token(&keys, "pt_1_x"))).check_csrf(&keys).is_ok());
            for bad in [None, Some(String::new()), Some(csrf_token(&keys, "pt_2_y"))] {
                assert_eq!(proof(&method, bad).check_csrf(&keys).unwrap_err().problem, Problem::Forbidden);
            }
        }
    }

    #[test]
    fn a_cookie_is_out_of_reach_for_scripts_and_other_sites() {
        let over = |is_https| Reached { is_https, ..Reached::default() };
        let plain = set_cookie(Some("pt_1_x"), over(false), &headers(&[("origin", "http://proctor.example")]));
        let secure = set_cookie(Some("pt_1_x"), over(false), &headers(&[("origin", "https://proctor.example")]));
        let cleared = set_cookie(None, over(false), &HeaderMap::new());

        assert_eq!(plain, "proctor_session=pt_1_x; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200");
        assert_eq!(secure, "proctor_session=pt_1_x; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure");
        assert_eq!(set_cookie(Some("pt_1_x"), over(true), &HeaderMap::new()), secure);
        assert_eq!(cleared, "proctor_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }

    fn credential() -> UserCredential {
        UserCredential { life: 0, version: 0, password_hash: None }
    }

    #[test]
    fn a_link_works_once_and_for_a_while() {
        let (links, now) = (Links::default(), Instant::now());
        let (first, second) = (links.create("a", credential(), now), links.create("b", credential(), now));

        assert_eq!(links.take(&first, now), Some(("a".to_owned(), credential())));
        assert_eq!(links.take(&first, now), None);
        assert_eq!(links.take(&second, now + LINK_LIFETIME), None);
        assert_eq!(links.take("guess", now), None);
    }

    #[test]
    fn links_that_nobody_uses_are_bounded() {
        let (links, now) = (Links::default(), Instant::now());
        let first = links.create("a", credential(), now);

        for later in 1..=LINKS_MAX {
            links.create("b", credential(), now + Duration::from_millis(later as u64));
        }

        assert_eq!(links.0.lock().len(), LINKS_MAX);
        assert_eq!(links.take(&first, now), None);
    }
}
