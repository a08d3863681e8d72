//! Callers vouched for by an API gateway in front: the header `X-Bkapi-JWT`, signed with RS512.
//!
//! Promised: a token is accepted only if the configured key signed it with RS512, it is currently valid, and the
//! gateway has verified its app and user.
//! Absent: other algorithms, and keys by `kid`: there is one gateway in front, with one key.

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proctor_model::{FieldError, Message, messages};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

/// Clocks of two machines are never quite the same.
const SKEW_SECS: i64 = 60;

/// The public key of the gateway.
#[derive(Clone)]
pub struct GatewayKey(Vec<u8>);

impl std::fmt::Debug for GatewayKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayKey").finish_non_exhaustive()
    }
}

impl std::str::FromStr for GatewayKey {
    type Err = FieldError;

    /// A PEM with `BEGIN PUBLIC KEY`, of RSA.
    fn from_str(pem: &str) -> Result<Self, Self::Err> {
        let bad = || FieldError::new("gateway_public_key", messages::not_an_rsa_public_key());
        let key = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).map_err(|_| bad())?;
        aws_lc_rs::rsa::PublicKey::from_der(&key).map_err(|_| bad())?;
        Ok(Self(key.to_vec()))
    }
}

/// Whom the gateway has verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GatewayIdentity {
    pub(super) app: String,
    pub(super) user: String,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<i64>,
    nbf: Option<i64>,
    app: Option<App>,
    user: Option<User>,
}

#[derive(Deserialize)]
struct App {
    #[serde(alias = "bk_app_code")]
    app_code: Option<String>,
    #[serde(default)]
    verified: bool,
}

#[derive(Deserialize)]
struct User {
    #[serde(alias = "bk_username")]
    username: Option<String>,
    #[serde(default)]
    verified: bool,
}

impl GatewayKey {
    /// The reason of a refusal says nothing about the token's content.
    pub(super) fn verify(&self, token: &str, now_secs: i64) -> Result<GatewayIdentity, Message> {
        let (signed, signature) = token.rsplit_once('.').ok_or_else(messages::jwt_malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(messages::jwt_malformed)?;
        let header: Header = part(header).ok_or_else(messages::jwt_header_unreadable)?;
        if header.alg != "RS512" {
            return Err(messages::jwt_of_another_algorithm());
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| messages::jwt_signature_unreadable())?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA512, &self.0)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| messages::jwt_of_another_key())?;
        let claims: Claims = part(claims).ok_or_else(messages::jwt_claims_unreadable)?;
        claims.vouched(now_secs)
    }
}

impl Claims {
    fn vouched(self, now_secs: i64) -> Result<GatewayIdentity, Message> {
        let end = self.exp.ok_or_else(messages::jwt_without_end)?;
        if end.saturating_add(SKEW_SECS) < now_secs {
            return Err(messages::jwt_expired());
        }
        if self.nbf.is_some_and(|begin| begin.saturating_sub(SKEW_SECS) > now_secs) {
            return Err(messages::jwt_not_valid_yet());
        }
        let app = self.app.filter(|app| app.verified).and_then(|app| app.app_code).filter(|code| !code.is_empty());
        let user =
            self.user.filter(|user| user.verified).and_then(|user| user.username).filter(|name| !name.is_empty());
        Ok(GatewayIdentity {
            app: app.ok_or_else(messages::jwt_app_unverified)?,
            user: user.ok_or_else(messages::jwt_user_unverified)?,
        })
    }
}

fn part<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

/// A key of its own and tokens that it signed, made once with Python's `cryptography`:
/// `key.sign(header + b"." + claims, padding.PKCS1v15(), hashes.SHA512())`.
#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEApNb14e4x5eQSSJ9tL4So
sNIm4tjXyiZurLti/gKEbee4C9GZo4/QLWF4E0bAWl5o/SRIUSROJfkVKrIcIjrt
KdUYXb19JjLBePPCpiVsKAJZn5+g5JKUZ/NEO5TibEsmRRoMLwutXqr16eZg36GI
MvkO32i9ydIkkPiM/YU+QPaMTsesbBFzssu8orYBmRG3bPtRqBltlZjobo96QSdn
rt7smtoaOZWNUyAu/ceFOcbJCuP7nYOZQClKdTmJjdBYgSCmXMUFBLqDRrhnoXId
lBn5QyFE+7uC0LC1DOEupMXuelW3b6zdOsckAl9b7nHgXDBBkOLpUW+xZZMtw/c8
XQIDAQAB
-----END PUBLIC KEY-----
";
    /// `{"exp": 1700000600, "nbf": 1700000000, "app": {"app_code": "bk_gsekit", "verified": true},
    /// "user": {"username": "admin", "verified": true}}`
    const GOOD: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzUxMiIsICJraWQiOiAiYmstZ3NlIn0.eyJleHAiOiAxNzAwMDAwNjAwLCAibmJm\
        IjogMTcwMDAwMDAwMCwgImFwcCI6IHsiYXBwX2NvZGUiOiAiYmtfZ3Nla2l0IiwgInZlcmlmaWVkIjogdHJ1ZX0sICJ1c2Vy\
        IjogeyJ1c2VybmFtZSI6ICJhZG1pbiIsICJ2ZXJpZmllZCI6IHRydWV9fQ.J1lc8QE3oLRATuSzgQ53qE3w8CFv837h36pV9\
        RIak3ePsF-rYIHy9uVykWkuTJxh9Zn4lx_RZ52EEuMwFrNNQMjaPrJbO6bt7UaUe2Esh4y2deFxM9BnUNOE_ibL-1JI9XJBV\
        MIWY7drk_qjtbPTIe3NLOXKH9KT-KiYYOjOZiTu8_OQg8Kc-wtGTRclJcr7rucTVLl2xwhIG1fjp0TCadXO7gqVCDcI72RsJ\
        rrXZUXQwL0bh9tBdreAO6oZmvHhiIkuQ4oq7rxVmxxc5yGXmZEloxwMNheJMFF9ijaNoahyPHuawOyJ-hc6UkcAfW471B8HY\
        utPA0ddaT2IQJGlXg";
    /// With `bk_app_code` and `bk_username`, and no nbf.
    const NEW_NAMES: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzUxMiIsICJraWQiOiAiYmstZ3NlIn0.eyJleHAiOiAxNzAwMDAwNjAwLCAiYXBw\
        IjogeyJia19hcHBfY29kZSI6ICJia19nc2VraXQiLCAidmVyaWZpZWQiOiB0cnVlfSwgInVzZXIiOiB7ImJrX3VzZXJuYW1l\
        IjogImFkbWluIiwgInZlcmlmaWVkIjogdHJ1ZX19.U30JUF7wm_4790lE5oRlBVZBZZRJWUeW7tWME5m7tWgz6GTjXtqZctu\
        jiJQLVKTtjYgzKfw__Z8uc10Au9nGEu0fMsqF9lWdjhu5KZm5X3Nc2bEa9OhjIB_1QLKW_omjfGVLJuds5rAUPnZjZjXw1rE\
        5TyM7Nwa3IoWf-nGNomLMED1Qd0kDqWNK7s-A2CZliRpc8mkMrmfYStwOVYavzsFjlL9VxRNLiMXqmxqDploPJX73KBzB0pi\
        GkE7rJwD3foMcOCLASacrzOxACSl_szlRJUtb3zM5YboYt7GSi8FlP1-C9PUB7E0cUUfo_OUJlEv5g9zNfSwOnD5It89FbQ";
    /// `"user": {"username": "admin", "verified": false}`
    const USER_UNVERIFIED: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzUxMiIsICJraWQiOiAiYmstZ3NlIn0.eyJleHAiOiAxNzAwMDAwNjAwLCAibmJm\
        IjogMTcwMDAwMDAwMCwgImFwcCI6IHsiYXBwX2NvZGUiOiAiYmtfZ3Nla2l0IiwgInZlcmlmaWVkIjogdHJ1ZX0sICJ1c2Vy\
        IjogeyJ1c2VybmFtZSI6ICJhZG1pbiIsICJ2ZXJpZmllZCI6IGZhbHNlfX0.R8Bqdqj31VuP1QeNasXhTHO7JyIbgE5n3snD\
        yeM-n64l1JXr5SIYS1zIwqn8pKvt5yWN7HR6VYPq6DvWtGL_dfxoimm5FpCWp-_rtXLzSyVDiACjqDOcMUZsrAZxxyQ9iZzW\
        siMZl2a-PhK8T9qCMXQ2gjKwTQ1M_bkGQoZhQyZ2FGYc8Ly0mq3IEIiNABkSBNSk7dJlSAtWtQvLzgLMIVMkQnASgvqxWKfF\
        4q_ypDS_mJJCair2LjX7wqtTFpOZoURV6tO6u_otcVPYutyUilVfhfSnvJepcfLqT2qgvobjU1EEoN2oBM6m1wOFU7WYZq9K\
        I8cJpsLsFL1mIcR2tA";
    /// `"app": {"app_code": "x", "verified": false}`
    const APP_UNVERIFIED: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzUxMiIsICJraWQiOiAiYmstZ3NlIn0.eyJleHAiOiAxNzAwMDAwNjAwLCAibmJm\
        IjogMTcwMDAwMDAwMCwgImFwcCI6IHsiYXBwX2NvZGUiOiAieCIsICJ2ZXJpZmllZCI6IGZhbHNlfSwgInVzZXIiOiB7InVz\
        ZXJuYW1lIjogImFkbWluIiwgInZlcmlmaWVkIjogdHJ1ZX19.HzKfM-ve3mbenjgsdq624SimV7V4DbQvLsm8zEfqykNCHRU\
        z9M-c9ZprjIM3BWWLJa6cbj_ee3n6Q6qh0Zjo0BtS6SXrB8K7K8b8Zura7EEXvcX_BJWzorXyFp34PrZ5Bk0jeWzafpvWMR3\
        5OeUT6sMPa_mF6IF6DHClG2_O_0uryY7iWcxu264mqCRKWj1YREaUclqzztF2LmpMhETe5RPeB7glMu2AEHMsr6M71pftYZp\
        P1FrKpsobSehLFtxPfovxRQKDqk6ooVbi3cMs_8EK7dtwsti2svIxwVGueNaW8eywd70oVK526NyB3k1dFfzLfZWhJ9RH85N\
        P8sgFuA";
    /// Without exp.
    const ENDLESS: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzUxMiIsICJraWQiOiAiYmstZ3NlIn0.eyJhcHAiOiB7ImFwcF9jb2RlIjogImJr\
        X2dzZWtpdCIsICJ2ZXJpZmllZCI6IHRydWV9LCAidXNlciI6IHsidXNlcm5hbWUiOiAiYWRtaW4iLCAidmVyaWZpZWQiOiB0\
        cnVlfX0.ZPpQ46DVRdQ9hGXD2XvpvITxx6nM7COjx-yW9N_VAttE8_Aa0p8Q6PgdVutdzCmJay_KFoRWGyqSOQbvJMoF2MbS\
        z9QoNBpw0S4pc6vKJ-a09PAF81AWGqg8FcxlH8LZRLcCtEXypPMUGjwQe0shnsCbFY3kFXJhbxxBGWADefCHM3JDg6i7BAxa\
        9hA3is7UeIwaZIxA8V_OiOcrmEV1knaYZkn3vdryvi69t7TIKqGui3HiUPolGgId7dLDbtbZKXP7xc53X31axy-rWimTXzIP\
        y2gdxAENBXUA7mEio4AgImySy7HWOBAQ205v7egMRCa0-0iU_OWiscGJBq8ccg";
    /// Signed with RS256, as its header says.
    const OTHER_ALGORITHM: &str = "eyJ0eXAiOiAiSldUIiwgImFsZyI6ICJSUzI1NiIsICJraWQiOiAiYmstZ3NlIn0.eyJleHAiOiAxNzAwMDAwNjAwLCAibmJm\
        IjogMTcwMDAwMDAwMCwgImFwcCI6IHsiYXBwX2NvZGUiOiAiYmtfZ3Nla2l0IiwgInZlcmlmaWVkIjogdHJ1ZX0sICJ1c2Vy\
        IjogeyJ1c2VybmFtZSI6ICJhZG1pbiIsICJ2ZXJpZmllZCI6IHRydWV9fQ.bU-1Hi70O4q9PpYfHW0y3ILGRBM-hcXrqqeZa\
        LDlT-aoCTRQowMGKyJkk03TGHC8LJUNhwPkZWhBpd4uw0qSAv30ZXKoGpF8oVwwm4A7TJRB5P-L2a1w4kKKfu10G9AZJCLPO\
        ptohcTc1QpX9FEFDklgwC29p64QN1I-ws2FmH_tXm-tgBdhVRWbIydxa6KayFFaF16xvOVq-daFFqFSrkgFQoA4nnCT-0LnP\
        XgKltguoTD7gFWS0mvUXdf4xBcTwOA9R_Xv-BiE1-kQrwaLGUSPMzhCaFurk-cMOd281bSEkqwcT-14C5GlX_ceMVXqxm1bZ\
        YZkpcuLA9FL4Lv6jA";

    fn key() -> GatewayKey {
        KEY.parse().unwrap()
    }

    #[test]
    fn a_token_of_the_gateway_names_app_and_user() {
        let expected = || GatewayIdentity { app: "bk_gsekit".into(), user: "admin".into() };

        assert_eq!(key().verify(GOOD, 1_700_000_100), Ok(expected()));
        assert_eq!(key().verify(NEW_NAMES, 1_700_000_100), Ok(expected()));
    }

    #[test]
    fn a_token_counts_from_its_beginning_to_its_end_give_or_take_a_minute() {
        assert_eq!(key().verify(GOOD, 1_700_000_661), Err(messages::jwt_expired()));
        assert!(key().verify(GOOD, 1_700_000_660).is_ok());
        assert_eq!(key().verify(GOOD, 1_699_999_939), Err(messages::jwt_not_valid_yet()));
        assert!(key().verify(GOOD, 1_699_999_940).is_ok());
        assert_eq!(key().verify(ENDLESS, 1_700_000_100), Err(messages::jwt_without_end()));
    }

    #[test]
    fn what_the_gateway_did_not_verify_is_not_believed() {
        assert_eq!(key().verify(USER_UNVERIFIED, 1_700_000_100), Err(messages::jwt_user_unverified()));
        assert_eq!(key().verify(APP_UNVERIFIED, 1_700_000_100), Err(messages::jwt_app_unverified()));
    }

    #[test]
    fn neither_another_algorithm_nor_a_changed_token_is_taken() {
        let (signed, signature) = GOOD.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        let (other, _) = USER_UNVERIFIED.rsplit_once('.').unwrap();
        let none = format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), signed.split_once('.').unwrap().1);

        assert_eq!(key().verify(OTHER_ALGORITHM, 1_700_000_100), Err(messages::jwt_of_another_algorithm()));
        assert_eq!(key().verify(&none, 1_700_000_100), Err(messages::jwt_of_another_algorithm()));
        let swapped = format!("{other}.{signature}");
        assert_eq!(key().verify(&swapped, 1_700_000_100), Err(messages::jwt_of_another_key()));
        for broken in ["", ".", "..", header, "a.b.c", &format!("{signed}.!")] {
            assert!(key().verify(broken, 1_700_000_100).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_key_is_rsa_in_pem() {
        for bad in ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "ssh-rsa AAAA"] {
            assert_eq!(bad.parse::<GatewayKey>().unwrap_err().field, "gateway_public_key");
        }
    }
}
