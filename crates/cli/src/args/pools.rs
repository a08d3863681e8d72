//! Arguments of `proctor group`: pools and their limits.

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use proctor_model::Weight;

use super::ChosenHosts;
use crate::commands::WatchArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Set the limits of a pool
    Set(GroupSetArgs),
    /// List pools and their limits
    Get(GroupGetArgs),
    /// Delete a pool; its members keep their own limits
    Delete(GroupDeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GroupDeleteArgs {
    /// Namespace of the pool
    pub(crate) namespace: String,
    /// Id of the pool [default: the namespace]
    #[arg(long, env = "PROCTOR_GROUP_ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: ChosenHosts,
}

#[derive(Debug, Args)]
pub(crate) struct GroupSetArgs {
    /// Namespace of the processes
    pub(crate) namespace: String,
    /// Which processes: those with the label process_group of this value [default: the namespace,
    /// which is all its processes]
    #[arg(long, env = "PROCTOR_GROUP_ID")]
    pub(crate) id: Option<String>,
    /// CPU limit, in % of the whole machine
    #[arg(long, env = "PROCTOR_CPU", value_name = "PERCENT")]
    pub(crate) cpu: f64,
    /// Memory limit, in % of the whole machine
    #[arg(long, env = "PROCTOR_MEMORY", value_name = "PERCENT")]
    pub(crate) memory: f64,
    /// 0: the largest consumer is evicted first; 1: the largest against its own limit
    #[arg(long, env = "PROCTOR_CPU_WEIGHT", value_name = "0|1", default_value = "0", value_parser = parse_weight)]
    pub(crate) cpu_weight: Weight,
    /// 0: the largest consumer is evicted first; 1: the largest against its own limit
    #[arg(long, env = "PROCTOR_MEMORY_WEIGHT", value_name = "0|1", default_value = "0", value_parser = parse_weight)]
    pub(crate) memory_weight: Weight,
    /// Dry run: only report in an event which process would be evicted
    #[arg(long, env = "PROCTOR_DRY_RUN")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) hosts: ChosenHosts,
}

#[derive(Debug, Args)]
pub(crate) struct GroupGetArgs {
    /// Only this namespace
    pub(crate) namespace: Option<String>,
    /// Show the usage of each pool's members
    #[arg(long, env = "PROCTOR_USAGE", value_parser = BoolishValueParser::new())]
    pub(crate) usage: bool,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

fn parse_weight(text: &str) -> Result<Weight, String> {
    match text {
        "0" => Ok(Weight::Usage),
        "1" => Ok(Weight::UsageByLimit),
        _ => Err("must be 0 or 1".into()),
    }
}
