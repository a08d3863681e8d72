//! `proctor builds`, and `proctor upgrade plan|start|status|list|pause|resume|cancel`: other versions for agents.

use std::time::Duration;

use anyhow::Result;
use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use proctor_client::{
    BuildView, CountOrPercent, Hosts, NewUpgrade, UpgradeDetail, UpgradeHostState, UpgradeHostView, UpgradePlanView,
    UpgradeState, UpgradeView,
};

use super::{CommandEnd, Session};
use crate::args::{ChosenHosts, parse_duration};
use crate::output::{self, CellStyle, TextTable, moment, or_dash, plain};

const WATCH_PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// Show which hosts each ring would have; changes nothing
    Plan(PlanArgs),
    /// Start upgrading agents, ring by ring
    Start(PlanArgs),
    /// Show an upgrade and the state of its hosts; exits with 1 if one failed
    Status(StatusArgs),
    /// List upgrades, the newest first
    List,
    /// Pause an upgrade; no further hosts start
    Pause(IdArgs),
    /// Resume a paused upgrade
    Resume(IdArgs),
    /// Cancel an upgrade; trials in progress finish
    Cancel(IdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A version that `proctor builds` shows
    #[arg(long, env = "PROCTOR_VERSION", value_name = "VERSION")]
    version: String,
    #[command(flatten)]
    hosts: ChosenHosts,
    /// Cumulative share of the hosts that each ring reaches; the rest is the last ring
    #[arg(long, env = "PROCTOR_RINGS", value_name = "LIST", value_delimiter = ',', value_parser = parse_ring,
          default_value = "1,5%,25%,100%")]
    rings: Vec<CountOrPercent>,
    /// How long a new version has to prove itself on a host
    #[arg(long, env = "PROCTOR_HEALTH_DEADLINE", value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    health_deadline: Duration,
    /// Pause after this many failed hosts
    #[arg(long, env = "PROCTOR_MAX_FAILURES", value_name = "N", default_value_t = 0)]
    max_failures: u32,
    /// Allow downgrades
    #[arg(long, env = "PROCTOR_ALLOW_DOWNGRADE", value_parser = BoolishValueParser::new())]
    allow_downgrade: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// Upgrade id, as `upgrade list` shows it
    id: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Upgrade id, as `upgrade list` shows it [default: the newest]
    id: Option<String>,
    /// Wait until the upgrade is finished or paused
    #[arg(short, long, env = "PROCTOR_WATCH", value_parser = BoolishValueParser::new())]
    watch: bool,
}

fn parse_ring(text: &str) -> Result<CountOrPercent, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.to_string())
}

impl PlanArgs {
    fn request(self) -> NewUpgrade {
        let (hosts, all, business) = match self.hosts.get() {
            Hosts::All => (None, true, None),
            Hosts::Business(business) => (None, false, Some(business)),
            Hosts::These(hosts) if hosts.is_empty() => (None, false, None),
            Hosts::These(hosts) => (Some(hosts), false, None),
        };
        NewUpgrade {
            version: self.version,
            hosts,
            business,
            all,
            rings: self.rings,
            health_deadline_secs: self.health_deadline.as_secs(),
            max_failures: self.max_failures,
            allow_downgrade: self.allow_downgrade,
        }
    }
}

pub(super) async fn builds(session: &Session) -> Result<CommandEnd> {
    let builds = session.client.builds().await?;
    output::print(session.output, &builds, |builds| {
        let mut table = TextTable::new(&["VERSION", "ARCH", "BYTES", "NAME", "SHA-256"]).right(&[2]);
        for BuildView { name, version, arch, bytes, sha256 } in builds {
            table.row([plain(version), plain(arch), plain(bytes), plain(name), plain(sha256)]);
        }
        table
    })?;
    Ok(CommandEnd::Success)
}

pub(super) async fn run(session: &Session, command: UpgradeCommand) -> Result<CommandEnd> {
    let client = &session.client;
    let upgrade = match command {
        UpgradeCommand::Plan(args) => {
            let plan = client.plan_upgrade(&args.request()).await?;
            output::print(session.output, &plan, plan_table)?;
            return Ok(CommandEnd::Success);
        }
        UpgradeCommand::Status(args) => return status(session, args).await,
        UpgradeCommand::List => {
            let upgrades = client.upgrades().await?;
            output::print(session.output, &upgrades, |upgrades| table(upgrades))?;
            return Ok(CommandEnd::Success);
        }
        UpgradeCommand::Start(args) => client.start_upgrade(&args.request()).await?,
        UpgradeCommand::Pause(args) => client.pause_upgrade(&args.id).await?,
        UpgradeCommand::Resume(args) => client.resume_upgrade(&args.id).await?,
        UpgradeCommand::Cancel(args) => client.cancel_upgrade(&args.id).await?,
    };
    output::print(session.output, &upgrade, |upgrade| table(std::slice::from_ref(upgrade)))?;
    Ok(CommandEnd::Success)
}

async fn status(session: &Session, args: StatusArgs) -> Result<CommandEnd> {
    let id = match args.id {
        Some(id) => id,
        None => {
            let newest = session.client.upgrades().await?.into_iter().next();
            newest.map(|upgrade| upgrade.id).ok_or_else(|| anyhow::anyhow!("there was no upgrade yet"))?
        }
    };
    let mut detail = session.client.upgrade(&id).await?;
    while args.watch && is_under_way(&detail) {
        tokio::time::sleep(WATCH_PERIOD).await;
        detail = session.client.upgrade(&id).await?;
    }
    let has_failed = detail.hosts.iter().any(|host| host.state == UpgradeHostState::Failed);
    output::print_or(session.output, &detail, || {
        let head = table(std::slice::from_ref(&detail.upgrade)).to_text();
        format!("{head}\n{}", hosts_table(&detail.hosts).to_text())
    })?;
    Ok(CommandEnd::success_if(!has_failed))
}

/// Also while hosts of an upgrade that has ended are still in progress.
fn is_under_way(detail: &UpgradeDetail) -> bool {
    detail.upgrade.state == UpgradeState::Running
        || detail.hosts.iter().any(|host| host.state == UpgradeHostState::Upgrading)
}

fn table(upgrades: &[UpgradeView]) -> TextTable {
    let headers = ["ID", "VERSION", "STATE", "RINGS", "BY", "BEGUN", "REASON"];
    let mut table = TextTable::new(&headers);
    for upgrade in upgrades {
        let style = match upgrade.state {
            UpgradeState::Done => CellStyle::Good,
            UpgradeState::Failed => CellStyle::Bad,
            UpgradeState::Paused | UpgradeState::Cancelled => CellStyle::Warning,
            UpgradeState::Running => CellStyle::Plain,
        };
        let rings: Vec<String> = upgrade.rings.iter().map(u32::to_string).collect();
        table.row([
            plain(&upgrade.id),
            plain(&upgrade.version),
            (upgrade.state.as_str().to_owned(), style),
            plain(rings.join("+")),
            plain(&upgrade.created_by),
            plain(moment(upgrade.created_at)),
            plain(or_dash(upgrade.reason.clone())),
        ]);
    }
    table
}

fn hosts_table(hosts: &[UpgradeHostView]) -> TextTable {
    let mut table = TextTable::new(&["HOST", "RING", "STATE", "BEFORE", "SINCE", "REASON"]).right(&[1]);
    for host in hosts {
        let style = match host.state {
            UpgradeHostState::Done => CellStyle::Good,
            UpgradeHostState::Failed => CellStyle::Bad,
            UpgradeHostState::Skipped => CellStyle::Warning,
            UpgradeHostState::Waiting | UpgradeHostState::Upgrading => CellStyle::Plain,
        };
        table.row([
            plain(&host.host),
            plain(host.ring),
            (host.state.as_str().to_owned(), style),
            plain(or_dash(host.version_before.clone())),
            plain(moment(host.changed_at)),
            plain(or_dash(host.reason.clone())),
        ]);
    }
    table
}

fn plan_table(plan: &UpgradePlanView) -> TextTable {
    let mut table = TextTable::new(&["RING", "HOST"]).right(&[0]);
    for (ring, number) in plan.rings.iter().zip(1..) {
        for host in &ring.hosts {
            table.row([plain(number), plain(host)]);
        }
    }
    table
}
