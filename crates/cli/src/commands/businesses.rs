//! Where hosts belong: `proctor business`, `proctor business-set`, `proctor hosts import|place`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use proctor_client::{BusinessSetView, BusinessView, ImportRow, Object};

use super::maintenance::{ApproveArgs, CordonArgs, ManyHosts};
use super::{CommandEnd, Session, host_identity, hosts, maintenance, processes};
use crate::args::parse_duration;
use crate::output::{self, TextTable, or_dash, plain};

#[derive(Debug, Subcommand)]
pub(crate) enum BusinessCommand {
    /// List businesses
    List,
    /// Create or rename a business
    Set(BusinessArgs),
    /// Delete a business; its hosts then belong to none
    Delete(IdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BusinessArgs {
    /// Its number, bk_biz_id
    id: u64,
    /// Display name
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// Its number
    id: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BusinessSetCommand {
    /// List sets and their members
    List,
    /// Create a set, or replace its name and members
    Set(BusinessSetArgs),
    /// Delete a set; its businesses stay
    Delete(IdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BusinessSetArgs {
    /// Its number
    id: u64,
    /// Display name
    name: String,
    /// Businesses in the set; repeatable, or a comma-separated list
    #[arg(long = "member", env = "PROCTOR_MEMBER", value_name = "ID", value_delimiter = ',')]
    members: Vec<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostsCommand {
    /// Show everything that is known about a host, and how long its agent takes to answer
    Show(HostArg),
    /// List the hosts whose agents have left them for others; their registrations wait
    Unserved,
    /// Assign many hosts to businesses from a file, all or none
    Import(ImportArgs),
    /// Assign hosts to a business; they need not have enrolled yet
    Place(PlaceArgs),
    /// Let another key take over a known host once; it also needs a join token
    AllowRejoin(RejoinArgs),
    /// Revoke the certificate of a host's agent; its session ends at once, its registrations stay
    Revoke(HostArg),
    /// Remove a host with its registrations; its processes live on
    Remove(HostArg),
    /// Approve a new host that waits for approval (`proctor server --approve-hosts`)
    Approve(ApproveArgs),
    /// Cordon hosts for maintenance: no starts from the fleet, no alarms; supervision goes on
    Cordon(CordonArgs),
    /// End the maintenance of hosts
    Uncordon(ManyHosts),
}

#[derive(Debug, Args)]
pub(crate) struct HostArg {
    /// An IP address, CLOUD:IP or an agent id
    pub(super) host: String,
}

#[derive(Debug, Args)]
pub(crate) struct RejoinArgs {
    /// An IP address, CLOUD:IP or an agent id
    pub(super) host: String,
    /// For how long: a number with s, m, h or d
    #[arg(long, env = "PROCTOR_REJOIN_TTL", value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub(super) ttl: Duration,
    /// Withdraw the permission
    #[arg(long, env = "PROCTOR_WITHDRAW", value_parser = BoolishValueParser::new(), conflicts_with = "ttl")]
    pub(super) withdraw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Lines cloud,ip,business[,business_name] (CSV), or a list of such objects (JSON); - is stdin
    file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// IP addresses, CLOUD:IP or agent ids
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
    #[command(flatten)]
    place: WhereArgs,
}

/// One of the two must be given.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct WhereArgs {
    /// Business to assign them to
    #[arg(long, env = "PROCTOR_BUSINESS", value_name = "ID")]
    business: Option<u64>,
    /// Remove them from their business
    #[arg(long, env = "PROCTOR_NOWHERE", value_parser = BoolishValueParser::new())]
    nowhere: bool,
}

pub(super) async fn business(session: &Session, command: BusinessCommand) -> Result<CommandEnd> {
    match command {
        BusinessCommand::List => {
            let businesses = session.client.businesses().await?;
            output::print(session.output, &businesses, |businesses| business_table(businesses))?;
        }
        BusinessCommand::Set(args) => {
            let set = session.client.put_business(args.id, &args.name).await?;
            output::print(session.output, &set, |set| business_table(std::slice::from_ref(set)))?;
        }
        BusinessCommand::Delete(args) => {
            session.client.delete_business(args.id).await?;
            eprintln!("Business {} deleted; its hosts belong to none.", args.id);
        }
    }
    Ok(CommandEnd::Success)
}

fn business_table(businesses: &[BusinessView]) -> TextTable {
    let mut table = TextTable::new(&["ID", "NAME"]).right(&[0]);
    for business in businesses {
        table.row([plain(business.id), plain(&business.name)]);
    }
    table
}

pub(super) async fn business_set(session: &Session, command: BusinessSetCommand) -> Result<CommandEnd> {
    match command {
        BusinessSetCommand::List => {
            let sets = session.client.business_sets().await?;
            output::print(session.output, &sets, |sets| set_table(sets))?;
        }
        BusinessSetCommand::Set(args) => {
            let members: BTreeSet<u64> = args.members.into_iter().collect();
            let set = session.client.put_business_set(args.id, &args.name, members).await?;
            output::print(session.output, &set, |set| set_table(std::slice::from_ref(set)))?;
        }
        BusinessSetCommand::Delete(args) => {
            session.client.delete_business_set(args.id).await?;
            eprintln!("Business set {} deleted.", args.id);
        }
    }
    Ok(CommandEnd::Success)
}

fn set_table(sets: &[BusinessSetView]) -> TextTable {
    let mut table = TextTable::new(&["ID", "NAME", "BUSINESSES"]).right(&[0]);
    for set in sets {
        let members: Vec<String> = set.members.iter().map(u64::to_string).collect();
        table.row([plain(set.id), plain(&set.name), plain(or_dash(members.join(",")))]);
    }
    table
}

pub(super) async fn hosts(session: &Session, command: HostsCommand) -> Result<CommandEnd> {
    match command {
        HostsCommand::Show(args) => hosts::show(session, &args.host).await,
        HostsCommand::Unserved => host_identity::unserved(session).await,
        HostsCommand::Import(args) => import(session, args).await,
        HostsCommand::AllowRejoin(args) => host_identity::allow_rejoin(session, args).await,
        HostsCommand::Revoke(args) => host_identity::revoke(session, args).await,
        HostsCommand::Remove(args) => host_identity::remove(session, args).await,
        HostsCommand::Approve(args) => maintenance::approve(session, args).await,
        HostsCommand::Cordon(args) => maintenance::cordon(session, args).await,
        HostsCommand::Uncordon(args) => maintenance::uncordon(session, args).await,
        HostsCommand::Place(args) => {
            let placed = session.client.place_hosts(&args.hosts, args.place.business).await?;
            output::print_or(session.output, &placed, || {
                format!("{} placed\n", counted(placed.hosts, "host", "hosts"))
            })?;
            Ok(CommandEnd::Success)
        }
    }
}

fn counted(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

async fn import(session: &Session, args: ImportArgs) -> Result<CommandEnd> {
    let file = args.file.display();
    let text = processes::read_text(&args.file).with_context(|| format!("cannot read {file}"))?;
    let imported = if text.trim_start().starts_with('[') {
        let rows: Vec<Object<ImportRow>> =
            serde_json::from_str(&text).with_context(|| format!("{file} is not a list of hosts in JSON"))?;
        let rows: Vec<ImportRow> = rows.into_iter().map(|Object(row)| row).collect();
        session.client.import_hosts(&rows).await?
    } else {
        session.client.import_hosts_csv(text).await?
    };
    output::print_or(session.output, &imported, || {
        let hosts = counted(imported.hosts, "host", "hosts");
        format!("{hosts} placed, {} created or renamed\n", counted(imported.businesses, "business", "businesses"))
    })?;
    Ok(CommandEnd::Success)
}
