//! Who may do what: `proctor app`, `proctor user`, `proctor role`, `proctor binding`. A secret is the
//! only thing on stdout, so that scripts can catch it.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use proctor_client::{
    AppView, BindingQuery, BindingView, GrantQuery, GrantView, NewBinding, NewUserToken, RoleView, UserTokenView,
    UserView, Who,
};

use super::{CommandEnd, Session};
use crate::args::{AppArgs, GrantsArgs, StoreArgs, parse_duration};
use crate::output::{self, CellStyle, TextTable, moment, or_dash, plain, yes_no};

/// More than the server accepts.
const PASSWORD_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum AppCommand {
    /// List apps
    List,
    /// Create an app; its secret is printed once
    Create(AppArgs),
    /// Replace an app's secret; the new one is printed once, the old one stops working
    Rotate(RotateArgs),
    /// Delete an app and its bindings
    Delete(CodeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CodeArgs {
    code: String,
}

#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    pub(crate) code: String,
    /// It may sign its calls (bk_signature); the new secret is then kept, sealed, beside its hash
    #[arg(long, env = "PROCTOR_APP_SIGNING", value_parser = BoolishValueParser::new())]
    pub(crate) signing: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List users
    List,
    /// Create a user
    Create(NameArgs),
    /// Disable a user; none of its tokens work until it is enabled
    Disable(NameArgs),
    /// Enable a disabled user
    Enable(NameArgs),
    /// Delete a user with its tokens and bindings
    Delete(NameArgs),
    /// Set a user's console password, read from standard input
    SetPassword(NameArgs),
    /// Remove a user's console password; tokens and sign-in links still work
    RemovePassword(NameArgs),
    /// Print a link that signs a user in to the console, once
    SignInLink(NameArgs),
    /// Manage a user's API tokens
    #[command(subcommand)]
    Token(UserTokenCommand),
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    name: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserTokenCommand {
    /// Create a token; it is printed once
    Create(UserTokenArgs),
    /// List a user's tokens, without their secrets
    List(OfUserArgs),
    /// Revoke a token
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OfUserArgs {
    /// Whose
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct UserTokenArgs {
    /// Whose
    name: String,
    /// What it is for
    #[arg(long, env = "PROCTOR_NOTE", default_value = "")]
    note: String,
    /// How long it is good for: a number with s, m, h or d [default: for ever]
    #[arg(long, env = "PROCTOR_TOKEN_TTL", value_name = "TIME", value_parser = parse_duration)]
    ttl: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Whose
    name: String,
    /// As `user token list` shows it
    id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RoleCommand {
    /// List roles and their classes
    List,
    /// Create a role, or change its classes
    Set(RoleArgs),
    /// Delete a role and its bindings
    Delete(NameArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RoleArgs {
    name: String,
    /// Of read, operate, register, limits and admin; none implies another
    #[arg(required = true, value_name = "CLASS", value_delimiter = ',')]
    classes: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BindingCommand {
    /// List bindings
    List(BindingListArgs),
    /// Grant a role to an app or a user on a scope
    #[command(visible_alias = "create")]
    Add(BindingArgs),
    /// Revoke a binding
    Delete(BindingIdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BindingListArgs {
    /// Only those of app:CODE or user:NAME
    #[arg(long, env = "PROCTOR_SUBJECT")]
    subject: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BindingArgs {
    /// app:CODE or user:NAME
    subject: String,
    /// As `role list` shows it
    role: String,
    /// everything, business:3, set:2, namespace:web or cloud:0
    scope: String,
    /// Allow only specs with this identity.user to be registered; may be repeated or a list with commas
    #[arg(long = "allow-user", env = "PROCTOR_ALLOW_USER", value_name = "USER", value_delimiter = ',')]
    allow_users: Vec<String>,
    /// Allow only specs whose paths lie below this directory; may be repeated or a list with commas
    #[arg(long = "allow-root", env = "PROCTOR_ALLOW_ROOT", value_name = "DIR", value_delimiter = ',')]
    allow_roots: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BindingIdArgs {
    /// As `binding list` shows it
    id: String,
}

pub(super) async fn whoami(session: &Session) -> Result<CommandEnd> {
    let who = session.client.whoami().await?;
    output::print_or(session.output, &who, || render(session.client.server(), &who))?;
    Ok(CommandEnd::Success)
}

fn render(server: &str, who: &Who) -> String {
    let name = |name: Option<&String>| name.map_or("-", String::as_str).to_owned();
    let mut text =
        format!("server  {server}\napp     {}\nuser    {}\n", name(who.app.as_ref()), name(who.user.as_ref()));
    if who.allowed.is_empty() {
        return text + "may     nothing yet: ask an administrator for a role\n";
    }
    for allowed in &who.allowed {
        text += &format!("may     {:8}  on {}\n", allowed.class, allowed.scopes.join(", "));
        for within in &allowed.bounds {
            let parts = [("users ", &within.allow_users), ("roots ", &within.allow_roots)];
            let parts = parts.iter().filter(|(_, values)| !values.is_empty());
            let parts: Vec<String> = parts.map(|(kind, values)| (*kind).to_owned() + &values.join(", ")).collect();
            text += &format!("                  on {} only {}\n", within.scopes.join(", "), parts.join("; "));
        }
    }
    text
}

pub(super) async fn grants(session: &Session, args: GrantsArgs) -> Result<CommandEnd> {
    let query = GrantQuery {
        subject: args.subject,
        class: args.class,
        namespace: args.namespace,
        host: args.host,
        business: args.business,
        cloud: args.cloud_id,
        everywhere: args.everywhere.then_some(true),
    };
    let grants = session.client.grants(&query).await?;
    output::print(session.output, &grants, |grants| grant_table(grants))?;
    Ok(CommandEnd::Success)
}

fn grant_table(grants: &[GrantView]) -> TextTable {
    let mut table = TextTable::new(&["SUBJECT", "MAY", "SCOPE", "ROLE", "ONLY USERS", "ONLY ROOTS"]);
    for grant in grants {
        let style = if grant.disabled { CellStyle::Bad } else { CellStyle::Plain };
        let subject = if grant.disabled { format!("{} (disabled)", grant.subject) } else { grant.subject.clone() };
        table.row([
            (subject, style),
            plain(&grant.class),
            plain(&grant.scope),
            plain(&grant.role),
            plain(or_dash(grant.allow_users.join(", "))),
            plain(or_dash(grant.allow_roots.join(", "))),
        ]);
    }
    table
}

/// Every command except those that also work on a local store.
pub(super) async fn app(session: &Session, command: AppCommand) -> Result<CommandEnd> {
    match command {
        AppCommand::List => {
            let apps = session.client.apps().await?;
            output::print(session.output, &apps, |apps| app_table(apps))?;
        }
        AppCommand::Create(_) | AppCommand::Rotate(_) => unreachable!("main runs them, see crate::admin"),
        AppCommand::Delete(args) => {
            session.client.delete_app(&args.code).await?;
            eprintln!("App {} deleted.", args.code);
        }
    }
    Ok(CommandEnd::Success)
}

fn app_table(apps: &[AppView]) -> TextTable {
    let mut table = TextTable::new(&["CODE", "TRUSTED", "CREATED"]);
    for app in apps {
        table.row([plain(&app.code), plain(yes_no(app.trusted)), plain(moment(app.created_at))]);
    }
    table
}

pub(super) async fn user(session: &Session, command: UserCommand) -> Result<CommandEnd> {
    let client = &session.client;
    let changed = match command {
        UserCommand::List => {
            let users = client.users().await?;
            output::print(session.output, &users, |users| user_table(users))?;
            return Ok(CommandEnd::Success);
        }
        UserCommand::Token(command) => return user_token(session, command).await,
        UserCommand::Delete(args) => {
            client.delete_user(&args.name).await?;
            eprintln!("User {} deleted.", args.name);
            return Ok(CommandEnd::Success);
        }
        UserCommand::SetPassword(args) => return set_password(session, &args.name, Some(read_password()?)).await,
        UserCommand::RemovePassword(args) => return set_password(session, &args.name, None).await,
        UserCommand::SignInLink(args) => {
            let link = client.sign_in_link(&args.name).await?;
            output::print_or(session.output, &link, || format!("{}{}\n", client.server(), link.path))?;
            eprintln!("Works once, until {}.", moment(link.expires_at));
            return Ok(CommandEnd::Success);
        }
        UserCommand::Create(args) => client.create_user(&args.name).await?,
        UserCommand::Disable(args) => client.disable_user(&args.name, true).await?,
        UserCommand::Enable(args) => client.disable_user(&args.name, false).await?,
    };
    output::print(session.output, &changed, |user| user_table(std::slice::from_ref(user)))?;
    Ok(CommandEnd::Success)
}

async fn set_password(session: &Session, name: &str, password: Option<String>) -> Result<CommandEnd> {
    let done = if password.is_some() { "set" } else { "removed" };
    session.client.set_user_password(name, password).await?;
    eprintln!("Password of {name} {done}; open console sessions are closed.");
    Ok(CommandEnd::Success)
}

/// Never an argument: those are visible in process lists and in the shell's history.
fn read_password() -> Result<String> {
    if std::io::stdin().is_terminal() {
        return rpassword::prompt_password("New password: ").context("cannot read the password from the terminal");
    }
    let mut line = String::new();
    let mut input = BufReader::new(std::io::stdin().take(PASSWORD_BYTES_MAX));
    input.read_line(&mut line).context("cannot read the password from standard input")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn user_table(users: &[UserView]) -> TextTable {
    let mut table = TextTable::new(&["NAME", "DISABLED", "CREATED"]);
    for user in users {
        table.row([plain(&user.name), plain(yes_no(user.disabled)), plain(moment(user.created_at))]);
    }
    table
}

async fn user_token(session: &Session, command: UserTokenCommand) -> Result<CommandEnd> {
    match command {
        UserTokenCommand::Create(args) => {
            let token = NewUserToken { note: args.note, ttl_secs: args.ttl.map(|ttl| ttl.as_secs()) };
            let created = session.client.create_user_token(&args.name, &token).await?;
            output::print_or(session.output, &created, || format!("{}\n", created.token))?;
            let end = created.expires_at.map_or_else(|| "for ever".to_owned(), |end| format!("until {}", moment(end)));
            eprintln!("Good {end}, as PROCTOR_USER_TOKEN or Authorization: Bearer. It is not shown again.");
        }
        UserTokenCommand::List(args) => {
            let tokens = session.client.user_tokens(&args.name).await?;
            output::print(session.output, &tokens, |tokens| token_table(tokens))?;
        }
        UserTokenCommand::Revoke(args) => {
            session.client.delete_user_token(&args.name, &args.id).await?;
            eprintln!("Token {} of {} revoked.", args.id, args.name);
        }
    }
    Ok(CommandEnd::Success)
}

fn token_table(tokens: &[UserTokenView]) -> TextTable {
    let mut table = TextTable::new(&["ID", "USER", "CREATED", "EXPIRES", "NOTE"]);
    for token in tokens {
        table.row([
            plain(&token.id),
            plain(&token.user),
            plain(moment(token.created_at)),
            plain(token.expires_at.map_or_else(|| "never".to_owned(), moment)),
            plain(&token.note),
        ]);
    }
    table
}

pub(super) async fn role(session: &Session, command: RoleCommand) -> Result<CommandEnd> {
    match command {
        RoleCommand::List => {
            let roles = session.client.roles().await?;
            output::print(session.output, &roles, |roles| role_table(roles))?;
        }
        RoleCommand::Set(args) => {
            let role = session.client.put_role(&args.name, args.classes).await?;
            output::print(session.output, &role, |role| role_table(std::slice::from_ref(role)))?;
        }
        RoleCommand::Delete(args) => {
            session.client.delete_role(&args.name).await?;
            eprintln!("Role {} deleted.", args.name);
        }
    }
    Ok(CommandEnd::Success)
}

fn role_table(roles: &[RoleView]) -> TextTable {
    let mut table = TextTable::new(&["NAME", "CLASSES", "BUILT IN"]);
    for role in roles {
        table.row([plain(&role.name), plain(role.classes.join(",")), plain(yes_no(role.built_in))]);
    }
    table
}

pub(super) async fn binding(session: &Session, command: BindingCommand) -> Result<CommandEnd> {
    match command {
        BindingCommand::List(args) => {
            let bindings = session.client.bindings(&BindingQuery { subject: args.subject }).await?;
            output::print(session.output, &bindings, |bindings| binding_table(bindings))?;
        }
        BindingCommand::Add(args) => {
            let BindingArgs { subject, role, scope, allow_users, allow_roots } = args;
            let binding = NewBinding { role, subject, scope, allow_users, allow_roots };
            let binding = session.client.create_binding(&binding).await?;
            output::print(session.output, &binding, |binding| binding_table(std::slice::from_ref(binding)))?;
        }
        BindingCommand::Delete(args) => {
            session.client.delete_binding(&args.id).await?;
            eprintln!("Binding {} deleted.", args.id);
        }
    }
    Ok(CommandEnd::Success)
}

fn binding_table(bindings: &[BindingView]) -> TextTable {
    let mut table = TextTable::new(&["ID", "SUBJECT", "ROLE", "SCOPE", "USERS", "ROOTS", "CREATED"]);
    for binding in bindings {
        table.row([
            plain(&binding.id),
            plain(&binding.subject),
            plain(&binding.role),
            plain(&binding.scope),
            plain(any_or(&binding.allow_users)),
            plain(any_or(&binding.allow_roots)),
            plain(moment(binding.created_at)),
        ]);
    }
    table
}

fn any_or(allowed: &[String]) -> String {
    if allowed.is_empty() { "any".to_owned() } else { allowed.join(",") }
}
