//! A thousand operations in one call: what is asked of every process must not cost a walk over all of them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use proctor_testkit::Fleet;
use serde_json::{Value, json};

use crate::figures::{Table, millis};

const IP: &str = "127.0.0.1";
const PATIENCE: Duration = Duration::from_secs(300);
const POLL_PERIOD: Duration = Duration::from_millis(20);
/// Limits are set by one call per process, this many at a time.
const UPDATES_AT_ONCE: usize = 32;
/// Of the host's memory; less than the smallest process has for itself.
const TINY_PERCENT: f64 = 0.0001;
/// Time limit of start commands that hang; subtracted from the figures.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long a start without a pid file is waited for; subtracted from the figures.
const SEEK: Duration = Duration::from_secs(5);
/// What was ended is checked again after this: a process that is restarted without an interval is back by then.
const RELAUNCH: Duration = Duration::from_secs(2);

/// What is done to all of them at once.
#[derive(Clone, Copy, Debug)]
enum BulkOperation {
    Start,
    Status,
    Kill,
    Stop,
    /// Start commands that hang until their timeout.
    TimedOut,
    /// Starts that leave something behind and no pid file.
    Swept,
}

impl BulkOperation {
    /// In this order: what is stopped or killed was started before.
    const ALL: [Self; 7] =
        [Self::Start, Self::Status, Self::Kill, Self::Start, Self::Stop, Self::TimedOut, Self::Swept];

    fn title(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Status => "status",
            Self::Kill => "kill by SIGKILL",
            Self::Stop => "stop by SIGTERM",
            Self::TimedOut => "start that times out, after its time",
            Self::Swept => "failed start with leftovers, after its search",
        }
    }

    fn op_type(self) -> i64 {
        match self {
            Self::Start | Self::TimedOut | Self::Swept => 0,
            Self::Stop => 1,
            Self::Status => 2,
            Self::Kill => 9,
        }
    }

    fn succeeds(self) -> bool {
        match self {
            Self::Start | Self::Status | Self::Kill | Self::Stop => true,
            Self::TimedOut | Self::Swept => false,
        }
    }

    /// What it takes in any case.
    fn expected(self) -> Duration {
        match self {
            Self::Start | Self::Status | Self::Kill | Self::Stop => Duration::ZERO,
            Self::TimedOut => TIMEOUT,
            Self::Swept => SEEK,
        }
    }

    /// How many of this many run afterwards.
    fn leaves(self, count: usize) -> usize {
        match self {
            Self::Start | Self::Status => count,
            Self::Kill | Self::Stop | Self::TimedOut | Self::Swept => 0,
        }
    }

    /// The name of the process. What fails is another one: it has no life that a later operation could end.
    fn process(self, number: usize) -> String {
        if self.succeeds() { format!("many-{number}") } else { format!("{self:?}-{number}") }
    }

    /// Where its start command records what it has started: what fails has no pid file.
    fn started_file(self, directory: &Path, number: usize) -> PathBuf {
        directory.join(format!("{}.{}", self.process(number), if self.succeeds() { "pid" } else { "started" }))
    }

    fn start_cmd(self, started: &Path) -> String {
        let started = started.display();
        match self {
            Self::Start | Self::Status | Self::Kill | Self::Stop | Self::Swept => {
                format!("sleep 100000 > /dev/null 2>&1 & echo $! > {started}")
            }
            Self::TimedOut => format!("sleep 100000 & echo $! > {started}; wait"),
        }
    }
}

pub(crate) async fn measure(count: usize) -> Result<Vec<Table>> {
    let columns = ["", "by", "time", "rows that failed", "alive afterwards"];
    let mut table = Table::new(format!("{count} processes in one call"), &columns);
    for tracking in ["best", "descent"] {
        let fleet = Fleet::start().await?;
        let _agent = fleet.agent_with(IP, &["--tracking", tracking]).await?;
        for operation in BulkOperation::ALL {
            let begun = Instant::now();
            let failed = failed_rows(&fleet, operation, count).await?;
            let took = begun.elapsed().saturating_sub(operation.expected());
            let expected = if operation.succeeds() { 0 } else { count };
            ensure!(failed == expected, "{}: {failed} of {count} rows failed", operation.title());
            let leaves = operation.leaves(count);
            if leaves == 0 {
                tokio::time::sleep(RELAUNCH).await;
            }
            let alive = living(&fleet, operation, count).len();
            ensure!(alive == leaves, "{}: {alive} of {count} run afterwards, not {leaves}", operation.title());
            let [failed, alive] = [failed, alive].map(|figure| figure.to_string());
            table.row([operation.title().to_owned(), tracking.to_owned(), millis(took), failed, alive]);
        }
        let took = millis(evicted(&fleet, count).await?);
        let title = "eviction, after the last limit was set".to_owned();
        table.row([title, tracking.to_owned(), took, "0".to_owned(), "0".to_owned()]);
    }
    table.notes.push("The floor of a start is that of `proctor-bench burst`.".to_owned());
    Ok(vec![table.finish()])
}

/// How many rows of the call did not end with 0.
async fn failed_rows(fleet: &Fleet, operation: BulkOperation, count: usize) -> Result<usize> {
    let items: Vec<Value> = (0..count).map(|number| item(fleet, operation, number)).collect();
    let submitted = fleet.gse("operate_proc_multi", &json!({"proc_operate_req": items})).await?;
    let task = submitted["data"]["task_id"].as_str().with_context(|| format!("a task id: {submitted}"))?.to_owned();
    let polled = async {
        loop {
            let answer = fleet.gse("get_proc_operate_result_v2", &json!({"task_id": task})).await?;
            let rows = answer["data"].as_object().with_context(|| format!("rows: {answer}"))?;
            if rows.values().all(|row| row["error_code"] != 115) {
                return anyhow::Ok(rows.values().filter(|row| row["error_code"] != 0).count());
            }
            tokio::time::sleep(POLL_PERIOD).await;
        }
    };
    tokio::time::timeout(PATIENCE, polled).await.context("the rows are not all final")?
}

/// From when all have a limit that all exceed until none of these lives runs. They come back later.
async fn evicted(fleet: &Fleet, count: usize) -> Result<Duration> {
    let failed = failed_rows(fleet, BulkOperation::Start, count).await?;
    ensure!(failed == 0, "{failed} of {count} do not start");
    let lives = living(fleet, BulkOperation::Start, count);
    ensure!(lives.len() == count, "{} of {count} run", lives.len());
    let updates = (0..count).map(|number| async move {
        let mut update = item(fleet, BulkOperation::Start, number);
        update["spec"]["resource"] = json!({"mem": TINY_PERCENT});
        let answer = fleet.gse("update_proc_info", &update).await?;
        ensure!(answer["code"] == 0, "a limit cannot be set: {answer}");
        Ok(())
    });
    futures::stream::iter(updates).buffer_unordered(UPDATES_AT_ONCE).try_collect::<()>().await?;
    let begun = Instant::now();
    while lives.iter().any(|pid| is_alive(pid)) {
        ensure!(begun.elapsed() < PATIENCE, "not all are evicted");
        tokio::time::sleep(POLL_PERIOD).await;
    }
    Ok(begun.elapsed())
}

fn item(fleet: &Fleet, operation: BulkOperation, number: usize) -> Value {
    let (name, started) = (operation.process(number), operation.started_file(fleet.dir(), number));
    let pid_file = fleet.dir().join(format!("{name}.pid"));
    json!({
        "meta": {"namespace": "bench", "name": name, "labels": {"proc_name": "sleep"}},
        "op_type": operation.op_type(),
        "hosts": [{"ip": IP, "bk_cloud_id": 0}],
        "spec": {
            "identity": {
                "proc_name": "sleep", "setup_path": fleet.dir(), "pid_path": pid_file, "user": "root",
                "config_path": "", "log_path": "", "index_key": "",
            },
            "control": {
                "start_cmd": operation.start_cmd(&started), "stop_cmd": "", "restart_cmd": "", "reload_cmd": "",
                "kill_cmd": "", "version_cmd": "", "health_cmd": "",
            },
            "resource": {},
            "monitor_policy": {
                "auto_type": 1, "start_check_secs": 0, "start_retries": 1_000_000, "start_interval": 0,
                "op_timeout": if operation.succeeds() { 60 } else { TIMEOUT.as_secs() },
            },
        },
    })
}

/// The pids of what the newest start commands have started, as far as alive.
fn living(fleet: &Fleet, operation: BulkOperation, count: usize) -> Vec<String> {
    let pid = |number: usize| {
        let text = std::fs::read_to_string(operation.started_file(fleet.dir(), number)).unwrap_or_default();
        text.trim().to_owned()
    };
    (0..count).map(pid).filter(|pid| is_alive(pid)).collect()
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
