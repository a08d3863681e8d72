//! "Is it there?": from the pid file to one life of a process, or the reason why not.
//!
//! Promised: a process counts only if it is alive, is what its spec says (by name and owner), and
//! the pid file is to be trusted and readable for the spec's user; a life that is known already needs no second look at its name,
//! which a replaced binary or a new title changes. What cannot be found out is unclear, neither running nor
//! absent; so is a process that began after its pid file was written: the file is stale and its pid was given out
//! again, or the clock was set meanwhile. Absent: translation of pids of other pid
//! namespaces; such a pid means some other process here and fails the comparison of names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{BootId, Identity, Incarnation, Probe};
use proctor_runtime::clock;
use rustix::time::{ClockId, clock_gettime};

use crate::blocking::{Blocking, TimedOut};
use crate::pidfd::{Process, Refused};
use crate::pidfile::{PidEntry, Refusal};
use crate::usage::Units;
use crate::user::{Account, AccountCache};
use crate::{pidfile, procfs, rights, user};

const LIMIT: Duration = Duration::from_secs(5);
/// Some file systems keep times in steps of two seconds, and the clock is set by less now and then.
const GRANULARITY: Duration = Duration::from_secs(3);
const SCRIPT_ARGUMENTS_MAX: usize = 8;
const INTERPRETERS: [&str; 10] = ["sh", "bash", "dash", "ash", "busybox", "perl", "ruby", "node", "java", "php"];
/// Interpreters that carry a version in their name.
const INTERPRETER_FAMILIES: [&str; 5] = ["python", "lua", "perl5", "ruby", "php"];

pub(crate) async fn look(
    blocking: &Blocking,
    accounts: &AccountCache,
    boot: &BootId,
    identity: &Identity,
    known: Option<&Incarnation>,
) -> Probe {
    let (reason, named) = match find_on_thread(blocking, accounts, boot, identity, known).await {
        Ok(life) => return Probe::Running(life),
        Err(Refusal::Absent(reason)) => return Probe::Absent(reason),
        Err(Refusal::Dead { pid, reason }) => return Probe::Dead { pid, reason },
        Err(Refusal::Unclear(reason)) => (reason, None),
        Err(Refusal::Stale { life, reason }) => (reason, Some(life)),
    };
    // A file that cannot be read says nothing about a life that we know to go on, and "absent"
    // would start a second copy.
    match known {
        Some(life) if is_alive(life, boot) => Probe::Running(life.clone()),
        Some(_) | None => Probe::Unclear { reason, named },
    }
}

/// The name service and the file system may hang, each for itself.
async fn find_on_thread(
    blocking: &Blocking,
    accounts: &AccountCache,
    boot: &BootId,
    identity: &Identity,
    known: Option<&Incarnation>,
) -> Result<Incarnation, Refusal> {
    let user = identity.user.as_str();
    let account = match (user == user::ROOT).then(Account::root).map(Arc::new).or_else(|| accounts.known(user)) {
        Some(account) => account,
        None => {
            let (accounts, name) = (accounts.clone(), user.to_owned());
            let found = blocking.run(&format!("user {user}"), LIMIT, move || accounts.find(&name)).await;
            let found = found.unwrap_or_else(|TimedOut| Err(format!("user '{user}' cannot be looked up in time")));
            // Who does not exist runs nothing.
            let refusal =
                |reason| if reason == user::absent(user) { Refusal::Absent(reason) } else { Refusal::Unclear(reason) };
            found.map_err(refusal)?
        }
    };
    let work = {
        let (boot, identity, known) = (boot.clone(), identity.clone(), known.cloned());
        move || find(&account, &boot, &identity, known.as_ref())
    };
    let path = identity.pid_path.as_str();
    let found = blocking.run(path, LIMIT, work).await;
    found.unwrap_or_else(|TimedOut| Err(Refusal::Unclear(format!("pid file {path} did not answer"))))
}

/// The answer where nobody has to wait for it: the pid file lies in the kernel's memory, and its process
/// is dead or the one that is known. None: [`look`] has to find out.
pub(crate) fn look_now(
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

fn not_running_reason(pid: i32, path: impl std::fmt::Display) -> String {
    format!("pid {pid} of {path} does not run")
}

/// Where that cannot be found out, for lack of descriptors, a life that was alive still is.
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
        let path = pidfile::resolve(identity.pid_path.as_str(), identity.proc_name.as_str());
        let entry = pidfile::read(&path, |owner| owner == 0 || owner == us || owner == account.uid)?;
        Ok((path, entry))
    };
    let user = &account.name;
    rights::as_account(account, read)
        .unwrap_or_else(|error| Err(Refusal::Unclear(format!("the rights of user '{user}' cannot be taken: {error}"))))
}

fn find(
    account: &Account,
    boot: &BootId,
    identity: &Identity,
    known: Option<&Incarnation>,
) -> Result<Incarnation, Refusal> {
    let (name, user) = (identity.proc_name.as_str(), identity.user.as_str());
    let (path, PidEntry { pid, written_millis }) = read_pid(account, identity)?;
    let path = path.display();

    let process = Process::open(pid).map_err(|refused| match refused {
        Refused::Gone => Refusal::Dead { pid, reason: not_running_reason(pid, &path) },
        Refused::Thread => Refusal::Absent(format!("pid {pid} of {path} is a thread, not a process")),
        Refused::Failed(error) => Refusal::Unclear(format!("pid {pid} of {path} cannot be looked at: {error}")),
    })?;
    if process.stat.is_kernel_thread() {
        return Err(format!("pid {pid} of {path} is a thread of the kernel").into());
    }
    if !process.is_alive() {
        let reason = format!("pid {pid} of {path} is dead, and its parent has not noticed");
        return Err(Refusal::Dead { pid, reason });
    }
    let life = process.life(boot);
    if known == Some(&life) {
        return Ok(life);
    }

    let executable = procfs::executable(pid);
    let arguments = procfs::arguments(pid);
    if !is_named(name, executable.as_deref(), &arguments) {
        let other = executable.unwrap_or_else(|| process.stat.name.clone());
        return Err(format!("pid {pid} of {path} is '{}', not '{name}'", other.escape_debug()).into());
    }
    let owner = procfs::owner(pid);
    if account.uid != 0 && owner != Some(account.uid) {
        let owner = owner.map_or_else(|| "nobody we know".to_owned(), user::name);
        return Err(format!("pid {pid} of {path} runs as {owner}, not as {user}").into());
    }
    if written_millis.is_some_and(|written| began_after(&life, written)) {
        let reason = format!(
            "process {pid} began after pid file {path} was written: the file is stale and the pid another's, or the clock \
             was set; remove the file if it is stale, or write it again"
        );
        return Err(Refusal::Stale { life, reason });
    }
    // What was read of /proc since belongs to this life only if it has not ended meanwhile.
    let reason = format!("pid {pid} of {path} has just ended");
    if process.is_alive() { Ok(life) } else { Err(Refusal::Dead { pid, reason }) }
}

/// Whether a life began clearly later than a file was written, by the wall clock as it is set now. Whoever writes
/// the pid of a process does so after its begin.
fn began_after(life: &Incarnation, written_millis: i64) -> bool {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0));
    let booted = clock::unix_millis().saturating_sub(millis(now));
    let began = booted.saturating_add(millis(Units::read().since_boot(life.start_ticks)));
    began.saturating_sub(written_millis) > millis(GRANULARITY)
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
