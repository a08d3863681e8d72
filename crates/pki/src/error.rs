//! Errors of keys, certificates and tokens.

use proctor_model::FieldError;

pub type Result<T, E = PkiError> = std::result::Result<T, E>;

type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot generate a key")]
    GenerateKey { source: rcgen::Error },
    #[error("cannot read {what}")]
    Read { what: &'static str, source: Cause },
    #[error("cannot sign {what}")]
    Sign { what: &'static str, source: rcgen::Error },
    #[error("the signature is not by the authority")]
    Signature,
    #[error("the key of the authority does not belong to its certificate")]
    AuthorityKeyMismatch,
    #[error("cannot accept the certificate request: its signature is not by its own key")]
    RequestSignature { source: Cause },
    #[error("cannot accept a key that is neither Ed25519 nor ECDSA P-256")]
    KeyType,
    #[error("cannot accept the certificate of a signing key: {problem}")]
    Signer { problem: &'static str },
    #[error("cannot represent the time {seconds} seconds after 1970 in a certificate")]
    Time { seconds: i64 },
    #[error("cannot configure TLS for {what}")]
    Tls { what: &'static str, source: Cause },
    #[error("the peer presented no certificate")]
    NoCertificate,
    #[error("the certificate does not name one agent")]
    NoAgent,
    #[error("cannot accept the agent id in the certificate")]
    AgentId { source: FieldError },
    #[error("the certificate does not name a relay")]
    NoRelay,
    #[error("cannot accept the relay id in the certificate")]
    RelayId { source: FieldError },
    #[error("there is no certificate in the file")]
    NoCertificateInFile,
    #[error("the fingerprint of a server's key is 64 hexadecimal digits, as the server logs it when it starts")]
    KeyFingerprint,
    #[error("a fingerprint is 64 hexadecimal digits, the SHA-256 of a certificate")]
    Fingerprint,
    #[error("cannot read the join token: {problem}")]
    Token { problem: TokenProblem },
}

/// What is wrong with the text of a join token. It never repeats the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    #[error("it does not begin with 'PT1.'")]
    Prefix,
    #[error("it must have four parts separated by '.': PT1.ID.SECRET.FINGERPRINT")]
    Parts,
    #[error("its id is not 1 to 64 letters, digits, '-' or '_'")]
    Id,
    #[error("its secret is not 32 bytes in base64url; was it cut off?")]
    Secret,
    #[error("its fingerprint is not 64 hexadecimal digits; was it cut off?")]
    Fingerprint,
}

impl PkiError {
    pub(crate) fn read(what: &'static str) -> impl FnOnce(Cause) -> Self {
        move |source| Self::Read { what, source }
    }

    pub(crate) fn tls<E: Into<Cause>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Tls { what, source: source.into() }
    }
}
