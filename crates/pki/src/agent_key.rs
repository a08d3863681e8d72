//! The key of an agent, which never leaves its host.

use std::fmt;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData, SigningKey, SubjectPublicKeyInfo};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::secret::sha256_hex;
use crate::{PkiError, Result};

/// A private key (ECDSA P-256 where we make it).
pub struct AgentKey(KeyPair);

impl AgentKey {
    pub fn generate() -> Result<Self> {
        generate_key().map(Self)
    }

    /// Reads PKCS#8.
    pub fn from_pem(pem: &str) -> Result<Self> {
        let key = KeyPair::from_pem(pem).map_err(|error| PkiError::read("the key of the agent")(error.into()))?;
        check_type(&key)?;
        Ok(Self(key))
    }

    /// The private key itself, for a file that only its owner can read.
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// A request that proves possession of the key. It requests no name: the authority decides.
    pub fn csr_der(&self) -> Result<Vec<u8>> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("proctor-agent");
        let request = params
            .serialize_request(&self.0)
            .map_err(|source| PkiError::Sign { what: "a certificate request", source })?;
        Ok(request.der().to_vec())
    }

    /// SHA-256 of the public key (SubjectPublicKeyInfo), in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        sha256_hex(&self.0.subject_public_key_info())
    }

    pub(crate) fn sign(&self, content: &[u8]) -> Result<Vec<u8>> {
        SigningKey::sign(&self.0, content).map_err(|source| PkiError::Sign { what: "a report", source })
    }

    pub(crate) fn private_der(&self) -> PrivateKeyDer<'static> {
        private_der(&self.0)
    }
}

impl fmt::Debug for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentKey").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

/// Fingerprint of the key that a request proves to hold, as [`AgentKey::fingerprint`] prints it.
pub fn requested_fingerprint(csr_der: &[u8]) -> Result<String> {
    Ok(sha256_hex(&requested_key(csr_der)?.subject_public_key_info()))
}

/// The public key of a request whose signature proves that the sender has the private one. Names and extensions in
/// the request are not even read.
pub(crate) fn requested_key(csr_der: &[u8]) -> Result<SubjectPublicKeyInfo> {
    let unreadable = PkiError::read("the certificate request");
    let request = match X509CertificationRequest::from_der(csr_der) {
        Ok(([], request)) => request,
        Ok(_) => return Err(unreadable("there is something after its end".into())),
        Err(error) => return Err(unreadable(error.to_string().into())),
    };
    let key = SubjectPublicKeyInfo::from_der(request.certification_request_info.subject_pki.raw)
        .map_err(|_| PkiError::KeyType)?;
    check_type(&key)?;
    request.verify_signature().map_err(|error| PkiError::RequestSignature { source: error.into() })?;
    Ok(key)
}

pub(crate) fn generate_key() -> Result<KeyPair> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|source| PkiError::GenerateKey { source })
}

pub(crate) fn private_der(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

pub(crate) fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn check_type(key: &impl PublicKeyData) -> Result<()> {
    let accepted = [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P256_SHA256];
    if accepted.contains(&key.algorithm()) { Ok(()) } else { Err(PkiError::KeyType) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_pem_and_keeps_its_fingerprint() {
        let key = AgentKey::generate().unwrap();

        let read = AgentKey::from_pem(&key.to_pem()).unwrap();

        assert_eq!(read.fingerprint(), key.fingerprint());
        assert_eq!(read.fingerprint().len(), 64);
        assert_ne!(read.fingerprint(), AgentKey::generate().unwrap().fingerprint());
    }

    #[test]
    fn a_key_of_another_type_is_refused() {
        let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();

        assert!(matches!(AgentKey::from_pem(&other.serialize_pem()), Err(PkiError::KeyType)));
        assert!(matches!(AgentKey::from_pem("no key"), Err(PkiError::Read { .. })));
    }

    #[test]
    fn debug_shows_only_the_fingerprint() {
        let key = AgentKey::generate().unwrap();

        let shown = format!("{key:?}");

        assert_eq!(shown, format!("AgentKey {{ fingerprint: {:?}, .. }}", key.fingerprint()));
    }
}
