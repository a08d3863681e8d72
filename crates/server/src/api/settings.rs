//! The operator's settings for the API layer, and what the handlers share at run time.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;
use parking_lot::RwLock;
use proctor_api::SignInLink;
use proctor_model::{AgentId, FieldError, messages};
use proctor_runtime::clock;
use proctor_store::UserCredential;

use super::auth::session::{self, Links};
use super::auth::{GatewayKey, Verifier};
use super::bodies::Bodies;
use super::connections::{ConnectionLimits, Connections};
use super::downloads::Downloads;
use super::health::StoreHealth;
use super::heavy::FleetWork;
use super::https::Https;
use super::limits::{self, Quota, RateLimit, Rates};
use super::metrics::{ProcessMetrics, ServerMetrics};
use super::native::trend::Trend;
use super::parsing::Parsing;
use super::proxies::TrustedProxies;
use super::task_cache::TaskCache;
use crate::control::Control;
use crate::log_limit::LogLimit;
use crate::passwords::Passwords;
use crate::webhooks::AddressFilter;

/// The border as an operator wants it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// From where the names in Bk-App-Code and Bk-Username are believed without a secret.
    pub procapi_from: Networks,
    /// Proxies in front, which report the addresses of callers.
    pub proxies: TrustedProxies,
    /// The key of a gateway in front, whose X-Bkapi-JWT is believed.
    pub gateway_key: Option<GatewayKey>,
    /// Calls of one app in a second; None is no limit.
    pub rate_limit: Option<RateLimit>,
    /// Calls at the same time, of all callers together.
    pub concurrency_limit: NonZeroU32,
    /// Connections at the same time.
    pub connections: ConnectionLimits,
    /// From where metrics may be read without credentials.
    pub metrics_from: Networks,
    /// Whether `/metrics/processes` is served.
    pub metrics_processes: bool,
    /// Where webhooks may point.
    pub webhooks: AddressFilter,
    /// What new hosts may download: the agent program. None: nothing.
    pub download_dir: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            procapi_from: Networks::default(),
            proxies: TrustedProxies::default(),
            gateway_key: None,
            rate_limit: None,
            concurrency_limit: limits::CONCURRENCY,
            connections: ConnectionLimits::default(),
            metrics_from: Networks::default(),
            metrics_processes: false,
            webhooks: AddressFilter::default(),
            download_dir: None,
        }
    }
}

/// Networks in CIDR form, separated by commas; a single address is the network of that one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Also for an IPv4 address that comes through an IPv6 socket.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

impl FromIterator<Self> for Networks {
    fn from_iter<I: IntoIterator<Item = Self>>(parts: I) -> Self {
        Self(parts.into_iter().flat_map(|networks| networks.0).collect())
    }
}

impl FromStr for Networks {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = |text: &str| {
            let text = text.trim();
            let single = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse().or_else(|_| single()).map_err(|_| {
                let problem = messages::not_a_network(text);
                FieldError::new("networks", problem)
            })
        };
        text.split(',').filter(|part| !part.trim().is_empty()).map(network).collect::<Result<_, _>>().map(Self)
    }
}

/// What the handlers share; a cheap handle.
#[derive(Clone, Debug)]
pub struct ApiState {
    pub control: Control,
    /// `/healthz` and `/readyz` answer 503 until this agent is connected.
    pub wait_for: Option<AgentId>,
    pub(super) border: Arc<ApiShared>,
}

#[derive(Debug)]
pub(super) struct ApiShared {
    pub(super) settings: Settings,
    pub(super) verifier: Verifier,
    pub(super) passwords: Passwords,
    pub(super) links: Links,
    /// Attempts to sign in, of one address.
    pub(super) sign_ins: Rates,
    /// Sign-ins and password changes that succeed, of one user.
    pub(super) sessions: Rates,
    pub(super) failed_sign_ins: LogLimit,
    pub(super) rates: Rates,
    /// As the settings say it until somebody changes it.
    pub(super) metrics_from: RwLock<Networks>,
    pub(super) connections: Arc<Connections>,
    pub(super) bodies: Bodies,
    pub(super) parsing: Parsing,
    pub(super) fleet_work: FleetWork,
    pub(super) trend: Trend,
    pub(super) calls: Quota,
    pub(super) waits: Quota,
    pub(super) streams: Quota,
    pub(super) renditions: TaskCache,
    pub(super) store_health: StoreHealth,
    pub(super) metrics: ServerMetrics,
    pub(super) process_metrics: ProcessMetrics,
    pub(super) downloads: Downloads,
    https: OnceLock<Https>,
}

impl ApiShared {
    /// When the certificate of HTTPS ends, in Unix seconds.
    pub(super) fn https_expires_at(&self) -> Option<i64> {
        self.https.get().map(|https| https.expires_at().as_second())
    }
}

impl ApiState {
    pub fn new(control: Control, wait_for: Option<AgentId>, settings: Settings) -> Self {
        let border = ApiShared {
            rates: Rates::new(settings.rate_limit),
            metrics_from: RwLock::new(settings.metrics_from.clone()),
            connections: Connections::new(settings.connections),
            bodies: Bodies::default(),
            parsing: Parsing::default(),
            fleet_work: FleetWork::default(),
            trend: Trend::default(),
            calls: Quota::calls(settings.concurrency_limit),
            waits: Quota::waits(),
            streams: Quota::streams(),
            verifier: Verifier::default(),
            passwords: Passwords::default(),
            links: Links::default(),
            sign_ins: Rates::new(Some(limits::SIGN_INS)),
            sessions: Rates::of_sessions(),
            failed_sign_ins: LogLimit::default(),
            renditions: TaskCache::default(),
            store_health: StoreHealth::default(),
            metrics: ServerMetrics::default(),
            process_metrics: ProcessMetrics::default(),
            https: OnceLock::new(),
            downloads: Downloads::new(settings.download_dir.clone()),
            settings,
        };
        Self { control, wait_for, border: Arc::new(border) }
    }

    /// Tells metrics of the certificate.
    pub(crate) fn with_https(self, https: Option<Https>) -> Self {
        https.map(|https| self.border.https.set(https));
        self
    }

    pub(crate) fn set_rate_limit(&self, limit: Option<RateLimit>) {
        self.border.rates.set_limit(limit);
    }

    pub(crate) fn set_metrics_from(&self, networks: Networks) {
        *self.border.metrics_from.write() = networks;
    }

    /// A link that signs the user in once.
    pub(crate) fn sign_in_link(&self, user: &str, credential: UserCredential) -> SignInLink {
        let code = self.border.links.create(user, credential, std::time::Instant::now());
        let expires_at = clock::unix_millis() / 1000 + session::LINK_LIFETIME.as_secs().cast_signed();
        SignInLink { path: format!("/sign-in#link={code}"), expires_at }
    }

    /// Has every caller verified again; after a change of apps, users or tokens.
    pub(super) fn forget_verified(&self) {
        self.border.verifier.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_lists_of_cidr_and_addresses() {
        let networks: Networks = "10.0.0.0/8, 192.0.2.7,fd00::/8".parse().unwrap();

        for inside in ["10.255.0.1", "192.0.2.7", "fd12::1", "::ffff:10.0.0.1"] {
            assert!(networks.contain(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["11.0.0.1", "192.0.2.8", "fe80::1", "::1"] {
            assert!(!networks.contain(outside.parse().unwrap()), "{outside}");
        }
        assert_eq!("".parse::<Networks>().unwrap(), Networks::default());
        assert!("10.0.0.0/33".parse::<Networks>().is_err());
        assert!("localhost".parse::<Networks>().is_err());
    }
}
