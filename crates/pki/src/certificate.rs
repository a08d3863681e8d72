//! Reading certificates.

use jiff::Timestamp;
use proctor_model::AgentId;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::{PkiError, Result};

/// The agent's id in its certificate is a URI: this prefix and the id.
pub(crate) const AGENT_URI_PREFIX: &str = "proctor:agent:";

/// Which agent a peer is. Pass what TLS has verified (`peer_certificates` of a connection): it verifies nothing
/// itself.
pub fn agent_of(certificates: &[CertificateDer<'_>]) -> Result<AgentId> {
    let certificate = parse(certificates.first().ok_or(PkiError::NoCertificate)?)?;
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| PkiError::read("the names of a certificate")(error.into()))?
        .ok_or(PkiError::NoAgent)?;
    let mut ids = names.value.general_names.iter().filter_map(|name| {
        let GeneralName::URI(uri) = name else { return None };
        uri.strip_prefix(AGENT_URI_PREFIX)
    });
    let (Some(id), None) = (ids.next(), ids.next()) else {
        return Err(PkiError::NoAgent);
    };
    id.parse().map_err(|source| PkiError::AgentId { source })
}

/// The last moment at which the certificate is valid.
pub fn expires_at(certificate_pem: &str) -> Result<Timestamp> {
    expires_at_der(&certificate_from_pem("a certificate", certificate_pem)?)
}

/// As [`expires_at`], for a certificate as TLS shows it.
pub fn expires_at_der(certificate: &[u8]) -> Result<Timestamp> {
    let seconds = parse(&CertificateDer::from(certificate))?.validity().not_after.timestamp();
    Timestamp::from_second(seconds).map_err(|_| PkiError::Time { seconds })
}

/// The first certificate of a file, as TLS shows it.
pub fn certificate_der(certificate_pem: &str) -> Result<Vec<u8>> {
    Ok(certificate_from_pem("a certificate", certificate_pem)?.to_vec())
}

/// Fingerprint of the public key inside, equal to [`crate::AgentKey::fingerprint`] of its owner.
pub fn key_fingerprint_der(certificate: &[u8]) -> Result<String> {
    Ok(crate::secret::sha256_hex(parse(&CertificateDer::from(certificate))?.public_key().raw))
}

/// SHA-256 of a certificate, in hexadecimal digits: of an authority's, what join tokens pin.
pub fn certificate_fingerprint(certificate_pem: &str) -> Result<String> {
    Ok(crate::secret::sha256_hex(&certificate_from_pem("a certificate", certificate_pem)?))
}

/// A host has one authority, or two during a rotation; chains are as short.
const CERTIFICATES_MAX: usize = 4;

/// All certificates of a file, at least one.
pub(crate) fn certificates_from_pem(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .take(CERTIFICATES_MAX + 1)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| PkiError::read(what)(error.into()))?;
    match certificates.len() {
        0 => Err(PkiError::read(what)("there is no certificate in it".into())),
        count if count > CERTIFICATES_MAX => Err(PkiError::read(what)("there are too many certificates in it".into())),
        _ => Ok(certificates),
    }
}

pub(crate) fn certificate_from_pem(what: &'static str, pem: &str) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| PkiError::read(what)(error.into()))
}

pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| PkiError::read("a certificate")(error.to_string().into()))?;
    Ok(certificate)
}
