//! Events of agents and of the server.

use std::num::NonZeroU32;
use std::sync::Arc;

use proctor_model::{Event, EventKind, Message};

use super::{agent, enrol, host, key, opening, prune, registration};
use crate::{EventCountQuery, EventPage, EventQuery, Prune, RegisterMode, Registration, Store, StoredEvent};

pub(super) fn event(sequence: u64, kind: EventKind, process: Option<&str>) -> Event {
    Event {
        sequence,
        at: 1_000 + i64::try_from(sequence).unwrap(),
        process: process.map(key),
        proc_name: "nginx".to_owned(),
        report_id: None,
        kind,
        content: Message::foreign(format!("event {sequence} \u{7f51}")),
        details: [("pid".to_owned(), sequence.to_string())].into(),
    }
}

pub(super) fn exits(sequences: impl IntoIterator<Item = u64>) -> Vec<Event> {
    sequences.into_iter().map(|sequence| event(sequence, EventKind::Exited, Some("web/a"))).collect()
}

/// A session of an agent that has the processes of these tests.
async fn open(store: &dyn Store, number: usize) -> u64 {
    let processes = ["web/a", "web/b", "db/a", "db/b"].map(|process| registration(number, process, "nginx"));
    store.register(&processes, RegisterMode::Upsert, 1).await.unwrap();
    store.open_session(&opening(number), 0).await.unwrap().unwrap()
}

/// A process whose spec has a report id.
fn reporting(number: usize, process: &str, report_id: i64) -> Registration {
    let mut registration = registration(number, process, "nginx");
    Arc::make_mut(&mut registration.spec).report_id = Some(report_id);
    registration
}

async fn read(store: &dyn Store, query: EventQuery) -> EventPage {
    store.events(&EventQuery { limit: 1000, ..query }).await.unwrap()
}

async fn all(store: &dyn Store) -> Vec<StoredEvent> {
    read(store, EventQuery { after: Some(0), ..EventQuery::default() }).await.events
}

pub(super) fn sequences(events: &[StoredEvent]) -> Vec<u64> {
    events.iter().map(|stored| stored.event.sequence).collect()
}

pub async fn events_are_read_back_in_order_with_their_host_and_time(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    let mut events = vec![event(5, EventKind::PoolLimitExceeded, Some("web/a")), event(9, EventKind::FdWarning, None)];
    events[0].report_id = Some(-3);
    store.register(&[reporting(0, "web/a", -3)], RegisterMode::Upsert, 1).await.unwrap();

    let highest = store.append_events(&agent(0), epoch, &events, 77).await.unwrap();

    let stored = all(&*store).await;
    assert_eq!(highest, 9);
    assert_eq!(stored.iter().map(|stored| stored.event.clone()).collect::<Vec<_>>(), events);
    assert!(stored.iter().all(|stored| (stored.host, &stored.agent, stored.stored_at) == (host(0), &agent(0), 77)));
    assert!(0 < stored[0].id && stored[0].id < stored[1].id);
}

pub async fn an_event_about_a_process_that_the_host_does_not_have_is_about_the_host_alone(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let epoch = open(&*store, 0).await;
    let others = [reporting(0, "web/gone", 9), reporting(0, "web/a", 9), reporting(1, "other/a", 9)];
    store.register(&others, RegisterMode::Upsert, 1).await.unwrap();
    store.unregister(&[(agent(0), key("web/gone"))], 2).await.unwrap();
    let events = ["web/a#2", "web/gone", "other/a"].map(|process| event(1, EventKind::Exited, Some(process)));
    let events = [1, 2, 3].into_iter().zip(events);
    let events: Vec<_> = events.map(|(sequence, event)| Event { sequence, report_id: Some(9), ..event }).collect();

    store.append_events(&agent(0), epoch, &events, 1).await.unwrap();

    let any = || EventQuery { after: Some(0), ..EventQuery::default() };
    let other = read(&*store, EventQuery { namespace: Some("other".parse().unwrap()), ..any() }).await.events;
    let reported = read(&*store, EventQuery { report_id: Some(9), ..any() }).await.events;
    let stored = all(&*store).await;
    assert_eq!((sequences(&other), sequences(&reported)), (vec![], vec![1, 2]));
    assert_eq!(stored[..2].iter().map(|stored| stored.event.clone()).collect::<Vec<_>>(), events[..2]);
    let claimed = &stored[2].event;
    assert_eq!((&claimed.process, claimed.report_id, claimed.proc_name.as_str()), (&None, None, ""));
    assert_eq!((claimed.content.as_str(), claimed.details["process"].as_str()), ("event 1 \u{7f51}", "other/a"));
}

pub async fn an_event_has_only_a_report_id_that_its_process_has_or_had(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let epoch = open(&*store, 0).await;
    for registration in [reporting(0, "web/a", 7), reporting(0, "web/a", 8), reporting(1, "web/a", 9)] {
        store.register(&[registration], RegisterMode::Upsert, 1).await.unwrap();
    }
    let claims = [None, Some(7), Some(8), Some(9)].into_iter().zip(exits(1..=4));
    let mut events: Vec<_> = claims.map(|(report_id, event)| Event { report_id, ..event }).collect();
    events.push(Event { report_id: Some(9), ..event(5, EventKind::FdWarning, None) });

    store.append_events(&agent(0), epoch, &events, 1).await.unwrap();

    let stored = all(&*store).await;
    let kept: Vec<_> = stored.iter().map(|stored| stored.event.report_id).collect();
    assert_eq!(kept, [None, Some(7), Some(8), None, None]);
    assert_eq!(stored[3].event.process, Some(key("web/a")));
}

pub async fn an_event_that_comes_again_is_kept_once(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;

    let first = store.append_events(&agent(0), epoch, &exits([1, 2]), 1).await.unwrap();
    let again = store.append_events(&agent(0), epoch, &exits([2, 1]), 2).await.unwrap();
    let more = store.append_events(&agent(0), epoch, &exits([4, 2, 3, 4]), 3).await.unwrap();
    let nothing = store.append_events(&agent(0), epoch, &[], 3).await.unwrap();

    assert_eq!((first, again, more, nothing), (2, 2, 4, 4));
    assert_eq!(sequences(&all(&*store).await), [1, 2, 3, 4]);
}

pub async fn what_was_seen_stays_seen_after_it_is_forgotten(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    store.append_events(&agent(0), epoch, &exits([1, 2]), 1).await.unwrap();
    prune(&*store, Prune::Events { before: 0, keep: 0 }).await;

    let highest = store.append_events(&agent(0), epoch, &exits([1, 2, 3]), 200).await.unwrap();

    assert_eq!(highest, 3);
    assert_eq!(sequences(&all(&*store).await), [3]);
}

pub async fn events_of_an_older_epoch_and_of_unbound_agents_are_dropped(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let older = open(&*store, 0).await;
    let newer = open(&*store, 0).await;

    let stale = store.append_events(&agent(0), older, &exits([1, 2]), 1).await.unwrap();
    let current = store.append_events(&agent(0), newer, &exits([1]), 1).await.unwrap();
    let unbound = store.append_events(&agent(9), 1, &exits([1]), 1).await.unwrap();

    assert_eq!((stale, current, unbound), (0, 1, 0));
    assert_eq!(all(&*store).await.len(), 1);
}

pub async fn each_agent_has_numbers_of_its_own(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    for number in [0, 1] {
        let epoch = open(&*store, number).await;
        store.append_events(&agent(number), epoch, &exits([1]), 1).await.unwrap();
    }

    let agents: Vec<_> = all(&*store).await.into_iter().map(|stored| stored.agent).collect();

    assert_eq!(agents, [agent(0), agent(1)]);
}

pub async fn events_of_the_server_are_kept_beside_those_of_the_agent(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    let online = event(77, EventKind::AgentOnline, None);

    let made = [(agent(0), online.clone()), (agent(9), online.clone()), (agent(0), online)];
    let kept = store.append_server_events(&made, 1).await.unwrap();
    let highest = store.append_events(&agent(0), epoch, &exits([1]), 3).await.unwrap();

    assert_eq!((kept, highest), (2, 1), "agent 9 is bound to no host");
    assert_eq!(sequences(&all(&*store).await), [0, 0, 1]);
}

pub async fn events_are_narrowed_by_every_field_of_the_query(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let epoch = open(&*store, 0).await;
    let mut reported = event(4, EventKind::Started, Some("web/b"));
    reported.report_id = Some(9);
    store.register(&[reporting(0, "web/b", 9)], RegisterMode::Upsert, 1).await.unwrap();
    let events = [
        event(1, EventKind::Exited, Some("web/a")),
        event(2, EventKind::Started, Some("db/a")),
        event(3, EventKind::FdWarning, None),
        reported,
    ];
    store.append_events(&agent(0), epoch, &events, 1).await.unwrap();
    let epoch = open(&*store, 1).await;
    store.append_events(&agent(1), epoch, &[event(5, EventKind::Adopted, Some("web/a"))], 1).await.unwrap();

    let any = || EventQuery { after: Some(0), ..EventQuery::default() };
    let web = Some("web".parse().unwrap());
    let cases = [
        (any(), vec![1, 2, 3, 4, 5]),
        (EventQuery { namespace: web.clone(), ..any() }, vec![1, 4, 5]),
        (EventQuery { name: Some("a".parse().unwrap()), ..any() }, vec![1, 2, 5]),
        (EventQuery { namespace: web, name: Some("a".parse().unwrap()), ..any() }, vec![1, 5]),
        (EventQuery { agent: Some(agent(1)), ..any() }, vec![5]),
        (EventQuery { report_id: Some(9), ..any() }, vec![4]),
        (EventQuery { kinds: vec![EventKind::Exited, EventKind::FdWarning], ..any() }, vec![1, 3]),
        (EventQuery { kinds: vec![EventKind::AgentOffline], ..any() }, vec![]),
    ];
    for (query, expected) in cases {
        assert_eq!(sequences(&read(&*store, query.clone()).await.events), expected, "{query:?}");
    }
}

pub async fn a_page_says_where_to_go_on_past_what_does_not_match(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    let events = [exits([1, 2, 3]), vec![event(4, EventKind::Started, None)]].concat();
    store.append_events(&agent(0), epoch, &events, 1).await.unwrap();
    let exits = |after, limit| EventQuery {
        after: Some(after),
        kinds: vec![EventKind::Exited],
        limit,
        ..EventQuery::default()
    };

    let first = store.events(&exits(0, 2)).await.unwrap();
    let second = store.events(&exits(first.next, 2)).await.unwrap();
    let third = store.events(&exits(second.next, 2)).await.unwrap();

    assert_eq!((sequences(&first.events), first.next), (vec![1, 2], first.events[1].id));
    let newest = all(&*store).await[3].id;
    assert_eq!((sequences(&second.events), second.next), (vec![3], newest));
    assert_eq!((third.events.len(), third.next), (0, newest));
    assert_eq!(store.events(&exits(newest + 50, 2)).await.unwrap().next, newest + 50, "never back");
}

pub async fn without_a_cursor_the_newest_are_read(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    store.append_events(&agent(0), epoch, &exits(1..=5), 1).await.unwrap();

    let newest = store.events(&EventQuery { limit: 2, ..EventQuery::default() }).await.unwrap();
    let end = store.events(&EventQuery::default()).await.unwrap();

    assert_eq!((sequences(&newest.events), newest.next), (vec![4, 5], newest.events[1].id));
    assert_eq!((end.events.len(), end.next), (0, newest.next));
}

pub async fn events_are_read_backwards_from_an_id(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    store.append_events(&agent(0), epoch, &exits(1..=3), 10).await.unwrap();
    store.append_events(&agent(0), epoch, &exits(4..=5), 20).await.unwrap();
    let last = all(&*store).await[4].id;
    let before = |id, limit| EventQuery { before: Some(id), limit, ..EventQuery::default() };

    let page = store.events(&before(last, 2)).await.unwrap();
    let rest = store.events(&before(page.events[0].id, 9)).await.unwrap();
    let late = store.events(&EventQuery { since: Some(20), limit: 9, ..EventQuery::default() }).await.unwrap();
    let early = store.events(&EventQuery { until: Some(20), ..before(last, 1) }).await.unwrap();

    assert_eq!((sequences(&page.events), sequences(&rest.events)), (vec![3, 4], vec![1, 2]));
    assert_eq!((sequences(&late.events), sequences(&early.events)), (vec![4, 5], vec![3]));
}

pub async fn events_are_counted_in_steps_of_time(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let epoch = open(&*store, 0).await;
    for (at, events) in [
        (99, exits([1])),
        (100, exits([2, 3])),
        (129, vec![event(4, EventKind::Started, Some("db/b"))]),
        (130, exits([5])),
    ] {
        store.append_events(&agent(0), epoch, &events, at).await.unwrap();
    }
    let count = async |which: EventQuery| {
        let query = EventCountQuery { which, from: 100, step_ms: NonZeroU32::new(10).unwrap(), steps: 3 };
        store.count_events(&query).await.unwrap()
    };

    let all = count(EventQuery::default()).await;
    let started = count(EventQuery { kinds: vec![EventKind::Started], ..EventQuery::default() }).await;
    let db = count(EventQuery { namespace: Some("db".parse().unwrap()), ..EventQuery::default() }).await;
    let other = count(EventQuery { agent: Some(agent(1)), ..EventQuery::default() }).await;

    let series = |kind: &str, steps: [u64; 3]| (kind.to_owned(), steps.to_vec());
    assert_eq!(all, [series("exited", [2, 0, 0]), series("started", [0, 0, 1])].into());
    assert_eq!((started, db), ([series("started", [0, 0, 1])].into(), [series("started", [0, 0, 1])].into()));
    assert!(other.is_empty());
}

pub async fn ids_are_not_given_out_again_after_everything_was_forgotten(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    store.append_events(&agent(0), epoch, &exits([1, 2]), 1).await.unwrap();
    let before = all(&*store).await[1].id;
    prune(&*store, Prune::Events { before: 0, keep: 0 }).await;
    let empty = read(&*store, EventQuery { after: Some(0), ..EventQuery::default() }).await;

    store.append_events(&agent(0), epoch, &exits([3]), 200).await.unwrap();

    assert_eq!((empty.events.len(), empty.next), (0, before));
    assert!(all(&*store).await[0].id > before);
}
