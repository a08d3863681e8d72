//! The SQLite store: the suite that every store must pass, and what only a file can get wrong.

#![allow(clippy::unwrap_used, reason = "helpers of tests; a failure should stop the test")]

mod upgrade;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proctor_model::{Code, Message, OperationId, OperationKind, Outcome, TaskId};
use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use proctor_store::{App, NewTask, StoreError, Target, TaskItem};
use tempfile::TempDir;
use tokio::task::JoinSet;

proctor_store::conformance_suite!(empty_store);

async fn empty_store() -> (SqliteStore, TempDir) {
    let directory = TempDir::new().unwrap();
    (SqliteStore::open(&file(&directory)).await.unwrap(), directory)
}

fn file(directory: &TempDir) -> PathBuf {
    directory.path().join("proctor.db")
}

fn app(number: usize) -> App {
    App {
        code: format!("app-{number}"),
        secret_hash: "x".repeat(100),
        sealed_secret: None,
        trusted: false,
        created_at: 0,
    }
}

async fn put_apps_at_once(store: Arc<SqliteStore>, count: usize) {
    let mut writers = JoinSet::new();
    for number in 0..count {
        let store = Arc::clone(&store);
        writers.spawn(async move { store.put_app(app(number)).await.unwrap() });
    }
    writers.join_all().await;
}

fn task(targets: usize, row_key: &str) -> NewTask {
    let target = Target { item: 0, agent: None, host: None, row_key: row_key.to_owned(), other_row_keys: Vec::new() };
    NewTask {
        id: TaskId::from_uuid(uuid::Uuid::from_u128(1)),
        created_at: 0,
        app: "job".to_owned(),
        user: "admin".to_owned(),
        family: "v2".to_owned(),
        items: vec![TaskItem {
            key: "web/a".parse().unwrap(),
            kind: Some(OperationKind::Stop),
            spec: None,
            carried: false,
            register: false,
            time_limit_ms: 1,
            wait_ms: 0,
        }],
        targets: vec![target; targets],
        outcomes: Vec::new(),
        audit: None,
        idempotency: None,
        retry_of: None,
        scope: None,
        rollout: None,
    }
}

async fn assert_has_apps(path: &Path, count: usize) {
    let store = SqliteStore::open(path).await.unwrap();
    for number in 0..count {
        assert_eq!(store.app(&format!("app-{number}")).await.unwrap(), Some(app(number)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_writers_at_once_are_all_there_after_reopening() {
    let (store, directory) = empty_store().await;

    put_apps_at_once(Arc::new(store), 100).await;

    assert_has_apps(&file(&directory), 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_server_leaves_behind_holds_every_write_that_returned() {
    let (store, directory) = empty_store().await;
    let store = Arc::new(store);
    let left_behind = TempDir::new().unwrap();
    put_apps_at_once(Arc::clone(&store), 100).await;

    // The files as they are while the store is open: nothing closed, nothing checkpointed.
    for name in ["proctor.db", "proctor.db-wal"] {
        std::fs::copy(directory.path().join(name), left_behind.path().join(name)).unwrap();
    }

    assert_has_apps(&file(&left_behind), 100).await;
}

#[tokio::test]
async fn a_write_whose_caller_went_away_is_finished_before_the_store_closes() {
    let (store, directory) = empty_store().await;
    let mut call = Box::pin(store.put_app(app(0)));
    let is_waiting =
        std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_pending())).await;
    drop(call);

    drop(store);

    assert!(is_waiting);
    assert_has_apps(&file(&directory), 1).await;
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_refused() {
    let (store, directory) = empty_store().await;
    drop(store);
    let connection = rusqlite::Connection::open(file(&directory)).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);

    let error = SqliteStore::open(&file(&directory)).await.unwrap_err();

    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error:?}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let directory = TempDir::new().unwrap();
    let text = "not a database, but somebody's notes\n".repeat(100);
    std::fs::write(file(&directory), &text).unwrap();

    let opened = SqliteStore::open(&file(&directory)).await;

    assert!(matches!(opened, Err(StoreError::Failed { .. })), "{opened:?}");
    assert_eq!(std::fs::read_to_string(file(&directory)).unwrap(), text);
}

#[tokio::test]
async fn a_second_server_on_the_same_file_is_refused_until_the_first_is_gone() {
    let (store, directory) = empty_store().await;

    let second = SqliteStore::open(&file(&directory)).await.unwrap_err();
    drop(store);
    let third = SqliteStore::open(&file(&directory)).await;

    let cause = std::error::Error::source(&second).unwrap().to_string();
    assert!(cause.contains("another process holds") && cause.contains("proctor.db.lock"), "{cause}");
    assert!(third.is_ok());
}

#[tokio::test]
async fn a_server_waits_a_moment_for_the_end_of_the_one_before_it() {
    let (store, directory) = empty_store().await;
    let path = file(&directory);
    let mut opening = JoinSet::new();
    opening.spawn(async move { SqliteStore::open(&path).await.map(drop) });

    let lock = directory.path().join("proctor.db.lock");
    while times_open(&lock) < 2 {
        tokio::task::yield_now().await;
    }
    drop(store);

    opening.join_next().await.unwrap().unwrap().unwrap();
}

/// How often this process has that file open.
fn times_open(path: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    descriptors
        .filter(|entry| entry.as_ref().is_ok_and(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path)))
        .count()
}

#[tokio::test]
async fn only_the_owner_may_read_the_files() {
    let (store, directory) = empty_store().await;

    store.put_app(app(0)).await.unwrap();

    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        names.push(entry.file_name());
    }
    assert!(names.len() >= 3, "{names:?}");
}

#[tokio::test]
async fn a_full_disk_is_said_and_what_was_there_stays() {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_bounded(&file(&directory), 100).await.unwrap();
    store.put_app(app(0)).await.unwrap();

    let error = store.create_task(task(30_000, "a row that is too much")).await.unwrap_err();

    assert!(matches!(error, StoreError::Full { what: "keep a task" }), "{error:?}");
    assert!(store.task_ids(1).await.unwrap().is_empty());
    store.put_app(app(1)).await.unwrap();
    drop(store);
    assert_has_apps(&file(&directory), 2).await;
}

#[tokio::test]
async fn a_damaged_value_is_named() {
    let (store, directory) = empty_store().await;
    store.create_task(task(1, "row")).await.unwrap();
    let connection = rusqlite::Connection::open(file(&directory)).unwrap();
    connection.execute("UPDATE task_chunk SET targets = '[{'", []).unwrap();

    let error = store.task(task(1, "row").id).await.unwrap_err();

    assert!(error.to_string().starts_with("the store holds a damaged task targets"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_do_not_wait_for_a_writer_and_see_whole_calls_only() {
    let (store, _directory) = empty_store().await;
    let store = Arc::new(store);
    store.create_task(task(200, "row")).await.unwrap();
    let mut writers = JoinSet::new();
    for first in (0..200).step_by(10) {
        let store = Arc::clone(&store);
        let outcome = |index| {
            (OperationId::first(task(0, "").id, index), Outcome::new(Code::Success, Message::foreign(""), true))
        };
        let outcomes: Vec<_> = (first..first + 10).map(outcome).collect();
        writers.spawn(async move { store.record_outcomes(&outcomes, 1).await.unwrap() });
    }

    while writers.join_next().await.is_some() {
        let view = store.task(task(0, "").id).await.unwrap().unwrap();
        let known: Vec<_> = view.targets.iter().map(|target| target.outcome.is_some()).collect();
        assert!(known.chunks(10).all(|call| call.iter().all(|is_known| *is_known == call[0])));
    }

    assert!(store.open_targets().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_tool_does_not_change_the_schema_under_a_server_that_runs() {
    let (server, directory) = empty_store().await;
    let connection = rusqlite::Connection::open(file(&directory)).unwrap();
    let newest: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    connection.pragma_update(None, "user_version", newest - 1).unwrap();

    let refused = SqliteStore::open_beside(&file(&directory)).await.unwrap_err();

    let StoreError::Failed { source, .. } = refused else { panic!("{refused}") };
    assert!(source.to_string().contains("restart that first"), "{source}");
    let kept: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(kept, newest - 1);
    drop(server);
}

#[tokio::test]
async fn drafts_of_killed_backups_are_removed_and_nothing_else() {
    let (store, directory) = empty_store().await;
    let beside = |name: &str| directory.path().join(name);
    let id = "0123456789abcdef0123456789abcdef";
    let left = [
        format!("proctor.db.backup-{id}"),
        format!("proctor.db.backup-{id}-journal"),
        format!("proctor.db.restore-{id}"),
    ];
    let others = ["proctor.db.backup-mine", "other.db.backup-0123456789abcdef0123456789abcdef"];
    let working = beside("proctor.db.backup-ffffffffffffffffffffffffffffffff");
    let make =
        || left.iter().map(String::as_str).chain(others).for_each(|name| std::fs::write(beside(name), "x").unwrap());
    let remaining = || left.iter().filter(|name| beside(name).exists()).count();
    let lock = std::fs::File::create(&working).unwrap();
    lock.lock().unwrap();

    make();
    SqliteStore::back_up(&file(&directory), &beside("copy"), &|_, value| Ok(value.to_vec()), None).unwrap();
    let after_backup = remaining();
    make();
    drop(store);
    drop(SqliteStore::open(&file(&directory)).await.unwrap());

    assert_eq!((after_backup, remaining()), (0, 0));
    assert!(working.exists(), "another backup is at work on it");
    assert!(others.iter().all(|name| beside(name).exists()));
}

#[tokio::test]
async fn a_tool_beside_the_server_adds_an_app_that_the_server_sees() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("proctor.db");
    let server = SqliteStore::open(&path).await.unwrap();

    let tool = SqliteStore::open_beside(&path).await.unwrap();
    tool.put_app(App { code: "a".into(), secret_hash: "h".into(), sealed_secret: None, trusted: true, created_at: 1 })
        .await
        .unwrap();

    assert!(server.app("a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_backup_of_an_open_store_is_whole_and_for_its_owner_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let (store, directory) = empty_store().await;
    store.put_app(app(1)).await.unwrap();
    let copy = directory.path().join("copy.db");

    let reversed = |_: &str, value: &[u8]| Ok(value.iter().rev().copied().collect());
    let back_up = || SqliteStore::back_up(&file(&directory), &copy, &reversed, Some(("note", b"of the seal")));
    store.secret_or_insert("authority", b"hush hush".to_vec()).await.unwrap();
    back_up().unwrap();
    let again = back_up();

    assert!(again.is_err(), "what is there is not overwritten");
    let bytes = std::fs::read(&copy).unwrap();
    assert!(!bytes.windows(9).any(|window| window == b"hush hush"), "no page holds the secret");
    assert_eq!(SqliteStore::secret_of_backup(&copy, "note").unwrap().unwrap(), b"of the seal");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().flatten().filter(is_draft).count(), 0);
    assert_eq!(std::fs::metadata(&copy).unwrap().mode() & 0o777, 0o600);
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(SqliteStore::open(&copy).await.unwrap().apps().await.unwrap(), store.apps().await.unwrap());
    assert_eq!(std::fs::metadata(&copy).unwrap().mode() & 0o777, 0o600, "a restored file is closed again");
}

fn is_draft(entry: &std::fs::DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy().into_owned();
    name.contains(".backup-") || name.contains(".restore-")
}

#[tokio::test]
async fn a_restored_store_counts_on_from_beyond_what_was_given_out_and_replaces_none() {
    let (store, directory) = empty_store().await;
    store.secret_or_insert("authority", b"hush hush".to_vec()).await.unwrap();
    let [copy, first, second] = ["copy", "first.db", "second.db"].map(|name| directory.path().join(name));
    let reversed = |_: &str, value: &[u8]| Ok(value.iter().rev().copied().collect());
    SqliteStore::back_up(&file(&directory), &copy, &reversed, Some(("note", b"of the seal"))).unwrap();
    let restore = |to: &Path, now| SqliteStore::restore(&copy, to, &reversed, "note", now);
    let wrong = |_: &str, _: &[u8]| Err("the passphrase is wrong".to_owned());

    let refused = SqliteStore::restore(&copy, &first, &wrong, "note", 1_000);
    restore(&first, 2_000_000).unwrap();
    restore(&second, 3_000_000).unwrap();
    let occupied = restore(&second, 4_000_000);

    assert!(refused.is_err() && occupied.is_err());
    let generations = [newest(&first), newest(&second)];
    assert_eq!(generations, [2_000_000_000, 3_000_000_000]);
    let restored = SqliteStore::open(&second).await.unwrap();
    assert_eq!(restored.secret("authority").await.unwrap().unwrap(), b"hush hush");
    assert_eq!(restored.secret("note").await.unwrap(), None);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().flatten().filter(is_draft).count(), 0);
}

fn newest(path: &Path) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row("SELECT newest FROM generation", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_damaged_backup_is_not_restored() {
    let (store, directory) = empty_store().await;
    for number in 1..200 {
        store.put_app(app(number)).await.unwrap();
    }
    let [copy, to] = ["copy", "restored.db"].map(|name| directory.path().join(name));
    let as_it_is = |_: &str, value: &[u8]| Ok(value.to_vec());
    SqliteStore::back_up(&file(&directory), &copy, &as_it_is, None).unwrap();
    let mut bytes = std::fs::read(&copy).unwrap();
    let length = bytes.len();
    bytes[4096..length.min(40_960)].fill(0x5a);
    std::fs::write(&copy, bytes).unwrap();

    let restored = SqliteStore::restore(&copy, &to, &as_it_is, "note", 1_000);

    assert!(restored.is_err());
    assert!(!to.exists());
}

/// The locks that this or any process has on the file.
fn locks_on(path: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    std::fs::read_to_string("/proc/locks").unwrap().lines().filter(|line| line.contains(&inode)).count()
}

/// Else another program that opens and closes the file takes itself for the last one, and deletes the log.
#[tokio::test]
async fn a_health_check_and_a_second_store_keep_the_locks_of_the_first() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("test.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.check_readable().await.unwrap();
    store.check_writable().await.unwrap();
    let before = locks_on(&path);

    store.check_readable().await.unwrap();
    let checked = locks_on(&path);
    let beside = SqliteStore::open_beside(&path).await.unwrap();
    let with_another = locks_on(&path);

    assert!(before > 0 && checked == before && with_another >= before, "{before} {checked} {with_another}");
    drop(beside);
}
