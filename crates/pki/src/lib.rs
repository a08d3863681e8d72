//! Identities on the link: the server's own certificate authority, the keys and certificates of agents,
//! join tokens, and the TLS configurations made from them; signatures of commands and reports; and HTTPS for the API.
//!
//! Promised of the link: TLS 1.3 only, through the aws-lc-rs provider that every configuration names itself (no
//! process-wide install is needed); a session is resumed only with a ticket that contains the certificate as
//! verified, for a week at most, and without early data; an agent's certificate says only what the authority
//! decided, never what the request asked for; Debug of anything secret shows no secret.
//!
//! Absent: storage, sockets, and the clock (times are arguments; only rustls itself reads the system's clock when
//! it verifies a peer). Nothing here revokes: [`agent_of`] says whom a verified certificate names, and the server
//! decides whether that agent may still connect.
//!
//! Start at `authority`, `rotation`, `tls`, `tickets`, `sealed_session` and `https`.

mod agent_key;
mod authority;
mod certificate;
mod connect_error;
mod error;
mod file_digest;
mod hash_tree;
mod https;
mod relay;
mod returning;
mod rotation;
mod sealed_session;
mod secret;
mod signer;
mod tickets;
mod tls;
mod token;
mod verified_roots;

pub use agent_key::{AgentKey, requested_fingerprint};
pub use authority::{Authority, AuthoritySecret, verify_file};
pub use certificate::{
    agent_of, certificate_der, certificate_fingerprint, expires_at, expires_at_der, key_fingerprint_der,
};
pub use connect_error::{LinkClient, explain_link, is_other_authority};
pub use error::{PkiError, Result, TokenProblem};
pub use file_digest::FileDigest;
pub use https::{HttpsCertificate, OtherKey, https_server_config, new_https_key, pinned_config};
pub use relay::{
    AgentCertificates, open_hello, relay_client_config, relay_of, relay_reached, relay_server_config, seal_hello,
};
pub use returning::{open_return, seal_return};
pub use rotation::{Authorities, RotationPhase, SuccessorSecret, authority_fingerprints, issuer_fingerprint};
pub use sealed_session::{
    CommandCheck, CommandSeal, ControlTrust, HelloTerms, ReportCheck, ReportSeal, SessionTerms, Share, Unsigned,
    Untrusted, signed_welcome,
};
pub use secret::{hash_secret, hex, parse_hex, random_bytes, random_secret, secrets_match, sha256_of};
pub use signer::{CommandSigner, OldKey, SigningSecret, TrustedSigner};
pub use tickets::{KEY_PERIOD, TICKET_LIFETIME, TicketKeys, Tickets, resuming, with_tickets};
pub use tls::{enrol_config, link_config, return_config, server_config, server_name, session_config};
pub use token::JoinToken;
pub use verified_roots::VerifiedRoots;

/// The DNS name in the server's certificate, whatever address an agent dials.
pub const SERVER_NAME: &str = "proctor-server";
