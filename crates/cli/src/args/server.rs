//! Arguments of `proctor server` and `proctor dev`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use proctor_server::api::{
    ConnectionLimits, GatewayKey, Networks, ProxyHeader, RateLimit, Settings, TlsSource, TrustedProxies,
};
use proctor_server::control::{LEFTOVERS_KEPT_MIN, Retention, STATUS_TASKS_KEPT_MIN, TASKS_KEPT_MIN};
use proctor_server::webhooks::AddressFilter;
use proctor_traces::TraceArguments;

use super::parse_duration;

const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const LINK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9077);
const LINK_DEV: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Settings of the HTTP side.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Border")]
pub(crate) struct BorderArgs {
    /// Networks of an ESB in front, whose Bk-App-Code and Bk-Username under /procapi are trusted
    /// without a secret, such as 10.1.2.0/24,fd00::7 [default: none]
    #[arg(long, env = "PROCTOR_PROCAPI_FROM", value_name = "CIDR,…", default_value = "", hide_default_value = true, value_parser = parse_networks)]
    procapi_from: Networks,
    /// Networks of proxies in front, whose header with the caller's address is trusted, such as 10.1.2.7; may be
    /// repeated [default: none]
    #[arg(long, env = "PROCTOR_TRUSTED_PROXY", value_name = "CIDR,…", value_parser = parse_networks)]
    trusted_proxy: Vec<Networks>,
    /// Header that these proxies write; the other one is ignored
    #[arg(long, env = "PROCTOR_PROXY_HEADER", value_name = "NAME", default_value = "x-forwarded-for")]
    proxy_header: ProxyHeaderName,
    /// Public key (PEM) of an API gateway in front, whose X-Bkapi-JWT is trusted [default: none]
    #[arg(long, env = "PROCTOR_GATEWAY_PUBLIC_KEY", value_name = "FILE")]
    gateway_public_key: Option<PathBuf>,
    /// Networks that webhooks may reach although they are loopback, link-local or a cloud's metadata, such as
    /// 127.0.0.0/8 [default: none]
    #[arg(long, env = "PROCTOR_WEBHOOK_ALLOW", value_name = "CIDR,…", default_value = "", hide_default_value = true, value_parser = parse_networks)]
    webhook_allow: Networks,
    /// Networks that may read /metrics without credentials, such as 10.1.2.0/24 [default: none]
    #[arg(long, env = "PROCTOR_METRICS_FROM", value_name = "CIDR,…", default_value = "", hide_default_value = true, value_parser = parse_networks)]
    pub(crate) metrics_from: Networks,
    /// Expose the usage of each process at /metrics/processes
    #[arg(long, env = "PROCTOR_METRICS_PROCESSES", value_parser = BoolishValueParser::new())]
    metrics_processes: bool,
    /// Rate limit of one app, such as 100/s [default: no limit]
    #[arg(long, env = "PROCTOR_RATE_LIMIT", value_name = "N/s", value_parser = parse_rate)]
    rate_limit: Option<RateLimit>,
    /// Concurrent requests of all callers together [default: 512]
    #[arg(long, env = "PROCTOR_CONCURRENCY_LIMIT", value_name = "N")]
    concurrency_limit: Option<NonZeroU32>,
    /// Concurrent HTTP connections [default: half of the descriptors that may be open, at most 8192]
    #[arg(long, env = "PROCTOR_MAX_CONNECTIONS", value_name = "N")]
    max_connections: Option<NonZeroU32>,
    /// Concurrent HTTP connections of one address [default: three quarters of all]
    #[arg(long, env = "PROCTOR_MAX_CONNECTIONS_PER_PEER", value_name = "N")]
    max_connections_per_peer: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProxyHeaderName {
    XForwardedFor,
    Forwarded,
}

impl ProxyHeaderName {
    fn header(self) -> ProxyHeader {
        match self {
            Self::XForwardedFor => ProxyHeader::XForwardedFor,
            Self::Forwarded => ProxyHeader::Forwarded,
        }
    }
}

/// How HTTP is encrypted.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "HTTPS")]
pub(crate) struct TlsArgs {
    /// Certificate (PEM) for HTTPS, followed by those that lead to its authority; read again when it changes
    #[arg(long, env = "PROCTOR_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, env = "PROCTOR_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// HTTPS with a certificate of the server's own authority; clients pin the fingerprint that is logged
    #[arg(long, env = "PROCTOR_TLS_SELF", conflicts_with = "tls_cert", value_parser = BoolishValueParser::new())]
    tls_self: bool,
    /// Names and addresses in that certificate besides localhost and the machine's name
    #[arg(long, env = "PROCTOR_TLS_NAME", value_name = "NAME,…", value_delimiter = ',')]
    tls_name: Vec<String>,
    /// Serve plain HTTP to the network: credentials are sent in clear text
    #[arg(long, env = "PROCTOR_INSECURE_HTTP", value_parser = BoolishValueParser::new())]
    insecure_http: bool,
}

impl TlsArgs {
    /// None is plain HTTP, which must be requested if others than this machine could read it.
    pub(crate) fn source(&self, http: SocketAddr) -> Result<Option<TlsSource>> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(TlsSource::Files { certificate: certificate.clone(), key: key.clone() }))
            }
            (Some(_), None) => bail!("--tls-cert needs --tls-key: the private key of that certificate"),
            (None, Some(_)) => bail!("--tls-key needs --tls-cert: the certificate of that key"),
            _ if !self.tls_name.is_empty() && !self.tls_self => {
                bail!("--tls-name is for the certificate of --tls-self")
            }
            _ if self.tls_self => Ok(Some(TlsSource::Own { names: self.names(http) })),
            _ => check_plain(http, self.insecure_http).map(|()| None),
        }
    }

    fn names(&self, http: SocketAddr) -> Vec<String> {
        let machine = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let machine = machine.filter(|name| !name.is_empty());
        let own = (!http.ip().is_unspecified()).then(|| http.ip().to_string());
        let usual = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut names: Vec<String> = Vec::new();
        for name in self.tls_name.iter().cloned().chain(machine).chain(usual).chain(own) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// Every call sends secrets over the network.
fn check_plain(http: SocketAddr, is_accepted: bool) -> Result<()> {
    if http.ip().to_canonical().is_loopback() || is_accepted {
        return Ok(());
    }
    bail!(
        "--http {http} would serve plain HTTP to the network, with every secret readable on the way: give --tls-cert \
         and --tls-key, or --tls-self; or listen on 127.0.0.1 behind a proxy; or accept it with --insecure-http"
    )
}

impl BorderArgs {
    pub(crate) fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_limit
    }

    /// `descriptors` may be open at the same time; None means no limit.
    pub(crate) fn settings(&self, descriptors: Option<u64>) -> Result<Settings> {
        let usual = Settings::default();
        let of_descriptors = ConnectionLimits::of_descriptors(descriptors);
        let limits = self.max_connections.map_or(of_descriptors, |total| ConnectionLimits::of_total(total.get()));
        let per_peer = self.max_connections_per_peer.map_or(limits.per_peer, NonZeroU32::get);
        Ok(Settings {
            procapi_from: self.procapi_from.clone(),
            proxies: TrustedProxies {
                networks: self.trusted_proxy.iter().cloned().collect(),
                header: self.proxy_header.header(),
            },
            gateway_key: self.gateway_public_key.as_deref().map(read_key).transpose()?,
            rate_limit: self.rate_limit,
            concurrency_limit: self.concurrency_limit.unwrap_or(usual.concurrency_limit),
            connections: ConnectionLimits { per_peer, ..limits },
            metrics_from: self.metrics_from.clone(),
            metrics_processes: self.metrics_processes,
            webhooks: AddressFilter::new(self.webhook_allow.clone()),
            download_dir: None,
        })
    }
}

fn read_key(path: &Path) -> Result<GatewayKey> {
    let pem = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    pem.parse().with_context(|| format!("{} holds no key of a gateway", path.display()))
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Address to serve HTTP on
    #[arg(long, env = "PROCTOR_HTTP", value_name = "ADDR", default_value_t = HTTP)]
    pub(crate) http: SocketAddr,
    /// Address to accept agents on; port 0 picks a free one
    #[arg(long, env = "PROCTOR_LINK", value_name = "ADDR", default_value_t = LINK_DEV)]
    pub(crate) link: SocketAddr,
    /// Data directory [default: ~/.local/share/proctor/dev]
    #[arg(long, env = "PROCTOR_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Serve plain HTTP to the network: credentials are sent in clear text
    #[arg(long, env = "PROCTOR_INSECURE_HTTP", value_parser = BoolishValueParser::new())]
    insecure_http: bool,
    /// Programs that new hosts download and agents are upgraded to
    #[arg(long, env = "PROCTOR_DOWNLOAD_DIR", value_name = "DIR")]
    pub(crate) download_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) border: BorderArgs,
}

impl DevArgs {
    pub(crate) fn check_plain(&self) -> Result<()> {
        check_plain(self.http, self.insecure_http)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Configuration file, with a key for each flag [default: /etc/proctor/server.toml, if it exists]
    #[arg(long, env = "PROCTOR_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to serve HTTP on; other than loopback, it needs HTTPS or --insecure-http
    #[arg(long, env = "PROCTOR_HTTP", value_name = "ADDR", default_value_t = HTTP)]
    pub(crate) http: SocketAddr,
    /// Address to accept agents on
    #[arg(long, env = "PROCTOR_LINK", value_name = "ADDR", default_value_t = LINK)]
    pub(crate) link: SocketAddr,
    /// Data directory [default: /var/lib/proctor; ~/.local/share/proctor/server unless root]
    #[arg(long, env = "PROCTOR_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Give a new host no work until an operator approves it (`proctor hosts approve`)
    #[arg(long, env = "PROCTOR_APPROVE_HOSTS", value_parser = BoolishValueParser::new())]
    pub(crate) approve_hosts: bool,
    /// Require agents to sign what they report; without it, their mutual TLS connection is the proof
    #[arg(long, env = "PROCTOR_SIGNED_REPORTS", value_parser = BoolishValueParser::new())]
    pub(crate) signed_reports: bool,
    /// Programs that new hosts download: proctor-agent-ARCH [default: /usr/share/proctor/download, if it exists]
    #[arg(long, env = "PROCTOR_DOWNLOAD_DIR", value_name = "DIR")]
    pub(crate) download_dir: Option<PathBuf>,
    /// After SIGTERM, how long `/readyz` fails before connections are refused, so that load balancers notice
    #[arg(long, env = "PROCTOR_DRAIN_TIME", value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub(crate) drain_time: Duration,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) border: BorderArgs,
    #[command(flatten)]
    pub(crate) retention: RetentionArgs,
    #[command(flatten)]
    pub(crate) traces: TraceArguments,
}

/// Retention periods, in server uptime.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Retention")]
pub(crate) struct RetentionArgs {
    /// Finished tasks with their results, at least 24h
    #[arg(long, env = "PROCTOR_KEEP_TASKS", value_name = "TIME", default_value = "72h", value_parser = parse_keep_tasks)]
    keep_tasks: Duration,
    /// Finished tasks that only asked for the status of processes or reached no host, at least 1h; clients may rely on 24h
    #[arg(long, env = "PROCTOR_KEEP_STATUS_TASKS", value_name = "TIME", default_value = "24h", value_parser = parse_keep_status_tasks)]
    keep_status_tasks: Duration,
    /// Events
    #[arg(long, env = "PROCTOR_KEEP_EVENTS", value_name = "TIME", default_value = "30d", value_parser = parse_duration)]
    keep_events: Duration,
    /// Events; beyond this many, the oldest of the hosts that have most are deleted early
    #[arg(long, env = "PROCTOR_EVENTS_MAX", value_name = "N", default_value_t = 1_000_000)]
    events_max: u64,
    /// Audit entries in the store; older ones are moved to the archive
    #[arg(long, env = "PROCTOR_KEEP_AUDIT", value_name = "TIME", default_value = "365d", value_parser = parse_duration)]
    keep_audit: Duration,
    /// Unregistered processes and deleted pools with their history, at least 2h
    #[arg(long, env = "PROCTOR_KEEP_TOMBSTONES", value_name = "TIME", default_value = "30d", value_parser = parse_keep_leftovers)]
    keep_tombstones: Duration,
    /// Join tokens and user tokens that expired or were used up, at least 2h
    #[arg(long, env = "PROCTOR_KEEP_TOKENS", value_name = "TIME", default_value = "7d", value_parser = parse_keep_leftovers)]
    keep_tokens: Duration,
    /// Specs that no process, revision or task refers to, at least 2h
    #[arg(long, env = "PROCTOR_KEEP_SPECS", value_name = "TIME", default_value = "24h", value_parser = parse_keep_leftovers)]
    keep_specs: Duration,
    /// Where older audit entries are moved, in files of 10,000 [default: audit in the data directory]
    #[arg(long, env = "PROCTOR_AUDIT_ARCHIVE", value_name = "DIR")]
    audit_archive: Option<PathBuf>,
}

impl RetentionArgs {
    pub(crate) fn retention(&self, data_dir: &Path) -> Retention {
        Retention {
            tasks: self.keep_tasks,
            status_tasks: self.keep_status_tasks,
            events: self.keep_events,
            events_max: self.events_max,
            audit: self.keep_audit,
            tombstones: self.keep_tombstones,
            tokens: self.keep_tokens,
            specs: self.keep_specs,
            audit_archive: Some(self.audit_archive.clone().unwrap_or_else(|| data_dir.join("audit"))),
        }
    }
}

fn parse_keep_status_tasks(text: &str) -> std::result::Result<Duration, String> {
    let kept = parse_duration(text)?;
    if kept < STATUS_TASKS_KEPT_MIN {
        return Err(format!("'{text}' is less than 1h: clients poll for results that long"));
    }
    Ok(kept)
}

fn parse_keep_tasks(text: &str) -> std::result::Result<Duration, String> {
    let kept = parse_duration(text)?;
    if kept < TASKS_KEPT_MIN {
        return Err(format!("'{text}' is less than 24h: clients rely on results for that long"));
    }
    Ok(kept)
}

fn parse_keep_leftovers(text: &str) -> std::result::Result<Duration, String> {
    let kept = parse_duration(text)?;
    if kept < LEFTOVERS_KEPT_MIN {
        return Err(format!("'{text}' is less than 2h: what was used in the last hour may be needed again"));
    }
    Ok(kept)
}

fn parse_rate(text: &str) -> std::result::Result<RateLimit, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.into_text())
}

fn parse_networks(text: &str) -> std::result::Result<Networks, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.into_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_kept_for_a_day_at_least() {
        assert_eq!(parse_keep_tasks("24h"), Ok(Duration::from_secs(24 * 3600)));
        assert!(parse_keep_tasks("23h").unwrap_err().contains("less than 24h"));
    }

    #[test]
    fn what_is_left_over_is_kept_for_two_hours_at_least() {
        assert_eq!(parse_keep_leftovers("2h"), Ok(LEFTOVERS_KEPT_MIN));
        assert!(parse_keep_leftovers("119m").unwrap_err().contains("less than 2h"));
    }

    #[test]
    fn plain_http_beyond_the_loopback_needs_a_word() {
        let tls =
            TlsArgs { tls_cert: None, tls_key: None, tls_self: false, tls_name: Vec::new(), insecure_http: false };

        for loopback in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80"] {
            assert_eq!(tls.source(loopback.parse().unwrap()).unwrap(), None, "{loopback}");
        }
        for open in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
            let open = open.parse().unwrap();

            assert!(tls.source(open).unwrap_err().to_string().contains("--insecure-http"), "{open}");
            assert_eq!(TlsArgs { insecure_http: true, ..tls.clone() }.source(open).unwrap(), None);
            assert!(TlsArgs { tls_self: true, ..tls.clone() }.source(open).unwrap().is_some());
        }
    }
}
