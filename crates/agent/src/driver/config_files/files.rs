//! The files of a configmap on disk, compared with what they should be.
//!
//! Promised: a file is read only if it may have changed, never more than [`FILE_BYTES_MAX`] of one and
//! [`CHECK_BYTES_MAX`] per check, and only with the permissions of the process's user, never past a directory that
//! this user may not enter; only transitions between matching and not matching are reported.
//! Absent: a timeout, so this runs on a thread that may hang; and the contents of a file that does not match, which
//! are never disclosed.

use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use md5::{Digest, Md5};
use proctor_host::UserRights;
use proctor_host::untrusted_path::{self, Found};
use proctor_model::{ConfigFile, Namespace, UserName};

use crate::policy::Policy;
use crate::regular_file::Stamp;

/// A configuration is smaller; whatever is larger is not worth a minute of the disk.
pub(super) const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The rest waits for the next check.
const CHECK_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// A file that changed so recently may change again without another time stamp.
const SETTLED_SECS: i64 = 2;
const BUFFER_BYTES: usize = 64 * 1024;

/// Which files may be read: those inside the paths of the host's policy, and readable by the process's user. By
/// comparing hashes a caller would learn what is in the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    policy: Option<(Arc<Policy>, Namespace)>,
    /// None: with the agent's own rights.
    user: Option<(UserRights, UserName)>,
}

impl Bounds {
    pub(super) fn new(policy: Option<Arc<Policy>>, namespace: &Namespace) -> Self {
        Self { policy: policy.map(|policy| (policy, namespace.clone())), user: None }
    }

    /// The error is a human-readable reason why nothing can be read: an agent that is not root has only its own
    /// permissions.
    pub(super) fn of_user(self, rights: UserRights, user: UserName) -> Result<Self, String> {
        rights.check("check configuration files")?;
        Ok(Self { user: Some((rights, user)), ..self })
    }

    fn allow(&self, path: &Path) -> bool {
        self.policy.as_ref().is_none_or(|(policy, namespace)| policy.allows_file(namespace, path))
    }

    /// A link may have been changed since.
    fn allow_found(&self, found: &Found) -> io::Result<bool> {
        let Some((policy, namespace)) = &self.policy else { return Ok(true) };
        Ok(policy.allows_opened(namespace, &found.real_path()?))
    }

    /// What a path leads to, as the user sees it.
    fn find(&self, path: &Path) -> Result<Found, State> {
        let found = self.look(|| {
            if !self.allow(path) {
                return Ok(None);
            }
            let found = untrusted_path::find(path)?;
            Ok(self.allow_found(&found)?.then_some(found))
        })?;
        found.ok_or(State::Outside)
    }

    /// Checks a file with the user's permissions: what the kernel opens for the user, the user may read.
    fn look<T>(&self, look: impl FnOnce() -> io::Result<T>) -> Result<T, State> {
        let looked = match &self.user {
            Some((rights, _)) => rights.run(look).map_err(State::Unreadable)?,
            None => look(),
        };
        let is_loop = |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
        looked.map_err(|error| match (error.kind(), &self.user) {
            (ErrorKind::NotFound | ErrorKind::NotADirectory, _) => State::Missing,
            (ErrorKind::PermissionDenied, Some((_, user))) => {
                State::Unreadable(format!("user '{}' may not read it", user.as_str()))
            }
            _ if is_loop(&error) => {
                State::Unreadable("its path leads through links of /proc, or through too many links".to_owned())
            }
            _ => State::Unreadable(error.to_string()),
        })
    }
}

/// One file, as it was seen last.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    file: ConfigFile,
    /// None: to be read at the next check, whatever it looks like.
    stamp: Option<Stamp>,
    /// None: not seen yet.
    state: Option<State>,
    /// The number of the last check that reached it.
    checked: u64,
}

/// The result of checking a file.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    AsBefore,
    /// It must be read, and there is no room for that in this check.
    Later,
    Seen(State, Option<Stamp>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Right,
    Differs,
    Missing,
    TooLarge,
    Unreadable(String),
    /// Not read: its md5 would reveal a file that is none of the caller's business.
    Outside,
}

#[derive(Debug)]
pub(super) struct Change {
    pub(super) file: ConfigFile,
    pub(super) state: State,
}

impl State {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Differs => "differs",
            Self::Missing => "missing",
            Self::TooLarge => "too_large",
            Self::Unreadable(_) => "unreadable",
            Self::Outside => "outside",
        }
    }
}

impl Watched {
    pub(super) fn new(file: ConfigFile) -> Self {
        Self { file, stamp: None, state: None, checked: 0 }
    }

    pub(super) fn path(&self) -> &str {
        self.file.path.as_str()
    }

    /// The same file, with a possibly different expectation.
    pub(super) fn expecting(mut self, file: &ConfigFile) -> Self {
        if self.file != *file {
            self.file = file.clone();
            self.stamp = None;
        }
        self
    }

    fn check(&mut self, number: u64, now_secs: i64, budget: &mut u64, bounds: &Bounds) -> Option<Change> {
        let (state, stamp) = match self.look(budget, bounds) {
            Look::Later => return None,
            Look::AsBefore => {
                self.checked = number;
                return None;
            }
            Look::Seen(state, stamp) => (state, stamp),
        };
        self.checked = number;
        self.stamp = stamp.filter(|stamp| now_secs.saturating_sub(stamp.changed_at()) >= SETTLED_SECS);
        self.become_known(state)
    }

    fn become_known(&mut self, state: State) -> Option<Change> {
        let is_right = state == State::Right;
        let was_right = self.state.replace(state.clone()).is_none_or(|before| before == State::Right);
        (is_right != was_right).then(|| Change { file: self.file.clone(), state })
    }

    fn look(&self, budget: &mut u64, bounds: &Bounds) -> Look {
        let found = match bounds.find(Path::new(self.path())) {
            Ok(found) => found,
            Err(state) => return Look::Seen(state, None),
        };
        let metadata = found.metadata();
        let stamp = Stamp::of(metadata);
        if self.stamp == Some(stamp) {
            return Look::AsBefore;
        }
        if self.file.md5.is_empty() {
            return Look::Seen(State::Right, Some(stamp));
        }
        if metadata.is_file() && metadata.len() > FILE_BYTES_MAX {
            return Look::Seen(State::TooLarge, Some(stamp));
        }
        let Some(left) = budget.checked_sub(metadata.len()) else { return Look::Later };
        *budget = left;
        match md5_of(&found, bounds) {
            Ok((Some(md5), stamp)) if md5.eq_ignore_ascii_case(self.file.md5.trim()) => {
                Look::Seen(State::Right, Some(stamp))
            }
            Ok((Some(_), stamp)) => Look::Seen(State::Differs, Some(stamp)),
            Ok((None, stamp)) => Look::Seen(State::TooLarge, Some(stamp)),
            Err(state) => Look::Seen(state, None),
        }
    }
}

/// What has stopped or started matching since the last check; numbers increase from check to check. Once `is_late`,
/// no other file is checked. The next check begins with those that this one does not reach, so that none is starved.
pub(super) fn check(
    files: &mut [Watched],
    number: u64,
    now_secs: i64,
    bounds: &Bounds,
    is_late: impl Fn() -> bool,
) -> Vec<Change> {
    let mut budget = CHECK_BYTES_MAX;
    files.sort_by_key(|file| file.checked);
    let in_time = files.iter_mut().take_while(|_| !is_late());
    in_time.filter_map(|file| file.check(number, now_secs, &mut budget, bounds)).collect()
}

/// Reports for all files why they cannot be checked.
pub(super) fn give_up(files: &mut [Watched], reason: &str) -> Vec<Change> {
    let unreadable = |file: &mut Watched| {
        file.stamp = None;
        file.become_known(State::Unreadable(reason.to_owned()))
    };
    files.iter_mut().filter_map(unreadable).collect()
}

/// None: it has grown too large since it was checked.
fn md5_of(found: &Found, bounds: &Bounds) -> Result<(Option<String>, Stamp), State> {
    let (file, metadata) = bounds.look(|| found.open())?;
    let unreadable = |error: io::Error| State::Unreadable(error.to_string());
    let mut file = file.take(FILE_BYTES_MAX + 1);
    let (mut hasher, mut buffer, mut bytes) = (Md5::new(), vec![0; BUFFER_BYTES], 0);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    let md5 = (bytes <= FILE_BYTES_MAX).then(|| proctor_pki::hex(&hasher.finalize()));
    Ok((md5, Stamp::of(&metadata)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5_OF_ONE: &str = "F97C5D29941BFB1B2FDAB0874906AB82"; // md5 of "one"
    /// Later than every change of the files here.
    const LATER: i64 = i64::MAX;

    struct World {
        dir: tempfile::TempDir,
        files: Vec<Watched>,
        bounds: Bounds,
        number: u64,
    }

    impl World {
        fn new(md5: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("app.conf").to_str().unwrap().parse().unwrap();
            let world = Self {
                dir,
                files: vec![Watched::new(ConfigFile { path, md5: md5.to_owned() })],
                bounds: Bounds::default(),
                number: 0,
            };
            world.write("one");
            world
        }

        fn write(&self, text: &str) {
            std::fs::write(self.path(), text).unwrap();
        }

        fn path(&self) -> std::path::PathBuf {
            self.dir.path().join("app.conf")
        }

        fn check_at(&mut self, now_secs: i64) -> Vec<State> {
            self.number += 1;
            let changes = check(&mut self.files, self.number, now_secs, &self.bounds, || false);
            changes.into_iter().map(|change| change.state).collect()
        }

        fn check(&mut self) -> Vec<State> {
            self.check_at(LATER)
        }
    }

    #[test]
    fn a_file_that_is_right_from_the_beginning_is_no_news() {
        let mut world = World::new(MD5_OF_ONE);

        assert_eq!(world.check(), []);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn files_that_a_slow_check_does_not_reach_are_not_unreadable_and_checked_next_time() {
        let mut world = World::new(MD5_OF_ONE);
        let other = world.dir.path().join("other.conf").to_str().unwrap().parse().unwrap();
        world.files.push(Watched::new(ConfigFile { path: other, md5: MD5_OF_ONE.to_owned() }));
        let looks = std::cell::Cell::new(0);
        let is_late = || looks.replace(looks.get() + 1) > 0;

        let changes = check(&mut world.files, 1, LATER, &world.bounds, is_late);

        assert_eq!(changes.len(), 0, "{changes:?}");
        assert_eq!(world.files.iter().map(|file| file.state.clone()).collect::<Vec<_>>(), [Some(State::Right), None]);
        assert_eq!(world.check(), [State::Missing]);
    }

    #[test]
    fn however_slow_the_checks_are_each_file_has_its_turn() {
        let mut world = World::new(MD5_OF_ONE);
        let missing = |name: &str| {
            let path = world.dir.path().join(name).to_str().unwrap().parse().unwrap();
            Watched::new(ConfigFile { path, md5: MD5_OF_ONE.to_owned() })
        };
        world.files = ["a", "b", "c"].map(missing).into();
        let mut seen = Vec::new();

        for number in 1..=3 {
            // In the order of the configmap, as at every check.
            world.files.sort_by(|one, other| one.path().cmp(other.path()));
            let looks = std::cell::Cell::new(0);
            let is_late = || looks.replace(looks.get() + 1) > 0;
            let changes = check(&mut world.files, number, LATER, &world.bounds, is_late);
            seen.extend(changes.iter().map(|change| change.file.path.as_str().rsplit('/').next().unwrap().to_owned()));
        }

        assert_eq!(seen, ["a", "b", "c"]);
    }

    #[test]
    fn becoming_wrong_and_becoming_right_again_are_told_once_each() {
        let mut world = World::new(MD5_OF_ONE);
        world.check();

        world.write("three");
        assert_eq!(world.check(), [State::Differs]);
        world.write("four!");
        assert_eq!(world.check(), []);
        std::fs::remove_file(world.path()).unwrap();
        assert_eq!(world.check(), [], "it was wrong already");
        world.write("one");
        assert_eq!(world.check(), [State::Right]);
    }

    #[test]
    fn a_missing_file_is_told_at_the_first_check() {
        let mut world = World::new(MD5_OF_ONE);
        std::fs::remove_file(world.path()).unwrap();

        assert_eq!(world.check(), [State::Missing]);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn without_an_md5_only_existence_counts() {
        let mut world = World::new("");
        world.check();

        world.write("three");
        assert_eq!(world.check(), []);
        std::fs::remove_file(world.path()).unwrap();
        assert_eq!(world.check(), [State::Missing]);
    }

    #[test]
    fn a_huge_file_is_not_read() {
        let mut world = World::new(MD5_OF_ONE);
        std::fs::File::create(world.path()).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();

        assert_eq!(world.check(), [State::TooLarge]);
    }

    #[test]
    fn a_pipe_is_told_and_not_waited_for() {
        let mut world = World::new(MD5_OF_ONE);
        std::fs::remove_file(world.path()).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, world.path(), rustix::fs::FileType::Fifo, mode, 0).unwrap();

        assert_eq!(world.check(), [State::Unreadable("it is not a regular file".to_owned())]);
    }

    #[test]
    fn a_file_is_read_again_only_when_its_stamp_changes_or_is_too_fresh_to_be_trusted() {
        let mut world = World::new(MD5_OF_ONE);
        let changed_at = Stamp::of(&std::fs::metadata(world.path()).unwrap()).changed_at();

        world.check_at(changed_at + 1);
        assert_eq!(world.files[0].stamp, None, "too fresh");
        world.check_at(changed_at + 2);
        let stamp = world.files[0].stamp;
        assert!(stamp.is_some());
        let nothing_left = world.files[0].look(&mut 0, &world.bounds);
        assert_eq!(nothing_left, Look::AsBefore, "it costs nothing of the budget");
    }

    #[test]
    fn what_is_over_the_bound_of_a_check_is_read_another_time() {
        let mut world = World::new(MD5_OF_ONE);
        world.write("three");

        assert!(world.files[0].check(1, LATER, &mut 2, &world.bounds).is_none());
        assert_eq!(world.files[0].state, None);
        assert_eq!(world.check(), [State::Differs]);
    }

    #[test]
    fn a_file_outside_the_policys_paths_tells_nothing_about_itself() {
        let mut world = World::new(MD5_OF_ONE);
        let elsewhere = tempfile::tempdir().unwrap();
        let text = format!("paths = [{:?}]", elsewhere.path());
        let policy = Arc::new(Policy::parse(Path::new("/policy.toml"), &text).unwrap());
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(world.path(), &link).unwrap();
        world.bounds = Bounds::new(Some(policy), &"web".parse().unwrap());
        let mut told = Vec::new();

        for path in [world.path(), world.path().with_extension("missing"), link] {
            let path = path.to_str().unwrap().parse().unwrap();
            world.files = vec![Watched::new(ConfigFile { path, md5: MD5_OF_ONE.to_owned() })];
            told.extend(world.check());
        }
        let found = untrusted_path::find(&world.path()).unwrap();

        assert_eq!(told, [State::Outside, State::Outside, State::Outside]);
        assert!(!world.bounds.allow_found(&found).unwrap(), "a link that was changed after the look");
    }

    #[tokio::test]
    async fn a_file_that_the_user_may_not_read_is_neither_hashed_nor_found() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::PermissionsExt;
        if !rustix::process::geteuid().is_root() {
            return proctor_testkit::skip("only root reads files as other users");
        }
        let (mut world, tasks) = (World::new(MD5_OF_ONE), proctor_runtime::Tasks::default());
        let state = tempfile::tempdir().unwrap();
        let options = proctor_host::Options::new(state.path());
        let host = proctor_host::Host::new(options, &tasks).unwrap();
        let bounds_of = |user: &str| Bounds::default().of_user(host.user(user).unwrap(), user.parse().unwrap());
        let set_mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let of = |path: &Path| {
            let path = path.to_str().unwrap().parse().unwrap();
            vec![Watched::new(ConfigFile { path, md5: MD5_OF_ONE.to_owned() })]
        };
        let denied = || vec![State::Unreadable("user 'nobody' may not read it".to_owned())];
        world.bounds = bounds_of("nobody").unwrap();
        set_mode(world.dir.path(), 0o755);

        set_mode(&world.path(), 0o600);
        assert_eq!(world.check(), denied());
        set_mode(&world.path(), 0o644);
        assert_eq!(world.check(), [State::Right]);
        set_mode(world.dir.path(), 0o700);
        for path in [world.path(), world.path().with_extension("missing")] {
            world.files = of(&path);
            assert_eq!(world.check(), denied(), "whether it is there is not told either");
        }
        let directory = std::fs::File::open(world.dir.path()).unwrap();
        let past = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join("app.conf");
        assert!(past.exists());
        world.files = of(&past);
        assert_eq!(world.check().len(), 1, "a link of /proc leads past the directory");
        world.bounds = bounds_of("root").unwrap();
        world.files = of(&world.path());
        assert_eq!(world.check(), []);
        let unprivileged = host.user("nobody").unwrap().run(|| bounds_of("root")).unwrap();
        let reason = "the agent runs as nobody and cannot check configuration files as user 'root'";
        assert_eq!(unprivileged.unwrap_err(), reason);
        tasks.end(std::time::Duration::from_secs(10)).await;
    }

    #[test]
    fn another_expectation_is_checked_against_the_same_file() {
        let mut world = World::new("0123");
        assert_eq!(world.check(), [State::Differs]);

        let file = ConfigFile { md5: MD5_OF_ONE.to_owned(), ..world.files[0].file.clone() };
        world.files = world.files.drain(..).map(|watched| watched.expecting(&file)).collect();

        assert_eq!(world.check(), [State::Right]);
    }
}
