//! Pruning by server uptime.

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{Code, Message, OperationKind, Outcome};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::enrolment::token_for;
use super::events::{exits, sequences};
use super::pools::pool;
use super::tasks::{id, operation, task};
use super::{agent, enrol, enrolment, host, key, opening, prune, registration, token, upgrades};
use crate::audit::verify;
use crate::{
    AuditAnchor, AuditDraft, AuditPhase, AuditQuery, Enrolment, EventQuery, JoinToken, NewTask, Prune, RegisterMode,
    Store, TaskItem, TokenKind, UPGRADES_KEPT_MAX, UpgradeState, Uptime, User, UserToken,
};

const HOUR: Uptime = 3_600_000;

async fn run_for(store: &dyn Store, hours: u64) -> Uptime {
    store.advance_uptime(Duration::from_secs(hours * 3600)).await.unwrap()
}

async fn finish(store: &dyn Store, number: u128, targets: u32) {
    let outcomes: Vec<_> = (0..targets).map(|index| (operation(number, index), Outcome::success(true))).collect();
    store.record_outcomes(&outcomes, 5).await.unwrap();
}

fn draft(action: &str) -> AuditDraft {
    AuditDraft {
        phase: AuditPhase::Done,
        of: None,
        app: String::new(),
        user: "admin".to_owned(),
        remote: None,
        request_id: String::new(),
        action: action.to_owned(),
        classes: [].into_iter().collect(),
        target_count: 0,
        targets: Vec::new(),
        outcome: String::new(),
    }
}

pub async fn a_finished_task_goes_when_servers_have_run_long_enough_and_an_open_one_never(store: Arc<dyn Store>) {
    for number in 1..=3 {
        store.create_task(task(number, 5, 2)).await.unwrap();
    }
    finish(&*store, 1, 2).await;
    finish(&*store, 2, 1).await;
    let begun = run_for(&*store, 10).await;
    finish(&*store, 3, 2).await;

    let early = prune(&*store, Prune::Tasks { before: 0 }).await;
    prune(&*store, Prune::Tasks { before: begun }).await;

    assert_eq!((early, begun), (0, 10 * HOUR));
    assert_eq!(store.task(id(1)).await.unwrap(), None);
    assert_eq!(store.task_ids(9).await.unwrap(), [id(3), id(2)], "2 is open; 3 was finished a moment ago");
    let open = store.open_targets().await.unwrap();
    assert_eq!(open.iter().map(|target| target.operation).collect::<Vec<_>>(), [operation(2, 1)]);
}

pub async fn status_queries_go_before_operations(store: Arc<dyn Store>) {
    let of_kinds = |number: u128, kinds: &[OperationKind]| {
        let mut task = task(number, 5, 1);
        let item = task.items[0].clone();
        task.items = kinds.iter().map(|kind| TaskItem { kind: Some(*kind), ..item.clone() }).collect();
        task
    };
    let (status, stop) = (OperationKind::Status, OperationKind::Stop);
    for (number, kinds) in [(1, &[status][..]), (2, &[stop]), (3, &[status, stop]), (4, &[status])] {
        store.create_task(of_kinds(number, kinds)).await.unwrap();
    }
    for number in 1..=3 {
        finish(&*store, number, 1).await;
    }
    let begun = run_for(&*store, 10).await;

    prune(&*store, Prune::BriefTasks { before: begun }).await;

    assert_eq!(store.task_ids(9).await.unwrap(), [id(4), id(3), id(2)], "4 is open");
}

pub async fn tasks_of_which_nothing_reached_a_host_go_before_operations(store: Arc<dyn Store>) {
    let refused = || Outcome::new(Code::Forbidden, Message::foreign("refused"), false);
    for (number, refusals) in [(1, 2), (2, 1), (3, 0)] {
        let outcomes = (0..refusals).map(|index| (index, refused())).collect();
        store.create_task(NewTask { outcomes, ..task(number, 5, 2) }).await.unwrap();
    }
    store.record_outcomes(&[(operation(2, 1), refused())], 6).await.unwrap();
    finish(&*store, 3, 2).await;
    let begun = run_for(&*store, 10).await;

    prune(&*store, Prune::BriefTasks { before: begun }).await;

    assert_eq!(store.task_ids(9).await.unwrap(), [id(3), id(2)], "a target of 2 was carried out");
}

pub async fn a_large_task_goes_slice_by_slice_and_cannot_be_read_meanwhile(store: Arc<dyn Store>) {
    store.create_task(task(1, 5, 2500)).await.unwrap();
    finish(&*store, 1, 2500).await;

    let mut slices = Vec::new();
    loop {
        let rows = store.prune(Prune::Tasks { before: 1 }).await.unwrap();
        slices.push(rows);
        assert_eq!(store.task(id(1)).await.unwrap(), None);
        assert_eq!(store.task_summary(id(1)).await.unwrap(), None);
        assert!(store.task_ids(9).await.unwrap().is_empty());
        assert!(store.tasks(&crate::TaskQuery { limit: 9, ..Default::default() }).await.unwrap().is_empty());
        if rows == 0 {
            break;
        }
    }

    let expected = [1, 1000, 1000, 500, 1, 3, 1, 0];
    assert_eq!(slices, expected, "it is marked, its outcomes, its process and its targets go, then itself");
}

pub async fn the_oldest_upgrades_go_slice_by_slice(store: Arc<dyn Store>) {
    let hosts = |count| (0..count).map(upgrades::host).collect::<Vec<_>>();
    let cancelled = upgrades::transition(&[UpgradeState::Running], UpgradeState::Cancelled, "over");
    for number in 0..u128::from(UPGRADES_KEPT_MAX) + 2 {
        let large = if number == 0 { hosts(2500) } else { hosts(1) };
        store.begin_upgrade(upgrades::upgrade(number), large).await.unwrap().unwrap();
        store.set_upgrade_state(Uuid::from_u128(number), cancelled.clone(), 1).await.unwrap();
    }

    let mut slices = Vec::new();
    while let rows = store.prune(Prune::Upgrades).await.unwrap()
        && rows > 0
    {
        slices.push(rows);
    }

    assert_eq!(slices, [1000, 1000, 500, 1, 1, 1]);
    assert_eq!(store.upgrade(Uuid::from_u128(1)).await.unwrap(), None);
    assert!(store.upgrade(Uuid::from_u128(2)).await.unwrap().is_some());
}

pub async fn no_slice_holds_the_writer_for_more_than_a_thousand_rows(store: Arc<dyn Store>) {
    const ROWS: usize = 2500;
    enrol(&*store, 1).await;
    let epoch = store.open_session(&opening(0), 0).await.unwrap().unwrap();
    store.append_events(&agent(0), epoch, &exits(1..=ROWS as u64), 1).await.unwrap();
    let mut appended = JoinSet::new();
    for _ in 0..ROWS {
        let store = store.clone();
        appended.spawn(async move { store.append_audit(draft("x"), 1).await.unwrap() });
    }
    appended.join_all().await;
    let names: Vec<String> = (0..ROWS).map(|number| format!("web/p{number}")).collect();
    let registrations: Vec<_> = names.iter().map(|name| registration(0, name, "a")).collect();
    store.register(&registrations, RegisterMode::Upsert, 1).await.unwrap();
    let processes: Vec<_> = names.iter().map(|name| (agent(0), key(name))).collect();
    store.unregister(&processes, 2).await.unwrap();
    store.note_generations(&[(agent(0), u64::from(u32::MAX))]).await.unwrap();
    let before = run_for(&*store, 1).await + 1;

    for what in [
        Prune::Events { before, keep: 0 },
        Prune::Tombstones { before },
        Prune::Audit { through: store.audit_before(before).await.unwrap() },
    ] {
        let mut slices = Vec::new();
        while let rows = store.prune(what).await.unwrap()
            && rows > 0
        {
            slices.push(rows);
        }
        assert!(slices.iter().sum::<u64>() >= ROWS as u64, "{what:?}: {slices:?}");
        assert!(slices.iter().all(|rows| *rows <= 1000), "{what:?}: {slices:?}");
    }
}

pub async fn old_events_and_those_beyond_the_bound_go(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = store.open_session(&opening(0), 0).await.unwrap().unwrap();
    for sequence in 1..=6 {
        store.append_events(&agent(0), epoch, &exits([sequence]), 1).await.unwrap();
        run_for(&*store, 1).await;
    }

    let nothing = prune(&*store, Prune::Events { before: HOUR, keep: 6 }).await;
    let old = prune(&*store, Prune::Events { before: 2 * HOUR + 1, keep: u64::MAX }).await;
    let beyond = prune(&*store, Prune::Events { before: 0, keep: 3 }).await;

    assert_eq!((nothing, old, beyond), (0, 2, 1));
    let left = store.events(&EventQuery { after: Some(0), limit: 9, ..EventQuery::default() }).await.unwrap();
    assert_eq!(sequences(&left.events), [4, 5, 6]);
}

pub async fn events_beyond_the_bound_are_taken_from_the_hosts_that_have_most(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    for (number, count) in [(1, 3), (0, 20)] {
        let epoch = store.open_session(&opening(number), 0).await.unwrap().unwrap();
        store.append_events(&agent(number), epoch, &exits(1..=count), 1).await.unwrap();
    }

    let gone = prune(&*store, Prune::Events { before: 0, keep: 10 }).await;

    let left = store.events(&EventQuery { after: Some(0), limit: 50, ..EventQuery::default() }).await.unwrap().events;
    let of = |number| left.iter().filter(|stored| stored.agent == agent(number)).cloned().collect::<Vec<_>>();
    assert_eq!(gone, 13);
    assert_eq!(sequences(&of(1)), [1, 2, 3], "older, but no more than the share of its host");
    assert_eq!(sequences(&of(0)), [14, 15, 16, 17, 18, 19, 20]);
}

pub async fn what_is_young_by_uptime_stays_whatever_the_clock_says(store: Arc<dyn Store>) {
    let ages_ago = -1_000_000_000_000;
    store.create_task(task(1, ages_ago, 1)).await.unwrap();
    finish(&*store, 1, 1).await;
    store.append_audit(draft("old by its clock"), ages_ago).await.unwrap();
    let uptime = run_for(&*store, 2).await;

    for before in [0, uptime - 3 * HOUR] {
        assert_eq!(prune(&*store, Prune::Tasks { before }).await, 0);
        assert_eq!(store.audit_before(before).await.unwrap(), 0);
    }
}

pub async fn a_tombstone_stays_until_its_agent_knows_of_it(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let both = [registration(0, "web/a", "a"), registration(1, "web/a", "a")];
    store.register(&both, RegisterMode::Upsert, 1).await.unwrap();
    let namespace = key("web/a").namespace;
    let pool = pool("web", "p", 50.0);
    store.set_pools(&[agent(0), agent(1)], std::slice::from_ref(&pool), 1).await.unwrap();
    store.unregister(&[(agent(0), key("web/a")), (agent(1), key("web/a"))], 2).await.unwrap();
    store.delete_pool(&[agent(0), agent(1)], &namespace, &pool.id, 2).await.unwrap();
    let newest = store.assignments(&agent(1), 1).await.unwrap();
    let newest = newest.pools.iter().map(|pool| pool.generation).max().unwrap();
    let uptime = run_for(&*store, 1).await + 1;

    let unheard = prune(&*store, Prune::Tombstones { before: uptime }).await;
    store.note_generations(&[(agent(0), newest)]).await.unwrap();
    let young = prune(&*store, Prune::Tombstones { before: HOUR }).await;
    let heard = prune(&*store, Prune::Tombstones { before: uptime }).await;

    assert_eq!((unheard, young, heard), (0, 0, 2));
    let told = async |number| {
        let told = store.assignments(&agent(number), 1).await.unwrap();
        (told.processes.len(), told.pools.len())
    };
    assert_eq!((told(0).await, told(1).await), ((0, 0), (1, 1)));
}

pub async fn an_agent_older_than_a_deleted_tombstone_is_told_everything(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let both = [registration(0, "web/gone", "gone"), registration(0, "web/stays", "stays")];
    store.register(&both, RegisterMode::Upsert, 1).await.unwrap();
    let pools = [pool("web", "gone", 50.0), pool("web", "stays", 50.0)];
    store.set_pools(&[agent(0)], &pools, 1).await.unwrap();
    let told = store.assignments(&agent(0), 0).await.unwrap();
    let snapshot = told.pools.iter().map(|pool| pool.generation).max().unwrap();
    store.unregister(&[(agent(0), key("web/gone"))], 2).await.unwrap();
    store.delete_pool(&[agent(0)], &pools[0].namespace, &pools[0].id, 2).await.unwrap();
    let newest = store.assignments(&agent(0), snapshot).await.unwrap();
    let newest = newest.pools.iter().map(|pool| pool.generation).max().unwrap();
    store.note_generations(&[(agent(0), newest)]).await.unwrap();
    let uptime = run_for(&*store, 1).await + 1;

    let before = store.assignments(&agent(0), snapshot).await.unwrap();
    assert_eq!(prune(&*store, Prune::Tombstones { before: uptime }).await, 2);
    // What the agent reports now is recorded too, and changes nothing.
    store.note_generations(&[(agent(0), snapshot)]).await.unwrap();
    let after = store.assignments(&agent(0), snapshot).await.unwrap();

    assert_eq!((before.all_through, before.processes.len(), before.pools.len()), (None, 1, 1));
    let keys: Vec<_> = after.processes.iter().map(|process| process.key.clone()).collect();
    let ids: Vec<_> = after.pools.iter().map(|pool| pool.pool.id.clone()).collect();
    assert_eq!((after.all_through, keys, ids), (Some(newest), vec![key("web/stays")], vec![pools[1].id.clone()]));
    for current in [newest, 0, 1] {
        assert_eq!(store.assignments(&agent(0), current).await.unwrap().all_through, None, "{current}");
    }

    // Remaining tombstones are sent as before: an agent may not be able to read the list.
    store.unregister(&[(agent(0), key("web/stays"))], 3).await.unwrap();
    let told = store.assignments(&agent(0), snapshot).await.unwrap();
    let tombstones: Vec<_> =
        told.processes.iter().map(|process| (process.key.clone(), process.spec.is_none())).collect();
    assert_eq!((told.all_through, tombstones), (Some(newest), vec![(key("web/stays"), true)]));
}

pub async fn an_agent_that_moves_is_not_measured_by_what_another_one_had_seen(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.register(&[registration(0, "web/old", "old")], RegisterMode::Upsert, 1).await.unwrap();
    store.register(&[registration(1, "web/a", "a")], RegisterMode::Upsert, 1).await.unwrap();
    let has = store.assignments(&agent(1), 0).await.unwrap().processes[0].generation;
    store.unregister(&[(agent(0), key("web/old"))], 2).await.unwrap();
    let newest = store.assignments(&agent(0), 1).await.unwrap().processes[0].generation;
    store.note_generations(&[(agent(0), newest)]).await.unwrap();
    let uptime = run_for(&*store, 1).await + 1;
    assert_eq!(prune(&*store, Prune::Tombstones { before: uptime }).await, 1);
    let named = token_for(&*store, 0).await;

    store.enrol(Enrolment { host: host(0), ..enrolment(&named, 1) }, 5).await.unwrap().unwrap();

    assert!(1 < has && has < newest);
    assert_eq!(store.assignments(&agent(1), has).await.unwrap().all_through, None);
}

fn user_token(id: &str, expires_at: Option<i64>) -> UserToken {
    UserToken {
        id: id.to_owned(),
        user: "a".to_owned(),
        secret_hash: String::new(),
        note: String::new(),
        created_at: 1,
        expires_at,
        kind: TokenKind::Call,
    }
}

pub async fn tokens_go_a_while_after_they_are_over(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.put_token(JoinToken { expires_at: 50, ..token("expired", 1) }).await.unwrap();
    store.put_token(JoinToken { expires_at: 500, ..token("good", 1) }).await.unwrap();
    store.create_user(User { name: "a".to_owned(), created_at: 1, disabled: false }).await.unwrap().unwrap();
    for token in [user_token("expired", Some(50)), user_token("good", Some(500)), user_token("eternal", None)] {
        store.put_user_token(token).await.unwrap().unwrap();
    }

    let noticed = prune(&*store, Prune::Tokens { before: 0, now: 100 }).await;
    let uptime = run_for(&*store, 1).await;
    let gone = prune(&*store, Prune::Tokens { before: uptime, now: 100 }).await;

    assert_eq!((noticed, gone), (0, 2));
    let left: Vec<String> = store.user_tokens(None).await.unwrap().into_iter().map(|token| token.id).collect();
    assert_eq!(left.len(), 2);
    assert!(!left.contains(&"expired".to_owned()));
}

pub async fn a_token_that_is_good_again_starts_anew(store: Arc<dyn Store>) {
    store.create_user(User { name: "a".to_owned(), created_at: 1, disabled: false }).await.unwrap().unwrap();
    store.put_user_token(user_token("t", Some(50))).await.unwrap().unwrap();
    let far_ahead = 1_000_000;

    prune(&*store, Prune::Tokens { before: 0, now: far_ahead }).await;
    let later = run_for(&*store, 5).await;
    let set_back = prune(&*store, Prune::Tokens { before: later, now: 10 }).await;
    let expired = prune(&*store, Prune::Tokens { before: later, now: 60 }).await;

    assert_eq!((set_back, expired), (0, 0));
    assert!(store.user_token("t").await.unwrap().is_some());
}

pub async fn specs_go_when_nothing_refers_to_them(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    for proc_name in ["history", "registered"] {
        store.register(&[registration(0, "web/a", proc_name)], RegisterMode::Upsert, 1).await.unwrap();
    }
    let item = |proc_name: &str| TaskItem { spec: Some(super::spec(proc_name)), ..task(1, 5, 1).items.remove(0) };
    for (number, proc_name) in [(1, "old task"), (2, "open task")] {
        store.create_task(NewTask { items: vec![item(proc_name)], ..task(number, 5, 1) }).await.unwrap();
    }
    finish(&*store, 1, 1).await;
    let uptime = run_for(&*store, 10).await;

    let kept = prune(&*store, Prune::Specs { before: uptime }).await;
    prune(&*store, Prune::Tasks { before: uptime }).await;
    let young = prune(&*store, Prune::Specs { before: 0 }).await;
    let gone = prune(&*store, Prune::Specs { before: uptime }).await;

    assert_eq!((kept, young, gone), (0, 0, 1));
    assert_eq!(store.task(id(2)).await.unwrap().unwrap().items[0].spec, Some(super::spec("open task")));
    assert_eq!(store.spec_history(&agent(0), &key("web/a"), 9).await.unwrap().len(), 2);
    store.register(&[registration(0, "web/b", "old task")], RegisterMode::Upsert, 1).await.unwrap();
    assert_eq!(prune(&*store, Prune::Specs { before: uptime + 1 }).await, 0, "it was made anew and is used");
}

pub async fn archived_audit_entries_go_and_the_chain_goes_on(store: Arc<dyn Store>) {
    for number in 1..=5 {
        store.append_audit(draft(&format!("action {number}")), number).await.unwrap();
    }
    let all = store.audit(&AuditQuery { limit: 9, ..AuditQuery::default() }).await.unwrap();
    let uptime = run_for(&*store, 1).await + 1;
    store.append_audit(draft("young"), 6).await.unwrap();

    let old = store.audit_before(uptime).await.unwrap();
    let gone = prune(&*store, Prune::Audit { through: 3 }).await;

    assert_eq!((old, gone), (5, 3));
    assert_eq!(store.audit_anchor().await.unwrap(), AuditAnchor { seq: 3, hash: all[2].hash });
    let left = store.audit(&AuditQuery { limit: 9, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(left.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [4, 5, 6]);
    assert_eq!(left[0].prev_hash, all[2].hash);
    prune(&*store, Prune::Audit { through: 6 }).await;
    assert_eq!(store.append_audit(draft("after all were removed"), 7).await.unwrap(), 7);
    let last = store.audit(&AuditQuery { limit: 9, ..AuditQuery::default() }).await.unwrap();
    let chain: Vec<_> = all[..3].iter().chain(&left).chain(&last).cloned().collect();
    assert_eq!(verify(&chain), Ok(()));
}

pub async fn every_table_has_a_size(store: Arc<dyn Store>) {
    store.create_task(task(1, 5, 3)).await.unwrap();
    finish(&*store, 1, 3).await;

    let sizes = store.sizes().await.unwrap();

    let outcomes = sizes.iter().find(|size| size.table == "outcome").unwrap();
    assert_eq!(outcomes.rows, 3);
    assert!(outcomes.bytes >= 512);
    assert!(sizes.is_sorted_by(|one, next| one.bytes >= next.bytes));
}
