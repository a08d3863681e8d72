//! The steps of a rotation, and which peers each would cut off.

use std::collections::HashMap;
use std::time::Duration;

use proctor_model::{AgentId, Class, HostKey, Message, RelayId, messages};
use proctor_pki::{Authorities, Authority, AuthoritySecret, RotationPhase};
use proctor_runtime::clock;
use proctor_store::{HostQuery, PeerTrust};

use super::{of_agent, of_relay};
use crate::control::{Caller, Control, ControlError, Result};
use crate::gateway;

/// An agent or relay that is connected answers an announcement at once; one that is older never does.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Attempts at a step that somebody else changes concurrently.
const ATTEMPTS_MAX: u32 = 3;
/// Peers that a refusal and an audit entry name; the status lists more.
const NAMED_MAX: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationStep {
    /// Makes a successor and announces it.
    Prepare,
    /// The successor issues from now on.
    Switch,
    /// The old authority is dropped.
    Finish,
    /// One phase back.
    Abort,
}

impl RotationStep {
    fn action(self) -> &'static str {
        match self {
            Self::Prepare => "prepare_authority",
            Self::Switch => "switch_authority",
            Self::Finish => "finish_authority",
            Self::Abort => "abort_authority",
        }
    }

    /// What it turns the secret into; None if it is not the next step.
    fn applied(self, secret: &AuthoritySecret) -> std::result::Result<Option<AuthoritySecret>, proctor_pki::PkiError> {
        Ok(match self {
            Self::Prepare => secret.prepared(gateway::now())?,
            Self::Switch => secret.switched(),
            Self::Finish => secret.finished(),
            Self::Abort => secret.switched_back().or_else(|| secret.aborted()),
        })
    }

    fn out_of_order(self, phase: RotationPhase) -> Message {
        match (self, phase) {
            (Self::Prepare, _) => messages::rotation_under_way(),
            (Self::Switch, RotationPhase::Idle) => messages::rotation_not_prepared(),
            (Self::Switch, _) => messages::rotation_switched(),
            (Self::Finish, RotationPhase::Idle) => messages::no_rotation(),
            (Self::Finish, _) => messages::rotation_not_switched(),
            (Self::Abort, _) => messages::no_rotation(),
        }
    }
}

/// Why a peer has not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyBehind {
    NotConnected,
    /// It is connected, and does not answer: its version is too old.
    CannotFollow,
    /// It is connected, and has not done all of it yet.
    NotYet,
}

/// An agent or relay that the next step would cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// None of a relay.
    pub host: Option<HostKey>,
    pub agent: Option<AgentId>,
    pub relay: Option<RelayId>,
    pub why: WhyBehind,
    pub version: String,
    pub trusts_successor: bool,
    pub has_new_certificate: bool,
}

impl std::fmt::Display for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.host, &self.relay) {
            (Some(host), _) => write!(f, "host {host}")?,
            (None, Some(relay)) => write!(f, "relay {relay}")?,
            (None, None) => f.write_str("somebody")?,
        }
        match self.why {
            WhyBehind::NotConnected => f.write_str(" (not connected)"),
            WhyBehind::CannotFollow => write!(f, " (version {} cannot follow: upgrade it)", self.version),
            WhyBehind::NotYet => f.write_str(" (not yet)"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowCount {
    pub total: usize,
    pub trust_successor: usize,
    pub new_certificate: usize,
}

#[derive(Clone, Debug)]
pub struct RotationStatus {
    pub phase: RotationPhase,
    /// Fingerprints.
    pub current: String,
    pub successor: Option<String>,
    pub issuing: String,
    /// Unix seconds.
    pub prepared_at: Option<i64>,
    pub agents: FollowCount,
    pub relays: FollowCount,
    /// Whom the next step would cut off: a switch before it, else the end of the rotation.
    pub behind: Vec<Behind>,
    /// Whom an abort that forgets the successor would cut off, or might: who has not said whose certificate it has.
    pub behind_abort: Vec<Behind>,
    /// Join tokens that are still good, and pin the current authority: they end with the rotation.
    pub open_tokens: usize,
}

impl RotationStatus {
    fn cut_off_by(&self, step: RotationStep) -> &[Behind] {
        match (step, self.phase) {
            (RotationStep::Switch | RotationStep::Finish, _) => &self.behind,
            (RotationStep::Abort, RotationPhase::Prepared) => &self.behind_abort,
            (RotationStep::Prepare | RotationStep::Abort, _) => &[],
        }
    }
}

/// What a peer has done, by what it said.
struct Progress {
    trusts: bool,
    certified: bool,
    /// It has a certificate of the successor, or has not said that it has none.
    needs_successor: bool,
}

impl Progress {
    fn of(trust: Option<&PeerTrust>, authorities: &Authorities) -> Self {
        let has_current = trust.is_some_and(|trust| trust.certified_by == authorities.current().fingerprint());
        let needs_successor = authorities.was_switched() && !has_current;
        let Some((trust, successor)) = trust.zip(authorities.successor()) else {
            return Self { trusts: false, certified: false, needs_successor };
        };
        let successor = successor.fingerprint();
        let trusts = trust.authorities.contains(&successor);
        Self { trusts, certified: trusts && trust.certified_by == successor, needs_successor }
    }

    fn is_behind(&self, phase: RotationPhase) -> bool {
        match phase {
            RotationPhase::Idle => false,
            RotationPhase::Prepared => !self.trusts,
            RotationPhase::Switched => !self.certified,
        }
    }
}

impl Control {
    pub async fn rotation_status(&self, caller: &Caller) -> Result<RotationStatus> {
        caller.require(Class::Admin)?;
        self.rotation().await
    }

    async fn rotation(&self) -> Result<RotationStatus> {
        let believed = self.authorities().await.map_err(unreadable)?;
        let authorities = &believed.authorities;
        let mut status = RotationStatus {
            phase: authorities.phase(),
            current: authorities.current().fingerprint(),
            successor: authorities.successor().map(Authority::fingerprint),
            issuing: authorities.issuing().fingerprint(),
            prepared_at: authorities.prepared_at(),
            agents: FollowCount::default(),
            relays: FollowCount::default(),
            behind: Vec::new(),
            behind_abort: Vec::new(),
            open_tokens: self.open_tokens().await?,
        };
        let trusts = self.inner.authorities.trusts.lock().clone();
        self.count_agents(&mut status, &trusts, authorities).await?;
        self.count_relays(&mut status, &trusts, authorities).await?;
        Ok(status)
    }

    async fn open_tokens(&self) -> Result<usize> {
        let now = clock::unix_millis();
        let of_agents = self.inner.store.tokens().await?;
        let of_agents = of_agents.iter().filter(|one| one.token.expires_at > now && one.used < one.token.uses).count();
        let of_relays = self.inner.store.relay_tokens().await?;
        let of_relays = of_relays.iter().filter(|one| one.token.expires_at > now && one.used < one.token.uses).count();
        Ok(of_agents + of_relays)
    }

    async fn count_agents(
        &self,
        status: &mut RotationStatus,
        trusts: &HashMap<String, PeerTrust>,
        authorities: &Authorities,
    ) -> Result<()> {
        let hosts = self.inner.store.hosts(&HostQuery::default()).await?;
        for host in hosts.into_iter().filter(|host| host.revoked_at.is_none()) {
            let why = self.why_agent_behind(&host.agent);
            // What it said once counts no more where it does not answer now: it may be an older program, or an old copy.
            let trust = trusts.get(&of_agent(&host.agent)).filter(|_| why != WhyBehind::CannotFollow);
            let progress = Progress::of(trust, authorities);
            status.agents.add(&progress);
            let behind = Behind {
                host: Some(host.key),
                agent: Some(host.agent.clone()),
                relay: None,
                why,
                version: host.facts.agent_version.clone(),
                trusts_successor: progress.trusts,
                has_new_certificate: progress.certified,
            };
            status.list(&progress, behind);
        }
        Ok(())
    }

    async fn count_relays(
        &self,
        status: &mut RotationStatus,
        trusts: &HashMap<String, PeerTrust>,
        authorities: &Authorities,
    ) -> Result<()> {
        for relay in self.relays().await?.into_iter().filter(|relay| relay.record.revoked_at.is_none()) {
            let trust = trusts.get(&of_relay(&relay.record.id));
            let progress = Progress::of(trust, authorities);
            status.relays.add(&progress);
            let why = match (relay.connections, trust) {
                (0, _) => WhyBehind::NotConnected,
                (_, None) => WhyBehind::CannotFollow,
                (_, Some(_)) => WhyBehind::NotYet,
            };
            let behind = Behind {
                host: None,
                agent: None,
                relay: Some(relay.record.id),
                why,
                version: relay.version.unwrap_or_default(),
                trusts_successor: progress.trusts,
                has_new_certificate: progress.certified,
            };
            status.list(&progress, behind);
        }
        Ok(())
    }

    fn why_agent_behind(&self, agent: &AgentId) -> WhyBehind {
        let Some(session) = self.inner.sessions.get(agent) else { return WhyBehind::NotConnected };
        let told = session.told_authorities.lock();
        let is_late = told.at.is_some_and(|at| at.elapsed() >= ANSWER_MAX);
        if is_late && !told.is_answered { WhyBehind::CannotFollow } else { WhyBehind::NotYet }
    }

    /// Takes a step, and returns the state of the rotation; or a readable reason why it was not taken.
    pub async fn rotate_authority(
        &self,
        caller: &Caller,
        step: RotationStep,
        force: bool,
    ) -> Result<std::result::Result<RotationStatus, Message>> {
        let target = if force { "certificate authority, forced" } else { "certificate authority" };
        let work = move |control: Self| async move { control.take_step(step, force).await };
        let told = |done: &std::result::Result<(RotationStatus, String), Message>| match done {
            Ok((_, told)) => told.clone(),
            Err(refusal) => format!("refused: {refusal}"),
        };
        let done = self.administer(caller, step.action(), [target], work, told).await?;
        Ok(done.map(|(status, _)| status))
    }

    async fn take_step(
        &self,
        step: RotationStep,
        force: bool,
    ) -> Result<std::result::Result<(RotationStatus, String), Message>> {
        let store = &self.inner.store;
        for _ in 0..ATTEMPTS_MAX {
            let stored = gateway::authority_secret(store).await.map_err(unreadable)?;
            self.reload_authorities().await.map_err(unreadable)?;
            let before = self.rotation().await?;
            let secret = AuthoritySecret::from_bytes(&stored).map_err(unreadable)?;
            let Some(new) = step.applied(&secret).map_err(unreadable)? else {
                return Ok(Err(step.out_of_order(secret.phase())));
            };
            let cut_off = before.cut_off_by(step);
            if !cut_off.is_empty() && !force {
                return Ok(Err(messages::rotation_cuts_off(cut_off.len(), named(cut_off))));
            }
            if !store.replace_secret(gateway::AUTHORITY, stored, new.to_bytes()).await? {
                continue;
            }
            self.reload_authorities().await.map_err(unreadable)?;
            let told = if cut_off.is_empty() {
                "done".to_owned()
            } else {
                format!("done; {} would be cut off: {}", cut_off.len(), named(cut_off))
            };
            return Ok(Ok((self.rotation().await?, told)));
        }
        Ok(Err(messages::rotation_changed()))
    }
}

impl RotationStatus {
    fn list(&mut self, progress: &Progress, behind: Behind) {
        if progress.needs_successor || progress.certified {
            self.behind_abort.push(behind.clone());
        }
        if progress.is_behind(self.phase) {
            self.behind.push(behind);
        }
    }
}

impl FollowCount {
    fn add(&mut self, progress: &Progress) {
        self.total += 1;
        self.trust_successor += usize::from(progress.trusts);
        self.new_certificate += usize::from(progress.certified);
    }
}

fn named(cut_off: &[Behind]) -> String {
    let names: Vec<String> = cut_off.iter().take(NAMED_MAX).map(Behind::to_string).collect();
    let more = cut_off.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", names.join(", "))
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> ControlError {
    let source = Box::new(error);
    ControlError::Store(proctor_store::StoreError::Failed { what: "use the certificate authority", source })
}
