//! Who holds which pid file.
//!
//! Promised: of two processes with one pid file at most one is managed or operated by people, because
//! both would take the same life for theirs. The second one's start, restart or manage is refused,
//! with the name of the first, before anything runs. A registration alone holds nothing: clients
//! rename processes without unregistering the old name. Absent: links between paths; two names of one
//! file count as two files.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use proctor_model::{Identity, OperationKind, ProcessKey, Spec};
use proctor_supervise::{Process, Request};

use super::Driver;

/// The processes by every path that their pid files may have.
#[derive(Debug, Default)]
pub(super) struct Holders {
    by_path: HashMap<String, BTreeSet<ProcessKey>>,
    paths_of: HashMap<ProcessKey, Paths>,
}

/// Both readings of a pid_path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Paths {
    /// Itself, unless it can only be a directory.
    file: Option<String>,
    /// The file inside, if it is a directory.
    inside: String,
}

impl Paths {
    fn of(identity: &Identity) -> Self {
        let given = identity.pid_path.as_str();
        let parts: Vec<&str> = given.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let plain = format!("/{}", parts.join("/"));
        let inside = format!("{}/{}.pid", plain.trim_end_matches('/'), identity.proc_name);
        Self { file: (!given.ends_with('/')).then_some(plain), inside }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.file.iter().chain([&self.inside])
    }
}

/// Somebody else who may have the same pid file.
#[derive(Debug)]
pub(super) struct Rival {
    pub(super) reason: String,
    /// Only if this is no directory.
    pub(super) unless_directory: Option<PathBuf>,
}

impl Holders {
    pub(super) fn follow(&mut self, process: &Process) {
        let paths = Paths::of(&process.spec().identity);
        if self.paths_of.get(process.key()) == Some(&paths) {
            return;
        }
        self.forget(process.key());
        for path in paths.all() {
            self.by_path.entry(path.clone()).or_default().insert(process.key().clone());
        }
        self.paths_of.insert(process.key().clone(), paths);
    }

    pub(super) fn forget(&mut self, key: &ProcessKey) {
        let Some(paths) = self.paths_of.remove(key) else { return };
        for path in paths.all() {
            if let Some(holders) = self.by_path.get_mut(path) {
                holders.remove(key);
                if holders.is_empty() {
                    self.by_path.remove(path);
                }
            }
        }
    }
}

impl Driver {
    /// Who would share a pid file with a process that an operation is about to run.
    pub(super) fn rival(&self, key: &ProcessKey, request: &Request, spec: Option<&Spec>) -> Option<Rival> {
        let runs = matches!(request.kind, OperationKind::Start | OperationKind::Restart | OperationKind::Manage);
        let spec = spec.filter(|_| runs)?;
        if spec.instances() == 1 {
            return self.rival_of(key, &spec.identity);
        }
        (1..=spec.instances()).find_map(|number| self.rival_of(key, &spec.instance(number).ok()?.identity))
    }

    fn rival_of(&self, key: &ProcessKey, identity: &Identity) -> Option<Rival> {
        let ours = Paths::of(identity);
        let holders = ours.all().filter_map(|path| self.holders.by_path.get(path)).flatten();
        let rivals = holders.filter_map(|holder| self.processes.get(holder)).filter(|process| {
            let is_same = process.key() == key || self.is_instance_of(process, key);
            !is_same && (process.managed() || process.operations().next().is_some())
        });
        let mut unsure = None;
        for process in rivals {
            let theirs = &self.holders.paths_of[process.key()];
            let rival = |path: &str, unless_directory| Rival {
                reason: format!(
                    "process {} of this host is managed, or being operated, with the same pid_path {path}: \
                     stop or release it first",
                    process.key()
                ),
                unless_directory,
            };
            if ours.inside == theirs.inside || Some(&ours.inside) == theirs.file.as_ref() {
                return Some(rival(&ours.inside, None));
            }
            match &ours.file {
                Some(file) if *file == theirs.inside => return Some(rival(file, None)),
                // Two programs, one directory: each has its own file in it, if it is one.
                Some(file) => unsure = Some(rival(file, Some(PathBuf::from(file)))),
                None => {}
            }
        }
        unsure
    }

    fn is_instance_of(&self, process: &Process, key: &ProcessKey) -> bool {
        process.key().namespace == key.namespace && process.instance().is_some_and(|instance| instance.of == key.name)
    }
}
