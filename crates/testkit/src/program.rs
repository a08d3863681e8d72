//! One of our programs, running.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A built program: beside the test's own binary, or at `PROCTOR_TEST_NAME`, for those of another version.
pub fn binary(name: &str) -> PathBuf {
    let variable = format!("PROCTOR_TEST_{}", name.to_uppercase().replace('-', "_"));
    if let Some(other) = std::env::var_os(variable) {
        return other.into();
    }
    let me = std::env::current_exe().expect("a test knows its own path");
    let candidates = me.ancestors().skip(1).take(2).map(|dir| dir.join(name));
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not built: run `make build`"))
}

/// A free port of this test's own: no other test gets it while this one runs.
pub fn free_port() -> u16 {
    // Below the kernel's ephemeral range.
    const RANGE: std::ops::Range<u64> = 10_000..32_000;
    loop {
        let drawn = RandomState::new().build_hasher().finish();
        let port = u16::try_from(RANGE.start + drawn % (RANGE.end - RANGE.start)).expect("the range is of ports");
        if claim(port) && TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}

/// Whether the port now belongs to this process. The claim is a name that the kernel frees with the process.
fn claim(port: u16) -> bool {
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = SocketAddr::from_abstract_name(format!("proctor-test-port-{port}")).expect("a short name");
    let claimed = UnixListener::bind_addr(&name);
    claimed.map(|claim| CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim)).is_ok()
}

/// What a program is started through: a network namespace, a limit, a preloaded library.
#[derive(Clone, Debug, Default)]
pub struct Launcher {
    /// A command that runs the program named by its last arguments in its own place, such as `ip netns exec NAME`.
    pub prefix: Vec<String>,
    pub variables: Vec<(String, String)>,
}

/// Lines shown from the log of a program in a failed test.
const LINES_SHOWN: usize = 40;

/// A child with its log in a file; killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    pub fn start(name: &str, arguments: &[String], log: &Path) -> Result<Self> {
        Self::launch(&Launcher::default(), name, arguments, log)
    }

    pub fn launch(through: &Launcher, name: &str, arguments: &[String], log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        let mut words = through.prefix.iter().map(OsString::from).chain([binary(name).into_os_string()]);
        let child = Command::new(words.next().expect("there is at least the program"))
            .args(words)
            .args(arguments)
            .env("PROCTOR_LOG", "info")
            .envs(through.variables.iter().map(|(name, value)| (name, value)))
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

    /// Resident memory now.
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(kilobytes.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
    }

    /// CPU time so far.
    pub fn cpu_time(&self) -> Option<Duration> {
        const TICK: Duration = Duration::from_millis(10);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let ticks: u32 = fields.get(11..13)?.iter().filter_map(|field| field.parse::<u32>().ok()).sum();
        Some(TICK * ticks)
    }

    /// Open descriptors now.
    pub fn descriptors(&self) -> Option<usize> {
        Some(std::fs::read_dir(format!("/proc/{}/fd", self.pid())).ok()?.count())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// A failed test shows the end of the log of each of its programs.
impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (log, state) = (self.log(), self.child.try_wait());
            let end: Vec<&str> = log.lines().rev().take(LINES_SHOWN).collect();
            eprintln!("{} ({state:?}) ends with:", self.log.display());
            end.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
        self.kill();
    }
}
