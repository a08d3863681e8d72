//! Who is who on the link: the server's own authority, the keys and certificates of agents, join
//! tokens, and the TLS configurations made of them.
//!
//! Promised: TLS 1.3 only, through the aws-lc-rs provider that every configuration names itself
//! (no process-wide install is needed); no session is resumed, so a certificate is looked at on
//! every connection; an agent's certificate says only what the authority decided, never what the
//! request asked for; Debug of anything secret shows no secret.
//!
//! Absent: storage, sockets, and the clock (times are arguments; only rustls itself looks at the
//! system's clock when it verifies a peer). Nothing here revokes: whoever has a verified
//! certificate is told by [`agent_of`], and the server decides whether that agent may still speak.

mod agent_key;
mod authority;
mod certificate;
mod error;
mod secret;
mod tls;
mod token;

pub use agent_key::{AgentKey, requested_fingerprint};
pub use authority::{Authority, AuthoritySecret};
pub use certificate::{agent_of, expires_at, expires_at_der, key_fingerprint_der};
pub use error::{PkiError, Result, TokenProblem};
pub use secret::{hash_secret, random_bytes, random_secret, secrets_match};
pub use tls::{enrol_config, server_config, server_name, session_config};
pub use token::JoinToken;

/// The DNS name in the server's certificate, whatever address an agent dials.
pub const SERVER_NAME: &str = "proctor-server";
