//! One of our programs, running.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A built program: beside the test's own binary.
pub fn binary(name: &str) -> PathBuf {
    let me = std::env::current_exe().expect("a test knows its own path");
    let candidates = me.ancestors().skip(1).take(2).map(|dir| dir.join(name));
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not built: run `make build`"))
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has free ports");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// A child with its log in a file; killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    pub fn start(name: &str, arguments: &[String], log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        let child = Command::new(binary(name))
            .args(arguments)
            .env("PROCTOR_LOG", "info")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and wait for the end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and wait for the end.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("a pid")?;
        kill_process(pid, Signal::TERM)?;
        Ok(self.child.wait()?)
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
