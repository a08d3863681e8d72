//! Events and webhooks.

use std::collections::VecDeque;
use std::time::Duration;

use futures::Stream;
use proctor_api::{EventFilter, EventList, EventView, NewWebhook, WebhookList, WebhookTested, WebhookView};
use reqwest::{Method, Response};

use crate::{Client, ClientError, NOTHING, REQUEST_TIMEOUT, Result, error};

/// Allowance for the round trip beyond the time that the server waits.
const BEYOND_WAIT: Duration = Duration::from_secs(15);
/// A server sends a keep-alive at least every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// An event is far smaller.
const LINE_BYTES_MAX: usize = 1024 * 1024;

impl Client {
    pub async fn events(&self, filter: &EventFilter) -> Result<EventList> {
        self.get(&["events"], &filter.to_query(None)).await
    }

    /// As [`Self::events`]; if nothing matches, the server waits for new events, at most `wait`.
    pub async fn follow_events(&self, filter: &EventFilter, wait: Duration) -> Result<EventList> {
        self.get_within(wait + BEYOND_WAIT, &["events"], &filter.to_query(Some(wait.as_secs()))).await
    }

    /// Events as they happen, from `filter.after` on, until the server stops or the connection breaks; to continue,
    /// ask again after the last one received.
    pub async fn event_stream(&self, filter: &EventFilter) -> Result<impl Stream<Item = Result<EventView>> + use<>> {
        let url = self.url(&["events", "stream"], &filter.to_stream_query());
        let request = self.request(Method::GET, url).send();
        let no_answer =
            |_| ClientError::Silent { server: self.server().to_owned(), seconds: REQUEST_TIMEOUT.as_secs() };
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, request).await.map_err(no_answer)?;
        let response = answer.map_err(|source| self.unreachable(source, REQUEST_TIMEOUT))?;
        let status = response.status();
        if !status.is_success() {
            let body = response.bytes().await.map_err(|source| self.unreachable(source, REQUEST_TIMEOUT))?;
            return Err(error::refused(self.server(), status, &body));
        }
        let reader = Reader { client: self.clone(), response, lines: Lines::default(), ready: VecDeque::new() };
        Ok(futures::stream::unfold(Some(reader), |reader| async {
            let mut reader = reader?;
            match reader.next().await {
                Ok(event) => event.map(|event| (Ok(event), Some(reader))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    pub async fn webhooks(&self) -> Result<Vec<WebhookView>> {
        let list: WebhookList = self.get(&["webhooks"], NOTHING).await?;
        Ok(list.webhooks)
    }

    /// It gets the events from now on.
    pub async fn add_webhook(&self, webhook: &NewWebhook) -> Result<WebhookView> {
        self.send(Method::POST, &["webhooks"], NOTHING, webhook).await
    }

    /// Sends one request, marked as a test; an answer other than success is no error of this call.
    pub async fn test_webhook(&self, id: &str) -> Result<WebhookTested> {
        self.send(Method::POST, &["webhooks", id, "test"], NOTHING, &serde_json::json!({})).await
    }

    pub async fn remove_webhook(&self, id: &str) -> Result<()> {
        self.remove(&["webhooks", id]).await
    }
}

struct Reader {
    client: Client,
    response: Response,
    lines: Lines,
    ready: VecDeque<String>,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<EventView>> {
        let server = || self.client.server().to_owned();
        loop {
            if let Some(data) = self.ready.pop_front() {
                let answer = serde_json::from_str(&data);
                return answer.map(Some).map_err(|source| ClientError::Answer { server: server(), source });
            }
            let silent = |_| ClientError::Silent { server: server(), seconds: SILENCE_MAX.as_secs() };
            let chunk = tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await.map_err(silent)?;
            let chunk = chunk.map_err(|source| self.client.unreachable(source, SILENCE_MAX))?;
            let Some(chunk) = chunk else { return Ok(None) };
            self.ready.extend(self.lines.add(&chunk));
            if self.lines.rest.len() > LINE_BYTES_MAX {
                return Err(ClientError::Foreign {
                    server: server(),
                    status: self.response.status().as_u16(),
                    excerpt: "a stream of events with a line that has no end".to_owned(),
                });
            }
        }
    }
}

/// The data of server-sent events; our servers send each on one line.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// The data of the lines that are complete.
    fn add(&mut self, chunk: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(chunk);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let text = String::from_utf8_lossy(&whole);
        text.lines().filter_map(|line| line.strip_prefix("data:")).map(|data| data.trim_start().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_the_pieces_they_come_in() {
        let text = ":\n\nid: 1\nevent: started\ndata: {\"进\":1}\n\n: still here\n\ndata: {}\n\n".as_bytes();
        for size in 1..text.len() {
            let mut lines = Lines::default();

            let data: Vec<String> = text.chunks(size).flat_map(|chunk| lines.add(chunk)).collect();

            assert_eq!(data, ["{\"进\":1}", "{}"], "in pieces of {size}");
        }
    }
}
