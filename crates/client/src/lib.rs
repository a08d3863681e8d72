//! The typed client of the native API, for the CLI and for tests.
//!
//! Promised: one method for each call of `/api/v1`, in the types of `proctor-api`; every request has a
//! time limit; an error names the server and says what it answered. Absent: retries (the caller knows
//! whether a call may be repeated) and interpretation (that is `proctor-model`).
//!
//! Start at [`Client`]; its methods are grouped by file as the API is.

mod access;
mod credentials;
mod error;
mod events;
mod health;
mod hosts;
mod paging;
mod processes;
mod tasks;
mod upgrades;

use std::time::Duration;

use proctor_pki::OtherKey;
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use credentials::Credentials;
pub use error::ClientError;
pub use health::Health;
pub use processes::Hosts;
pub use proctor_api::*;
pub use tasks::WholeTask;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any call of the API should take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

pub type Result<T> = std::result::Result<T, ClientError>;

/// A call without a query.
const NOTHING: &[(); 0] = &[];

/// One server, called as one app and user. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    credentials: Credentials,
}

impl Client {
    /// `base_url` is what precedes `/api/v1`: `http://127.0.0.1:8080`.
    pub fn new(base_url: &str, credentials: Credentials) -> Result<Self> {
        let base = parse_base(base_url)?;
        let mut builder = reqwest::Client::builder();
        if base.scheme() == "http" {
            // A machine without root certificates can still speak plain HTTP. A redirect to https would then fail,
            // and none is followed: it would carry the secret elsewhere.
            builder = builder.tls_certs_only([]);
        }
        Self::build(builder, base, credentials)
    }

    /// As [`Self::new`], for a server whose key has this fingerprint (SHA-256 of its SubjectPublicKeyInfo, in
    /// hexadecimal digits); any other is refused, whatever its certificate says.
    pub fn pinned(base_url: &str, fingerprint: &str, credentials: Credentials) -> Result<Self> {
        let base = parse_base(base_url)?;
        if base.scheme() != "https" {
            let problem = "a server whose key is pinned is reached by https only".to_owned();
            return Err(ClientError::Url { url: base_url.to_owned(), problem });
        }
        let config = proctor_pki::pinned_config(fingerprint).map_err(|source| ClientError::Pin { source })?;
        Self::build(reqwest::Client::builder().tls_backend_preconfigured(config), base, credentials)
    }

    fn build(builder: reqwest::ClientBuilder, base: Url, credentials: Credentials) -> Result<Self> {
        let http = builder
            .connect_timeout(CONNECT_TIMEOUT)
            .tls_info(true)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|source| ClientError::Setup { source: source.without_url() })?;
        Ok(Self { http, base, credentials })
    }

    /// The server's address, as errors name it.
    pub fn server(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &(impl Serialize + ?Sized)) -> Result<T> {
        self.get_within(REQUEST_TIMEOUT, path, query).await
    }

    /// With another time limit than the default.
    async fn get_within<T: DeserializeOwned>(
        &self,
        limit: Duration,
        path: &[&str],
        query: &(impl Serialize + ?Sized),
    ) -> Result<T> {
        let request = self.request(Method::GET, self.url(path, query)).timeout(limit);
        self.read(request.send().await, limit).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &(impl Serialize + ?Sized),
        body: &(impl Serialize + ?Sized),
    ) -> Result<T> {
        self.send_request(self.request(method, self.url(path, query)).json(body)).await
    }

    async fn send_request<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T> {
        self.read(request.timeout(REQUEST_TIMEOUT).send().await, REQUEST_TIMEOUT).await
    }

    /// A call whose answer has no body.
    async fn done(&self, method: Method, path: &[&str], body: &(impl Serialize + ?Sized)) -> Result<()> {
        let request = self.request(method, self.url(path, NOTHING)).json(body).timeout(REQUEST_TIMEOUT);
        let response = request.send().await.map_err(|source| self.unreachable(source, REQUEST_TIMEOUT))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let body = response.bytes().await.map_err(|source| self.unreachable(source, REQUEST_TIMEOUT))?;
        Err(error::refused(self.server(), status, &body))
    }

    async fn remove(&self, path: &[&str]) -> Result<()> {
        let request = self.request(Method::DELETE, self.url(path, NOTHING));
        let Removed { .. } = self.send_request(request).await?;
        Ok(())
    }

    fn request(&self, method: Method, url: Url) -> reqwest::RequestBuilder {
        let (name, value) = self.credentials.header();
        self.http.request(method, url).header(name, value)
    }

    fn url(&self, path: &[&str], query: &(impl Serialize + ?Sized)) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("an http URL has a path").pop_if_empty().extend(["api", "v1"]).extend(path);
        let pairs = pairs(query);
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        url
    }

    async fn read<T: DeserializeOwned>(&self, answer: reqwest::Result<Response>, limit: Duration) -> Result<T> {
        let response = answer.map_err(|source| self.unreachable(source, limit))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|source| self.unreachable(source, limit))?;
        if !status.is_success() {
            return Err(error::refused(self.server(), status, &body));
        }
        serde_json::from_slice(&body).map_err(|source| ClientError::Answer { server: self.server().to_owned(), source })
    }

    /// Without the address in the cause: the error names the server itself.
    fn unreachable(&self, source: reqwest::Error, limit: Duration) -> ClientError {
        let server = self.server().to_owned();
        let source = source.without_url();
        if let Some(other) = OtherKey::in_chain(&source) {
            return ClientError::OtherKey { server, other };
        }
        if source.is_timeout() && !source.is_connect() {
            return ClientError::NoAnswer { server, seconds: limit.as_secs(), source };
        }
        ClientError::Unreachable { server, source }
    }
}

fn parse_base(base_url: &str) -> Result<Url> {
    let bad = |problem: String| ClientError::Url { url: base_url.to_owned(), problem };
    if !base_url.contains("://") {
        let rest = if base_url.is_empty() { "127.0.0.1:8080" } else { base_url };
        return Err(bad(format!("it has no scheme; write http://{rest} (or https://)")));
    }
    let base = Url::parse(base_url).map_err(|error| bad(error.to_string()))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(bad(format!("the scheme is '{}', not http or https", base.scheme())));
    }
    Ok(base)
}

/// The fields of a query that are set, as text.
fn pairs(query: &(impl Serialize + ?Sized)) -> Vec<(String, String)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(query) else { return Vec::new() };
    fields
        .into_iter()
        .filter_map(|(name, value)| match value {
            Value::Null => None,
            Value::String(text) => Some((name, text)),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Some((name, value.to_string())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(base: &str) -> Client {
        Client::new(base, Credentials::new("app", "secret", "user")).unwrap()
    }

    #[test]
    fn a_name_with_slashes_stays_one_part_of_the_path() {
        let query = ShowQuery { host: Some("0:10.0.0.1".into()), ..ShowQuery::default() };
        let url = client("http://h:1/").url(&["processes", "a b", "/opt/x"], &query);

        assert_eq!(url.as_str(), "http://h:1/api/v1/processes/a%20b/%2Fopt%2Fx?host=0%3A10.0.0.1");
    }

    #[test]
    fn a_query_says_only_what_it_narrows() {
        let query = ProcessQuery {
            namespace: Some("demo".into()),
            limit: Some(5),
            full: Some(true),
            sort: Some(ProcessSort::Memory),
            ..ProcessQuery::default()
        };

        let mut pairs = pairs(&query);

        pairs.sort();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("full", "true"), ("limit", "5"), ("namespace", "demo"), ("sort", "memory")]);
    }

    #[test]
    fn a_server_behind_a_path_keeps_it() {
        let client = client("https://h/proctor/");

        assert_eq!(client.url(&["hosts"], NOTHING).as_str(), "https://h/proctor/api/v1/hosts");
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

        let error = client(&format!("http://{free}")).hosts(&HostQuery::default()).await.unwrap_err();

        assert_eq!(error.to_string(), format!("cannot reach http://{free}"));
    }
}
