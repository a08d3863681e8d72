//! Control on the host itself, with the server away.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use proctor_testkit::{Agent, Fleet, Subject, binary, eventually, free_port};
use serde_json::{Value, json};

use crate::{code, hosts};

const IP: &str = "127.0.0.1";

fn agent_program(state_dir: &Path, arguments: &[&str]) -> Output {
    Command::new(binary("proctor-agent")).args(arguments).arg("--state-dir").arg(state_dir).output().unwrap()
}

fn ctl(agent: &Agent, arguments: &[&str]) -> (i32, String) {
    let output = agent_program(agent.state_dir(), &[&["ctl"], arguments].concat());
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), said)
}

async fn started(fleet: &Fleet, name: &str) -> Subject {
    let subject = Subject::new(fleet.dir(), name).unwrap();
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &body).await.unwrap();
    let start = json!({"meta": subject.meta(), "op_type": 0, "hosts": hosts(&[IP])});
    assert_eq!(code(&fleet.operate("operate_proc", &start).await.unwrap(), IP, name), 0);
    subject
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_on_the_socket_and_on_a_port_of_the_loopback() {
    let fleet = Fleet::start().await.unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let agent = fleet.agent_with(IP, &["--metrics", &address, "--metrics-processes"]).await.unwrap();
    let subject = started(&fleet, "measured").await;

    let (code, on_socket) = ctl(&agent, &["metrics", "--processes"]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let on_port = client.get(format!("http://{address}/metrics")).send().await.unwrap().text().await.unwrap();
    let elsewhere = ["--server", "127.0.0.1:1", "--metrics", "0.0.0.0:9311"];
    let refused = agent_program(&fleet.dir().join("elsewhere"), &elsewhere);

    assert_eq!(code, 0, "{on_socket}");
    for text in [&on_socket, &on_port] {
        for line in [
            "proctor_agent_connected 1",
            "proctor_agent_sessions_total{change=\"opened\"} 1",
            "proctor_agent_commands_total{command=\"start\"} 1",
            "proctor_agent_process_running{namespace=\"e2e\",process=\"measured\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(text.contains("\nproctor_agent_certificate_expiry_timestamp_seconds "), "{text}");
    }
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("loopback"), "{said}");
    let stop = json!({"meta": subject.meta(), "op_type": 1, "hosts": hosts(&[IP])});
    fleet.operate("operate_proc", &stop).await.unwrap();
}

async fn local_events(fleet: &Fleet, name: &str) -> Option<Vec<Value>> {
    let path = format!("/api/v1/events?namespace=e2e&name={name}&type=local_operation");
    Some(fleet.get(&path).await.ok()?["events"].as_array()?.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_of_a_host_operates_it_without_the_server_which_learns_of_it_later() {
    let mut fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let (stopped, freed) = (started(&fleet, "stopped").await, started(&fleet, "freed").await);
    let turned = started(&fleet, "turned").await;
    let before = turned.pid().unwrap();
    fleet.server.program.kill();

    let listed = ctl(&agent, &["ps"]);
    let stop = ctl(&agent, &["stop", "e2e/stopped"]);
    let status = ctl(&agent, &["status", "e2e/stopped"]);
    let again = ctl(&agent, &["stop", "e2e/stopped"]);
    let release = ctl(&agent, &["release", "e2e/freed"]);
    let unknown = ctl(&agent, &["start", "e2e/unknown"]);
    let restart = ctl(&agent, &["restart", "e2e/turned"]);

    assert_eq!(restart.0, 0, "{}", restart.1);
    assert!(turned.pid().is_some_and(|pid| pid != before) && turned.starts() == 2, "{before} {:?}", turned.pid());
    let managed = ctl(&agent, &["status", "e2e/turned"]);
    assert!(managed.1.contains("running") && !managed.1.contains("not managed"), "{}", managed.1);
    assert_eq!(listed.0, 0, "{}", listed.1);
    assert!(listed.1.contains("e2e/stopped") && listed.1.contains("running"), "{}", listed.1);
    assert_eq!(stop.0, 0, "{}", stop.1);
    assert_eq!(stopped.pid(), None);
    assert!(status.0 == 0 && status.1.contains("stopped, no pid, not managed"), "{}", status.1);
    assert!(again.0 == 1 && again.1.contains("829"), "{}", again.1);
    assert_eq!(release.0, 0, "{}", release.1);
    assert!(unknown.0 == 1 && unknown.1.contains("is not registered on this host"), "{}", unknown.1);
    let pid = freed.pid().unwrap();
    freed.kill(pid);
    eventually("the agent sees that it is gone", || async {
        ctl(&agent, &["status", "e2e/freed"]).1.contains("no pid").then_some(())
    })
    .await;
    let restarted = ctl(&agent, &["start", "e2e/freed"]);
    assert_eq!(restarted.0, 0, "released, so it was not started before: {}", restarted.1);
    assert_eq!(freed.starts(), 2);
    let (_, events) = ctl(&agent, &["events", "--limit", "100"]);
    assert!(events.contains("local_operation") && events.contains("asked for a stop of e2e/stopped"), "{events}");
    assert!(events.contains("asked for a restart of e2e/turned"), "{events}");
    let (_, ledger) = ctl(&agent, &["ledger"]);
    assert!(ledger.contains("stop") && ledger.contains("e2e/stopped"), "{ledger}");

    fleet.start_server_again().await.unwrap();
    fleet.until_online(IP, true).await;
    let told = eventually("the server knows what was done on the host", || async {
        local_events(&fleet, "stopped").await.filter(|events| events.len() >= 4)
    })
    .await;
    assert_eq!(told[0]["details"]["uid"], "0");
    assert_eq!((&told[0]["details"]["operation"], &told[0]["details"]["state"]), (&json!("stop"), &json!("begun")));
    assert_eq!((&told[1]["details"]["code"], &told[1]["details"]["state"]), (&json!("0"), &json!("ended")));
    eventually("and that it is stopped and not managed", || async {
        let process = fleet.get("/api/v1/processes/e2e/stopped").await.ok()?.to_string();
        (process.contains(r#""phase":"stopped""#) && process.contains(r#""managed":false"#)).then_some(())
    })
    .await;
    assert_eq!((stopped.pid(), stopped.starts()), (None, 1), "the server does not start it again");
    for (subject, name) in [(&freed, "freed"), (&turned, "turned")] {
        let stop = json!({"meta": subject.meta(), "op_type": 1, "hosts": hosts(&[IP])});
        assert_eq!(code(&fleet.operate("operate_proc", &stop).await.unwrap(), IP, name), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_socket_is_private_and_refuses_other_users_and_bad_requests() {
    use std::io::{BufRead, BufReader, Write};
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let socket = agent.state_dir().join("control.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o600);

    for (line, expected) in [
        ("not json\n".to_owned(), "the request cannot be read"),
        ("{\"ask\":\"shutdown\"}\n".to_owned(), "the request cannot be read"),
        (format!("{}\n", "x".repeat(20_000)), "is not a line of at most"),
    ] {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(line.as_bytes());
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("refused") && answer.contains(expected), "{answer}");
    }
    // As if somebody had opened the directory and the socket to all: the peer is asked who it is.
    for (path, mode) in [(agent.state_dir(), 0o711), (&socket, 0o666), (fleet.dir(), 0o755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let script = r#"$s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $!; print $s qq({"ask":"list"}\n); print <$s>"#;
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--clear-groups", "perl", "-MIO::Socket::UNIX", "-e", script]).arg(&socket);
    let output = nobody.output();
    let said = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    assert!(said.contains("uid 65534 may not control this agent"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_what_is_wrong_and_says_so_by_its_exit_code() {
    let mut fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();

    let healthy = agent_program(agent.state_dir(), &["doctor"]);
    fleet.server.program.kill();
    let alone = agent_program(agent.state_dir(), &["doctor", "--json"]);
    agent.program.kill();
    let dead = agent_program(agent.state_dir(), &["doctor"]);

    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(healthy.status.code(), Some(0), "{}", text(&healthy));
    assert!(text(&healthy).contains("with a certificate of our authority"), "{}", text(&healthy));
    assert!(text(&healthy).contains("valid for 29 days") || text(&healthy).contains("valid for 30 days"));
    let findings: Value = serde_json::from_slice(&alone.stdout).unwrap();
    let link = findings.as_array().unwrap().iter().find(|finding| finding["about"] == "link").unwrap();
    assert_eq!((alone.status.code(), &link["verdict"]), (Some(1), &json!("bad")), "{findings}");
    assert_eq!(dead.status.code(), Some(1));
    assert!(text(&dead).contains("no agent answers at"), "{}", text(&dead));
}
