//! Tasks, their targets and outcomes.

use std::sync::Arc;

use proctor_model::{Class, Code, Message, OperationId, OperationKind, Outcome, Phase, Snapshot, TaskId, messages};
use tokio::task::JoinSet;

use super::{agent, enrol, host, key, spec};
use crate::{
    AuditDraft, AuditPhase, AuditQuery, CreatedTask, Millis, NewTask, ProcessQuery, Store, Target, TaskItem, TaskView,
};

pub(super) fn id(number: u128) -> TaskId {
    TaskId::from_uuid(uuid::Uuid::from_u128(number))
}

pub(super) fn operation(task: u128, index: u32) -> OperationId {
    OperationId::first(id(task), index)
}

/// A start of `web/a` on `targets` agents, without outcomes.
pub(super) fn task(number: u128, created_at: Millis, targets: usize) -> NewTask {
    NewTask {
        id: id(number),
        created_at,
        app: "job".to_owned(),
        user: "admin".to_owned(),
        family: "v2".to_owned(),
        items: vec![TaskItem {
            key: key("web/a"),
            kind: Some(OperationKind::Start),
            spec: Some(spec("a")),
            carried: true,
            register: false,
            time_limit_ms: 60_000,
            wait_ms: 600_000,
        }],
        targets: (0..targets).map(|number| target(0, number)).collect(),
        outcomes: Vec::new(),
        audit: None,
        idempotency: None,
        retry_of: None,
        scope: None,
        rollout: None,
    }
}

pub(super) fn target(item: u32, number: usize) -> Target {
    Target {
        item,
        agent: Some(agent(number)),
        host: Some(host(number)),
        row_key: format!("row {number}"),
        other_row_keys: number.is_multiple_of(5).then(|| format!("other row {number}")).into_iter().collect(),
    }
}

pub(super) fn failed(message: &str) -> Outcome {
    Outcome::new(Code::CommandFailed, Message::foreign(message), false)
}

pub(super) async fn read(store: &dyn Store, number: u128) -> TaskView {
    store.task(id(number)).await.unwrap().unwrap()
}

async fn open(store: &dyn Store) -> Vec<OperationId> {
    store.open_targets().await.unwrap().into_iter().map(|target| target.operation).collect()
}

pub async fn a_large_task_is_read_back_in_order_with_its_known_outcomes(store: Arc<dyn Store>) {
    let mut new = task(1, 7, 2500);
    new.items.push(TaskItem {
        key: key("web/b"),
        kind: None,
        spec: None,
        carried: false,
        register: false,
        time_limit_ms: 1,
        wait_ms: 0,
    });
    new.targets[1200] =
        Target { item: 1, agent: None, host: None, row_key: "nowhere".to_owned(), other_row_keys: Vec::new() };
    new.outcomes = vec![(2499, failed("last")), (0, failed("first")), (1200, failed("odd")), (0, failed("again"))];

    store.create_task(new.clone()).await.unwrap();

    let view = read(&*store, 1).await;
    assert_eq!((view.id, view.created_at), (id(1), 7));
    assert_eq!((&*view.app, &*view.user, &*view.family), ("job", "admin", "v2"));
    assert_eq!(view.items, new.items);
    assert!(view.targets.iter().map(|view| &view.target).eq(&new.targets));
    for (index, target) in view.targets.iter().enumerate() {
        let expected = match index {
            0 => Some("first"),
            1200 => Some("odd"),
            2499 => Some("last"),
            _ => None,
        };
        assert_eq!(target.outcome, expected.map(failed), "target {index}");
    }
}

pub async fn an_unknown_task_is_none(store: Arc<dyn Store>) {
    store.create_task(task(1, 0, 1)).await.unwrap();

    assert_eq!(store.task(id(2)).await.unwrap(), None);
}

pub async fn a_task_id_is_used_once(store: Arc<dyn Store>) {
    store.create_task(task(1, 0, 1)).await.unwrap();

    let second = store.create_task(task(1, 5, 3)).await;

    assert!(second.is_err());
    assert_eq!(read(&*store, 1).await.created_at, 0);
    assert_eq!(open(&*store).await.len(), 1);
}

pub async fn a_task_that_contradicts_itself_is_refused_whole(store: Arc<dyn Store>) {
    let mut no_item = task(1, 0, 2);
    no_item.targets[1].item = 5;
    let mut no_target = task(2, 0, 2);
    no_target.outcomes = vec![(2, failed("for nobody"))];
    let mut never_final = task(3, 0, 2);
    never_final.items[0].kind = None;

    for (number, new) in (1..).zip([no_item, no_target, never_final]) {
        assert!(store.create_task(new).await.is_err());
        assert_eq!(store.task(id(number)).await.unwrap(), None);
    }
    assert!(open(&*store).await.is_empty());
}

pub async fn a_task_registers_its_targets(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let mut new = task(1, 7, 3);
    new.items[0].register = true;
    new.targets.push(Target { agent: None, ..target(0, 3) });
    new.outcomes = vec![(1, failed("not connected"))];

    store.create_task(new).await.unwrap();

    let (total, records) = store.processes(&ProcessQuery::default()).await.unwrap();
    assert_eq!(total, 2);
    for (number, record) in records.iter().enumerate() {
        assert_eq!((&record.agent, &record.key, &record.spec), (&agent(number), &key("web/a"), &spec("a")));
        assert_eq!(record.registered_at, 7);
    }
    assert_eq!(store.assignments(&agent(0), 0).await.unwrap().processes[0].spec, Some(spec("a")));
    assert_eq!(open(&*store).await, [operation(1, 0), operation(1, 2), operation(1, 3)]);
}

pub async fn a_task_tells_the_generations_of_what_it_registers(store: Arc<dyn Store>) {
    enrol(&*store, 3).await;
    let registers = |number, targets: std::ops::Range<usize>| {
        let mut new = task(number, 7, 0);
        new.items[0].register = true;
        new.targets = targets.map(|target_number| target(0, target_number)).collect();
        new
    };
    let create = async |new| match store.create_task(new).await.unwrap() {
        CreatedTask::Created { registered } => registered,
        CreatedTask::Existing { .. } => panic!("it has no key"),
    };
    let generation = async |number| store.assignments(&agent(number), 0).await.unwrap().processes[0].generation;

    let first = create(registers(1, 1..3)).await;
    let known = [(0, generation(1).await), (1, generation(2).await)];
    // The host of target 3 is not enrolled.
    let again = create(registers(2, 0..4)).await;

    assert_eq!(first, known);
    let [(_, one), (_, two)] = known;
    assert_eq!(again, [(0, generation(0).await), (1, one), (2, two)]);
    assert!(generation(0).await > one.max(two));
    assert_eq!(create(task(3, 7, 3)).await, []);
}

pub async fn a_task_and_its_audit_entry_are_written_together(store: Arc<dyn Store>) {
    let draft = AuditDraft {
        phase: AuditPhase::Done,
        of: None,
        app: "job".to_owned(),
        user: "admin".to_owned(),
        remote: None,
        request_id: "r".to_owned(),
        action: "processes.start".to_owned(),
        classes: [Class::Operate].into_iter().collect(),
        target_count: 1,
        targets: Vec::new(),
        outcome: String::new(),
    };
    store.create_task(NewTask { audit: Some(draft.clone()), ..task(1, 7, 1) }).await.unwrap();

    let refused = store.create_task(NewTask { audit: Some(draft.clone()), ..task(1, 8, 1) }).await;

    let entries = store.audit(&AuditQuery { limit: 10, ..AuditQuery::default() }).await.unwrap();
    assert!(refused.is_err());
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].at, &entries[0].draft), (7, &draft));
}

pub async fn a_task_without_register_registers_nothing(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;

    store.create_task(task(1, 0, 1)).await.unwrap();

    assert_eq!(store.processes(&ProcessQuery::default()).await.unwrap().0, 0);
    assert!(store.assignments(&agent(0), 0).await.unwrap().processes.is_empty());
}

pub async fn open_targets_are_exactly_those_without_an_outcome_oldest_task_first(store: Arc<dyn Store>) {
    let mut newer = task(1, 20, 3);
    newer.outcomes = vec![(1, failed("at once"))];
    let mut finished = task(3, 5, 1);
    finished.outcomes = vec![(0, failed("at once"))];
    for new in [newer, task(2, 10, 1002), finished] {
        store.create_task(new).await.unwrap();
    }
    let done: Vec<_> = (0..1000).map(|index| (operation(2, index), Outcome::success(true))).collect();
    store.record_outcomes(&done, 30).await.unwrap();

    let open = store.open_targets().await.unwrap();

    let operations: Vec<_> = open.iter().map(|target| target.operation).collect();
    assert_eq!(operations, [operation(2, 1000), operation(2, 1001), operation(1, 0), operation(1, 2)]);
    assert_eq!(open[3].agent, Some(agent(2)));
    assert_eq!((&open[3].key, open[3].kind, &open[3].spec), (&key("web/a"), OperationKind::Start, &Some(spec("a"))));
    assert_eq!((open[3].created_at, open[3].time_limit_ms, open[3].wait_ms), (20, 60_000, 600_000));
}

pub async fn the_first_outcome_of_a_target_is_kept_and_the_second_dropped(store: Arc<dyn Store>) {
    store.create_task(task(1, 0, 3)).await.unwrap();
    let once = store.record_outcomes(&[(operation(1, 0), failed("first"))], 1).await.unwrap();

    let again = [(operation(1, 0), failed("second")), (operation(1, 1), failed("a")), (operation(1, 1), failed("b"))];
    let recorded = store.record_outcomes(&again, 2).await.unwrap();

    assert_eq!(once, [operation(1, 0)]);
    assert_eq!(recorded, [operation(1, 1)]);
    let view = read(&*store, 1).await;
    assert_eq!(view.targets[0].outcome, Some(failed("first")));
    assert_eq!(view.targets[1].outcome, Some(failed("a")));
    assert_eq!(open(&*store).await, [operation(1, 2)]);
}

pub async fn outcomes_of_unknown_targets_are_dropped(store: Arc<dyn Store>) {
    store.create_task(task(1, 0, 1)).await.unwrap();
    let unknown =
        [(operation(1, 1), failed("x")), (operation(1, u32::MAX), failed("x")), (operation(2, 0), failed("x"))];

    let recorded = store.record_outcomes(&unknown, 1).await.unwrap();

    assert!(recorded.is_empty());
    assert_eq!(open(&*store).await, [operation(1, 0)]);
}

pub async fn outcomes_that_arrive_at_once_are_each_recorded_by_one_caller(store: Arc<dyn Store>) {
    store.create_task(task(1, 0, 10)).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..20 {
        let store = Arc::clone(&store);
        let outcomes: Vec<_> = (0..10).map(|index| (operation(1, index), failed(&format!("{caller}")))).collect();
        callers.spawn(async move { store.record_outcomes(&outcomes, 1).await.unwrap() });
    }

    let recorded: Vec<_> = callers.join_all().await.into_iter().flatten().collect();

    assert_eq!(recorded.len(), 10);
    assert!(open(&*store).await.is_empty());
    assert_eq!(store.task_summary(id(1)).await.unwrap().unwrap().pending, 0);
}

pub async fn an_outcome_is_read_back_exactly(store: Arc<dyn Store>) {
    store.create_task(task(1, 0, 1)).await.unwrap();
    let mut outcome =
        Outcome::new(Code::CheckFailed, Message::foreign("进程 died"), true).with_output("a\0b\n\u{1b}[31m".to_owned());
    let mut snapshot = Snapshot { phase: Phase::Waiting, pid: Some(4), ..Snapshot::default() };
    snapshot.usage.cpu_percent = 100.0 / 7.0;
    outcome.snapshot = Some(snapshot);

    store.record_outcomes(&[(operation(1, 0), outcome.clone())], 1).await.unwrap();

    assert_eq!(read(&*store, 1).await.targets[0].outcome, Some(outcome));
    store.create_task(task(2, 0, 1)).await.unwrap();
    let told = Outcome::new(Code::NotRunning, messages::process_not_running(messages::no_pid_file("/p")), false);
    store.record_outcomes(&[(operation(2, 0), told.clone())], 1).await.unwrap();
    assert_eq!(read(&*store, 2).await.targets[0].outcome, Some(told));
}

pub async fn the_newest_tasks_are_listed_first(store: Arc<dyn Store>) {
    for (number, created_at) in [(1, 20), (2, 30), (3, 10), (4, 30)] {
        store.create_task(task(number, created_at, 1)).await.unwrap();
    }

    assert_eq!(store.task_ids(3).await.unwrap(), [id(4), id(2), id(1)]);
    assert_eq!(store.task_ids(100).await.unwrap().len(), 4);
    assert!(store.task_ids(0).await.unwrap().is_empty());
}

pub async fn what_is_new_in_a_task_is_what_was_not_known(store: Arc<dyn Store>) {
    store.create_task(task(1, 0, 4)).await.unwrap();
    store.create_task(task(2, 0, 4)).await.unwrap();
    let outcomes =
        [(operation(1, 3), failed("three")), (operation(1, 0), failed("zero")), (operation(2, 1), failed("other"))];
    store.record_outcomes(&outcomes, 1).await.unwrap();

    let all = store.new_outcomes(id(1), &[]).await.unwrap();
    let new = store.new_outcomes(id(1), &[true, false, false, false]).await.unwrap();
    let none = store.new_outcomes(id(1), &[true; 4]).await.unwrap();
    let unknown = store.new_outcomes(id(3), &[]).await.unwrap();

    assert_eq!(all, [(0, failed("zero")), (3, failed("three"))]);
    assert_eq!(new, [(3, failed("three"))]);
    assert!(none.is_empty() && unknown.is_empty());
}
