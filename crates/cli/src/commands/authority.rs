//! `proctor ca status|prepare|switch|finish|abort`.

use anyhow::Result;
use clap::{Args, Subcommand};
use proctor_client::{AuthorityBehindWhy, AuthorityPhase, AuthorityStep, AuthorityView};

use super::{CommandEnd, Session};
use crate::output;

/// Peers that are listed as behind; the rest is counted.
const SHOWN_MAX: usize = 50;

#[derive(Debug, Subcommand)]
pub(crate) enum AuthorityCommand {
    /// Show the certificate authority, how far a rotation has come, and who is behind
    Status,
    /// Make a new authority and announce it to agents and relays
    Prepare,
    /// Issue certificates from the new authority; agents and relays renew theirs
    Switch(StepArgs),
    /// Distrust the old authority
    Finish(StepArgs),
    /// Go back one phase: to the old authority's certificates, and from there to no rotation
    Abort(StepArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Go on without the agents and relays that are cut off by it
    #[arg(long, env = "PROCTOR_CA_FORCE")]
    pub(crate) force: bool,
}

pub(super) async fn run(session: &Session, command: AuthorityCommand) -> Result<CommandEnd> {
    let client = &session.client;
    let (step, args) = match command {
        AuthorityCommand::Status => {
            let view = client.authority().await?;
            output::print_or(session.output, &view, || shown(&view))?;
            return Ok(CommandEnd::Success);
        }
        AuthorityCommand::Prepare => ("prepare", StepArgs { force: false }),
        AuthorityCommand::Switch(args) => ("switch", args),
        AuthorityCommand::Finish(args) => ("finish", args),
        AuthorityCommand::Abort(args) => ("abort", args),
    };
    let view = client.rotate_authority(step, &AuthorityStep { force: args.force }).await?;
    output::print_or(session.output, &view, || shown(&view))?;
    Ok(CommandEnd::Success)
}

fn shown(view: &AuthorityView) -> String {
    let phase = match view.phase {
        AuthorityPhase::Idle => "idle: there is one authority",
        AuthorityPhase::Prepared => "prepared: the new authority is announced (next: proctor ca switch, or abort)",
        AuthorityPhase::Switched => {
            "switched: the new authority issues certificates (next: proctor ca finish, or abort)"
        }
    };
    let mut text = format!("phase      {phase}\nauthority  {}\n", view.fingerprint);
    let Some(successor) = &view.successor_fingerprint else { return text };
    text += &format!("new        {successor}\n");
    for (what, count) in [("agents", view.agents), ("relays", view.relays)] {
        let (total, trust, certified) = (count.total, count.trust_successor, count.new_certificate);
        text += &format!("{what}     {trust} of {total} trust the new authority, {certified} have its certificate\n");
    }
    if view.open_tokens > 0 {
        text += &format!(
            "tokens     {} usable join tokens name the old authority: they end with `finish`\n",
            view.open_tokens
        );
    }
    if view.behind_total > 0 {
        text += &format!("\n{} would be cut off by the next step:\n", view.behind_total);
    }
    for behind in view.behind.iter().take(SHOWN_MAX) {
        let name = match (&behind.host, &behind.relay) {
            (Some(host), _) => format!("host {host}"),
            (None, Some(relay)) => format!("relay {relay}"),
            (None, None) => continue,
        };
        let why = match behind.why {
            AuthorityBehindWhy::NotConnected => "not connected".to_owned(),
            AuthorityBehindWhy::CannotFollow => format!("version {} cannot follow: upgrade it", behind.version),
            AuthorityBehindWhy::NotYet => "connected, not there yet".to_owned(),
        };
        text += &format!("  {name}: {why}\n");
    }
    let more = (view.behind_total as usize).saturating_sub(SHOWN_MAX);
    if more > 0 {
        text += &format!("  and {more} more (-o json)\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rotation_is_shown_with_who_is_behind_and_why() {
        let count = json!({ "total": 3, "trust_successor": 2, "new_certificate": 1 });
        let view = json!({
            "phase": "switched", "fingerprint": "aa", "successor_fingerprint": "bb", "agents": count, "relays": count,
            "behind_total": 60, "open_tokens": 1,
            "behind": [
                { "host": "0:10.0.0.1", "why": "not_connected", "version": "1", "trusts_successor": false,
                  "has_new_certificate": false },
                { "relay": "r-1", "why": "cannot_follow", "version": "0.9", "trusts_successor": false,
                  "has_new_certificate": false },
            ],
        });

        let text = shown(&serde_json::from_value(view).unwrap());

        for part in [
            "switched",
            "2 of 3 trust",
            "1 have its",
            "host 0:10.0.0.1: not connected",
            "version 0.9 cannot follow",
            "and 10 more",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
