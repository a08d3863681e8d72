//! Operations that leave a line of their own on the host, so that it is known which ran, and how often.

use std::path::PathBuf;

use proctor_testkit::{
    Agent, Answer, Fleet, History, HostEvent, HostRecord, Operation, Subject, TargetRead, TaskRead, eventually,
    unix_millis,
};
use serde_json::{Value, json};

/// A running process on a real agent, and the reloads that were asked of it.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) subject: Subject,
    ip: String,
    history: History,
    /// Task of each answered marker.
    tasks: Vec<(String, String)>,
    submitted: usize,
}

impl Marked {
    /// Starts the process.
    pub(crate) async fn start(fleet: &Fleet, agent: &Agent, name: &str) -> Self {
        let subject = Subject::new(fleet.dir(), name).unwrap();
        let ip = agent.ip.clone();
        let marked = Self { subject, ip, history: History::default(), tasks: Vec::new(), submitted: 0 };
        let rows = fleet.operate("operate_proc_multi", &marked.body(0, "none", "true")).await.unwrap();
        assert!(rows.as_object().unwrap().values().all(|row| row["error_code"] == 0), "{rows}");
        marked
    }

    fn body(&self, op_type: u8, marker: &str, before: &str) -> Value {
        let mut spec = self.subject.spec();
        spec["control"]["reload_cmd"] = json!(format!("{before}; echo {marker} $(date +%s%3N) >> executed.log"));
        spec["monitor_policy"]["start_check_secs"] = json!(0);
        spec["monitor_policy"]["op_timeout"] = json!(120);
        spec["alive_monitor_policy"] = spec["monitor_policy"].take();
        spec.as_object_mut().unwrap().retain(|key, _| key != "monitor_policy" && key != "resource");
        let item = json!({"meta": self.subject.meta(), "op_type": op_type, "agent_id_list": [format!("0:{}", self.ip)],
            "spec": spec});
        json!({"proc_operate_req": [item], "no_request": true})
    }

    /// Asks for a reload with a marker of its own; `before` is run before the marker is written. The task, if there is
    /// an answer.
    pub(crate) async fn submit(&mut self, fleet: &Fleet, before: &str) -> Option<String> {
        let marker = format!("marker-{}", self.submitted);
        self.submitted += 1;
        let answer = fleet.gse("operate_proc_multi", &self.body(8, &marker, before)).await.ok()?;
        assert_eq!(answer["code"], 0, "{answer}");
        let task = answer["data"]["task_id"].as_str().unwrap().to_owned();
        self.history.answers.push(Answer { key: marker.clone(), task: task.clone() });
        self.tasks.push((marker, task.clone()));
        Some(task)
    }

    /// The code that the task's only target reads now.
    pub(crate) async fn code(&mut self, fleet: &Fleet, task: &str) -> Option<u32> {
        let read = fleet.api().read_task(task).await?;
        let code = read.targets.as_ref()?.first()?.code;
        self.history.reads.push(read);
        Some(code)
    }

    /// Waits for the end of everything, judges it, and returns the codes in the order of the submits.
    pub(crate) async fn finish(mut self, fleet: &Fleet) -> Vec<u32> {
        proctor_testkit::read_until_final(&fleet.api(), &mut self.history).await.unwrap();
        self.history.hosts = self.executed();
        self.history.has_all_executions = true;
        self.history.assert_holds();
        let code = |task: &str| {
            let last = self.history.reads.iter().rev().find(|read| read.task == task).unwrap();
            last.targets.as_ref().unwrap()[0].code
        };
        self.tasks.iter().map(|(_, task)| code(task)).collect()
    }

    fn log(&self) -> PathBuf {
        self.subject.dir.join("executed.log")
    }

    /// What ran on the host; a marker whose submit was not answered is an operation, too.
    fn executed(&self) -> Vec<HostRecord> {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let line = |line: &str| {
            let (marker, at_ms) = line.split_once(' ').expect("a marker and a time");
            let task = self.tasks.iter().find(|(of, _)| of == marker).map_or(marker, |(_, task)| task);
            let what = HostEvent::Begun { operation: Operation::new(task, 0) };
            HostRecord { at_ms: at_ms.trim().parse().expect("a time"), host: self.ip.clone(), what }
        };
        text.lines().map(line).collect()
    }

    pub(crate) async fn until_executed(&self, count: usize) {
        eventually("the operations have run", || async { (self.executed().len() >= count).then_some(()) }).await;
    }
}

/// So that a helper that records nothing is noticed.
#[tokio::test(flavor = "multi_thread")]
async fn a_marked_operation_that_ran_twice_is_found() {
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent("127.0.0.1").await.unwrap();
    let mut marked = Marked::start(&fleet, &agent, "witness").await;
    let task = marked.submit(&fleet, "true").await.unwrap();
    fleet.until_final(&task).await;
    let text = std::fs::read_to_string(marked.log()).unwrap();
    std::fs::write(marked.log(), text.repeat(2)).unwrap();

    let target = TargetRead { index: 0, code: 0, message_id: String::new() };
    marked.history.reads.push(TaskRead { at_ms: unix_millis(), task, targets: Some(vec![target]) });
    marked.history.hosts = marked.executed();

    let breaches = marked.history.breaches();
    assert_eq!(breaches.len(), 1, "{breaches:?}");
    assert!(breaches[0].what.contains("executed 2 times"), "{breaches:?}");
}
