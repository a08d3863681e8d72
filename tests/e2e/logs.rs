//! Logs of real processes, read by the CLI over a real link.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::process::{Command, Output, Stdio};

use proctor_testkit::{Fleet, Subject, binary, skip};
use serde_json::{Value, json};

use crate::cli::{command, out, proctor};
use crate::hosts;

const IP: &str = "127.0.0.1";

/// A subject whose start command leaves a line in its log.
async fn registered(fleet: &Fleet, name: &str, user: &str, log_path: &str) -> Subject {
    let subject = Subject::new(fleet.dir(), name).unwrap();
    let mut spec = subject.spec();
    spec["identity"]["log_path"] = json!(subject.dir.join(log_path));
    spec["identity"]["user"] = json!(user);
    spec["control"]["start_cmd"] = json!(format!("echo 'ready to serve' >> {name}.log; {}", subject.start_cmd()));
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
    let file = fleet.dir().join(format!("{name}.json"));
    std::fs::write(&file, body.to_string()).unwrap();
    out(&proctor(fleet, &["register", "-f", file.to_str().unwrap()]));
    subject
}

fn append(subject: &Subject, text: &str) {
    let path = subject.dir.join(format!("{}.log", subject.name));
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_process_is_shown_and_followed_and_a_viewer_is_refused() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = registered(&fleet, "talkative", "root", "talkative.log").await;
    let before = proctor(&fleet, &["logs", "e2e/talkative", "--host", IP]);
    assert_eq!(before.status.code(), Some(1), "{before:?}");
    assert!(said(&before).contains("there is no "), "{before:?}");

    out(&proctor(&fleet, &["start", "e2e/talkative", "--host", IP]));
    append(&subject, "one\ntwo \u{1b}[31mred\u{1b}[0m\nthree\n");
    let shown = out(&proctor(&fleet, &["logs", "e2e/talkative", "--host", IP]));
    let last = out(&proctor(&fleet, &["logs", "e2e/talkative", "--host", IP, "--lines", "1"]));
    let view = out(&proctor(&fleet, &["logs", "e2e/talkative", "--host", IP, "-o", "json"]));

    assert!(shown.starts_with("ready to serve\none\ntwo "), "{shown}");
    assert!(!shown.contains('\u{1b}'), "a terminal must not obey a log");
    assert_eq!(last, "three\n");
    assert_eq!(serde_json::from_str::<Value>(&view).unwrap()["state"], "read");

    let follow = ["logs", "e2e/talkative", "--host", IP, "--follow", "--lines", "1"];
    let mut following = command(&fleet, &follow).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    append(&subject, "four\n");
    assert_eq!(lines.next().unwrap().unwrap(), "four");
    std::fs::rename(subject.dir.join("talkative.log"), subject.dir.join("talkative.log.1")).unwrap();
    std::fs::write(subject.dir.join("talkative.log"), "five\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "five");
    following.kill().unwrap();
    following.wait().unwrap();

    let url = fleet.url("");
    let made = out(&proctor(&fleet, &["app", "create", "watcher", "--role", "viewer@everything"]));
    let viewer = |arguments: &[&str]| {
        let mut command = Command::new(binary("proctor"));
        command.args(arguments).env("PROCTOR_SERVER", &url).env("PROCTOR_USER", "watcher");
        command.env("PROCTOR_APP_CODE", "watcher").env("PROCTOR_APP_SECRET", made.trim()).output().unwrap()
    };
    assert!(out(&viewer(&["show", "e2e/talkative"])).contains("talkative.log"));
    let refused = viewer(&["logs", "e2e/talkative", "--host", IP]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(3), 0), "{refused:?}");
    assert!(said(&refused).contains("permission_denied"), "{refused:?}");

    let host = out(&proctor(&fleet, &["hosts", "show", IP]));
    assert!(host.contains("answers in "), "{host}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_as_the_user_of_its_process() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skip("only root takes the rights of others");
    }
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    std::fs::set_permissions(fleet.dir(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let subject = registered(&fleet, "curious", "nobody", "stolen.log").await;
    chown(&subject.dir, Some(65534), Some(65534)).unwrap();
    symlink("/etc/shadow", subject.dir.join("stolen.log")).unwrap();
    lchown(subject.dir.join("stolen.log"), Some(65534), Some(65534)).unwrap();

    let refused = proctor(&fleet, &["logs", "e2e/curious", "--host", IP]);

    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{refused:?}");
    assert!(said(&refused).contains("user 'nobody' may not read it"), "{refused:?}");
}
