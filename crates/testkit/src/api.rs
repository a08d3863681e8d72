//! The native API, for clients that go on while a test kills and restarts the server.

use anyhow::{Context, Result, bail};
use reqwest::StatusCode;
use serde_json::Value;

use crate::history::{GenerationRead, TargetRead, TaskRead};
use crate::unix_millis;

/// Rows of one page.
const PAGE: usize = 1000;

/// A server's address with the credentials of an app.
#[derive(Clone, Debug)]
pub struct Api {
    pub(crate) client: reqwest::Client,
    pub(crate) base: String,
    pub(crate) authorization: String,
}

impl Api {
    /// With the value of the header X-Bkapi-Authorization.
    pub fn new(client: reqwest::Client, base: String, authorization: String) -> Self {
        Self { client, base, authorization }
    }

    /// Submits an operation. None: there was no answer, or the server asked to retry, so it is unknown whether
    /// there is a task. Fails if the server refuses the request.
    pub async fn submit(&self, operation: &Value, key: &str) -> Result<Option<String>> {
        let request = self.client.post(format!("{}/api/v1/operations", self.base));
        let request = request.header("X-Bkapi-Authorization", &self.authorization).header("Idempotency-Key", key);
        let request = request.header("Content-Type", "application/json").body(operation.to_string());
        let Some((status, answer)) = answer(request).await else { return Ok(None) };
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Ok(None);
        }
        let answer = answer.with_context(|| format!("{status} without JSON"))?;
        match answer["task_id"].as_str() {
            Some(task) if status.is_success() => Ok(Some(task.to_owned())),
            _ => bail!("the operation was refused with {status}: {answer}"),
        }
    }

    pub async fn cancel(&self, task: &str) -> bool {
        let request = self.client.post(format!("{}/api/v1/tasks/{task}/cancel", self.base));
        let request = request.header("X-Bkapi-Authorization", &self.authorization);
        answer(request).await.is_some_and(|(status, _)| status.is_success())
    }

    /// None: there is no answer, so nothing was read.
    pub async fn read_task(&self, task: &str) -> Option<TaskRead> {
        let mut targets = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!("/api/v1/tasks/{task}/targets?limit={PAGE}{after}");
            let (status, page) = self.get(&path).await?;
            if status == StatusCode::NOT_FOUND {
                return Some(TaskRead { at_ms: unix_millis(), task: task.to_owned(), targets: None });
            }
            let page = page.filter(|_| status.is_success())?;
            targets.extend(page["targets"].as_array()?.iter().filter_map(target));
            match page["next"].as_u64() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        Some(TaskRead { at_ms: unix_millis(), task: task.to_owned(), targets: Some(targets) })
    }

    /// The generations of the first registrations; empty if there was no answer.
    pub async fn generations(&self) -> Vec<GenerationRead> {
        let Some((_, Some(page))) = self.get("/api/v1/processes?limit=100").await else { return Vec::new() };
        let read = |process: &Value| {
            let name = format!("{} on {}", process["process"].as_str()?, process["host"].as_str()?);
            Some(GenerationRead { process: name, generation: process["generation"].as_u64()? })
        };
        page["processes"].as_array().into_iter().flatten().filter_map(read).collect()
    }

    /// Number of connected hosts; one that the server only expects back does not count.
    pub async fn online(&self) -> Option<usize> {
        let mut online = 0;
        let mut after = String::new();
        loop {
            let (status, page) = self.get(&format!("/api/v1/hosts?limit={PAGE}{after}")).await?;
            let page = page.filter(|_| status.is_success())?;
            let is_online = |host: &&Value| host["online"] == true && host["returning"] != true;
            online += page["hosts"].as_array()?.iter().filter(is_online).count();
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Some(online),
            }
        }
    }

    /// None: there is no answer, or none in JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Option<Value> {
        let request = self.client.post(format!("{}{path}", self.base)).body(body.to_string());
        let request = request.header("X-Bkapi-Authorization", &self.authorization);
        answer(request.header("Content-Type", "application/json")).await?.1
    }

    pub async fn get(&self, path: &str) -> Option<(StatusCode, Option<Value>)> {
        let request = self.client.get(format!("{}{path}", self.base));
        answer(request.header("X-Bkapi-Authorization", &self.authorization)).await
    }
}

fn target(row: &Value) -> Option<TargetRead> {
    Some(TargetRead {
        index: u32::try_from(row["index"].as_u64()?).ok()?,
        code: u32::try_from(row["code"].as_u64()?).ok()?,
        message_id: row["message_id"].as_str().unwrap_or_default().to_owned(),
    })
}

async fn answer(request: reqwest::RequestBuilder) -> Option<(StatusCode, Option<Value>)> {
    let answer = request.send().await.ok()?;
    let status = answer.status();
    let text = answer.text().await.ok()?;
    Some((status, serde_json::from_str(&text).ok()))
}
