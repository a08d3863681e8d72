//! Clocks that jump and processes that crash.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proctor_testkit::{
    Answer, Fleet, History, Launcher, Load, LoadPlan, Setup, Subject, Swarm, SwarmPlan, eventually, read_until_final,
    submit_until_answered,
};
use serde_json::json;

use crate::Arguments;
use crate::judge::{Seen, Usage, at_most, judge, mebibytes, watch_server};

const IP: &str = "127.0.0.1";
const SERVER_BYTES_MAX: u64 = 1 << 30;
/// Of one core, while 10,000 processes crash every ten seconds.
const SERVER_CORES_MAX: f64 = 0.5;

/// The server's wall clock is what this file says.
struct ServerClock {
    file: std::path::PathBuf,
}

impl ServerClock {
    fn create(dir: &Path) -> Result<(Self, Launcher)> {
        let library = std::fs::read_dir("/usr/lib")?
            .flatten()
            .map(|entry| entry.path().join("faketime/libfaketime.so.1"))
            .find(|path| path.is_file())
            .context("libfaketime is not installed")?;
        let file = dir.join("clock");
        let variables = [
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let clock = Self { file };
        clock.set("+0")?;
        Ok((clock, Launcher { variables, ..Launcher::default() }))
    }

    /// Its offset, such as `+1h`. The file is replaced, so that nobody reads half of it.
    fn set(&self, offset: &str) -> Result<()> {
        let next = self.file.with_extension("next");
        std::fs::write(&next, offset)?;
        Ok(std::fs::rename(next, &self.file)?)
    }
}

pub(crate) async fn clock_jump(arguments: &Arguments) -> Result<Seen> {
    /// Between one start and the next, as the processes of the rolling task take turns.
    const JUMPS: [&str; 4] = ["+1h", "-1h", "+30d", "+0"];
    let mut seen = Seen::default();
    let dir = tempfile::tempdir()?;
    let (clock, launcher) = ServerClock::create(dir.path())?;
    let mut fleet = Fleet::start_as(dir, Setup { launcher, ..Setup::default() }).await?;
    let agent = fleet.agent(IP).await?;
    let api = fleet.api();
    let count = 2 * JUMPS.len() + 2;
    let subjects =
        (0..count).map(|number| Subject::new(fleet.dir(), &format!("turn-{number:02}"))).collect::<Result<Vec<_>>>()?;
    let log = fleet.dir().join("turns.log");
    for subject in &subjects {
        let mut spec = subject.spec();
        let start = spec["control"]["start_cmd"].as_str().context("a start command")?;
        let turn =
            format!("echo begin {0} >> {1}; sleep 0.5; {start}; echo end {0} >> {1}", subject.name, log.display());
        spec["control"]["start_cmd"] = json!(turn);
        spec["monitor_policy"]["start_check_secs"] = json!(0);
        let hosts = json!([{"ip": IP, "bk_cloud_id": 0, "bk_supplier_id": 0}]);
        let register = json!({"meta": subject.meta(), "hosts": hosts, "spec": spec});
        let answer = fleet.gse("register_proc_info", &register).await?;
        ensure!(answer["code"] == 0, "{answer}");
    }
    let rolling = json!({"max_parallel": 1, "max_failures": 0, "canary": 0, "wait_healthy": false});
    let operation = json!({"operation": "start", "selector": "proc_name", "all": true, "rolling": rolling});
    let task = submit_until_answered(&api, &operation, "roll").await?;
    let turns = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    for (number, jump) in JUMPS.iter().enumerate() {
        eventually("the rolling task goes on", || async { (turns() > 4 * number).then_some(()) }).await;
        clock.set(jump)?;
        if number == 1 {
            // A server that starts with a clock that was set back resumes what was open.
            fleet.restart_server().await?;
        }
        tokio::time::sleep(arguments.scaled(3)).await;
    }
    let mut history = History { answers: vec![Answer { key: "roll".to_owned(), task }], ..History::default() };
    read_until_final(&api, &mut history).await?;
    let order = std::fs::read_to_string(&log)?;
    let lines: Vec<&str> = order.lines().collect();
    let expected: Vec<String> = subjects
        .iter()
        .flat_map(|subject| [format!("begin {}", subject.name), format!("end {}", subject.name)])
        .collect();
    ensure!(lines == expected, "the turns were {lines:?}");
    let targets = history.reads.last().and_then(|read| read.targets.clone()).context("the task was read")?;
    ensure!(targets.len() == count && targets.iter().all(|target| target.code == 0), "{targets:?}");
    seen.add(format!("{count} turns, one after the other, across jumps {JUMPS:?} and a restart"));
    judge(&history, &mut seen)?;
    drop(agent);
    Ok(seen)
}

pub(crate) async fn crash_loops(arguments: &Arguments) -> Result<Seen> {
    const PROCESSES: usize = 200;
    const PERIOD_SECS: u64 = 10;
    let (mut seen, mut usage) = (Seen::default(), Usage::default());
    let fleet = Fleet::start().await?;
    let agents = arguments.agents.min(50);
    let behaviour = format!("[[group]]\nname = 'crashing'\nshare = 1.0\ncrash_every_secs = {PERIOD_SECS}\n");
    let swarm = Swarm::start(&fleet, &SwarmPlan { behaviour, ..SwarmPlan::new(agents, PROCESSES) }).await?;
    let api = fleet.api();
    let key = "start-all".to_owned();
    let operation = json!({"operation": "start", "selector": "swarm=true", "all": true});
    let task = submit_until_answered(&api, &operation, &key).await?;
    let load = Load::start(api.clone(), LoadPlan { rate: 5, hosts: swarm.hosts(), processes: PROCESSES });
    let (begun, before) = (Instant::now(), fleet.server.program.cpu_time().context("the server runs")?);
    watch_server(&fleet, &mut usage, arguments.scaled(120).max(Duration::from_secs(2 * PERIOD_SECS))).await;
    let busy = fleet.server.program.cpu_time().context("the server runs")?.saturating_sub(before);
    let cores = busy.as_secs_f64() / begun.elapsed().as_secs_f64();
    seen.add(format!(
        "{PROCESSES} processes on each of {agents} agents crashed every {PERIOD_SECS} s: server used {:.0} % of a core, at \
         most {}",
        100.0 * cores,
        mebibytes(usage.peak())
    ));
    at_most("cores of the server", Some(cores), SERVER_CORES_MAX)?;
    let mut history = load.finish().await?;
    let mut of_start = History { answers: vec![Answer { key, task }], ..History::default() };
    read_until_final(&api, &mut of_start).await?;
    history.answers.extend(of_start.answers);
    history.reads.extend(of_start.reads);
    history.hosts = swarm.finish()?;
    history.has_all_executions = true;
    usage.record(&mut history, "server", SERVER_BYTES_MAX);
    judge(&history, &mut seen)?;
    Ok(seen)
}
