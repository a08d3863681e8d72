//! A process to supervise: a copy of `sleep` under its own name, with scripts around it.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Lives in its own directory; every copy of it is killed when this is dropped.
#[derive(Debug)]
pub struct Subject {
    pub name: String,
    pub dir: PathBuf,
}

impl Subject {
    pub fn new(parent: &Path, name: &str) -> Result<Self> {
        let dir = parent.join(name);
        std::fs::create_dir_all(&dir)?;
        let program = dir.join(name);
        std::fs::copy("/bin/sleep", &program)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { name: name.to_owned(), dir })
    }

    pub fn pid_file(&self) -> PathBuf {
        self.dir.join(format!("{}.pid", self.name))
    }

    pub fn start_cmd(&self) -> String {
        let name = &self.name;
        format!("echo start >> commands.log; ./{name} 100000 > /dev/null 2>&1 & echo $! > {name}.pid")
    }

    /// A register_proc_info spec that starts, checks and stops quickly.
    pub fn spec(&self) -> Value {
        json!({
            "identity": {
                "index_key": "", "proc_name": self.name, "setup_path": self.dir,
                "pid_path": self.pid_file(), "config_path": "", "log_path": "", "user": "root",
            },
            "control": {
                "start_cmd": self.start_cmd(),
                "stop_cmd": format!("echo stop >> commands.log; kill $(cat {}.pid)", self.name),
                "restart_cmd": "", "reload_cmd": "echo reloaded", "kill_cmd": "",
                "version_cmd": "echo 1.2.3", "health_cmd": "",
            },
            "resource": {"cpu": 50.0, "mem": 50.0},
            "monitor_policy": {
                "auto_type": 1, "start_check_secs": 1, "stop_check_secs": 5,
                "start_retries": 4, "start_interval": 1, "op_timeout": 20,
            },
        })
    }

    pub fn meta(&self) -> Value {
        json!({"namespace": "e2e", "name": self.name, "labels": {"proc_name": self.name}})
    }

    /// The pid in its pid file, if that process is alive.
    pub fn pid(&self) -> Option<i32> {
        let pid = std::fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()?;
        self.copies().contains(&pid).then_some(pid)
    }

    /// All living processes that run this program.
    pub fn copies(&self) -> Vec<i32> {
        running_from(&self.dir.join(&self.name))
    }

    pub fn kill(&self, pid: i32) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// How often its start command ran.
    pub fn starts(&self) -> usize {
        let log = std::fs::read_to_string(self.dir.join("commands.log")).unwrap_or_default();
        log.lines().filter(|line| *line == "start").count()
    }
}

/// An agent that is still running restarts what was managed; [`crate::Fleet`] ends that.
impl Drop for Subject {
    fn drop(&mut self) {
        for pid in self.copies() {
            self.kill(pid);
        }
    }
}

/// All living processes whose program is this file, or lies in this directory.
pub fn running_from(path: &Path) -> Vec<i32> {
    processes(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.starts_with(path)))
}

/// All live processes except this one that involve a directory: by their program, their working directory, or an
/// argument that names it, such as an agent's `--state-dir`.
pub fn running_in(dir: &Path) -> Vec<i32> {
    let name = dir.as_os_str().as_bytes();
    let is_in = |pid: i32| {
        let link = |name: &str| std::fs::read_link(format!("/proc/{pid}/{name}"));
        let names = |text: Vec<u8>| text.windows(name.len()).any(|window| window == name);
        ["exe", "cwd"].iter().any(|kind| link(kind).is_ok_and(|path| path.starts_with(dir)))
            || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(names)
    };
    let us = i32::try_from(std::process::id()).unwrap_or_default();
    processes(|pid| pid != us && is_in(pid))
}

/// Kills everything that involves a directory, until nothing does: what an agent starts before its own end is found
/// by the next pass.
pub fn end_all_in(dir: &Path) {
    let begun = Instant::now();
    loop {
        let left = running_in(dir);
        if left.is_empty() {
            return;
        }
        if begun.elapsed() > crate::PATIENCE {
            return eprintln!("{left:?} in {} cannot be killed", dir.display());
        }
        for pid in left.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::yield_now();
    }
}

fn processes(is_wanted: impl Fn(i32) -> bool) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_wanted(*pid)).collect()
}
