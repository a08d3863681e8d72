//! The ESB's signature: base64(HMAC-SHA1(secret, METHOD + path + "?" + parameters)).
//!
//! Promised: a signature is valid for [`AGE_MAX`], and once (`nonces`).
//! Absent: signatures of apps that were not created for signing; they have to send the secret itself.

use proctor_model::{Message, messages};
use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::body::Bytes;
use axum::extract::Query;
use axum::http::{Method, Uri};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(crate) const SIGNATURE: &str = "bk_signature";
const TIMESTAMP: &str = "bk_timestamp";
const NONCE: &str = "bk_nonce";
/// The body, under this name, among the parameters.
const DATA: &str = "data";

pub(crate) const AGE_MAX: Duration = Duration::from_secs(300);

/// A request that says it is signed.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    method: Method,
    path: String,
    /// Without the signature itself.
    query: BTreeMap<String, String>,
    body: Bytes,
    signature: String,
    pub(super) timestamp: i64,
    pub(super) nonce: u64,
}

impl Signed {
    /// None for a request without a signature.
    pub(crate) fn of(method: &Method, uri: &Uri, body: &Bytes) -> Result<Option<Self>, Message> {
        let is_signed = uri.query().is_some_and(|query| query.contains(SIGNATURE));
        if !is_signed {
            return Ok(None);
        }
        let Query(mut query): Query<BTreeMap<String, String>> =
            Query::try_from_uri(uri).map_err(|_| messages::malformed_query())?;
        let Some(signature) = query.remove(SIGNATURE) else { return Ok(None) };
        let timestamp = number(&query, TIMESTAMP)?;
        let nonce = number(&query, NONCE)?;
        if nonce == 0 {
            return Err(messages::must_be_positive(NONCE));
        }
        let (method, path, body) = (method.clone(), uri.path().to_owned(), body.clone());
        Ok(Some(Self { method, path, query, body, signature, timestamp, nonce }))
    }

    /// Not older than [`AGE_MAX`], and not from a clock that is ahead by more.
    pub(super) fn is_timely(&self, now_secs: i64) -> bool {
        self.timestamp.abs_diff(now_secs) <= AGE_MAX.as_secs()
    }

    /// In Unix seconds.
    pub(super) fn counts_until(&self) -> i64 {
        self.timestamp.saturating_add_unsigned(AGE_MAX.as_secs())
    }

    /// In constant time.
    pub(super) fn is_by(&self, secret: &str) -> bool {
        let Ok(signature) = STANDARD.decode(&self.signature) else { return false };
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
        hmac::verify(&key, &self.text(), &signature).is_ok()
    }

    fn text(&self) -> Vec<u8> {
        let mut parameters: BTreeMap<&str, &[u8]> =
            self.query.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        if !self.body.is_empty() {
            parameters.insert(DATA, &self.body);
        }
        let mut text = format!("{}{}?", self.method, self.path).into_bytes();
        for (index, (name, value)) in parameters.into_iter().enumerate() {
            if index > 0 {
                text.push(b'&');
            }
            text.extend_from_slice(name.as_bytes());
            text.push(b'=');
            text.extend_from_slice(value);
        }
        text
    }
}

fn number<T: std::str::FromStr>(query: &BTreeMap<String, String>, name: &str) -> Result<T, Message> {
    let text = query.get(name).ok_or_else(|| messages::missing_from_signed_query(name))?;
    text.parse().map_err(|_| messages::not_a_whole_number(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(method: Method, uri: &str, body: &str) -> Signed {
        Signed::of(&method, &uri.parse().unwrap(), &Bytes::from(body.to_owned())).unwrap().unwrap()
    }

    // python3: import hmac, base64, hashlib
    // base64.b64encode(hmac.new(b"sample-secret", b"POST/api/c/compapi/v2/gse/operate_proc/?"
    //   b"bk_nonce=7&bk_timestamp=1700000000&data=" + body, hashlib.sha1).digest())
    #[test]
    fn a_post_is_signed_with_its_body_as_data() {
        let body = r#"{"bk_app_code": "sample_app", "bk_username": "admin", "task_id": "张"}"#;
        let uri = "/api/c/compapi/v2/gse/operate_proc/?bk_timestamp=1700000000&bk_nonce=7&bk_signature=2hMtwUK2%2BcegA%2B%2FVhmUQNBZ1OFg%3D";

        let signed = signed(Method::POST, uri, body);

        assert!(signed.is_by("sample-secret"));
        assert!(!signed.is_by("other-secret"));
        assert!(!Signed { body: Bytes::from_static(b"{}"), ..signed.clone() }.is_by("sample-secret"));
        assert!(!Signed { path: "/other/".into(), ..signed.clone() }.is_by("sample-secret"));
        assert!(!Signed { method: Method::PUT, ..signed }.is_by("sample-secret"));
    }

    // The same of b"GET/api/c/compapi/v2/job/get_proc_result/?bk_app_code=sample_app&bk_biz_id=2"
    // b"&bk_gse_taskid=GSETASK:x y&bk_nonce=8&bk_timestamp=1700000000&bk_username=admin"
    #[test]
    fn a_get_is_signed_with_its_decoded_parameters_in_order() {
        let uri = "/api/c/compapi/v2/job/get_proc_result/?bk_username=admin&bk_gse_taskid=GSETASK%3Ax+y\
                   &bk_biz_id=2&bk_app_code=sample_app&bk_timestamp=1700000000&bk_nonce=8&bk_signature=fg0LGFb69Rd6fAKX984p5xX6c5o%3D";

        assert!(signed(Method::GET, uri, "").is_by("sample-secret"));
    }

    #[test]
    fn a_signature_has_a_time_and_a_nonce() {
        let of = |query: &str| Signed::of(&Method::GET, &format!("/x?{query}").parse().unwrap(), &Bytes::new());

        assert!(of("a=b").unwrap().is_none());
        assert_eq!(
            of("bk_signature=x&bk_nonce=1").unwrap_err(),
            "bk_timestamp is missing from the query of a signed request"
        );
        assert_eq!(of("bk_signature=x&bk_timestamp=1&bk_nonce=x").unwrap_err(), "bk_nonce is not a whole number");
        assert_eq!(of("bk_signature=x&bk_timestamp=1&bk_nonce=0").unwrap_err(), "bk_nonce must be greater than 0");
        let signed = of("bk_signature=x&bk_timestamp=1000&bk_nonce=1").unwrap().unwrap();
        for (now, is_timely) in [(1000, true), (1300, true), (1301, false), (700, true), (699, false)] {
            assert_eq!(signed.is_timely(now), is_timely, "{now}");
        }
        assert!(!signed.is_timely(i64::MIN));
    }
}
