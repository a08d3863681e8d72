//! A file written by an earlier version is opened with everything in it.

use proctor_model::{OperationKind, Permissions, Phase, Snapshot, Subject};
use proctor_store::conformance::spec;
use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use proctor_store::{
    AuditDraft, AuditPhase, AuditQuery, HostQuery, JoinToken, ProcessQuery, RegisterMode, Registered, Registration,
    StoreError, TaskQuery, TaskSummary, TaskView,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::file;

/// The schema before businesses, roles and the audit log.
const SCHEMA_2: [&str; 2] = [
    include_str!("../../src/sqlite/migrations/0001_initial.sql"),
    include_str!("../../src/sqlite/migrations/0002_events.sql"),
];

/// As a program of schema 2 left it: two apps, a host with a process, and a task with an outcome.
const CONTENT_2: &str = r#"
    INSERT INTO app VALUES ('old', 'hash', 1, 5), ('plain', 'hash', 0, 6);
    INSERT INTO token VALUES ('t', 'hash', 3, 1, 99, NULL);
    INSERT INTO host (id, cloud, supplier, ip, agent, fingerprint, facts, enrolled_at, presence_changed_at, generation)
    VALUES (1, 2, 0, '10.0.0.1', 'agent-1', 'key', '{"hostname":"h","os":"","arch":"","cpus":1,"memory_bytes":1,"agent_version":""}', 5, 5, 1);
    INSERT INTO process VALUES (1, 'web', 'gone', 1, NULL, 1, 5, 0, NULL);
    INSERT INTO task VALUES (1, x'00000000000000000000000000000007', 5, 'old', 'u', 'v2',
        '[{"key":{"namespace":"web","name":"a"},"kind":"stop","spec":null,"time_limit_ms":1}]', 2, 1);
    INSERT INTO task_chunk VALUES (1, 0, '[{"item":0,"agent":"agent-1","host":{"cloud":2,"supplier":0,"ip":"10.0.0.1"},"row_key":"r0"},{"item":0,"agent":null,"host":null,"row_key":"r1"}]');
    INSERT INTO outcome VALUES (1, 0, 0, 'success', '', 1, NULL, NULL, 6);
    INSERT INTO task VALUES (2, x'00000000000000000000000000000008', 8, 'old', 'u', 'v2',
        '[{"key":{"namespace":"web","name":"a"},"kind":"start","spec":null,"time_limit_ms":1},{"key":{"namespace":"web","name":"b"},"kind":null,"spec":null,"time_limit_ms":1}]', 1, 0);
    INSERT INTO task_chunk VALUES (2, 0, '[{"item":1,"agent":null,"host":null,"row_key":"r"}]');
    INSERT INTO outcome VALUES (2, 0, 117, 'absent', '', 0, NULL, NULL, 9);
"#;

fn old() -> TempDir {
    let directory = TempDir::new().unwrap();
    let old = Connection::open(file(&directory)).unwrap();
    for sql in SCHEMA_2.into_iter().chain([CONTENT_2]) {
        old.execute_batch(sql).unwrap();
    }
    let (spec, snapshot) = (spec("a"), Snapshot { phase: Phase::Running, ..Snapshot::default() });
    let hash = spec.hash();
    old.execute("INSERT INTO spec VALUES (?1, ?2)", (hash.as_str(), spec.to_json())).unwrap();
    let snapshot = serde_json::to_string(&snapshot).unwrap();
    let process = "INSERT INTO process VALUES (2, 'web', 'a', 1, ?1, 2, 5, 1, ?2)";
    old.execute(process, (hash.as_str(), snapshot)).unwrap();
    old.pragma_update(None, "user_version", 2).unwrap();
    directory
}

async fn upgraded() -> (SqliteStore, TempDir) {
    let directory = old();
    (SqliteStore::open(&file(&directory)).await.unwrap(), directory)
}

#[tokio::test]
async fn a_tool_migrates_the_store_of_a_stopped_server_only_when_it_is_told_to() {
    let directory = old();
    let version = || {
        let connection = Connection::open(file(&directory)).unwrap();
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).unwrap()
    };

    let refused = SqliteStore::open_beside(&file(&directory)).await.unwrap_err();
    let kept = version();
    drop(SqliteStore::open_beside_migrating(&file(&directory)).await.unwrap());

    let StoreError::Failed { source, .. } = refused else { panic!("{refused}") };
    assert!(source.to_string().contains("start `proctor server` of this version on it"), "{source}");
    assert_eq!(kept, 2);
    assert!(version() > 2);
}

/// The schema before specs were identified by numbers.
const SCHEMA_7: [&str; 5] = [
    include_str!("../../src/sqlite/migrations/0003_access.sql"),
    include_str!("../../src/sqlite/migrations/0004_tasks.sql"),
    include_str!("../../src/sqlite/migrations/0005_generations.sql"),
    include_str!("../../src/sqlite/migrations/0006_pools.sql"),
    include_str!("../../src/sqlite/migrations/0007_one_generation.sql"),
];

#[tokio::test]
async fn what_processes_of_schema_7_are_and_were_is_still_known() {
    let directory = TempDir::new().unwrap();
    let old = Connection::open(file(&directory)).unwrap();
    for sql in SCHEMA_2.into_iter().chain([CONTENT_2]).chain(SCHEMA_7) {
        old.execute_batch(sql).unwrap();
    }
    for name in ["unused", "b", "a"] {
        old.execute("INSERT INTO spec VALUES (?1, ?2)", (spec(name).hash().as_str(), spec(name).to_json())).unwrap();
    }
    let process =
        "INSERT INTO process (id, namespace, name, host, spec, generation, registered_at, revision, changed_at)
                   VALUES (7, 'web', 'a', 1, ?1, 3, 5, 3, 8)";
    old.execute(process, [spec("a").hash().as_str()]).unwrap();
    let revisions = "INSERT INTO spec_revision VALUES (7, 1, 1, ?1, 5), (7, 2, 2, NULL, 6)";
    old.execute(revisions, [spec("b").hash().as_str()]).unwrap();
    old.execute("UPDATE generation SET newest = 3", []).unwrap();
    old.pragma_update(None, "user_version", 7).unwrap();
    drop(old);

    let store = SqliteStore::open(&file(&directory)).await.unwrap();

    let (agent, key) = ("agent-1".parse().unwrap(), "web/a".parse().unwrap());
    let history = store.spec_history(&agent, &key, 9).await.unwrap();
    let seen: Vec<_> = history.into_iter().map(|revision| (revision.generation, revision.spec, revision.at)).collect();
    assert_eq!(seen, [(3, Some(spec("a")), 8), (2, None, 6), (1, Some(spec("b")), 5)]);
    let told = store.assignments(&agent, 1).await.unwrap().processes;
    assert_eq!(told.iter().map(|told| told.generation).collect::<Vec<_>>(), [3]);
    let again = Registration { agent, key, spec: spec("a") };
    let answers = store.register(&[again], RegisterMode::Upsert, 9).await.unwrap();
    assert_eq!(answers, [Registered::Stored { generation: 3 }]);
}

async fn old_task(store: &SqliteStore) -> TaskView {
    let id = "GSETASK:00000000000000000000000000000007".parse().unwrap();
    store.task(id).await.unwrap().unwrap()
}

#[tokio::test]
async fn apps_hosts_and_tasks_of_an_earlier_schema_are_still_there() {
    let (store, _directory) = upgraded().await;

    let app = store.app("plain").await.unwrap().unwrap();
    assert_eq!((app.sealed_secret, app.trusted, app.created_at), (None, false, 6));
    let hosts = store.hosts(&HostQuery::default()).await.unwrap();
    assert_eq!((hosts.len(), hosts[0].business), (1, None));
    let task = old_task(&store).await;
    assert_eq!(task.targets[0].outcome.as_ref().map(|outcome| &*outcome.message), Some("success"));
    assert_eq!((&*task.targets[1].target.row_key, &task.targets[1].outcome), ("r1", &None));
    assert_eq!(store.open_targets().await.unwrap().len(), 1);
}

#[tokio::test]
async fn processes_of_an_earlier_schema_have_a_phase_and_a_first_revision() {
    let (store, _directory) = upgraded().await;
    let running = ProcessQuery { phases: vec![Phase::Running], ..ProcessQuery::default() };
    let unknown = ProcessQuery { phases: vec![Phase::Unknown], ..ProcessQuery::default() };

    let agent = "agent-1".parse().unwrap();
    let changed = Registration { agent, key: "web/a".parse().unwrap(), spec: spec("b") };
    store.register(std::slice::from_ref(&changed), RegisterMode::Upsert, 8).await.unwrap();

    assert_eq!(store.processes(&running).await.unwrap().0, 1);
    assert_eq!(store.processes(&unknown).await.unwrap().0, 0);
    let history = store.spec_history(&changed.agent, &changed.key, 9).await.unwrap();
    let seen: Vec<_> = history.into_iter().map(|revision| (revision.at, revision.spec)).collect();
    assert_eq!(seen, [(8, Some(spec("b"))), (5, Some(spec("a")))]);
}

#[tokio::test]
async fn tasks_of_an_earlier_schema_are_counted() {
    let (store, _directory) = upgraded().await;

    let tasks = store.tasks(&TaskQuery { limit: 9, ..TaskQuery::default() }).await.unwrap();

    let counts = |task: &TaskSummary| (task.total, task.pending, task.succeeded, task.failed, task.finished_at);
    assert_eq!(tasks.iter().map(counts).collect::<Vec<_>>(), [(1, 0, 0, 1, Some(9)), (2, 1, 1, 0, None)]);
    assert_eq!((&tasks[0].kinds[..], &tasks[1].kinds[..]), (&[OperationKind::Start][..], &[OperationKind::Stop][..]));
    assert!(tasks.iter().all(|task| task.rollout.is_none() && task.cancelled_at.is_none()));
    assert!(store.open_rollouts().await.unwrap().is_empty());
}

#[tokio::test]
async fn apps_that_were_trusted_may_do_everything_and_others_nothing() {
    let (store, _directory) = upgraded().await;

    let trusted = store.permissions(&[Subject::App("old".to_owned())]).await.unwrap().unwrap();
    let plain = store.permissions(&[Subject::App("plain".to_owned())]).await.unwrap().unwrap();

    assert_eq!(trusted, Permissions::everything());
    assert_eq!(plain, Permissions::default());
    let bindings = store.bindings().await.unwrap();
    assert_eq!(bindings.len(), 1);
    assert_eq!(bindings[0].created_at, 5);
    assert!(store.delete_binding(bindings[0].id).await.unwrap());
}

#[tokio::test]
async fn what_was_counted_for_a_token_stays_counted() {
    let (store, _directory) = upgraded().await;

    let business = proctor_store::Business { id: 1, name: "b".to_owned() };
    store.put_business(business).await.unwrap();
    let token = JoinToken {
        id: "t".to_owned(),
        secret_hash: "hash".to_owned(),
        uses: 1,
        expires_at: 99,
        cloud: None,
        business: Some(1),
        host: None,
    };
    store.put_token(token).await.unwrap();

    let enrolment = proctor_store::Enrolment {
        token_id: "t".to_owned(),
        token_secret_hash: "hash".to_owned(),
        host: "10.0.0.2".parse().unwrap(),
        agent: "agent-2".parse().unwrap(),
        key_fingerprint: "key-2".to_owned(),
        remote: None,
        needs_approval: false,
    };
    let answer = store.enrol(enrolment, 1).await.unwrap();
    assert_eq!(answer, Err(proctor_store::EnrolRefusal::UsedUp));
}

#[tokio::test]
async fn the_audit_log_cannot_be_changed_or_cut_even_by_hand() {
    let (store, directory) = upgraded().await;
    let draft = AuditDraft {
        phase: AuditPhase::Done,
        of: None,
        app: "old".to_owned(),
        user: "u".to_owned(),
        remote: None,
        request_id: "r".to_owned(),
        action: "apps.put".to_owned(),
        classes: [].into_iter().collect(),
        target_count: 0,
        targets: Vec::new(),
        outcome: String::new(),
    };
    store.append_audit(draft.clone(), 1).await.unwrap();
    let by_hand = Connection::open(file(&directory)).unwrap();

    let changed = by_hand.execute("UPDATE audit SET user = 'somebody else'", []);
    let cut = by_hand.execute("DELETE FROM audit", []);

    assert!(changed.unwrap_err().to_string().contains("never changed"));
    assert!(cut.unwrap_err().to_string().contains("only removed once they are archived"));
    let entries = store.audit(&AuditQuery { limit: 9, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(entries[0].draft, draft);
}
