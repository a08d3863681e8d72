//! `proctor relays list|revoke`.

use anyhow::Result;
use clap::{Args, Subcommand};
use proctor_client::RelayView;

use super::{CommandEnd, Session};
use crate::output::{self, CellStyle, TextTable, ago, moment, or_dash, plain};

#[derive(Debug, Subcommand)]
pub(crate) enum RelaysCommand {
    /// List the relays of cloud areas and what they carry
    List,
    /// Revoke a relay; the sessions that it carries end at once
    Revoke(RelayIdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RelayIdArgs {
    /// Relay id, as `relays list` shows it
    pub(crate) relay: String,
}

pub(super) async fn run(session: &Session, command: RelaysCommand) -> Result<CommandEnd> {
    match command {
        RelaysCommand::List => {
            let relays = session.client.relays().await?;
            let now = proctor_runtime::clock::unix_millis();
            output::print(session.output, &relays, |relays| table(relays, now))?;
        }
        RelaysCommand::Revoke(RelayIdArgs { relay }) => {
            session.client.revoke_relay(&relay).await?;
            eprintln!("Relay {relay} is revoked. Its agents connect through other relays of their area.");
        }
    }
    Ok(CommandEnd::Success)
}

fn table(relays: &[RelayView], now: i64) -> TextTable {
    let headers = ["RELAY", "CLOUD", "STATE", "AGENTS", "CONNECTIONS", "ADDRESS", "LAST SEEN", "VERSION", "ENROLLED"];
    let mut table = TextTable::new(&headers).right(&[1, 3, 4]).only_wide(&[8]);
    for relay in relays {
        let state = match relay {
            _ if relay.revoked_at.is_some() => ("revoked".into(), CellStyle::Bad),
            _ if relay.connected => ("connected".into(), CellStyle::Good),
            _ => ("away".into(), CellStyle::Warning),
        };
        table.row([
            plain(&relay.relay),
            plain(relay.cloud),
            state,
            plain(relay.agents),
            plain(relay.connections),
            plain(or_dash(relay.address.map(|address| address.to_string()).unwrap_or_default())),
            plain(or_dash(relay.last_seen_at.map(|at| ago(at, now)).unwrap_or_default())),
            plain(or_dash(relay.version.clone().unwrap_or_default())),
            plain(moment(relay.enrolled_at)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_relay_is_shown_with_its_state_and_agents() {
        let relay = |changes: serde_json::Value| -> RelayView {
            let mut relay = json!({ "relay": "r-1", "cloud": 3, "connected": true, "connections": 2, "agents": 40,
                                    "enrolled_at": 1, "key_fingerprint": "ab" });
            relay.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            serde_json::from_value(relay).unwrap()
        };
        let relays =
            [relay(json!({})), relay(json!({ "connected": false })), relay(json!({ "revoked_at": 5, "agents": 0 }))];

        let text = table(&relays, 100_000).to_text();

        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].contains("connected") && lines[1].contains("40"), "{text}");
        assert!(lines[2].contains("away"), "{text}");
        assert!(lines[3].contains("revoked"), "{text}");
    }
}
