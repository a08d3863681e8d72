//! The audit log and its chain.

use std::sync::Arc;

use proctor_model::Class;
use tokio::task::JoinSet;

use crate::audit::{AUDIT_TARGETS_MAX, verify};
use crate::{AuditDraft, AuditEntry, AuditPhase, AuditQuery, Store};

fn draft(action: &str) -> AuditDraft {
    AuditDraft {
        phase: AuditPhase::Begun,
        of: None,
        app: "job".to_owned(),
        user: "admin".to_owned(),
        remote: Some("fd00::1".parse().unwrap()),
        request_id: "r-1".to_owned(),
        action: action.to_owned(),
        classes: [Class::Register, Class::Operate].into_iter().collect(),
        target_count: 40_000,
        targets: vec!["0:10.0.0.1 web/网关".to_owned()],
        outcome: String::new(),
    }
}

async fn everything(store: &dyn Store) -> Vec<AuditEntry> {
    store.audit(&AuditQuery { limit: u32::MAX, ..AuditQuery::default() }).await.unwrap()
}

pub async fn an_entry_is_read_back_exactly_with_its_number_and_time(store: Arc<dyn Store>) {
    let bare = AuditDraft {
        phase: AuditPhase::Ended,
        of: Some(1),
        remote: None,
        classes: [].into_iter().collect(),
        targets: Vec::new(),
        ..draft("b")
    };

    let first = store.append_audit(draft("a"), 7).await.unwrap();
    let second = store.append_audit(bare.clone(), 8).await.unwrap();

    let entries = everything(&*store).await;
    assert_eq!((first, second), (1, 2));
    assert_eq!((entries[0].seq, entries[0].at, &entries[0].draft), (1, 7, &draft("a")));
    assert_eq!((entries[1].seq, entries[1].at, &entries[1].draft), (2, 8, &bare));
}

pub async fn entries_that_come_at_once_make_one_chain(store: Arc<dyn Store>) {
    let mut writers = JoinSet::new();
    for number in 0..50 {
        let store = Arc::clone(&store);
        writers.spawn(async move { store.append_audit(draft(&format!("action {number}")), number).await.unwrap() });
    }
    let mut seqs = writers.join_all().await;

    let entries = everything(&*store).await;

    seqs.sort_unstable();
    assert_eq!(seqs, (1..=50).collect::<Vec<_>>());
    assert_eq!(entries.len(), 50);
    assert_eq!(verify(&entries), Ok(()));
}

pub async fn a_long_entry_is_cut_and_its_count_is_kept(store: Arc<dyn Store>) {
    let long = AuditDraft { targets: vec!["host".to_owned(); AUDIT_TARGETS_MAX + 5], ..draft("a") };

    store.append_audit(long, 1).await.unwrap();

    let entries = everything(&*store).await;
    assert_eq!(entries[0].draft.targets.len(), AUDIT_TARGETS_MAX);
    assert_eq!(entries[0].draft.target_count, 40_000);
    assert_eq!(verify(&entries), Ok(()));
}

pub async fn entries_are_narrowed_by_every_field_of_the_query(store: Arc<dyn Store>) {
    let drafts = [
        draft("a"),
        AuditDraft { app: "other".to_owned(), ..draft("a") },
        AuditDraft { user: "other".to_owned(), ..draft("a") },
        draft("b"),
        draft("a"),
    ];
    for (at, draft) in (10..).zip(drafts) {
        store.append_audit(draft, at).await.unwrap();
    }
    let all = || AuditQuery { limit: 100, ..AuditQuery::default() };
    let text = |text: &str| Some(text.to_owned());

    for (query, expected) in [
        (all(), vec![1, 2, 3, 4, 5]),
        (AuditQuery { after: 3, ..all() }, vec![4, 5]),
        (AuditQuery { limit: 2, ..all() }, vec![1, 2]),
        (AuditQuery { limit: 2, newest: true, ..all() }, vec![4, 5]),
        (AuditQuery { limit: 2, newest: true, before: Some(4), ..all() }, vec![2, 3]),
        (AuditQuery { before: Some(3), ..all() }, vec![1, 2]),
        (AuditQuery { limit: 0, ..all() }, vec![]),
        (AuditQuery { app: text("job"), ..all() }, vec![1, 3, 4, 5]),
        (AuditQuery { user: text("other"), ..all() }, vec![3]),
        (AuditQuery { action: text("a"), ..all() }, vec![1, 2, 3, 5]),
        (AuditQuery { since: Some(11), until: Some(13), ..all() }, vec![2, 3]),
        (AuditQuery { after: 1, app: text("job"), action: text("a"), ..all() }, vec![3, 5]),
    ] {
        let found: Vec<_> = store.audit(&query).await.unwrap().into_iter().map(|entry| entry.seq).collect();
        assert_eq!(found, expected, "{query:?}");
    }
}
