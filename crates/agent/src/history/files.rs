//! The last seven days of each process, in one file of fixed size per process.
//!
//! Promised: files are private, preallocated and at most [`FILES_MAX`]; none is created if the disk has less than
//! [`FREE_BYTES_MIN`] left; a file that is damaged, not ours or not writable costs only its own history. A step is
//! written in place, within one sector, and nothing is synced: a crash of the agent loses nothing, one of the host
//! perhaps the last minutes.
//! Absent: time, threads.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use proctor_model::ProcessKey;
use proctor_runtime::private;

use super::week::{SLOT_BYTES, SLOTS, STEP_SECS, WeekStep, of_last_week};

/// 64 MiB for all.
pub(super) const FILES_MAX: usize = 2048;
/// Usage is not worth the last of a disk: ledger and logs need it.
const FREE_BYTES_MIN: u64 = 256 * 1024 * 1024;
/// The file of a process that is not known is kept for so long after the last write.
const UNKNOWN_KEPT_SECS: u64 = 24 * 3600;
const HEADER_BYTES: usize = 512;
const FILE_BYTES: u64 = HEADER_BYTES as u64 + SLOTS as u64 * SLOT_BYTES as u64;
const MAGIC: &[u8; 8] = b"PROCUSE\x01";
const SUFFIX: &str = ".usage";
/// Hex digits of the digest in a file's name.
const NAME_DIGITS: usize = 32;

#[derive(Debug)]
pub(super) struct WeekFiles {
    dir: PathBuf,
    files: usize,
    free_bytes_min: u64,
    /// The current step of the last turn, to notice a clock that went back; None before the first.
    current: Option<u32>,
    /// Files that hold nothing later than that.
    checked: HashSet<ProcessKey>,
    /// The last process without a file did not get one.
    lacks_room: bool,
}

/// What came of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    Yes,
    /// There are [`FILES_MAX`] files, or the disk is nearly full.
    NoRoom,
}

impl WeekFiles {
    /// Nothing is created before there is something to write.
    pub(super) fn new(dir: PathBuf) -> Self {
        let checked = HashSet::new();
        Self { dir, files: 0, free_bytes_min: FREE_BYTES_MIN, current: None, checked, lacks_room: false }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the files of all processes but these, once nothing was written to them for [`UNKNOWN_KEPT_SECS`], and
    /// counts the rest. An agent that has lost its ledger knows its processes only once they are assigned again.
    pub(super) fn retain(&mut self, keys: &HashSet<ProcessKey>, now: u64) -> io::Result<()> {
        let kept: HashSet<String> = keys.iter().map(file_name).collect();
        let mut first = None;
        self.files = 0;
        for name in self.names()? {
            if kept.contains(&name) || !is_older(&self.dir.join(&name), UNKNOWN_KEPT_SECS, now) {
                self.files += 1;
            } else if let Err(error) = std::fs::remove_file(self.dir.join(name)) {
                self.files += 1;
                first = first.or(Some(error));
            }
        }
        self.checked.retain(|key| keys.contains(key));
        first.map_or(Ok(()), Err)
    }

    /// Of the files that may be ours.
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
        Ok(names?.into_iter().filter_map(|name| name.into_string().ok()).filter(|name| is_file_name(name)).collect())
    }

    /// Steps of `current` and before are written from now on. If the clock went back, what is later is erased.
    pub(super) fn begin_turn(&mut self, current: u32) -> io::Result<()> {
        let went_back = self.current.replace(current).is_some_and(|before| current < before);
        if !went_back {
            return Ok(());
        }
        self.checked.clear();
        let mut first = None;
        for name in self.names()? {
            let erased = private::file(&self.dir.join(name)).and_then(|file| match file.metadata()?.len() {
                FILE_BYTES => erase_after(&file, current),
                _ => Ok(()),
            });
            first = first.or_else(|| erased.err());
        }
        first.map_or(Ok(()), Err)
    }

    pub(super) fn remove(&mut self, key: &ProcessKey) -> io::Result<()> {
        self.checked.remove(key);
        match std::fs::remove_file(self.path(key)) {
            Ok(()) => {
                self.files = self.files.saturating_sub(1);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Steps of one process; those that are later than now are of a clock that went back.
    pub(super) fn write(&mut self, key: &ProcessKey, steps: &[WeekStep]) -> io::Result<Written> {
        let current = self.current.unwrap_or(u32::MAX);
        let Some(file) = self.open_or_make(key)? else { return Ok(Written::NoRoom) };
        if !self.checked.contains(key) {
            erase_after(&file, current)?;
            self.checked.insert(key.clone());
        }
        for step in steps.iter().filter(|step| step.number <= current) {
            let at = offset(step.index());
            let mut bytes = [0; SLOT_BYTES];
            file.read_exact_at(&mut bytes, at)?;
            let before = WeekStep::from_bytes(step.index(), &bytes).filter(|before| before.number == step.number);
            let step = before.map_or(*step, |before| before.merged(*step));
            file.write_all_at(&step.to_bytes(), at)?;
        }
        Ok(Written::Yes)
    }

    /// The steps of the last week; None if there is no file. A damaged file has none.
    pub(super) fn read(&self, key: &ProcessKey, now: u64) -> io::Result<Option<Vec<WeekStep>>> {
        let file = match File::open(self.path(key)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        if !is_ours(&file, key)? {
            return Ok(Some(Vec::new()));
        }
        Ok(Some(of_last_week(all_steps(&file)?, now)))
    }

    /// Whether a process without a file gets one, as far as is known.
    pub(super) fn has_room(&self) -> bool {
        self.files < FILES_MAX && !self.lacks_room
    }

    fn open_or_make(&mut self, key: &ProcessKey) -> io::Result<Option<File>> {
        let path = self.path(key);
        if path.try_exists()? {
            let file = private::file(&path)?;
            if is_ours(&file, key)? {
                return Ok(Some(file));
            }
            tracing::warn!(process = %key, path = %path.display(), "usage history corrupt, starting over");
            self.remove(key)?;
        }
        self.make_dir()?;
        self.lacks_room = self.files >= FILES_MAX || free_bytes(&self.dir)? < self.free_bytes_min;
        if self.lacks_room {
            return Ok(None);
        }
        let file = private::new_file(&path)?;
        self.files += 1;
        if let Err(error) = preallocate(&file, key) {
            let _ = self.remove(key); // a part of a file is none
            return Err(error);
        }
        private::file(&path).map(Some)
    }

    /// A state directory that is gone is not recreated for this.
    fn make_dir(&self) -> io::Result<()> {
        if !self.dir.parent().is_some_and(Path::is_dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        private::dir(&self.dir).map_err(io::Error::other)
    }

    fn path(&self, key: &ProcessKey) -> PathBuf {
        self.dir.join(file_name(key))
    }
}

/// Whether nothing was written to it for this long; if that cannot be determined, it is old.
fn is_older(path: &Path, secs: u64, now: u64) -> bool {
    let written = std::fs::metadata(path).ok().and_then(|metadata| u64::try_from(metadata.mtime()).ok());
    written.is_none_or(|written| now.saturating_sub(written) >= secs)
}

fn preallocate(file: &File, key: &ProcessKey) -> io::Result<()> {
    let allocated = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, FILE_BYTES);
    match allocated {
        Ok(()) => {}
        // A file system that cannot reserve space gets it written.
        Err(rustix::io::Errno::OPNOTSUPP) => file.write_all_at(&vec![0; file_bytes()], 0)?,
        Err(error) => return Err(error.into()),
    }
    file.write_all_at(&header(key), 0)
}

/// Of this very process, and whole.
fn is_ours(file: &File, key: &ProcessKey) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() != FILE_BYTES {
        return Ok(false);
    }
    let mut found = [0; HEADER_BYTES];
    file.read_exact_at(&mut found, 0)?;
    Ok(found == header(key))
}

fn all_steps(file: &File) -> io::Result<Vec<WeekStep>> {
    let mut bytes = vec![0; file_bytes() - HEADER_BYTES];
    file.read_exact_at(&mut bytes, HEADER_BYTES as u64)?;
    let (slots, _) = bytes.as_chunks::<SLOT_BYTES>();
    Ok((0..SLOTS).zip(slots).filter_map(|(index, bytes)| WeekStep::from_bytes(index, bytes)).collect())
}

/// The clock went back: what is later would reappear as if it were current.
fn erase_after(file: &File, number: u32) -> io::Result<()> {
    for step in all_steps(file)?.iter().filter(|step| step.number > number) {
        file.write_all_at(&[0; SLOT_BYTES], offset(step.index()))?;
    }
    Ok(())
}

fn header(key: &ProcessKey) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&SLOTS.to_le_bytes());
    header[12..20].copy_from_slice(&STEP_SECS.to_le_bytes());
    header[20..52].copy_from_slice(digest(key).as_bytes());
    header
}

fn digest(key: &ProcessKey) -> blake3::Hash {
    blake3::hash(format!("{}\0{}", key.namespace, key.name).as_bytes())
}

fn file_name(key: &ProcessKey) -> String {
    format!("{}{SUFFIX}", &digest(key).to_hex()[..NAME_DIGITS])
}

fn is_file_name(name: &str) -> bool {
    let digits = name.strip_suffix(SUFFIX).unwrap_or_default();
    digits.len() == NAME_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn offset(index: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(index) * SLOT_BYTES as u64
}

fn file_bytes() -> usize {
    usize::try_from(FILE_BYTES).expect("a file is 32 KiB")
}

fn free_bytes(dir: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::super::number_at;
    use super::super::week::OpenStep;
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn key(name: &str) -> ProcessKey {
        format!("ns/{name}").parse().unwrap()
    }

    fn step(now: u64, cpu: f32) -> WeekStep {
        OpenStep::new(now, Sample { cpu, memory: 1.0, is_new_life: false }).so_far()
    }

    fn files() -> (tempfile::TempDir, WeekFiles) {
        let dir = tempfile::tempdir().unwrap();
        let files = WeekFiles { free_bytes_min: 0, ..WeekFiles::new(dir.path().join("usage")) };
        (dir, files)
    }

    fn numbers(files: &WeekFiles, key: &ProcessKey, now: u64) -> Vec<u32> {
        files.read(key, now).unwrap().unwrap().iter().map(|step| step.number).collect()
    }

    #[test]
    fn a_week_is_kept_and_no_more_in_a_file_that_never_grows() {
        let (dir, mut files) = files();
        let web = key("web");
        for number in 0..u64::from(SLOTS) + 100 {
            files.write(&web, &[step(NOW + number * STEP_SECS, 1.0)]).unwrap();
        }
        let now = NOW + (u64::from(SLOTS) + 99) * STEP_SECS;

        let kept = numbers(&files, &web, now);

        assert_eq!(kept.len(), SLOTS as usize);
        assert!(kept.is_sorted());
        let entry = std::fs::read_dir(dir.path().join("usage")).unwrap().next().unwrap().unwrap();
        let metadata = entry.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (FILE_BYTES, 0o600));
        assert_eq!(FILE_BYTES, 32 * 1024);
        assert_eq!(numbers(&files, &web, now + 10 * STEP_SECS).len(), SLOTS as usize - 10);
    }

    #[test]
    fn a_damaged_or_foreign_file_costs_only_itself() {
        let (_dir, mut files) = files();
        let names = ["short", "other", "torn", "good"].map(key);
        for name in &names {
            files.write(name, &[step(NOW, 1.0)]).unwrap();
        }
        std::fs::write(files.path(&names[0]), b"x").unwrap();
        std::fs::copy(files.path(&names[3]), files.path(&names[1])).unwrap();
        let torn = File::options().write(true).open(files.path(&names[2])).unwrap();
        torn.write_all_at(&[0xFF; SLOT_BYTES], offset(step(NOW, 1.0).index())).unwrap();

        let found = names.each_ref().map(|name| numbers(&files, name, NOW).len());
        for name in &names {
            files.write(name, &[step(NOW + STEP_SECS, 2.0)]).unwrap();
        }

        assert_eq!(found, [0, 0, 0, 1]);
        assert_eq!(names.each_ref().map(|name| numbers(&files, name, NOW + STEP_SECS).len()), [1, 1, 1, 2]);
        assert_eq!(files.files, 4);
    }

    #[test]
    fn the_files_of_forgotten_processes_go_and_foreign_ones_stay() {
        let (_dir, mut files) = files();
        for name in ["a", "b", "c"] {
            files.write(&key(name), &[step(NOW, 1.0)]).unwrap();
        }
        let foreign = ["notes.txt", "disk-usage", "x.usage"].map(|name| files.dir.join(name));
        foreign.iter().for_each(|path| std::fs::write(path, b"mine").unwrap());

        files.remove(&key("a")).unwrap();
        files.remove(&key("a")).unwrap();
        let mut again = WeekFiles::new(files.dir.clone());
        let written = u64::try_from(std::fs::metadata(again.path(&key("c"))).unwrap().mtime()).unwrap();
        again.retain(&HashSet::from([key("b")]), written + UNKNOWN_KEPT_SECS - 1).unwrap();
        assert_eq!(again.files, 2, "an agent that has lost its ledger may hear of it again");
        again.retain(&HashSet::from([key("b")]), written + UNKNOWN_KEPT_SECS + 60).unwrap();

        assert_eq!(again.files, 1);
        assert!(again.read(&key("a"), NOW).unwrap().is_none() && again.read(&key("c"), NOW).unwrap().is_none());
        assert_eq!(numbers(&again, &key("b"), NOW).len(), 1);
        assert!(foreign.iter().all(|path| path.exists()));
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let (_dir, mut files) = files();
        files.write(&key("old"), &[step(NOW, 1.0)]).unwrap();
        files.files = FILES_MAX;

        assert_eq!(files.write(&key("new"), &[step(NOW, 1.0)]).unwrap(), Written::NoRoom);
        assert_eq!(files.write(&key("old"), &[step(NOW + STEP_SECS, 1.0)]).unwrap(), Written::Yes);
        assert!(files.read(&key("new"), NOW).unwrap().is_none());
    }

    #[test]
    fn a_disk_that_is_nearly_full_gets_no_new_file() {
        let (_dir, mut files) = files();
        files.write(&key("old"), &[step(NOW, 1.0)]).unwrap();
        files.free_bytes_min = u64::MAX;

        assert!(files.has_room());
        assert_eq!(files.write(&key("new"), &[step(NOW, 1.0)]).unwrap(), Written::NoRoom);
        assert_eq!(files.write(&key("old"), &[step(NOW + STEP_SECS, 1.0)]).unwrap(), Written::Yes);
        assert!(!files.has_room(), "whoever asks is told");
    }

    #[test]
    fn two_parts_of_a_step_become_one() {
        let (_dir, mut files) = files();
        files.write(&key("web"), &[step(NOW, 2.0)]).unwrap();

        files.write(&key("web"), &[step(NOW + 1, 6.0)]).unwrap();

        let point = files.read(&key("web"), NOW + 1).unwrap().unwrap()[0].point();
        assert_eq!((point.cpu.min, point.cpu.avg, point.cpu.max), (Some(2.0), 4.0, 6.0));
    }

    #[test]
    fn what_was_written_ahead_of_a_clock_that_went_back_does_not_come_up_later() {
        let (_dir, mut files) = files();
        let ahead = NOW + 100 * STEP_SECS;
        for name in ["web", "stopped"].map(key) {
            files.write(&name, &[step(NOW, 1.0), step(ahead, 1.0)]).unwrap();
        }
        files.begin_turn(number_at(ahead)).unwrap();

        // The step that was open when the clock went back comes with the first one afterwards.
        files.begin_turn(number_at(NOW + STEP_SECS)).unwrap();
        files.write(&key("web"), &[step(ahead, 1.0), step(NOW + STEP_SECS, 1.0)]).unwrap();

        assert_eq!(numbers(&files, &key("web"), ahead).len(), 2);
        assert_eq!(numbers(&files, &key("stopped"), ahead).len(), 1);
    }

    #[test]
    fn what_an_earlier_run_wrote_ahead_goes_with_the_first_write() {
        let (_dir, mut files) = files();
        let ahead = NOW + 100 * STEP_SECS;
        files.write(&key("web"), &[step(ahead, 1.0)]).unwrap();

        let mut again = WeekFiles::new(files.dir.clone());
        again.begin_turn(number_at(NOW)).unwrap();
        again.write(&key("web"), &[step(NOW, 1.0)]).unwrap();

        assert_eq!(numbers(&again, &key("web"), ahead).len(), 1);
    }

    #[test]
    fn a_link_instead_of_a_file_is_not_followed() {
        let (dir, mut files) = files();
        let target = dir.path().join("precious");
        std::fs::write(&target, b"precious").unwrap();
        private::dir(&files.dir).unwrap();
        std::os::unix::fs::symlink(&target, files.path(&key("web"))).unwrap();

        assert!(files.write(&key("web"), &[step(NOW, 1.0)]).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    }
}
