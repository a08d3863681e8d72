//! What is deleted when it is old, and what the wall clock has to do with it: nothing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::rolling::{connect, fleet, restart};
use crate::support::{ESB, World, on_host, registered};
use crate::tasks::operate;
use proctor_model::{Code, Message, Outcome};
use proctor_runtime::Tasks;
use proctor_server::control::{Caller, Control, Retention};
use proctor_store::audit::{FIRST_HASH, verify_line};
use proctor_store::{AuditAnchor, AuditDraft, AuditPhase, AuditQuery, EventQuery, Uptime};

/// Of the host of [`World::new`].
const AGENT: &str = "020000000052540a9b2c1641";
const HOUR: Uptime = 3_600_000;
const DAY: Uptime = 24 * HOUR;
const FIRST_FILE: &str = "audit-000000000001-000000010000.jsonl";

async fn finished_task(world: &World) -> proctor_model::TaskId {
    let session = connect(&world.control, "agent-0").await;
    let task = world.control.submit(restart(Default::default())).await.unwrap().task;
    let operations: Vec<_> = (0..4).map(|index| proctor_model::OperationId::first(task, index)).collect();
    let outcomes: Vec<_> =
        operations.iter().map(|id| (*id, Outcome::new(Code::Success, Message::foreign(""), true))).collect();
    world.store.record_outcomes(&outcomes, 1).await.unwrap();
    drop(session);
    task
}

#[tokio::test]
async fn a_task_goes_after_its_time_of_uptime_and_not_a_moment_sooner() {
    let (world, _sessions) = fleet().await;
    let task = finished_task(&world).await;
    let caller = Caller::local("test");
    let retention = Retention { tasks: Duration::from_secs(36 * 3600), ..Retention::default() };
    let is_there = async || world.control.task(&caller, task).await.unwrap().is_some();

    world.control.prune(&retention, 36 * HOUR).await;
    let kept = is_there().await;
    world.control.prune(&retention, 36 * HOUR + 60_000).await;

    assert!(kept);
    assert!(!is_there().await);
    world.end().await;
}

#[tokio::test]
async fn results_are_kept_for_a_day_whatever_is_configured() {
    let (world, _sessions) = fleet().await;
    let task = finished_task(&world).await;
    let retention = Retention { tasks: Duration::ZERO, ..Retention::default() };

    world.control.prune(&retention, DAY).await;

    assert!(world.control.task(&Caller::local("test"), task).await.unwrap().is_some());
    world.end().await;
}

#[tokio::test]
async fn tombstones_tokens_and_specs_go_after_the_times_that_are_set_for_each() {
    let world = World::new().await; // whose host has used up its join token
    let hours = |count: u64| Duration::from_secs(count * 3600);
    let retention = Retention { tombstones: hours(10), tokens: hours(20), specs: hours(30), ..Retention::default() };
    world.post(&format!("{ESB}/register_proc_info"), registered("m", "10.0.0.1")).await.data();
    world.post(&format!("{ESB}/unregister_proc_info"), on_host("m", "10.0.0.1")).await.data();
    world.store.note_generations(&[(AGENT.parse().unwrap(), 1 << 40)]).await.unwrap();
    world.store.advance_uptime(hours(1)).await.unwrap();
    let rows = async || {
        let sizes = world.store.sizes().await.unwrap();
        ["process", "token", "spec"].map(|name| sizes.iter().find(|size| size.table == name).unwrap().rows)
    };
    let mut seen = Vec::new();

    for uptime in [1, 9, 12, 18, 23, 28, 33] {
        world.control.prune(&retention, uptime * HOUR).await;
        seen.push((uptime, rows().await));
    }

    let expected = [
        (1, [1, 1, 1]),
        (9, [1, 1, 1]),
        (12, [0, 1, 1]),
        (18, [0, 1, 1]),
        (23, [0, 0, 1]),
        (28, [0, 0, 1]),
        (33, [0, 0, 0]),
    ];
    assert_eq!(seen, expected);
    world.end().await;
}

#[tokio::test]
async fn what_is_left_over_is_kept_for_two_hours_whatever_is_configured() {
    let world = World::new().await;
    let none = Duration::ZERO;
    let retention = Retention { tombstones: none, tokens: none, specs: none, ..Retention::default() };
    world.post(&format!("{ESB}/register_proc_info"), registered("m", "10.0.0.1")).await.data();
    world.post(&format!("{ESB}/unregister_proc_info"), on_host("m", "10.0.0.1")).await.data();
    world.store.note_generations(&[(AGENT.parse().unwrap(), 1 << 40)]).await.unwrap();
    let uptime = world.store.advance_uptime(Duration::from_secs(3600)).await.unwrap();

    world.control.prune(&retention, uptime).await;
    world.control.prune(&retention, uptime + HOUR).await;

    let sizes = world.store.sizes().await.unwrap();
    let rows = ["process", "token", "spec"].map(|name| sizes.iter().find(|size| size.table == name).unwrap().rows);
    assert_eq!(rows, [1, 1, 1]);
    world.end().await;
}

/// As it looks to a server whose clock is forty days ahead: all that it finds is forty days old.
#[tokio::test]
async fn a_server_whose_clock_is_forty_days_ahead_deletes_nothing() {
    let (world, _sessions) = fleet().await;
    let forty_days_ago = proctor_runtime::clock::unix_millis() - 40 * DAY;
    let new = proctor_store::NewTask {
        id: proctor_model::TaskId::from_uuid(uuid::Uuid::from_u128(1)),
        created_at: forty_days_ago,
        app: "a".to_owned(),
        user: "u".to_owned(),
        family: "native".to_owned(),
        items: Vec::new(),
        targets: Vec::new(),
        outcomes: Vec::new(),
        audit: None,
        idempotency: None,
        retry_of: None,
        scope: None,
        rollout: None,
    };
    world.store.create_task(new).await.unwrap();
    let event = proctor_model::Event {
        sequence: 0,
        at: forty_days_ago,
        process: None,
        proc_name: String::new(),
        report_id: None,
        kind: proctor_model::EventKind::AgentOnline,
        content: Message::foreign("long ago"),
        details: Default::default(),
    };
    let agent: proctor_model::AgentId = "agent-0".parse().unwrap();
    world.store.append_server_events(&[(agent, event)], forty_days_ago).await.unwrap();

    let tasks = Tasks::default();
    let control = Control::start(Arc::clone(&world.store), &tasks).await.unwrap();
    let uptime = world.store.advance_uptime(Duration::from_secs(3600)).await.unwrap();
    control.prune(&Retention::default(), uptime).await;

    assert!(
        world.store.task_summary(proctor_model::TaskId::from_uuid(uuid::Uuid::from_u128(1))).await.unwrap().is_some()
    );
    let query = EventQuery { after: Some(0), limit: 100, ..EventQuery::default() };
    let events = world.store.events(&query).await.unwrap().events;
    assert!(events.iter().any(|stored| stored.event.content == "long ago"));
    assert!(tasks.end(Duration::from_secs(60)).await);
    world.end().await;
}

fn lines(dir: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// Appends entries until the first file of the archive is full, and a few more. Returns the last number and an
/// uptime at which all of them are old.
async fn full_audit(world: &World) -> (u64, Uptime) {
    let draft = AuditDraft {
        phase: AuditPhase::Done,
        of: None,
        app: "a".to_owned(),
        user: "u".to_owned(),
        remote: None,
        request_id: String::new(),
        action: "start".to_owned(),
        classes: [].into_iter().collect(),
        target_count: 1,
        targets: vec!["0:10.0.0.1 web/网关".to_owned()],
        outcome: "\"quoted\"\n".to_owned(),
    };
    let mut appended = 0;
    while appended < 10_007 {
        appended = world.store.append_audit(draft.clone(), 7).await.unwrap();
    }
    (appended, world.store.advance_uptime(Duration::from_secs(3600)).await.unwrap() + 2 * HOUR)
}

fn archiving(dir: &Path) -> Retention {
    Retention { audit: Duration::from_secs(60), audit_archive: Some(dir.to_owned()), ..Retention::default() }
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn old_audit_entries_move_to_a_file_that_the_store_goes_on_from() {
    let world = World::new().await;
    let (appended, uptime) = full_audit(&world).await;
    let dir = tempfile::TempDir::new().unwrap();
    let archive = dir.path().join("archive");

    world.control.prune(&archiving(&archive), uptime).await;

    let files = lines(&archive);
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].0, FIRST_FILE);
    let begin = AuditAnchor { seq: 0, hash: FIRST_HASH };
    let last = files[0].1.lines().try_fold(begin, verify_line).unwrap();
    assert_eq!(world.store.audit_anchor().await.unwrap(), last);
    let left = world.store.audit(&AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(left.iter().map(|entry| entry.seq).collect::<Vec<_>>(), (10_001..=appended).collect::<Vec<_>>());
    assert_eq!(left[0].prev_hash, last.hash);
    world.control.prune(&archiving(&archive), uptime + HOUR).await;
    assert_eq!(lines(&archive), files, "nothing more to move");
    world.end().await;
}

#[tokio::test]
async fn a_file_of_the_archive_is_private_whatever_was_there_before() {
    let world = World::new().await;
    let (_, uptime) = full_audit(&world).await;
    let dir = tempfile::TempDir::new().unwrap();
    let (archive, victim) = (dir.path().join("archive"), dir.path().join("victim"));
    std::fs::create_dir(&archive).unwrap();
    std::fs::set_permissions(&archive, Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&victim, "untouched").unwrap();
    let temporary = archive.join(FIRST_FILE).with_extension("tmp");
    std::os::unix::fs::symlink(&victim, &temporary).unwrap();

    world.control.prune(&archiving(&archive), uptime).await;

    assert_eq!((mode(&archive), mode(&archive.join(FIRST_FILE))), (0o700, 0o600));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    assert!(std::fs::symlink_metadata(archive.join(FIRST_FILE)).unwrap().is_file());
    world.end().await;
}

#[tokio::test]
async fn what_an_earlier_try_left_open_to_others_does_not_open_the_archive() {
    let world = World::new().await;
    let (_, uptime) = full_audit(&world).await;
    let archive = tempfile::TempDir::new().unwrap();
    let temporary = archive.path().join(FIRST_FILE).with_extension("tmp");
    std::fs::write(&temporary, "half").unwrap();
    std::fs::set_permissions(&temporary, Permissions::from_mode(0o666)).unwrap();

    world.control.prune(&archiving(archive.path()), uptime).await;

    assert_eq!(mode(&archive.path().join(FIRST_FILE)), 0o600);
    assert_eq!(world.store.audit_anchor().await.unwrap().seq, 10_000);
    world.end().await;
}

#[tokio::test]
async fn an_archive_that_cannot_be_written_or_that_others_may_write_removes_nothing() {
    let world = World::new().await;
    let (_, uptime) = full_audit(&world).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = tempfile::TempDir::new().unwrap();
    std::fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();

    for dir in [file.path().join("not-a-directory"), open.path().to_owned()] {
        world.control.prune(&archiving(&dir), uptime).await;

        assert_eq!(world.store.audit_anchor().await.unwrap().seq, 0, "{}", dir.display());
    }
    assert_eq!(std::fs::read_dir(open.path()).unwrap().count(), 0);
    world.end().await;
}

#[tokio::test]
async fn a_status_query_leaves_no_audit_entry_and_a_start_does() {
    let (world, _sessions) = fleet().await;
    let newest = async || {
        let query = AuditQuery { limit: 1, newest: true, ..AuditQuery::default() };
        world.store.audit(&query).await.unwrap().last().map(|entry| entry.seq)
    };
    let before = newest().await;

    world.post(&format!("{ESB}/operate_proc"), operate("m", "10.0.1.0", 2)).await.data();
    let after_status = newest().await;
    world.post(&format!("{ESB}/operate_proc"), operate("m", "10.0.1.0", 0)).await.data();

    assert_eq!(after_status, before);
    assert_eq!(newest().await, before.map(|seq| seq + 1));
    world.end().await;
}

#[tokio::test]
async fn every_table_of_the_store_is_in_the_list_of_what_grows() {
    let world = World::new().await;
    let document = std::fs::read_to_string(format!("{}/../../docs/operations.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let rows = document.lines().skip_while(|line| !line.starts_with("| table | grows with |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let mut listed: Vec<&str> = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(',').map(str::trim)).collect();
    listed.sort_unstable();

    let stored = world.store.sizes().await.unwrap();

    let mut stored: Vec<&str> = stored.iter().map(|size| size.table.as_str()).collect();
    stored.retain(|table| !table.starts_with("sqlite_"));
    stored.sort_unstable();
    assert_eq!(stored, listed);
    world.end().await;
}
