//! What this agent has learnt of its control plane: that it signs, its epoch, and the oldest signing key that counts.
//!
//! Promised: what was learnt is never unlearnt as long as the authority is the same, so that nobody talks the agent
//! into taking unsigned commands, an older copy of the server, or a key that was replaced. A damaged record counts as
//! "it signs". Where the disk is full the agent knows it until it ends. Absent: the signatures (see `proctor_pki`).

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use proctor_pki::{CommandCheck, ControlTrust, SessionTerms, TrustedSigner, Untrusted};
use proctor_runtime::{clock, private};
use proctor_wire::WelcomeProof;
use serde::{Deserialize, Serialize};

/// In the state directory.
const FILE: &str = "identity/control.json";

#[derive(Debug)]
pub(crate) struct Trust {
    path: PathBuf,
    authority_pem: String,
    authority: String,
    /// None as long as nothing signed has come from this authority.
    known: Mutex<Option<ControlTrust>>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    /// What was learnt from one control plane says nothing of another.
    authority: String,
    #[serde(flatten)]
    trust: ControlTrust,
}

impl Trust {
    pub(crate) fn load(state_dir: &Path, authority_pem: &str) -> Result<Self, proctor_pki::PkiError> {
        let path = state_dir.join(FILE);
        let authority = proctor_pki::certificate_fingerprint(authority_pem)?;
        let known = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(_) => Some(ControlTrust::default()),
            Ok(text) => match serde_json::from_str::<Record>(&text) {
                Ok(record) => (record.authority == authority).then_some(record.trust),
                Err(_) => Some(ControlTrust::default()),
            },
        };
        Ok(Self { path, authority_pem: authority_pem.to_owned(), authority, known: Mutex::new(known) })
    }

    /// Enrolment: a control plane that shows the certificate of its signing key signs from the first session on.
    pub(crate) fn enrolled(&self, signer_der: &[u8]) -> Result<(), proctor_pki::PkiError> {
        let signer = TrustedSigner::of(&self.authority_pem, signer_der, now())?;
        let known = self.known.lock().unwrap_or_default();
        self.learn(ControlTrust { oldest_signer: known.oldest_signer.max(signer.oldest), ..known });
        Ok(())
    }

    /// What checks the session that a welcome opens; None for a server that does not sign and never did.
    pub(crate) fn judge(
        &self,
        terms: &SessionTerms<'_>,
        proof: Option<&WelcomeProof>,
    ) -> Result<Option<CommandCheck>, Untrusted> {
        let known = *self.known.lock();
        let Some(proof) = proof else {
            return if known.is_some() { Err(Untrusted::Unsigned) } else { Ok(None) };
        };
        let check = CommandCheck::of_welcome(&self.authority_pem, terms, proof, known.unwrap_or_default(), now())?;
        self.learn(check.trust());
        Ok(Some(check))
    }

    pub(crate) fn learn(&self, trust: ControlTrust) {
        let mut known = self.known.lock();
        if *known == Some(trust) {
            return;
        }
        *known = Some(trust);
        let record = Record { authority: self.authority.clone(), trust };
        let text = serde_json::to_string(&record).expect("numbers and a text always become JSON");
        if let Err(error) = private::write(&self.path, &text) {
            tracing::error!(path = %self.path.display(), %error, "cannot record what the control plane is known by");
        }
    }
}

pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(clock::unix_millis()).expect("the clock's time is a time")
}

#[cfg(test)]
mod tests {
    use proctor_model::AgentId;
    use proctor_pki::{Authority, CommandSigner, OldKey, SigningSecret, signed_welcome};
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
        SessionTerms {
            agent,
            challenge: &[7; 32],
            epoch: 1,
            control_epoch,
            beat_interval_ms: 1,
            server_time_ms: 1,
            signed_reports: false,
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
}
