use proctor_model::samples::spec;
use proctor_model::{Code, Incarnation, Leftovers, ProcessSession, TaskId};
use proctor_supervise::{CommandKind, Instance, Launch, RunningCommand};
use serde_json::json;

use super::*;

fn operation(index: u32) -> OperationId {
    OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index)
}

fn key(name: &str) -> ProcessKey {
    format!("ns/{name}").parse().unwrap()
}

fn record(managed: bool) -> Record {
    let mut process = proctor_supervise::Process::new(key("p"), spec(|_| {}), 1);
    let mut record = process.take_record().unwrap().clone();
    record.managed = managed;
    record
}

fn memory() -> LedgerState {
    LedgerState { processes: vec![(key("p"), record(true)), (key("q"), record(true))], ..LedgerState::default() }
}

fn stopped() -> LedgerBatch {
    let mut batch = LedgerBatch::default();
    batch.put(key("p"), record(false));
    batch.begun.push((operation(1), key("p"), OperationKind::Stop));
    batch.outcomes.push((operation(1), Outcome::new(Code::Success, Message::foreign("success"), false)));
    batch
}

#[test]
fn what_was_owed_is_known_again_until_the_ledger_has_it() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    Reserve::open(&path).write(&stopped());
    let mut memory = memory();

    let mut reserve = Reserve::open(&path);
    reserve.apply(0, &mut memory);

    let managed: Vec<bool> = memory.processes.iter().map(|(_, record)| record.managed).collect();
    assert_eq!(managed, [false, true]);
    assert_eq!(memory.outcomes.len(), 1);
    assert_eq!((memory.unfinished.len(), memory.owed.begun.len(), memory.owed.outcomes.len()), (0, 1, 1));
    reserve.clear();
    assert!(Reserve::open(&path).written.is_empty());
}

fn life(pid: i32) -> Incarnation {
    Incarnation { boot: BootId::from("b"), pid, start_ticks: 7, pidfd_inode: Some(9) }
}

/// What the agent after this one knows, whose ledger has `before`.
fn after_restart(batch: &LedgerBatch, mut before: LedgerState) -> LedgerState {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    Reserve::open(&path).write(batch);
    Reserve::open(&path).apply(0, &mut before);
    before
}

#[test]
fn all_of_a_record_but_its_spec_is_known_again() {
    let at = |secs| proctor_supervise::Time::since_boot(std::time::Duration::from_secs(secs));
    let old_spec = record(true).spec;
    let session = ProcessSession { leader: 6, start_ticks: 13, until_ms: 14 };
    let full = Record {
        spec: spec(|spec| spec.report_id = Some(5)),
        registered: true,
        registered_at: 3,
        managed: true,
        failed: true,
        life: Some(life(1)),
        since: Some(4),
        sessions: vec![session],
        remains: Some(Box::new(Leftovers { since: 5, launched: true, sessions: vec![session], spared: Vec::new() })),
        elder: Some(Box::new(Elder {
            life: Some(life(2)),
            since: 6,
            launched: true,
            sessions: vec![session],
            until: None,
            before: Vec::new(),
        })),
        next: None,
        unwanted: Some(life(3)),
        attempts: 8,
        last_launch: Some(at(1)),
        launch: Some(Launch { until: at(2), old: Some(life(4)), begun: true, since: Some(10) }),
        running: Some(RunningCommand { command: life(5), kind: CommandKind::Start, until: at(3), scheduled: true }),
        instance: Some(Instance { of: "p".parse().unwrap(), number: 2 }),
        evictions: 11,
        not_before: Some(at(4)),
        planned_at: Some(12),
        planned: Some(at(5)),
    };
    let mut batch = LedgerBatch::default();
    batch.put(key("p"), full.clone());

    let memory = after_restart(&batch, memory());

    assert_eq!(memory.processes[0].1, Record { spec: old_spec, ..full });
}

#[test]
fn what_an_agent_of_before_wrote_leaves_the_rest_of_the_record_as_it_was() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let mut reserve = Reserve::open(&path);
    let line = json!({"process": {"key": key("p"), "managed": false, "life": null, "unwanted": null}});
    reserve.put(format!("{line}\n").into_bytes());
    let mut memory = memory();
    memory.processes[0].1 = Record { registered: true, attempts: 4, life: Some(life(1)), ..record(true) };

    reserve.apply(0, &mut memory);

    let Record { managed, registered, attempts, life, .. } = &memory.processes[0].1;
    assert_eq!((*managed, *registered, *attempts, life), (false, true, 4, &None));
}

#[test]
fn a_record_that_is_not_understood_is_not_managed_any_more() {
    let dir = tempfile::TempDir::new().unwrap();
    let mut reserve = Reserve::open(&dir.path().join("ledger.db"));
    let line = json!({"process": {"key": key("p"), "managed": true, "attempts": "of a later agent"}});
    reserve.put(format!("{line}\n").into_bytes());
    let mut memory = memory();

    reserve.apply(0, &mut memory);

    assert!(!memory.processes[0].1.managed && memory.processes[1].1.managed);
}

#[test]
fn a_boot_that_the_ledger_has_not_heard_of_is_known_and_what_is_older_is_forgotten() {
    let mut before = memory();
    before.boot = Some(BootId::from("a"));
    before.processes[1].1 = Record { life: Some(life(1)), attempts: 3, ..record(true) };
    before.estates.insert(
        key("r"),
        Elder { life: None, since: 1, launched: true, sessions: Vec::new(), until: None, before: Vec::new() },
    );
    let mut batch = LedgerBatch { boot: Some(BootId::from("b")), ..LedgerBatch::default() };
    batch.put(key("p"), Record { life: Some(life(2)), attempts: 1, ..record(true) });

    let memory = after_restart(&batch, before);

    assert_eq!(memory.boot, Some(BootId::from("b")));
    let known = |index: usize| (memory.processes[index].1.life.clone(), memory.processes[index].1.attempts);
    assert_eq!((known(0), known(1)), ((Some(life(2)), 1), (None, 0)));
    assert!(memory.estates.is_empty());
    assert_eq!(memory.owed.estates, [(key("r"), None)].into());
}

#[test]
fn a_process_that_was_forgotten_stays_so_with_what_is_left_of_it() {
    let elder =
        Elder { life: Some(life(1)), since: 5, launched: true, sessions: Vec::new(), until: None, before: Vec::new() };
    let mut batch = LedgerBatch::default();
    batch.forget(key("p"));
    batch.estates.insert(key("p"), Some(elder.clone()));

    let memory = after_restart(&batch, memory());

    assert_eq!(memory.processes.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), [key("q")]);
    assert_eq!(memory.estates, [(key("p"), elder)].into());
    assert!(memory.owed.forgotten.contains(&key("p")) && memory.owed.estates.contains_key(&key("p")));
}

#[test]
fn operations_keep_their_order() {
    let mut batch = LedgerBatch::default();
    for index in 1..=3 {
        batch.begun.push((operation(index), key("p"), OperationKind::Stop));
    }
    batch.outcomes.push((operation(2), Outcome::new(Code::Success, Message::foreign("success"), false)));

    let memory = after_restart(&batch, memory());

    let unfinished: Vec<OperationId> = memory.unfinished.iter().map(|(operation, ..)| *operation).collect();
    assert_eq!(unfinished, [operation(1), operation(3)]);
    assert_eq!(memory.outcomes.len(), 1);
}

#[tokio::test]
async fn a_reserve_for_which_no_room_can_be_taken_keeps_what_it_has() {
    use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
    // A file that would grow too large is told of by a signal, too, which ends whoever does not listen.
    let _listens = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(Signal::XFSZ.as_raw()));
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    Reserve::open(&path).write(&stopped());
    let file = File::options().write(true).open(path.with_extension("reserve")).unwrap();
    file.set_len(SLOT_BYTES as u64 + 4096).unwrap();
    let (before, mut memory) = (getrlimit(Resource::Fsize), memory());

    setrlimit(Resource::Fsize, Rlimit { current: Some(4096), maximum: before.maximum }).unwrap();
    let mut reserve = Reserve::open(&path);
    setrlimit(Resource::Fsize, before).unwrap();
    reserve.apply(0, &mut memory);

    assert!(!memory.processes[0].1.managed);
}

#[test]
fn of_more_stops_than_there_is_room_for_the_newest_are_kept() {
    let mut owed = LedgerBatch::default();
    for round in 0..30 {
        let mut batch = LedgerBatch::default();
        for index in 0..100 {
            // The last ones to be stopped come first by name.
            batch.put(key(&format!("p{:02}-{index}", 29 - round)), record(false));
        }
        batch.put(key("relaunched"), Record { launch: Some(launch()), ..record(true) });
        owed.append(batch);
    }
    owed.put(key("p29-0"), record(false)); // known from the first
    let keys: Vec<ProcessKey> = owed.processes.keys().cloned().collect();
    let processes = keys.into_iter().map(|key| (key, record(true))).collect();

    let memory = after_restart(&owed, LedgerState { processes, ..LedgerState::default() });

    let stopped = |round: &str| {
        let of_round = memory.processes.iter().filter(|(key, _)| key.to_string().starts_with(round));
        of_round.filter(|(_, record)| !record.managed).count()
    };
    assert_eq!((stopped("ns/p00"), stopped("ns/p01"), stopped("ns/p29")), (100, 100, 0));
}

#[test]
fn a_start_under_way_has_room_before_what_is_quiet() {
    let mut batch = LedgerBatch::default();
    for index in 0..5000 {
        batch.put(key(&format!("a-quiet-one-{index}")), record(true));
    }
    batch.put(key("p"), Record { launch: Some(launch()), ..record(true) });

    let memory = after_restart(&batch, memory());

    assert_eq!(memory.processes[0].1.launch, Some(launch()));
}

fn launch() -> Launch {
    Launch { until: proctor_supervise::Time::default(), old: None, begun: true, since: Some(1) }
}

#[test]
fn a_reserve_that_was_made_anew_is_not_taken_for_an_old_one() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let (taken, mut memory) = (21, memory());
    let mut reserve = Reserve::open(&path);
    reserve.apply(taken, &mut memory);

    reserve.write(&stopped());
    Reserve::open(&path).apply(taken, &mut memory);

    assert!(!memory.processes[0].1.managed);
}

#[test]
fn what_the_ledger_took_before_the_agent_died_is_not_applied_again() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let mut reserve = Reserve::open(&path);
    reserve.write(&stopped());
    let (taken, mut memory) = (reserve.number().unwrap(), memory());

    Reserve::open(&path).apply(taken, &mut memory);

    assert!(memory.processes[0].1.managed && memory.outcomes.is_empty());
}

#[test]
fn a_torn_write_leaves_the_one_before() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let mut reserve = Reserve::open(&path);
    reserve.write(&stopped());
    let before = reserve.written.clone();
    let mut more = stopped();
    more.forget(key("q"));
    reserve.write(&more);
    assert_ne!(reserve.written, before);

    let offset = (reserve.number % 2) * SLOT_BYTES as u64 + HEADER_BYTES as u64 + 5;
    reserve.file.as_ref().unwrap().write_all_at(b"torn", offset).unwrap();

    assert_eq!(Reserve::open(&path).written, before);
}

#[test]
fn stops_have_room_before_all_else() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("ledger.db");
    let mut batch = stopped();
    for index in 0..20_000 {
        batch.put(key(&format!("a-managed-one-{index}")), record(true));
    }
    let mut memory = memory();

    Reserve::open(&path).write(&batch);
    Reserve::open(&path).apply(0, &mut memory);

    assert!(!memory.processes[0].1.managed);
    assert_eq!(memory.outcomes.len(), 1);
    assert_eq!(std::fs::metadata(path.with_extension("reserve")).unwrap().len(), 2 * SLOT_BYTES as u64);
}
