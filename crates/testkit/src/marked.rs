//! Operations that leave a line of their own on the host, so that it is known which ran, and how often.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{Agent, Answer, Fleet, History, HostEvent, HostRecord, Operation, Subject, eventually, read_until_final};

/// A running process on a real agent, and the reloads that were asked of it.
#[derive(Debug)]
pub struct Marked {
    pub subject: Subject,
    ip: String,
    history: History,
    /// Task of each answered marker.
    tasks: Vec<(String, String)>,
    submitted: usize,
}

impl Marked {
    /// Starts the process.
    pub async fn start(fleet: &Fleet, agent: &Agent, name: &str) -> Result<Self> {
        let subject = Subject::new(fleet.dir(), name)?;
        let ip = agent.ip.clone();
        let marked = Self { subject, ip, history: History::default(), tasks: Vec::new(), submitted: 0 };
        let rows = fleet.operate("operate_proc_multi", &marked.body(0, "none", "true")).await?;
        let has_started = rows.as_object().is_some_and(|rows| rows.values().all(|row| row["error_code"] == 0));
        ensure!(has_started, "{name} does not start: {rows}");
        Ok(marked)
    }

    fn body(&self, op_type: u8, marker: &str, before: &str) -> Value {
        let mut spec = self.subject.spec();
        spec["control"]["reload_cmd"] = json!(format!("{before}; echo {marker} $(date +%s%3N) >> executed.log"));
        spec["monitor_policy"]["start_check_secs"] = json!(0);
        spec["monitor_policy"]["op_timeout"] = json!(300);
        spec["alive_monitor_policy"] = spec["monitor_policy"].take();
        let parts = spec.as_object_mut().expect("a spec is an object");
        parts.retain(|key, _| key != "monitor_policy" && key != "resource");
        let item = json!({"meta": self.subject.meta(), "op_type": op_type, "agent_id_list": [format!("0:{}", self.ip)],
            "spec": spec});
        json!({"proc_operate_req": [item], "no_request": true})
    }

    /// Submits a reload with its own marker; `before` runs before the marker is written. Without an answer, it may
    /// run, once.
    pub async fn submit(&mut self, fleet: &Fleet, before: &str) -> Result<String> {
        let marker = format!("marker-{}", self.submitted);
        self.submitted += 1;
        let answer = fleet.gse("operate_proc_multi", &self.body(8, &marker, before)).await?;
        let task = answer["data"]["task_id"].as_str().with_context(|| format!("no task: {answer}"))?.to_owned();
        self.history.answers.push(Answer { key: marker.clone(), task: task.clone() });
        self.tasks.push((marker, task.clone()));
        Ok(task)
    }

    /// The code that the task's only target reads now.
    pub async fn code(&mut self, fleet: &Fleet, task: &str) -> Option<u32> {
        let read = fleet.api().read_task(task).await?;
        let code = read.targets.as_ref()?.first()?.code;
        self.history.reads.push(read);
        Some(code)
    }

    /// Waits until everything has ended; returns the record to be judged, and the codes in order of the submits.
    pub async fn finish(mut self, fleet: &Fleet) -> Result<(History, Vec<u32>)> {
        read_until_final(&fleet.api(), &mut self.history).await?;
        self.history.hosts = self.executed()?;
        self.history.has_all_executions = true;
        let code = |task: &str| {
            let last = self.history.reads.iter().rev().find(|read| read.task == task)?;
            Some(last.targets.as_ref()?.first()?.code)
        };
        let codes = self.tasks.iter().filter_map(|(_, task)| code(task)).collect();
        Ok((self.history, codes))
    }

    fn log(&self) -> PathBuf {
        self.subject.dir.join("executed.log")
    }

    /// What ran on the host; a marker whose submit was not answered is an operation, too.
    fn executed(&self) -> Result<Vec<HostRecord>> {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let line = |line: &str| {
            let (marker, at_ms) = line.split_once(' ').with_context(|| format!("a marker without a time: {line}"))?;
            let task = self.tasks.iter().find(|(of, _)| of == marker).map_or(marker, |(_, task)| task);
            let what = HostEvent::Begun { operation: Operation::new(task, 0) };
            Ok(HostRecord { at_ms: at_ms.trim().parse()?, host: self.ip.clone(), what })
        };
        text.lines().map(line).collect()
    }

    pub async fn until_executed(&self, count: usize) {
        eventually("the operations have run", || async { (self.executed().ok()?.len() >= count).then_some(()) }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TargetRead, TaskRead};

    #[test]
    fn a_marked_operation_that_ran_twice_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let subject = Subject::new(dir.path(), "witness").unwrap();
        let target = TargetRead { index: 0, code: 0, message_id: String::new() };
        let read = TaskRead { at_ms: 9000, task: "task".to_owned(), targets: Some(vec![target]) };
        let mut history = History { reads: vec![read], ..History::default() };
        let tasks = vec![("marker-0".to_owned(), "task".to_owned())];
        let marked = Marked { subject, ip: "127.0.0.1".to_owned(), history: history.clone(), tasks, submitted: 2 };

        std::fs::write(marked.log(), "marker-0 1000\nmarker-1 1001\nmarker-0 1002\n").unwrap();
        history.hosts = marked.executed().unwrap();

        let breaches = history.breaches();
        assert_eq!(breaches.len(), 1, "{breaches:?}");
        assert!(breaches[0].what.contains("task/0 was executed 2 times"), "{breaches:?}");
    }
}
