//! `proctor token list|revoke`.

use anyhow::Result;
use proctor_client::TokenView;

use super::{Ended, Session};
use crate::output::{self, Sheet, Tone, moment, or_dash, plain};

pub(super) async fn list(session: &Session) -> Result<Ended> {
    let tokens = session.client.tokens().await?;
    let now = proctor_runtime::clock::unix_millis() / 1000;
    output::print(session.output, &tokens, |tokens| sheet(tokens, now))?;
    Ok(Ended::Well)
}

fn sheet(tokens: &[TokenView], now: i64) -> Sheet {
    let headers = ["ID", "STATE", "USED", "REFUSED", "EXPIRES", "CLOUD", "BUSINESS", "HOST"];
    let mut sheet = Sheet::new(&headers).right(&[2, 3]);
    for token in tokens {
        let state = match token {
            _ if token.expires_at <= now => ("expired".into(), Tone::Bad),
            _ if token.used >= token.uses => ("used up".into(), Tone::Bad),
            _ => ("good".into(), Tone::Good),
        };
        sheet.row([
            plain(&token.id),
            state,
            plain(format!("{}/{}", token.used, token.uses)),
            plain(token.refused),
            plain(moment(token.expires_at)),
            plain(or_dash(token.cloud_id.map(|id| id.to_string()).unwrap_or_default())),
            plain(or_dash(token.business.map(|id| id.to_string()).unwrap_or_default())),
            plain(or_dash(token.host.clone().unwrap_or_default())),
        ]);
    }
    sheet
}

pub(super) async fn revoke(session: &Session, id: &str) -> Result<Ended> {
    session.client.revoke_token(id).await?;
    eprintln!("Join token {id} is revoked. Hosts that enrolled with it stay.");
    Ok(Ended::Well)
}
