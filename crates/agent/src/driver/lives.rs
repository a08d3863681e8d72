//! The current lives of all processes: who is notified of their exits, and which versions they reported.

use std::collections::HashMap;
use std::sync::Arc;

use proctor_host::{ExitWatcher, Host};
use proctor_model::{Incarnation, ProcessKey};

#[derive(Debug)]
pub(super) struct Lives {
    pub(super) exits: Arc<ExitWatcher<ProcessKey>>,
    versions: Versions,
}

/// What the version command of each process returned, and for which life.
#[derive(Debug, Default)]
struct Versions(HashMap<ProcessKey, (Incarnation, String)>);

impl Lives {
    pub(super) fn new(host: &Host) -> Result<Self, proctor_host::Error> {
        Ok(Self { exits: Arc::new(host.ends()?), versions: Versions::default() })
    }

    pub(super) fn set_version(&mut self, key: ProcessKey, life: Incarnation, version: String) {
        self.versions.0.insert(key, (life, version));
    }

    /// The version of the life that was asked last, which may be over.
    pub(super) fn last_version(&self, key: &ProcessKey) -> Option<&(Incarnation, String)> {
        self.versions.0.get(key)
    }

    /// The version of that very life.
    pub(super) fn version_of(&self, key: &ProcessKey, life: &Incarnation) -> Option<&str> {
        self.versions.of(key, life)
    }

    pub(super) fn forget_version(&mut self, key: &ProcessKey) {
        self.versions.0.remove(key);
    }

    /// Nobody is interested in that process any more.
    pub(super) fn forget(&mut self, key: &ProcessKey) {
        self.forget_version(key);
        self.exits.forget(key);
    }
}

impl Versions {
    fn of(&self, key: &ProcessKey, life: &Incarnation) -> Option<&str> {
        self.0.get(key).filter(|(of, _)| of == life).map(|(_, version)| version.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::BootId;

    use super::*;

    #[test]
    fn the_version_of_an_earlier_life_is_not_that_of_the_present_one() {
        let key: ProcessKey = "ns/p".parse().unwrap();
        let life = |pid| Incarnation { boot: BootId::from("b"), pid, start_ticks: 1, pidfd_inode: None };
        let mut versions = Versions::default();

        versions.0.insert(key.clone(), (life(10), "1.2".to_owned()));

        assert_eq!((versions.of(&key, &life(10)), versions.of(&key, &life(11))), (Some("1.2"), None));
    }
}
