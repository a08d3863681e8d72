//! Health check of a server, without credentials.

use reqwest::header::DATE;
use reqwest::tls::TlsInfo;
use serde_json::Value;

use crate::{CONNECT_TIMEOUT, Client, ClientError, Result};

/// The answer of `/healthz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// `ok`, `degraded`, `waiting`, `stopping` or `failed`.
    pub status: String,
    /// None: healthy.
    pub problem: Option<String>,
    /// The server's time, as in the HTTP header.
    pub date: Option<String>,
    /// With https: the certificate that the server presented, by now trusted, in DER.
    pub certificate: Option<Vec<u8>>,
}

impl Client {
    pub async fn health(&self) -> Result<Health> {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("an http URL has a path").pop_if_empty().push("healthz");
        let answer = self.http.get(url).timeout(CONNECT_TIMEOUT).send().await;
        let response = answer.map_err(|source| self.unreachable(source, CONNECT_TIMEOUT))?;
        let status = response.status();
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok()).map(str::to_owned);
        let shown = response.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
        let certificate = shown.map(<[u8]>::to_vec);
        let body = response.bytes().await.map_err(|source| self.unreachable(source, CONNECT_TIMEOUT))?;
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some(word) = said.get("status").and_then(Value::as_str) else {
            let excerpt = "no word about its health".to_owned();
            return Err(ClientError::Foreign { server: self.server().to_owned(), status: status.as_u16(), excerpt });
        };
        let reason = || said.get("reason").and_then(Value::as_str).unwrap_or(word).to_owned();
        let is_well = status.is_success() && word == "ok";
        Ok(Health { status: word.to_owned(), problem: (!is_well).then(reason), date, certificate })
    }
}
