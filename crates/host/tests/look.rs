//! From a pid file to a life, with files and processes of every kind.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use common::{PATIENCE, Started, World, eventually, identity, is_dead, is_root, leaf, numbers, stat};
use proctor_host::{Leaf, TrackingPreference};
use proctor_model::Probe;
use proctor_testkit::skip;

#[tokio::test]
async fn a_pid_file_leads_to_the_life_of_its_process() {
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    let path = world.path("x.pid");

    for text in [format!("{}", process.pid()), format!("  {}  \r\n7\n", process.pid())] {
        fs::write(&path, text).unwrap();
        let life = world.life("sleep", &path).await;

        assert_eq!((life.pid, Some(life.start_ticks)), (process.pid(), stat(process.pid()).map(|stat| stat.2)));
        assert_eq!(&life.boot, world.host.boot_id());
    }
}

#[tokio::test]
async fn hostile_content_is_refused_with_the_file_in_the_reason() {
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    let (path, pid) = (world.path("x.pid"), process.pid());
    let hostile: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"\n".to_vec(),
        b"abc".to_vec(),
        b"-1".to_vec(),
        b"0".to_vec(),
        b"1".to_vec(),
        b"2147483648".to_vec(),
        b"1073741824".to_vec(),
        vec![b'4'; 4 * 1024 * 1024],
        std::process::id().to_string().into_bytes(),
        format!("{pid}\0").into_bytes(),
        format!("abc\n{pid}\n").into_bytes(),
        format!("+{pid}").into_bytes(),
        format!("{pid} {pid}").into_bytes(),
        format!("\u{feff}{pid}").into_bytes(),
        [vec![0xff, 0xfe], format!("{pid}").encode_utf16().flat_map(u16::to_le_bytes).collect()].concat(),
    ];
    for content in hostile {
        fs::write(&path, &content).unwrap();

        let reason = world.absent("sleep", &path).await;

        assert!(reason.contains(path.to_str().unwrap()), "{reason}");
        assert!(reason.len() < path.to_str().unwrap().len() + 100, "{reason}");
        assert!(!reason.contains(char::is_control), "{reason:?}");
    }
}

#[tokio::test]
async fn a_missing_pid_file_is_named() {
    let world = World::new();
    let path = world.path("none.pid");

    let reason = world.absent("sleep", &path).await;

    assert_eq!(reason, format!("no pid file {}", path.display()));
}

#[tokio::test]
async fn a_fifo_a_link_and_a_socket_are_no_pid_files() {
    let world = World::new();
    let (fifo, link, socket) = (world.path("fifo"), world.path("link"), world.path("socket"));
    make_fifo(&fifo);
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(world.path("x.pid"), process.pid().to_string()).unwrap();
    symlink(world.path("x.pid"), &link).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();

    for (path, word) in [(fifo, "FIFO"), (link, "symbolic link"), (socket, "socket")] {
        let looking = world.absent("sleep", &path);
        let reason = tokio::time::timeout(PATIENCE, looking).await.unwrap();

        assert!(reason.contains(word), "{reason}");
    }
}

#[tokio::test]
async fn a_pid_file_behind_a_magic_link_of_proc_is_not_read() {
    use std::os::fd::AsRawFd;
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(world.path("sleep.pid"), process.pid().to_string()).unwrap();
    let open = fs::File::open(world.root.path()).unwrap();
    let directory = std::path::PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    symlink(&directory, world.path("way")).unwrap();
    assert!(directory.join("sleep.pid").exists(), "the kernel follows it");

    for path in [directory.join("sleep.pid"), world.path("way/sleep.pid"), world.path("way/"), directory.join("")] {
        let looked = world.look("sleep", &path).await;
        assert!(matches!(looked, Probe::Unclear { named: None, .. }), "{}: {looked:?}", path.display());
    }
    for path in [world.path("way"), directory] {
        let looked = world.look("sleep", &path).await;
        assert!(matches!(looked, Probe::Absent(_)), "a link at the end is no pid file: {looked:?}");
    }
}

fn make_fifo(path: &std::path::Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
        .expect("a FIFO");
}

#[tokio::test]
async fn a_directory_stands_for_a_file_named_after_the_process() {
    let world = World::new();
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(world.path("sleep.pid"), process.pid().to_string()).unwrap();

    let plain = world.look("sleep", world.root.path()).await;
    let slash = world.look("sleep", &world.path("")).await;
    let absent = world.absent("nginx", &world.path("missing/")).await;

    assert!(matches!(plain, Probe::Running(life) if life.pid == process.pid()));
    assert!(matches!(slash, Probe::Running(life) if life.pid == process.pid()));
    assert_eq!(absent, format!("no pid file {}", world.path("missing/nginx.pid").display()));
}

#[tokio::test]
async fn a_stale_pid_is_absent() {
    let world = World::new();
    let path = world.path("x.pid");
    let process = Started::new("/bin/true", &[]);
    let pid = process.pid();
    drop(process);
    fs::write(&path, pid.to_string()).unwrap();

    let reason = world.absent("true", &path).await;

    assert_eq!(reason, format!("pid {pid} of {} does not run", path.display()));
}

#[tokio::test]
async fn a_process_of_another_name_is_absent() {
    let world = World::new();
    let path = world.path("x.pid");
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(&path, process.pid().to_string()).unwrap();

    let reason = world.absent("nginx", &path).await;

    assert_eq!(reason, format!("pid {} of {} is 'sleep', not 'nginx'", process.pid(), path.display()));
}

#[tokio::test]
async fn a_script_is_named_by_its_file() {
    let world = World::new();
    let (path, script) = (world.path("x.pid"), world.path("server.sh"));
    fs::write(&script, "echo ready > \"$1\"; while :; do sleep 1000; done").unwrap();
    let ready = world.path("ready");
    let process = Started::new("/bin/sh", &[script.to_str().unwrap(), ready.to_str().unwrap()]);
    fs::write(&path, process.pid().to_string()).unwrap();
    eventually("the script runs", || ready.exists()).await;

    let life = world.life("server.sh", &path).await;
    let other = world.absent("other.sh", &path).await;

    assert_eq!(life.pid, process.pid());
    assert!(other.contains("not 'other.sh'"), "{other}");
    world.host.kill_tree(&life).await.unwrap();
}

#[tokio::test]
async fn a_deleted_binary_keeps_its_name() {
    let world = World::new();
    let (path, binary) = (world.path("x.pid"), world.path("server"));
    fs::copy("/bin/sleep", &binary).unwrap();
    let child = std::process::Command::new(&binary).arg0("other").arg("1000").spawn();
    let process = Started(child.unwrap());
    fs::write(&path, process.pid().to_string()).unwrap();
    world.life("server", &path).await;

    fs::remove_file(&binary).unwrap();
    let life = world.life("server", &path).await;

    assert_eq!(life.pid, process.pid());
}

#[tokio::test]
async fn a_known_life_needs_no_name() {
    let world = World::new();
    let path = world.path("x.pid");
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(&path, process.pid().to_string()).unwrap();
    let life = world.life("sleep", &path).await;
    let mut earlier = life.clone();
    earlier.start_ticks -= 1;

    let known = world.host.look(&leaf(), &identity("renamed", &path), Some(&life)).await;
    let unknown = world.host.look(&leaf(), &identity("renamed", &path), Some(&earlier)).await;

    assert_eq!(known, Probe::Running(life));
    assert!(matches!(unknown, Probe::Absent(_)));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_does_not_make_a_known_life_absent() {
    let world = World::new();
    let path = world.path("x.pid");
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(&path, process.pid().to_string()).unwrap();
    let life = world.life("sleep", &path).await;
    let unreadable = world.path(&"x".repeat(300));

    let alive = world.host.look(&leaf(), &identity("sleep", &unreadable), Some(&life)).await;
    drop(process);
    let dead = world.host.look(&leaf(), &identity("sleep", &unreadable), Some(&life)).await;

    assert_eq!(alive, Probe::Running(life));
    assert!(matches!(dead, Probe::Unclear { reason, .. } if reason.contains("cannot be opened")));
}

#[tokio::test]
async fn a_process_that_began_after_its_pid_file_was_written_is_unclear() {
    let world = World::new();
    let path = world.path("x.pid");
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(&path, process.pid().to_string()).unwrap();
    let life = world.life("sleep", &path).await;
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    let look_at = async |age: u64, known| {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(written - Duration::from_secs(age)).unwrap();
        world.host.look(&leaf(), &identity("sleep", &path), known).await
    };

    let (fresh, stale, known) = (look_at(1, None).await, look_at(60, None).await, look_at(60, Some(&life)).await);

    assert_eq!(fresh, Probe::Running(life.clone()), "clocks and file systems are not that exact");
    assert!(matches!(stale, Probe::Unclear { reason, .. } if reason.contains("the file is stale")));
    assert_eq!(known, Probe::Running(life.clone()));
}

fn make_older(path: &std::path::Path, age: Duration) {
    let file = fs::File::options().write(true).open(path).expect("a pid file");
    let written = file.metadata().and_then(|metadata| metadata.modified()).expect("the time of its last change");
    file.set_modified(written - age).expect("its own file");
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn what_our_commands_started_is_known_however_old_its_pid_file_seems() {
    for prefer in [TrackingPreference::Best, TrackingPreference::CgroupV1, TrackingPreference::Descendants] {
        let world = World::with_tracking(prefer);
        let path = world.path("x.pid");
        let line = format!("sleep 1000 > /dev/null 2>&1 & echo $! > {}", path.display());
        world.host.run(proctor_host::Command { leaf: Some(leaf()), ..world.command(&line) }).await;
        let life = world.life("sleep", &path).await;
        make_older(&path, MINUTE);

        let ours = world.host.look(&leaf(), &identity("sleep", &path), None).await;
        let anothers = world.host.look(&Leaf::of("ns/other"), &identity("sleep", &path), None).await;
        common::kill_leaf(&world.host, &leaf()).await;

        assert_eq!(ours, Probe::Running(life), "{prefer:?}");
        let is_told = |reason: &str| reason.contains("was started for another managed process");
        assert!(matches!(&anothers, Probe::Absent(reason) if is_told(reason)), "{prefer:?}: {anothers:?}");
    }
}

#[tokio::test]
async fn a_process_that_holds_its_pid_file_open_is_the_one_it_names_however_old_the_file_seems() {
    let world = World::new();
    let path = world.path("x.pid");
    let process = Started::new("/bin/sh", &["-c", &format!("exec sleep 1000 3>> {}", path.display())]);
    eventually("the file is there", || path.exists()).await;
    fs::write(&path, process.pid().to_string()).unwrap();
    let life = world.life("sleep", &path).await;
    make_older(&path, MINUTE);

    assert_eq!(world.look("sleep", &path).await, Probe::Running(life));
}

#[tokio::test]
async fn the_age_of_a_pid_file_does_not_count_where_the_clock_was_set() {
    let world = World::new();
    let path = world.path("x.pid");
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(&path, process.pid().to_string()).unwrap();
    let life = world.life("sleep", &path).await;
    make_older(&path, MINUTE);
    let before = world.look("sleep", &path).await;
    // An agent of this boot has seen a clock that was an hour behind.
    let kept = fs::read_to_string(world.path("state/clock")).unwrap();
    let (boot, millis) = kept.trim().split_once(' ').unwrap();
    let behind = millis.parse::<i64>().unwrap() - 3_600_000;
    fs::write(world.path("state/clock"), format!("{boot} {behind}\n")).unwrap();

    let host = world.again(TrackingPreference::Best);
    let too_young = host.look(&leaf(), &identity("sleep", &path), None).await;
    make_older(&path, 59 * MINUTE);
    let after = host.look(&leaf(), &identity("sleep", &path), None).await;
    make_older(&path, 60 * MINUTE);
    let too_old = host.look(&leaf(), &identity("sleep", &path), None).await;

    assert!(matches!(before, Probe::Unclear { .. }), "{before:?}");
    assert!(matches!(too_young, Probe::Unclear { .. }), "that clock has not come so far: {too_young:?}");
    assert_eq!(after, Probe::Running(life));
    assert!(matches!(too_old, Probe::Unclear { .. }), "older than the clock was behind: {too_old:?}");
}

#[tokio::test]
async fn a_pid_file_in_memory_from_before_the_boot_shows_that_the_clock_was_set() {
    let directory = std::path::Path::new("/dev/shm");
    let is_memory = rustix::fs::statfs(directory).is_ok_and(|system| system.f_type == 0x0102_1994);
    if !is_memory {
        return skip("/dev/shm is no tmpfs");
    }
    let world = World::new();
    let directory = tempfile::tempdir_in(directory).unwrap();
    let path = directory.path().join("x.pid");
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(&path, process.pid().to_string()).unwrap();
    let life = world.life("sleep", &path).await;
    make_older(&path, 20 * 365 * 24 * 60 * MINUTE);

    assert_eq!(world.look("sleep", &path).await, Probe::Running(life));
}

#[tokio::test]
async fn a_zombie_is_absent() {
    let world = World::new();
    let path = world.path("x.pid");
    // The child ends once its parent has become a program that never asks for the end of a child.
    let child = "(until read name < /proc/$$/comm && [ \"$name\" = sleep ]; do :; done)";
    let line = format!("{child} & echo $! > {}; exec sleep 1000", path.display());
    let _parent = Started::new("/bin/sh", &["-c", &line]);
    eventually("the child is a zombie", || {
        numbers(&path).first().is_some_and(|pid| stat(*pid).is_some() && is_dead(*pid))
    })
    .await;

    let reason = world.absent("sleep", &path).await;

    assert!(reason.contains("is a zombie"), "{reason}");
}

#[tokio::test]
async fn a_thread_is_no_process() {
    let world = World::new();
    let path = world.path("x.pid");
    let (send, receive) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
        let _ = ended.recv();
    });
    fs::write(&path, receive.recv().unwrap().to_string()).unwrap();

    let reason = world.absent("look", &path).await;

    assert!(reason.contains("is a thread, not a process"), "{reason}");
    drop(end);
    thread.join().unwrap();
}

#[tokio::test]
async fn a_thread_of_the_kernel_is_no_process() {
    let is_there = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd");
    if !is_there {
        return skip("pid 2 is not kthreadd here, as in a container");
    }
    let world = World::new();
    let path = world.path("x.pid");
    fs::write(&path, "2\n").unwrap();

    let reason = world.absent("kthreadd", &path).await;

    assert!(reason.contains("thread of the kernel"), "{reason}");
}

#[tokio::test]
async fn the_owners_of_file_and_process_are_compared_with_the_user() {
    if !is_root() {
        return skip("only root runs commands as other users");
    }
    let world = World::new();
    let path = world.path("x.pid");
    let process = Started::new("/bin/sleep", &["1000"]);
    fs::write(&path, process.pid().to_string()).unwrap();
    fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut wanted = identity("sleep", &path);
    wanted.user = "nobody".parse().unwrap();

    let other_owner = world.host.look(&leaf(), &wanted, None).await;
    wanted.user = "no-such-user".parse().unwrap();
    let no_user = world.host.look(&leaf(), &wanted, None).await;
    chown(&path, Some(54321), None).unwrap();
    let other_file = world.absent("sleep", &path).await;

    assert!(matches!(other_owner, Probe::Absent(reason) if reason.ends_with("runs as root, not as nobody")));
    assert!(matches!(no_user, Probe::Absent(reason) if reason.contains("does not exist")));
    assert!(other_file.contains("belongs to uid 54321"), "{other_file}");
}

#[tokio::test]
async fn a_pid_file_that_the_user_may_not_read_tells_nothing_about_itself() {
    if !is_root() {
        return skip("only root runs commands as other users");
    }
    let world = World::new();
    let path = world.path("secret");
    let directory = path.parent().unwrap();
    let process = Started::new("/bin/sleep", &["1000"]);
    let mut named = identity("sleep", &path);
    named.user = "nobody".parse().unwrap();
    // A life, a dead one, no pid, and nothing at all.
    let contents = [Some(process.pid().to_string()), Some("4194301".to_owned()), Some("31415926".to_owned()), None];
    let modes = [(0o700, 0o644), (0o755, 0o600)];
    let mut told = Vec::new();

    for (directory_mode, mode) in modes {
        for content in &contents {
            let _ = fs::remove_file(&path);
            if let Some(content) = content {
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            fs::set_permissions(directory, fs::Permissions::from_mode(directory_mode)).unwrap();
            told.push(format!("{:?}", world.host.look(&leaf(), &named, None).await));
            assert_eq!(world.host.probe_now(&named, None), None);
        }
    }

    let shown = path.display();
    let unreadable =
        format!("Unclear {{ reason: \"pid file {shown} is not readable for the process's user\", named: None }}");
    let missing = format!("Absent(\"no pid file {shown}\")");
    let hidden = vec![unreadable; 7];
    assert_eq!(told, [hidden.as_slice(), &[missing]].concat(), "the last one in a directory that it may read");
    named.user = "root".parse().unwrap();
    fs::write(&path, process.pid().to_string()).unwrap();
    assert!(
        matches!(world.host.look(&leaf(), &named, None).await, Probe::Running(_)),
        "root's own pid file is private"
    );
}
