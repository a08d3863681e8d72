//! The typed client of the native API, for the CLI and for tests.
//!
//! Promised: one method for each call of `/api/v1`; every request has a time limit; an error says
//! which server, and what the server said. Absent: retries (the caller knows whether a call may be
//! repeated), and any meaning: what the answers mean is said by `proctor-model`.

mod credentials;
mod error;
mod events;
mod types;

use std::time::Duration;

use proctor_model::{OperationKind, ProcessKey, TaskId};
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use credentials::Credentials;
pub use error::ClientError;
pub use events::{EventFilter, EventPage, EventView, NewWebhook, WebhookFormat, WebhookView};
pub use types::{
    CreatedApp, CreatedToken, HostView, Hosts, NewToken, PoolSetting, PoolView, ProcessFilter, ProcessPage,
    ProcessView, Row, TargetRow, TaskView,
};

use types::{Accepted, HostList, PoolList, Rows};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Beyond this no call of the API takes any time that its caller wants to wait for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

pub type Result<T> = std::result::Result<T, ClientError>;

/// One server, spoken to as one app and user. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    credentials: Credentials,
}

impl Client {
    /// `base_url` is what stands before `/api/v1`: `http://127.0.0.1:8080`.
    pub fn new(base_url: &str, credentials: Credentials) -> Result<Self> {
        let bad = |problem: String| ClientError::Url { url: base_url.to_owned(), problem };
        let base = Url::parse(base_url).map_err(|error| bad(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(bad(format!("the scheme is '{}', not http or https", base.scheme())));
        }
        let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).timeout(REQUEST_TIMEOUT);
        if base.scheme() == "http" {
            // A machine without root certificates can speak plain HTTP all the same. A redirect to
            // https would then fail, and none is followed: it would carry the secret elsewhere.
            builder = builder.tls_certs_only([]);
        }
        let http = builder
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|source| ClientError::Setup { source: source.without_url() })?;
        Ok(Self { http, base, credentials })
    }

    /// The server's address, as errors name it.
    pub fn server(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    pub async fn hosts(&self) -> Result<Vec<HostView>> {
        let list: HostList = self.get(&["hosts"], &[]).await?;
        Ok(list.hosts)
    }

    /// One page of the registered processes.
    pub async fn processes(&self, filter: &ProcessFilter) -> Result<ProcessPage> {
        self.get(&["processes"], &filter.to_query()).await
    }

    /// A process on every host where it is registered, with its spec and last snapshot.
    pub async fn process(&self, key: &ProcessKey) -> Result<Vec<ProcessView>> {
        let page: ProcessPage = self.get(&["processes", key.namespace.as_str(), key.name.as_str()], &[]).await?;
        Ok(page.processes)
    }

    /// `body` has the shape of register_proc_info: meta, hosts, spec.
    pub async fn register(&self, body: &Value) -> Result<Vec<Row>> {
        let rows: Rows = self.send(Method::POST, &["processes"], &[], body).await?;
        Ok(rows.rows)
    }

    /// As [`Self::register`], and replaces the spec where the process is registered already.
    pub async fn register_or_update(&self, body: &Value) -> Result<Vec<Row>> {
        let update = [("update", "true".to_owned())];
        let rows: Rows = self.send(Method::POST, &["processes"], &update, body).await?;
        Ok(rows.rows)
    }

    pub async fn unregister(&self, key: &ProcessKey, hosts: &Hosts) -> Result<Vec<Row>> {
        let path = ["processes", key.namespace.as_str(), key.name.as_str()];
        let rows: Rows = self.send(Method::DELETE, &path, &[], hosts).await?;
        Ok(rows.rows)
    }

    /// Asks for an operation with the spec that is registered on each host.
    pub async fn operate(&self, operation: OperationKind, key: &ProcessKey, hosts: &Hosts) -> Result<TaskId> {
        let mut body = json!({ "operation": operation, "process": key.to_string() });
        hosts.add_to(&mut body);
        let accepted: Accepted = self.send(Method::POST, &["operations"], &[], &body).await?;
        Ok(accepted.task_id)
    }

    pub async fn task(&self, id: TaskId) -> Result<TaskView> {
        self.get(&["tasks", &id.to_string()], &[]).await
    }

    pub async fn pools(&self, namespace: Option<&str>) -> Result<Vec<PoolView>> {
        let query: Vec<_> = namespace.map(|namespace| ("namespace", namespace.to_owned())).into_iter().collect();
        let list: PoolList = self.get(&["pools"], &query).await?;
        Ok(list.pools)
    }

    pub async fn set_pools(&self, hosts: &Hosts, pools: &[PoolSetting]) -> Result<Vec<Row>> {
        let mut body = json!({ "pools": pools });
        hosts.add_to(&mut body);
        let rows: Rows = self.send(Method::PUT, &["pools"], &[], &body).await?;
        Ok(rows.rows)
    }

    pub async fn create_token(&self, token: &NewToken) -> Result<CreatedToken> {
        self.send(Method::POST, &["tokens"], &[], token).await
    }

    pub async fn create_app(&self, code: &str, trusted: bool) -> Result<CreatedApp> {
        self.send(Method::POST, &["apps"], &[], &json!({ "code": code, "trusted": trusted })).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, String)]) -> Result<T> {
        self.get_within(REQUEST_TIMEOUT, path, query).await
    }

    /// With another time limit than the usual one.
    async fn get_within<T: DeserializeOwned>(
        &self,
        timeout: Duration,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T> {
        let request = self.request(Method::GET, self.url(path, query)).timeout(timeout);
        self.read(request.send().await).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: &(impl Serialize + ?Sized),
    ) -> Result<T> {
        let request = self.request(method, self.url(path, query)).json(body);
        self.read(request.send().await).await
    }

    fn request(&self, method: Method, url: Url) -> reqwest::RequestBuilder {
        self.http.request(method, url).header(credentials::HEADER, self.credentials.to_header())
    }

    fn url(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("an http URL has a path").pop_if_empty().extend(["api", "v1"]).extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn read<T: DeserializeOwned>(&self, answer: reqwest::Result<Response>) -> Result<T> {
        let response = answer.map_err(|source| self.unreachable(source))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|source| self.unreachable(source))?;
        if !status.is_success() {
            return Err(error::refused(self.server(), status, &body));
        }
        serde_json::from_slice(&body).map_err(|source| ClientError::Answer { server: self.server().to_owned(), source })
    }

    /// Without the address in the cause: the error names the server itself.
    fn unreachable(&self, source: reqwest::Error) -> ClientError {
        let server = self.server().to_owned();
        let source = source.without_url();
        if source.is_timeout() && !source.is_connect() {
            return ClientError::NoAnswer { server, seconds: REQUEST_TIMEOUT.as_secs(), source };
        }
        ClientError::Unreachable { server, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(base: &str) -> Client {
        Client::new(base, Credentials::new("app", "secret", "user")).unwrap()
    }

    #[test]
    fn a_name_with_slashes_stays_one_part_of_the_path() {
        let url = client("http://h:1/").url(&["processes", "a b", "/opt/x"], &[("host", "0:10.0.0.1".into())]);

        assert_eq!(url.as_str(), "http://h:1/api/v1/processes/a%20b/%2Fopt%2Fx?host=0%3A10.0.0.1");
    }

    #[test]
    fn a_server_behind_a_path_keeps_it() {
        let client = client("https://h/proctor/");

        assert_eq!(client.url(&["hosts"], &[]).as_str(), "https://h/proctor/api/v1/hosts");
        assert_eq!(client.server(), "https://h/proctor");
    }

    #[test]
    fn what_is_no_web_address_is_refused() {
        for url in ["127.0.0.1:8080", "ftp://x", "", "http://"] {
            assert!(matches!(Client::new(url, Credentials::new("a", "b", "c")), Err(ClientError::Url { .. })), "{url}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

        let error = client(&format!("http://{free}")).hosts().await.unwrap_err();

        assert_eq!(error.to_string(), format!("cannot reach http://{free}"));
    }
}
