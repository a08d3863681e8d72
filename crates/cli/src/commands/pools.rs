//! `proctor group set|get|delete`: pools.

use anyhow::Result;
use proctor_client::{PoolQuery, PoolSetting, PoolUsage, PoolView};
use proctor_model::{Percent, Weight};

use super::{CommandEnd, Session};
use crate::args::{GroupDeleteArgs, GroupGetArgs, GroupSetArgs};
use crate::output::{TextTable, plain};

pub(super) async fn set(session: &Session, args: GroupSetArgs) -> Result<CommandEnd> {
    let pool = PoolSetting {
        id: args.id.unwrap_or_else(|| args.namespace.clone()).parse()?,
        namespace: args.namespace.parse()?,
        cpu: Percent::try_from(args.cpu).map_err(|error| error.inside("--cpu"))?,
        memory: Percent::try_from(args.memory).map_err(|error| error.inside("--memory"))?,
        cpu_weight: args.cpu_weight,
        memory_weight: args.memory_weight,
        dry_run: args.dry_run,
    };
    let rows = session.client.set_pools(&args.hosts.get(), &[pool]).await?;
    session.print_rows(&rows)
}

pub(super) async fn delete(session: &Session, args: GroupDeleteArgs) -> Result<CommandEnd> {
    let id = args.id.unwrap_or_else(|| args.namespace.clone()).parse()?;
    let rows = session.client.delete_pool(&args.namespace.parse()?, &id, &args.hosts.get()).await?;
    session.print_rows(&rows)
}

pub(super) async fn get(session: &Session, args: GroupGetArgs) -> Result<CommandEnd> {
    let query = PoolQuery { namespace: args.namespace, usage: args.usage.then_some(true), ..PoolQuery::default() };
    let fetch = async || session.client.pools(&query).await;
    session.list(args.watch, fetch, |pools| table(pools, args.usage)).await
}

fn table(pools: &[PoolView], usage: bool) -> TextTable {
    let headers = [
        "HOST",
        "NAMESPACE",
        "ID",
        "CPU%",
        "MEMORY%",
        "CPU WEIGHT",
        "MEMORY WEIGHT",
        "DRY RUN",
        "CPU USED%",
        "MEMORY USED%",
        "MEMBERS",
    ];
    let unasked: &[usize] = if usage { &[] } else { &[8, 9, 10] };
    let mut table = TextTable::new(&headers).right(&[3, 4, 8, 9, 10]).only_wide(unasked);
    for pool in pools {
        table.row([
            plain(&pool.host),
            plain(&pool.namespace),
            plain(&pool.id),
            plain(pool.cpu.get()),
            plain(pool.memory.get()),
            plain(weight(pool.cpu_weight)),
            plain(weight(pool.memory_weight)),
            plain(if pool.dry_run { "yes" } else { "no" }),
            plain(used(pool, |usage| format!("{:.1}", usage.cpu_percent))),
            plain(used(pool, |usage| format!("{:.1}", usage.memory_percent))),
            plain(used(pool, |usage| usage.members.len().to_string())),
        ]);
    }
    table
}

fn used(pool: &PoolView, what: impl FnOnce(&PoolUsage) -> String) -> String {
    pool.usage.as_ref().map_or_else(|| "-".to_owned(), what)
}

/// The documented number, with its meaning.
fn weight(weight: Weight) -> &'static str {
    match weight {
        Weight::Usage => "0 (usage)",
        Weight::UsageByLimit => "1 (usage by limit)",
    }
}
