//! What this agent knows about its control plane: that it signs, its epoch, and the oldest valid signing key.
//!
//! Promised: what was learnt is never unlearnt as long as the authority is the same, or has handed over to its
//! successor, so that nobody can talk the agent into accepting unsigned commands, an older copy of the server, or a
//! replaced key. A damaged record counts as "it signs". If the disk is full the agent knows it until it exits, and
//! retries to record it when it hears more, at most once per [`RECORD_PERIOD`].
//! Absent: the signatures (see `proctor_pki`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use proctor_pki::{CommandCheck, ControlTrust, SessionTerms, TrustedSigner, Untrusted};
use proctor_runtime::{clock, private};
use proctor_wire::WelcomeProof;
use serde::{Deserialize, Serialize};

/// In the state directory.
const FILE: &str = "identity/control.json";
/// How long to wait before a failed write is tried again.
const RECORD_PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Trust {
    path: PathBuf,
    believed: RwLock<Believed>,
    learnt: Mutex<TrustState>,
}

/// The authorities of the control plane.
#[derive(Debug)]
struct Believed {
    authorities_pem: String,
    /// The one that the record names: as long as it is believed, the control plane is the same.
    authority: String,
}

#[derive(Debug, Default)]
struct TrustState {
    /// None until something signed has come from this authority.
    known: Option<ControlTrust>,
    /// What the file says about it.
    recorded: Option<ControlTrust>,
    tried_at: Option<Instant>,
}

/// Why other authorities cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandOverError {
    #[error("this agent trusts none of the authorities")]
    Unrelated,
    #[error("the authorities cannot be read")]
    Unreadable(#[from] proctor_pki::PkiError),
    #[error("cannot record the authorities")]
    Record(#[from] std::io::Error),
}

/// Why an enrolment cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("the server's signing key cannot be trusted")]
    Signer(#[from] proctor_pki::PkiError),
    #[error("cannot record that the server signs")]
    Record(#[from] std::io::Error),
}

#[derive(Serialize, Deserialize)]
struct Record {
    /// What was learnt from one control plane says nothing about another.
    authority: String,
    #[serde(flatten)]
    trust: ControlTrust,
}

impl Trust {
    pub(crate) fn load(state_dir: &Path, authorities_pem: &str) -> Result<Self, proctor_pki::PkiError> {
        let path = state_dir.join(FILE);
        let authorities = proctor_pki::authority_fingerprints(authorities_pem)?;
        let mut authority = proctor_pki::certificate_fingerprint(authorities_pem)?;
        let damaged = || TrustState { known: Some(ControlTrust::default()), ..TrustState::default() };
        let learnt = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => TrustState::default(),
            Err(_) => damaged(),
            Ok(text) => match serde_json::from_str::<Record>(&text) {
                Ok(record) => {
                    let is_same = authorities.contains(&record.authority);
                    let recorded = is_same.then_some(record.trust);
                    if is_same {
                        authority = record.authority;
                    }
                    TrustState { known: recorded, recorded, tried_at: None }
                }
                Err(_) => damaged(),
            },
        };
        let believed = RwLock::new(Believed { authorities_pem: authorities_pem.to_owned(), authority });
        Ok(Self { path, believed, learnt: Mutex::new(learnt) })
    }

    /// The authorities change to these. The record names one that is among the old and the new ones before `keep` replaces
    /// the old ones on the disk: whatever happens in between, it is the record of this control plane.
    pub(crate) fn hand_over(
        &self,
        authorities_pem: &str,
        keep: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<(), HandOverError> {
        let (new, mut believed) = (proctor_pki::authority_fingerprints(authorities_pem)?, self.believed.write());
        let old = proctor_pki::authority_fingerprints(&believed.authorities_pem)?;
        let common = new.iter().find(|authority| old.contains(authority)).ok_or(HandOverError::Unrelated)?;
        let known = self.learnt.lock().known;
        if let Some(trust) = known.filter(|_| !new.contains(&believed.authority)) {
            self.record_for(common, trust)?;
            self.learnt.lock().recorded = Some(trust);
        }
        if !new.contains(&believed.authority) {
            believed.authority.clone_from(common);
        }
        keep()?;
        authorities_pem.clone_into(&mut believed.authorities_pem);
        Ok(())
    }

    /// Enrolment: a control plane that shows the certificate of its signing key signs from the first session on. It is
    /// recorded, or there is no enrolment: the sessions go by the file.
    pub(crate) fn enrolled(&self, signer_der: &[u8]) -> Result<(), TrustError> {
        let signer = TrustedSigner::of(&self.believed.read().authorities_pem, signer_der, now())?;
        let known = self.learnt.lock().known.unwrap_or_default();
        let trust = ControlTrust { oldest_signer: known.oldest_signer.max(signer.oldest), ..known };
        self.record(trust)?;
        *self.learnt.lock() = TrustState { known: Some(trust), recorded: Some(trust), tried_at: None };
        Ok(())
    }

    /// What checks the session that a welcome opens; None for a server that does not sign and never did.
    pub(crate) fn judge(
        &self,
        terms: &SessionTerms<'_>,
        proof: Option<&WelcomeProof>,
    ) -> Result<Option<CommandCheck>, Untrusted> {
        let known = self.learnt.lock().known;
        let Some(proof) = proof else {
            return if known.is_some() { Err(Untrusted::Unsigned) } else { Ok(None) };
        };
        let believed = self.believed.read().authorities_pem.clone();
        let check = CommandCheck::of_welcome(&believed, terms, proof, known.unwrap_or_default(), now())?;
        self.learn(check.trust());
        Ok(Some(check))
    }

    /// To be called with every message that was verified: what could not be recorded is tried again.
    pub(crate) fn learn(&self, trust: ControlTrust) {
        self.learn_at(trust, Instant::now());
    }

    fn learn_at(&self, trust: ControlTrust, now: Instant) {
        // Before the lock, as in `hand_over`: the two are never taken in the other order.
        let authority = self.believed.read().authority.clone();
        let mut learnt = self.learnt.lock();
        let is_new = learnt.known.replace(trust) != Some(trust);
        let is_due = learnt.tried_at.is_none_or(|at| now.saturating_duration_since(at) >= RECORD_PERIOD);
        if learnt.recorded == Some(trust) || !(is_new || is_due) {
            return;
        }
        learnt.tried_at = Some(now);
        match self.record_for(&authority, trust) {
            Ok(()) => learnt.recorded = Some(trust),
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "cannot record the control plane's signing key");
            }
        }
    }

    fn record(&self, trust: ControlTrust) -> std::io::Result<()> {
        self.record_for(&self.believed.read().authority, trust)
    }

    fn record_for(&self, authority: &str, trust: ControlTrust) -> std::io::Result<()> {
        let record = Record { authority: authority.to_owned(), trust };
        private::write(&self.path, &serde_json::to_string(&record).expect("numbers and a text always become JSON"))
    }
}

pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(clock::unix_millis()).expect("the clock's time is a time")
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use proctor_model::{AgentId, BootId};
    use proctor_pki::{Authority, CommandSigner, HelloTerms, OldKey, SigningSecret, signed_welcome};
    use tempfile::TempDir;

    use super::*;

    struct Plane {
        authority: Authority,
        secret: SigningSecret,
    }

    impl Plane {
        fn new() -> Self {
            let authority = Authority::load(&Authority::generate(now()).unwrap()).unwrap();
            Self { authority, secret: SigningSecret::generate().unwrap() }
        }

        fn signer(&self) -> CommandSigner {
            CommandSigner::issue(&self.authority, &self.secret, now()).unwrap()
        }

        fn trust(&self, dir: &TempDir) -> Trust {
            private::dir(&dir.path().join("identity")).unwrap();
            Trust::load(dir.path(), self.authority.certificate_pem()).unwrap()
        }

        fn welcome(&self, trust: &Trust, control_epoch: u64) -> Result<Option<CommandCheck>, Untrusted> {
            let agent: AgentId = "a-1".parse().unwrap();
            let terms = terms(&agent, control_epoch);
            trust.judge(&terms, Some(&signed_welcome(&self.signer(), &terms).unwrap().0))
        }
    }

    fn terms(agent: &AgentId, control_epoch: u64) -> SessionTerms<'_> {
        static BOOT: OnceLock<BootId> = OnceLock::new();
        let boot = BOOT.get_or_init(|| BootId::from("boot"));
        SessionTerms {
            agent,
            challenge: &[7; 32],
            epoch: 1,
            control_epoch,
            beat_interval_ms: 1,
            server_time_ms: 1,
            signed_reports: false,
            state_known: false,
            hello: HelloTerms { boot, nonce: b"run", seen_generation: 0, seen_epoch: None },
        }
    }

    fn unsigned(trust: &Trust) -> Result<Option<CommandCheck>, Untrusted> {
        trust.judge(&terms(&"a-1".parse().unwrap(), 0), None)
    }

    #[test]
    fn an_older_server_is_served_until_the_control_plane_has_signed_once() {
        let (plane, dir) = (Plane::new(), TempDir::new().unwrap());
        let trust = plane.trust(&dir);

        assert!(matches!(unsigned(&trust), Ok(None)));
        plane.welcome(&trust, 1).unwrap();

        assert!(matches!(unsigned(&trust), Err(Untrusted::Unsigned)));
        assert!(matches!(unsigned(&plane.trust(&dir)), Err(Untrusted::Unsigned)), "also after a restart");
        assert!(matches!(unsigned(&Plane::new().trust(&dir)), Ok(None)), "another control plane is another matter");
    }

    #[test]
    fn an_enrolment_with_a_server_that_signs_is_enough() {
        let (plane, dir) = (Plane::new(), TempDir::new().unwrap());
        let trust = plane.trust(&dir);

        assert!(trust.enrolled(Plane::new().signer().certificate_der()).is_err());
        assert!(matches!(unsigned(&trust), Ok(None)));
        trust.enrolled(plane.signer().certificate_der()).unwrap();

        assert!(matches!(unsigned(&plane.trust(&dir)), Err(Untrusted::Unsigned)));
    }

    #[test]
    fn an_older_epoch_and_a_replaced_key_are_refused_also_after_a_restart() {
        let (mut plane, dir) = (Plane::new(), TempDir::new().unwrap());
        let old = plane.secret.clone();
        plane.welcome(&plane.trust(&dir), 5).unwrap();
        assert!(matches!(plane.welcome(&plane.trust(&dir), 4), Err(Untrusted::OldControlPlane { theirs: 4, ours: 5 })));
        plane.secret = old.rotated(OldKey::Refused, 0).unwrap();
        plane.welcome(&plane.trust(&dir), 5).unwrap();

        plane.secret = old;

        assert!(matches!(plane.welcome(&plane.trust(&dir), 5), Err(Untrusted::OldSigner { number: 1, oldest: 2 })));
    }

    #[test]
    fn a_damaged_record_does_not_open_the_door() {
        let (plane, dir) = (Plane::new(), TempDir::new().unwrap());
        plane.welcome(&plane.trust(&dir), 5).unwrap();
        std::fs::write(dir.path().join(FILE), "{").unwrap();

        let trust = plane.trust(&dir);

        assert!(matches!(unsigned(&trust), Err(Untrusted::Unsigned)));
        plane.welcome(&trust, 5).unwrap();
    }

    #[test]
    fn what_could_not_be_recorded_is_tried_again_but_not_with_every_message() {
        let (plane, dir) = (Plane::new(), TempDir::new().unwrap());
        let (trust, begun) = (plane.trust(&dir), Instant::now());
        let (identity, learnt) = (dir.path().join("identity"), ControlTrust { control_epoch: 5, oldest_signer: 2 });
        let recorded = || plane.trust(&dir).learnt.lock().recorded;
        std::fs::remove_dir(&identity).unwrap();

        trust.learn_at(learnt, begun);
        std::fs::create_dir(&identity).unwrap();
        trust.learn_at(learnt, begun + RECORD_PERIOD / 2);
        assert_eq!(recorded(), None);
        trust.learn_at(learnt, begun + RECORD_PERIOD);

        assert_eq!(recorded(), Some(learnt));
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        trust.learn_at(learnt, begun + 3 * RECORD_PERIOD);
        assert_eq!(recorded(), None, "once is enough");
    }

    #[test]
    fn what_was_learnt_outlives_the_authority_that_it_was_learnt_of() {
        let (plane, dir) = (Plane::new(), TempDir::new().unwrap());
        let trust = plane.trust(&dir);
        plane.welcome(&trust, 5).unwrap();
        let successor = Plane::new();
        let (old, new) = (plane.authority.certificate_pem(), successor.authority.certificate_pem());
        let both = format!("{old}\n{new}");
        let after_crash = |pem: &str| Trust::load(dir.path(), pem).unwrap().learnt.lock().known;

        trust.hand_over(&both, || Ok(())).unwrap();
        let mut on_disk = None;
        trust
            .hand_over(new, || {
                on_disk = Some(after_crash(&both));
                Ok(())
            })
            .unwrap();

        let learnt = ControlTrust { control_epoch: 5, oldest_signer: 1 };
        assert_eq!(on_disk, Some(Some(learnt)), "the record is good for both before the old one goes");
        assert_eq!(after_crash(new), Some(learnt));
        assert!(matches!(successor.welcome(&trust, 4), Err(Untrusted::OldControlPlane { theirs: 4, ours: 5 })));
        successor.welcome(&trust, 5).unwrap();
        let stranger = Plane::new();
        let refused = trust.hand_over(stranger.authority.certificate_pem(), || panic!("nothing is kept"));
        assert!(matches!(refused, Err(HandOverError::Unrelated)));
    }

    #[test]
    fn authorities_that_cannot_be_kept_are_not_believed() {
        let (plane, dir) = (Plane::new(), TempDir::new().unwrap());
        let (trust, successor) = (plane.trust(&dir), Plane::new());
        let both = format!("{}\n{}", plane.authority.certificate_pem(), successor.authority.certificate_pem());

        let failed = trust.hand_over(&both, || Err(std::io::Error::other("full")));

        assert!(matches!(failed, Err(HandOverError::Record(_))));
        assert!(successor.welcome(&trust, 1).is_err());
        trust.hand_over(&both, || Ok(())).unwrap();
        successor.welcome(&trust, 1).unwrap();
    }

    #[test]
    fn an_enrolment_that_cannot_be_recorded_fails() {
        let (plane, dir) = (Plane::new(), TempDir::new().unwrap());
        let trust = plane.trust(&dir);
        std::fs::remove_dir(dir.path().join("identity")).unwrap();

        assert!(matches!(trust.enrolled(plane.signer().certificate_der()), Err(TrustError::Record(_))));
    }
}
