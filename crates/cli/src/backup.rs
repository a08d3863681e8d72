//! `proctor backup` and `proctor restore`.
//!
//! Promised: a backup is made while the server runs and delays none of its writes; its secrets are sealed with a
//! passphrase unless somebody opts out. It is audited before it is made; if that fails, the backup is made all the
//! same, with a warning. A restore creates a new store and never replaces one; the server that starts on it
//! delivers nothing that was open in the backup, because nobody knows whether it was carried out since.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::BoolishValueParser;
use proctor_model::{Code, Outcome, messages};
use proctor_runtime::clock;
use proctor_server::OldKey;
use proctor_server::admin::LocalAdmin;
use proctor_server::backup_seal::{PASSPHRASE_CHARS_MIN, SEAL, Seal};
use proctor_store::sqlite::SqliteStore;
use proctor_store::{HostQuery, OpenTarget, Store};

use crate::commands::CommandEnd;
use crate::output;
use crate::serve::{default_dir, make_dir, open_store_beside, store_file, system_user};

const DRAFT_FILE: &str = "restoring.db";
const OUTCOMES_PER_WRITE: usize = 500;

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Backup file to create (must not exist)
    file: PathBuf,
    /// Data directory of the server [default: /var/lib/proctor; ~/.local/share/proctor/server unless root]
    #[arg(long, env = "PROCTOR_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// File whose first line is the passphrase that seals the keys [default: asked for on the terminal]
    #[arg(long, env = "PROCTOR_PASSPHRASE_FILE", value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Leave the keys readable in the copy: anyone who has it can impersonate this server
    #[arg(long, env = "PROCTOR_UNSEALED", conflicts_with = "passphrase_file", value_parser = BoolishValueParser::new())]
    unsealed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// A backup
    file: PathBuf,
    /// Where the store is made; there must be none
    #[arg(long, env = "PROCTOR_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// File whose first line is the passphrase of the backup [default: asked for on the terminal]
    #[arg(long, env = "PROCTOR_PASSPHRASE_FILE", value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

pub(crate) async fn back_up(args: BackupArgs) -> Result<CommandEnd> {
    let dir = args.data_dir.map_or_else(default_dir, Ok)?;
    let store = store_file(&dir);
    if !store.exists() {
        bail!("{} holds no store: give --data-dir", dir.display());
    }
    let passphrase = match args.unsealed {
        true => None,
        false => Some(new_passphrase(args.passphrase_file.as_deref())?),
    };
    let is_sealed = passphrase.is_some();
    let said = if is_sealed { "its keys sealed by the passphrase" } else { "its keys readable" };
    let target = format!("{}, {said}", std::path::absolute(&args.file)?.display());
    let file = args.file.clone();
    let copy = blocking(move || match passphrase {
        None => Ok(SqliteStore::back_up(&store, &file, &|_, value| Ok(value.to_vec()), None)?),
        Some(passphrase) => {
            let (seal, key) = Seal::make(&passphrase)?;
            Ok(SqliteStore::back_up(&store, &file, &|name, value| key.seal(name, value), Some((SEAL, &seal)))?)
        }
    });
    match open_store_beside(&dir, false).await {
        Ok(beside) => {
            let admin = LocalAdmin::new(beside, &system_user());
            admin.back_up(target, copy, |error| warn_unrecorded(&error)).await?;
        }
        Err(error) => {
            warn_unrecorded(&format_args!("{error:#}"));
            copy.await?;
        }
    }
    eprintln!("{} holds a copy of the store, {said}. Keep it private.", args.file.display());
    Ok(CommandEnd::Success)
}

fn warn_unrecorded(why: &dyn std::fmt::Display) {
    eprintln!("warning: the audit log has no entry for this backup: {why}");
}

/// Nothing of another store may be there: its log would be replayed into this one.
fn refuse_leftovers(store: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut left = store.as_os_str().to_owned();
        left.push(suffix);
        let left = PathBuf::from(left);
        if left.exists() {
            bail!(
                "{} already exists, and a store is never replaced: move it away, or give another --data-dir",
                left.display()
            );
        }
    }
    Ok(())
}

pub(crate) async fn restore(args: RestoreArgs) -> Result<CommandEnd> {
    make_dir(&args.data_dir)?;
    let (file, store) = (args.file.clone(), store_file(&args.data_dir));
    refuse_leftovers(&store)?;
    let seal = SqliteStore::secret_of_backup(&file, SEAL)?;
    let key = match seal {
        None => None,
        Some(seal) => Some(Seal::open(&seal, &passphrase(args.passphrase_file.as_deref())?)?),
    };
    // Under a name where no server looks, until it is complete.
    let draft = Draft(args.data_dir.join(DRAFT_FILE));
    draft.remove();
    let path = draft.0.clone();
    blocking(move || {
        let open = |name: &str, value: &[u8]| match &key {
            Some(key) => key.open(name, value),
            None => Ok(value.to_vec()),
        };
        Ok(SqliteStore::restore(&file, &path, &open, SEAL, clock::unix_millis())?)
    })
    .await?;
    let said = finish(&draft.0, &args.file).await?;
    draft.move_to(&store)?;
    output::write_out(&format!("restored {}: {said}", store.display()))?;
    Ok(CommandEnd::Success)
}

/// Removes what a killed restore left.
pub(crate) fn remove_draft(dir: &Path) {
    Draft(dir.join(DRAFT_FILE)).remove();
}

/// A store under construction; removed unless it is moved to its final path.
struct Draft(PathBuf);

impl Draft {
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.0.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    fn remove(&self) {
        for suffix in ["", "-wal", "-shm", ".lock"] {
            let _ = std::fs::remove_file(self.beside(suffix));
        }
        SqliteStore::remove_drafts(&self.0);
    }

    fn move_to(&self, store: &Path) -> Result<()> {
        if std::fs::metadata(self.beside("-wal")).is_ok_and(|log| log.len() > 0) {
            bail!("the restored store cannot be completed: its log could not be emptied");
        }
        let context = || format!("cannot move the restored store to {}", store.display());
        std::fs::hard_link(&self.0, store).with_context(context)?;
        let dir = store.parent().unwrap_or_else(|| Path::new("."));
        std::fs::File::open(dir).and_then(|dir| dir.sync_all()).with_context(context)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Ends what was open, and adds an audit entry.
async fn finish(path: &Path, from: &Path) -> Result<String> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path).await?);
    let open = store.open_targets().await?;
    let outcome = |target: &OpenTarget| {
        (target.operation, Outcome::new(Code::CommandFailed, messages::outcome_lost_by_restore(), false))
    };
    let outcomes: Vec<_> = open.iter().map(outcome).collect();
    for batch in outcomes.chunks(OUTCOMES_PER_WRITE) {
        store.record_outcomes(batch, clock::unix_millis()).await?;
    }
    let admin = LocalAdmin::new(store.clone(), &system_user());
    admin.restored(&from.display().to_string()).await?;
    // Derived from the clock, and so above every key that the lost server had: agents may refuse the one in the
    // backup.
    let number_min = u64::try_from(clock::unix_millis() / 1000).unwrap_or(0);
    admin.rotate_signing_key(OldKey::Refused, number_min).await?;
    let hosts = store.hosts(&HostQuery::default()).await?.len();
    let fingerprint = proctor_server::gateway::authority(&store).await?.fingerprint();
    Ok(format!("{hosts} hosts; {} targets were open and are ended\nauthority {fingerprint}\n", open.len()))
}

fn new_passphrase(file: Option<&Path>) -> Result<String> {
    let given = passphrase(file)?;
    if given.chars().count() < PASSPHRASE_CHARS_MIN {
        bail!("a passphrase has at least {PASSPHRASE_CHARS_MIN} characters");
    }
    if file.is_none() && rpassword::prompt_password("Again: ").context("cannot read the passphrase")? != given {
        bail!("the two passphrases differ");
    }
    Ok(given)
}

fn passphrase(file: Option<&Path>) -> Result<String> {
    let Some(file) = file else {
        if !std::io::stdin().is_terminal() {
            bail!("there is no terminal to ask for the passphrase: give --passphrase-file");
        }
        return rpassword::prompt_password("Passphrase of the backup: ").context("cannot read the passphrase");
    };
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

async fn blocking<T, F>(work: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.context("the backup task failed")?
}

#[cfg(test)]
mod tests {
    use proctor_store::AuditQuery;
    use proctor_store::prelude::*;

    use super::*;

    #[tokio::test]
    async fn a_backup_with_readable_keys_says_so_in_the_audit() {
        let dir = tempfile::tempdir().unwrap();
        let (data_dir, file) = (dir.path().join("data"), dir.path().join("copy"));
        make_dir(&data_dir).unwrap();
        drop(SqliteStore::open(&store_file(&data_dir)).await.unwrap());

        let args =
            BackupArgs { file: file.clone(), data_dir: Some(data_dir.clone()), passphrase_file: None, unsealed: true };
        back_up(args).await.unwrap();

        let store = SqliteStore::open(&store_file(&data_dir)).await.unwrap();
        let entries = store.audit(&AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap();
        let actions: Vec<_> = entries.iter().map(|entry| (&*entry.draft.action, entry.draft.targets.clone())).collect();
        let target = vec![format!("{}, its keys readable", file.display())];
        assert_eq!(actions, [("backup", target.clone()), ("backup", target)], "its beginning and its end");
    }

    #[test]
    fn a_store_is_restored_beside_nothing_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let store = store_file(dir.path());
        assert!(refuse_leftovers(&store).is_ok());

        for name in ["proctor.db", "proctor.db-wal", "proctor.db-shm", "proctor.db-journal"] {
            let left = dir.path().join(name);
            std::fs::write(&left, "").unwrap();
            assert!(refuse_leftovers(&store).unwrap_err().to_string().contains(name));
            std::fs::remove_file(left).unwrap();
        }
    }
}
