//! Commands, as they are run for users.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use common::{World, eventually, exited, is_dead, is_root, not_run, numbers, our_zombies};
use proctor_model::{CommandResult, Exit, Signal};
use proctor_testkit::skip;

#[tokio::test]
async fn a_command_answers_with_its_exit_and_both_its_outputs() {
    let world = World::new();

    let end = world.run("echo one; echo two >&2; echo three > /dev/stderr; exit 3").await;
    let killed = world.run("kill -9 $$").await;

    assert_eq!(exited(&end), Exit::Code(3));
    assert!(end.output.contains("three"), "{}", end.output);
    assert_eq!(exited(&killed), Exit::Signal(9));
}

#[tokio::test]
#[allow(unsafe_code, reason = "nothing safe gives the ends of children away")]
async fn a_command_whose_end_somebody_else_has_taken_did_run() {
    let world = World::new();
    // SAFETY: the disposition is a constant of the kernel's; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };

    let end = world.run("echo ran").await;

    assert_eq!((end.result, end.output.as_str()), (CommandResult::ExitUnknown, "ran\n"));
}

#[tokio::test]
async fn the_line_reaches_the_shell_as_it_is() {
    let world = World::new();
    let long = format!("true '{}'; echo \"a  $((1+1))\" 'ü;$(x)'", "x".repeat(100_000));

    let end = world.run(&long).await;
    let too_long = world.run(&"x".repeat(200_000)).await;
    let nul = world.run("a\0b").await;
    let not_found = world.run("no-such-program-here").await;

    assert_eq!((exited(&end), end.output.as_str()), (Exit::Code(0), "a  2 ü;$(x)\n"));
    assert!(not_run(&too_long).contains("too long"), "{too_long:?}");
    assert!(not_run(&nul).contains("nul byte"), "{nul:?}");
    assert_eq!(exited(&not_found), Exit::Code(127));
    assert!(not_found.output.contains("not found"), "{not_found:?}");
}

#[tokio::test]
async fn a_hundred_megabytes_of_output_are_bounded() {
    let world = World::new();

    let end = world.run("echo first; head -c 100000000 /dev/zero; printf last").await;

    assert_eq!(exited(&end), Exit::Code(0));
    assert!(end.output.starts_with("first\n") && end.output.ends_with("last"));
    assert!(end.output.contains(" bytes left out ...\n"), "{}", end.output.len());
    assert!(end.output.len() < 32 * 1024 && !end.output.contains('\0'));
}

/// Longer than any test runs.
const TIMEOUT: Duration = Duration::from_secs(100_000);

#[tokio::test]
async fn a_timeout_kills_the_tree_and_the_session() {
    let world = World::new();
    let pids = world.path("pids");
    let mut command = world.command(&format!(
        "echo begun; sleep 1000 & echo $! >> {0}; setsid sleep 1000 & echo $! >> {0}; (sleep 1000 & echo $! >> {0}); echo $$ >> {0}; wait",
        pids.display()
    ));
    command.timeout = TIMEOUT;
    let time_passes = async {
        eventually("all four run", || numbers(&pids).len() == 4).await;
        tokio::time::pause();
        tokio::time::advance(TIMEOUT / 2).await;
        assert!(!numbers(&pids).into_iter().any(is_dead), "not before its time");
        tokio::time::advance(TIMEOUT / 2).await;
        tokio::time::resume();
    };

    let (end, ()) = tokio::join!(world.host.run(command), time_passes);

    assert_eq!(end.result, CommandResult::TimedOut);
    assert_eq!(end.output, "begun\n");
    eventually("all are dead", || numbers(&pids).into_iter().all(is_dead)).await;
    eventually("no zombies", || our_zombies().is_empty()).await;
}

#[tokio::test]
async fn a_command_that_cannot_be_run_says_why() {
    let world = World::new();
    let mut no_user = world.command("true");
    no_user.user = "no-such-user".to_owned();
    let mut no_directory = world.command("true");
    no_directory.directory = world.path("missing");
    let mut file = world.command("true");
    file.directory = world.path("file");
    std::fs::write(&file.directory, "").unwrap();

    let no_user = world.host.run(no_user).await;
    let no_directory = world.host.run(no_directory).await;
    let file = world.host.run(file).await;

    assert_eq!(not_run(&no_user), "user 'no-such-user' does not exist on this host");
    assert_eq!(not_run(&no_directory), format!("setup_path {} does not exist", world.path("missing").display()));
    assert_eq!(not_run(&file), format!("setup_path {} is not a directory", world.path("file").display()));
}

#[tokio::test]
async fn a_command_runs_as_its_user_with_a_login_like_environment() {
    if !is_root() {
        return skip("only root runs commands as other users");
    }
    let world = World::new();
    let mut command = world.command("id -un; id -Gn; env | sort; umask; pwd");
    command.user = "nobody".to_owned();
    command.directory = "/".into();
    command.environment = vec![("EXTRA".to_owned(), "a b".to_owned())];

    let mut entering = world.command("true");
    entering.user = "nobody".to_owned();
    entering.directory = world.path("closed");
    std::fs::create_dir(&entering.directory).unwrap();
    std::fs::set_permissions(&entering.directory, std::fs::Permissions::from_mode(0o700)).unwrap();

    let end = world.host.run(command.clone()).await;
    command.line = "echo again > /dev/stderr".to_owned();
    let again = world.host.run(command).await;
    let entering = world.host.run(entering).await;

    assert_eq!(exited(&end), Exit::Code(0));
    let lines: Vec<&str> = end.output.lines().collect();
    assert_eq!(&lines[..2], ["nobody", "nogroup"], "{}", end.output);
    let home = nix::unistd::User::from_name("nobody").unwrap().unwrap().dir;
    for wanted in [
        &format!("HOME={}", home.display()),
        "USER=nobody",
        "LOGNAME=nobody",
        "LANG=C.UTF-8",
        "EXTRA=a b",
        "SHELL=/bin/sh",
        "0022",
        "/",
    ] {
        assert!(lines.contains(&wanted), "{wanted} in {}", end.output);
    }
    // What the shell itself adds: PWD, OLDPWD, SHLVL and _.
    let foreign = ["CARGO", "NEXTEST", "RUST"];
    assert!(!lines.iter().any(|line| foreign.iter().any(|word| line.starts_with(word))), "{}", end.output);
    assert_eq!((exited(&again), again.output.as_str()), (Exit::Code(0), "again\n"));
    assert!(not_run(&entering).starts_with("user 'nobody' may not enter setup_path "), "{entering:?}");
}

#[tokio::test]
async fn a_command_inherits_neither_descriptors_nor_signal_settings() {
    let world = World::new();
    let leaked = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();

    let end = world.run("ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Ign|Blk)' /proc/self/status").await;
    let session = world.run("test \"$(ps -o sid= -p $$ | tr -d ' ')\" = $$ && readlink /proc/self/fd/0").await;

    assert!(end.output.starts_with("0 1 2 3 Sig"), "{}", end.output);
    assert_eq!(end.output.matches("0000000000000000").count(), 2, "{}", end.output);
    assert_eq!(session.output, "/dev/null\n");
}

#[tokio::test]
async fn a_daemon_left_behind_goes_on_and_may_write() {
    let world = World::new();
    let (pid, go, done) = (world.path("x.pid"), world.path("go"), world.path("done"));
    let line = format!(
        "setsid sh -c 'echo $$ > {}; until [ -e {} ]; do sleep 0.02; done; echo more && echo ok > {}; sleep 1000' & exit 0",
        pid.display(),
        go.display(),
        done.display()
    );

    let end = world.run(&line).await;
    let life = world.life("sh", &pid).await;
    // The same capture is used again, while the daemon still has the old one.
    let next = world.run("echo next").await;
    std::fs::write(go, "").unwrap();

    assert_eq!(exited(&end), Exit::Code(0));
    eventually("the daemon has written", || std::fs::read_to_string(&done).is_ok_and(|text| text == "ok\n")).await;
    assert_eq!(next.output, "next\n");
    assert!(world.host.is_alive(&life));
    world.host.kill_tree(&life).await.unwrap();
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_goes_on() {
    let world = World::new();
    let pid = world.path("x.pid");
    let command = world.command(&format!("echo $$ > {}; sleep 1000; :", pid.display()));
    let mut running = Box::pin(world.host.run(command));
    while numbers(&pid).is_empty() {
        let _ = tokio::time::timeout(Duration::from_millis(10), &mut running).await;
    }

    drop(running);
    let life = world.life("sh", &pid).await;

    assert!(world.host.is_alive(&life));
    world.host.kill_tree(&life).await.unwrap();
    eventually("it is dead", || is_dead(life.pid)).await;
    eventually("no zombies", || our_zombies().is_empty()).await;
    assert!(!world.host.signal(&life, Signal::Kill).unwrap());
}

#[tokio::test]
async fn the_directory_of_outputs_is_closed_to_others() {
    let world = World::new();

    exited(&world.run("true").await);

    let mode = |name: &str| std::fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("state/output"), 0o700);
    assert_eq!(mode("state/output/test.out"), 0o600);
}

#[tokio::test]
async fn commands_keep_the_limits_of_descriptors_that_we_were_started_with() {
    let limit = || rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let before = limit();
    let world = World::new();

    let end = world.run("ulimit -Sn; ulimit -Hn").await;

    let ours = limit();
    assert_eq!(ours.current, ours.maximum, "ours is raised");
    let theirs: Vec<Option<u64>> = end.output.split_whitespace().map(|number| number.parse().ok()).collect();
    assert_eq!(theirs, [before.current, before.maximum]);
}
