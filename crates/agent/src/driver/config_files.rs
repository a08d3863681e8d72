//! The configmaps of running, managed processes: checked when a life begins, when the spec changes, and periodically.
//!
//! Promised: a file that does not match produces one event, and another when it matches again, even across lives; at
//! most [`FILES_MAX`] files per process and [`EVENTS_MAX`] events per check; files are read as the process's user, on
//! a few threads per mount, so that a hanging one does not delay other processes; its files count as unreadable after
//! [`CHECK_LIMIT`], and those that a slow mount leaves no time for wait for the next check.
//! Absent: consequences, since nothing is restarted; and memory across restarts of the agent, so a file that still
//! does not match is then reported again.

mod files;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_host::Host;
use proctor_model::{ConfigFile, EventKind, Incarnation, ProcessKey, Spec, UserName, messages};
use proctor_runtime::clock;
use proctor_supervise::{Process, Time};

use super::{Driver, Input};
use crate::spool::Draft;
use files::{Bounds, Change, FILE_BYTES_MAX, State, Watched};

/// A stat of a file is about a microsecond.
const PERIOD: Duration = Duration::from_secs(30);
/// Of one process; those after it in the configmap are not checked.
const FILES_MAX: usize = 1000;
/// For the files of one process on one mount. A slow disk hashes as much as one check may read within it.
const CHECK_LIMIT: Duration = Duration::from_secs(60);
/// For the name service.
const USER_LIMIT: Duration = Duration::from_secs(5);
const DOES_NOT_ANSWER: &str = "the file system does not answer";
/// Of one check; the rest is told in one more.
const EVENTS_MAX: usize = 20;

#[derive(Debug, Default)]
pub(super) struct ConfigMonitor {
    of: HashMap<ProcessKey, Followed>,
    due: BTreeSet<(Time, ProcessKey)>,
    tickets: u64,
}

#[derive(Debug)]
struct Followed {
    spec: Arc<Spec>,
    /// None: it does not run, or nobody manages it; what was seen is kept for the next life.
    life: Option<Incarnation>,
    files: Vec<Watched>,
    due: Option<Time>,
    /// The check under way.
    checking: Option<u64>,
    /// Something has changed since that check began.
    again: bool,
}

/// A check to be done, on a thread where it may hang.
#[derive(Debug)]
struct Job {
    key: ProcessKey,
    user: UserName,
    ticket: u64,
    files: Vec<Watched>,
}

/// A check that was done.
#[derive(Debug)]
pub(crate) struct Checked {
    key: ProcessKey,
    ticket: u64,
    /// None: it failed, and nothing is known of what it saw.
    seen: Option<(Vec<Watched>, Vec<Change>)>,
}

impl ConfigMonitor {
    /// Follows a change of a process.
    pub(super) fn follow(&mut self, process: &Process, now: Time) {
        let life = process.life().filter(|_| process.managed());
        self.set(process.key(), process.spec(), life, now);
    }

    fn set(&mut self, key: &ProcessKey, spec: &Arc<Spec>, life: Option<&Incarnation>, now: Time) {
        if spec.configmap.is_empty() {
            return self.forget(key);
        }
        if !self.of.contains_key(key) && life.is_none() {
            return;
        }
        let followed = self.of.entry(key.clone()).or_insert_with(|| Followed::new(spec));
        let is_same_spec = Arc::ptr_eq(&followed.spec, spec);
        if is_same_spec && followed.life.as_ref() == life {
            return;
        }
        followed.spec = spec.clone();
        followed.life = life.cloned();
        followed.again = followed.checking.is_some();
        if followed.again {
            return;
        }
        followed.files = expected(std::mem::take(&mut followed.files), &spec.configmap);
        self.set_due(key, life.map(|_| now));
    }

    pub(super) fn forget(&mut self, key: &ProcessKey) {
        self.set_due(key, None);
        self.of.remove(key);
    }

    fn set_due(&mut self, key: &ProcessKey, due: Option<Time>) {
        let Some(followed) = self.of.get_mut(key) else { return };
        if let Some(old) = followed.due.take() {
            self.due.remove(&(old, key.clone()));
        }
        followed.due = due;
        if let Some(due) = due {
            self.due.insert((due, key.clone()));
        }
    }

    /// When there is something to check.
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(time, _)| *time)
    }

    fn take_due(&mut self, now: Time) -> Vec<Job> {
        let mut jobs = Vec::new();
        while let Some((_, key)) = self.due.first().filter(|(time, _)| *time <= now).cloned() {
            self.set_due(&key, None);
            let Some(followed) = self.of.get_mut(&key) else { continue };
            self.tickets += 1;
            followed.checking = Some(self.tickets);
            let files = followed.files.clone();
            let user = followed.spec.identity.user.clone();
            jobs.push(Job { key, user, ticket: self.tickets, files });
        }
        jobs
    }

    /// Takes what a check has seen; the next one is due also where it failed. None: it has been forgotten meanwhile.
    fn checked(&mut self, checked: Checked, now: Time) -> Option<Vec<Change>> {
        let Checked { key, ticket, seen } = checked;
        let followed = self.of.get_mut(&key).filter(|followed| followed.checking == Some(ticket))?;
        followed.checking = None;
        let (files, changes) = seen.unwrap_or_else(|| (std::mem::take(&mut followed.files), Vec::new()));
        followed.files = expected(files, &followed.spec.configmap);
        let pause = if std::mem::take(&mut followed.again) { Duration::ZERO } else { PERIOD };
        let due = followed.life.is_some().then(|| now + pause);
        self.set_due(&key, due);
        Some(changes)
    }
}

impl Followed {
    fn new(spec: &Arc<Spec>) -> Self {
        let files = expected(Vec::new(), &spec.configmap);
        Self { spec: spec.clone(), life: None, files, due: None, checking: None, again: false }
    }
}

/// The files of a configmap, with what is known of them.
fn expected(seen: Vec<Watched>, configmap: &[ConfigFile]) -> Vec<Watched> {
    let mut seen: HashMap<String, Watched> = seen.into_iter().map(|file| (file.path().to_owned(), file)).collect();
    let of_file = |file: &ConfigFile| match seen.remove(file.path.as_str()) {
        Some(watched) => watched.expecting(file),
        None => Watched::new(file.clone()),
    };
    configmap.iter().take(FILES_MAX).map(of_file).collect()
}

impl Driver {
    pub(super) fn check_configs(&mut self) {
        let now = self.now();
        if self.configs.next().is_none_or(|at| at > now) {
            return;
        }
        let policy = self.policy();
        for mut job in self.configs.take_due(now) {
            let bounds = Bounds::new(policy.clone(), &job.key.namespace);
            let host = self.host.clone();
            let failed = Checked { key: job.key.clone(), ticket: job.ticket, seen: None };
            self.workers.spawn_owed("configs", Input::ConfigsChecked(Box::new(failed)), async move {
                let files = std::mem::take(&mut job.files);
                let seen = Some(check_files(&host, &job, bounds, files).await);
                Input::ConfigsChecked(Box::new(Checked { key: job.key, ticket: job.ticket, seen }))
            });
        }
    }

    pub(super) fn configs_checked(&mut self, checked: Checked) {
        let (key, now) = (checked.key.clone(), self.now());
        let Some(changes) = self.configs.checked(checked, now) else { return };
        let Some(spec) = self.processes.get(&key).map(|process| process.spec().clone()) else { return };
        for change in changes.iter().take(EVENTS_MAX) {
            let draft = draft_of(&key, change);
            tracing::warn!(process = %key, path = %change.file.path, state = ?change.state, "configuration file");
            self.publish_event(draft.of(&key, &spec));
        }
        let more = changes.len().saturating_sub(EVENTS_MAX);
        if more > 0 {
            let content = messages::more_config_files_changed(more, &key);
            self.publish_event(Draft::new(EventKind::ConfigChanged, content).of(&key, &spec).detail("more", more));
        }
    }
}

/// Each mount answers for itself.
async fn check_files(host: &Host, job: &Job, bounds: Bounds, mut files: Vec<Watched>) -> (Vec<Watched>, Vec<Change>) {
    let bounds = match bounds_of_user(host, &job.user, bounds).await {
        Ok(bounds) => bounds,
        Err(reason) => {
            let changes = files::give_up(&mut files, &reason);
            return (files, changes);
        }
    };
    let name = format!("mounts of the configuration files of {}", job.key);
    let sorted = host.by_mount(&name, CHECK_LIMIT, files.clone(), |file| Path::new(file.path())).await;
    let Some(groups) = sorted else {
        let changes = files::give_up(&mut files, DOES_NOT_ANSWER);
        return (files, changes);
    };
    let checks = groups.into_iter().map(|group| check_group(host, job, bounds.clone(), group));
    let (mut files, mut changes) = (Vec::new(), Vec::new());
    for (group, changed) in futures::future::join_all(checks).await {
        files.extend(group);
        changes.extend(changed);
    }
    (files, changes)
}

async fn bounds_of_user(host: &Host, user: &UserName, bounds: Bounds) -> Result<Bounds, String> {
    let name = user.as_str();
    let work = {
        let (host, name) = (host.clone(), name.to_owned());
        move || host.user(&name)
    };
    let found = host.blocking(&format!("user {name}"), USER_LIMIT, work).await;
    let rights = found.unwrap_or_else(|| Err(format!("user '{name}' cannot be looked up in time")))?;
    bounds.of_user(rights, user.clone())
}

/// Of files on one mount.
async fn check_group(host: &Host, job: &Job, bounds: Bounds, mut files: Vec<Watched>) -> (Vec<Watched>, Vec<Change>) {
    let Some(path) = files.first().map(|file| PathBuf::from(file.path())) else { return (files, Vec::new()) };
    let (mut checked, number) = (files.clone(), job.ticket);
    let work = move || {
        let begun = Instant::now();
        let is_late = || begun.elapsed() > CHECK_LIMIT / 2;
        let changes = files::check(&mut checked, number, clock::unix_millis() / 1000, &bounds, is_late);
        (checked, changes)
    };
    let name = format!("configuration files of {} beside {}", job.key, path.display());
    match host.long_blocking(&path, &name, CHECK_LIMIT, work).await {
        Some(checked) => checked,
        None => {
            let changes = files::give_up(&mut files, DOES_NOT_ANSWER);
            (files, changes)
        }
    }
}

fn draft_of(key: &ProcessKey, change: &Change) -> Draft {
    let Change { file: ConfigFile { path, md5 }, state } = change;
    let found = match state {
        State::Right => messages::config_right_again(),
        State::Differs => messages::config_differs(),
        State::Missing => messages::config_missing(),
        State::TooLarge => messages::config_too_large(FILE_BYTES_MAX),
        State::Unreadable(reason) => messages::config_unreadable(reason),
        State::Outside => messages::config_outside(),
    };
    Draft::new(EventKind::ConfigChanged, messages::config_file_changed(path, key, found))
        .detail("path", path)
        .detail("state", state.as_str())
        .detail("expected_md5", md5)
}
