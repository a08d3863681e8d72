//! Records of relays and their join tokens.

use std::net::IpAddr;

use proctor_model::{Classes, RelayId};

use crate::{AuditDraft, AuditPhase, ENROLMENT_ACTOR, Millis};

/// Lets `uses` relays of one cloud area enrol until `expires_at`.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayToken {
    pub id: String,
    pub secret_hash: String,
    pub uses: u32,
    pub expires_at: Millis,
    pub cloud: u32,
}

impl std::fmt::Debug for RelayToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayToken").field("id", &self.id).field("cloud", &self.cloud).finish_non_exhaustive()
    }
}

/// A token and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayTokenRecord {
    pub token: RelayToken,
    pub used: u32,
    /// Enrolments that were refused although they presented its secret.
    pub refused: u32,
}

#[derive(Clone, Debug)]
pub struct RelayEnrolment {
    pub token_id: String,
    pub token_secret_hash: String,
    pub cloud: u32,
    /// The name for a new relay; a known key keeps its name.
    pub relay: RelayId,
    pub key_fingerprint: String,
    pub remote: Option<IpAddr>,
}

impl RelayEnrolment {
    pub(crate) fn audit_entry(&self, phase: AuditPhase, relay: &RelayId, outcome: String) -> AuditDraft {
        AuditDraft {
            phase,
            of: None,
            app: ENROLMENT_ACTOR.to_owned(),
            user: format!("join token {}", self.token_id),
            remote: self.remote,
            request_id: String::new(),
            action: "enrol_relay".to_owned(),
            classes: Classes::default(),
            target_count: 1,
            targets: vec![format!("relay {relay} cloud area {} key {}", self.cloud, self.key_fingerprint)],
            outcome,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayRecord {
    pub id: RelayId,
    pub cloud: u32,
    pub key_fingerprint: String,
    pub enrolled_at: Millis,
    /// When it last connected or disconnected.
    pub last_seen_at: Option<Millis>,
    /// Where it last called from.
    pub remote: Option<IpAddr>,
    pub revoked_at: Option<Millis>,
}
