//! One line that makes a machine a host.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use proctor_testkit::{APP, Fleet, binary, eventually, run_proctor};

const NAME: &str = "proctor-agent-x86_64";

/// A server that has the agent program to download.
async fn fleet() -> Fleet {
    let dir = tempfile::tempdir().unwrap();
    let downloads = dir.path().join("downloads");
    std::fs::create_dir(&downloads).unwrap();
    std::fs::copy(binary("proctor-agent"), downloads.join(NAME)).unwrap();
    let downloads = downloads.display().to_string();
    Fleet::start_in(dir, &["--download-dir", &downloads]).await.unwrap()
}

fn join_command(fleet: &Fleet, more: &[&str]) -> String {
    let (server, secret) = (fleet.url(""), fleet.secret.clone());
    let own = ["--server", &server, "--app-code", APP, "--app-secret", &secret, "--user", "ada"];
    run_proctor(&[&["join-command"][..], more, &own].concat()).unwrap()
}

/// Runs the line as root would on a new host, but installs below a directory.
fn join(line: &str, root: &Path) -> Output {
    Command::new("sh").args(["-c", line]).env("PROCTOR_INSTALL_ROOT", root).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_line_makes_a_host_and_shows_its_token_to_nobody() {
    let fleet = fleet().await;
    let (root, state) = (fleet.dir().join("root"), fleet.dir().join("state"));

    let line = join_command(&fleet, &[]);
    let output = join(&line, &root);

    assert_eq!(line.lines().count(), 1);
    assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
    let token = std::fs::read_to_string(root.join("etc/proctor/join-token")).unwrap();
    assert!(line.contains(&format!("PROCTOR_TOKEN='{}'", token.trim())), "{line}");
    let mode = std::fs::metadata(root.join("etc/proctor/join-token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let settings = std::fs::read_to_string(root.join("etc/proctor/agent.env")).unwrap();
    assert!(settings.contains(&format!("PROCTOR_SERVER=127.0.0.1:{}", fleet.server.link)), "{settings}");
    let unit = std::fs::read_to_string(root.join("etc/systemd/system/proctor-agent.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/proctor-agent") && unit.contains("KillMode=process"), "{unit}");
    // As the unit would: from the environment alone.
    let installed = root.join("usr/local/bin/proctor-agent");
    let environment = [
        ("PROCTOR_SERVER", format!("127.0.0.1:{}", fleet.server.link)),
        ("PROCTOR_TOKEN_FILE", root.join("etc/proctor/join-token").display().to_string()),
        ("PROCTOR_STATE_DIR", state.display().to_string()),
    ];
    let log = std::fs::File::create(fleet.dir().join("joined.log")).unwrap();
    let mut agent = Command::new(installed).envs(environment).stderr(log).spawn().unwrap();
    eventually("the new host is online", || async {
        let hosts = fleet.get("/api/v1/hosts").await.ok()?;
        (hosts["hosts"][0]["online"] == true).then_some(())
    })
    .await;
    let shown = std::fs::read_to_string(format!("/proc/{}/cmdline", agent.id())).unwrap();
    assert!(shown.contains("proctor-agent") && !shown.contains(token.trim()), "visible in ps: {shown}");

    let fetched = fleet.dir().join("fetched");
    for name in [NAME.to_owned(), format!("{NAME}.sig")] {
        let content = fleet.client.get(fleet.url(&format!("/download/{name}"))).send().await.unwrap();
        std::fs::write(fetched.with_file_name(&name), content.bytes().await.unwrap()).unwrap();
    }
    let verify = |file: &Path| {
        let signature = fetched.with_file_name(format!("{NAME}.sig"));
        let mut command = Command::new(binary("proctor-agent"));
        command.arg("verify").arg(file).arg(signature).arg("--state-dir").arg(&state);
        command.output().unwrap().status.code()
    };
    assert_eq!(verify(&fetched.with_file_name(NAME)), Some(0));
    assert_eq!(verify(Path::new("/bin/sh")), Some(1));
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// The arguments of every process, as anybody on the machine sees them.
fn seen_by_ps() -> Vec<String> {
    let read = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(read);
    all.map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " ")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_reads_its_token_can_be_the_argument_of_a_shell() {
    let fleet = fleet().await;
    let (root, file) = (fleet.dir().join("root"), fleet.dir().join("token"));
    let line = join_command(&fleet, &["--token-to", &file.display().to_string()]);
    let token = std::fs::read_to_string(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // As ssh and `sudo sh -c` run it.
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env("PROCTOR_INSTALL_ROOT", &root).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    input.write_all(token.as_bytes()).unwrap();
    // It reads to the end, which has not come yet.
    let link = format!("install --token-file /dev/stdin --server 127.0.0.1:{}", fleet.server.link);
    let seen = eventually("the installer runs", || async {
        let seen = seen_by_ps();
        seen.iter().any(|line| line.contains(&link) && !line.contains("sh -c")).then_some(seen)
    })
    .await;
    drop(input);

    assert!(shell.wait().unwrap().success());
    assert!(seen.iter().all(|line| !line.contains(token.trim())), "{seen:?}");
    assert_eq!(std::fs::read_to_string(root.join("etc/proctor/join-token")).unwrap(), token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_exchanged_on_the_way_is_not_run() {
    let fleet = fleet().await;
    let root = fleet.dir().join("root");
    let line = join_command(&fleet, &[]);
    let served = fleet.dir().join("downloads").join(NAME);
    std::fs::remove_file(&served).unwrap();
    std::fs::write(&served, "#!/bin/sh\ntouch \"$PROCTOR_INSTALL_ROOT.owned\"\n").unwrap();

    let output = join(&line, &root);

    assert!(!root.exists() && !fleet.dir().join("root.owned").exists());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("did NOT match") || said.contains("checksum"), "{said}");
    for path in ["/download/..%2Fdata%2Fproctor.db", "/download/.hidden", "/download/absent", "/download/absent.sig"] {
        let answer = fleet.client.get(fleet.url(path)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 404, "{path}");
    }
}
