//! Nonces of signed requests, so that none can be replayed after a server restart.
//!
//! Promised: a nonce is kept until its signature has expired both by the wall clock and by uptime, so that no
//! single clock reading makes it fresh. Absent: deletion within a call; [`old`] ones are deleted in slices.

use rusqlite::Connection;

use super::failure::Tried;
use crate::{Millis, Uptime};

/// Nonces deleted per step: a few milliseconds of the writer.
const SLICE_ROWS: u32 = 1000;
/// Uptime is recorded once a minute, so it lags by as much.
const UPTIME_LAG: Uptime = 120_000;

pub(super) fn take(connection: &Connection, fingerprint: [u8; 32], until: Millis, now: Millis) -> Tried<bool> {
    let counts_for = until.saturating_sub(now).max(0).saturating_add(UPTIME_LAG);
    let taken = connection
        .prepare_cached(
            "INSERT INTO nonce (fingerprint, until, until_uptime) SELECT ?1, ?2, ms + ?3 FROM uptime WHERE TRUE
             ON CONFLICT (fingerprint) DO UPDATE SET until = excluded.until, until_uptime = excluded.until_uptime
             WHERE nonce.until < ?4 AND nonce.until_uptime < (SELECT ms FROM uptime)",
        )?
        .execute((fingerprint.as_slice(), until, counts_for, now))?;
    Ok(taken == 1)
}

/// A slice of the expired ones. After the clock was set back it may scan many that are not: not for the writer.
pub(super) fn old(connection: &Connection, now: Millis) -> Tried<Vec<[u8; 32]>> {
    let mut statement = connection.prepare_cached(
        "SELECT fingerprint FROM nonce WHERE until_uptime < (SELECT ms FROM uptime) AND until < ?1 LIMIT ?2",
    )?;
    let old = statement.query_map((now, SLICE_ROWS), |row| row.get(0))?;
    Ok(old.collect::<rusqlite::Result<_>>()?)
}

/// One that was claimed again since it was found stays.
pub(super) fn delete(connection: &Connection, old: &[[u8; 32]], now: Millis) -> Tried<u64> {
    let mut statement = connection.prepare_cached("DELETE FROM nonce WHERE fingerprint = ?1 AND until < ?2")?;
    let mut deleted = 0;
    for fingerprint in old {
        deleted += statement.execute((fingerprint.as_slice(), now))? as u64;
    }
    Ok(deleted)
}
