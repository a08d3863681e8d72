//! Who holds which pid file.
//!
//! Promised: of two processes with one pid file at most one is managed or operated, because both would claim the same
//! life. A start, restart or manage of the second is refused, with the name of the first, before anything runs. A
//! registration alone claims nothing: clients rename processes without unregistering the old name.
//! Absent: symlinks between paths; two names of one file count as two files.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use proctor_model::{Identity, Message, OperationKind, Probe, ProcessKey, Spec, messages};
use proctor_supervise::{Event, Process, Request};

use super::Driver;

/// The processes by every path that their pid files may have.
#[derive(Debug, Default)]
pub(super) struct PidFileClaims {
    /// By the hash of a path and the number of its holder. Paths are long and there are many: matches are compared.
    by_path: BTreeMap<(u64, u64), ProcessKey>,
    followed: HashMap<ProcessKey, Followed>,
    numbers: u64,
}

/// One process whose paths are known.
#[derive(Debug)]
struct Followed {
    number: u64,
    spec: Arc<Spec>,
    /// Of a registration that waits.
    next: Option<Arc<Spec>>,
}

impl Followed {
    fn is_current(&self, process: &Process) -> bool {
        Arc::ptr_eq(&self.spec, process.spec())
            && self.next.as_ref().map(Arc::as_ptr) == process.spec_of_next().map(Arc::as_ptr)
    }

    fn hashes(&self) -> impl Iterator<Item = u64> {
        std::iter::once(&self.spec).chain(&self.next).flat_map(|spec| Paths::of(&spec.identity).hashes())
    }
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

    fn hashes(&self) -> impl Iterator<Item = u64> + use<> {
        let hash = |path: &String| {
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            hasher.finish()
        };
        self.file.as_ref().map(hash).into_iter().chain([hash(&self.inside)])
    }
}

/// Another process that may have the same pid file.
#[derive(Debug)]
pub(super) struct PidFileConflict {
    pub(super) reason: Message,
    /// Only if this is no directory.
    pub(super) unless_directory: Option<PathBuf>,
}

impl PidFileClaims {
    pub(super) fn follow(&mut self, process: &Process) {
        let key = process.key();
        if self.followed.get(key).is_some_and(|followed| followed.is_current(process)) {
            return;
        }
        self.forget(key);
        self.numbers += 1;
        let (number, spec, next) = (self.numbers, process.spec().clone(), process.spec_of_next().cloned());
        let followed = Followed { number, spec, next };
        self.by_path.extend(followed.hashes().map(|hash| ((hash, number), key.clone())));
        self.followed.insert(key.clone(), followed);
    }

    pub(super) fn forget(&mut self, key: &ProcessKey) {
        let Some(followed) = self.followed.remove(key) else { return };
        for hash in followed.hashes() {
            self.by_path.remove(&(hash, followed.number));
        }
    }

    /// Who may have one of these paths.
    fn of(&self, paths: &Paths) -> impl Iterator<Item = &ProcessKey> {
        let found = paths.hashes().map(|hash| self.by_path.range((hash, 0)..=(hash, u64::MAX)));
        found.flatten().map(|(_, key)| key)
    }
}

impl Driver {
    /// Who would share a pid file with a process that an operation is about to run.
    pub(super) fn rival(&self, key: &ProcessKey, request: &Request, spec: Option<&Spec>) -> Option<PidFileConflict> {
        let runs = matches!(request.kind, OperationKind::Start | OperationKind::Restart | OperationKind::Manage);
        match spec {
            _ if !runs => None,
            Some(spec) if spec.instances() == 1 => self.rival_of(key, &spec.identity),
            Some(spec) => {
                (1..=spec.instances()).find_map(|number| self.rival_of(key, &spec.instance(number).ok()?.identity))
            }
            None => {
                let mut instances = self.processes.instances_of(key);
                instances.find_map(|process| self.rival_of(key, &process.newest_registration().1.identity))
            }
        }
    }

    fn rival_of(&self, key: &ProcessKey, identity: &Identity) -> Option<PidFileConflict> {
        let ours = Paths::of(identity);
        let holders = self.admission.pid_files.of(&ours);
        let is_other = |process: &&Process| process.key() != key && !self.is_instance_of(process, key);
        let rivals = holders.filter_map(|holder| self.processes.get(holder)).filter(is_other);
        let specs = rivals.flat_map(|process| process.specs_in_use().map(move |spec| (process, spec)));
        let mut unsure = None;
        for (process, spec) in specs {
            let theirs = Paths::of(&spec.identity);
            let rival = |path: &str, unless_directory| PidFileConflict {
                reason: messages::pid_path_in_use(process.key(), path),
                unless_directory,
            };
            if ours.inside == theirs.inside || Some(&ours.inside) == theirs.file.as_ref() {
                return Some(rival(&ours.inside, None));
            }
            match &ours.file {
                Some(file) if *file == theirs.inside => return Some(rival(file, None)),
                // Two programs, one directory: each has its own file in it, if it is one.
                Some(file) if Some(file) == theirs.file.as_ref() => {
                    unsure = Some(rival(file, Some(PathBuf::from(file))));
                }
                Some(_) | None => {}
            }
        }
        unsure
    }

    fn is_instance_of(&self, process: &Process, key: &ProcessKey) -> bool {
        process.key().namespace == key.namespace && process.instance().is_some_and(|instance| instance.of == key.name)
    }
}

impl Driver {
    /// A pid file may name the life of another managed process: a stale one, after the kernel reused the pid. That
    /// life is not this process's, whatever its name, and gets none of its signals.
    pub(super) fn ignore_foreign_pid(&self, key: &ProcessKey, mut event: Event) -> Event {
        if let Event::Probed { look, .. } | Event::Observed(look) = &mut event
            && let Some(own) = self.look_without_others(key, look)
        {
            *look = own;
        }
        event
    }

    fn look_without_others(&self, key: &ProcessKey, look: &Probe) -> Option<Probe> {
        let own = self.processes.get(key)?;
        let life = match look {
            Probe::Running(life) => life,
            // Known from before it was unregistered: then the age of the file does not matter.
            Probe::Unclear { named: Some(life), .. } if own.elder().is_some_and(|elder| elder.had(life)) => {
                return Some(Probe::Running(life.clone()));
            }
            Probe::Unclear { named: Some(life), .. } => life,
            Probe::Unclear { named: None, .. } | Probe::Absent(_) | Probe::Dead { .. } => return None,
        };
        let pid_path = &own.spec().identity.pid_path;
        // Two registrations of one pid file are one process, and another rule's business.
        let is_anothers = |other: &Process| {
            other.life() == Some(life)
                && other.managed()
                && other.key() != key
                && other.spec().identity.pid_path != *pid_path
        };
        if own.life() == Some(life) || !self.processes.with_pid(life.pid).any(is_anothers) {
            return None;
        }
        tracing::warn!(process = %key, pid = life.pid, "pid file names another managed process");
        match own.life().filter(|own| self.host.is_alive(own)) {
            Some(own) => Some(Probe::Running(own.clone())),
            None => Some(Probe::Absent(messages::pid_of_another_process(pid_path))),
        }
    }
}
