//! `proctor token list|revoke`.

use anyhow::Result;
use proctor_client::TokenView;

use super::{CommandEnd, Session};
use crate::output::{self, CellStyle, TextTable, moment, or_dash, plain};

pub(super) async fn list(session: &Session) -> Result<CommandEnd> {
    let tokens = session.client.tokens().await?;
    let now = proctor_runtime::clock::unix_millis() / 1000;
    output::print(session.output, &tokens, |tokens| table(tokens, now))?;
    Ok(CommandEnd::Success)
}

fn table(tokens: &[TokenView], now: i64) -> TextTable {
    let headers = ["ID", "FOR", "STATE", "USED", "REFUSED", "EXPIRES", "CLOUD", "BUSINESS", "HOST"];
    let mut table = TextTable::new(&headers).right(&[3, 4]);
    for token in tokens {
        let state = match token {
            _ if token.expires_at <= now => ("expired".into(), CellStyle::Bad),
            _ if token.used >= token.uses => ("used up".into(), CellStyle::Bad),
            _ => ("good".into(), CellStyle::Good),
        };
        table.row([
            plain(&token.id),
            plain(if token.relay { "relays" } else { "agents" }),
            state,
            plain(format!("{}/{}", token.used, token.uses)),
            plain(token.refused),
            plain(moment(token.expires_at)),
            plain(or_dash(token.cloud_id.map(|id| id.to_string()).unwrap_or_default())),
            plain(or_dash(token.business.map(|id| id.to_string()).unwrap_or_default())),
            plain(or_dash(token.host.clone().unwrap_or_default())),
        ]);
    }
    table
}

pub(super) async fn revoke(session: &Session, id: &str) -> Result<CommandEnd> {
    session.client.revoke_token(id).await?;
    eprintln!("Join token {id} is revoked. Hosts that enrolled with it stay.");
    Ok(CommandEnd::Success)
}
