//! HTTPS: the served certificate, its reload, and handshakes.
//!
//! Promised: a new certificate is used for new connections, without a restart; an unusable one leaves the old one in
//! place, with a log line. A handshake has a timeout, and counts as an unauthenticated connection that can be
//! evicted; peers that send nothing, or stall, keep nobody out.
//! Absent: client certificates, and the link, which has its own.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use proctor_pki::{Authority, HttpsCertificate, PkiError};
use proctor_runtime::{Handshakes, chain, clock};
use proctor_store::Store;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::ServerError;

/// How often files are checked for a change, and our own certificate for its expiry.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// An own certificate is replaced when less than this is left of its year.
const RENEW_BEFORE: Duration = Duration::from_secs(120 * 24 * 3600);
/// For the handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// A PEM file is a few kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The name of the key in the store.
const KEY: &str = "https key";
const HANDSHAKE_RECORD: u8 = 22;
/// Reads of what a peer sends that does not speak TLS.
const UNREAD_MAX: usize = 64;
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                         Content-Length: 44\r\n\r\nThis port speaks HTTPS: write https:// here\n";

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSource {
    /// PEM files, which are read again when they change.
    Files { certificate: PathBuf, key: PathBuf },
    /// The server's own authority, for these names and addresses; the key stays the same.
    Own { names: Vec<String> },
}

/// The HTTPS side of the API; a cheap handle.
#[derive(Clone, Debug)]
pub struct Https(Arc<Shared>);

struct Shared {
    source: Source,
    shown: Arc<Shown>,
    acceptor: TlsAcceptor,
    handshakes: Arc<Handshakes>,
    wanted: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Https").field("shown", &self.shown.0.read().fingerprint).finish_non_exhaustive()
    }
}

enum Source {
    Files { certificate: PathBuf, key: PathBuf },
    Own { authority: RwLock<Arc<Authority>>, store: Arc<dyn Store>, key_pem: String, names: Vec<String> },
}

/// Device, inode, time of the last change and size of a file.
type Stamp = (u64, u64, i64, i64, u64);

/// The certificate that new connections see.
#[derive(Debug)]
struct Shown(RwLock<HttpsCertificate>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().certified.clone())
    }
}

/// Why a pair of files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsProblem {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("cannot use {} with {}", certificate.display(), key.display())]
    Unusable { certificate: PathBuf, key: PathBuf, source: PkiError },
    #[error("{} expired at {expired_at}", certificate.display())]
    Expired { certificate: PathBuf, expired_at: Timestamp },
    #[error("cannot issue a certificate")]
    Issue(#[from] PkiError),
}

impl Https {
    pub async fn new(source: TlsSource, store: &Arc<dyn Store>) -> Result<Self, ServerError> {
        let source = match source {
            TlsSource::Files { certificate, key } => Source::Files { certificate, key },
            TlsSource::Own { names } => {
                let authority = RwLock::new(Arc::new(crate::gateway::authority(store).await?));
                let fresh = proctor_pki::new_https_key()?;
                let key = store.secret_or_insert(KEY, fresh.into_bytes()).await?;
                let (store, key_pem) = (store.clone(), String::from_utf8_lossy(&key).into_owned());
                Source::Own { authority, store, key_pem, names }
            }
        };
        Self::of(source)
    }

    fn of(source: Source) -> Result<Self, ServerError> {
        let first = source.load()?;
        if first.expires_at < now() {
            tracing::warn!(expired_at = %first.expires_at, "HTTPS certificate expired: clients will refuse it");
        }
        let shown = Arc::new(Shown(RwLock::new(first)));
        let config = proctor_pki::https_server_config(shown.clone())?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let shared = Shared { source, shown, acceptor, handshakes: Arc::default(), wanted: Notify::new() };
        Ok(Self(Arc::new(shared)))
    }

    /// Whether the files can be used; an own certificate always can.
    pub fn check(source: &TlsSource) -> Result<(), TlsProblem> {
        match source {
            TlsSource::Files { certificate, key } => {
                let source = Source::Files { certificate: certificate.clone(), key: key.clone() };
                source.load_valid().map(drop)
            }
            TlsSource::Own { .. } => Ok(()),
        }
    }

    /// What clients pin: SHA-256 of the public key.
    pub fn fingerprint(&self) -> String {
        self.0.shown.0.read().fingerprint.clone()
    }

    pub fn expires_at(&self) -> Timestamp {
        self.0.shown.0.read().expires_at
    }

    /// Reads the files at once, whether they seem to have changed or not.
    pub fn reload(&self) {
        self.0.wanted.notify_one();
    }

    /// Replaces the certificate when there is a better one, for as long as it is polled.
    pub(super) async fn keep_current(self) {
        let mut seen = self.0.source.stamp();
        loop {
            let is_wanted = tokio::time::timeout(LOOK_PERIOD, self.0.wanted.notified()).await.is_ok();
            // Taken before the files are read: a change in between is seen the next time.
            let stamp = self.0.source.stamp();
            let is_due = match &self.0.source {
                Source::Files { .. } => stamp != seen,
                Source::Own { .. } => {
                    self.0.source.follow_authority().await || self.expires_at() < now() + RENEW_BEFORE
                }
            };
            if is_wanted || is_due {
                seen = stamp;
                self.replace();
            }
        }
    }

    fn replace(&self) {
        match self.0.source.load_valid() {
            Ok(new) => {
                tracing::info!(fingerprint = new.fingerprint, expires_at = %new.expires_at, "HTTPS certificate loaded");
                *self.0.shown.0.write() = new;
            }
            Err(problem) => tracing::error!(
                problem = chain(&problem),
                still = self.fingerprint(),
                "HTTPS certificate not replaced: the old one stays in use"
            ),
        }
    }

    /// An address with authenticated calls.
    pub(super) fn know(&self, address: IpAddr) {
        self.0.handshakes.know([address]);
    }

    /// None where the peer did not finish, or too many others shake hands.
    pub(super) async fn accept(&self, mut stream: TcpStream, peer: SocketAddr) -> Option<TlsStream<TcpStream>> {
        let handshakes = &self.0.handshakes;
        if !handshakes.enter(peer.ip()).speaks(&stream).await {
            return None;
        }
        let admitted = handshakes.admit(peer.ip()).await?;
        let shaken = Box::pin(async {
            let mut first = [0];
            stream.peek(&mut first).await.ok()?;
            if first[0] != HANDSHAKE_RECORD {
                refuse_plain(&mut stream).await;
                return None;
            }
            let accepted = self.0.acceptor.accept(stream).await;
            accepted.inspect_err(|error| tracing::debug!(%peer, %error, "TLS handshake failed")).ok()
        });
        tokio::select! {
            shaken = tokio::time::timeout(HANDSHAKE_MAX, shaken) => shaken.ok().flatten(),
            () = admitted.greeting.gives_way.cancelled() => None,
        }
    }
}

/// A connection that is closed with something unread is reset, and the answer with it.
async fn refuse_plain(stream: &mut TcpStream) {
    if stream.write_all(NOT_TLS).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut unread = [0; 1024];
    for _ in 0..UNREAD_MAX {
        if !stream.read(&mut unread).await.is_ok_and(|read| read > 0) {
            return;
        }
    }
}

impl Source {
    /// Whether another authority vouches for the server by now; an unreadable store changes nothing.
    async fn follow_authority(&self) -> bool {
        let Self::Own { authority, store, .. } = self else { return false };
        let Ok(present) = crate::gateway::authority(store).await else { return false };
        let is_other = present.fingerprint() != authority.read().fingerprint();
        if is_other {
            *authority.write() = Arc::new(present);
        }
        is_other
    }

    fn load(&self) -> Result<HttpsCertificate, TlsProblem> {
        match self {
            Self::Files { certificate, key } => {
                let (chain, private) = (read(certificate)?, read(key)?);
                HttpsCertificate::from_pem(&chain, &private).map_err(|source| TlsProblem::Unusable {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    source,
                })
            }
            Self::Own { authority, key_pem, names, store: _ } => {
                Ok(authority.read().clone().issue_https(key_pem, names, now())?)
            }
        }
    }

    /// As [`Self::load`]; one that has expired is not worth a change.
    fn load_valid(&self) -> Result<HttpsCertificate, TlsProblem> {
        let loaded = self.load()?;
        match self {
            Self::Files { certificate, .. } if loaded.expires_at < now() => {
                Err(TlsProblem::Expired { certificate: certificate.clone(), expired_at: loaded.expires_at })
            }
            Self::Files { .. } | Self::Own { .. } => Ok(loaded),
        }
    }

    /// Changes when a file is written, replaced, or reached through another link.
    fn stamp(&self) -> Vec<Option<Stamp>> {
        let of = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
        };
        match self {
            Self::Files { certificate, key } => vec![of(certificate), of(key)],
            Self::Own { .. } => Vec::new(),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsProblem> {
    let failed = |source| TlsProblem::Read { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > FILE_BYTES_MAX {
        return Err(TlsProblem::TooLarge { path: path.to_owned() });
    }
    std::fs::read(path).map_err(failed)
}

fn now() -> Timestamp {
    Timestamp::from_millisecond(clock::unix_millis()).expect("the clock's time is a time")
}

#[cfg(test)]
pub(super) mod tests {
    use proctor_pki::AuthoritySecret;
    use proctor_runtime::Tasks;
    use tempfile::TempDir;

    use super::*;

    fn authority() -> Authority {
        let secret: AuthoritySecret = Authority::generate(now()).unwrap();
        Authority::load(&secret).unwrap()
    }

    /// A new pair in these files; its fingerprint.
    fn write_pair(dir: &Path, at: Timestamp) -> String {
        let key = proctor_pki::new_https_key().unwrap();
        let issued = authority().issue_https(&key, &["localhost".to_owned()], at).unwrap();
        let chain: String = issued.certified.cert.iter().map(|der| pem(der)).collect();
        std::fs::write(dir.join("cert.pem"), chain).unwrap();
        std::fs::write(dir.join("key.pem"), key).unwrap();
        issued.fingerprint
    }

    fn pem(der: &[u8]) -> String {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    pub(in crate::api) fn with_files() -> (TempDir, Https) {
        let dir = TempDir::new().unwrap();
        write_pair(dir.path(), now());
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let https = Https::of(Source::Files { certificate, key }).unwrap();
        (dir, https)
    }

    async fn until_shown(https: &Https, fingerprint: &str) {
        let shown = async {
            while https.fingerprint() != fingerprint {
                https.reload();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), shown).await.expect("the new certificate is shown");
    }

    #[tokio::test]
    async fn files_that_change_are_read_again_and_a_broken_pair_leaves_the_old_one() {
        let (dir, https) = with_files();
        let tasks = Tasks::default();
        tasks.spawn("https certificate", https.clone().keep_current());

        let second = write_pair(dir.path(), now());
        until_shown(&https, &second).await;

        std::fs::write(dir.path().join("key.pem"), proctor_pki::new_https_key().unwrap()).unwrap();
        https.replace();
        assert_eq!(https.fingerprint(), second, "a key of another certificate");
        std::fs::remove_file(dir.path().join("cert.pem")).unwrap();
        https.replace();
        assert_eq!(https.fingerprint(), second, "no file at all");
        write_pair(dir.path(), now() - Duration::from_secs(2 * 365 * 24 * 3600));
        https.replace();
        assert_eq!(https.fingerprint(), second, "one that has expired");

        let third = write_pair(dir.path(), now());
        until_shown(&https, &third).await;
        assert!(tasks.end(Duration::from_secs(60)).await);
    }
}
