//! A process to supervise: a copy of `sleep` under a name of its own, with scripts around it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Lives in its own directory; every copy of it is killed when it is dropped.
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

impl Drop for Subject {
    fn drop(&mut self) {
        for pid in self.copies() {
            self.kill(pid);
        }
    }
}

/// All living processes whose program is this file, or lies in this directory.
pub fn running_from(path: &Path) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.starts_with(path)))
        .collect()
}
