//! A real server and a real agent, and the crowd registered and started through the API.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proctor_testkit::{Agent, Fleet, free_port};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Crowd, Kind};

const IP: &str = "127.0.0.1";
/// Processes per call: more than an agent starts in five seconds on a busy machine are refused.
const PART: usize = 100;
/// As Prometheus does it by default.
const SCRAPE_PERIOD: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct Proctor {
    fleet: Fleet,
    agent: Agent,
    /// Scrapes the agent's metrics, if they are on.
    _scraper: JoinSet<()>,
}

impl Proctor {
    pub(super) async fn start(kind: Kind, crowd: &Crowd<'_>, names: &[String]) -> Result<Self> {
        let fleet = Fleet::start().await?;
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())).to_string();
        let mut scraper = JoinSet::new();
        let agent = if kind == Kind::ProctorMetrics {
            let agent = fleet.agent_with(IP, &["--metrics", &metrics]).await?;
            let url = format!("http://{metrics}/metrics");
            scrape(&fleet.client, &url).await?;
            scraper.spawn(scrape_for_ever(fleet.client.clone(), url));
            agent
        } else {
            fleet.agent(IP).await?
        };
        for part in names.chunks(PART) {
            let items: Vec<Value> = part.iter().map(|name| item(kind, crowd, &fleet, name)).collect();
            start_all(&fleet, &json!({"proc_operate_req": items})).await?;
        }
        Ok(Self { fleet, agent, _scraper: scraper })
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.agent.program.pid()).expect("pids are small")
    }

    pub(super) fn kill(&mut self) {
        self.agent.program.kill();
    }

    pub(super) async fn start_again(&mut self) -> Result<()> {
        self.agent.restart()?;
        self.fleet.until_online(IP, true).await;
        Ok(())
    }
}

async fn scrape(client: &reqwest::Client, url: &str) -> Result<()> {
    let text = client.get(url).send().await?.error_for_status()?.text().await?;
    ensure!(text.contains("proctor_agent"), "these are no metrics of an agent: {text}");
    Ok(())
}

/// An agent that is being started again is asked the next time.
async fn scrape_for_ever(client: reqwest::Client, url: String) {
    let mut period = tokio::time::interval(SCRAPE_PERIOD);
    loop {
        period.tick().await;
        if let Err(error) = scrape(&client, &url).await {
            eprintln!("bench: metrics not read: {error:#}");
        }
    }
}

fn item(kind: Kind, crowd: &Crowd<'_>, fleet: &Fleet, name: &str) -> Value {
    let pid_file = fleet.dir().join(format!("{name}.pid"));
    let start = if kind == Kind::ProctorForeground {
        format!("echo $$ > {}; {}", pid_file.display(), crowd.worker.foreground(name))
    } else {
        crowd.worker.daemon(name, &pid_file)
    };
    let limits = if crowd.limits { json!({"cpu": 50.0, "mem": 50.0}) } else { json!({}) };
    json!({
        "meta": {"namespace": "bench", "name": name, "labels": {"proc_name": "worker"}},
        "op_type": 0,
        "hosts": [{"ip": IP, "bk_cloud_id": 0}],
        "spec": {
            "identity": {
                "proc_name": "worker", "setup_path": fleet.dir(), "pid_path": pid_file, "user": "root",
                "config_path": "", "log_path": "", "index_key": "",
            },
            "control": {
                "start_cmd": start, "stop_cmd": format!("kill $(cat {})", pid_file.display()),
                "restart_cmd": "", "reload_cmd": "", "kill_cmd": "", "version_cmd": "", "health_cmd": "",
            },
            "resource": limits,
            "monitor_policy": {
                "auto_type": 1, "start_check_secs": 0, "start_retries": 1_000_000, "start_interval": 0, "op_timeout": 60,
            },
        },
    })
}

async fn start_all(fleet: &Fleet, body: &Value) -> Result<()> {
    let submitted = fleet.gse("operate_proc_multi", body).await?;
    let task = submitted["data"]["task_id"].as_str().with_context(|| format!("a task id: {submitted}"))?.to_owned();
    let polled = async {
        loop {
            let answer = fleet.gse("get_proc_operate_result_v2", &json!({"task_id": task})).await?;
            let rows = answer["data"].as_object().with_context(|| format!("rows: {answer}"))?;
            if let Some(failed) = rows.values().find(|row| !matches!(row["error_code"].as_i64(), Some(0 | 115))) {
                anyhow::bail!("a worker does not start: {failed}");
            }
            if rows.values().all(|row| row["error_code"] == 0) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let result = tokio::time::timeout(PATIENCE, polled).await;
    ensure!(result.is_ok(), "the workers are not all started after {PATIENCE:?}");
    result?
}
