//! The server's own certificate authority.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use jiff::Timestamp;
use proctor_model::AgentId;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber, SigningKey,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::agent_key::{common_name, generate_key, private_der, requested_key};
use crate::certificate::{AGENT_URI_PREFIX, certificate_from_pem, certificates_from_pem, parse};
use crate::file_digest::FileDigest;
use crate::rotation::SuccessorSecret;
use crate::secret::{hex, random_bytes, sha256_hex};
use crate::{PkiError, Result, SERVER_NAME};

const DAY: Duration = Duration::from_hours(24);
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(20 * 365 * DAY.as_secs());
const SERVER_LIFETIME: Duration = Duration::from_secs(365 * DAY.as_secs());
/// Allowed clock skew: a host whose clock is this far behind still accepts a new certificate.
const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// Domain separation: a signature of a file cannot pass as one of a certificate, which begins with the byte 0x30.
const FILE_DOMAIN: &[u8] = b"proctor file v1\0";

/// The secret state that must be stored to remain the same authority.
#[derive(Clone, Serialize, Deserialize)]
pub struct AuthoritySecret {
    pub certificate_pem: String,
    pub key_pem: String,
    /// The successor; an older server does not read it, and behaves as if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) successor: Option<SuccessorSecret>,
}

impl AuthoritySecret {
    /// JSON, for storage.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("two texts always become JSON")
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| PkiError::read("the secret of the authority")(redacted(&error)))
    }
}

/// Where the JSON is wrong, without the text that serde quotes from it.
pub(crate) fn redacted(error: &serde_json::Error) -> Box<dyn std::error::Error + Send + Sync> {
    format!(
        "it is not the JSON that was stored ({:?} error in line {}, column {})",
        error.classify(),
        error.line(),
        error.column()
    )
    .into()
}

impl fmt::Debug for AuthoritySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthoritySecret").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

/// Issues the certificates of one installation.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    signed: Arc<AtomicU64>,
}

impl Authority {
    /// Creates a new authority; [`Authority::load`] makes it usable.
    pub fn generate(now: Timestamp) -> Result<AuthoritySecret> {
        let key = generate_key()?;
        let mut params = params(now, AUTHORITY_LIFETIME)?;
        // A name of its own, so that errors about another authority are clear.
        params.distinguished_name = common_name(&format!("Proctor authority {}", hex(&random_bytes::<4>())));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params
            .self_signed(&key)
            .map_err(|source| PkiError::Sign { what: "the certificate of the authority", source })?;
        Ok(AuthoritySecret { certificate_pem: certificate.pem(), key_pem: key.serialize_pem(), successor: None })
    }

    pub fn load(secret: &AuthoritySecret) -> Result<Self> {
        let what = "the certificate of the authority";
        let certificate = certificate_from_pem(what, &secret.certificate_pem)?;
        let key = KeyPair::from_pem(&secret.key_pem)
            .map_err(|error| PkiError::read("the key of the authority")(error.into()))?;
        if parse(&certificate)?.public_key().raw != key.subject_public_key_info() {
            return Err(PkiError::AuthorityKeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|error| PkiError::read(what)(error.into()))?;
        Ok(Self { issuer, certificate, certificate_pem: secret.certificate_pem.clone(), signed: Arc::default() })
    }

    /// SHA-256 of the authority's certificate, in hexadecimal digits: what join tokens pin.
    pub fn fingerprint(&self) -> String {
        sha256_hex(&self.certificate)
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// How many certificates were signed since this authority was loaded.
    pub fn signed(&self) -> Arc<AtomicU64> {
        self.signed.clone()
    }

    /// Counts signatures there from now on.
    pub(crate) fn counting(self, signed: &Arc<AtomicU64>) -> Self {
        Self { signed: signed.clone(), ..self }
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A new key and certificate for [`SERVER_NAME`], valid for a year. The chain ends with the
    /// authority's own certificate, for agents that know only its fingerprint.
    pub fn issue_server(&self, now: Timestamp) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let key = generate_key()?;
        let mut params = params(now, SERVER_LIFETIME)?;
        params.distinguished_name = common_name(SERVER_NAME);
        params.subject_alt_names = vec![SanType::DnsName(ia5(SERVER_NAME)?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = self.sign("the certificate of the server", params, &key)?;
        Ok((vec![certificate.into(), self.certificate.clone()], private_der(&key)))
    }

    /// A certificate, in PEM, that says "the owner of the request's key is `agent`" and contains nothing else from
    /// the request.
    pub fn issue_agent(&self, csr_der: &[u8], agent: &AgentId, now: Timestamp, lifetime: Duration) -> Result<String> {
        let key = requested_key(csr_der)?;
        let mut params = params(now, lifetime)?;
        params.distinguished_name = common_name(agent.as_str());
        params.subject_alt_names = vec![SanType::URI(ia5(&format!("{AGENT_URI_PREFIX}{agent}"))?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(self.sign("the certificate of an agent", params, &key)?.pem())
    }

    /// A signature (ECDSA P-256 with SHA-256, DER) of a file with this digest, which [`verify_file`] checks with
    /// the authority's certificate. Whatever the file contains, the signature cannot be used for anything else.
    pub fn sign_file(&self, digest: &FileDigest) -> Result<Vec<u8>> {
        let signed = [FILE_DOMAIN, &digest.sha256].concat();
        SigningKey::sign(self.issuer.key(), &signed).map_err(|source| PkiError::Sign { what: "a file", source })
    }

    pub(crate) fn sign(
        &self,
        what: &'static str,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<Certificate> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        self.sign_as_is(what, params, key)
    }

    /// For the key of another authority.
    pub(crate) fn sign_authority(&self, params: CertificateParams, key: &impl PublicKeyData) -> Result<Certificate> {
        self.sign_as_is("the certificate of another authority", params, key)
    }

    fn sign_as_is(
        &self,
        what: &'static str,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<Certificate> {
        params.use_authority_key_identifier_extension = true;
        self.signed.fetch_add(1, Ordering::Relaxed);
        params.signed_by(key, &self.issuer).map_err(|source| PkiError::Sign { what, source })
    }
}

/// Whether one of the authorities signed a file with this digest.
pub fn verify_file(authorities_pem: &str, digest: &FileDigest, signature: &[u8]) -> Result<()> {
    let signed = [FILE_DOMAIN, &digest.sha256].concat();
    for certificate in certificates_from_pem("the certificate of the authority", authorities_pem)? {
        let certificate = parse(&certificate)?;
        let key = &certificate.public_key().subject_public_key.data;
        if UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(&signed, signature).is_ok() {
            return Ok(());
        }
    }
    Err(PkiError::Signature)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

/// Validity and serial number; rcgen would derive the number from the key, the same at each renewal.
pub(crate) fn params(now: Timestamp, lifetime: Duration) -> Result<CertificateParams> {
    let mut serial = random_bytes::<16>();
    serial[0] = serial[0] & 0x7f | 0x40;
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = date(now.as_second().saturating_sub_unsigned(CLOCK_SKEW.as_secs()))?;
    params.not_after = date(now.as_second().saturating_add_unsigned(lifetime.as_secs()))?;
    Ok(params)
}

fn date(seconds: i64) -> Result<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| PkiError::Time { seconds })
}

pub(crate) fn ia5(text: &str) -> Result<Ia5String> {
    text.try_into().map_err(|source| PkiError::Sign { what: "a name that is not ASCII", source })
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, SanType};

    use super::*;
    use crate::{AgentKey, agent_of, expires_at};

    const HOUR: Duration = Duration::from_hours(1);

    fn now() -> Timestamp {
        "2030-01-02T03:04:05Z".parse().unwrap()
    }

    fn authority() -> Authority {
        Authority::load(&Authority::generate(now()).unwrap()).unwrap()
    }

    fn agent(id: &str) -> AgentId {
        id.parse().unwrap()
    }

    #[test]
    fn a_signature_is_good_for_this_file_and_this_authority_only() {
        let (authority, other) = (authority(), authority());
        let digest = |content: &[u8]| FileDigest::of(content).unwrap();

        let signature = authority.sign_file(&digest(b"program")).unwrap();

        let verified =
            |authority: &Authority, content| verify_file(authority.certificate_pem(), &digest(content), &signature);
        verified(&authority, b"program").unwrap();
        assert!(matches!(verified(&authority, b"Program"), Err(PkiError::Signature)));
        assert!(matches!(verified(&other, b"program"), Err(PkiError::Signature)));
    }

    /// The file could be the inner part of a certificate, so that its signature would be valid for the certificate.
    #[test]
    fn the_signature_of_a_file_is_none_of_its_bytes() {
        let authority = authority();
        let file = b"what a certificate says";

        let signature = authority.sign_file(&FileDigest::of(&file[..]).unwrap()).unwrap();

        let certificate = parse(authority.certificate()).unwrap();
        let key = &certificate.public_key().subject_public_key.data;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key);
        assert!(key.verify(file, &signature).is_err());
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, file);
        assert!(key.verify(digest.as_ref(), &signature).is_err());
        key.verify(&[b"proctor file v1\0", digest.as_ref()].concat(), &signature).unwrap();
    }

    #[test]
    fn an_authority_is_the_same_after_storage() {
        let secret = Authority::generate(now()).unwrap();

        let stored = AuthoritySecret::from_bytes(&secret.to_bytes()).unwrap();

        let (one, two) = (Authority::load(&secret).unwrap(), Authority::load(&stored).unwrap());
        assert_eq!(one.fingerprint(), two.fingerprint());
        assert_eq!(one.certificate_pem(), secret.certificate_pem);
        assert_ne!(one.fingerprint(), authority().fingerprint());
    }

    #[test]
    fn a_key_of_another_authority_is_refused() {
        let (one, two) = (Authority::generate(now()).unwrap(), Authority::generate(now()).unwrap());
        let mixed = AuthoritySecret { key_pem: two.key_pem, ..one };

        assert!(matches!(Authority::load(&mixed), Err(PkiError::AuthorityKeyMismatch)));
    }

    #[test]
    fn an_agent_certificate_says_who_and_how_long() {
        let csr = AgentKey::generate().unwrap().csr_der().unwrap();

        let pem = authority().issue_agent(&csr, &agent("a-1"), now(), 24 * HOUR).unwrap();

        let der = certificate_from_pem("a certificate", &pem).unwrap();
        assert_eq!(agent_of(std::slice::from_ref(&der)).unwrap(), agent("a-1"));
        assert_eq!(expires_at(&pem).unwrap(), now() + 24 * HOUR);
        let parsed = parse(&der).unwrap();
        assert_eq!(parsed.validity().not_before.timestamp(), (now() - HOUR).as_second());
        assert_eq!(parsed.subject().to_string(), "CN=a-1");
    }

    #[test]
    fn nothing_that_a_request_asks_for_is_granted() {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut wishes = CertificateParams::default();
        wishes.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        wishes.subject_alt_names = vec![SanType::URI(ia5("proctor:agent:boss").unwrap())];
        wishes.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let csr = wishes.serialize_request(&key).unwrap();

        let pem = authority().issue_agent(csr.der(), &agent("a-1"), now(), HOUR).unwrap();

        let der = certificate_from_pem("a certificate", &pem).unwrap();
        let parsed = parse(&der).unwrap();
        assert_eq!(agent_of(std::slice::from_ref(&der)).unwrap(), agent("a-1"));
        assert!(!parsed.is_ca());
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert_eq!(parsed.public_key().raw, key.subject_public_key_info());
    }

    #[test]
    fn two_certificates_of_one_key_have_different_numbers() {
        let (authority, csr) = (authority(), AgentKey::generate().unwrap().csr_der().unwrap());
        let serial = || {
            let pem = authority.issue_agent(&csr, &agent("a-1"), now(), HOUR).unwrap();
            parse(&certificate_from_pem("a certificate", &pem).unwrap()).unwrap().raw_serial_as_string()
        };

        assert_ne!(serial(), serial());
    }

    #[test]
    fn a_request_with_a_tampered_signature_is_refused() {
        let mut csr = AgentKey::generate().unwrap().csr_der().unwrap();
        *csr.last_mut().unwrap() ^= 1;

        let issued = authority().issue_agent(&csr, &agent("a-1"), now(), HOUR);

        assert!(matches!(issued, Err(PkiError::RequestSignature { .. })), "{issued:?}");
    }

    #[test]
    fn a_request_with_a_key_of_another_type_is_refused() {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let csr = CertificateParams::default().serialize_request(&key).unwrap();

        let issued = authority().issue_agent(csr.der(), &agent("a-1"), now(), HOUR);

        assert!(matches!(issued, Err(PkiError::KeyType)), "{issued:?}");
    }

    #[test]
    fn what_is_no_request_or_more_than_one_is_refused() {
        let mut csr = AgentKey::generate().unwrap().csr_der().unwrap();
        csr.push(0);

        for bytes in [&csr[..], &csr[..40], b"", b"hello"] {
            let issued = authority().issue_agent(bytes, &agent("a-1"), now(), HOUR);

            assert!(matches!(issued, Err(PkiError::Read { .. })), "{issued:?}");
        }
    }

    #[test]
    fn a_lifetime_beyond_the_calendar_is_an_error() {
        let csr = AgentKey::generate().unwrap().csr_der().unwrap();

        let issued = authority().issue_agent(&csr, &agent("a-1"), now(), Duration::MAX);

        assert!(matches!(issued, Err(PkiError::Time { .. })), "{issued:?}");
    }

    #[test]
    fn debug_and_errors_show_no_key() {
        let secret = Authority::generate(now()).unwrap();
        let inner = secret.key_pem.lines().nth(1).unwrap().to_owned();
        let broken = format!(r#"{{"certificate_pem": "", "key_pem": ["{inner}"]}}"#);

        let shown = format!("{secret:?} {:?}", Authority::load(&secret).unwrap());
        let error = AuthoritySecret::from_bytes(broken.as_bytes()).unwrap_err();

        assert!(!shown.contains(&inner) && !shown.contains("PRIVATE"), "{shown}");
        assert!(!format!("{error:?}").contains(&inner), "{error:?}");
    }
}
