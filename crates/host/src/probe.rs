//! "Is it running?": from the pid file to one life of a process, or the reason why not.
//!
//! Promised: a process counts only if it is alive, matches its spec by name and owner, and the pid file is trusted
//! and readable by the spec's user; a known life does not have to match by name again, because a replaced binary or a
//! new title changes the name. What cannot be determined is unclear, neither running nor absent. A process that seems
//! to have begun after its pid file was written counts if one of our commands started it, if it holds the file open,
//! or if the clock is known to have been set; it is absent if we started it for another process; otherwise it is
//! unclear: the file is stale and its pid was reused, or the clock was set unobserved.
//! Absent: translation of pids of other pid namespaces; such a pid names some other process here and fails the
//! comparison of names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{BootId, Identity, Incarnation, Message, Probe, messages};
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use crate::blocking::{Blocking, TimedOut};
use crate::cgroup::{Groups, Leaf};
use crate::foreign_memory::{ForeignMemory, Patience};
use crate::pidfd::{Process, Refused};
use crate::pidfile::{PidEntry, Refusal};
use crate::tree::ProcessRef;
use crate::usage::Units;
use crate::user::{Account, AccountCache};
use crate::wall_clock::{self, WallClock, millis};
use crate::{leftovers, pidfile, procfs, rights, user};

const LIMIT: Duration = Duration::from_secs(5);
/// Some file systems store times in steps of two seconds, and small clock adjustments happen.
const GRANULARITY: Duration = Duration::from_secs(3);
/// Of a process with more open files not all are compared with its pid file.
const DESCRIPTORS_MAX: usize = 4096;
const SCRIPT_ARGUMENTS_MAX: usize = 8;
const INTERPRETERS: [&str; 10] = ["sh", "bash", "dash", "ash", "busybox", "perl", "ruby", "node", "java", "php"];
/// Interpreters that have a version in their name.
const INTERPRETER_FAMILIES: [&str; 5] = ["python", "lua", "perl5", "ruby", "php"];

/// What shows whose a process is when the age of its pid file does not.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) groups: Option<Arc<Groups>>,
    /// The scope of this agent's markers.
    pub(crate) scope: String,
    /// Of the process that is looked for.
    pub(crate) leaf: Leaf,
    pub(crate) wall_clock: Arc<WallClock>,
    pub(crate) memory: ForeignMemory,
}

pub(crate) async fn look(
    blocking: &Blocking,
    accounts: &AccountCache,
    boot: &BootId,
    origin: Origin,
    identity: &Identity,
    known: Option<&Incarnation>,
) -> Probe {
    let (reason, named) = match find_on_thread(blocking, accounts, boot, origin, identity, known).await {
        Ok(life) => return Probe::Running(life),
        Err(Refusal::Absent(reason)) => return Probe::Absent(reason),
        Err(Refusal::Dead { pid, reason }) => return Probe::Dead { pid, reason },
        Err(Refusal::Unclear(reason)) => (reason, None),
        Err(Refusal::Stale { life, reason }) => (reason, Some(life)),
    };
    // An unreadable file says nothing about a known life that is still running, and "absent" would start a second
    // copy.
    match known {
        Some(life) if is_alive(life, boot) => Probe::Running(life.clone()),
        Some(_) | None => Probe::Unclear { reason, named },
    }
}

/// The name service and the file system may hang independently.
async fn find_on_thread(
    blocking: &Blocking,
    accounts: &AccountCache,
    boot: &BootId,
    origin: Origin,
    identity: &Identity,
    known: Option<&Incarnation>,
) -> Result<Incarnation, Refusal> {
    let user = identity.user.as_str();
    let account = match (user == user::ROOT).then(Account::root).map(Arc::new).or_else(|| accounts.known(user)) {
        Some(account) => account,
        None => {
            let (accounts, name) = (accounts.clone(), user.to_owned());
            let found = blocking.run(&format!("user {user}"), LIMIT, move || accounts.find(&name)).await;
            let found = found.map_err(|TimedOut| Refusal::Unclear(messages::user_without_answer(user)))?;
            // A user that does not exist runs nothing.
            found.map_err(|reason| match reason == user::absent(user) {
                true => Refusal::Absent(messages::user_does_not_exist(user)),
                false => Refusal::Unclear(messages::because(reason)),
            })?
        }
    };
    let work = {
        let (boot, identity, known) = (boot.clone(), identity.clone(), known.cloned());
        move || find(&account, &boot, &origin, &identity, known.as_ref())
    };
    let path = identity.pid_path.as_str();
    let found = blocking.run(path, LIMIT, work).await;
    found.unwrap_or_else(|TimedOut| Err(Refusal::Unclear(messages::pid_file_did_not_answer(path))))
}

/// The answer where nobody has to wait for it: the pid file lies in the kernel's memory, and its process
/// is dead or the one that is known. None: [`look`] has to find out.
pub(crate) fn probe_now(
    accounts: &AccountCache,
    boot: &BootId,
    identity: &Identity,
    known: Option<&Incarnation>,
) -> Option<Probe> {
    let path = identity.pid_path.as_str();
    let read = || pidfile::read_cached(Path::new(path));
    let pid = match identity.user.as_str() {
        user::ROOT => read(),
        user => rights::as_account(accounts.known(user)?.as_ref(), read).ok()?,
    }?;
    match (Process::open(pid), known) {
        (Err(Refused::Gone), None) => Some(Probe::Dead { pid, reason: not_running_reason(pid, path) }),
        (Ok(process), Some(known)) if process.is_alive() && process.life(boot) == *known => {
            Some(Probe::Running(known.clone()))
        }
        (Ok(_) | Err(_), _) => None,
    }
}

fn not_running_reason(pid: i32, path: impl std::fmt::Display) -> Message {
    messages::pid_does_not_run(pid, path)
}

/// If that cannot be determined, for lack of descriptors, a life that was alive still is.
pub(crate) fn is_alive(life: &Incarnation, boot: &BootId) -> bool {
    match Process::of(life, boot) {
        Ok(Some(process)) => process.is_alive(),
        Ok(None) => false,
        Err(_) => true,
    }
}

/// The pid file, and the pid in it as far as the user of the process may read it: whoever named the file runs
/// commands as that user, and learns no more than that.
fn read_pid(account: &Account, identity: &Identity) -> Result<(PathBuf, PidEntry), Refusal> {
    let us = rustix::process::geteuid().as_raw();
    let read = || {
        let (path, found) = pidfile::locate(identity.pid_path.as_str(), identity.proc_name.as_str());
        let entry = pidfile::read(&path, found, |owner| owner == 0 || owner == us || owner == account.uid)?;
        Ok((path, entry))
    };
    let user = &account.name;
    rights::as_account(account, read)
        .unwrap_or_else(|error| Err(Refusal::Unclear(messages::rights_cannot_be_taken(user, error))))
}

fn find(
    account: &Account,
    boot: &BootId,
    origin: &Origin,
    identity: &Identity,
    known: Option<&Incarnation>,
) -> Result<Incarnation, Refusal> {
    let (name, user) = (identity.proc_name.as_str(), identity.user.as_str());
    let (path, entry) = read_pid(account, identity)?;
    let (path, pid) = (path.display(), entry.pid);

    let process = Process::open(pid).map_err(|refused| match refused {
        Refused::Gone => Refusal::Dead { pid, reason: not_running_reason(pid, &path) },
        Refused::Thread => Refusal::Absent(messages::pid_is_a_thread(pid, &path)),
        Refused::Failed(error) => Refusal::Unclear(messages::pid_cannot_be_looked_at(pid, &path, error)),
    })?;
    if process.stat.is_kernel_thread() {
        return Err(messages::pid_is_a_kernel_thread(pid, path).into());
    }
    if !process.is_alive() {
        let reason = messages::pid_is_a_zombie(pid, path);
        return Err(Refusal::Dead { pid, reason });
    }
    let life = process.life(boot);
    if known == Some(&life) {
        return Ok(life);
    }

    let executable = procfs::executable(pid);
    // Mostly the executable has the name, and nothing else need be read.
    if executable.as_deref() != Some(name) {
        let unreadable = |reason| Refusal::Unclear(messages::pid_cannot_be_looked_at(pid, &path, reason));
        let arguments = origin.arguments(&life).map_err(unreadable)?;
        if !is_named(name, executable.as_deref(), &arguments) {
            let other = executable.unwrap_or_else(|| process.stat.name.clone());
            return Err(messages::pid_is_another_program(pid, path, other.escape_debug(), name).into());
        }
    }
    // A root daemon may have dropped its privileges: its owner does not count.
    let owner = (account.uid != 0).then(|| procfs::owner(pid));
    if let Some(owner) = owner.filter(|owner| *owner != Some(account.uid)) {
        let owner = owner.map_or_else(|| "nobody we know".to_owned(), user::name);
        return Err(messages::pid_runs_as_another_user(pid, path, owner, user).into());
    }
    origin.check_age(&life, &entry, &path)?;
    // What was read from /proc belongs to this life only if it has not exited meanwhile.
    let reason = messages::pid_has_just_ended(pid, path);
    if process.is_alive() { Ok(life) } else { Err(Refusal::Dead { pid, reason }) }
}

/// Who started a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartedBy {
    Us,
    /// A command of another process of this agent.
    Another,
    Unknown,
}

impl Origin {
    /// A pid is written after its process began: an older file names another process, unless it only appears to be
    /// older.
    fn check_age(&self, life: &Incarnation, entry: &PidEntry, path: &dyn std::fmt::Display) -> Result<(), Refusal> {
        let boot_millis = wall_clock::boot_millis();
        let Some(written) = entry.written_millis.filter(|written| began_after(life, *written, boot_millis)) else {
            return Ok(());
        };
        let started_by = self.started_by(life);
        if started_by == StartedBy::Us || holds_open(life.pid, entry.file) {
            return Ok(());
        }
        let pid = life.pid;
        match (started_by, self.was_clock_set(life, entry, written, boot_millis)) {
            (StartedBy::Unknown, true) => Ok(()),
            (StartedBy::Another, false) => Err(Refusal::Absent(messages::pid_started_for_another(pid, path))),
            (StartedBy::Us | StartedBy::Another, _) | (StartedBy::Unknown, false) => {
                Err(Refusal::Stale { life: life.clone(), reason: messages::pid_file_is_stale(pid, path) })
            }
        }
    }

    /// The error says why they cannot be read.
    fn arguments(&self, life: &Incarnation) -> Result<Vec<String>, &'static str> {
        let read = self.memory.read_one(ProcessRef::of(life), Patience::THREAD, |member| procfs::arguments(member.pid));
        read.ok_or("its memory cannot be read")
    }

    fn started_by(&self, life: &Incarnation) -> StartedBy {
        let own = leftovers::mark(&self.scope, &self.leaf);
        let mark = leftovers::mark_of(&self.memory, ProcessRef::of(life));
        let leaf = self.groups.as_ref().and_then(|groups| groups.leaf_of(life.pid));
        if leaf.as_ref() == Some(&self.leaf) || (leaf.is_none() && mark.as_deref() == Some(own.as_str())) {
            return StartedBy::Us;
        }
        let is_of_scope = |mark: String| mark.strip_prefix(&self.scope).is_some_and(|rest| rest.starts_with('.'));
        if leaf.is_some() || mark.is_some_and(is_of_scope) { StartedBy::Another } else { StartedBy::Unknown }
    }

    /// Whether the wall clock was set since the file was written, so that its age does not count.
    fn was_clock_set(&self, life: &Incarnation, entry: &PidEntry, written: i64, boot_millis: i64) -> bool {
        // What lies in memory is of this boot.
        let is_before_boot = boot_millis.saturating_sub(written) > millis(GRANULARITY);
        let earliest = self.wall_clock.earliest_boot_millis();
        // That clock has not come further than this: a later file is of an earlier boot, or of the clock as it is now.
        let reached = earliest.saturating_add(millis(wall_clock::since_boot()));
        let by_earlier_clock = !began_after(life, written, earliest) && written <= reached;
        by_earlier_clock || (entry.is_in_memory && is_before_boot)
    }
}

/// Whether a life began clearly later than a file was written, by a wall clock that says when the boot was.
fn began_after(life: &Incarnation, written_millis: i64, boot_millis: i64) -> bool {
    let began = boot_millis.saturating_add(millis(Units::read().since_boot(life.start_ticks)));
    began.saturating_sub(written_millis) > millis(GRANULARITY)
}

/// Whether a process has that file open, by device and inode. Some daemons keep their pid file locked.
fn holds_open(pid: i32, file: (u64, u64)) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.flatten().take(DESCRIPTORS_MAX).any(|entry| {
        // Of a file on another host only what is known here.
        statx(CWD, entry.path(), AtFlags::STATX_DONT_SYNC, StatxFlags::INO)
            .is_ok_and(|stat| (makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino) == file)
    })
}

/// Whether a process is what a spec calls `wanted`: by its executable, by how it was called, or by
/// the script that its interpreter runs. `comm` is not asked: any thread may set it to anything.
fn is_named(wanted: &str, executable: Option<&str>, arguments: &[String]) -> bool {
    if executable == Some(wanted) {
        return true;
    }
    let called = arguments.first().map_or("", String::as_str);
    // Daemons write titles there: `nginx: master process`, `redis-server *:6379`.
    let first_word = called.split_ascii_whitespace().next().unwrap_or_default().trim_end_matches(':');
    if [called, first_word].into_iter().any(|text| base_name(text).trim_start_matches('-') == wanted) {
        return true;
    }
    executable.is_some_and(is_interpreter)
        && arguments.iter().take(SCRIPT_ARGUMENTS_MAX).any(|argument| base_name(argument) == wanted)
}

fn is_interpreter(executable: &str) -> bool {
    INTERPRETERS.contains(&executable) || INTERPRETER_FAMILIES.iter().any(|family| executable.starts_with(family))
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(wanted: &str, executable: &str, arguments: &[&str]) -> bool {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        is_named(wanted, Some(executable), &arguments)
    }

    #[test]
    fn an_executable_its_call_name_or_its_script_names_a_process() {
        assert!(named("nginx", "nginx", &["nginx: master process /usr/sbin/nginx"]));
        assert!(named("redis-server", "redis-check-rdb", &["/usr/bin/redis-server *:6379"]));
        assert!(named("sleep", "busybox", &["sleep", "9"]));
        assert!(named("app.py", "python3.11", &["python3", "-u", "/srv/app.py"]));
        assert!(named("app.jar", "java", &["java", "-Xmx1g", "-jar", "/srv/app.jar"]));
    }

    #[test]
    fn an_argument_of_something_else_than_an_interpreter_names_nothing() {
        assert!(!named("nginx", "sleep", &["sleep", "nginx"]));
        assert!(!named("nginx", "vim", &["vim", "/etc/nginx"]));
        assert!(!named("nginx", "sh", &["sh", "1", "2", "3", "4", "5", "6", "7", "nginx"]));
        assert!(!named("nginx", "", &[]));
    }
}
