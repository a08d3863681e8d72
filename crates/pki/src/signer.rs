//! The key that signs commands, and how an agent recognises it.
//!
//! Promised: the key is Ed25519 and vouched for by a short-lived certificate of the authority that agents pin. That
//! certificate has a name and a purpose that no other certificate of the authority has, so the key of an agent, of
//! the link or of HTTPS signs no command, and this one opens no connection. Keys are numbered; the newest
//! certificate also names the oldest key that is still valid, so a rotation reaches every agent with the next
//! message. Absent: storage, and when to rotate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use jiff::Timestamp;
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, SanType, SigningKey};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::agent_key::common_name;
use crate::authority::{ia5, params, redacted};
use crate::certificate::{certificates_from_pem, expires_at_der, parse};
use crate::hash_tree::{Hash, HashTree};
use crate::{Authority, PkiError, Result};

/// The name in the certificate is a URI: this prefix, the number of the key, ':', and the oldest valid number.
const SIGNER_URI_PREFIX: &str = "proctor:signer:";
const LIFETIME: Duration = Duration::from_hours(30 * 24);
const RENEW_BEFORE: Duration = Duration::from_hours(20 * 24);
/// Domain separation: a signature of this key is useless where something else is signed.
const ROOT_DOMAIN: &[u8] = b"proctor commands v1\0";

/// The secret state that must be stored to sign commands.
#[derive(Clone, Serialize, Deserialize)]
pub struct SigningSecret {
    pub number: u64,
    /// Agents refuse keys with a lower number.
    pub oldest: u64,
    key_pem: String,
}

/// What happens to the replaced key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldKey {
    /// It is valid until the next rotation: another server may still use it.
    Accepted,
    /// It is invalid at once: somebody else may have it.
    Refused,
}

impl SigningSecret {
    pub fn generate() -> Result<Self> {
        Self::numbered(1, 1)
    }

    /// A new key, with the next number, or `number_min` where that is higher.
    pub fn rotated(&self, old: OldKey, number_min: u64) -> Result<Self> {
        let number = number_min.max(self.number + 1);
        let oldest = match old {
            OldKey::Accepted => self.number,
            OldKey::Refused => number,
        };
        Self::numbered(number, oldest)
    }

    fn numbered(number: u64, oldest: u64) -> Result<Self> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(|source| PkiError::GenerateKey { source })?;
        Ok(Self { number, oldest, key_pem: key.serialize_pem() })
    }

    /// JSON, for storage.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and a text always become JSON")
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| PkiError::read("the signing key")(redacted(&error)))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningSecret")
            .field("number", &self.number)
            .field("oldest", &self.oldest)
            .finish_non_exhaustive()
    }
}

/// The loaded signing key, with a certificate that is valid for some weeks.
pub struct CommandSigner {
    key: KeyPair,
    number: u64,
    certificate_der: Arc<[u8]>,
    issued_at: Timestamp,
    expires_at: Timestamp,
}

impl CommandSigner {
    pub fn issue(authority: &Authority, secret: &SigningSecret, now: Timestamp) -> Result<Self> {
        let key =
            KeyPair::from_pem(&secret.key_pem).map_err(|error| PkiError::read("the signing key")(error.into()))?;
        let mut params = params(now, LIFETIME)?;
        params.distinguished_name = common_name("proctor-signer");
        let name = format!("{SIGNER_URI_PREFIX}{}:{}", secret.number, secret.oldest);
        params.subject_alt_names = vec![SanType::URI(ia5(&name)?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        let certificate: CertificateDer<'static> =
            authority.sign("the certificate of the signing key", params, &key)?.into();
        let expires_at = expires_at_der(&certificate)?;
        Ok(Self {
            key,
            number: secret.number,
            certificate_der: certificate.as_ref().into(),
            issued_at: now,
            expires_at,
        })
    }

    /// Whether another certificate is needed: it expires soon, or the clock was set back to before it began.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now < self.issued_at || now + RENEW_BEFORE >= self.expires_at
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// DER.
    pub fn certificate_der(&self) -> &Arc<[u8]> {
        &self.certificate_der
    }

    /// One signature for all of them.
    pub(crate) fn sign_tree(&self, tree: &HashTree) -> Result<Vec<u8>> {
        SigningKey::sign(&self.key, &signed_root(&tree.root()))
            .map_err(|source| PkiError::Sign { what: "commands", source })
    }
}

impl fmt::Debug for CommandSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSigner").field("number", &self.number).finish_non_exhaustive()
    }
}

fn signed_root(root: &Hash) -> Vec<u8> {
    [ROOT_DOMAIN, root].concat()
}

/// A signing key that the authority vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedSigner {
    pub number: u64,
    pub oldest: u64,
    key: Vec<u8>,
}

impl TrustedSigner {
    /// The key in a certificate of one of the authorities that has not expired and was issued for signing commands.
    /// It may begin in the future: a clock that is behind, or was ahead on the server, must not cut hosts off, and
    /// keys are withdrawn by number.
    pub fn of(authorities_pem: &str, certificate_der: &[u8], now: Timestamp) -> Result<Self> {
        let authorities = certificates_from_pem("the certificate of the authority", authorities_pem)?;
        let (rest, certificate) = X509Certificate::from_der(certificate_der)
            .map_err(|error| PkiError::read("the certificate of a signing key")(error.to_string().into()))?;
        let refused = |problem| PkiError::Signer { problem };
        if !rest.is_empty() {
            return Err(refused("there is something after its end"));
        }
        let mut is_ours = false;
        for authority in &authorities {
            let authority = parse(authority)?;
            is_ours |= certificate.issuer().as_raw() == authority.subject().as_raw()
                && certificate.verify_signature(Some(authority.public_key())).is_ok();
        }
        if !is_ours {
            return Err(refused("it is not by the authority"));
        }
        let now = ASN1Time::from_timestamp(now.as_second()).map_err(|_| refused("the clock cannot be right"))?;
        if certificate.validity().not_after < now {
            return Err(refused("it has expired by this host's clock: check the clock"));
        }
        if !is_for_signing_only(&certificate) {
            return Err(refused("it was issued for something else"));
        }
        let (number, oldest) = numbers(&certificate).ok_or_else(|| refused("it does not name one signing key"))?;
        let key = certificate.public_key();
        if key.algorithm.algorithm != x509_parser::oid_registry::OID_SIG_ED25519 {
            return Err(refused("its key is not Ed25519"));
        }
        Ok(Self { number, oldest, key: key.subject_public_key.data.to_vec() })
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn verifies(&self, root: &Hash, signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.key).verify(&signed_root(root), signature).is_ok()
    }
}

/// Certificates of agents, of the link and of HTTPS are for TLS, and the authority's own is for certificates.
fn is_for_signing_only(certificate: &X509Certificate<'_>) -> bool {
    let Ok(Some(usage)) = certificate.extended_key_usage() else { return false };
    let usage = usage.value;
    let others = [
        usage.any,
        usage.server_auth,
        usage.client_auth,
        usage.email_protection,
        usage.time_stamping,
        usage.ocsp_signing,
        !usage.other.is_empty(),
    ];
    usage.code_signing && !others.contains(&true) && !certificate.is_ca()
}

fn numbers(certificate: &X509Certificate<'_>) -> Option<(u64, u64)> {
    let names = certificate.subject_alternative_name().ok()??;
    let [GeneralName::URI(uri)] = names.value.general_names.as_slice() else { return None };
    let (number, oldest) = uri.strip_prefix(SIGNER_URI_PREFIX)?.split_once(':')?;
    let (number, oldest) = (number.parse().ok()?, oldest.parse().ok()?);
    (1..=number).contains(&oldest).then_some((number, oldest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::certificate_from_pem;
    use crate::{AgentKey, agent_of, new_https_key};

    fn now() -> Timestamp {
        "2030-01-02T03:04:05Z".parse().unwrap()
    }

    fn authority() -> Authority {
        Authority::load(&Authority::generate(now()).unwrap()).unwrap()
    }

    fn problem(authority: &Authority, der: &[u8], now: Timestamp) -> String {
        let PkiError::Signer { problem } = TrustedSigner::of(authority.certificate_pem(), der, now).unwrap_err() else {
            panic!("another error")
        };
        problem.to_owned()
    }

    #[test]
    fn a_rotation_tells_which_keys_still_count() {
        let authority = authority();
        let first = SigningSecret::generate().unwrap();
        let kept = SigningSecret::from_bytes(&first.rotated(OldKey::Accepted, 0).unwrap().to_bytes()).unwrap();
        let refused = kept.rotated(OldKey::Refused, 0).unwrap();
        let told = |secret: &SigningSecret| {
            let signer = CommandSigner::issue(&authority, secret, now()).unwrap();
            let trusted = TrustedSigner::of(authority.certificate_pem(), signer.certificate_der(), now()).unwrap();
            (trusted.number, trusted.oldest)
        };

        assert_eq!([told(&first), told(&kept), told(&refused)], [(1, 1), (2, 1), (3, 3)]);
    }

    #[test]
    fn no_other_certificate_of_the_authority_is_a_signer() {
        let authority = authority();
        let agent = AgentKey::generate().unwrap().csr_der().unwrap();
        let day = Duration::from_hours(24);
        // An agent may use a key of the same algorithm.
        let ed = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let ed = AgentKey::from_pem(&ed.serialize_pem()).unwrap().csr_der().unwrap();
        let issued = |csr: &[u8]| {
            let pem = authority.issue_agent(csr, &"a-1".parse().unwrap(), now(), day).unwrap();
            certificate_from_pem("", &pem).unwrap()
        };
        let (link, _) = authority.issue_server(now()).unwrap();
        let names = ["proctor:signer:1:1".to_owned()];
        let https = authority.issue_https(&new_https_key().unwrap(), &names, now()).unwrap();
        let others = [issued(&agent), issued(&ed), link[0].clone(), https.certified.cert[0].clone(), link[1].clone()];

        for other in others {
            assert_eq!(problem(&authority, &other, now()), "it was issued for something else");
        }
    }

    #[test]
    fn a_signer_is_no_agent() {
        let signer = CommandSigner::issue(&authority(), &SigningSecret::generate().unwrap(), now()).unwrap();

        let certificate = CertificateDer::from(signer.certificate_der().to_vec());

        assert!(matches!(agent_of(&[certificate]), Err(PkiError::NoAgent)));
    }

    #[test]
    fn a_certificate_of_another_authority_or_time_or_with_a_changed_bit_is_refused() {
        let (ours, theirs) = (authority(), authority());
        let secret = SigningSecret::generate().unwrap();
        let der = CommandSigner::issue(&ours, &secret, now()).unwrap().certificate_der().to_vec();
        let foreign = CommandSigner::issue(&theirs, &secret, now()).unwrap().certificate_der().to_vec();
        let original = TrustedSigner::of(ours.certificate_pem(), &der, now()).unwrap();

        assert_eq!(problem(&ours, &foreign, now()), "it is not by the authority");
        assert!(problem(&ours, &der, now() + 2 * LIFETIME).contains("check the clock"));
        assert!(
            TrustedSigner::of(ours.certificate_pem(), &der, now() - 2 * LIFETIME).is_ok(),
            "a clock that is behind"
        );
        for (at, bit) in (0..der.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = der.clone();
            changed[at] ^= 1 << bit;
            // Some bits around the signed part have no meaning.
            let changed = TrustedSigner::of(ours.certificate_pem(), &changed, now());
            assert!(changed.is_err() || changed.unwrap() == original, "bit {bit} of byte {at}");
        }
    }

    #[test]
    fn a_certificate_is_renewed_long_before_it_ends_and_when_the_clock_was_ahead() {
        let signer = CommandSigner::issue(&authority(), &SigningSecret::generate().unwrap(), now()).unwrap();

        assert!(!signer.is_due(now()));
        assert!(signer.is_due(now() + LIFETIME - RENEW_BEFORE));
        assert!(signer.is_due(now() - Duration::from_hours(1)));
    }

    #[test]
    fn debug_shows_no_key() {
        let secret = SigningSecret::generate().unwrap();

        assert_eq!(format!("{secret:?}"), "SigningSecret { number: 1, oldest: 1, .. }");
    }
}
