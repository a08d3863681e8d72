//! Opens, locks and migrates the file.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tokio::time::Instant;

use super::failure::{Failure, Tried};
use crate::{Result, StoreError};

const OPEN: &str = "open its file";
const MIGRATE: &str = "bring its file to the newest schema";

/// Entry `n` migrates schema `n` to `n + 1`; entries are only ever appended.
const MIGRATIONS: [&str; 35] = [
    include_str!("migrations/0001_initial.sql"),
    include_str!("migrations/0002_events.sql"),
    include_str!("migrations/0003_access.sql"),
    include_str!("migrations/0004_tasks.sql"),
    include_str!("migrations/0005_generations.sql"),
    include_str!("migrations/0006_pools.sql"),
    include_str!("migrations/0007_one_generation.sql"),
    include_str!("migrations/0008_spec_numbers.sql"),
    include_str!("migrations/0009_rollout_health.sql"),
    include_str!("migrations/0010_nonces.sql"),
    include_str!("migrations/0011_host_identity.sql"),
    include_str!("migrations/0012_bounds.sql"),
    include_str!("migrations/0013_retention.sql"),
    include_str!("migrations/0014_sessions.sql"),
    include_str!("migrations/0015_lives.sql"),
    include_str!("migrations/0016_process_columns.sql"),
    include_str!("migrations/0017_credential_version.sql"),
    include_str!("migrations/0018_maintenance.sql"),
    include_str!("migrations/0019_task_process.sql"),
    include_str!("migrations/0020_event_shares.sql"),
    include_str!("migrations/0021_outcome_phrase.sql"),
    include_str!("migrations/0022_control_epoch.sql"),
    include_str!("migrations/0023_upgrades.sql"),
    include_str!("migrations/0024_relays.sql"),
    include_str!("migrations/0025_pruned_generation.sql"),
    include_str!("migrations/0026_status_tasks.sql"),
    include_str!("migrations/0027_upgrade_makers.sql"),
    include_str!("migrations/0028_brief_tasks.sql"),
    include_str!("migrations/0029_revoked_keys.sql"),
    include_str!("migrations/0030_nonce_uptime.sql"),
    include_str!("migrations/0031_observed_digest.sql"),
    include_str!("migrations/0032_authority_followers.sql"),
    include_str!("migrations/0033_returning_hosts.sql"),
    include_str!("migrations/0034_spec_references.sql"),
    include_str!("migrations/0035_upgrade_phrase.sql"),
];

/// 64 MiB in pages of 4 KiB.
const LOG_PAGES_MAX: i64 = 16_384;

/// No statement is prepared again while fewer than this many are in use.
const STATEMENTS_CACHED: usize = 128;

/// How long a server waits for its predecessor: the kernel takes a moment to end a process with much memory, which
/// holds its lock until then.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(20);

/// `<path>.lock`: SQLite would let a second server write to the same file.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let path = PathBuf::from(lock_path);
        Ok(Self { file: private_file(&path)?, path })
    }

    /// Held by whoever has the file open.
    pub(super) fn try_take(self) -> Result<File> {
        match self.file.try_lock() {
            Ok(()) => Ok(self.file),
            Err(TryLockError::WouldBlock) => {
                let problem = format!("another process holds {}", self.path.display());
                Err(StoreError::Failed { what: OPEN, source: problem.into() })
            }
            Err(TryLockError::Error(source)) => Err(StoreError::Failed { what: OPEN, source: source.into() }),
        }
    }

    /// As [`Self::try_take`], by the next server.
    pub(super) async fn take(self) -> Result<File> {
        let begun = Instant::now();
        while begun.elapsed() < PREDECESSOR_LIMIT && matches!(self.file.try_lock(), Err(TryLockError::WouldBlock)) {
            tokio::time::sleep(LOCK_POLL).await;
        }
        self.try_take()
    }
}

/// What to do with a file that has an older schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OlderSchema {
    Migrate,
    /// Nobody asked to migrate: a server of that version could no longer use it.
    Refuse,
    /// As `Refuse`, because a server of that version is running on the file.
    Served,
}

/// The writer's connection, migrated to the newest schema. `pages_max` bounds the file.
pub(super) fn writer(path: &Path, pages_max: Option<u32>, older: OlderSchema) -> Result<Connection> {
    // SQLite gives its side files the mode of this one.
    make_private(path)?;
    let mut connection = configured(path, pages_max).map_err(|failure| failure.of(OPEN))?;
    migrate(&mut connection, older)?;
    Ok(connection)
}

pub(super) fn reader(path: &Path) -> Tried<Connection> {
    let connection = open(path)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn configured(path: &Path, pages_max: Option<u32>) -> Tried<Connection> {
    let connection = open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: a commit is on disk, not only in the kernel, before it is answered.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // A task for every host is one transaction; it should fit into the cache (in KiB).
    connection.pragma_update(None, "cache_size", -65_536)?;
    // The statement journal is kept in memory while a job runs; it is small compared with the cache.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // The writer checkpoints after it has answered, not inside a commit; this is for the log that it could not keep
    // up with.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", LOG_PAGES_MAX, |_| Ok(()))?;
    connection.pragma_update(None, "journal_size_limit", LOG_PAGES_MAX * 4096)?;
    if let Some(pages) = pages_max {
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(connection)
}

pub(super) fn open(path: &Path) -> Tried<Connection> {
    // No SQLITE_OPEN_URI: a path is a path, whatever it begins with.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // The log files stay when the last connection is closed: on a full disk they could not be recreated, and
    // nothing could be read. The writer empties the log when it ends instead.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// For a file that must not change, possibly on a read-only medium.
pub(super) fn open_read_only(path: &Path) -> Tried<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(path, flags)?)
}

/// The current store, even while a server writes to it.
pub(super) fn copy_into(path: &Path, to: &Path) -> Tried<()> {
    let target = to.to_str().ok_or_else(|| Failure::Argument(format!("{} is not UTF-8", to.display())))?;
    open(path)?.execute("VACUUM INTO ?1", [target])?;
    Ok(())
}

/// Makes the file, or closes it to others. One that is there is not opened: closing it again would give up the locks
/// that SQLite may have on it in this process.
fn make_private(path: &Path) -> Result<()> {
    let is_open = std::fs::metadata(path).map(|found| found.mode() & 0o077 != 0);
    match is_open {
        Ok(false) => Ok(()),
        Ok(true) => std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(|error| StoreError::Failed {
            what: OPEN,
            source: format!("cannot make {} private: {error}", path.display()).into(),
        }),
        Err(_) => private_file(path).map(drop),
    }
}

fn private_file(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    // A file that was restored or copied here may have another mode.
    let closed = opened.and_then(|file| {
        if file.metadata()?.mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(file)
    });
    closed.map_err(|error| StoreError::Failed {
        what: OPEN,
        source: format!("cannot open {}: {error}", path.display()).into(),
    })
}

fn migrate(connection: &mut Connection, older: OlderSchema) -> Result<()> {
    let known = u32::try_from(MIGRATIONS.len()).expect("there are few migrations");
    let found = schema_version(connection).map_err(|failure| failure.of(MIGRATE))?;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    // An empty file is being created right now.
    if (1..known).contains(&found) && older != OlderSchema::Migrate {
        let problem = match older {
            OlderSchema::Served => {
                format!("a server of an older version (schema {found}) runs on it: restart that first")
            }
            OlderSchema::Refuse | OlderSchema::Migrate => format!(
                "it has schema {found}, and this program works with {known}: start `proctor server` of this version on \
                 it, use the `proctor` of the older one, or give --migrate, after which no older server can open it"
            ),
        };
        return Err(StoreError::Failed { what: MIGRATE, source: problem.into() });
    }
    for (version, sql) in (1..).zip(MIGRATIONS).skip(found as usize) {
        migrate_one(connection, version, sql).map_err(|failure| failure.of(MIGRATE))?;
    }
    Ok(())
}

fn migrate_one(connection: &mut Connection, version: u32, sql: &str) -> Tried<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if schema_version(&transaction)? >= version {
        return Ok(()); // another process was quicker
    }
    transaction.execute_batch(sql)?;
    transaction.pragma_update(None, "user_version", version)?;
    Ok(transaction.commit()?)
}

fn schema_version(connection: &Connection) -> Tried<u32> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_migration_is_the_schema_that_it_leads_to() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/migrations");
        let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
        files.sort();

        for ((file, sql), number) in files.iter().zip(MIGRATIONS).zip(1..) {
            let name = file.file_name().unwrap().to_string_lossy();
            assert!(name.starts_with(&format!("{number:04}_")), "{name} is migration {number}");
            assert_eq!(std::fs::read_to_string(file).unwrap(), sql, "{name} is where its number says");
        }

        assert_eq!(files.len(), MIGRATIONS.len());
    }
}
