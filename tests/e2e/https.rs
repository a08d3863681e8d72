//! HTTPS of the real server: who is believed, who is refused, and new certificates while it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proctor_client::{Client, ClientError, Credentials, HostQuery};
use proctor_testkit::{Program, binary, eventually, free_port, run_proctor};
use tempfile::TempDir;

struct HttpsServer {
    program: Program,
    url: String,
    secret: String,
    dir: TempDir,
}

impl HttpsServer {
    async fn start(tls: &[String]) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let data = dir.path().join("data").display().to_string();
        let own = ["server", "--http", &format!("127.0.0.1:{port}"), "--link", "127.0.0.1:0", "--data-dir", &data];
        let arguments: Vec<String> = own.iter().map(|own| (*own).to_owned()).chain(tls.iter().cloned()).collect();
        let program = Program::start("proctor", &arguments, &dir.path().join("server.log")).unwrap();
        eventually("the server serves", || async { program.log().contains("server started").then_some(()) }).await;
        let secret = run_proctor(&["app", "create", "app", "--trusted", "--data-dir", &data]).unwrap();
        Self { program, url: format!("https://127.0.0.1:{port}"), secret, dir }
    }

    /// The fingerprint in the newest line of the log that has these words.
    fn logged_fingerprint(&self, words: &str) -> Option<String> {
        let log = self.program.log();
        let line = log.lines().rfind(|line| line.contains(words))?;
        let (_, rest) = line.split_once("fingerprint=")?;
        Some(rest.chars().filter(|c| *c != '"').take_while(char::is_ascii_hexdigit).collect())
    }

    fn credentials(&self) -> Credentials {
        Credentials::new("app", &self.secret, "admin")
    }

    async fn hosts(&self, fingerprint: &str) -> Result<(), ClientError> {
        let client = Client::pinned(&self.url, fingerprint, self.credentials())?;
        client.hosts(&HostQuery::default()).await.map(drop)
    }

    fn cli(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary("proctor"));
        command.env_remove("PROCTOR_PROFILE").env("HOME", self.dir.path()).args(arguments);
        // Not as an argument: a secret may begin with a dash.
        command.env("PROCTOR_APP_SECRET", &self.secret).args(["--app-code", "app", "--server", &self.url]);
        command.output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_client_that_pins_the_own_key_is_served_and_any_other_key_is_refused_in_one_line() {
    let server = HttpsServer::start(&["--tls-self".to_owned()]).await;
    let pinned = server.logged_fingerprint("listening for HTTPS").unwrap();
    let other = "0".repeat(64);

    let served = server.cli(&["hosts", "--server-fingerprint", &pinned]);
    let refused = server.cli(&["hosts", "--server-fingerprint", &other]);
    let unpinned = server.cli(&["hosts"]);

    assert!(served.status.success(), "{}", said(&served));
    let line = said(&refused);
    assert_eq!(refused.status.code(), Some(3));
    assert!(line.contains(&pinned) && line.contains(&other) && line.contains("--server-fingerprint"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(unpinned.status.code(), Some(3), "an authority that nobody knows: {}", said(&unpinned));
    assert!(matches!(server.hosts(&other).await, Err(ClientError::OtherKey { .. })));
}

#[tokio::test]
async fn the_own_key_and_a_profile_with_its_pin_survive_a_restart() {
    let mut server = HttpsServer::start(&["--tls-self".to_owned()]).await;
    let pinned = server.logged_fingerprint("listening for HTTPS").unwrap();
    let profile = server.dir.path().join("profile.toml");
    let text = format!("server_fingerprint = \"{pinned}\"\n");
    std::fs::write(&profile, text).unwrap();
    let profile = profile.display().to_string();
    assert!(server.cli(&["hosts", "--profile", &profile]).status.success());

    server.program.terminate().unwrap();
    let data = server.dir.path().join("data").display().to_string();
    let port = server.url.rsplit(':').next().unwrap();
    let own =
        ["server", "--tls-self", "--link", "127.0.0.1:0", "--data-dir", &data, "--http", &format!("127.0.0.1:{port}")];
    let log = server.dir.path().join("second.log");
    server.program = Program::start("proctor", &own.map(str::to_owned), &log).unwrap();

    eventually("the pinned key is shown again", || async { server.hosts(&pinned).await.ok() }).await;
    assert!(server.cli(&["hosts", "--profile", &profile]).status.success());
}

/// A new key with a certificate that it signed itself.
fn write_pair(dir: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    (certificate, key)
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart_and_a_broken_one_is_not() {
    let pair = tempfile::tempdir().unwrap();
    let (certificate, key) = write_pair(pair.path());
    let arguments = ["--tls-cert", &certificate.display().to_string(), "--tls-key", &key.display().to_string()];
    let server = HttpsServer::start(&arguments.map(str::to_owned)).await;
    let first = server.logged_fingerprint("listening for HTTPS").unwrap();
    server.hosts(&first).await.unwrap();

    std::fs::write(&certificate, "half a certif").unwrap();
    eventually("the broken file is told", || async {
        server.program.log().contains("HTTPS certificate not replaced").then_some(())
    })
    .await;
    server.hosts(&first).await.unwrap();

    write_pair(pair.path());
    eventually("the old key is refused", || async {
        matches!(server.hosts(&first).await, Err(ClientError::OtherKey { .. })).then_some(())
    })
    .await;
    let second =
        eventually("the new one is told", || async { server.logged_fingerprint("HTTPS certificate loaded") }).await;
    server.hosts(&second).await.unwrap();
}

#[test]
fn plain_http_to_the_network_is_refused_unless_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data").display().to_string();
    let mut command = Command::new(binary("proctor"));
    command.args(["server", "--http", "0.0.0.0:0", "--link", "127.0.0.1:0", "--data-dir", &data]);

    let refused = command.output().unwrap();

    let line = said(&refused);
    assert!(!refused.status.success());
    assert!(line.contains("--tls-self") && line.contains("--insecure-http"), "{line}");
    assert!(!dir.path().join("data").exists(), "nothing is made");
}

#[tokio::test]
async fn one_line_of_a_server_with_its_own_key_makes_a_host_over_https() {
    let downloads = tempfile::tempdir().unwrap();
    for arch in ["x86_64", "aarch64"] {
        std::fs::copy(binary("proctor-agent"), downloads.path().join(format!("proctor-agent-{arch}"))).unwrap();
    }
    let download_dir = downloads.path().display().to_string();
    let server = HttpsServer::start(&["--tls-self", "--download-dir", &download_dir].map(str::to_owned)).await;
    let pinned = server.logged_fingerprint("listening for HTTPS").unwrap();
    let line = |arch: &str| {
        let printed = server.cli(&["join-command", "--arch", arch, "--server-fingerprint", &pinned]);
        assert!(printed.status.success(), "{}", said(&printed));
        String::from_utf8(printed.stdout).unwrap()
    };
    let (root, state) = (server.dir.path().join("root"), server.dir.path().join("state"));

    let own = line("x86_64");
    let joined = Command::new("sh").args(["-c", &own]).env("PROCTOR_INSTALL_ROOT", &root).output().unwrap();

    assert!(joined.status.success(), "{own}\n{}", said(&joined));
    assert!(own.contains(&format!("'{}/download/proctor-agent-x86_64'", server.url)), "{own}");
    assert!(line("aarch64").contains(&format!("'{}/download/proctor-agent-aarch64'", server.url)));
    let installed = root.join("usr/local/bin/proctor-agent");
    assert_eq!(std::fs::read(&installed).unwrap(), std::fs::read(binary("proctor-agent")).unwrap());
    let settings = std::fs::read_to_string(root.join("etc/proctor/agent.env")).unwrap();
    let link = settings.lines().find_map(|line| line.strip_prefix("PROCTOR_SERVER=")).expect("where agents connect");
    let log = std::fs::File::create(server.dir.path().join("agent.log")).unwrap();
    let mut agent = Command::new(installed);
    agent.env("PROCTOR_SERVER", link).env("PROCTOR_STATE_DIR", &state).stderr(log);
    let mut agent = agent.env("PROCTOR_TOKEN_FILE", root.join("etc/proctor/join-token")).spawn().unwrap();
    eventually("the new host is online", || async {
        let hosts = server.cli(&["hosts", "--server-fingerprint", &pinned]);
        String::from_utf8_lossy(&hosts.stdout).contains("online").then_some(())
    })
    .await;
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[tokio::test]
async fn the_request_log_has_the_id_of_the_answer_and_the_caller() {
    let options = ["--tls-self", "--log", "info,proctor::requests=debug"].map(str::to_owned);
    let server = HttpsServer::start(&options).await;
    let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build().unwrap();

    let own = client.get(format!("{}/api/v1/whoami", server.url)).send().await.unwrap();
    let given = client.get(format!("{}/healthz", server.url)).header("X-Bkapi-Request-Id", "5".repeat(32));
    let given = given.send().await.unwrap();

    for (answer, words) in
        [(own, r#"method=GET route="/api/v1/whoami" status=401"#), (given, r#"method=GET route="/healthz" status=200"#)]
    {
        let id = answer.headers()["x-bkapi-request-id"].to_str().unwrap().to_owned();
        let log = server.program.log();
        let line = log.lines().find(|line| line.contains(&format!("id={id}"))).unwrap_or_else(|| panic!("{id} {log}"));
        assert!(line.contains(words) && line.contains("from=127.0.0.1"), "{line}");
    }
}
