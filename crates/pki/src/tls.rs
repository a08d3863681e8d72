//! TLS configurations of both ends of the link.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use proctor_wire::{ALPN_ENROL, ALPN_RELAY, ALPN_SESSION};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
};

use crate::certificate::{certificates_from_pem, expires_at_der};
use crate::relay::ServerOrRelay;
use crate::secret::{parse_fingerprint, secrets_match, sha256_hex};
use crate::{AgentKey, Authorities, Authority, PkiError, Result, SERVER_NAME};

/// For the server's listener: accepts sessions and enrolments. A client certificate is optional (an enrolling agent
/// has none) and verified if present, so the caller must check the ALPN name and [`crate::agent_of`] before it
/// trusts anyone. The server's certificate in it is new and valid for a year; make another configuration before the
/// time returned with it.
pub fn server_config(authority: &Authority, now: Timestamp) -> Result<(ServerConfig, Timestamp)> {
    served_with(authority.issue_server(now)?, roots([authority.certificate()])?)
}

/// As [`server_config`], also during a rotation of the authority.
pub fn link_config(authorities: &Authorities, now: Timestamp) -> Result<(ServerConfig, Timestamp)> {
    served_with(authorities.issue_server(now)?, roots(authorities.all().map(Authority::certificate))?)
}

fn served_with(
    (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
    clients: RootCertStore,
) -> Result<(ServerConfig, Timestamp)> {
    let what = "the server";
    let expires_at = expires_at_der(chain.first().ok_or(PkiError::NoCertificate)?)?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider())
        .allow_unauthenticated()
        .build()
        .map_err(PkiError::tls(what))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(PkiError::tls(what))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(PkiError::tls(what))?;
    config.alpn_protocols = vec![ALPN_SESSION.to_vec(), ALPN_ENROL.to_vec(), ALPN_RELAY.to_vec()];
    // Nothing is resumed unless `with_tickets` says so.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((config, expires_at))
}

/// For an enrolled agent: presents its certificate and trusts only its authorities. It may have reached a relay:
/// check [`crate::relay_reached`], and if so, trust only what is signed.
pub fn session_config(authorities_pem: &str, certificate_pem: &str, key: &AgentKey) -> Result<ClientConfig> {
    let what = "a session";
    let authorities = certificates_from_pem("the certificate of the authority", authorities_pem)?;
    let chain = certificates_from_pem("the certificate of the agent", certificate_pem)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(PkiError::tls(what))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerOrRelay::new(&authorities, provider())?))
        .with_client_auth_cert(chain, key.private_der())
        .map_err(PkiError::tls(what))?;
    Ok(finished(config, ALPN_SESSION))
}

/// For an agent that knows only the fingerprint in its join token: accepts a server whose chain ends with exactly
/// that authority, and presents no certificate.
pub fn enrol_config(fingerprint_hex: &str) -> Result<ClientConfig> {
    let fingerprint = parse_fingerprint(fingerprint_hex).ok_or(PkiError::Fingerprint)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(PkiError::tls("an enrolment"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedAuthority { fingerprint, provider: provider() }))
        .with_no_client_auth();
    Ok(finished(config, ALPN_ENROL))
}

/// For an agent whose certificate has expired: trusts its authorities, as in a session, and presents no
/// certificate; it authenticates by [`crate::seal_return`].
pub fn return_config(authorities_pem: &str) -> Result<ClientConfig> {
    let authorities = certificates_from_pem("the certificate of the authority", authorities_pem)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(PkiError::tls("a return"))?
        .with_root_certificates(roots(&authorities)?)
        .with_no_client_auth();
    Ok(finished(config, ALPN_ENROL))
}

/// The name that an agent asks TLS to verify, whatever address it dialled.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).expect("the constant is a DNS name")
}

pub(crate) fn finished(mut config: ClientConfig, alpn: &[u8]) -> ClientConfig {
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    config
}

/// Shared: each agent of a swarm has a configuration of its own.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
    PROVIDER.clone()
}

pub(crate) fn roots<'a>(authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.clone())
            .map_err(|error| PkiError::read("the certificate of the authority")(error.into()))?;
    }
    Ok(roots)
}

/// Takes the last certificate of a chain as the authority if it has the pinned fingerprint, and then verifies as
/// usual.
#[derive(Debug)]
struct PinnedAuthority {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, thiserror::Error)]
#[error("the server's authority is not the one that the join token names")]
struct OtherAuthority;

impl PinnedAuthority {
    fn verifier(&self, authority: &CertificateDer<'_>) -> Result<Arc<WebPkiServerVerifier>, Error> {
        if !secrets_match(&sha256_hex(authority), &self.fingerprint) {
            return Err(CertificateError::Other(OtherError(Arc::new(OtherAuthority))).into());
        }
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))
    }
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (authority, between) = intermediates.split_last().ok_or(CertificateError::UnknownIssuer)?;
        self.verifier(authority)?.verify_server_cert(end_entity, between, server_name, ocsp_response, now)
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
