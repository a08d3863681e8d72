//! Tasks without their targets, and pages of targets.

use std::sync::Arc;

use proctor_model::{Code, OperationKind, Outcome, Subject, TaskId};

use super::key;
use super::tasks::{failed, id, operation, target, task};
use crate::{ProcessTaskQuery, Store, TargetFilter, TargetQuery, TaskItem, TaskQuery, TaskState, TaskSummary};

async fn summary(store: &dyn Store, number: u128) -> TaskSummary {
    store.task_summary(id(number)).await.unwrap().unwrap()
}

async fn listed(store: &dyn Store, query: &TaskQuery) -> Vec<TaskId> {
    store.tasks(query).await.unwrap().into_iter().map(|task| task.id).collect()
}

async fn indexes(store: &dyn Store, which: TargetFilter, after: Option<u32>, limit: u32) -> Vec<u32> {
    let query = TargetQuery { after, limit, which };
    store.task_targets(id(1), &query).await.unwrap().into_iter().map(|row| row.index).collect()
}

pub async fn a_summary_counts_each_target_once(store: Arc<dyn Store>) {
    let mut new = task(1, 7, 5);
    new.items.push(TaskItem { kind: Some(OperationKind::Kill), ..new.items[0].clone() });
    new.items.push(TaskItem { key: key("web/b"), ..new.items[0].clone() });
    new.outcomes = vec![(0, failed("at once")), (0, Outcome::success(true))];
    store.create_task(new).await.unwrap();
    let outcomes = [(operation(1, 1), Outcome::success(true)), (operation(1, 2), failed("x"))];
    store.record_outcomes(&outcomes, 8).await.unwrap();
    store.record_outcomes(&outcomes, 9).await.unwrap();

    let found = summary(&*store, 1).await;

    assert_eq!((found.total, found.pending, found.succeeded, found.failed), (5, 2, 1, 2));
    assert_eq!((found.id, found.created_at, found.finished_at), (id(1), 7, None));
    assert_eq!((&*found.app, &*found.user, &*found.family), ("job", "admin", "v2"));
    assert_eq!(found.kinds, [OperationKind::Start, OperationKind::Kill]);
    assert_eq!((found.processes, found.has_more_processes), (vec![key("web/a"), key("web/b")], false));
    assert_eq!((found.cancelled_at, found.retry_of, found.rollout), (None, None, None));
    assert_eq!(store.task_summary(id(2)).await.unwrap(), None);
}

pub async fn a_summary_names_the_first_processes(store: Arc<dyn Store>) {
    let mut new = task(1, 7, 1);
    let item = new.items[0].clone();
    new.items = ["web/d", "web/b", "db/a", "web/c"].map(|name| TaskItem { key: key(name), ..item.clone() }).into();
    store.create_task(new).await.unwrap();

    let found = summary(&*store, 1).await;

    assert_eq!(found.processes, ["db/a", "web/b", "web/c"].map(key));
    assert!(found.has_more_processes);
}

pub async fn a_task_is_finished_when_its_last_outcome_is_known(store: Arc<dyn Store>) {
    let mut at_once = task(2, 7, 1);
    at_once.outcomes = vec![(0, failed("at once"))];
    for new in [task(1, 7, 2), at_once, task(3, 7, 0)] {
        store.create_task(new).await.unwrap();
    }

    store.record_outcomes(&[(operation(1, 1), failed("x"))], 8).await.unwrap();
    let halfway = summary(&*store, 1).await.finished_at;
    store.record_outcomes(&[(operation(1, 0), failed("x"))], 9).await.unwrap();

    assert_eq!(halfway, None);
    assert_eq!(summary(&*store, 1).await.finished_at, Some(9));
    assert_eq!(summary(&*store, 2).await.finished_at, Some(7));
    assert_eq!(summary(&*store, 3).await.finished_at, Some(7));
}

pub async fn tasks_are_listed_newest_first_in_pages(store: Arc<dyn Store>) {
    for (number, created_at) in [(1, 20), (2, 30), (3, 10), (4, 30), (5, 20)] {
        store.create_task(task(number, created_at, 1)).await.unwrap();
    }
    let page = |before: Option<u128>, limit| TaskQuery { before: before.map(id), limit, ..TaskQuery::default() };

    let first = listed(&*store, &page(None, 2)).await;
    let second = listed(&*store, &page(Some(2), 2)).await;
    let last = listed(&*store, &page(Some(1), 9)).await;

    assert_eq!(first, [id(4), id(2)]);
    assert_eq!(second, [id(5), id(1)]);
    assert_eq!(last, [id(3)]);
    assert!(listed(&*store, &page(Some(99), 9)).await.is_empty(), "nothing is behind a forgotten task");
    assert_eq!(store.tasks(&page(Some(2), 1)).await.unwrap(), [summary(&*store, 5).await]);
}

pub async fn tasks_are_narrowed_by_every_field_of_the_query(store: Arc<dyn Store>) {
    for (number, app, user) in [(1, "a", "x"), (2, "b", "x"), (3, "a", "y"), (4, "x", "x")] {
        let mut new = task(number, 5, 1);
        (new.app, new.user) = (app.to_owned(), user.to_owned());
        store.create_task(new).await.unwrap();
    }
    store.record_outcomes(&[(operation(1, 0), failed("x"))], 8).await.unwrap();
    let all = || TaskQuery { limit: 9, ..TaskQuery::default() };
    let text = |text: &str| Some(text.to_owned());

    for (query, expected) in [
        (all(), vec![id(4), id(3), id(2), id(1)]),
        (TaskQuery { app: text("a"), ..all() }, vec![id(3), id(1)]),
        (TaskQuery { user: text("x"), ..all() }, vec![id(4), id(2), id(1)]),
        (TaskQuery { owner: Some(Subject::User("x".to_owned())), ..all() }, vec![id(2), id(1)]),
        (TaskQuery { owner: Some(Subject::App("x".to_owned())), ..all() }, vec![id(4)]),
        (TaskQuery { owner: Some(Subject::App("a".to_owned())), user: text("y"), ..all() }, vec![id(3)]),
        (TaskQuery { unfinished_only: true, ..all() }, vec![id(4), id(3), id(2)]),
        (TaskQuery { app: text("a"), user: text("x"), unfinished_only: true, ..all() }, vec![]),
        (TaskQuery { ids: Some(id(2)..=id(3)), ..all() }, vec![id(3), id(2)]),
        (TaskQuery { process: Some(key("web/a")), ..all() }, vec![id(4), id(3), id(2), id(1)]),
        (TaskQuery { process: Some(key("web/b")), ..all() }, vec![]),
        (
            TaskQuery { kind: Some(OperationKind::Start), state: Some(TaskState::Running), ..all() },
            vec![id(4), id(3), id(2)],
        ),
        (TaskQuery { kind: Some(OperationKind::Kill), ..all() }, vec![]),
        (TaskQuery { state: Some(TaskState::Failed), ..all() }, vec![id(1)]),
        (TaskQuery { state: Some(TaskState::Done), ..all() }, vec![]),
        (TaskQuery { state: Some(TaskState::Paused), ..all() }, vec![]),
        (TaskQuery { since: Some(5), until: Some(6), ..all() }, vec![id(4), id(3), id(2), id(1)]),
        (TaskQuery { since: Some(6), ..all() }, vec![]),
        (TaskQuery { until: Some(5), ..all() }, vec![]),
        (TaskQuery { limit: 0, ..all() }, vec![]),
    ] {
        assert_eq!(listed(&*store, &query).await, expected, "{query:?}");
    }
}

pub async fn a_row_of_a_page_is_the_target_with_its_item_and_outcome(store: Arc<dyn Store>) {
    let mut new = task(1, 5, 2500);
    new.items.push(TaskItem { key: key("web/b"), kind: Some(OperationKind::Kill), ..new.items[0].clone() });
    new.targets[2400] = target(1, 7);
    store.create_task(new).await.unwrap();
    store.record_outcomes(&[(operation(1, 2400), failed("why"))], 8).await.unwrap();

    let query = TargetQuery { after: Some(2398), limit: 2, which: TargetFilter::All };
    let rows = store.task_targets(id(1), &query).await.unwrap();

    assert_eq!((rows[0].index, &rows[0].target, &rows[0].outcome), (2399, &target(0, 2399), &None));
    assert_eq!((&rows[0].key, rows[0].kind), (&key("web/a"), Some(OperationKind::Start)));
    assert_eq!((rows[1].index, &rows[1].target, &rows[1].outcome), (2400, &target(1, 7), &Some(failed("why"))));
    assert_eq!((&rows[1].key, rows[1].kind), (&key("web/b"), Some(OperationKind::Kill)));
}

pub async fn targets_are_paged_by_what_became_of_them(store: Arc<dyn Store>) {
    store.create_task(task(1, 5, 3000)).await.unwrap();
    let outcomes: Vec<_> = (0..3000)
        .filter(|index| index % 3 != 0)
        .map(|index| (operation(1, index), if index % 3 == 1 { failed("x") } else { Outcome::success(true) }))
        .collect();
    store.record_outcomes(&outcomes, 8).await.unwrap();

    for (which, rest) in [(TargetFilter::Pending, 0), (TargetFilter::Failed, 1), (TargetFilter::Succeeded, 2)] {
        let expected: Vec<u32> = (0..3000).filter(|index| index % 3 == rest).collect();
        let mut found = Vec::new();
        loop {
            let page = indexes(&*store, which, found.last().copied(), 400).await;
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= 400);
            found.extend(page);
        }
        assert_eq!(found, expected, "{which:?}");
    }
    let failed_code = failed("x").code;
    assert_eq!(indexes(&*store, TargetFilter::Code(failed_code), Some(1), 2).await, [4, 7]);
    assert!(indexes(&*store, TargetFilter::Code(Code::Skipped), None, 2).await.is_empty());
    let codes = store.target_codes(id(1)).await.unwrap();
    assert_eq!((codes.len(), codes[0], codes[1]), (2000, (1, failed_code), (2, Code::Success)));
    assert!(store.target_codes(id(2)).await.unwrap().is_empty());
    assert_eq!(indexes(&*store, TargetFilter::All, Some(2997), 9).await, [2998, 2999]);
    assert_eq!(indexes(&*store, TargetFilter::All, None, u32::MAX).await.len(), 3000);
}

pub async fn the_tasks_of_a_process_come_newest_first_with_its_targets_alone(store: Arc<dyn Store>) {
    for (number, created_at) in [(1, 10), (2, 20), (3, 30)] {
        let mut new = task(number, created_at, 1500);
        new.items.push(TaskItem { key: key("web/b"), ..new.items[0].clone() });
        if number != 2 {
            new.targets[1200] = target(1, 1200);
            new.targets[3] = target(1, 3);
        } else {
            new.items.pop();
        }
        store.create_task(new).await.unwrap();
    }
    store.record_outcomes(&[(operation(1, 1200), failed("why"))], 40).await.unwrap();
    let query = ProcessTaskQuery { key: key("web/b"), agents: None, owner: None, after: None, tasks: 9, targets: 9 };
    let found = async |query: &ProcessTaskQuery| {
        let found = store.process_tasks(query).await.unwrap();
        let indexes = |rows: Vec<crate::TargetRow>| rows.into_iter().map(|row| row.index).collect::<Vec<_>>();
        found.into_iter().map(|(task, rows)| (task.id, indexes(rows))).collect::<Vec<_>>()
    };
    let agents = Some(vec![target(1, 1200).agent.unwrap()]);

    assert_eq!(found(&query).await, [(id(3), vec![3, 1200]), (id(1), vec![3, 1200])]);
    let on_one = ProcessTaskQuery { agents, ..query.clone() };
    assert_eq!(found(&on_one).await, [(id(3), vec![1200]), (id(1), vec![1200])]);
    let behind = found(&ProcessTaskQuery { after: Some((id(3), 1200)), ..on_one.clone() }).await;
    assert_eq!(behind, [(id(3), vec![]), (id(1), vec![1200])]);
    // Page by page, also within one task.
    let page = |after, targets| ProcessTaskQuery { after, targets, ..query.clone() };
    assert_eq!(found(&page(Some((id(3), 3)), 1)).await, [(id(3), vec![1200])]);
    assert_eq!(found(&page(Some((id(3), 3)), 2)).await, [(id(3), vec![1200]), (id(1), vec![3])]);
    assert_eq!(found(&page(Some((id(1), 3)), 9)).await, [(id(1), vec![1200])]);
    assert!(found(&page(Some((id(99), 0)), 9)).await.is_empty(), "nothing is behind a forgotten task");
    assert_eq!(found(&ProcessTaskQuery { targets: 1, ..query.clone() }).await, [(id(3), vec![3])]);
    assert!(found(&ProcessTaskQuery { owner: Some(Subject::App("x".to_owned())), ..query.clone() }).await.is_empty());
    assert!(found(&ProcessTaskQuery { key: key("web/c"), ..query.clone() }).await.is_empty());
    let rows =
        store.process_tasks(&ProcessTaskQuery { after: Some((id(3), 1200)), ..on_one }).await.unwrap().remove(1).1;
    assert_eq!(rows[0].outcome, Some(failed("why")));
}

pub async fn there_is_no_target_behind_the_last_and_none_of_an_unknown_task(store: Arc<dyn Store>) {
    for which in [TargetFilter::All, TargetFilter::Pending, TargetFilter::Failed, TargetFilter::Succeeded] {
        assert!(indexes(&*store, which, None, 9).await.is_empty(), "{which:?}");
    }
    store.create_task(task(1, 5, 2)).await.unwrap();

    for which in [TargetFilter::All, TargetFilter::Pending, TargetFilter::Failed, TargetFilter::Succeeded] {
        for after in [1, 2, u32::MAX] {
            assert!(indexes(&*store, which, Some(after), 9).await.is_empty(), "{which:?} {after}");
        }
        assert!(indexes(&*store, which, None, 0).await.is_empty(), "{which:?}");
    }
}
