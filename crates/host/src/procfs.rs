//! Reading `/proc`, bounded and without trust in its contents.
//!
//! Promised: no reader fails on odd names (`comm` may hold spaces, parentheses and newlines).
//! Absent: any guarantee that a pid still means the same process; see [`crate::pidfd`] for that.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use proctor_model::BootId;

/// Numbers of fields of `stat`, as proc_pid_stat(5) counts them.
const FIRST_AFTER_NAME: usize = 3;
const MEMORY_SIZE: usize = 23;
const ENVIRONMENT_END: usize = 51;
const STAT_BYTES_MAX: u64 = 4096;
/// Of those after the name, up to the start time.
const FIELDS_READ: usize = 20;
pub(crate) const COMMAND_LINE_BYTES_MAX: u64 = 4096;
/// PF_KTHREAD of the kernel's task flags.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What `/proc/<pid>/stat` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    pub(crate) flags: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    pub(crate) children_user_ticks: u64,
    pub(crate) children_system_ticks: u64,
    pub(crate) threads: u32,
    pub(crate) start_ticks: u64,
}

impl Stat {
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        // One read returns everything: the kernel renders this text as a whole.
        let mut buffer = [0; STAT_BYTES_MAX as usize];
        let length = File::open(format!("/proc/{pid}/stat"))?.read(&mut buffer)?;
        Self::parse(buffer.get(..length).unwrap_or_default()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        let mut fields = [""; FIELDS_READ];
        for (place, field) in fields.iter_mut().zip(rest.split_ascii_whitespace()) {
            *place = field;
        }
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let signed = |index: usize| fields.get(index).and_then(|field| field.parse::<i32>().ok());
        Some(Self {
            name,
            state: fields.first()?.chars().next()?,
            parent: signed(1)?,
            session: signed(3)?,
            flags: number(6)?,
            user_ticks: number(11)?,
            system_ticks: number(12)?,
            // These two are signed in the kernel's text.
            children_user_ticks: number(13).unwrap_or(0),
            children_system_ticks: number(14).unwrap_or(0),
            threads: number(17).and_then(|count| u32::try_from(count).ok()).unwrap_or(1),
            start_ticks: number(19)?,
        })
    }

    /// Dead, but its parent has not collected it yet.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// CPU time of the process and of the children it has waited for.
    pub(crate) fn ticks(&self) -> u64 {
        self.user_ticks.saturating_add(self.system_ticks).saturating_add(self.children_ticks())
    }

    pub(crate) fn children_ticks(&self) -> u64 {
        self.children_user_ticks.saturating_add(self.children_system_ticks)
    }
}

/// Whether it has just begun to execute a program whose environment is not in place yet. A process that was given none,
/// a zombie and a kernel thread are not.
pub(crate) fn is_executing(pid: i32) -> bool {
    read(Path::new(&format!("/proc/{pid}/stat")), STAT_BYTES_MAX).is_ok_and(|text| lacks_environment(&text))
}

/// From the text of `stat`: there is memory, and the end of the environment is nowhere in it.
pub(crate) fn lacks_environment(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let Some((_, fields)) = text.rsplit_once(')') else { return false };
    let field = |number: usize| fields.split_ascii_whitespace().nth(number - FIRST_AFTER_NAME);
    field(MEMORY_SIZE).is_some_and(|size| size != "0") && field(ENVIRONMENT_END).is_some_and(|end| end == "0")
}

/// Every process listed now. One that exits meanwhile is left out.
pub(crate) fn all() -> io::Result<Vec<(i32, Stat)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match Stat::of(pid) {
            Ok(stat) => found.push((pid, stat)),
            Err(error) if is_lack(&error) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found)
}

/// Whether we could not look because the system lacks resources, as opposed to seeing nothing.
pub(crate) fn is_lack(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Its own memory: resident without shared pages, in pages.
pub(crate) fn private_pages(pid: i32) -> Option<u64> {
    let text = read(Path::new(&format!("/proc/{pid}/statm")), STAT_BYTES_MAX).ok()?;
    Some(Pages::parse(&text)?.private)
}

/// Memory, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) resident: u64,
    /// Resident without what is shared.
    pub(crate) private: u64,
}

impl Pages {
    /// From the text of `statm`. None also for a zombie, whose memory is gone.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
        let (size, resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
        (size > 0).then(|| Self { resident, private: resident.saturating_sub(shared) })
    }
}

/// The effective user id.
pub(crate) fn owner(pid: i32) -> Option<u32> {
    parse_owner(&read(Path::new(&format!("/proc/{pid}/status")), 16 * 1024).ok()?)
}

/// From the text of `status`.
pub(crate) fn parse_owner(text: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(text);
    let ids = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The arguments, as far as they fit into the bound. May hang with that process: see [`crate::foreign_memory`].
pub(crate) fn arguments(pid: i32) -> Vec<String> {
    parse_arguments(&read(Path::new(&format!("/proc/{pid}/cmdline")), COMMAND_LINE_BYTES_MAX).unwrap_or_default())
}

/// From the text of `cmdline`.
pub(crate) fn parse_arguments(text: &[u8]) -> Vec<String> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

/// Base name of its executable, even if that was deleted or replaced since.
pub(crate) fn executable(pid: i32) -> Option<String> {
    let target = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let bytes = target.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    let base = bytes.rsplit(|byte| *byte == b'/').next()?;
    Some(String::from_utf8_lossy(base).into_owned())
}

pub(crate) fn boot_id() -> io::Result<BootId> {
    let text = read(Path::new(BOOT_ID_PATH), 128)?;
    Ok(BootId::from(String::from_utf8_lossy(&text).trim()))
}

pub(crate) const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

pub(crate) fn memory_bytes() -> Option<u64> {
    parse_memory(&read(Path::new("/proc/meminfo"), STAT_BYTES_MAX).ok()?)
}

/// All memory of the machine, from the text of `meminfo`.
pub(crate) fn parse_memory(text: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kibibytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// At most `bytes_max` bytes of a file.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Most files are smaller: one read brings them, another one their end.
    let mut text = Vec::with_capacity(1024);
    File::open(path)?.take(bytes_max).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_confuse_the_fields() {
        let text = b"42 (a) R (b\n) S 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 777 1 2";

        let stat = Stat::parse(text).unwrap();

        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) R (b\n", 'S', 1));
        assert_eq!((stat.user_ticks, stat.threads, stat.start_ticks), (5, 9, 777));
        assert_eq!(stat.ticks(), 5 + 6 + 7 + 8);
    }

    #[test]
    fn ticks_that_no_machine_counts_to_do_not_overflow() {
        let most = u64::MAX;
        let text = format!("42 (a) S 1 42 42 0 -1 0 1 2 3 4 {most} {most} {most} {most} 20 0 9 0 777 1 2");

        let stat = Stat::parse(text.as_bytes()).unwrap();

        assert_eq!((stat.ticks(), stat.children_ticks()), (most, most));
    }

    #[test]
    fn texts_about_memory_owner_and_arguments_are_read() {
        assert_eq!(Pages::parse(b"9 5 2 1 0 3 0\n"), Some(Pages { resident: 5, private: 3 }));
        assert_eq!(
            (Pages::parse(b"0 0 0 0 0 0 0\n"), Pages::parse(b"9 5"), Pages::parse(b"9 -5 2")),
            (None, None, None)
        );
        assert_eq!(parse_owner(b"Name:\ta\nUid:\t1\t2\t3\t4\n"), Some(2));
        assert_eq!(parse_memory(b"MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 * 1024));
        assert_eq!(parse_memory(format!("MemTotal: {} kB\n", u64::MAX).as_bytes()), None);
        assert_eq!(parse_arguments(b"a\0b c\0\0"), ["a", "b c", ""]);
    }

    #[test]
    fn only_a_process_that_has_memory_but_no_environment_executes_a_program() {
        let stat = |size: &str, end: &str| {
            let between = "0 ".repeat(ENVIRONMENT_END - MEMORY_SIZE - 1);
            let before = "1 ".repeat(MEMORY_SIZE - FIRST_AFTER_NAME - 1);
            format!("42 (a) b) S {before}{size} {between}{end} 0\n").into_bytes()
        };

        let found = [stat("4096", "0"), stat("4096", "140733"), stat("0", "0")].map(|text| lacks_environment(&text));

        assert_eq!(found, [true, false, false]);
        assert!(!lacks_environment(b"42 (a") && !lacks_environment(b"42 (a) S 1"));
        let ours = i32::try_from(std::process::id()).unwrap();
        assert!(!is_executing(ours) && !is_executing(i32::MAX));
    }

    #[test]
    fn torn_text_is_no_stat() {
        for text in ["", "42", "42 (", "42 ) (", "42 (a) S 1 2", "42 (a)"] {
            assert_eq!(Stat::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn we_are_in_the_list_of_all_processes() {
        let ours = i32::try_from(std::process::id()).unwrap();

        let all = all().unwrap();

        assert!(all.iter().any(|(pid, stat)| *pid == ours && !stat.is_dead() && !stat.is_kernel_thread()));
    }
}
