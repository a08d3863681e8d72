//! `--watch`: a list that is asked for again and again, until Ctrl-C or until nobody reads.
//!
//! On a terminal the screen shows what holds now; elsewhere a list is written when it has changed. A
//! server that goes away is waited for; what it refuses ends the command.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::builder::BoolishValueParser;
use proctor_client::ClientError;
use serde::Serialize;

use super::{CommandEnd, Session};
use crate::output::{self, TextTable};

const REFRESH: Duration = Duration::from_secs(2);
/// To the upper left, and everything behind is erased.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WatchArgs {
    /// Refresh every two seconds
    #[arg(short, long, env = "PROCTOR_WATCH", value_parser = BoolishValueParser::new())]
    watch: bool,
}

impl Session {
    /// Prints what `fetch` brings, once or again and again.
    pub(super) async fn list<T: Serialize>(
        &self,
        WatchArgs { watch }: WatchArgs,
        fetch: impl AsyncFn() -> Result<T, ClientError>,
        table: impl Fn(&T) -> TextTable,
    ) -> Result<CommandEnd> {
        let clear = if watch && std::io::stdout().is_terminal() { CLEAR } else { "" };
        let mut shown = output::text(self.output, &fetch().await?, &table)?;
        let mut is_read = output::write_more(&format!("{clear}{shown}"))?;
        let mut is_away = false;
        while watch && is_read {
            tokio::time::sleep(REFRESH).await;
            match fetch().await {
                Ok(list) => {
                    let text = output::text(self.output, &list, &table)?;
                    if text != shown || is_away {
                        is_read = output::write_more(&format!("{clear}{text}"))?;
                        shown = text;
                    }
                    is_away = false;
                }
                Err(error) if error.is_unreachable() => {
                    if !is_away {
                        eprintln!("{error}: waiting for it");
                    }
                    is_away = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(CommandEnd::Success)
    }
}
