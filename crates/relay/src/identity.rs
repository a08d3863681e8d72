//! The identity of this relay: what enrolment stored in the state directory.
//!
//! `identity/key.pem` is made first and never leaves the host; `identity/relay.json` says which relay of which cloud
//! area; `identity/certificate.pem` and `identity/authority.pem` come from the server. All four make an identity.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use proctor_model::RelayId;
use proctor_pki::AgentKey;
use proctor_runtime::{clock, private};
use proctor_wire::{Announced, Trusted};
use rustls::{ClientConfig, ServerConfig};
use serde::{Deserialize, Serialize};

/// A certificate is renewed when less than this is left.
const RENEW_BEFORE: Duration = Duration::from_secs(10 * 24 * 3600);

/// What a state directory holds.
#[derive(Debug)]
pub(crate) enum Found {
    /// Enrolment has not been completed.
    Nothing,
    /// The relay was away for too long: it needs a token again, and keeps its name.
    Expired {
        relay: RelayId,
        expired_at: jiff::Timestamp,
    },
    Usable(Box<Identity>),
}

#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) relay: RelayId,
    pub(crate) cloud: u32,
    key: AgentKey,
    authorities_pem: RwLock<String>,
    certificate_pem: RwLock<String>,
    to_agents: RwLock<Arc<ServerConfig>>,
    dir: PathBuf,
    /// Held while a renewed certificate is installed, which several connections may receive: whether the one in
    /// memory is not on disk.
    unsaved: Mutex<bool>,
    /// What the server announced last, in this run of the relay.
    announced: Mutex<Option<Announced>>,
}

#[derive(Serialize, Deserialize)]
struct IdentityRecord {
    relay: RelayId,
    cloud: u32,
}

/// Whether the state directory holds an identity.
pub fn is_enrolled(state_dir: &Path) -> bool {
    Identity::load(state_dir).is_ok_and(|found| matches!(found, Found::Usable(_)))
}

impl Identity {
    pub(crate) fn load(state_dir: &Path) -> io::Result<Found> {
        let dir = state_dir.join("identity");
        let read = |name: &str| match std::fs::read_to_string(dir.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let (Some(key), Some(record), Some(certificate_pem), Some(authority_pem)) =
            (read("key.pem")?, read("relay.json")?, read("certificate.pem")?, read("authority.pem")?)
        else {
            return Ok(Found::Nothing);
        };
        let IdentityRecord { relay, cloud } = serde_json::from_str(&record).map_err(io::Error::other)?;
        let key = AgentKey::from_pem(&key).map_err(io::Error::other)?;
        let expires_at = proctor_pki::expires_at(&certificate_pem).map_err(io::Error::other)?;
        if left(&certificate_pem).is_none() {
            return Ok(Found::Expired { relay, expired_at: expires_at });
        }
        let to_agents =
            proctor_pki::relay_server_config(&authority_pem, &certificate_pem, &key).map_err(io::Error::other)?;
        let to_agents = RwLock::new(Arc::new(to_agents));
        let certificate_pem = RwLock::new(certificate_pem);
        let (authorities_pem, unsaved) = (RwLock::new(authority_pem), Mutex::new(false));
        let announced = Mutex::default();
        let identity = Self { relay, cloud, key, authorities_pem, certificate_pem, to_agents, dir, unsaved, announced };
        Ok(Found::Usable(Box::new(identity)))
    }

    /// The key for a new identity: created once, so that a repeated enrolment is recognised.
    pub(crate) fn key(state_dir: &Path) -> io::Result<AgentKey> {
        let dir = state_dir.join("identity");
        private::dir(&dir).map_err(io::Error::other)?;
        let path = dir.join("key.pem");
        match std::fs::read_to_string(&path) {
            Ok(pem) => AgentKey::from_pem(&pem).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = AgentKey::generate().map_err(io::Error::other)?;
                private::write(&path, &key.to_pem())?;
                Ok(key)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn save(
        state_dir: &Path,
        relay: &RelayId,
        cloud: u32,
        certificate_pem: &str,
        authority_pem: &str,
    ) -> io::Result<()> {
        let dir = state_dir.join("identity");
        let record =
            serde_json::to_string_pretty(&IdentityRecord { relay: relay.clone(), cloud }).map_err(io::Error::other)?;
        private::write(&dir.join("relay.json"), &record)?;
        private::write(&dir.join("authority.pem"), authority_pem)?;
        private::write(&dir.join("certificate.pem"), certificate_pem)
    }

    /// For the side of the agents.
    pub(crate) fn to_agents(&self) -> Arc<ServerConfig> {
        self.to_agents.read().clone()
    }

    /// For the side of the server.
    pub(crate) fn to_server(&self) -> proctor_pki::Result<ClientConfig> {
        proctor_pki::relay_client_config(&self.authorities_pem.read(), &self.certificate_pem.read(), &self.key)
    }

    /// A request for a new certificate, if the current one expires soon or could not be saved.
    pub(crate) fn renewal(&self) -> Option<Vec<u8>> {
        let nears_end = left(&self.certificate_pem.read()).is_none_or(|left| left < RENEW_BEFORE);
        let is_due = nears_end || *self.unsaved.lock() || self.is_of_other_issuer();
        is_due.then(|| self.key.csr_der().ok()).flatten()
    }

    /// From now on new connections use this certificate, even if it cannot be saved: on a full disk the relay must
    /// not expire with its old one.
    pub(crate) fn renew(&self, certificate_pem: String) -> io::Result<()> {
        let mut unsaved = self.unsaved.lock();
        let config = proctor_pki::relay_server_config(&self.authorities_pem.read(), &certificate_pem, &self.key);
        let config = Arc::new(config.map_err(io::Error::other)?);
        *self.to_agents.write() = config;
        self.certificate_pem.write().clone_from(&certificate_pem);
        *unsaved = true;
        private::write(&self.dir.join("certificate.pem"), &certificate_pem)?;
        *unsaved = false;
        Ok(())
    }

    /// The control plane has these authorities now: from now on this relay trusts them and no others, and so do the
    /// agents that connect to it. None of them may be unknown to the others: a connection hands trust on.
    pub(crate) fn follow(&self, announced: Announced) -> io::Result<()> {
        *self.announced.lock() = Some(announced.clone());
        let Announced { authorities_pem, .. } = announced;
        let _one_at_a_time = self.unsaved.lock();
        let present = self.authorities_pem.read().clone();
        if present == authorities_pem {
            return Ok(());
        }
        let fingerprints = |pem: &str| proctor_pki::authority_fingerprints(pem).map_err(io::Error::other);
        let (old, new) = (fingerprints(&present)?, fingerprints(&authorities_pem)?);
        if !new.iter().any(|authority| old.contains(authority)) {
            return Err(io::Error::other("none of the announced authorities is one that this relay believes"));
        }
        let certificate_pem = self.certificate_pem.read().clone();
        let config = proctor_pki::relay_server_config(&authorities_pem, &certificate_pem, &self.key);
        let config = Arc::new(config.map_err(io::Error::other)?);
        private::write(&self.dir.join("authority.pem"), &authorities_pem)?;
        *self.authorities_pem.write() = authorities_pem;
        *self.to_agents.write() = config;
        Ok(())
    }

    /// What is on disk now; None if the server has announced nothing.
    pub(crate) fn trusted(&self) -> Option<Trusted> {
        self.announced.lock().is_some().then(|| self.believed())
    }

    fn believed(&self) -> Trusted {
        let authorities_pem = self.authorities_pem.read().clone();
        let issuer = proctor_pki::issuer_fingerprint(&authorities_pem, &self.certificate_pem.read());
        let authorities = proctor_pki::authority_fingerprints(&authorities_pem).unwrap_or_default();
        Trusted { authorities, certified_by: issuer.ok().flatten().unwrap_or_default() }
    }

    /// Whether another authority issues now than the one that issued the certificate, and the relay trusts it.
    fn is_of_other_issuer(&self) -> bool {
        let Some(Announced { issuing, .. }) = self.announced.lock().clone() else { return false };
        let Trusted { authorities, certified_by } = self.believed();
        authorities.contains(&issuing) && certified_by != issuing
    }
}

/// How long a certificate is still valid; None if it has expired.
fn left(certificate_pem: &str) -> Option<Duration> {
    let expires_at = proctor_pki::expires_at(certificate_pem).ok()?;
    u64::try_from(expires_at.as_millisecond() - clock::unix_millis())
        .ok()
        .filter(|left| *left > 0)
        .map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use proctor_pki::{Authorities, Authority};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(clock::unix_millis()).unwrap()
    }

    /// A relay that enrolled at this time, for 30 days.
    fn enrolled(state_dir: &Path, at: jiff::Timestamp) -> Authority {
        let authority = Authority::load(&Authority::generate(at).unwrap()).unwrap();
        private::dir(state_dir).unwrap();
        let key = Identity::key(state_dir).unwrap();
        let relay = "r-1".parse().unwrap();
        let certificate = authority.issue_relay(&key.csr_der().unwrap(), &relay, at, 30 * DAY).unwrap();
        Identity::save(state_dir, &relay, 3, &certificate, authority.certificate_pem()).unwrap();
        authority
    }

    fn usable(state_dir: &Path) -> Box<Identity> {
        match Identity::load(state_dir).unwrap() {
            Found::Usable(identity) => identity,
            other @ (Found::Nothing | Found::Expired { .. }) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_renewed_certificate_is_used_although_it_cannot_be_saved_and_is_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let authority = enrolled(dir.path(), now() - jiff::SignedDuration::from_hours(25 * 24));
        let identity = usable(dir.path());
        let request = identity.renewal().expect("five days are left");
        let renewed = authority.issue_relay(&request, &identity.relay, now(), 30 * DAY).unwrap();

        // A directory instead of the file: nothing can be written there.
        let path = dir.path().join("identity/certificate.pem");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir_all(path.join("in the way")).unwrap();
        assert!(identity.renew(renewed.clone()).is_err());

        assert_eq!(*identity.certificate_pem.read(), renewed);
        assert!(identity.renewal().is_some(), "it is not on disk");
        std::fs::remove_dir_all(&path).unwrap();
        identity.renew(renewed.clone()).unwrap();
        assert!(identity.renewal().is_none());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), renewed);
    }

    #[test]
    fn a_relay_follows_its_control_plane_to_another_authority_and_no_stranger() {
        let dir = tempfile::tempdir().unwrap();
        private::dir(dir.path()).unwrap();
        let key = Identity::key(dir.path()).unwrap();
        let (idle, relay) = (Authority::generate(now()).unwrap(), "r-1".parse().unwrap());
        let prepared = idle.prepared(now()).unwrap().unwrap();
        let of = |secret: &proctor_pki::AuthoritySecret| Authorities::load(secret, &Arc::default()).unwrap();
        let [first, second] = [of(&idle), of(&prepared.switched().unwrap())];
        let issue = |by: &Authorities| by.issue_relay(&key.csr_der().unwrap(), &relay, now(), 30 * DAY).unwrap();
        Identity::save(dir.path(), &relay, 3, &issue(&first), &first.pem()).unwrap();
        let identity = usable(dir.path());
        let announced = |by: &Authorities| Announced { authorities_pem: by.pem(), issuing: by.issuing().fingerprint() };

        assert_eq!(identity.trusted(), None);
        identity.follow(announced(&of(&prepared))).unwrap();
        assert!(identity.renewal().is_none(), "the old authority still issues");
        identity.follow(announced(&second)).unwrap();
        assert!(identity.renewal().is_some());
        identity.renew(issue(&second)).unwrap();

        let new = second.issuing().fingerprint();
        let trusted = usable(dir.path()).believed();
        assert_eq!((trusted.authorities.len(), &trusted.certified_by), (2, &new), "also after a restart");
        assert!(identity.renewal().is_none());
        let stranger = of(&Authority::generate(now()).unwrap());
        assert!(identity.follow(announced(&stranger)).is_err());
        let finished = of(&prepared.switched().unwrap().finished().unwrap());
        identity.follow(announced(&finished)).unwrap();
        assert_eq!(usable(dir.path()).believed(), Trusted { authorities: vec![new.clone()], certified_by: new });
    }

    #[test]
    fn an_expired_certificate_is_told_from_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Identity::load(dir.path()).unwrap(), Found::Nothing));
        enrolled(dir.path(), now() - jiff::SignedDuration::from_hours(31 * 24));

        let found = Identity::load(dir.path()).unwrap();

        assert!(matches!(found, Found::Expired { .. }), "{found:?}");
        assert!(!is_enrolled(dir.path()));
    }
}
