//! `proctor dev`: the one command that starts everything.

use std::process::Command;

use proctor_testkit::{Program, eventually, free_port};
use serde_json::Value;

struct Dev {
    program: Program,
    http: u16,
    data: std::path::PathBuf,
}

impl Dev {
    fn start(dir: &std::path::Path, http: u16) -> Self {
        let data = dir.join("data");
        let arguments = [
            "dev",
            "--http",
            &format!("127.0.0.1:{http}"),
            "--data-dir",
            data.to_str().unwrap(),
            "--app-code",
            "me",
            "--app-secret",
            "mine",
        ]
        .map(String::from);
        Self { program: Program::start("proctor", &arguments, &dir.join("dev.log")).unwrap(), http, data }
    }

    async fn demo(&self) -> Option<i64> {
        let client = reqwest::Client::new();
        let health = client.get(format!("http://127.0.0.1:{}/healthz", self.http)).send().await.ok()?;
        health.status().is_success().then_some(())?;
        let authorization = r#"{"bk_app_code":"me","bk_app_secret":"mine","bk_username":"admin"}"#;
        let request = client.get(format!("http://127.0.0.1:{}/api/v1/processes?namespace=demo", self.http));
        let answer = request.header("X-Bkapi-Authorization", authorization).send().await.ok()?.text().await.ok()?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        let process = &answer["processes"][0];
        (process["phase"] == "running").then(|| process["pid"].as_i64()).flatten()
    }
}

fn kill(pid: i64) {
    let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
}

/// Where `dev` keeps its data; its demo, which outlives it on purpose, goes with it.
struct Home(tempfile::TempDir);

impl Drop for Home {
    fn drop(&mut self) {
        proctor_testkit::end_all_in(self.0.path());
    }
}

#[tokio::test]
async fn dev_starts_with_a_demo_that_comes_back_and_survives_a_stop_of_dev() {
    let home = Home(tempfile::tempdir().unwrap());
    let dir = home.0.path();
    let http = free_port();
    let mut dev = Dev::start(dir, http);
    let first = eventually("the demo runs", || dev.demo()).await;

    kill(first);
    let second = eventually("the demo is back", || async { dev.demo().await.filter(|pid| *pid != first) }).await;
    let log = eventually("the commands to paste are printed", || {
        let log = dev.program.log();
        async move { log.contains("curl").then_some(log) }
    })
    .await;
    assert!(log.contains("mine") && log.contains(" ps"), "{log}");
    let profile = dev.data.join("profile.toml");
    let ps = Command::new(proctor_testkit::binary("proctor")).arg("--profile").arg(profile).arg("ps").output().unwrap();
    assert!(String::from_utf8_lossy(&ps.stdout).contains(&second.to_string()), "{ps:?}");

    assert!(dev.program.terminate().unwrap().success());
    assert!(std::path::Path::new(&format!("/proc/{second}")).exists(), "the demo lives on");
    let dev = Dev::start(dir, http);
    let third = eventually("the demo is adopted", || dev.demo()).await;
    assert_eq!(third, second);
}
