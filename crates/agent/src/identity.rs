//! Who this agent is: what enrolment left in the state directory.
//!
//! `identity/key.pem` is generated first and never leaves the host; `identity/agent.json` says which agent for which
//! host; `identity/certificate.pem` and `identity/authority.pem` come from the server. All four make an identity.
//! While one authority takes over from another, both are in the file. `identity/session` holds the epoch of the last
//! session, by which the server distinguishes the directory from an older copy. `identity/control.json` belongs to
//! `trust`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use proctor_model::{AgentId, HostKey};
use proctor_pki::{AgentKey, FileDigest};
use proctor_runtime::private;
use serde::{Deserialize, Serialize};

#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) agent: AgentId,
    pub(crate) host: HostKey,
    pub(crate) key: AgentKey,
    pub(crate) certificate_pem: String,
    authorities_pem: RwLock<Arc<str>>,
    dir: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct AgentIdentity {
    agent: AgentId,
    host: HostKey,
}

/// The agent that a state directory belongs to.
pub fn enrolled_id(state_dir: &Path) -> Option<AgentId> {
    Identity::load(state_dir).ok().flatten().map(|identity| identity.agent)
}

/// Whether the authority that this state directory trusts signed the file; the error says why not.
pub fn verify_file(state_dir: &Path, file: &Path, signature: &Path) -> Result<(), String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
    let authority = state_dir.join("identity/authority.pem");
    let authority = String::from_utf8(read(&authority)?).map_err(|_| format!("{} is damaged", authority.display()))?;
    let unreadable = |error| format!("cannot read {}: {error}", file.display());
    let digest = std::fs::File::open(file).and_then(FileDigest::of).map_err(unreadable)?;
    proctor_pki::verify_file(&authority, &digest, &read(signature)?)
        .map_err(|error| format!("{}: {}", file.display(), proctor_runtime::chain(&error)))
}

pub fn is_enrolled(state_dir: &Path) -> bool {
    enrolled_id(state_dir).is_some()
}

impl Identity {
    /// None where enrolment has not been completed.
    pub(crate) fn load(state_dir: &Path) -> std::io::Result<Option<Self>> {
        let dir = state_dir.join("identity");
        let read = |name: &str| match std::fs::read_to_string(dir.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let (Some(key), Some(card), Some(certificate_pem), Some(authority_pem)) =
            (read("key.pem")?, read("agent.json")?, read("certificate.pem")?, read("authority.pem")?)
        else {
            return Ok(None);
        };
        let card: AgentIdentity = serde_json::from_str(&card).map_err(std::io::Error::other)?;
        let key = AgentKey::from_pem(&key).map_err(std::io::Error::other)?;
        let authorities_pem = RwLock::new(authority_pem.into());
        Ok(Some(Self { agent: card.agent, host: card.host, key, certificate_pem, authorities_pem, dir }))
    }

    /// Who enrolled here before, whatever happened to the certificate.
    pub(crate) fn earlier_id(state_dir: &Path) -> Option<AgentId> {
        let card = std::fs::read_to_string(state_dir.join("identity/agent.json")).ok()?;
        serde_json::from_str(&card).ok().map(|card: AgentIdentity| card.agent)
    }

    pub(crate) fn save(
        state_dir: &Path,
        agent: &AgentId,
        host: HostKey,
        certificate_pem: &str,
        authority_pem: &str,
    ) -> std::io::Result<()> {
        let dir = state_dir.join("identity");
        let card = serde_json::to_string_pretty(&AgentIdentity { agent: agent.clone(), host })
            .map_err(std::io::Error::other)?;
        private::write(&dir.join("agent.json"), &card)?;
        private::write(&dir.join("authority.pem"), authority_pem)?;
        private::write(&dir.join("certificate.pem"), certificate_pem)
    }

    /// The key for a new identity: made once, so that a repeated enrolment is recognised.
    pub(crate) fn key(state_dir: &Path) -> Result<AgentKey, std::io::Error> {
        let dir = state_dir.join("identity");
        private::dir(&dir).map_err(std::io::Error::other)?;
        let path = dir.join("key.pem");
        match std::fs::read_to_string(&path) {
            Ok(pem) => AgentKey::from_pem(&pem).map_err(std::io::Error::other),
            Err(_) => {
                let key = AgentKey::generate().map_err(std::io::Error::other)?;
                private::write(&path, &key.to_pem())?;
                Ok(key)
            }
        }
    }

    pub(crate) fn renew(&self, certificate_pem: &str) -> std::io::Result<()> {
        private::write(&self.dir.join("certificate.pem"), certificate_pem)
    }

    /// The authorities that this agent believes now.
    pub(crate) fn authorities_pem(&self) -> Arc<str> {
        self.authorities_pem.read().clone()
    }

    /// From now on these, and no others.
    pub(crate) fn believe(&self, authorities_pem: &str) -> std::io::Result<()> {
        let mut present = self.authorities_pem.write();
        private::write(&self.dir.join("authority.pem"), authorities_pem)?;
        *present = authorities_pem.into();
        Ok(())
    }

    /// The fingerprint of the authority that issued the present certificate, if this agent believes it.
    pub(crate) fn certified_by(&self) -> Option<String> {
        proctor_pki::issuer_fingerprint(&self.authorities_pem(), &self.current_certificate()).ok().flatten()
    }

    /// The epoch of the last session; 0 before the first.
    pub(crate) fn seen_epoch(&self) -> u64 {
        let text = std::fs::read_to_string(self.dir.join("session")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    pub(crate) fn record_epoch(&self, epoch: u64) -> std::io::Result<()> {
        private::write(&self.dir.join("session"), &epoch.to_string())
    }

    /// The newest certificate: renewals replace the file while the agent runs.
    pub(crate) fn current_certificate(&self) -> String {
        std::fs::read_to_string(self.dir.join("certificate.pem")).unwrap_or_else(|_| self.certificate_pem.clone())
    }
}
