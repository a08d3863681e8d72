//! Relays: their certificates, the TLS of both their sides, and how an agent authenticates through one.
//!
//! Promised: a relay's certificate has a name and a purpose that no other certificate of the authority has. Agents
//! accept it as a carrier and never as the server; the server accepts it as no agent; it signs no command. Through
//! a relay an agent signs its hello with its own key, for a nonce of the server and for that relay, so a relay can
//! neither invent an agent, nor replay what one said before, nor use what was said to another relay. Absent: which
//! agents a relay may carry; the server decides.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proctor_model::{AgentId, RelayId};
use proctor_wire::{ALPN_RELAY, ALPN_SESSION, FromAgent, Signed, Skipped, decode_part, encode_part};
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use x509_parser::extensions::GeneralName;

use crate::agent_key::{common_name, requested_key};
use crate::authority::{ia5, params};
use crate::certificate::{certificates_from_pem, expires_at_der, parse};
use crate::hash_tree::leaf;
use crate::sealed_session::ReportKey;
use crate::tls::{finished, provider, roots};
use crate::{AgentKey, Authority, PkiError, Result, Untrusted, agent_of};

/// The DNS name in the certificate of every relay, so that it cannot pass for the server.
const RELAY_NAME: &str = "proctor-relay";
/// The relay's id in its certificate is a URI: this prefix and the id.
const RELAY_URI_PREFIX: &str = "proctor:relay:";
/// With the byte after it, differs from a report and everything else that an agent's key signs.
const HELLO: &[u8] = b"proctor hello v1\0";

impl Authority {
    /// A certificate, in PEM, that says "the owner of the request's key is this relay" and contains nothing else
    /// from the request.
    pub fn issue_relay(&self, csr_der: &[u8], relay: &RelayId, now: Timestamp, lifetime: Duration) -> Result<String> {
        let key = requested_key(csr_der)?;
        let mut params = params(now, lifetime)?;
        params.distinguished_name = common_name(relay.as_str());
        params.subject_alt_names =
            vec![SanType::DnsName(ia5(RELAY_NAME)?), SanType::URI(ia5(&format!("{RELAY_URI_PREFIX}{relay}"))?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok(self.sign("the certificate of a relay", params, &key)?.pem())
    }
}

/// Checks the agents' certificates that a relay forwards: TLS has verified them for the relay, not for the server.
#[derive(Debug)]
pub struct AgentCertificates(Arc<dyn ClientCertVerifier>);

impl AgentCertificates {
    /// By one of these authorities.
    pub fn of<'a>(authorities: impl IntoIterator<Item = &'a Authority>) -> Result<Self> {
        Ok(Self(client_verifier(authorities.into_iter().map(Authority::certificate))?))
    }

    /// The agent that a certificate names, if the authority issued it and it is valid now.
    pub fn verify(&self, certificate: &CertificateDer<'_>, now: Timestamp) -> Result<AgentId> {
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let verified = self.0.verify_client_cert(certificate, &[], now);
        verified.map_err(PkiError::tls("the certificate of an agent"))?;
        agent_of(std::slice::from_ref(certificate))
    }

    /// The agent that a certificate names, if the authority issued it, valid or expired, and when it expires.
    pub fn verify_expired(&self, certificate: &CertificateDer<'_>) -> Result<(AgentId, Timestamp)> {
        let expires_at = expires_at_der(certificate)?;
        Ok((self.verify(certificate, expires_at)?, expires_at))
    }
}

/// Which relay a peer is. Pass what TLS has verified: it verifies nothing itself.
pub fn relay_of(certificates: &[CertificateDer<'_>]) -> Result<RelayId> {
    named(certificates)?.ok_or(PkiError::NoRelay)
}

/// The relay that an agent has reached, from what TLS has verified; None if it is the server itself.
pub fn relay_reached(certificates: &[CertificateDer<'_>]) -> Result<Option<RelayId>> {
    named(certificates)
}

fn named(certificates: &[CertificateDer<'_>]) -> Result<Option<RelayId>> {
    let certificate = parse(certificates.first().ok_or(PkiError::NoCertificate)?)?;
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| PkiError::read("the names of a certificate")(error.into()))?;
    let Some(names) = names else { return Ok(None) };
    let id = names.value.general_names.iter().find_map(|name| {
        let GeneralName::URI(uri) = name else { return None };
        uri.strip_prefix(RELAY_URI_PREFIX)
    });
    id.map(|id| id.parse().map_err(|source| PkiError::RelayId { source })).transpose()
}

/// For a relay's listener: every agent presents its certificate.
pub fn relay_server_config(authorities_pem: &str, certificate_pem: &str, key: &AgentKey) -> Result<ServerConfig> {
    let what = "a relay";
    let authorities = certificates_from_pem("the certificate of the authority", authorities_pem)?;
    let chain = certificates_from_pem("the certificate of the relay", certificate_pem)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(PkiError::tls(what))?
        .with_client_cert_verifier(client_verifier(&authorities)?)
        .with_single_cert(chain, key.private_der())
        .map_err(PkiError::tls(what))?;
    config.alpn_protocols = vec![ALPN_SESSION.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// For a relay's connections to the server.
pub fn relay_client_config(authorities_pem: &str, certificate_pem: &str, key: &AgentKey) -> Result<ClientConfig> {
    let what = "a relay";
    let authorities = certificates_from_pem("the certificate of the authority", authorities_pem)?;
    let chain = certificates_from_pem("the certificate of the relay", certificate_pem)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(PkiError::tls(what))?
        .with_root_certificates(roots(&authorities)?)
        .with_client_auth_cert(chain, key.private_der())
        .map_err(PkiError::tls(what))?;
    Ok(finished(config, ALPN_RELAY))
}

fn client_verifier<'a>(
    authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider())
        .build()
        .map_err(PkiError::tls("the certificates of agents"))
}

/// Accepts the server, and relays of its authorities: whoever connects asks [`relay_reached`] which of them it is.
#[derive(Debug)]
pub(crate) struct ServerOrRelay {
    server: Arc<WebPkiServerVerifier>,
}

impl ServerOrRelay {
    pub(crate) fn new(authorities: &[CertificateDer<'static>], provider: Arc<CryptoProvider>) -> Result<Self> {
        let server = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider)
            .build()
            .map_err(PkiError::tls("a session"))?;
        Ok(Self { server })
    }
}

impl ServerCertVerifier for ServerOrRelay {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_relay = named(std::slice::from_ref(end_entity)).is_ok_and(|relay| relay.is_some());
        let relay_name = ServerName::try_from(RELAY_NAME).map_err(|_| CertificateError::NotValidForName)?;
        let name = if is_relay { &relay_name } else { server_name };
        self.server.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.server.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.server.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.server.supported_verify_schemes()
    }
}

/// The agent's side: its hello, for the nonce that came through this relay.
pub fn seal_hello(key: &AgentKey, relay: &RelayId, nonce: &[u8], hello: FromAgent) -> Result<Signed> {
    let hello = encode_part(hello);
    let signature = key.sign(&signed_hello(relay, nonce, &hello))?;
    Ok(Signed { messages: vec![hello], signature, ..Signed::default() })
}

/// The server's side: the hello, if the key of this certificate has signed it for this nonce and relay.
pub fn open_hello(
    certificate: &CertificateDer<'_>,
    relay: &RelayId,
    nonce: &[u8],
    signed: &Signed,
    skipped: &mut Option<Skipped>,
) -> Result<FromAgent, Untrusted> {
    let [hello] = signed.messages.as_slice() else { return Err(Untrusted::Signature) };
    let key = ReportKey::of(certificate).map_err(Untrusted::Signer)?;
    if !key.verifies(&signed_hello(relay, nonce, hello), &signed.signature) {
        return Err(Untrusted::Signature);
    }
    decode_part(hello, skipped).map_err(Untrusted::Unreadable)
}

fn signed_hello(relay: &RelayId, nonce: &[u8], hello: &[u8]) -> Vec<u8> {
    [HELLO, &leaf([HELLO, relay.as_str().as_bytes(), nonce, hello])].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::certificate_from_pem;

    const HOUR: Duration = Duration::from_hours(1);

    fn now() -> Timestamp {
        "2030-01-02T03:04:05Z".parse().unwrap()
    }

    fn authority() -> Authority {
        Authority::load(&Authority::generate(now()).unwrap()).unwrap()
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        certificate_from_pem("a certificate", pem).unwrap()
    }

    fn relay(id: &str) -> RelayId {
        id.parse().unwrap()
    }

    #[test]
    fn a_relay_is_told_from_an_agent_and_from_the_server() {
        let (authority, key) = (authority(), AgentKey::generate().unwrap());
        let csr = key.csr_der().unwrap();
        let agents = AgentCertificates::of([&authority]).unwrap();
        let of_relay = der(&authority.issue_relay(&csr, &relay("r-1"), now(), HOUR).unwrap());
        let of_agent = der(&authority.issue_agent(&csr, &"a-1".parse().unwrap(), now(), HOUR).unwrap());
        let (of_server, _) = authority.issue_server(now()).unwrap();

        assert_eq!(relay_of(std::slice::from_ref(&of_relay)).unwrap(), relay("r-1"));
        assert!(agents.verify(&of_relay, now()).is_err());
        assert!(matches!(relay_of(std::slice::from_ref(&of_agent)), Err(PkiError::NoRelay)));
        assert_eq!(relay_reached(&of_server).unwrap(), None);
        assert_eq!(agents.verify(&of_agent, now()).unwrap().as_str(), "a-1");
        assert!(agents.verify(&of_agent, now() + 2 * HOUR).is_err(), "it has expired");
        assert!(agents.verify(&of_server[0], now()).is_err());
        let other = AgentCertificates::of([&self::authority()]).unwrap();
        assert!(other.verify(&of_agent, now()).is_err(), "of another authority");
    }

    #[test]
    fn an_agent_believes_the_server_and_relays_by_their_own_names() {
        let (authority, key) = (authority(), AgentKey::generate().unwrap());
        let csr = key.csr_der().unwrap();
        let verifier = ServerOrRelay::new(std::slice::from_ref(authority.certificate()), provider()).unwrap();
        let (of_server, _) = authority.issue_server(now()).unwrap();
        let of_relay = der(&authority.issue_relay(&csr, &relay("r-1"), now(), HOUR).unwrap());
        let of_agent = der(&authority.issue_agent(&csr, &"a-1".parse().unwrap(), now(), HOUR).unwrap());
        let at = UnixTime::since_unix_epoch(Duration::from_secs(now().as_second().cast_unsigned()));
        let verify = |certificate: &CertificateDer<'_>| {
            verifier.verify_server_cert(certificate, &[], &crate::server_name(), &[], at).is_ok()
        };

        assert!(verify(&of_server[0]) && verify(&of_relay));
        assert!(!verify(&of_agent));
        let (foreign, _) = self::authority().issue_server(now()).unwrap();
        assert!(!verify(&foreign[0]));
    }

    #[test]
    fn a_hello_is_good_for_its_nonce_its_relay_and_its_key_only() {
        let (authority, key) = (authority(), AgentKey::generate().unwrap());
        let issue = |key: &AgentKey| {
            let csr = key.csr_der().unwrap();
            der(&authority.issue_agent(&csr, &"a-1".parse().unwrap(), now(), HOUR).unwrap())
        };
        let (certificate, other) = (issue(&key), issue(&AgentKey::generate().unwrap()));
        let hello = FromAgent::Seen { generation: 7 };
        let signed = seal_hello(&key, &relay("r-1"), b"nonce", hello.clone()).unwrap();
        let open = |certificate, relay: &RelayId, nonce: &[u8], signed: &Signed| {
            open_hello(certificate, relay, nonce, signed, &mut None)
        };

        assert_eq!(open(&certificate, &relay("r-1"), b"nonce", &signed).unwrap(), hello);
        let mut changed = signed.clone();
        changed.messages[0][1] ^= 1;
        let refused = [
            open(&other, &relay("r-1"), b"nonce", &signed),
            open(&certificate, &relay("r-2"), b"nonce", &signed),
            open(&certificate, &relay("r-1"), b"other", &signed),
            open(&certificate, &relay("r-1"), b"nonce", &changed),
            open(&certificate, &relay("r-1"), b"nonce", &Signed::default()),
        ];
        assert!(refused.iter().all(|refused| matches!(refused, Err(Untrusted::Signature))), "{refused:?}");
    }
}
