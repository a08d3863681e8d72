use tempfile::TempDir;

use super::*;
use crate::spool::{COUNT, Draft, EventSpool};
use proctor_model::{EventKind, Message};

fn event(sequence: u64, kind: EventKind) -> Event {
    Event {
        sequence,
        at: 5,
        process: Some("web/nginx".parse().unwrap()),
        proc_name: "nginx".into(),
        report_id: Some(9),
        kind,
        content: Message::foreign("it runs"),
        details: [("pid".to_owned(), "7".to_owned())].into(),
    }
}

fn events(sequences: impl IntoIterator<Item = u64>) -> Vec<Event> {
    sequences.into_iter().map(|sequence| event(sequence, EventKind::Started)).collect()
}

async fn commit_to(path: &Path, batches: impl IntoIterator<Item = LedgerBatch>) {
    let (mut ledger, _) = Ledger::open(path).unwrap();
    for batch in batches {
        ledger.commit(Box::new(batch)).unwrap();
    }
}

fn remembered(path: &Path) -> LedgerState {
    open_and_read(path).unwrap().1
}

fn sequences(memory: &LedgerState) -> Vec<u64> {
    memory.events.iter().map(|event| event.sequence).collect()
}

#[tokio::test]
async fn events_are_there_until_they_are_seen_and_the_next_number_stays() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    commit_to(&path, [LedgerBatch { events: events(1..=3), ..LedgerBatch::default() }]).await;
    let all = remembered(&path);

    commit_to(&path, [LedgerBatch { events_seen: Some(2), ..LedgerBatch::default() }]).await;
    let rest = remembered(&path);
    commit_to(&path, [LedgerBatch { events_seen: Some(3), ..LedgerBatch::default() }]).await;
    let none = remembered(&path);

    assert_eq!(all.events, events(1..=3));
    assert_eq!(sequences(&rest), [3]);
    assert_eq!((sequences(&none), none.next_event, none.events_dropped), (vec![], 4, 0));
}

#[tokio::test]
async fn beyond_the_bound_the_oldest_give_way_and_are_counted_until_it_is_told() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let max = SPOOLED_MAX as u64;
    let batch = |events| LedgerBatch { events, ..LedgerBatch::default() };

    commit_to(&path, [batch(events(1..=max - 1)), batch(events(max..=max + 3)), batch(events([max + 4]))]).await;
    let counted = remembered(&path);
    let mut tells = event(max + 5, EventKind::EventsDropped);
    tells.details.insert(COUNT.into(), "4".into());
    commit_to(&path, [batch(vec![tells])]).await;
    let told = remembered(&path);

    assert_eq!((counted.events.len(), counted.events[0].sequence, counted.events_dropped), (SPOOLED_MAX, 5, 4));
    assert_eq!((told.events.len(), told.events_dropped), (SPOOLED_MAX, 1));
}

#[tokio::test]
async fn ledger_and_spool_agree_on_what_is_dropped() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let mut spool = EventSpool::new(&mut LedgerState::default(), true, 0);
    let drafted: Vec<Event> = (0..SPOOLED_MAX + 9)
        .map(|_| spool.push(Draft::new(EventKind::Exited, Message::foreign("it ended")), 1))
        .collect();

    commit_to(
        &path,
        drafted.chunks(256).map(|events| LedgerBatch { events: events.to_vec(), ..LedgerBatch::default() }),
    )
    .await;

    let mut memory = remembered(&path);
    assert_eq!((sequences(&memory)[0], memory.events_dropped), (10, 9));
    let restored = EventSpool::new(&mut memory, true, 0);
    assert_eq!((restored.unsent(1), restored.dropped()), (spool.unsent(1), spool.dropped()));
}

#[tokio::test]
async fn a_ledger_of_the_first_schema_is_brought_up_and_keeps_what_it_knew() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let old = Connection::open(&path).unwrap();
    old.execute_batch(STEPS[0]).unwrap();
    old.execute_batch("INSERT INTO fact VALUES ('generation', '41'); PRAGMA user_version = 1").unwrap();
    drop(old);

    commit_to(&path, [LedgerBatch { events: events([1]), ..LedgerBatch::default() }]).await;

    let memory = remembered(&path);
    assert_eq!((memory.generation, memory.next_event, sequences(&memory)), (41, 2, vec![1]));
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_no_reason_to_lose_the_ledger() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    commit_to(&path, [LedgerBatch { generation: Some(3), events: events([1, 2]), ..LedgerBatch::default() }]).await;
    let newer = Connection::open(&path).unwrap();
    newer.execute("UPDATE event SET event = replace(event, 'started', 'teleported') WHERE sequence = 1", []).unwrap();
    drop(newer);

    let memory = remembered(&path);

    assert_eq!((memory.generation, sequences(&memory), memory.events_dropped), (3, vec![2], 1));
}

#[test]
fn events_alone_need_no_sync_but_are_written() {
    let batch = LedgerBatch { events: events([1]), ..LedgerBatch::default() };
    let seen = LedgerBatch { events_seen: Some(1), ..LedgerBatch::default() };

    assert!(!batch.must_be_synced() && !batch.is_empty());
    assert!(!seen.must_be_synced() && !seen.is_empty());
}

#[test]
fn what_is_owed_holds_no_more_events_than_the_ledger_would() {
    let mut owed = LedgerBatch { events: events(1..=SPOOLED_MAX as u64), ..LedgerBatch::default() };

    owed.append(LedgerBatch { events: events([20_000, 20_001]), events_seen: Some(7), ..LedgerBatch::default() });

    assert_eq!((owed.events.len(), owed.events[0].sequence, owed.events_seen), (SPOOLED_MAX, 3, Some(7)));
}

fn written_by_a_newer_agent(path: &Path, oldest_reader: &str) {
    drop(Ledger::open(path).unwrap());
    let newer = Connection::open(path).unwrap();
    newer.pragma_update(None, "user_version", SCHEMA + 1).unwrap();
    newer
        .execute("INSERT OR REPLACE INTO fact VALUES ('oldest_reader', ?1), ('generation', '9')", [oldest_reader])
        .unwrap();
}

#[test]
fn b6_the_ledger_of_a_newer_agent_is_used_if_that_agent_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    written_by_a_newer_agent(&path, "1");

    let (_ledger, memory) = Ledger::open(&path).unwrap();

    assert_eq!(memory.generation, 9);
}

#[test]
fn b8_the_ledger_of_a_much_newer_agent_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    written_by_a_newer_agent(&path, &(SCHEMA + 1).to_string());

    let (_ledger, memory) = Ledger::open(&path).unwrap();

    assert_eq!(memory.generation, 0);
    assert!(dir.path().join("ledger.db.damaged").exists());
}

#[test]
fn a_program_on_trial_leaves_a_ledger_that_it_cannot_use_to_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    written_by_a_newer_agent(&path, &(SCHEMA + 1).to_string());

    let refused = Ledger::open_as(&path, true).unwrap_err();

    assert!(matches!(refused, LedgerError::Newer { .. }), "{refused}");
    assert!(!dir.path().join("ledger.db.damaged").exists());
}

#[test]
fn b8_a_ledger_without_its_tables_is_put_aside() {
    for user_version in [0, SCHEMA, SCHEMA + 1] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.db");
        let strange = Connection::open(&path).unwrap();
        strange.execute_batch("CREATE TABLE process (something TEXT)").unwrap();
        strange.pragma_update(None, "user_version", user_version).unwrap();
        drop(strange);

        let (_ledger, memory) = Ledger::open(&path).unwrap();

        assert_eq!(memory.processes.len(), 0, "schema {user_version}");
        assert!(dir.path().join("ledger.db.damaged").exists(), "schema {user_version}");
    }
}

#[test]
fn a_row_that_cannot_be_understood_costs_that_row_and_everything_is_assigned_again() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let record = |name: &str| {
        let key: ProcessKey = format!("ns/{name}").parse().unwrap();
        (
            key.clone(),
            proctor_supervise::Process::new(key, proctor_model::samples::spec(|_| {}), 1)
                .take_record()
                .unwrap()
                .clone(),
        )
    };
    let (mut ledger, _) = Ledger::open(&path).unwrap();
    let processes = [record("a"), record("b"), record("c")].into_iter().collect();
    ledger.commit(Box::new(LedgerBatch { processes, generation: Some(7), ..LedgerBatch::default() })).unwrap();
    ledger.connection.execute("UPDATE process SET record = '{\"odd\":1}' WHERE name = 'b'", []).unwrap();
    ledger
        .connection
        .execute("INSERT INTO operation (id, process, kind, changed_at) VALUES ('odd', '{}', 'start', 1)", [])
        .unwrap();
    drop(ledger);

    let (_, memory) = Ledger::open(&path).unwrap();

    let names: Vec<&str> = memory.processes.iter().map(|(key, _)| key.name.as_str()).collect();
    assert_eq!((names, memory.generation, memory.unfinished.len()), (vec!["a", "c"], 0, 0));
    assert!(!dir.path().join("ledger.db.damaged").exists());
}

#[test]
fn a_ledger_is_for_its_owner_alone_also_one_that_was_not() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    drop(Ledger::open(&path).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();

    let _ledger = Ledger::open(&path).unwrap();

    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
}
