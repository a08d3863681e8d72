//! The keys of the tickets with which agents resume their TLS sessions.
//!
//! Promised: they are in the store, like the authority, so that a fleet reconnects to a restarted server without full
//! handshakes; they are rotated every day, also by another server on the same store. If the store cannot be written,
//! existing tickets stay valid, and no new ones are issued once the current key is too old.
//! Absent: whom a ticket admits (see `session`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proctor_pki::{TicketKeys, Tickets};
use proctor_runtime::chain;
use proctor_store::Store;

use super::now;
use crate::ServerError;

const TICKET_KEYS: &str = "link ticket keys";
/// How often the keys are checked.
const LOOK_PERIOD: Duration = Duration::from_secs(600);
/// Attempts to replace keys that another server replaces at the same time.
const ATTEMPTS_MAX: u32 = 3;

/// The keys that the store has; made, or replaced, where that is due. Damaged ones are replaced: all that is lost are
/// tickets. Where a rotation cannot be written, the keys that were read are still good.
pub(crate) async fn keys(store: &Arc<dyn Store>, now: Timestamp) -> Result<TicketKeys, ServerError> {
    let mut stored = match store.secret(TICKET_KEYS).await? {
        Some(bytes) => bytes,
        None => store.secret_or_insert(TICKET_KEYS, TicketKeys::generate(now).to_bytes()).await?,
    };
    for _ in 0..ATTEMPTS_MAX {
        let (read, new) = match TicketKeys::from_bytes(&stored) {
            Ok(keys) => match keys.rotated_if_due(now) {
                Some(new) => (Some(keys), new),
                None => return Ok(keys),
            },
            Err(error) => {
                tracing::warn!(error = %chain(&error), "TLS ticket keys unreadable, replacing them");
                (None, TicketKeys::generate(now))
            }
        };
        match (replace(store, stored, &new).await, read) {
            (Ok(Replaced::ByUs), _) => return Ok(new),
            (Ok(Replaced::ByAnother(other)), _) => stored = other,
            (Err(error), Some(keys)) => {
                tracing::warn!(error = %chain(&error), "TLS ticket keys not rotated: the store is not writable");
                return Ok(keys);
            }
            (Err(error), None) => return Err(error.into()),
        }
    }
    Ok(TicketKeys::from_bytes(&stored)?)
}

enum Replaced {
    ByUs,
    /// With what the store has now.
    ByAnother(Vec<u8>),
}

async fn replace(store: &Arc<dyn Store>, old: Vec<u8>, new: &TicketKeys) -> proctor_store::Result<Replaced> {
    if store.replace_secret(TICKET_KEYS, old, new.to_bytes()).await? {
        return Ok(Replaced::ByUs);
    }
    Ok(Replaced::ByAnother(store.secret(TICKET_KEYS).await?.unwrap_or_default()))
}

/// At the start. A store that cannot be written must not keep agents off: tickets then end with this server.
pub(super) async fn load(control: &crate::control::Control) -> Arc<Tickets> {
    let keys = match control.ticket_keys(now()).await {
        Ok(keys) => keys,
        Err(error) => {
            tracing::warn!(error = %chain(&error), "cannot read or write TLS ticket keys: agents will need full handshakes after the next restart");
            TicketKeys::generate(now())
        }
    };
    Arc::new(Tickets::new(&keys))
}

/// Follows the store until the server ends.
pub(super) async fn follow(control: crate::control::Control, tickets: Arc<Tickets>) {
    let mut period = tokio::time::interval(LOOK_PERIOD);
    loop {
        period.tick().await;
        match control.ticket_keys(now()).await {
            Ok(keys) => tickets.set(&keys),
            Err(error) => tracing::warn!(error = %chain(&error), "cannot rotate TLS ticket keys"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use proctor_pki::KEY_PERIOD;
    use proctor_store::sqlite::SqliteStore;

    use super::*;

    #[tokio::test]
    async fn keys_are_kept_rotated_and_replaced_where_they_are_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("store.db")).await.unwrap());

        let first = keys(&store, now()).await.unwrap();
        assert_eq!(keys(&store, now()).await.unwrap(), first);
        let rotated = keys(&store, now() + KEY_PERIOD).await.unwrap();
        assert_ne!(rotated, first);
        assert_eq!(keys(&store, now() + KEY_PERIOD).await.unwrap(), rotated);
        let stored = store.secret(TICKET_KEYS).await.unwrap().unwrap();
        assert!(store.replace_secret(TICKET_KEYS, stored, b"damaged".to_vec()).await.unwrap());
        let fresh = keys(&store, now()).await.unwrap();

        assert_ne!(fresh, rotated);
        assert_eq!(keys(&store, now()).await.unwrap(), fresh);
    }

    #[tokio::test]
    async fn keys_that_can_be_read_are_used_although_their_rotation_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).await.unwrap());
        let first = keys(&store, now()).await.unwrap();
        let full = SqliteStore::open_dying(&path, Arc::new(AtomicU64::new(0))).await.unwrap();
        let full: Arc<dyn Store> = Arc::new(full);

        let read = keys(&full, now() + KEY_PERIOD).await.unwrap();

        assert_eq!(read, first);
        let stored = store.secret(TICKET_KEYS).await.unwrap().unwrap();
        assert!(store.replace_secret(TICKET_KEYS, stored, b"damaged".to_vec()).await.unwrap());
        assert!(keys(&full, now()).await.is_err(), "there is nothing to go on with");
    }
}
