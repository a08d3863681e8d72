//! Logs on a real host: what is shown, and what is not.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};

use proctor_model::samples::spec;
use proctor_runtime::Tasks;
use rustix::fs::{CWD, mknodat};
use tempfile::TempDir;

use super::*;

struct World {
    dir: TempDir,
    host: Host,
    _tasks: Tasks,
}

impl World {
    /// In a tokio runtime. Others may enter its directory.
    fn new() -> Self {
        let (dir, tasks) = (TempDir::new().unwrap(), Tasks::default());
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let host = Host::new(proctor_host::Options::new(dir.path().join("state")), &tasks).unwrap();
        Self { dir, host, _tasks: tasks }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn log(&self, user: &str, log_path: &str) -> LogFile {
        let spec = spec(|spec| {
            spec.identity.setup_path = self.dir.path().to_str().unwrap().parse().unwrap();
            spec.identity.proc_name = "app".parse().unwrap();
            spec.identity.user = user.parse().unwrap();
            spec.identity.log_path = Some(log_path.parse().unwrap());
        });
        let path = path_of(&spec.identity).unwrap();
        LogFile { host: self.host.clone(), identity: spec.identity.clone(), path, policy: None }
    }

    fn read(&self, log_path: &str) -> LogTail {
        self.log(&us(), log_path).read(&LogQuery::default())
    }

    fn follow(&self, log_path: &str, since: LogPosition) -> LogTail {
        self.log(&us(), log_path).read(&LogQuery { since: Some(since), ..LogQuery::default() })
    }
}

/// Who runs the tests: without root, the agent's own rights are all there is.
pub(crate) fn us() -> String {
    let uid = nix::unistd::geteuid();
    nix::unistd::User::from_uid(uid).unwrap().expect("who runs the tests has a name").name
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn text(tail: &LogTail) -> &str {
    assert_eq!(tail.state, LogState::Read, "{tail:?}");
    std::str::from_utf8(&tail.bytes).unwrap()
}

#[tokio::test]
async fn the_last_lines_are_read_and_then_what_was_written_since() {
    let world = World::new();
    let path = world.write("app.log", "one\ntwo\nthree\n", 0o644);
    let log = world.log(&us(), "app.log");

    let two = log.read(&LogQuery { lines: 2, since: None });
    let nothing_new = world.follow("app.log", two.end);
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all("four\nfünf".as_bytes()).unwrap();
    file.write_all(&"é".as_bytes()[..1]).unwrap();
    let new = world.follow("app.log", two.end);
    file.write_all(&"é".as_bytes()[1..]).unwrap();
    let rest = world.follow("app.log", new.end);

    assert_eq!((text(&two), two.size, two.path.as_str()), ("two\nthree\n", 14, path.to_str().unwrap()));
    assert_eq!((text(&nothing_new), nothing_new.end), ("", two.end));
    assert_eq!((text(&new), new.restarted), ("four\nfünf", false), "half a character waits for its other half");
    assert_eq!(text(&rest), "é");
}

#[tokio::test]
async fn a_log_that_was_rotated_or_truncated_begins_anew() {
    let world = World::new();
    let path = world.write("app.log", "one\ntwo\n", 0o644);
    let before = world.read("app.log");

    std::fs::rename(&path, world.path("app.log.1")).unwrap();
    let gone = world.follow("app.log", before.end);
    world.write("app.log", "a longer line than those before\n", 0o644);
    let rotated = world.follow("app.log", before.end);
    world.write("app.log", "x\n", 0o644);
    let truncated = world.follow("app.log", rotated.end);

    assert_eq!(gone.state, LogState::Missing);
    assert_eq!((text(&rotated), rotated.restarted), ("a longer line than those before\n", true));
    assert_eq!((text(&truncated), truncated.restarted), ("x\n", true));
}

#[tokio::test]
async fn a_huge_log_costs_its_last_60_kib_and_who_is_behind_is_told_how_far() {
    let world = World::new();
    let path = world.write("app.log", "begin\n", 0o644);
    let begin = world.read("app.log");
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap(); // nothing of it is on the disk
    io::Seek::seek(&mut file, io::SeekFrom::End(0)).unwrap();
    (0..20_000).for_each(|number| writeln!(file, "line {number}").unwrap());

    let all = world.log(&us(), "app.log").read(&LogQuery { lines: proctor_model::LOG_LINES_MAX, since: None });
    let behind = world.follow("app.log", begin.end);

    let lines: Vec<&str> = text(&all).lines().collect();
    assert_eq!((lines.len(), *lines.last().unwrap()), (2000, "line 19999"));
    assert!(behind.bytes.len() <= LOG_BYTES_MAX && text(&behind).starts_with("line "), "{behind:?}");
    assert_eq!(begin.end.offset + behind.skipped + behind.bytes.len() as u64, behind.size);
    assert!(!behind.restarted);
}

#[tokio::test]
async fn one_endless_line_is_cut_and_bytes_that_are_no_text_are_kept() {
    let world = World::new();
    std::fs::write(world.path("app.log"), vec![0xFF; 3 * LOG_BYTES_MAX]).unwrap();

    let tail = world.read("app.log");

    assert_eq!((tail.state, tail.bytes.len()), (LogState::Read, LOG_BYTES_MAX));
    assert!(tail.bytes.iter().all(|byte| *byte == 0xFF));
}

#[tokio::test]
async fn a_directory_stands_for_the_log_of_its_process_or_the_newest_one() {
    let world = World::new();
    for name in ["empty", "named", "others"] {
        std::fs::create_dir(world.path(name)).unwrap();
    }
    world.write("named/app.log", "named\n", 0o644);
    world.write("named/other.log", "other\n", 0o644);
    let old = world.write("others/old.log", "old\n", 0o644);
    world.write("others/new.log", "new\n", 0o644);
    world.write("others/secret.key", "secret\n", 0o644);
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    File::options().write(true).open(old).unwrap().set_modified(long_ago).unwrap();
    world.write("others/newer.log.gz", "zipped\n", 0o644);

    assert_eq!(text(&world.read("named/")), "named\n");
    assert_eq!(text(&world.read("others")), "new\n");
    assert_eq!(world.read("empty").state, LogState::NotALog);
    assert_eq!(world.read("absent/app.log").state, LogState::Missing);
}

#[tokio::test]
async fn a_fifo_a_device_and_a_ring_of_links_are_refused_at_once() {
    let world = World::new();
    mknodat(CWD, world.path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    symlink("/dev/zero", world.path("device")).unwrap();
    symlink("b", world.path("a")).unwrap();
    symlink("a", world.path("b")).unwrap();

    for name in ["fifo", "/dev/zero", "/dev/tty", "device", "a"] {
        let tail = world.read(name);
        assert_eq!((tail.state, tail.bytes.len()), (LogState::NotALog, 0), "{name}: {tail:?}");
    }
    // A regular file by its kind, and without an end that could be read.
    assert_eq!(text(&world.read("/proc/self/environ")), "");
}

#[tokio::test]
async fn a_link_is_followed_where_the_user_or_root_has_made_it() {
    let world = World::new();
    world.write("app-1.log", "one\n", 0o644);
    symlink("app-1.log", world.path("current.log")).unwrap();

    assert_eq!(text(&world.read("current.log")), "one\n");
    if is_root() {
        // Somebody who may write to the directory points root elsewhere.
        lchown(world.path("current.log"), Some(4242), Some(4242)).unwrap();
        let tail = world.read("current.log");
        assert_eq!((tail.state, tail.bytes.len()), (LogState::NotALog, 0), "{tail:?}");
    }
}

#[tokio::test]
async fn links_in_the_way_are_those_of_the_user_or_root_and_those_of_proc_are_taken_by_their_text() {
    let world = World::new();
    std::fs::create_dir(world.path("dir")).unwrap();
    world.write("dir/app.log", "one\n", 0o644);
    symlink("dir", world.path("way")).unwrap();
    symlink("/proc", world.path("proc")).unwrap();
    let directory = File::open(world.path("dir")).unwrap();
    let by_descriptor = format!("proc/self/fd/{}/app.log", directory.as_raw_fd());

    assert_eq!(text(&world.read("way/app.log")), "one\n");
    assert_eq!(text(&world.read("way/../dir/./app.log")), "one\n");
    assert_eq!(text(&world.read(&by_descriptor)), "one\n");
    std::fs::rename(world.path("dir"), world.path("moved")).unwrap();
    std::fs::remove_file(world.path("moved/app.log")).unwrap();
    std::fs::remove_dir(world.path("moved")).unwrap();
    assert_eq!(world.read(&by_descriptor).state, LogState::Missing);
    if is_root() {
        std::fs::create_dir(world.path("dir")).unwrap();
        world.write("dir/app.log", "two\n", 0o644);
        lchown(world.path("way"), Some(4242), Some(4242)).unwrap();
        for path in ["way/app.log", "way"] {
            let tail = world.read(path);
            assert_eq!((tail.state, tail.bytes.len()), (LogState::NotALog, 0), "{tail:?}");
            assert!(tail.problem.starts_with("'way' is a link that neither root nor user"), "{}", tail.problem);
        }
    }
}

#[tokio::test]
async fn an_agent_that_is_not_root_reads_the_logs_of_its_own_account_alone() {
    if !is_root() {
        return proctor_testkit::skip("only root takes the rights of others");
    }
    let world = World::new();
    world.write("app.log", "one\n", 0o644);
    let read = |user: &str| world.log(user, "app.log").read(&LogQuery::default());

    let (own, roots) = world.host.user("nobody").unwrap().run(|| (read("nobody"), read("root"))).unwrap();

    assert_eq!(text(&own), "one\n");
    assert_eq!((roots.state, roots.bytes.len()), (LogState::Denied, 0), "{roots:?}");
    assert_eq!(roots.problem, "the agent runs as nobody and cannot read logs as user 'root'");
}

#[tokio::test]
async fn nobody_learns_through_the_agent_what_the_user_of_the_process_could_not_read() {
    if !is_root() {
        return proctor_testkit::skip("only root takes the rights of others");
    }
    let world = World::new();
    world.write("own.log", "own\n", 0o644);
    world.write("roots.log", "hush\n", 0o600);
    symlink("roots.log", world.path("link.log")).unwrap();
    lchown(world.path("link.log"), Some(65534), Some(65534)).unwrap();
    std::fs::create_dir(world.path("private")).unwrap();
    std::fs::set_permissions(world.path("private"), std::fs::Permissions::from_mode(0o700)).unwrap();
    world.write("private/app.log", "hush\n", 0o644);
    let read = |path: &str| world.log("nobody", path).read(&LogQuery::default());

    assert_eq!(text(&read("own.log")), "own\n");
    let directory = File::open(world.path("private")).unwrap();
    let past = format!("{}/app.log", descriptor_path(&directory));
    assert!(Path::new(&past).exists());
    let tail = read(&past);
    assert_eq!((tail.state, tail.bytes.len()), (LogState::Denied, 0), "{tail:?}");
    for path in [
        "roots.log",
        "link.log",
        "private",
        "private/app.log",
        "/etc/shadow",
        "/proc/1/environ",
        "/proc/1/cwd/etc/passwd",
    ] {
        let tail = read(path);
        assert_eq!((tail.state, tail.bytes.len()), (LogState::Denied, 0), "{path}: {tail:?}");
    }
    let unknown = world.log("no-such-user", "own.log").read(&LogQuery::default());
    assert_eq!((unknown.state, unknown.bytes.len()), (LogState::Unreadable, 0), "{unknown:?}");
}

#[tokio::test]
async fn the_paths_of_the_hosts_policy_bound_logs_too() {
    let world = World::new();
    std::fs::create_dir(world.path("allowed")).unwrap();
    world.write("allowed/app.log", "inside\n", 0o644);
    world.write("secret", "hush\n", 0o644);
    symlink("../secret", world.path("allowed/link.log")).unwrap();
    let text_of_policy = format!("paths = [{:?}]\n", world.path("allowed"));
    let policy = Arc::new(Policy::parse(Path::new("/etc/policy.toml"), &text_of_policy).unwrap());
    let read = |path: &str| {
        let policy = Some((policy.clone(), "ns".parse().unwrap()));
        LogFile { policy, ..world.log(&us(), path) }.read(&LogQuery::default())
    };

    assert_eq!(text(&read("allowed/app.log")), "inside\n");
    assert_eq!(text(&read("allowed")), "inside\n");
    for path in ["secret", "allowed/link.log", "allowed/../secret", "/etc/passwd"] {
        let tail = read(path);
        assert_eq!((tail.state, tail.bytes.len()), (LogState::Forbidden, 0), "{path}: {tail:?}");
    }
}
