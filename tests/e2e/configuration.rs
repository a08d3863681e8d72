//! The configuration file of the real server: what takes effect, what is refused, and what SIGHUP changes.

use std::path::Path;
use std::process::{Command, Output};

use proctor_testkit::{Fleet, Launcher, Program, binary, eventually, free_port, run_proctor};

fn proctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("proctor"));
    command.env_remove("PROCTOR_LOG").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write_config(path: &Path, port: u16, data: &Path, more: &str) {
    let settings =
        format!("http = \"127.0.0.1:{port}\"\nlink = \"127.0.0.1:0\"\ndata_dir = \"{}\"\n{more}", data.display());
    std::fs::write(path, settings).unwrap();
}

#[test]
fn mistakes_are_told_with_file_line_and_what_was_probably_meant() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.toml");
    std::fs::write(&file, "htpp = \"127.0.0.1:1\"\nkeep_tasks = \"1h\"\ntls_self = 1\n").unwrap();
    let file = file.display().to_string();

    for arguments in [&["config", "check", "--config", &file][..], &["server", "--config", &file]] {
        let refused = proctor(arguments);

        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("{file}, line 1: htpp: there is no such setting; did you mean http?")),
            "{said}"
        );
        assert!(said.contains("line 2: keep_tasks: invalid value '1h'"), "{said}");
        assert!(said.contains("line 3: tls_self: must be true or false"), "{said}");
    }
}

#[test]
fn every_setting_is_shown_with_where_it_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.toml");
    write_config(
        &file,
        8123,
        dir.path(),
        "events_max = 7\nkeep_tokens = \"3d\"\ntrusted_proxy = [\"10.0.0.1\", \"10.0.0.2\"]\n",
    );
    let mut command = Command::new(binary("proctor"));
    command.args(["config", "show", "-o", "json", "--events-max", "9", "--config"]).arg(&file);

    let shown = command.env("PROCTOR_KEEP_TASKS", "48h").env_remove("PROCTOR_LOG").output().unwrap();

    let settings: Vec<serde_json::Value> = serde_json::from_slice(&shown.stdout).unwrap();
    let of = |key: &str| settings.iter().find(|setting| setting["key"] == key).unwrap().clone();
    assert_eq!((&of("http")["value"], &of("http")["source"]), (&"127.0.0.1:8123".into(), &"file, line 1".into()));
    assert_eq!((&of("events_max")["value"], &of("events_max")["source"]), (&"9".into(), &"flag".into()));
    assert_eq!(of("keep_tasks")["source"], "environment PROCTOR_KEEP_TASKS");
    assert_eq!(of("trusted_proxy")["value"], "10.0.0.1,10.0.0.2");
    assert_eq!((&of("keep_events")["value"], &of("keep_events")["source"]), (&"30d".into(), &"default".into()));
    assert_eq!((&of("keep_tokens")["value"], &of("keep_tokens")["source"]), (&"3d".into(), &"file, line 5".into()));
    for (key, value) in [("keep_tombstones", "30d"), ("keep_specs", "24h")] {
        assert_eq!((&of(key)["value"], &of(key)["source"]), (&value.into(), &"default".into()));
    }
    assert!(settings.iter().all(|setting| setting["key"] != "app_secret"), "settings of clients are none of a server");
    assert!(proctor(&["config", "check", "--config", &file.display().to_string()]).status.success());
}

#[tokio::test]
async fn an_agent_starts_from_its_file_and_its_commands_read_it_too() {
    let fleet = Fleet::start().await.unwrap();
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--data-dir", &data]).unwrap();
    let (file, token_file, state) =
        (fleet.dir().join("agent.toml"), fleet.dir().join("token"), fleet.dir().join("agent-of-file"));
    std::fs::write(&token_file, token).unwrap();
    let settings = |more: &str| {
        let link = fleet.server.link;
        let (token_file, state) = (token_file.display(), state.display());
        let text = format!("server = \"127.0.0.1:{link}\"\nip = \"127.0.0.1\"\nstate_dir = \"{state}\"\n");
        std::fs::write(&file, format!("{text}token_file = \"{token_file}\"\n{more}")).unwrap();
    };
    let name = file.display().to_string();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(binary("proctor-agent"));
        command.env_remove("PROCTOR_LOG").args(arguments).args(["--config", &name]).output().unwrap()
    };

    settings("cloud_di = 1\ntoken = \"PT1.secret\"\n");
    let refused = run(&["config", "check"]);
    settings("log = \"error\"\n");
    // The level comes from the file, not from a variable.
    let launcher = Launcher { prefix: ["env", "-u", "PROCTOR_LOG"].map(str::to_owned).to_vec(), ..Launcher::default() };
    let arguments = ["--config".to_owned(), name.clone()];
    let agent = Program::launch(&launcher, "proctor-agent", &arguments, &fleet.dir().join("agent.log")).unwrap();
    fleet.until_online("127.0.0.1", true).await;
    let shown = run(&["config", "show"]);
    let listed = run(&["ctl", "ps"]);
    assert!(!agent.log().contains("INFO"), "{}", agent.log());
    settings("cloud_id = 7\nlog = \"info\"\n");
    assert!(Command::new("kill").args(["-HUP", &agent.pid().to_string()]).status().unwrap().success());
    // At the level of the file, which takes effect at once.
    eventually("the change is told", || async { agent.log().contains("restart=\"cloud_id\"").then_some(()) }).await;

    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("cloud_di: there is no such setting; did you mean cloud_id?"), "{said}");
    assert!(said.contains("token: there is no such setting") && !said.contains("PT1.secret"), "{said}");
    let shown = text(&shown.stdout);
    assert!(shown.contains("(file, line 1)") && shown.contains("(default)"), "{shown}");
    assert!(listed.status.success(), "the state directory is known from the file: {}", text(&listed.stderr));
}

#[tokio::test]
async fn a_server_starts_from_its_file_and_a_hang_up_applies_what_can_change() {
    let dir = tempfile::tempdir().unwrap();
    let (file, port) = (dir.path().join("server.toml"), free_port());
    let data = dir.path().join("data");
    write_config(&file, port, &data, "rate_limit = \"5/s\"\n");
    let arguments = ["server".to_owned(), "--config".to_owned(), file.display().to_string()];
    let server = Program::start("proctor", &arguments, &dir.path().join("server.log")).unwrap();
    let hang_up = || {
        let sent = Command::new("kill").args(["-HUP", &server.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    let url = format!("http://127.0.0.1:{port}/healthz");
    eventually("it serves", || async { reqwest::get(&url).await.ok() }).await;

    write_config(&file, port, &data, "rate_limit = \"50/s\"\nkeep_tasks = \"96h\"\nconcurrency_limit = 9\n");
    hang_up();
    eventually("the change is applied", || async {
        server
            .log()
            .contains("configuration reloaded applied=\"rate_limit,keep_tasks\" restart=\"concurrency_limit\"")
            .then_some(())
    })
    .await;
    assert!(server.log().contains("changed setting needs a restart key=\"concurrency_limit\""), "{}", server.log());

    write_config(&file, port, &data, "rate_limt = 1\n");
    hang_up();
    eventually("the mistake is told", || async { server.log().contains("did you mean rate_limit?").then_some(()) })
        .await;
    assert!(reqwest::get(&url).await.unwrap().status().is_success(), "it serves on");
}

#[tokio::test]
async fn metrics_are_for_the_networks_of_the_file_after_a_hang_up() {
    let dir = tempfile::tempdir().unwrap();
    let (file, port) = (dir.path().join("server.toml"), free_port());
    let data = dir.path().join("data");
    write_config(&file, port, &data, "");
    let arguments = ["server".to_owned(), "--config".to_owned(), file.display().to_string()];
    let server = Program::start("proctor", &arguments, &dir.path().join("server.log")).unwrap();
    let url = format!("http://127.0.0.1:{port}/metrics");
    let before = eventually("it serves", || async { reqwest::get(&url).await.ok() }).await;

    write_config(&file, port, &data, "metrics_from = \"127.0.0.0/8\"\n");
    assert!(Command::new("kill").args(["-HUP", &server.pid().to_string()]).status().unwrap().success());

    assert_eq!(before.status().as_u16(), 401);
    eventually("metrics can be read", || async {
        reqwest::get(&url).await.ok().filter(|answer| answer.status().is_success())
    })
    .await;
}

#[tokio::test]
async fn a_hang_up_does_not_end_a_relay_and_its_file_is_checked_and_read_again() {
    let fleet = Fleet::start().await.unwrap();
    let (file, state) = (fleet.dir().join("relay.toml"), fleet.dir().join("relay"));
    let settings = |more: &str| {
        let link = fleet.server.link;
        let text = format!(
            "upstream = \"127.0.0.1:{link}\"\nstate_dir = \"{}\"\nlisten = \"127.0.0.1:0\"\n{more}",
            state.display()
        );
        std::fs::write(&file, text).unwrap();
    };
    let named = file.display().to_string();
    settings("cluod_id = 3\n");
    let refused = proctor(&["config", "relay", "check", "--config", &named]);
    settings("");
    let incomplete = proctor(&["config", "relay", "check", "--config", &named]);
    settings("cloud_id = 3\n");
    let checked = proctor(&["config", "relay", "check", "--config", &named]);
    let shown = proctor(&["config", "relay", "show", "--config", &named]);
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--relay", "--cloud-id", "3", "--data-dir", &data]).unwrap();
    let arguments = ["relay", "--config", &named, "--token", token.trim()].map(str::to_owned);
    let relay = Program::start("proctor", &arguments, &fleet.dir().join("relay.log")).unwrap();
    eventually("it starts", || async { relay.log().contains("relay started").then_some(()) }).await;

    settings("cloud_id = 4\n");
    assert!(Command::new("kill").args(["-HUP", &relay.pid().to_string()]).status().unwrap().success());

    eventually("the change is told", || async {
        relay.log().contains("configuration reloaded applied=\"\" restart=\"cloud_id\"").then_some(())
    })
    .await;
    assert!(text(&refused.stderr).contains("did you mean cloud_id?"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&incomplete.stderr).contains("--cloud-id is missing"), "{}", text(&incomplete.stderr));
    assert!(text(&checked.stdout).contains("no mistakes"), "{}", text(&checked.stderr));
    assert!(text(&shown.stdout).contains("file, line 4"), "{}", text(&shown.stdout));
}
