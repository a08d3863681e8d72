//! `--watch`: repeats a query until Ctrl-C or until stdout is closed.
//!
//! On a terminal the screen shows the current list; otherwise the list is written whenever it has changed. An
//! unreachable server is waited for; a refusal ends the command.

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
/// Moves to the upper left and clears the rest of the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WatchArgs {
    /// Refresh every two seconds
    #[arg(short, long, env = "PROCTOR_WATCH", value_parser = BoolishValueParser::new())]
    watch: bool,
}

impl Session {
    /// Prints what `fetch` returns, once or repeatedly.
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
