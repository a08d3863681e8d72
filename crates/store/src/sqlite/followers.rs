//! Which authorities agents and relays trust while the authority is being rotated.

use proctor_model::{AgentId, RelayId};
use rusqlite::Connection;

use super::column::{from_json, to_json};
use super::failure::{Failure, Tried};
use crate::PeerTrust;

pub(super) fn keep(connection: &Connection, peer: &str, trust: Option<&PeerTrust>) -> Tried<()> {
    let Some(PeerTrust { authorities, certified_by }) = trust else {
        connection.prepare_cached("DELETE FROM follower WHERE peer = ?1")?.execute([peer])?;
        return Ok(());
    };
    connection
        .prepare_cached(
            "INSERT INTO follower (peer, authorities, certified_by) VALUES (?1, ?2, ?3)
             ON CONFLICT (peer) DO UPDATE SET authorities = excluded.authorities, certified_by = excluded.certified_by",
        )?
        .execute((peer, to_json(authorities), certified_by))?;
    Ok(())
}

/// A peer that enrols again, or is no longer known, has reported nothing.
pub(super) fn forget_agent(connection: &Connection, agent: &AgentId) -> Tried<()> {
    keep(connection, &PeerTrust::peer_of_agent(agent), None)
}

pub(super) fn forget_relay(connection: &Connection, relay: &RelayId) -> Tried<()> {
    keep(connection, &PeerTrust::peer_of_relay(relay), None)
}

pub(super) fn all(connection: &Connection) -> Tried<Vec<(String, PeerTrust)>> {
    let mut statement =
        connection.prepare_cached("SELECT peer, authorities, certified_by FROM follower ORDER BY peer")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let authorities = row.get_ref(1)?.as_str().map_err(|error| Failure::damaged("authorities of a peer", error))?;
        let authorities = from_json("authorities of a peer", authorities)?;
        all.push((row.get(0)?, PeerTrust { authorities, certified_by: row.get(2)? }));
    }
    Ok(all)
}
