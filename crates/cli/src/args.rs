//! What can be typed: sub-commands, flags, and the environment variable of each flag.

mod pools;
mod server;
mod targets;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use proctor_client::{NewGrant, ProcessSort};
use proctor_model::{HostKey, OperationKind, ProcessKey, TaskId};

use crate::backup::{BackupArgs, RestoreArgs};
use crate::commands::{
    AppCommand, ApplyArgs, AuditCommand, AuthorityCommand, BindingCommand, BusinessCommand, BusinessSetCommand,
    EventsArgs, FilesArgs, HistoryArgs, HostsCommand, JoinArgs, LogsArgs, RelaysCommand, RoleCommand, TaskArgs,
    TopArgs, UpgradeCommand, UsageArgs, UserCommand, WatchArgs, WebhookCommand,
};
use crate::config::ConfigCommand;
use crate::generated_docs::{CompletionArgs, ManArgs};
use crate::relay::RelayArgs;
use crate::swarm::SwarmArgs;

pub(crate) use pools::{GroupCommand, GroupDeleteArgs, GroupGetArgs, GroupSetArgs};
pub(crate) use server::{DevArgs, ServerArgs};
pub(crate) use targets::{ChosenHosts, ChosenProcess, OperateArgs, ShowArgs, StatusArgs};

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  a target failed, something differs (diff) or is wrong (doctor, audit verify), or a service
     could not start
  2  the command line, a file or the profile is wrong
  3  the server cannot be reached or refused";

/// Run and supervise processes across a fleet.
#[derive(Debug, Parser)]
#[command(name = "proctor", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which server to call, and as whom. What is not given comes from the profile.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Connection {
    /// Address of the server, such as http://127.0.0.1:8080
    #[arg(long, global = true, env = "PROCTOR_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Fingerprint of the server's key, as it logs it when it starts: accept that key and no other
    #[arg(long, global = true, env = "PROCTOR_SERVER_FINGERPRINT", value_name = "SHA256")]
    pub(crate) server_fingerprint: Option<String>,
    /// File with server, server_fingerprint, app_code, app_secret and user
    /// [default: ~/.config/proctor/profile.toml]
    #[arg(long, global = true, env = "PROCTOR_PROFILE", value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// App code (created by `dev`)
    #[arg(long, global = true, env = "PROCTOR_APP_CODE", value_name = "CODE")]
    pub(crate) app_code: Option<String>,
    /// Secret of the app; the environment hides it from other users of this machine
    #[arg(
        long,
        global = true,
        env = "PROCTOR_APP_SECRET",
        value_name = "SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub(crate) app_secret: Option<String>,
    /// User on whose behalf the app calls
    #[arg(long, global = true, env = "PROCTOR_USER", value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Token of a user, instead of an app and its secret
    #[arg(long, global = true, env = "PROCTOR_USER_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) user_token: Option<String>,
    /// Output format
    #[arg(short, long, global = true, env = "PROCTOR_OUTPUT", value_name = "FORM", default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Table,
    /// For people, with every column
    Wide,
    Json,
    Yaml,
}

/// The log of `dev` and `server`, on stderr.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct Logging {
    /// Log filter, such as info or proctor_server=debug [default: info; for dev: warn]
    #[arg(long, global = true, env = "PROCTOR_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Log format
    #[arg(long, global = true, env = "PROCTOR_LOG_FORMAT", value_name = "FORM", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Replace the key that signs commands; a running server follows within seconds, and its agents with it
    RotateSigning(RotateSigningArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RotateSigningArgs {
    /// Make agents refuse the old key at once instead of at the next rotation: use it if the key may have leaked
    #[arg(long, env = "PROCTOR_REFUSE_OLD", value_parser = BoolishValueParser::new())]
    pub(crate) refuse_old: bool,
    /// Data directory of the server [default: /var/lib/proctor; ~/.local/share/proctor/server unless root]
    #[arg(long, env = "PROCTOR_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Upgrade the store of a stopped server of an older version, which cannot open it afterwards
    #[arg(long, env = "PROCTOR_MIGRATE", value_parser = BoolishValueParser::new())]
    pub(crate) migrate: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server, a local agent and a demo process for development
    Dev(DevArgs),
    /// Run the control plane
    Server(Box<ServerArgs>),
    /// Carry the agents of a cloud area to the server
    Relay(Box<RelayArgs>),
    /// Check or show the server's configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Back up the store of a running or stopped server to a private file
    Backup(BackupArgs),
    /// Restore a store from a backup, on this or another machine
    Restore(RestoreArgs),
    /// Manage the server's own keys
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Print the command line that enrols a new host
    #[command(name = "join-command")]
    Join(JoinArgs),
    /// Manage join tokens for new hosts
    #[command(subcommand)]
    Token(TokenCommand),
    /// Rotate the certificate authority of agents and relays
    #[command(subcommand, name = "ca")]
    Authority(AuthorityCommand),
    /// List and revoke relays
    #[command(subcommand)]
    Relays(RelaysCommand),
    /// Manage the apps that may call the API
    #[command(subcommand)]
    App(AppCommand),
    /// List registered processes and their state
    Ps(PsArgs),
    /// List and manage hosts
    Hosts(HostsArgs),
    /// Register a process from a file shaped like register_proc_info (JSON or TOML)
    Register(RegisterArgs),
    /// Apply files that describe processes and pools; only differences are changed
    Apply(ApplyArgs),
    /// Show what apply would change; exits with 1 if anything differs
    Diff(FilesArgs),
    /// Unregister a process; if it runs, it keeps running
    Unregister(ChosenProcess),
    /// Start a process and keep it alive
    Start(OperateArgs),
    /// Stop a process and release it
    Stop(OperateArgs),
    /// Restart a process
    Restart(OperateArgs),
    /// Run a process's reload command
    Reload(OperateArgs),
    /// Kill a process with its children and release it
    Kill(OperateArgs),
    /// Keep a process alive from now on
    Manage(OperateArgs),
    /// Stop keeping a process alive; it keeps running
    Release(OperateArgs),
    /// Ask the agents for the current status of a process
    Status(StatusArgs),
    /// Show everything that is known about a process
    Show(ShowArgs),
    /// Show the revisions of a process's spec on a host and their differences
    History(HistoryArgs),
    /// Show the CPU and memory of a process on a host over the last hour or week
    Usage(UsageArgs),
    /// Show the end of a process's own log on a host, and follow it
    Logs(LogsArgs),
    /// Show, cancel, pause, resume and retry tasks
    Task(TaskArgs),
    /// Manage pools: limits that processes of a namespace share on a host
    #[command(subcommand)]
    Group(GroupCommand),
    /// List or follow events
    Events(EventsArgs),
    /// Manage webhooks
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// List the agent programs that the server holds for upgrades
    Builds,
    /// Upgrade agents over their link, ring by ring
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
    /// Manage businesses, which own hosts
    #[command(subcommand)]
    Business(BusinessCommand),
    /// Manage sets of businesses
    #[command(subcommand)]
    BusinessSet(BusinessSetCommand),
    /// Manage users and their API tokens
    #[command(subcommand)]
    User(UserCommand),
    /// Manage roles: classes of operations that are granted together
    #[command(subcommand)]
    Role(RoleCommand),
    /// Manage bindings: which app or user has which role on what
    #[command(subcommand)]
    Binding(BindingCommand),
    /// Read and verify the audit log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Show CPU and memory of processes, live on a terminal
    Top(TopArgs),
    /// Show who the server takes you for and what you may do
    Whoami,
    /// List who may do what where
    Grants(GrantsArgs),
    /// Diagnose the server and its fleet, with advice
    Doctor,
    /// Simulate thousands of agents to load-test a server
    Swarm(SwarmArgs),
    /// Print a shell completion script
    Completion(CompletionArgs),
    /// Print the manual page
    Man(ManArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct HostsArgs {
    /// Only hosts of this business
    #[arg(long, env = "PROCTOR_BUSINESS", value_name = "ID")]
    pub(crate) business: Option<u64>,
    /// Only hosts of this cloud area
    #[arg(long, env = "PROCTOR_CLOUD_ID", value_name = "N")]
    pub(crate) cloud_id: Option<u32>,
    /// Only hosts whose agents are not connected
    #[arg(long, env = "PROCTOR_OFFLINE", value_parser = BoolishValueParser::new())]
    pub(crate) offline: bool,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    #[command(subcommand)]
    pub(crate) command: Option<HostsCommand>,
}

#[derive(Debug, Args)]
pub(crate) struct GrantsArgs {
    /// Only grants of this app:CODE or user:NAME
    #[arg(long, env = "PROCTOR_SUBJECT", value_name = "SUBJECT")]
    pub(crate) subject: Option<String>,
    /// Only this class: read, operate, register, limits or admin
    #[arg(long, env = "PROCTOR_CLASS", value_name = "CLASS")]
    pub(crate) class: Option<String>,
    /// Only grants that apply in this namespace; with --host, to a process on that host
    #[arg(long, env = "PROCTOR_NAMESPACE", value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Only grants that apply on this host
    #[arg(long, env = "PROCTOR_HOST", value_name = "HOST", conflicts_with_all = ["business", "cloud_id"])]
    pub(crate) host: Option<String>,
    /// Only grants that apply in this business
    #[arg(long, env = "PROCTOR_BUSINESS", value_name = "ID")]
    pub(crate) business: Option<u64>,
    /// Only grants that apply in this cloud area
    #[arg(long, env = "PROCTOR_CLOUD_ID", value_name = "N")]
    pub(crate) cloud_id: Option<u32>,
    /// Only grants on everything
    #[arg(long, env = "PROCTOR_EVERYWHERE", value_parser = BoolishValueParser::new(),
          conflicts_with_all = ["namespace", "host", "business", "cloud_id"])]
    pub(crate) everywhere: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a join token; it is printed once
    Create(TokenArgs),
    /// List join tokens, without their secrets
    List,
    /// Revoke a join token; hosts that enrolled with it stay
    Revoke(TokenIdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TokenIdArgs {
    /// Token id, as `token list` shows it
    pub(crate) id: String,
}

/// The store of a server on this machine.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Data directory of the server; without it, the server is asked
    #[arg(long, env = "PROCTOR_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Upgrade the store of a stopped server of an older version, which cannot open it afterwards
    #[arg(long, env = "PROCTOR_MIGRATE", value_parser = BoolishValueParser::new())]
    pub(crate) migrate: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Number of agents that may enrol with the token
    #[arg(long, env = "PROCTOR_TOKEN_USES", value_name = "N", default_value_t = 1)]
    pub(crate) uses: u32,
    /// Lifetime of the token: a number with s, m, h or d
    #[arg(long, env = "PROCTOR_TOKEN_TTL", value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub(crate) ttl: Duration,
    /// Limit the token to this cloud area
    #[arg(long, env = "PROCTOR_CLOUD_ID", value_name = "N")]
    pub(crate) cloud_id: Option<u32>,
    /// Limit the token to this host (IP or CLOUD:IP); it can also take over a known host
    #[arg(long, env = "PROCTOR_HOST", value_name = "HOST", value_parser = parse_host_key)]
    pub(crate) host: Option<HostKey>,
    /// Business to place new hosts in
    #[arg(long, env = "PROCTOR_BUSINESS", value_name = "ID")]
    pub(crate) business: Option<u64>,
    /// Let relays of the cloud area enrol instead of agents
    #[arg(long, env = "PROCTOR_TOKEN_RELAY", value_parser = BoolishValueParser::new(), requires = "cloud_id", conflicts_with_all = ["host", "business"])]
    pub(crate) relay: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AppArgs {
    /// Letters, digits, '-', '_' and '.'
    pub(crate) code: String,
    /// Let the app act for any user, and create tokens and apps
    #[arg(long, env = "PROCTOR_APP_TRUSTED", value_parser = BoolishValueParser::new())]
    pub(crate) trusted: bool,
    /// Let the app sign its calls (bk_signature); its secret is then stored encrypted beside its hash
    #[arg(long, env = "PROCTOR_APP_SIGNING", value_parser = BoolishValueParser::new())]
    pub(crate) signing: bool,
    /// Role and scope, such as operator@namespace:web; repeatable, or a comma-separated list
    #[arg(long = "role", env = "PROCTOR_APP_ROLE", value_name = "ROLE@SCOPE", value_delimiter = ',', value_parser = parse_grant)]
    pub(crate) roles: Vec<NewGrant>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Only this namespace
    #[arg(short, long, env = "PROCTOR_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Only this host: an IP address, CLOUD:IP or an agent id
    #[arg(long, env = "PROCTOR_HOST")]
    pub(crate) host: Option<String>,
    /// Only hosts of this business
    #[arg(long, env = "PROCTOR_BUSINESS", value_name = "ID")]
    pub(crate) business: Option<u64>,
    /// Only processes with these labels: env=prod,tier!=db,!x,y
    #[arg(short = 'l', long, env = "PROCTOR_SELECTOR", value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    /// Only these phases, such as failed,stopped
    #[arg(long, env = "PROCTOR_PHASE", value_name = "PHASE,…")]
    pub(crate) phase: Option<String>,
    /// Sort order
    #[arg(long, env = "PROCTOR_SORT", value_name = "BY")]
    pub(crate) sort: Option<Sort>,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
}

/// What a list of processes is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Name,
    Cpu,
    Memory,
    Restarts,
    Started,
}

impl From<Sort> for ProcessSort {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Name => Self::Name,
            Sort::Cpu => Self::Cpu,
            Sort::Memory => Self::Memory,
            Sort::Restarts => Self::Restarts,
            Sort::Started => Self::Started,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RegisterArgs {
    /// File to read (JSON or TOML); - for stdin
    #[arg(short, long, env = "PROCTOR_FILE", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Replace the spec where the process is registered already
    #[arg(long, env = "PROCTOR_UPDATE", value_parser = BoolishValueParser::new())]
    pub(crate) update: bool,
    /// Register on these hosts instead of those in the file: IP addresses, CLOUD:IP or agent ids
    #[arg(long = "host", env = "PROCTOR_HOST", value_name = "HOST", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
}

impl Command {
    /// Commands that run until they are told to stop.
    pub(crate) fn is_service(&self) -> bool {
        matches!(self, Self::Dev(_) | Self::Server(_) | Self::Relay(_))
    }

    /// The operation behind a command of its name.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other command is none, whatever comes")]
    pub(crate) fn operation(&self) -> Option<(OperationKind, &OperateArgs)> {
        match self {
            Self::Start(args) => Some((OperationKind::Start, args)),
            Self::Stop(args) => Some((OperationKind::Stop, args)),
            Self::Restart(args) => Some((OperationKind::Restart, args)),
            Self::Reload(args) => Some((OperationKind::Reload, args)),
            Self::Kill(args) => Some((OperationKind::Kill, args)),
            Self::Manage(args) => Some((OperationKind::Manage, args)),
            Self::Release(args) => Some((OperationKind::Release, args)),
            _ => None,
        }
    }
}

pub(crate) fn parse_process(text: &str) -> Result<ProcessKey, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.into_text())
}

pub(crate) fn parse_task(text: &str) -> Result<TaskId, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.into_text())
}

fn parse_host_key(text: &str) -> Result<HostKey, String> {
    text.parse().map_err(|error: proctor_model::FieldError| error.problem.into_text())
}

/// `ROLE@SCOPE`.
fn parse_grant(text: &str) -> Result<NewGrant, String> {
    match text.split_once('@') {
        Some((role, scope)) if !role.is_empty() && !scope.is_empty() => {
            Ok(NewGrant { role: role.to_owned(), scope: scope.to_owned(), ..NewGrant::default() })
        }
        Some(_) | None => Err("must be ROLE@SCOPE, such as operator@namespace:web".into()),
    }
}

/// `90s`, `30m`, `1h`, `7d`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is not a time such as 90s, 30m, 1h or 7d");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.parse().map_err(|_| bad())?;
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(bad()),
    };
    count.checked_mul(unit).map(Duration::from_secs).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn a_secret_may_begin_with_a_hyphen() {
        let cli = parse("proctor ps --app-secret -aawNV --app-code a").unwrap();

        assert_eq!(cli.connection.app_secret.as_deref(), Some("-aawNV"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_an_environment_variable() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                let name = format!("{} {}", command.get_name(), arg.get_id());
                if matches!(arg.get_id().as_str(), "help" | "version") {
                    continue;
                }
                let env = arg.get_env().unwrap_or_else(|| panic!("{name} has none")).to_string_lossy();
                assert!(env.starts_with("PROCTOR_"), "{name}: {env}");
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn global_flags_stand_anywhere() {
        let cli = parse("proctor ps --server http://h:1 -o json").unwrap();

        assert_eq!(cli.connection.server.as_deref(), Some("http://h:1"));
        assert_eq!(cli.connection.output, Output::Json);
    }

    #[test]
    fn a_role_stands_before_its_scope() {
        let grant = parse_grant("operator@namespace:web").unwrap();

        assert_eq!((grant.role.as_str(), grant.scope.as_str()), ("operator", "namespace:web"));
        for bad in ["operator", "@everything", "operator@"] {
            assert!(parse_grant(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(7 * 24 * 3600)));
        for bad in ["", "h", "1w", "-1s", "1h30m", "99999999999999999999d", "1 h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_process_is_checked_before_anything_is_sent() {
        let error = parse("proctor show nginx").unwrap_err().to_string();

        assert!(error.contains("not of the form NAMESPACE/NAME"), "{error}");
    }
}
