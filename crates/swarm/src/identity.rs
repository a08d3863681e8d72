//! The identities of simulated agents: a key and a certificate each, kept in one private file.
//!
//! A server accepts only the key that enrolled a host, so a second run on the same addresses needs the keys of the
//! first: with a state file they are kept and reused.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use proctor_model::{AgentId, HostKey};
use proctor_pki::AgentKey;
use serde::{Deserialize, Serialize};

#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) agent: AgentId,
    pub(crate) key: AgentKey,
    pub(crate) certificate_pem: String,
    pub(crate) authority_pem: String,
}

/// One line of the state file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    host: HostKey,
    agent: AgentId,
    key_pem: String,
    certificate_pem: String,
    authority_pem: String,
}

/// What was enrolled, and where to note more.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    known: Mutex<HashMap<HostKey, Identity>>,
    file: Option<Mutex<File>>,
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot use the state file {path}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("line {line} of the state file {path} is damaged: remove it")]
    Line { path: PathBuf, line: usize },
}

impl Identities {
    /// Without a path nothing is kept.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, StateError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let io = |source| StateError::Io { path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path).map_err(io)?;
        let mut known = HashMap::new();
        for (number, line) in BufReader::new(&file).lines().enumerate() {
            let damaged = || StateError::Line { path: path.to_owned(), line: number + 1 };
            let line: Line = serde_json::from_str(&line.map_err(io)?).map_err(|_| damaged())?;
            let key = AgentKey::from_pem(&line.key_pem).map_err(|_| damaged())?;
            let Line { host, agent, certificate_pem, authority_pem, .. } = line;
            known.insert(host, Identity { agent, key, certificate_pem, authority_pem });
        }
        Ok(Self { known: Mutex::new(known), file: Some(Mutex::new(file)) })
    }

    /// Whether a later run uses these identities again.
    pub(crate) fn are_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Taken out: each agent owns its identity.
    pub(crate) fn take(&self, host: &HostKey) -> Option<Identity> {
        self.known.lock().remove(host)
    }

    pub(crate) fn keep(&self, host: HostKey, identity: &Identity) -> std::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let line = Line {
            host,
            agent: identity.agent.clone(),
            key_pem: identity.key.to_pem(),
            certificate_pem: identity.certificate_pem.clone(),
            authority_pem: identity.authority_pem.clone(),
        };
        let text = serde_json::to_string(&line).map_err(std::io::Error::other)? + "\n";
        file.lock().write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_found_again_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("swarm.jsonl");
        let host = HostKey::new(0, 0, "10.64.0.1".parse().unwrap());
        let identity = Identity {
            agent: "a-1".parse().unwrap(),
            key: AgentKey::generate().unwrap(),
            certificate_pem: "certificate".to_owned(),
            authority_pem: "authority".to_owned(),
        };

        Identities::open(Some(&path)).unwrap().keep(host, &identity).unwrap();
        let again = Identities::open(Some(&path)).unwrap().take(&host).unwrap();

        assert_eq!((again.agent, again.key.fingerprint()), (identity.agent, identity.key.fingerprint()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "{}\n").unwrap();
        assert!(matches!(Identities::open(Some(&path)), Err(StateError::Line { line: 1, .. })));
    }
}
