//! What holds after every scenario: the expected copies and no others, no zombies, no unfinished operation, no
//! signal to an unrelated process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use proctor_testkit::{Agent, Fleet, Program, Subject, eventually};

/// The zero-list for one subject of a fleet.
pub(crate) async fn zero_list(fleet: &Fleet, agent: &Agent, subject: &Subject, copies: usize) {
    eventually("there are as many copies as there should be", || async {
        (subject.copies().len() == copies).then_some(())
    })
    .await;
    no_zombies(&agent.program).await;
    eventually("every operation that began has ended", || async { unfinished(agent).is_empty().then_some(()) }).await;
    fleet.until_healthy().await;
}

/// No children that nobody has waited for.
pub(crate) async fn no_zombies(agent: &Program) {
    let pid = i32::try_from(agent.pid()).unwrap();
    eventually("the agent has no zombies", || async { zombies_of(pid).is_empty().then_some(()) }).await;
}

fn zombies_of(parent: i32) -> Vec<i32> {
    let is_zombie = |pid: &i32| stat(*pid).is_some_and(|(state, of)| state == 'Z' && of == parent);
    all_pids().into_iter().filter(is_zombie).collect()
}

fn all_pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The state letter of a process and its parent.
pub(crate) fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Operations that the agent's log begins and does not end. Only of the current agent: one that was killed may have
/// had no time to log, and their tasks tell.
fn unfinished(agent: &Agent) -> Vec<String> {
    let log = agent.program.log();
    let log = log.rsplit("driver started").next().unwrap_or_default();
    let id_in = |line: &str| {
        let line = plain(line);
        let (_, rest) = line.split_once("operation=").expect("the log names the operation");
        rest.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let of = |words: &str| -> Vec<String> { log.lines().filter(|line| line.contains(words)).map(id_in).collect() };
    let ended = of("operation finished");
    of("operation started").into_iter().filter(|id| !ended.contains(id)).collect()
}

/// A line of the log without its colours.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// An unrelated process that records every signal that reaches it.
#[derive(Debug)]
pub(crate) struct Bystander {
    child: Child,
    signals: PathBuf,
}

impl Bystander {
    pub(crate) async fn start(dir: &Path) -> Self {
        let (signals, ready) = (dir.join("bystander.signals"), dir.join("bystander.ready"));
        let note = format!("open F, '>>', '{}'; print F \"$_[0]\\n\"; close F", signals.display());
        let caught = "qw(HUP INT QUIT USR1 USR2 PIPE ALRM TERM CONT WINCH)";
        let code = format!(
            "$SIG{{$_}} = sub {{ {note} }} for {caught}; open R, '>', '{}'; close R; sleep 1000 while 1",
            ready.display()
        );
        let child = Command::new("perl").args(["-e", &code]).stdin(Stdio::null()).spawn().unwrap();
        eventually("the bystander is ready", || async { ready.exists().then_some(()) }).await;
        Self { child, signals }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn is_untouched(&self) {
        let state = stat(self.pid()).map(|(state, _)| state);
        assert_eq!(state, Some('S'), "the bystander sleeps as before");
        let signals = fs::read_to_string(&self.signals).unwrap_or_default();
        assert_eq!(signals, "", "no signal has reached the bystander");
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
