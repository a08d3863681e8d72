//! The certificate of the HTTP API, and how a client pins its key.
//!
//! Promised: a pinned client accepts exactly one public key, whatever its certificate says about names and time; a
//! certificate of [`Authority::issue_https`] does not carry the name that agents ask for, so its key cannot stand
//! in for the link. Absent: files and their reload.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ResolvesServerCert;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, ServerConfig, SignatureScheme};

use crate::agent_key::{common_name, generate_key, private_der};
use crate::authority::{ia5, params};
use crate::certificate::{expires_at_der, key_fingerprint_der};
use crate::secret::{parse_fingerprint, secrets_match};
use crate::tls::provider;
use crate::{Authority, PkiError, Result};

const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// A chain with its matching private key.
#[derive(Clone)]
pub struct HttpsCertificate {
    pub certified: Arc<CertifiedKey>,
    pub expires_at: Timestamp,
    /// SHA-256 of the public key (SubjectPublicKeyInfo), in hexadecimal digits: what clients pin.
    pub fingerprint: String,
}

impl HttpsCertificate {
    /// A PEM file with the certificate followed by its chain, and one with its key.
    pub fn from_pem(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain_pem)
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| PkiError::read("the certificate")(error.into()))?;
        let key =
            PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| PkiError::read("the private key")(error.into()))?;
        Self::new(chain, key)
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self> {
        let certificate = chain.first().ok_or(PkiError::NoCertificateInFile)?;
        let (expires_at, fingerprint) = (expires_at_der(certificate)?, key_fingerprint_der(certificate)?);
        let certified =
            CertifiedKey::from_der(chain, key, &provider()).map_err(PkiError::tls("HTTPS with this certificate"))?;
        Ok(Self { certified: Arc::new(certified), expires_at, fingerprint })
    }
}

impl fmt::Debug for HttpsCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpsCertificate").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

/// A new private key in PEM, for [`Authority::issue_https`].
pub fn new_https_key() -> Result<String> {
    Ok(generate_key()?.serialize_pem())
}

impl Authority {
    /// A certificate for this key and these names (DNS names or addresses), valid for a year.
    pub fn issue_https(&self, key_pem: &str, names: &[String], now: Timestamp) -> Result<HttpsCertificate> {
        let key = KeyPair::from_pem(key_pem).map_err(|error| PkiError::read("the HTTPS key")(error.into()))?;
        let mut params = params(now, LIFETIME)?;
        params.distinguished_name = common_name(names.first().map_or("proctor", String::as_str));
        params.subject_alt_names = names.iter().map(|name| alt_name(name)).collect::<Result<_>>()?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = self.sign("the certificate for HTTPS", params, &key)?;
        HttpsCertificate::new(vec![certificate.into(), self.certificate().clone()], private_der(&key))
    }
}

fn alt_name(name: &str) -> Result<SanType> {
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(ia5(name)?)),
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, without client certificates.
pub fn https_server_config(certificates: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(PkiError::tls("HTTPS"))?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// For a client that accepts exactly the key with this fingerprint.
pub fn pinned_config(fingerprint_hex: &str) -> Result<ClientConfig> {
    let fingerprint = parse_fingerprint(fingerprint_hex).ok_or(PkiError::KeyFingerprint)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(PkiError::tls("a pinned key"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedKey { fingerprint, provider: provider() }))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts a server by its key alone.
#[derive(Debug)]
struct PinnedKey {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

/// The server presented another key than the pinned one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's key has the fingerprint {shown}, but {pinned} is pinned")]
pub struct OtherKey {
    pub shown: String,
    pub pinned: String,
}

impl OtherKey {
    /// Finds it below the errors of TLS, sockets and HTTP.
    pub fn in_chain(error: &(dyn StdError + 'static)) -> Option<Self> {
        let causes = std::iter::successors(Some(error), |&error| error.source());
        causes.filter_map(rustls_error).find_map(|error| {
            let Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = error else { return None };
            other.downcast_ref::<Self>().cloned()
        })
    }
}

/// An IO error hides its inner error from `source`.
fn rustls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match inner {
        Some(inner) => inner.downcast_ref::<Error>().or_else(|| rustls_error(inner)),
        None => error.downcast_ref::<Error>(),
    }
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = key_fingerprint_der(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        if secrets_match(&shown, &self.fingerprint) {
            return Ok(ServerCertVerified::assertion());
        }
        let other = OtherKey { shown, pinned: self.fingerprint.clone() };
        Err(CertificateError::Other(OtherError(Arc::new(other))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2030-01-02T03:04:05Z".parse().unwrap()
    }

    fn authority() -> Authority {
        Authority::load(&Authority::generate(now()).unwrap()).unwrap()
    }

    #[test]
    fn a_new_certificate_for_the_same_key_keeps_the_pin() {
        let (authority, key) = (authority(), new_https_key().unwrap());
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];

        let first = authority.issue_https(&key, &names, now()).unwrap();
        let second = authority.issue_https(&key, &names, now() + LIFETIME).unwrap();

        assert_eq!(first.fingerprint, second.fingerprint);
        assert!(second.expires_at > first.expires_at);
        assert_ne!(first.certified.cert[0], second.certified.cert[0]);
    }

    #[test]
    fn a_key_that_does_not_belong_to_the_certificate_is_refused() {
        let (one, two) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let chain = rcgen::CertificateParams::default().self_signed(&one).unwrap().pem();

        let pair = HttpsCertificate::from_pem(chain.as_bytes(), two.serialize_pem().as_bytes());

        assert!(matches!(pair, Err(PkiError::Tls { .. })), "{pair:?}");
        HttpsCertificate::from_pem(chain.as_bytes(), one.serialize_pem().as_bytes()).unwrap();
        for (chain, key) in [("", one.serialize_pem().as_str()), (&chain, "no key")] {
            assert!(HttpsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).is_err());
        }
    }

    #[test]
    fn a_pin_is_64_hexadecimal_digits() {
        for bad in ["", "ab", &"g".repeat(64)] {
            assert!(matches!(pinned_config(bad), Err(PkiError::KeyFingerprint)), "{bad}");
        }
    }
}
