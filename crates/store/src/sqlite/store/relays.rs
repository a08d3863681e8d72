//! [`RelayStore`](crate::RelayStore) in SQLite.

use std::net::IpAddr;

use async_trait::async_trait;
use proctor_model::RelayId;

use crate::sqlite::{SqliteStore, relays};
use crate::{EnrolRefusal, Millis, RelayEnrolment, RelayRecord, RelayStore, RelayToken, RelayTokenRecord, Result};

#[async_trait]
impl RelayStore for SqliteStore {
    async fn put_relay_token(&self, token: RelayToken) -> Result<()> {
        self.writer.run("keep a join token", move |c| relays::put_token(c, &token)).await
    }

    async fn relay_tokens(&self) -> Result<Vec<RelayTokenRecord>> {
        self.readers.run("read the join tokens of relays", relays::tokens).await
    }

    async fn delete_relay_token(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.writer.run("remove a join token", move |c| relays::delete_token(c, &id)).await
    }

    async fn knows_relay_token(&self, id: &str, secret_hash: &str) -> Result<bool> {
        let (id, secret_hash) = (id.to_owned(), secret_hash.to_owned());
        self.readers.run("find a join token", move |c| relays::knows_token(c, &id, &secret_hash)).await
    }

    async fn enrol_relay(
        &self,
        enrolment: RelayEnrolment,
        now: Millis,
    ) -> Result<std::result::Result<RelayId, EnrolRefusal>> {
        self.writer.run("enrol a relay", move |c| relays::enrol(c, &enrolment, now)).await
    }

    async fn relays(&self) -> Result<Vec<RelayRecord>> {
        self.readers.run("read the relays", relays::list).await
    }

    async fn meet_relay(
        &self,
        relay: &RelayId,
        key_fingerprint: &str,
        remote: Option<IpAddr>,
        now: Millis,
    ) -> Result<Option<RelayRecord>> {
        let (relay, key) = (relay.clone(), key_fingerprint.to_owned());
        self.writer.run("note a relay", move |c| relays::meet(c, &relay, &key, remote, now)).await
    }

    async fn revoke_relay(&self, relay: &RelayId, now: Millis) -> Result<Option<bool>> {
        let relay = relay.clone();
        self.writer.run("revoke a relay's key", move |c| relays::revoke(c, &relay, now)).await
    }
}
