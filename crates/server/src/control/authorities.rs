//! Rotation of the authority: its phases, which peers have followed, and which would be cut off.
//!
//! Promised: a phase is one write to the store, so a server that dies resumes in one phase or the other; other
//! servers on the same store notice within seconds. Connected peers are notified at once, others when they connect;
//! whether a peer has followed is what it reports about its own disk, and is stored. No step that would cut a peer
//! off is taken without force.
//! Absent: keys and certificates (see `proctor_pki::Authorities`), and sockets.

mod steps;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::Mutex;
use proctor_model::{AgentId, RelayId};
use proctor_pki::{AgentCertificates, Authorities, Authority, AuthoritySecret, PkiError, RotationPhase};
use proctor_store::PeerTrust;
use proctor_wire::{Announced, Trusted};
use tokio::sync::{Notify, watch};

use super::{Control, Session};
use crate::{ServerError, gateway};

pub use steps::{Behind, FollowCount, RotationStatus, RotationStep, WhyBehind};

/// The authorities as the store has them, ready for use.
#[derive(Debug)]
pub(crate) struct Believed {
    pub(crate) authorities: Authorities,
    pub(crate) agent_certificates: AgentCertificates,
    /// Rises with every change, in the life of this server.
    pub(crate) generation: u64,
    secret: Vec<u8>,
}

impl Believed {
    pub(crate) fn of(secret: &AuthoritySecret, signed: &Arc<AtomicU64>, generation: u64) -> Result<Self, PkiError> {
        let authorities = Authorities::load(secret, signed)?;
        let agent_certificates = AgentCertificates::of(authorities.all())?;
        Ok(Self { authorities, agent_certificates, generation, secret: secret.to_bytes() })
    }

    fn announced(&self) -> Announced {
        Announced { authorities_pem: self.authorities.pem(), issuing: self.authorities.issuing().fingerprint() }
    }

    /// Whether there is nothing left to follow for a peer that trusts these.
    fn is_all(&self, trust: &PeerTrust) -> bool {
        let fingerprints: Vec<String> = self.authorities.all().map(Authority::fingerprint).collect();
        self.authorities.phase() == RotationPhase::Idle
            && trust.authorities == fingerprints
            && trust.certified_by == fingerprints[0]
    }
}

/// What was sent to an agent on its session.
#[derive(Debug, Default)]
pub(super) struct ToldAuthorities {
    generation: u64,
    at: Option<Instant>,
    is_answered: bool,
}

/// The authorities, and which peers trust which.
#[derive(Debug)]
pub(super) struct AuthorityBoard {
    believed: Mutex<Option<Arc<Believed>>>,
    generations: watch::Sender<u64>,
    is_changed: Notify,
    signed: Arc<AtomicU64>,
    trusts: Mutex<HashMap<String, PeerTrust>>,
}

impl AuthorityBoard {
    /// With what the store has kept.
    pub(super) fn of_earlier_life(trusts: Vec<(String, PeerTrust)>) -> Self {
        Self {
            believed: Mutex::default(),
            generations: watch::Sender::new(0),
            is_changed: Notify::new(),
            signed: Arc::default(),
            trusts: Mutex::new(trusts.into_iter().collect()),
        }
    }

    /// As the store does, when they enrol, are removed or revoked.
    pub(super) fn forget_agents<'a>(&self, agents: impl IntoIterator<Item = &'a AgentId>) {
        let mut trusts = self.trusts.lock();
        for agent in agents {
            trusts.remove(&of_agent(agent));
        }
    }

    pub(super) fn forget_relay(&self, relay: &RelayId) {
        self.trusts.lock().remove(&of_relay(relay));
    }

    fn trust_of(&self, peer: &str) -> Option<PeerTrust> {
        self.trusts.lock().get(peer).cloned()
    }
}

fn of_agent(agent: &AgentId) -> String {
    PeerTrust::peer_of_agent(agent)
}

fn of_relay(relay: &RelayId) -> String {
    PeerTrust::peer_of_relay(relay)
}

impl Control {
    /// How many certificates were signed in this run of the server; keeps counting.
    pub(crate) fn certificates_signed(&self) -> Arc<AtomicU64> {
        self.inner.authorities.signed.clone()
    }

    /// Made on first use.
    pub(crate) async fn authorities(&self) -> Result<Arc<Believed>, ServerError> {
        let present = self.inner.authorities.believed.lock().clone();
        match present {
            Some(believed) => Ok(believed),
            None => self.reload_authorities().await,
        }
    }

    /// Those that the link is served with: they were read before it.
    pub(crate) fn believed(&self) -> Arc<Believed> {
        self.inner.authorities.believed.lock().clone().expect("the authorities are read before the link is served")
    }

    /// Loads the store's current state, and notifies all connected peers if it has changed.
    pub(crate) async fn reload_authorities(&self) -> Result<Arc<Believed>, ServerError> {
        let secret = gateway::authority_secret(&self.inner.store).await?;
        let board = &self.inner.authorities;
        let new = {
            let mut present = board.believed.lock();
            if let Some(believed) = present.as_ref().filter(|believed| believed.secret == secret) {
                return Ok(believed.clone());
            }
            let generation = present.as_ref().map_or(1, |believed| believed.generation + 1);
            let new = Believed::of(&AuthoritySecret::from_bytes(&secret)?, &board.signed, generation)?;
            let new = Arc::new(Believed { secret, ..new });
            *present = Some(new.clone());
            new
        };
        tracing::info!(phase = ?new.authorities.phase(), issuing = new.authorities.issuing().fingerprint(), "authorities loaded");
        board.generations.send_replace(new.generation);
        board.is_changed.notify_one();
        self.wake_all();
        Ok(new)
    }

    /// Returns when somebody has changed the authorities through this server.
    pub(crate) async fn authorities_changed(&self) {
        self.inner.authorities.is_changed.notified().await;
    }

    pub(crate) fn authority_generations(&self) -> watch::Receiver<u64> {
        self.inner.authorities.generations.subscribe()
    }

    /// What the agent must be sent about the authorities, once per session and change. Outside a rotation only peers
    /// that still trust something else are notified.
    pub(crate) fn take_announcement(&self, session: &Session) -> Option<Announced> {
        let believed = self.inner.authorities.believed.lock().clone()?;
        {
            let mut told = session.told_authorities.lock();
            if told.generation == believed.generation {
                return None;
            }
            told.generation = believed.generation;
        }
        let announced = self.announcement(&believed, &of_agent(session.agent()))?;
        *session.told_authorities.lock() =
            ToldAuthorities { generation: believed.generation, at: Some(Instant::now()), is_answered: false };
        Some(announced)
    }

    /// As [`Self::take_announcement`], for a connection of a relay.
    pub(crate) fn announcement_of(&self, relay: &RelayId) -> Option<Announced> {
        let believed = self.inner.authorities.believed.lock().clone()?;
        self.announcement(&believed, &of_relay(relay))
    }

    fn announcement(&self, believed: &Believed, peer: &str) -> Option<Announced> {
        let is_rotating = believed.authorities.phase() != RotationPhase::Idle;
        (is_rotating || self.inner.authorities.trust_of(peer).is_some()).then(|| believed.announced())
    }

    /// The agent has reported what is on its disk.
    pub(crate) async fn agent_trusts(&self, session: &Session, trusted: Trusted) {
        session.told_authorities.lock().is_answered = true;
        self.keep_trust(of_agent(session.agent()), trusted).await;
    }

    pub(crate) async fn relay_trusts(&self, relay: &RelayId, trusted: Trusted) {
        self.keep_trust(of_relay(relay), trusted).await;
    }

    /// Before an agent gets another certificate: once it may be of the successor, what it said of its old one is over.
    pub(crate) async fn agent_renews(&self, agent: &AgentId) {
        self.doubt_certificate(of_agent(agent)).await;
    }

    pub(crate) async fn relay_renews(&self, relay: &RelayId) {
        self.doubt_certificate(of_relay(relay)).await;
    }

    async fn doubt_certificate(&self, peer: String) {
        let believed = self.believed();
        if believed.authorities.phase() != RotationPhase::Switched {
            return;
        }
        let current = believed.authorities.current().fingerprint();
        let said = self.inner.authorities.trust_of(&peer).filter(|trust| trust.certified_by == current);
        if let Some(PeerTrust { authorities, .. }) = said {
            self.keep_trust(peer, Trusted { authorities, certified_by: String::new() }).await;
        }
    }

    /// What cannot be stored is reported again on the next session.
    async fn keep_trust(&self, peer: String, Trusted { authorities, certified_by }: Trusted) {
        let trust = PeerTrust { authorities, certified_by };
        let board = &self.inner.authorities;
        let Some(believed) = board.believed.lock().clone() else { return };
        let trust = (!believed.is_all(&trust)).then_some(trust);
        if board.trust_of(&peer) == trust {
            return;
        }
        if let Err(error) = self.inner.store.keep_trust(&peer, trust.clone()).await {
            return tracing::warn!(peer, %error, "cannot store which authorities a peer trusts");
        }
        let mut trusts = board.trusts.lock();
        match trust {
            Some(trust) => drop(trusts.insert(peer, trust)),
            None => drop(trusts.remove(&peer)),
        }
    }
}
