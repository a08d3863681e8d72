//! One host with one subject and one bystander, and helpers for scenarios.

use std::cell::RefCell;
use std::path::Path;

use proctor_testkit::{Agent, Fleet, Program, Subject, eventually};
use serde_json::{Value, json};

use super::zero::{Bystander, zero_list};
use crate::{code, hosts, instance, row};

pub(crate) const IP: &str = "127.0.0.1";

// The agent is dropped before the subject, which it would restart.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) subject: Subject,
    pub(crate) bystander: Bystander,
    pub(crate) fleet: Fleet,
    tasks: RefCell<Vec<String>>,
}

impl Scene {
    /// A registered subject; nothing runs. Its start has no check unless `change` says so.
    pub(crate) async fn new(name: &str, change: impl FnOnce(&Subject, &mut Value)) -> Self {
        let fleet = Fleet::start().await.unwrap();
        let agent = fleet.agent(IP).await.unwrap();
        Self::with(fleet, agent, name, change).await
    }

    /// As [`Self::new`], on an existing host.
    pub(crate) async fn with(
        fleet: Fleet,
        agent: Agent,
        name: &str,
        change: impl FnOnce(&Subject, &mut Value),
    ) -> Self {
        let subject = Subject::new(fleet.dir(), name).unwrap();
        let bystander = Bystander::start(fleet.dir()).await;
        let scene = Self { agent, subject, bystander, fleet, tasks: RefCell::default() };
        let answer = scene.register(&scene.subject, change).await;
        assert_eq!(code(&answer["data"], IP, name), 0, "{answer}");
        scene
    }

    /// As [`Self::new`], and it runs.
    pub(crate) async fn running(name: &str, change: impl FnOnce(&Subject, &mut Value)) -> Self {
        let scene = Self::new(name, change).await;
        let row = scene.operate(0).await;
        assert_eq!(row["error_code"], 0, "{row}");
        scene
    }

    /// The whole answer: a registration may be refused.
    pub(crate) async fn register(&self, subject: &Subject, change: impl FnOnce(&Subject, &mut Value)) -> Value {
        let mut spec = subject.spec();
        spec["monitor_policy"]["start_check_secs"] = json!(0);
        change(subject, &mut spec);
        let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
        self.fleet.gse("update_proc_info", &body).await.unwrap()
    }

    pub(crate) async fn submit(&self, op_type: i64) -> String {
        self.submit_for(&self.subject, op_type).await
    }

    pub(crate) async fn submit_for(&self, subject: &Subject, op_type: i64) -> String {
        let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
        let answer = self.fleet.gse("operate_proc", &body).await.unwrap();
        let task = answer["data"]["task_id"].as_str().unwrap_or_else(|| panic!("no task: {answer}")).to_owned();
        self.tasks.borrow_mut().push(task.clone());
        task
    }

    /// The final row of a task.
    pub(crate) async fn row_of(&self, task: &str) -> Value {
        row(&self.fleet.until_final(task).await, IP, &self.subject.name).clone()
    }

    pub(crate) async fn operate(&self, op_type: i64) -> Value {
        let task = self.submit(op_type).await;
        self.row_of(&task).await
    }

    pub(crate) async fn operate_on(&self, subject: &Subject, op_type: i64) -> Value {
        let task = self.submit_for(subject, op_type).await;
        row(&self.fleet.until_final(&task).await, IP, &subject.name).clone()
    }

    /// What a status query sees.
    pub(crate) async fn status(&self) -> Value {
        instance(&self.fleet, IP, &self.subject.name).await
    }

    /// What the server knows of the process.
    pub(crate) async fn shown(&self) -> Value {
        let path = format!("/api/v1/processes/e2e/{}", self.subject.name);
        self.fleet.get(&path).await.unwrap()["processes"][0].clone()
    }

    pub(crate) async fn until_pid(&self) -> i32 {
        eventually("the process runs", || async { self.subject.pid() }).await
    }

    pub(crate) async fn until_other_than(&self, old: i32) -> i32 {
        eventually("the process has a new life", || async { self.subject.pid().filter(|pid| *pid != old) }).await
    }

    /// The agent, not only its pid file, knows that life.
    pub(crate) async fn until_known(&self, pid: i32) {
        eventually("that life is known", || async { (self.shown().await["pid"] == pid).then_some(()) }).await;
    }

    pub(crate) async fn until_released(&self) {
        eventually("it is no longer managed", || async { (self.status().await["isAuto"] == false).then_some(()) })
            .await;
    }

    pub(crate) async fn events(&self, kind: &str) -> Vec<Value> {
        let path = format!("/api/v1/events?namespace=e2e&name={}&type={kind}&limit=1000", self.subject.name);
        self.fleet.get(&path).await.unwrap()["events"].as_array().cloned().unwrap_or_default()
    }

    /// The first event of this type about the subject.
    pub(crate) async fn event(&self, kind: &str) -> Value {
        eventually("the event is there", || async { self.events(kind).await.first().cloned() }).await
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.subject.dir.join(name)
    }

    pub(crate) fn write_pid(&self, text: impl ToString) {
        std::fs::write(self.subject.pid_file(), text.to_string()).unwrap();
    }

    /// The agent's arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let server = format!("127.0.0.1:{}", self.fleet.server.link);
        let state = self.agent.state_dir().display().to_string();
        ["--server", &server, "--state-dir", &state, "--ip", IP].map(String::from).to_vec()
    }

    /// The agent again, by a shell line that ends with `exec "$@"` or similar.
    pub(crate) fn start_agent_by(&mut self, line: &str) {
        let agent = proctor_testkit::binary("proctor-agent").display().to_string();
        let mut arguments = vec!["-c".to_owned(), line.to_owned(), "sh".to_owned(), agent];
        arguments.extend(self.arguments());
        let log = self.fleet.dir().join(format!("agent-{IP}.log"));
        self.agent.program.kill();
        self.agent.program = Program::start("/bin/sh", &arguments, &log).unwrap();
    }

    pub(crate) async fn until_back(&self) {
        self.fleet.until_online(IP, true).await;
    }

    pub(crate) async fn kill_agent(&mut self) {
        self.agent.program.kill();
        self.fleet.until_online(IP, false).await;
    }

    pub(crate) async fn restart_agent(&mut self) {
        self.agent.restart().unwrap();
        self.until_back().await;
    }

    /// SIGKILL and a new agent, which cannot reach a server.
    pub(crate) fn restart_agent_without_server(&mut self) {
        self.agent.restart().unwrap();
    }

    /// What holds after every scenario.
    pub(crate) async fn zero_list(&self, copies: usize) {
        zero_list(&self.fleet, &self.agent, &self.subject, copies).await;
        let tasks = self.tasks.borrow().clone();
        for task in tasks {
            self.fleet.until_final(&task).await;
        }
        self.bystander.is_untouched();
    }
}

/// A start command that runs perl code under the subject's name, with its pid file.
pub(crate) fn perl(subject: &Subject, code: &str) -> Value {
    let name = &subject.name;
    std::fs::copy("/usr/bin/perl", subject.dir.join(name)).unwrap();
    json!(format!("echo start >> commands.log; ./{name} -e '{code}' > /dev/null 2>&1 & echo $! > {name}.pid"))
}

/// The numbers in a file, one on each line.
pub(crate) fn numbers(path: &Path) -> Vec<i32> {
    std::fs::read_to_string(path).unwrap_or_default().lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Waits for a condition that needs no request.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    eventually(what, || {
        let holds = holds();
        async move { holds.then_some(()) }
    })
    .await;
}
