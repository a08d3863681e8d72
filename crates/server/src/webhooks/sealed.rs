//! The secrets of webhooks, sealed at rest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proctor_store::{Result, Store, Webhook};
use uuid::Uuid;

use super::SendError;
use crate::keys::Keys;

/// How a sealed secret begins; one without it is of an older version.
const SEALED: &str = "sealed-v1:";

fn owner(id: Uuid) -> String {
    format!("webhook {id}")
}

/// As it is stored; it opens only for this webhook.
pub(crate) async fn seal(store: &dyn Store, id: Uuid, secret: &str) -> Result<String> {
    let sealed = Keys::load(store).await?.seal(&owner(id), secret);
    Ok(format!("{SEALED}{}", STANDARD.encode(sealed)))
}

pub(super) fn open(keys: &Keys, id: Uuid, stored: &str) -> std::result::Result<String, SendError> {
    let Some(sealed) = stored.strip_prefix(SEALED) else { return Ok(stored.to_owned()) };
    let sealed = STANDARD.decode(sealed).map_err(|_| SendError::Sealed)?;
    keys.open(&owner(id), &sealed).ok_or(SendError::Sealed)
}

/// Seals what older versions kept as it was.
pub(crate) async fn seal_old(store: &dyn Store) -> Result<()> {
    for webhook in store.webhooks().await? {
        let Some(secret) = webhook.secret.as_deref().filter(|secret| !secret.starts_with(SEALED)) else { continue };
        let secret = Some(seal(store, webhook.id, secret).await?);
        store.put_webhook(Webhook { secret, ..webhook }).await?;
    }
    Ok(())
}
