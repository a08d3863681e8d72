//! The key that signs the server's messages to agents.
//!
//! Promised: it is generated at the first start and kept in the store, like the authority; its certificate is renewed
//! long before it expires, even while the store cannot be read, and replaced when another authority vouches for it; a
//! rotation by another program on the same store is noticed within [`LOOK_PERIOD`], and all connected agents are then
//! notified. Sessions that sign at the same time share one signature: a call to the whole fleet costs a few hundred
//! of them, not one per agent. Nothing waits for a batch to fill.
//! Absent: what is signed (see `sender`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use proctor_pki::{Authority, CommandSigner, OldKey, Share, SigningSecret, Unsigned};
use proctor_runtime::chain;
use proctor_store::Store;
use proctor_wire::Signed;
use tokio::sync::oneshot;

use super::{Gateway, now};
use crate::ServerError;

const SIGNING_KEY: &str = "signing key";
/// How often the store is checked for a rotated key.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// How often the log says that the store cannot be read.
const FAILURE_LOG_PERIOD: Duration = Duration::from_secs(3600);
/// Sessions that share a signature; each then carries ten hashes with it.
const SHARES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Signing {
    present: RwLock<Present>,
    waiting: Mutex<Vec<Waiting>>,
    pub(super) control_epoch: u64,
}

#[derive(Debug)]
struct Present {
    secret: SigningSecret,
    /// The fingerprint of the authority that vouches for it.
    authority: String,
    signer: Arc<CommandSigner>,
}

/// Messages of a session that wait for their signature.
#[derive(Debug)]
struct Waiting {
    signer: Arc<CommandSigner>,
    hash: [u8; 32],
    share: oneshot::Sender<Result<Share, String>>,
}

/// Read from the store, made on first use.
pub(crate) async fn secret(store: &Arc<dyn Store>) -> Result<Vec<u8>, ServerError> {
    Ok(match store.secret(SIGNING_KEY).await? {
        Some(bytes) => bytes,
        None => store.secret_or_insert(SIGNING_KEY, SigningSecret::generate()?.to_bytes()).await?,
    })
}

/// Replaces the signing key in the store; servers on it follow. Its number is at least `number_min`, and returned.
pub(crate) async fn rotate(store: &Arc<dyn Store>, old: OldKey, number_min: u64) -> Result<u64, ServerError> {
    loop {
        let present = secret(store).await?;
        let new = SigningSecret::from_bytes(&present)?.rotated(old, number_min)?;
        if store.replace_secret(SIGNING_KEY, present, new.to_bytes()).await? {
            return Ok(new.number);
        }
    }
}

impl Signing {
    pub(super) fn new(secret: &[u8], control_epoch: u64, authority: &Authority) -> Result<Self, ServerError> {
        let secret = SigningSecret::from_bytes(secret)?;
        let signer = Arc::new(CommandSigner::issue(authority, &secret, now())?);
        let authority = authority.fingerprint();
        Ok(Self {
            present: RwLock::new(Present { secret, authority, signer }),
            waiting: Mutex::default(),
            control_epoch,
        })
    }

    pub(super) fn signer(&self) -> Arc<CommandSigner> {
        self.present.read().signer.clone()
    }

    /// Signed by this signer, together with what other sessions want signed now.
    pub(super) async fn sign(&self, signer: Arc<CommandSigner>, unsigned: Unsigned) -> Result<Signed, String> {
        let (share, shared) = oneshot::channel();
        let count = {
            let mut waiting = self.waiting.lock();
            waiting.push(Waiting { signer, hash: unsigned.hash(), share });
            waiting.len()
        };
        if count == 1 {
            // The first one signs for all, even if its own session ends meanwhile.
            let _signs = SignsForAll(self);
            // Ready tasks run first, and may join.
            tokio::task::yield_now().await;
        } else if count >= SHARES_MAX {
            self.sign_waiting();
        }
        let share = shared.await.map_err(|_| "the signing task is gone".to_owned())??;
        Ok(unsigned.signed(share))
    }

    fn sign_waiting(&self) {
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        // In a rotation there are two signers for a moment.
        while let Some(signer) = waiting.first().map(|first| first.signer.clone()) {
            let (ours, others): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|one| Arc::ptr_eq(&one.signer, &signer));
            waiting = others;
            let hashes: Vec<_> = ours.iter().map(|one| one.hash).collect();
            match signer.sign_all(&hashes) {
                Ok(shares) => ours.into_iter().zip(shares).for_each(|(one, share)| {
                    let _ = one.share.send(Ok(share));
                }),
                Err(error) => ours.into_iter().for_each(|one| {
                    let _ = one.share.send(Err(chain(&error)));
                }),
            }
        }
    }

    /// Takes over the key that the store has now. Whether it is another one.
    fn take_over(&self, secret: &[u8], authority: &Authority, now: Timestamp) -> Result<bool, ServerError> {
        self.use_key(SigningSecret::from_bytes(secret)?, authority, now)
    }

    /// If the store cannot be read: the current key stays, with a new certificate when that is due.
    fn renew(&self, authority: &Authority, now: Timestamp) -> Result<(), ServerError> {
        let secret = self.present.read().secret.clone();
        self.use_key(secret, authority, now).map(|_| ())
    }

    fn use_key(&self, secret: SigningSecret, authority: &Authority, now: Timestamp) -> Result<bool, ServerError> {
        let present = self.signer();
        let is_other = secret.number != present.number();
        let vouches = authority.fingerprint();
        // Agents that are connected know the key already.
        let is_other_authority = self.present.read().authority != vouches;
        if is_other || is_other_authority || present.is_due(now) {
            let signer = Arc::new(CommandSigner::issue(authority, &secret, now)?);
            tracing::info!(number = signer.number(), "signing with a new key or certificate");
            *self.present.write() = Present { secret, authority: vouches, signer };
        }
        Ok(is_other)
    }
}

struct SignsForAll<'a>(&'a Signing);

impl Drop for SignsForAll<'_> {
    fn drop(&mut self) {
        self.0.sign_waiting();
    }
}

/// Follows the store until the server ends.
pub(super) async fn follow(gateway: Arc<Gateway>) {
    let Gateway { control, signing, .. } = &*gateway;
    let mut period = tokio::time::interval(LOOK_PERIOD);
    let mut logged_at = None;
    loop {
        tokio::select! {
            _ = period.tick() => {}
            () = control.authorities_changed() => {}
        }
        let reloaded = control.reload_authorities().await;
        let believed = control.believed();
        let authority = believed.authorities.current();
        let secret = match reloaded {
            Ok(_) => control.signing_secret().await,
            Err(error) => Err(error),
        };
        match secret.and_then(|secret| signing.take_over(&secret, authority, now())) {
            Ok(is_other) => {
                logged_at = None;
                if is_other {
                    control.wake_all();
                }
            }
            Err(error) => {
                let renewed = signing.renew(authority, now());
                if is_log_due(&mut logged_at, Instant::now()) {
                    let expires_at = signing.signer().expires_at();
                    tracing::error!(error = %chain(&error), renewal = ?renewed.err(), %expires_at, "cannot reload signing key, keeping the current one");
                }
            }
        }
        control.signs_until(signing.signer().expires_at().as_second());
    }
}

/// The first time, and then once in a period.
fn is_log_due(logged_at: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = logged_at.is_none_or(|at| now.saturating_duration_since(at) >= FAILURE_LOG_PERIOD);
    if is_due {
        *logged_at = Some(now);
    }
    is_due
}

#[cfg(test)]
mod tests {
    use proctor_store::sqlite::SqliteStore;

    use super::*;

    /// Messages of an agent's session, and the challenge that they are for.
    fn unsigned(signer: &CommandSigner, agent: &str) -> Unsigned {
        let agent = agent.parse().unwrap();
        let terms = proctor_pki::SessionTerms {
            agent: &agent,
            challenge: &[1; 32],
            epoch: 1,
            control_epoch: 1,
            beat_interval_ms: 1,
            server_time_ms: 1,
            signed_reports: false,
            state_known: false,
            hello: proctor_pki::HelloTerms {
                boot: &"boot".into(),
                nonce: b"run",
                seen_generation: 0,
                seen_epoch: None,
            },
        };
        proctor_pki::signed_welcome(signer, &terms).unwrap().1.prepare(signer, Vec::new())
    }

    async fn load(store: &Arc<dyn Store>, authority: &Authority) -> Signing {
        let (secret, epoch) = (secret(store).await.unwrap(), store.control_epoch().await.unwrap());
        Signing::new(&secret, epoch, authority).unwrap()
    }

    #[tokio::test]
    async fn sessions_share_a_signature_and_survive_the_end_of_the_one_that_signs() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("store.db")).await.unwrap());
        let authority = super::super::authority(&store).await.unwrap();
        let signing = load(&store, &authority).await;
        let signer = signing.signer();
        let sign = |agent: &str| signing.sign(signer.clone(), unsigned(&signer, agent));

        let alone = sign("a-0").await.unwrap();
        let (one, two, three) = tokio::join!(sign("a-1"), sign("a-2"), sign("a-3"));
        let (one, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
        let mut first = Box::pin(sign("a-4"));
        let mut second = Box::pin(sign("a-5"));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        drop(first);
        let left = second.await.unwrap();

        assert!(alone.path.is_empty());
        assert!(one.signature == two.signature && two.signature == three.signature);
        assert_eq!([one.leaf, two.leaf, three.leaf].map(|leaf| leaf < 3), [true; 3]);
        assert_eq!((left.leaf, left.path.len()), (1, 1));
        assert!(signing.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn a_rotation_is_followed_and_a_certificate_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("store.db")).await.unwrap());
        let authority = super::super::authority(&store).await.unwrap();
        let signing = load(&store, &authority).await;
        let look = async |at| signing.take_over(&secret(&store).await.unwrap(), &authority, at);
        let first = signing.signer();

        assert!(!look(now()).await.unwrap());
        assert_eq!(rotate(&store, OldKey::Accepted, 0).await.unwrap(), 2);
        assert!(look(now()).await.unwrap());
        let second = signing.signer();
        assert_eq!(rotate(&store, OldKey::Refused, 100).await.unwrap(), 100, "beyond what a lost store gave out");
        assert!(look(now()).await.unwrap());
        let third = signing.signer();
        let later = now() + Duration::from_secs(29 * 24 * 3600);
        assert!(!look(later).await.unwrap(), "another certificate is nothing to wake sessions for");

        let numbers = [&first, &second, &third, &signing.signer()].map(|signer| signer.number());
        assert_eq!(numbers, [1, 2, 100, 100]);
        assert_ne!(third.certificate_der(), signing.signer().certificate_der());
        let again = load(&store, &authority).await;
        assert_eq!((again.signer().number(), again.control_epoch), (100, 1));
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_keeps_nobody_from_renewing() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("store.db")).await.unwrap());
        let authority = super::super::authority(&store).await.unwrap();
        let signing = load(&store, &authority).await;
        let (first, later) = (signing.signer(), now() + Duration::from_secs(29 * 24 * 3600));

        assert!(signing.take_over(b"damaged", &authority, later).is_err());
        signing.renew(&authority, now()).unwrap();
        assert!(Arc::ptr_eq(&first, &signing.signer()), "not before it is due");
        signing.renew(&authority, later).unwrap();

        assert_eq!(signing.signer().number(), first.number());
        assert!(signing.signer().expires_at() > first.expires_at());
    }

    #[test]
    fn a_failure_that_lasts_is_logged_every_hour() {
        let (mut logged_at, begun) = (None, Instant::now());
        let due = [0, 1, 3599, 3600, 3601, 7200].map(|seconds| begun + Duration::from_secs(seconds));

        assert_eq!(due.map(|at| is_log_due(&mut logged_at, at)), [true, false, false, true, false, true]);
    }
}
