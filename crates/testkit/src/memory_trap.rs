//! A process whose memory nobody can read, like one that maps a file of a network file system whose server is gone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::eventually;

/// A FUSE mount with one program. The first reader waits for ever, with a page of it locked; whoever loads it
/// afterwards waits for that page inside mmap, which holds its memory lock. Dropping the trap unmounts it, and they
/// continue.
#[derive(Debug)]
pub struct MemoryTrap {
    directory: PathBuf,
    server: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    first_reader: Option<Child>,
    loader: PathBuf,
}

impl MemoryTrap {
    /// Creates the directory and mounts there. None: FUSE cannot be mounted on this machine, or programs have no
    /// loader.
    pub async fn mount(directory: PathBuf) -> Option<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("we have memory");
        let mut mapped = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        let loader = PathBuf::from(mapped.find(|path| path.contains("/ld-"))?);
        std::fs::create_dir(&directory).expect("the directory can be made");
        let device = OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open("/dev/fuse").ok()?;
        let mount = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "none"])
            .arg(&directory)
            .stdin(Stdio::from(device.try_clone().ok()?))
            .stderr(Stdio::null())
            .status();
        if !mount.is_ok_and(|status| status.success()) {
            return None;
        }
        let (ends, holds_page) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let program = std::fs::read("/bin/sleep").expect("there is sleep");
        let mut server = Server { device, opened: 0, program, holds_page: Arc::clone(&holds_page) };
        let server = {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || while !ends.load(Ordering::Relaxed) && server.serve().is_ok() {})
        };
        let mut trap = Self { directory, server: Some(server), ends, first_reader: None, loader };
        let reader = Command::new("cat").arg(trap.program()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        trap.first_reader = Some(reader.expect("there is cat"));
        eventually("the first reader waits", || async { holds_page.load(Ordering::Relaxed).then_some(()) }).await;
        Some(trap)
    }

    fn program(&self) -> PathBuf {
        self.directory.join("program")
    }

    /// The shell command for such a process, under the name of [`Self::name`].
    pub fn command(&self) -> String {
        format!("exec {} {}", self.loader.display(), self.program().display())
    }

    /// The executable of such a process.
    pub fn name(&self) -> String {
        self.loader.file_name().expect("a loader has a name").to_string_lossy().into_owned()
    }

    /// Returns once nobody can read the memory of that process any more.
    pub async fn holds(&self, pid: i32) {
        eventually("the memory cannot be read", || async move {
            let (done, is_done) = mpsc::channel();
            std::thread::spawn(move || {
                let _ =
                    done.send(File::open(format!("/proc/{pid}/environ")).and_then(|mut file| file.read(&mut [0; 1])));
            });
            matches!(is_done.recv_timeout(Duration::from_millis(300)), Err(mpsc::RecvTimeoutError::Timeout))
                .then_some(())
        })
        .await;
    }
}

impl Drop for MemoryTrap {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Without its server, everybody who waits gets an error.
        let _ = self.server.take().map(JoinHandle::join);
        if let Some(mut reader) = self.first_reader.take() {
            let _ = reader.kill();
            let _ = reader.wait();
        }
        unmount(&self.directory);
    }
}

fn unmount(directory: &Path) {
    let _ = Command::new("umount").arg("-l").arg(directory).stderr(Stdio::null()).status();
}

const O_NONBLOCK: i32 = 0o4000;
/// Numbers of FUSE, as linux/fuse.h has them.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
/// Bypasses the page cache, which stays as it is until the file is mapped.
const FOPEN_DIRECT_IO_AND_KEEP_CACHE: u32 = 3;
const ENOSYS: i32 = 38;
const IN_HEADER: usize = 40;
const ROOT: u64 = 1;
const PROGRAM: u64 = 2;
const DAY: u64 = 24 * 3600;

struct Server {
    device: File,
    /// How often the program was opened. The first one reads through the page cache and gets no answer.
    opened: u64,
    program: Vec<u8>,
    /// Somebody waits for a page of it.
    holds_page: Arc<AtomicBool>,
}

impl Server {
    /// Answers one request, or waits a little where there is none.
    #[allow(clippy::disallowed_methods, reason = "a server on a thread of its own, which asks again and again")]
    fn serve(&mut self) -> io::Result<()> {
        let mut request = vec![0; 256 * 1024];
        let length = match self.device.read(&mut request) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Returns now and then, to notice that the trap is over.
                let mut waited_for = [PollFd::new(&self.device, PollFlags::IN)];
                poll(&mut waited_for, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }))?;
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        let request = &request[..length];
        let (opcode, unique, node) = (u32_at(request, 4), u64_at(request, 8), u64_at(request, 16));
        let body = &request[IN_HEADER..];
        let answer = match opcode {
            INIT => Ok(init()),
            LOOKUP => Ok([words(&[PROGRAM, 0, DAY, DAY, 0]), self.attributes(PROGRAM)].concat()),
            GETATTR => Ok([words(&[DAY, 0]), self.attributes(node)].concat()),
            OPEN => {
                self.opened += 1;
                let flags = if self.opened == 1 { 0 } else { FOPEN_DIRECT_IO_AND_KEEP_CACHE };
                Ok(words(&[self.opened, u64::from(flags)]))
            }
            READ if u64_at(body, 0) == 1 => {
                self.holds_page.store(true, Ordering::Relaxed);
                return Ok(());
            }
            READ => Ok(self.part(u64_at(body, 8), u32_at(body, 16))),
            RELEASE | FLUSH => Ok(Vec::new()),
            FORGET | BATCH_FORGET | INTERRUPT => return Ok(()),
            _ => Err(ENOSYS),
        };
        let (error, payload) = match answer {
            Ok(payload) => (0, payload),
            Err(error) => (-error, Vec::new()),
        };
        let length = u32::try_from(16 + payload.len()).unwrap_or(u32::MAX);
        let header = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &unique.to_ne_bytes()].concat();
        // The requester may be gone.
        let _ = self.device.write(&[header, payload].concat());
        Ok(())
    }

    fn part(&self, offset: u64, size: u32) -> Vec<u8> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.program.len());
        let to = from.saturating_add(size as usize).min(self.program.len());
        self.program[from..to].to_vec()
    }

    /// ino, size, blocks, three times, their nanoseconds, mode, nlink, uid, gid, rdev, blksize, flags.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (mode, size): (u32, u64) =
            if node == ROOT { (0o040_755, 0) } else { (0o100_755, self.program.len() as u64) };
        let numbers = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
        let rest = numbers.iter().flat_map(|number| number.to_ne_bytes());
        words(&[node, size, 0, 0, 0, 0]).into_iter().chain(rest).collect()
    }
}

/// major, minor, max_readahead, flags, two numbers of background requests, max_write, time_gran, and no more.
fn init() -> Vec<u8> {
    let numbers: [u32; 16] = [7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
