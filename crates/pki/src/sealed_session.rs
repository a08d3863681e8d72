//! What both ends of a session sign, and how each verifies the other, whatever carries it between them.
//!
//! Promised: a signature covers the encoded messages, their position in the session, and everything that both ends
//! agreed on when it opened: the agent, its challenge, what it had seen before, the epoch of the session and that
//! of the control plane. So a message is valid once, for one agent, in one session; nobody can drop one, replay it,
//! or change a bit of it without the next check failing. Time is an argument. Absent: sockets, storage, and what
//! happens after a failure.
//!
//! A carrier can still be slow, or carry nothing at all.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey, VerificationAlgorithm};
use jiff::Timestamp;
use proctor_model::{AgentId, BootId};
use proctor_wire::{FromAgent, FromServer, LinkMessage, Signed, Skipped, WelcomeProof, WireError, decode_part};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::certificate::parse;
use crate::hash_tree::{Hash, HashTree, leaf, root_of};
use crate::signer::{CommandSigner, TrustedSigner};
use crate::verified_roots::VerifiedRoots;
use crate::{AgentKey, PkiError, Result};

const SESSION: &[u8] = b"proctor session v1";
const WELCOME: &[u8] = b"proctor welcome v1";
const COMMANDS: &[u8] = b"proctor commands v1";
/// With the byte after it, differs from what TLS signs (64 spaces first) and from a certificate request (DER).
const REPORTS: &[u8] = b"proctor reports v1\0";

/// What both ends agree on when a session opens.
#[derive(Clone, Copy, Debug)]
pub struct SessionTerms<'a> {
    pub agent: &'a AgentId,
    /// The agent's, new for each session.
    pub challenge: &'a [u8],
    pub epoch: u64,
    pub control_epoch: u64,
    pub beat_interval_ms: u64,
    pub server_time_ms: i64,
    pub signed_reports: bool,
    /// Nothing needs to be reported.
    pub state_known: bool,
    pub hello: HelloTerms<'a>,
}

/// What the server uses from the agent's hello: which copy of the agent it is, and what need not be sent again.
#[derive(Clone, Copy, Debug)]
pub struct HelloTerms<'a> {
    pub boot: &'a BootId,
    /// Of this run of the agent.
    pub nonce: &'a [u8],
    pub seen_generation: u64,
    pub seen_epoch: Option<u64>,
}

impl<'a> SessionTerms<'a> {
    /// The agent's side: the server's answer to its hello, with its proof. None if it is no welcome.
    pub fn of_answer<'w>(
        agent: &'a AgentId,
        challenge: &'a [u8],
        hello: HelloTerms<'a>,
        answer: &'w FromServer,
    ) -> Option<(Self, Option<&'w WelcomeProof>)> {
        let FromServer::Welcome { epoch, beat_interval, server_time_ms, proof, state_known } = answer else {
            return None;
        };
        let proof = proof.as_ref();
        let terms = Self {
            agent,
            challenge,
            epoch: *epoch,
            control_epoch: proof.map_or(0, |proof| proof.control_epoch),
            beat_interval_ms: u64::try_from(beat_interval.as_millis()).unwrap_or(u64::MAX),
            server_time_ms: *server_time_ms,
            signed_reports: proof.is_some_and(|proof| proof.signed_reports),
            state_known: *state_known,
            hello,
        };
        Some((terms, proof))
    }

    pub fn beat_interval(&self) -> Duration {
        Duration::from_millis(self.beat_interval_ms)
    }

    fn binding(&self) -> Hash {
        let HelloTerms { boot, nonce, seen_generation, seen_epoch } = self.hello;
        // Only if present: agents of earlier versions do not know it.
        let state_known: &[&[u8]] = if self.state_known { &[b"state known"] } else { &[] };
        let terms: [&[u8]; 13] = [
            SESSION,
            self.agent.as_str().as_bytes(),
            self.challenge,
            &self.epoch.to_be_bytes(),
            &self.control_epoch.to_be_bytes(),
            &self.beat_interval_ms.to_be_bytes(),
            &self.server_time_ms.to_be_bytes(),
            &[u8::from(self.signed_reports)],
            boot.as_str().as_bytes(),
            nonce,
            &seen_generation.to_be_bytes(),
            &[u8::from(seen_epoch.is_some())],
            &seen_epoch.unwrap_or_default().to_be_bytes(),
        ];
        leaf(terms.into_iter().chain(state_known.iter().copied()))
    }
}

fn hash_of(purpose: &[u8], binding: &Hash, sequence: u64, signer_der: &[u8], messages: &[Vec<u8>]) -> Hash {
    let sequence = sequence.to_be_bytes();
    let before = [purpose, binding, &sequence, signer_der];
    leaf(before.into_iter().chain(messages.iter().map(Vec::as_slice)))
}

// The server's commands.

/// The server's side: signs what one session sends.
#[derive(Debug)]
pub struct CommandSeal {
    binding: Hash,
    next: u64,
    /// The number of the last key that the agent has seen.
    announced: u64,
}

/// What a welcome carries for an agent that verifies, and the signer of the session from then on.
pub fn signed_welcome(signer: &CommandSigner, terms: &SessionTerms<'_>) -> Result<(WelcomeProof, CommandSeal)> {
    let binding = terms.binding();
    let signer_der = signer.certificate_der().to_vec();
    let signature = signer.sign_tree(&HashTree::new(vec![leaf([WELCOME, &binding, &signer_der])]))?;
    let proof = WelcomeProof {
        control_epoch: terms.control_epoch,
        signed_reports: terms.signed_reports,
        signer_der,
        signature,
    };
    Ok((proof, CommandSeal { binding, next: 0, announced: signer.number() }))
}

impl CommandSeal {
    /// Whether the agent has not seen this signer's key yet. Another certificate of the same key is no news: it
    /// would only tell the agent about clocks.
    pub fn has_news(&self, signer: &CommandSigner) -> bool {
        self.announced != signer.number()
    }

    /// Messages of [`proctor_wire::encode_part`] as the next ones of the session, to be signed by this signer.
    pub fn prepare(&mut self, signer: &CommandSigner, messages: Vec<Vec<u8>>) -> Unsigned {
        let sequence = self.next;
        let signer_der = self.has_news(signer).then(|| signer.certificate_der().to_vec());
        let hash = hash_of(COMMANDS, &self.binding, sequence, signer_der.as_deref().unwrap_or_default(), &messages);
        self.announced = signer.number();
        self.next += 1;
        Unsigned { hash, signed: Signed { sequence, messages, signer_der, ..Signed::default() } }
    }

    /// [`Self::prepare`], signed on its own.
    pub fn seal(&mut self, signer: &CommandSigner, messages: Vec<Vec<u8>>) -> Result<Signed> {
        let unsigned = self.prepare(signer, messages);
        let mut shares = signer.sign_all(&[unsigned.hash()])?;
        Ok(unsigned.signed(shares.pop().expect("one for each")))
    }
}

/// Messages that lack only their signature.
#[derive(Debug)]
pub struct Unsigned {
    hash: Hash,
    signed: Signed,
}

impl Unsigned {
    /// What [`CommandSigner::sign_all`] signs.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    pub fn signed(self, share: Share) -> Signed {
        let Share { signature, leaf, path } = share;
        Signed { signature: signature.to_vec(), leaf, path, ..self.signed }
    }
}

/// One leaf's share of a signature for many.
#[derive(Clone, Debug)]
pub struct Share {
    signature: Arc<[u8]>,
    leaf: u32,
    path: Vec<Hash>,
}

impl CommandSigner {
    /// One signature for all of these, in which each has a share, in order.
    pub fn sign_all(&self, hashes: &[[u8; 32]]) -> Result<Vec<Share>> {
        if hashes.is_empty() {
            return Ok(Vec::new());
        }
        let tree = HashTree::new(hashes.to_vec());
        let signature: Arc<[u8]> = self.sign_tree(&tree)?.into();
        let share = |(index, leaf)| Share { signature: signature.clone(), leaf, path: tree.path(index) };
        Ok((0..hashes.len()).zip(0..).map(share).collect())
    }
}

/// What an agent has learnt about its control plane, and never forgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlTrust {
    /// A control plane of a lower epoch is an old copy.
    pub control_epoch: u64,
    /// Signing keys with a lower number are no longer valid.
    pub oldest_signer: u64,
}

/// Why an agent, or the server, rejects what it was sent.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    #[error("it is not signed, although this control plane signs its messages")]
    Unsigned,
    #[error("the control plane is an old copy: its epoch is {theirs}, but {ours} was seen before")]
    OldControlPlane { theirs: u64, ours: u64 },
    #[error("the signing key cannot be trusted")]
    Signer(#[source] PkiError),
    #[error("signing key {number} was replaced: the oldest valid key is {oldest}")]
    OldSigner { number: u64, oldest: u64 },
    #[error("invalid signature for this session")]
    Signature,
    #[error("expected sequence number {expected}, got {found}")]
    Sequence { found: u64, expected: u64 },
    #[error("it came through a relay, but the session is not signed in both directions")]
    UnsignedThroughRelay,
    #[error("it is signed, but cannot be read")]
    Unreadable(#[source] WireError),
}

/// The agent's side: verifies what one session receives.
#[derive(Debug)]
pub struct CommandCheck {
    binding: Hash,
    next: u64,
    signer: TrustedSigner,
    trust: ControlTrust,
    shared: Option<Arc<VerifiedRoots>>,
}

impl CommandCheck {
    /// Verifies a welcome. The result must be recorded before any work is accepted: [`Self::trust`].
    pub fn of_welcome(
        authority_pem: &str,
        terms: &SessionTerms<'_>,
        proof: &WelcomeProof,
        known: ControlTrust,
        now: Timestamp,
    ) -> Result<Self, Untrusted> {
        let binding = terms.binding();
        let signer = trusted(authority_pem, &proof.signer_der, known, now)?;
        if !signer.verifies(&leaf([WELCOME, &binding, &proof.signer_der]), &proof.signature) {
            return Err(Untrusted::Signature);
        }
        if terms.control_epoch < known.control_epoch {
            return Err(Untrusted::OldControlPlane { theirs: terms.control_epoch, ours: known.control_epoch });
        }
        let trust =
            ControlTrust { control_epoch: terms.control_epoch, oldest_signer: known.oldest_signer.max(signer.oldest) };
        Ok(Self { binding, next: 0, signer, trust, shared: None })
    }

    /// What another end in this process has verified is not verified again.
    pub fn share(&mut self, verified: Arc<VerifiedRoots>) {
        self.shared = Some(verified);
    }

    pub fn trust(&self) -> ControlTrust {
        self.trust
    }

    /// The messages, if they are the next ones of this session. Reports what was left out of them. After an error
    /// nothing of the session can be trusted any more.
    pub fn open(
        &mut self,
        authority_pem: &str,
        signed: &Signed,
        now: Timestamp,
        skipped: &mut Option<Skipped>,
    ) -> Result<Vec<FromServer>, Untrusted> {
        let announced =
            signed.signer_der.as_ref().map(|der| trusted(authority_pem, der, self.trust, now)).transpose()?;
        let signer = announced.as_ref().unwrap_or(&self.signer);
        let der = signed.signer_der.as_deref().unwrap_or_default();
        let hash = hash_of(COMMANDS, &self.binding, self.next, der, &signed.messages);
        let root = root_of(hash, signed.leaf, &signed.path).ok_or(Untrusted::Signature)?;
        if signed.sequence != self.next {
            return Err(Untrusted::Sequence { found: signed.sequence, expected: self.next });
        }
        let is_good = match &self.shared {
            Some(verified) => verified.verifies(signer, &root, &signed.signature),
            None => signer.verifies(&root, &signed.signature),
        };
        if !is_good {
            return Err(Untrusted::Signature);
        }
        self.next += 1;
        if let Some(announced) = announced {
            self.trust.oldest_signer = self.trust.oldest_signer.max(announced.oldest);
            self.signer = announced;
        }
        decoded(&signed.messages, skipped)
    }
}

fn trusted(
    authority_pem: &str,
    signer_der: &[u8],
    known: ControlTrust,
    now: Timestamp,
) -> Result<TrustedSigner, Untrusted> {
    let signer = TrustedSigner::of(authority_pem, signer_der, now).map_err(Untrusted::Signer)?;
    let TrustedSigner { number, .. } = signer;
    if number < known.oldest_signer {
        return Err(Untrusted::OldSigner { number, oldest: known.oldest_signer });
    }
    Ok(signer)
}

fn decoded<M: LinkMessage>(messages: &[Vec<u8>], skipped: &mut Option<Skipped>) -> Result<Vec<M>, Untrusted> {
    messages.iter().map(|message| decode_part(message, skipped).map_err(Untrusted::Unreadable)).collect()
}

// The agent's reports.

/// The agent's side: signs what it reports in one session.
#[derive(Debug)]
pub struct ReportSeal {
    binding: Hash,
    next: u64,
}

impl ReportSeal {
    pub fn new(terms: &SessionTerms<'_>) -> Self {
        Self { binding: terms.binding(), next: 0 }
    }

    pub fn seal(&mut self, key: &AgentKey, messages: Vec<Vec<u8>>) -> Result<Signed> {
        let sequence = self.next;
        let signature = key.sign(&signed_report(&hash_of(REPORTS, &self.binding, sequence, &[], &messages)))?;
        self.next += 1;
        Ok(Signed { sequence, messages, signature, ..Signed::default() })
    }
}

fn signed_report(hash: &Hash) -> Vec<u8> {
    [REPORTS, hash].concat()
}

/// The key that an agent signs with.
pub(crate) struct ReportKey {
    algorithm: &'static dyn VerificationAlgorithm,
    key: Vec<u8>,
}

impl ReportKey {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self> {
        let certificate = parse(certificate)?;
        let key = certificate.public_key();
        let is_ed25519 = key.algorithm.algorithm == x509_parser::oid_registry::OID_SIG_ED25519;
        let algorithm: &'static dyn VerificationAlgorithm = if is_ed25519 { &ED25519 } else { &ECDSA_P256_SHA256_ASN1 };
        Ok(Self { algorithm, key: key.subject_public_key.data.to_vec() })
    }

    pub(crate) fn verifies(&self, content: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(self.algorithm, &self.key).verify(content, signature).is_ok()
    }
}

/// The server's side: verifies what one session reports, by the certificate that opened it.
pub struct ReportCheck {
    binding: Hash,
    next: u64,
    key: ReportKey,
}

impl ReportCheck {
    pub fn new(terms: &SessionTerms<'_>, certificate: &CertificateDer<'_>) -> Result<Self> {
        Ok(Self { binding: terms.binding(), next: 0, key: ReportKey::of(certificate)? })
    }

    pub fn open(&mut self, signed: &Signed, skipped: &mut Option<Skipped>) -> Result<Vec<FromAgent>, Untrusted> {
        if signed.sequence != self.next {
            return Err(Untrusted::Sequence { found: signed.sequence, expected: self.next });
        }
        let hash = hash_of(REPORTS, &self.binding, self.next, &[], &signed.messages);
        if !self.key.verifies(&signed_report(&hash), &signed.signature) {
            return Err(Untrusted::Signature);
        }
        self.next += 1;
        decoded(&signed.messages, skipped)
    }
}

impl fmt::Debug for ReportCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportCheck").field("next", &self.next).finish_non_exhaustive()
    }
}
