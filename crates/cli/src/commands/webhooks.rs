//! `proctor webhook add|list|test|remove`.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use proctor_client::{NewWebhook, WebhookFormat, WebhookTested, WebhookView};
use proctor_model::EventKind;

use super::events::parse_type;
use super::{CommandEnd, Session};
use crate::output::{self, TextTable, moment, or_dash, plain, yes_no};

#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// Add a webhook that gets every event from now on
    Add(AddArgs),
    /// List webhooks and their position in the events
    List,
    /// Send a test request and show the result; exits with 1 if it was not delivered
    Test(IdArgs),
    /// Remove a webhook
    Remove(IdArgs),
}

#[derive(Args)]
pub(crate) struct AddArgs {
    /// URL (http or https)
    url: String,
    /// Only events about processes of this namespace
    #[arg(short, long, env = "PROCTOR_NAMESPACE")]
    namespace: Option<String>,
    /// Only events about processes with this report_id
    #[arg(long, env = "PROCTOR_REPORT_ID", value_name = "N", allow_negative_numbers = true)]
    report_id: Option<i64>,
    /// Only these types, such as exited,restart_failed
    #[arg(long = "type", env = "PROCTOR_EVENT_TYPE", value_name = "TYPE", value_delimiter = ',', value_parser = parse_type)]
    types: Vec<EventKind>,
    /// How the events are written: as our API shows them, or the five of GSE as GSE reports them
    #[arg(long, env = "PROCTOR_WEBHOOK_FORMAT", value_name = "FORM", default_value = "native")]
    format: Format,
    /// Signs each request; the environment hides it from other users of this machine
    #[arg(long, env = "PROCTOR_WEBHOOK_SECRET", hide_env_values = true)]
    secret: Option<String>,
}

/// Without the secret.
impl std::fmt::Debug for AddArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddArgs").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Native,
    Gse,
}

#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// Webhook id, as `webhook list` shows it
    id: String,
}

pub(super) async fn run(session: &Session, command: WebhookCommand) -> Result<CommandEnd> {
    match command {
        WebhookCommand::Add(args) => add(session, args).await,
        WebhookCommand::List => {
            let webhooks = session.client.webhooks().await?;
            output::print(session.output, &webhooks, |webhooks| table(webhooks))?;
            Ok(CommandEnd::Success)
        }
        WebhookCommand::Test(args) => {
            let tested = session.client.test_webhook(&args.id).await?;
            output::print(session.output, &tested, test_table)?;
            Ok(CommandEnd::success_if(tested.delivered))
        }
        WebhookCommand::Remove(args) => {
            session.client.remove_webhook(&args.id).await?;
            eprintln!("Webhook {} removed.", args.id);
            Ok(CommandEnd::Success)
        }
    }
}

async fn add(session: &Session, args: AddArgs) -> Result<CommandEnd> {
    let AddArgs { url, namespace, report_id, types, format, secret } = args;
    let format = match format {
        Format::Native => WebhookFormat::Native,
        Format::Gse => WebhookFormat::Gse,
    };
    let webhook = NewWebhook { url, namespace, report_id, types, format, secret };
    let added = session.client.add_webhook(&webhook).await?;
    output::print(session.output, &added, |added| table(std::slice::from_ref(added)))?;
    Ok(CommandEnd::Success)
}

fn table(webhooks: &[WebhookView]) -> TextTable {
    let headers = ["ID", "URL", "NAMESPACE", "REPORT ID", "TYPES", "FORMAT", "SIGNED", "CREATED", "CURSOR"];
    let mut table = TextTable::new(&headers).right(&[8]);
    for webhook in webhooks {
        table.row([
            plain(&webhook.id),
            plain(&webhook.url),
            plain(or_dash(webhook.namespace.clone().unwrap_or_default())),
            plain(or_dash(webhook.report_id.map(|id| id.to_string()).unwrap_or_default())),
            plain(or_dash(webhook.types.join(","))),
            plain(&webhook.format),
            plain(yes_no(webhook.signed)),
            plain(moment(webhook.created_at)),
            plain(webhook.cursor),
        ]);
    }
    table
}

fn test_table(tested: &WebhookTested) -> TextTable {
    let mut table = TextTable::new(&["DELIVERED", "STATUS", "TOOK", "ERROR"]).right(&[2]);
    table.row([
        plain(yes_no(tested.delivered)),
        plain(or_dash(tested.status.map(|status| status.to_string()).unwrap_or_default())),
        plain(format!("{} ms", tested.took_ms)),
        plain(or_dash(tested.failure.error.clone().unwrap_or_default())),
    ]);
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_is_one_line() {
        let webhook: WebhookView = serde_json::from_value(json!({
            "id": "abc", "url": "http://h/", "namespace": null, "report_id": 9, "types": ["exited", "started"],
            "format": "native", "signed": true, "created_at": 0, "cursor": 12,
        }))
        .unwrap();

        let text = table(&[webhook]).to_text();

        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["abc", "http://h/", "-", "9", "exited,started", "native", "yes", "-", "12"]);
    }
}
