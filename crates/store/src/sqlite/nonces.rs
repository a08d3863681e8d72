//! Nonces of signed requests, so that none counts again after a restart of the server.

use rusqlite::Connection;

use super::failure::Tried;
use crate::Millis;

pub(super) fn take(connection: &Connection, fingerprint: [u8; 32], until: Millis, now: Millis) -> Tried<bool> {
    connection.prepare_cached("DELETE FROM nonce WHERE until < ?1")?.execute([now])?;
    let taken = connection
        .prepare_cached("INSERT INTO nonce (fingerprint, until) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute((fingerprint.as_slice(), until))?;
    Ok(taken == 1)
}
