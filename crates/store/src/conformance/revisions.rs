//! The revisions of a process.

use std::sync::Arc;

use super::tasks::task;
use super::{agent, enrol, key, registration, spec};
use crate::{Millis, RegisterMode, Registered, SpecRevision, Store};

async fn register(store: &dyn Store, proc_name: &str, now: Millis) -> u64 {
    let answers = store.register(&[registration(0, "web/a", proc_name)], RegisterMode::Upsert, now).await.unwrap();
    match answers[..] {
        [Registered::Stored { generation }] => generation,
        _ => panic!("{answers:?}"),
    }
}

async fn history(store: &dyn Store, limit: u32) -> Vec<SpecRevision> {
    store.spec_history(&agent(0), &key("web/a"), limit).await.unwrap()
}

pub async fn every_change_of_a_spec_is_a_revision_newest_first(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let one = register(&*store, "one", 10).await;
    let two = register(&*store, "two", 20).await;
    register(&*store, "two", 30).await;
    store.unregister(&[(agent(0), key("web/a"))], 40).await.unwrap();
    let again = register(&*store, "one", 50).await;

    let revisions = history(&*store, 99).await;

    let revision = |generation, spec, at| SpecRevision { generation, spec, at };
    assert_eq!(
        revisions,
        [
            revision(again, Some(spec("one")), 50),
            revision(two + 1, None, 40),
            revision(two, Some(spec("two")), 20),
            revision(one, Some(spec("one")), 10),
        ]
    );
    assert_eq!(history(&*store, 2).await, revisions[..2]);
}

pub async fn a_task_that_registers_makes_a_revision(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    register(&*store, "one", 10).await;
    let mut new = task(1, 20, 1);
    new.items[0].register = true;

    store.create_task(new).await.unwrap();

    let revisions = history(&*store, 99).await;
    assert_eq!(revisions.iter().map(|revision| revision.at).collect::<Vec<_>>(), [20, 10]);
    assert_eq!(revisions[0].spec, Some(spec("a")));
}

pub async fn the_last_twenty_revisions_are_kept(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    for number in 1..=45 {
        register(&*store, &format!("p{number}"), number).await;
    }

    let revisions = history(&*store, 99).await;

    let times: Vec<_> = revisions.iter().map(|revision| revision.at).collect();
    assert_eq!(times, (26..=45).rev().collect::<Vec<_>>());
    assert_eq!(revisions[19].spec, Some(spec("p26")));
}

pub async fn what_was_never_registered_has_no_history(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    register(&*store, "one", 10).await;

    assert!(store.spec_history(&agent(0), &key("web/b"), 9).await.unwrap().is_empty());
    assert!(store.spec_history(&agent(1), &key("web/a"), 9).await.unwrap().is_empty());
    assert!(store.spec_history(&agent(9), &key("web/a"), 9).await.unwrap().is_empty());
}
