//! The authorities of a control plane: one, or two during a rotation.
//!
//! Promised: no phase before the last cuts anybody off. While there are two authorities, both are trusted; the old
//! one still vouches for the signing key and is what join tokens pin. Once the successor issues, a certificate of
//! the old authority for the successor's key (the bridge) accompanies what it issues, so that a peer that has never
//! heard of the successor can verify it up to the old one. The secret of both is one value, so that each phase is
//! one write. Absent: storage, who may rotate, and who has followed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use proctor_model::{AgentId, RelayId};
use rcgen::{BasicConstraints, DistinguishedName, IsCa, KeyUsagePurpose, SubjectPublicKeyInfo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::authority::params;
use crate::certificate::{certificates_from_pem, parse};
use crate::secret::sha256_hex;
use crate::{Authority, AuthoritySecret, PkiError, Result};

/// Of the bridge that accompanies the server's certificate.
const SERVER_BRIDGE_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// The phase of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationPhase {
    /// There is no successor.
    Idle,
    /// The successor is announced, and issues nothing yet.
    Prepared,
    /// The successor issues certificates; the old authority is still trusted.
    Switched,
}

/// The stored state of a successor.
#[derive(Clone, Serialize, Deserialize)]
pub struct SuccessorSecret {
    certificate_pem: String,
    key_pem: String,
    #[serde(default)]
    issues: bool,
    /// It issues or once did, so there may be certificates of it.
    #[serde(default)]
    was_switched: bool,
    /// Unix seconds.
    #[serde(default)]
    prepared_at: i64,
}

impl fmt::Debug for SuccessorSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuccessorSecret").field("issues", &self.issues).finish_non_exhaustive()
    }
}

impl AuthoritySecret {
    pub fn phase(&self) -> RotationPhase {
        match &self.successor {
            None => RotationPhase::Idle,
            Some(SuccessorSecret { issues: false, .. }) => RotationPhase::Prepared,
            Some(SuccessorSecret { issues: true, .. }) => RotationPhase::Switched,
        }
    }

    /// With a new successor. None if there is one already.
    pub fn prepared(&self, now: Timestamp) -> Result<Option<Self>> {
        if self.successor.is_some() {
            return Ok(None);
        }
        let Self { certificate_pem, key_pem, successor: _ } = Authority::generate(now)?;
        let prepared_at = now.as_second();
        let successor = SuccessorSecret { certificate_pem, key_pem, issues: false, was_switched: false, prepared_at };
        Ok(Some(Self { successor: Some(successor), ..self.clone() }))
    }

    /// Its successor issues from now on. None if it is not prepared.
    pub fn switched(&self) -> Option<Self> {
        self.with_issuing_successor(RotationPhase::Prepared, true)
    }

    /// As before the switch. None if nothing was switched.
    pub fn switched_back(&self) -> Option<Self> {
        self.with_issuing_successor(RotationPhase::Switched, false)
    }

    fn with_issuing_successor(&self, in_phase: RotationPhase, issues: bool) -> Option<Self> {
        let successor = self.successor.clone().filter(|_| self.phase() == in_phase)?;
        Some(Self { successor: Some(SuccessorSecret { issues, was_switched: true, ..successor }), ..self.clone() })
    }

    /// The successor alone. None if it does not issue yet.
    pub fn finished(&self) -> Option<Self> {
        let successor = self.successor.clone().filter(|successor| successor.issues)?;
        let SuccessorSecret { certificate_pem, key_pem, .. } = successor;
        Some(Self { certificate_pem, key_pem, successor: None })
    }

    /// Without its successor. None if there is none, or if it issues: switch back first.
    pub fn aborted(&self) -> Option<Self> {
        (self.phase() == RotationPhase::Prepared).then(|| Self { successor: None, ..self.clone() })
    }
}

/// All trusted authorities, and the role of each.
#[derive(Debug)]
pub struct Authorities {
    current: Authority,
    successor: Option<Successor>,
}

#[derive(Debug)]
struct Successor {
    authority: Authority,
    issues: bool,
    was_switched: bool,
    prepared_at: i64,
}

impl Authorities {
    /// `signed` counts every certificate that one of them signs.
    pub fn load(secret: &AuthoritySecret, signed: &Arc<AtomicU64>) -> Result<Self> {
        let current = Authority::load(secret)?.counting(signed);
        let Some(successor) = secret.successor.clone() else {
            return Ok(Self { current, successor: None });
        };
        let SuccessorSecret { certificate_pem, key_pem, issues, was_switched, prepared_at } = successor;
        let of_successor = AuthoritySecret { certificate_pem, key_pem, successor: None };
        let authority = Authority::load(&of_successor)?.counting(signed);
        Ok(Self { current, successor: Some(Successor { authority, issues, was_switched, prepared_at }) })
    }

    /// The one that everybody trusts until a rotation is finished: it vouches for the signing key and for files,
    /// and join tokens pin it.
    pub fn current(&self) -> &Authority {
        &self.current
    }

    pub fn successor(&self) -> Option<&Authority> {
        self.successor.as_ref().map(|successor| &successor.authority)
    }

    /// The one that issues the certificates of agents, relays and the link.
    pub fn issuing(&self) -> &Authority {
        self.successor.as_ref().filter(|successor| successor.issues).map_or(&self.current, |new| &new.authority)
    }

    pub fn phase(&self) -> RotationPhase {
        match &self.successor {
            None => RotationPhase::Idle,
            Some(Successor { issues: false, .. }) => RotationPhase::Prepared,
            Some(Successor { issues: true, .. }) => RotationPhase::Switched,
        }
    }

    /// Whether the successor issues or once did: then anyone who has not said otherwise may have a certificate of
    /// it.
    pub fn was_switched(&self) -> bool {
        self.successor.as_ref().is_some_and(|successor| successor.was_switched || successor.issues)
    }

    /// When the successor was made, in Unix seconds.
    pub fn prepared_at(&self) -> Option<i64> {
        self.successor.as_ref().map(|successor| successor.prepared_at)
    }

    pub fn all(&self) -> impl Iterator<Item = &Authority> {
        std::iter::once(&self.current).chain(self.successor())
    }

    /// Their certificates, the current one's first.
    pub fn pem(&self) -> String {
        self.all().map(Authority::certificate_pem).collect::<Vec<_>>().join("\n")
    }

    /// The fingerprint of the authority that a certificate names as its issuer. Pass a verified certificate: only
    /// names are compared.
    pub fn issuer_of(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        self.all().find(|authority| is_issued_by(certificate, authority.certificate())).map(Authority::fingerprint)
    }

    /// As [`Authority::issue_server`]; the chain leads to the current authority, which enrolling agents know by its
    /// fingerprint alone.
    pub fn issue_server(&self, now: Timestamp) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let (mut chain, key) = self.issuing().issue_server(now)?;
        if let Some(bridge) = self.bridge(now, SERVER_BRIDGE_LIFETIME)? {
            chain.truncate(1);
            chain.extend([bridge.der().clone(), self.current.certificate().clone()]);
        }
        Ok((chain, key))
    }

    /// As [`Authority::issue_agent`], followed by the bridge where there is one.
    pub fn issue_agent(&self, csr_der: &[u8], agent: &AgentId, now: Timestamp, lifetime: Duration) -> Result<String> {
        self.with_bridge(self.issuing().issue_agent(csr_der, agent, now, lifetime)?, now, lifetime)
    }

    /// As [`Authority::issue_relay`], followed by the bridge where there is one.
    pub fn issue_relay(&self, csr_der: &[u8], relay: &RelayId, now: Timestamp, lifetime: Duration) -> Result<String> {
        self.with_bridge(self.issuing().issue_relay(csr_der, relay, now, lifetime)?, now, lifetime)
    }

    fn with_bridge(&self, certificate_pem: String, now: Timestamp, lifetime: Duration) -> Result<String> {
        Ok(match self.bridge(now, lifetime)? {
            Some(bridge) => format!("{}\n{}", certificate_pem.trim_end(), bridge.pem()),
            None => certificate_pem,
        })
    }

    /// The successor's name and key, signed by the current authority; None while the successor issues nothing.
    fn bridge(&self, now: Timestamp, lifetime: Duration) -> Result<Option<rcgen::Certificate>> {
        let Some(successor) = self.successor.as_ref().filter(|successor| successor.issues) else { return Ok(None) };
        let certificate = parse(successor.authority.certificate())?;
        let unusable = |error: rcgen::Error| PkiError::read("the certificate of the successor")(error.into());
        let key = SubjectPublicKeyInfo::from_der(certificate.public_key().raw).map_err(unusable)?;
        let mut params = params(now, lifetime)?;
        params.distinguished_name = name_of(&certificate)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        self.current.sign_authority(params, &key).map(Some)
    }
}

/// As [`Authority::generate`] made it.
fn name_of(certificate: &x509_parser::certificate::X509Certificate<'_>) -> Result<DistinguishedName> {
    let unreadable = |problem: &str| PkiError::read("the name of the successor")(problem.to_owned().into());
    let name = certificate.subject().iter_common_name().next().ok_or_else(|| unreadable("there is none"))?;
    Ok(crate::agent_key::common_name(name.as_str().map_err(|error| unreadable(&error.to_string()))?))
}

fn is_issued_by(certificate: &CertificateDer<'_>, authority: &CertificateDer<'_>) -> bool {
    let (Ok(certificate), Ok(authority)) = (parse(certificate), parse(authority)) else { return false };
    certificate.issuer().as_raw() == authority.subject().as_raw()
}

/// The fingerprints of the authorities in a file with their certificates (PEM).
pub fn authority_fingerprints(authorities_pem: &str) -> Result<Vec<String>> {
    let certificates = certificates_from_pem("the certificates of the authorities", authorities_pem)?;
    for certificate in &certificates {
        if !parse(certificate)?.is_ca() {
            return Err(PkiError::read("the certificates of the authorities")("one is of no authority".into()));
        }
    }
    Ok(certificates.iter().map(|certificate| sha256_hex(certificate)).collect())
}

/// The fingerprint of the one of these authorities that issued the first certificate of a file; None if another one
/// did.
pub fn issuer_fingerprint(authorities_pem: &str, certificate_pem: &str) -> Result<Option<String>> {
    let authorities = certificates_from_pem("the certificates of the authorities", authorities_pem)?;
    let certificate = crate::certificate::certificate_from_pem("a certificate", certificate_pem)?;
    Ok(authorities.iter().find(|authority| is_issued_by(&certificate, authority)).map(|found| sha256_hex(found)))
}

#[cfg(test)]
mod tests;
