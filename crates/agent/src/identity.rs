//! Who this agent is: what enrolment left in the state directory.
//!
//! `identity/key.pem` is made first and never leaves the host; `identity/agent.json` says which
//! agent for which host; `identity/certificate.pem` and `identity/authority.pem` come from the
//! server. All four make an identity. `identity/session` holds the epoch of the last session: by it the
//! server tells the directory from an older copy of it.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use proctor_model::{AgentId, HostKey};
use proctor_pki::AgentKey;
use serde::{Deserialize, Serialize};

#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) agent: AgentId,
    pub(crate) host: HostKey,
    pub(crate) key: AgentKey,
    pub(crate) certificate_pem: String,
    pub(crate) authority_pem: String,
    dir: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Card {
    agent: AgentId,
    host: HostKey,
}

/// The agent that a state directory belongs to.
pub fn enrolled_id(state_dir: &Path) -> Option<AgentId> {
    Identity::load(state_dir).ok().flatten().map(|identity| identity.agent)
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
        let card: Card = serde_json::from_str(&card).map_err(std::io::Error::other)?;
        let key = AgentKey::from_pem(&key).map_err(std::io::Error::other)?;
        Ok(Some(Self { agent: card.agent, host: card.host, key, certificate_pem, authority_pem, dir }))
    }

    pub(crate) fn save(
        state_dir: &Path,
        agent: &AgentId,
        host: HostKey,
        certificate_pem: &str,
        authority_pem: &str,
    ) -> std::io::Result<()> {
        let dir = state_dir.join("identity");
        let card = serde_json::to_string_pretty(&Card { agent: agent.clone(), host }).map_err(std::io::Error::other)?;
        write_private(&dir.join("agent.json"), &card)?;
        write_private(&dir.join("authority.pem"), authority_pem)?;
        write_private(&dir.join("certificate.pem"), certificate_pem)
    }

    /// The key for a new identity: made once, so that a repeated enrolment is recognised.
    pub(crate) fn key(state_dir: &Path) -> Result<AgentKey, std::io::Error> {
        let dir = state_dir.join("identity");
        make_private_dir(&dir)?;
        let path = dir.join("key.pem");
        match std::fs::read_to_string(&path) {
            Ok(pem) => AgentKey::from_pem(&pem).map_err(std::io::Error::other),
            Err(_) => {
                let key = AgentKey::generate().map_err(std::io::Error::other)?;
                write_private(&path, &key.to_pem())?;
                Ok(key)
            }
        }
    }

    pub(crate) fn renew(&self, certificate_pem: &str) -> std::io::Result<()> {
        write_private(&self.dir.join("certificate.pem"), certificate_pem)
    }

    /// The epoch of the last session; 0 before the first.
    pub(crate) fn seen_epoch(&self) -> u64 {
        let text = std::fs::read_to_string(self.dir.join("session")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    pub(crate) fn record_epoch(&self, epoch: u64) -> std::io::Result<()> {
        write_private(&self.dir.join("session"), &epoch.to_string())
    }

    /// The newest certificate: renewals replace the file while the agent runs.
    pub(crate) fn current_certificate(&self) -> String {
        std::fs::read_to_string(self.dir.join("certificate.pem")).unwrap_or_else(|_| self.certificate_pem.clone())
    }
}

pub(crate) fn make_private_dir(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whole or not at all: written beside, synced, renamed.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
