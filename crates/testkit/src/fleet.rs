//! A server with agents, each a real program on the loopback.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Api, Launcher, Program, binary, end_all_in, eventually, free_port};

pub const APP: &str = "testapp";

/// How often other ports are drawn for a server whose own was taken since it was chosen.
const PORT_DRAWS: usize = 5;

/// `proctor server` on its own data directory.
#[derive(Debug)]
pub struct Server {
    pub program: Program,
    pub http: u16,
    pub link: u16,
}

impl Server {
    /// An error, with its log, once it has ended.
    async fn until_healthy_or_ended(&mut self, client: &reqwest::Client) -> Result<()> {
        let program = RefCell::new(&mut self.program);
        eventually("the server is healthy or has ended", || async {
            let ended = program.borrow_mut().has_ended();
            if let Some(status) = ended {
                return Some(Err(anyhow!("the server ended with {status}: {}", program.borrow().log())));
            }
            is_healthy(client, self.http).await.then_some(Ok(()))
        })
        .await
    }
}

async fn is_healthy(client: &reqwest::Client, http: u16) -> bool {
    let answer = client.get(format!("http://127.0.0.1:{http}/healthz")).send().await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

/// One `proctor-agent` with its own state directory.
#[derive(Debug)]
pub struct Agent {
    pub program: Program,
    pub ip: String,
    state_dir: PathBuf,
    launcher: Launcher,
    arguments: Vec<String>,
    log: PathBuf,
}

impl Agent {
    /// SIGKILL, then the same command again, without a token.
    pub fn restart(&mut self) -> Result<()> {
        self.program.kill();
        self.program = Program::launch(&self.launcher, "proctor-agent", &self.arguments, &self.log)?;
        Ok(())
    }

    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }
}

/// A server and what belongs to it. Agents are owned by the test.
#[derive(Debug)]
pub struct Fleet {
    pub server: Server,
    pub secret: String,
    pub client: reqwest::Client,
    dir: TempDir,
    setup: Setup,
}

/// How a fleet's server is started.
#[derive(Clone, Debug)]
pub struct Setup {
    pub launcher: Launcher,
    /// Where agents connect.
    pub link_ip: IpAddr,
    /// More arguments.
    pub extra: Vec<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { launcher: Launcher::default(), link_ip: Ipv4Addr::LOCALHOST.into(), extra: Vec::new() }
    }
}

impl Fleet {
    pub async fn start() -> Result<Self> {
        Self::start_in(tempfile::tempdir()?, &[]).await
    }

    /// In a directory that the test has prepared (`data`, `server.log`), with more arguments for the server.
    pub async fn start_in(dir: TempDir, extra: &[&str]) -> Result<Self> {
        let extra = extra.iter().map(|argument| (*argument).to_owned()).collect();
        Self::start_as(dir, Setup { extra, ..Setup::default() }).await
    }

    pub async fn start_as(dir: TempDir, setup: Setup) -> Result<Self> {
        let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
        let mut draws = PORT_DRAWS;
        let server = loop {
            draws -= 1;
            let (http, link) = (free_port(), free_port());
            let program = start_server(dir.path(), http, link, &setup)?;
            let mut server = Server { program, http, link };
            match server.until_healthy_or_ended(&client).await {
                Ok(()) => break server,
                Err(error) if draws > 0 && error.to_string().contains("Address already in use") => {}
                Err(error) => return Err(error),
            }
        };
        let data = text(&dir.path().join("data"));
        let secret = run_proctor(&["app", "create", APP, "--trusted", "--data-dir", &data])?;
        Ok(Self { server, secret, client, dir, setup })
    }

    /// Its API, for clients of their own.
    pub fn api(&self) -> Api {
        Api { client: self.client.clone(), base: self.url(""), authorization: self.authorization() }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.server.http)
    }

    pub async fn until_healthy(&self) {
        let ask = || async { is_healthy(&self.client, self.server.http).await.then_some(()) };
        eventually("the server is healthy", ask).await;
    }

    /// SIGKILL to the server, then the same command again.
    pub async fn restart_server(&mut self) -> Result<()> {
        self.server.program.kill();
        self.start_server_again().await
    }

    /// The same command again, after it has exited.
    pub async fn start_server_again(&mut self) -> Result<()> {
        let Server { http, link, .. } = self.server;
        self.server.program = start_server(self.dir.path(), http, link, &self.setup)?;
        self.server.until_healthy_or_ended(&self.client).await
    }

    /// Enrols an agent for this address and waits until it is connected.
    pub async fn agent(&self, ip: &str) -> Result<Agent> {
        self.agent_with(ip, &[]).await
    }

    /// As [`Self::agent`], with more arguments.
    pub async fn agent_with(&self, ip: &str, extra: &[&str]) -> Result<Agent> {
        self.agent_through(self.server.link, ip, extra).await
    }

    /// As [`Self::agent_with`], over another port of the loopback than the server's own.
    pub async fn agent_through(&self, port: u16, ip: &str, extra: &[&str]) -> Result<Agent> {
        self.agent_by(&Launcher::default(), &format!("127.0.0.1:{port}"), ip, extra).await
    }

    /// As [`Self::agent_with`], started through `launcher` and connected to `link`.
    pub async fn agent_by(&self, launcher: &Launcher, link: &str, ip: &str, extra: &[&str]) -> Result<Agent> {
        let token = run_proctor(&["token", "create", "--data-dir", &text(&self.dir.path().join("data"))])?;
        let state_dir = self.dir.path().join(format!("agent-{ip}"));
        let log = self.dir.path().join(format!("agent-{ip}.log"));
        let own = ["--server", link, "--state-dir", &text(&state_dir), "--ip", ip];
        let arguments: Vec<String> = own.iter().chain(extra).map(|argument| (*argument).to_owned()).collect();
        let mut first = arguments.clone();
        first.extend(["--token".to_owned(), token]);
        let program = Program::launch(launcher, "proctor-agent", &first, &log)?;
        let agent = Agent { program, ip: ip.to_owned(), state_dir, launcher: launcher.clone(), arguments, log };
        self.until_online(ip, true).await;
        Ok(agent)
    }

    pub async fn until_online(&self, ip: &str, online: bool) {
        eventually("the agent's presence is known", || async {
            let hosts = self.get("/api/v1/hosts").await.ok()?;
            let host = hosts["hosts"].as_array()?.iter().find(|host| host["ip"] == ip)?.clone();
            // A suspect host is about to be offline, or to be back.
            let is_connected = host["online"] == true && host["suspect"] != true;
            let is_known = host["returning"] != true || host["suspect"] == true;
            (is_connected == online && is_known).then_some(())
        })
        .await;
    }

    /// The value of the header X-Bkapi-Authorization.
    pub fn authorization(&self) -> String {
        json!({"bk_app_code": APP, "bk_app_secret": self.secret, "bk_username": "admin"}).to_string()
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.question(path).send().await?.text().await?)?)
    }

    /// A POST with the app's credentials in the header, still without a body.
    pub fn request(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.post(self.url(path)).header("X-Bkapi-Authorization", self.authorization())
    }

    /// A GET with the app's credentials in the header.
    pub fn question(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(self.url(path)).header("X-Bkapi-Authorization", self.authorization())
    }

    /// POSTs JSON with the app's credentials in the header; the answer must be HTTP 200.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = self.request(path).body(body.to_string()).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{path} answered {status}: {text}");
        serde_json::from_str(&text).with_context(|| format!("{path} answered no JSON: {text}"))
    }

    /// A call of the GSE family on the ESB paths.
    pub async fn gse(&self, name: &str, body: &Value) -> Result<Value> {
        self.post(&format!("/api/c/compapi/v2/gse/{name}/"), body).await
    }

    /// A call of the JOB family on the ESB paths.
    pub async fn job(&self, name: &str, body: &Value) -> Result<Value> {
        self.post(&format!("/api/c/compapi/v2/jobv3/{name}/"), body).await
    }

    /// Submits, then polls until no row is at 115; returns the rows. Every poll must hold every key.
    pub async fn operate(&self, call: &str, body: &Value) -> Result<Value> {
        let submitted = self.gse(call, body).await?;
        ensure!(submitted["code"] == 0, "{call}: {submitted}");
        let task = submitted["data"]["task_id"].as_str().context("a task id")?.to_owned();
        Ok(self.until_final(&task).await)
    }

    pub async fn until_final(&self, task: &str) -> Value {
        eventually("every row of the task is final", || async {
            let answer = self.gse("get_proc_operate_result_v2", &json!({"task_id": task})).await.ok()?;
            assert_eq!(answer["code"], 0, "{answer}");
            let rows = answer["data"].as_object().expect("a map of rows").clone();
            assert!(!rows.is_empty(), "a task without rows");
            rows.values().all(|row| row["error_code"] != 115).then_some(Value::Object(rows))
        })
        .await
    }
}

/// Ends agents too, so that none of them restarts anything.
impl Drop for Fleet {
    fn drop(&mut self) {
        end_all_in(self.dir.path());
    }
}

fn start_server(dir: &Path, http: u16, link: u16, setup: &Setup) -> Result<Program> {
    let own = [
        "server",
        "--webhook-allow",
        "127.0.0.0/8",
        "--http",
        &format!("127.0.0.1:{http}"),
        "--link",
        &format!("{}:{link}", setup.link_ip),
        "--data-dir",
        &text(&dir.join("data")),
    ]
    .map(String::from);
    let arguments: Vec<String> = own.iter().chain(&setup.extra).cloned().collect();
    Program::launch(&setup.launcher, "proctor", &arguments, &dir.join("server.log"))
}

/// Runs the CLI to its end and returns what it printed.
pub fn run_proctor(arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary("proctor")).args(arguments).output()?;
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "proctor {arguments:?} failed: {out} {error}");
    Ok(out.trim().to_owned())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
