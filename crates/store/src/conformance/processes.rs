//! Registrations, assignments and observations.

use std::sync::Arc;

use proctor_model::{HostKey, Phase, Snapshot, Usage};

use super::{agent, enrol, enrolment, host, key, opening, registration, spec};
use crate::{Managed, Observation, ProcessQuery, ProcessRecord, RegisterMode, Registered, Store};

/// Registers one process and returns its generation.
async fn upsert(store: &dyn Store, number: usize, process: &str, proc_name: &str) -> u64 {
    let answers = store.register(&[registration(number, process, proc_name)], RegisterMode::Upsert, 1).await.unwrap();
    match answers[..] {
        [Registered::Stored { generation }] => generation,
        _ => panic!("{answers:?}"),
    }
}

async fn all(store: &dyn Store) -> Vec<ProcessRecord> {
    store.processes(&ProcessQuery::default()).await.unwrap().1
}

async fn open(store: &dyn Store, number: usize) -> u64 {
    store.open_session(&opening(number), 1).await.unwrap().unwrap()
}

fn observation(process: &str, pid: i32) -> Observation {
    let usage = Usage { cpu_percent: 100.0 / 7.0, memory_percent: 0.1 + 0.2, ..Usage::default() };
    let snapshot = Snapshot { phase: Phase::Running, managed: true, pid: Some(pid), usage, ..Snapshot::default() };
    Observation { key: key(process), snapshot }
}

pub async fn the_last_observations_of_an_agent_are_read_as_they_were_made(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let (epoch, other) = (open(&*store, 0).await, open(&*store, 1).await);
    for process in ["web/a", "web/b", "web/c"] {
        upsert(&*store, 0, process, "one").await;
    }
    upsert(&*store, 1, "web/a", "one").await;
    let seen = |pids: [i32; 2]| vec![observation("web/a", pids[0]), observation("web/b", pids[1])];
    store.observe(&agent(0), epoch, &seen([1, 2])).await.unwrap();
    store.observe(&agent(0), epoch, &seen([3, 4])).await.unwrap();
    store.observe(&agent(1), other, &[observation("web/a", 9)]).await.unwrap();

    assert_eq!(store.observations(&agent(0)).await.unwrap(), seen([3, 4]), "web/c was never seen");
    store.unregister(&[(agent(0), key("web/b"))], 5).await.unwrap();
    let managed = Managed { agent: agent(0), epoch, key: key("web/a"), managed: false };
    store.keep_managed(&[managed]).await.unwrap();

    let mut left = seen([3, 4]);
    left.truncate(1);
    left[0].snapshot.managed = false;
    assert_eq!(store.observations(&agent(0)).await.unwrap(), left);
    assert!(store.observations(&agent(7)).await.unwrap().is_empty());
}

pub async fn creating_twice_says_exists_and_changes_nothing(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.register(&[registration(0, "web/a", "one")], RegisterMode::Create, 1).await.unwrap();
    let before = all(&*store).await;

    let answers = store.register(&[registration(0, "web/a", "two")], RegisterMode::Create, 2).await.unwrap();

    assert_eq!(answers, [Registered::Exists]);
    assert_eq!(before[0].spec, spec("one"));
    assert_eq!(before[0].registered_at, 1);
    assert_eq!(all(&*store).await, before);
}

pub async fn an_upsert_with_an_equal_spec_changes_nothing(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let generation = upsert(&*store, 0, "web/a", "one").await;
    let before = all(&*store).await;

    let answers = store.register(&[registration(0, "web/a", "one")], RegisterMode::Upsert, 9).await.unwrap();

    assert_eq!(answers, [Registered::Stored { generation }]);
    assert_eq!(all(&*store).await, before);
    assert!(store.assignments(&agent(0), generation).await.unwrap().processes.is_empty());
}

pub async fn an_upsert_with_another_spec_raises_the_generation_and_keeps_the_rest(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    let first = upsert(&*store, 0, "web/a", "one").await;
    store.observe(&agent(0), epoch, &[observation("web/a", 1)]).await.unwrap();
    let before = all(&*store).await.remove(0);

    let answers = store.register(&[registration(0, "web/a", "two")], RegisterMode::Upsert, 9).await.unwrap();

    let Registered::Stored { generation } = answers[0] else { panic!("{answers:?}") };
    assert!(generation > first);
    assert_eq!(all(&*store).await, [ProcessRecord { spec: spec("two"), generation, ..before }]);
}

pub async fn a_registration_for_an_unbound_agent_has_no_host(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;

    let answers = store.register(&[registration(9, "web/a", "one")], RegisterMode::Upsert, 1).await.unwrap();

    assert_eq!(answers, [Registered::NoHost]);
    assert!(all(&*store).await.is_empty());
}

pub async fn answers_come_in_the_order_of_the_registrations(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let existing = upsert(&*store, 0, "web/b", "one").await;
    let registrations = [
        registration(0, "web/a", "one"),
        registration(9, "web/a", "one"),
        registration(0, "web/b", "one"),
        registration(0, "web/a", "two"),
    ];

    let answers = store.register(&registrations, RegisterMode::Create, 1).await.unwrap();

    let [Registered::Stored { generation }, rest @ ..] = &answers[..] else { panic!("{answers:?}") };
    assert!(*generation > existing);
    assert_eq!(rest, [Registered::NoHost, Registered::Exists, Registered::Exists]);
}

pub async fn thousands_of_registrations_are_made_at_once(store: Arc<dyn Store>) {
    enrol(&*store, 3).await;
    let before = upsert(&*store, 0, "web/a", "one").await;
    let numbers = [0, 1, 2, 9].repeat(500);
    let wanted: Vec<_> = numbers.iter().map(|number| registration(*number, "web/a", "two")).collect();

    let answers = store.register(&wanted, RegisterMode::Upsert, 2).await.unwrap();

    let first = &answers[..4];
    assert!(matches!(first[0], Registered::Stored { generation } if generation > before));
    assert!(matches!(first[1..], [Registered::Stored { .. }, Registered::Stored { .. }, Registered::NoHost]));
    assert_eq!(answers, first.repeat(500));
    let specs: Vec<_> = all(&*store).await.into_iter().map(|record| record.spec).collect();
    assert_eq!(specs, [spec("two"), spec("two"), spec("two")]);
    assert_eq!(store.spec_history(&agent(0), &key("web/a"), 9).await.unwrap().len(), 2);
}

pub async fn a_process_that_is_named_twice_on_a_host_is_changed_twice(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let wanted = [
        registration(1, "web/a", "one"),
        registration(0, "web/a", "one"),
        registration(1, "web/b", "one"),
        registration(0, "web/a", "two"),
    ];

    let answers = store.register(&wanted, RegisterMode::Upsert, 2).await.unwrap();

    let generations = answers.iter().map(|answer| match answer {
        Registered::Stored { generation } => *generation,
        Registered::Exists | Registered::NoHost => panic!("{answers:?}"),
    });
    let generations: Vec<_> = generations.collect();
    assert!(generations[3] > generations[1], "{generations:?}");
    assert_eq!(generations.iter().collect::<std::collections::HashSet<_>>().len(), 4);
    let history = store.spec_history(&agent(0), &key("web/a"), 9).await.unwrap();
    let seen: Vec<_> = history.into_iter().map(|revision| (revision.generation, revision.spec)).collect();
    assert_eq!(seen, [(generations[3], Some(spec("two"))), (generations[1], Some(spec("one")))]);
    let told = store.assignments(&agent(1), 0).await.unwrap().processes;
    assert!(told.iter().map(|told| told.generation).all(|generation| generations.contains(&generation)));
}

pub async fn generations_rise_on_every_host(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let a = upsert(&*store, 0, "web/a", "one").await;
    let b = upsert(&*store, 0, "web/b", "one").await;

    let elsewhere = upsert(&*store, 1, "web/a", "one").await;

    let again = upsert(&*store, 0, "web/a", "two").await;
    assert!(0 < a && a < b && b < again);
    assert!(0 < elsewhere);
}

pub async fn unregistering_twice_is_true_then_false(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    upsert(&*store, 0, "web/a", "one").await;
    let process = (agent(0), key("web/a"));
    let unknown = [(agent(0), key("web/b")), (agent(9), key("web/a"))];

    let first = store.unregister(std::slice::from_ref(&process), 2).await.unwrap();
    let second = store.unregister(&[process], 3).await.unwrap();

    assert_eq!((first, second), (vec![true], vec![false]));
    assert_eq!(store.unregister(&unknown, 3).await.unwrap(), [false, false]);
    assert!(all(&*store).await.is_empty());
}

pub async fn assignments_are_what_changed_after_a_generation_with_tombstones(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let a = upsert(&*store, 0, "web/a", "one").await;
    let b = upsert(&*store, 0, "web/b", "one").await;
    upsert(&*store, 0, "web/c", "one").await;
    upsert(&*store, 1, "web/d", "one").await;
    store.unregister(&[(agent(0), key("web/a"))], 2).await.unwrap();

    let since_a = store.assignments(&agent(0), a).await.unwrap().processes;
    let since_b = store.assignments(&agent(0), b).await.unwrap().processes;

    let names: Vec<_> = since_a.iter().map(|one| (one.key.name.as_str(), one.spec.clone())).collect();
    assert_eq!(names, [("b", Some(spec("one"))), ("c", Some(spec("one"))), ("a", None)]);
    assert!(since_a.is_sorted_by(|left, right| left.generation < right.generation));
    assert_eq!(since_b, since_a[1..]);
    assert!(store.assignments(&agent(0), since_a[2].generation).await.unwrap().processes.is_empty());
}

pub async fn assignments_of_many_agents_come_in_the_order_of_the_question_and_share_equal_specs(store: Arc<dyn Store>) {
    enrol(&*store, 3).await;
    let seen = upsert(&*store, 0, "web/a", "one").await;
    upsert(&*store, 1, "web/a", "one").await;
    upsert(&*store, 2, "web/a", "one").await;

    let of = [(2, 0), (0, seen), (9, 0), (1, 0)];
    let read = store.assignments_of(of.map(|(number, since)| (agent(number), since)).to_vec()).await.unwrap();

    let counts: Vec<_> = read.iter().map(|assignments| assignments.processes.len()).collect();
    assert_eq!(counts, [1, 0, 0, 1]);
    let [first, last] = [0, 3].map(|index: usize| read[index].processes[0].spec.as_ref().unwrap());
    assert!(Arc::ptr_eq(first, last), "it is read and written once");
    assert!(store.assignments_of(Vec::new()).await.unwrap().is_empty());
}

pub async fn from_nothing_there_are_no_tombstones(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    upsert(&*store, 0, "web/a", "one").await;
    upsert(&*store, 0, "web/b", "one").await;
    store.unregister(&[(agent(0), key("web/a"))], 2).await.unwrap();

    let assignments = store.assignments(&agent(0), 0).await.unwrap().processes;

    assert_eq!(assignments.len(), 1);
    assert_eq!((&assignments[0].key, assignments[0].registered_at), (&key("web/b"), 1));
    assert!(!assignments[0].managed);
}

pub async fn a_process_can_be_registered_again_after_its_tombstone(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    upsert(&*store, 0, "web/a", "one").await;
    store.observe(&agent(0), epoch, &[observation("web/a", 1)]).await.unwrap();
    store.unregister(&[(agent(0), key("web/a"))], 2).await.unwrap();
    let tombstone = store.assignments(&agent(0), 1).await.unwrap().processes.remove(0);

    let answers = store.register(&[registration(0, "web/a", "one")], RegisterMode::Create, 9).await.unwrap();

    let Registered::Stored { generation } = answers[0] else { panic!("{answers:?}") };
    assert!(generation > tombstone.generation);
    let record = all(&*store).await.remove(0);
    assert_eq!((record.registered_at, record.snapshot), (9, None));
    assert!(!store.assignments(&agent(0), 0).await.unwrap().processes[0].managed);
}

pub async fn an_observation_is_kept_exactly_and_says_whether_it_is_managed(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let generation = upsert(&*store, 0, "web/a", "one").await;
    let epoch = open(&*store, 0).await;

    let both = [observation("web/a", 1), observation("web/a", 2)];
    assert_eq!(store.observe(&agent(0), epoch, &both).await.unwrap(), [true, true]);

    let record = all(&*store).await.remove(0);
    assert_eq!(record.snapshot, Some(observation("web/a", 2).snapshot));
    assert_eq!((record.generation, record.online, record.host), (generation, true, host(0)));
    assert!(store.assignments(&agent(0), 0).await.unwrap().processes[0].managed);
}

pub async fn who_is_managed_when_an_operation_ends_is_kept(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    upsert(&*store, 0, "web/a", "one").await;
    let older = open(&*store, 0).await;
    let epoch = open(&*store, 0).await;
    let said = |epoch, name: &str, managed| Managed { agent: agent(0), epoch, key: name.parse().unwrap(), managed };
    let is_managed = || async { store.assignments(&agent(0), 0).await.unwrap().processes[0].managed };

    store.keep_managed(&[said(epoch, "web/a", true), said(epoch, "web/none", true)]).await.unwrap();
    assert!(is_managed().await);
    store.keep_managed(&[said(older, "web/a", false)]).await.unwrap();
    assert!(is_managed().await, "of an older session");
    store.keep_managed(&[said(epoch, "web/a", false)]).await.unwrap();

    assert!(!is_managed().await);
    assert_eq!(all(&*store).await.len(), 1, "nothing is registered by it");
}

pub async fn observations_of_an_older_epoch_are_dropped(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    upsert(&*store, 0, "web/a", "one").await;
    let older = open(&*store, 0).await;
    let newer = open(&*store, 0).await;
    store.observe(&agent(0), newer, &[observation("web/a", 2)]).await.unwrap();

    let is_kept = store.observe(&agent(0), older, &[observation("web/a", 1)]).await.unwrap();

    assert_eq!(is_kept, [false]);
    assert_eq!(all(&*store).await[0].snapshot.as_ref().unwrap().pid, Some(2));
}

pub async fn observations_of_unregistered_processes_are_dropped(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    upsert(&*store, 0, "web/a", "one").await;
    store.unregister(&[(agent(0), key("web/a"))], 2).await.unwrap();

    let observations = [observation("web/a", 1), observation("web/b", 1)];
    assert_eq!(store.observe(&agent(0), epoch, &observations).await.unwrap(), [false, false]);
    assert_eq!(store.observe(&agent(9), epoch, &observations).await.unwrap(), [false, false]);

    assert!(all(&*store).await.is_empty());
    assert!(!store.assignments(&agent(0), 1).await.unwrap().processes[0].managed);
}

pub async fn a_reading_that_is_no_number_does_no_harm(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = open(&*store, 0).await;
    upsert(&*store, 0, "web/a", "one").await;
    let mut odd = observation("web/a", 1);
    odd.snapshot.usage.cpu_percent = f64::NAN;
    odd.snapshot.usage.memory_percent = f64::INFINITY;

    store.observe(&agent(0), epoch, &[odd]).await.unwrap();

    let usage = all(&*store).await.remove(0).snapshot.unwrap().usage;
    assert_eq!((usage.cpu_percent, usage.memory_percent), (0.0, 0.0));
}

pub async fn processes_are_sorted_by_namespace_name_cloud_and_ip_as_bytes(store: Arc<dyn Store>) {
    enrol(&*store, 0).await;
    for (number, cloud, ip) in [(0, 10, "10.0.0.9"), (1, 2, "10.0.0.9"), (2, 2, "10.0.0.10")] {
        let mut enrolment = enrolment("fixture", number);
        enrolment.host = HostKey::new(cloud, 4, ip.parse().unwrap());
        store.enrol(enrolment, 0).await.unwrap().unwrap();
        for process in ["b/a", "a/b", "a/B"] {
            upsert(&*store, number, process, "one").await;
        }
    }

    let records = all(&*store).await;

    let sorted: Vec<_> = records.iter().map(|record| format!("{} {}", record.key, record.host)).collect();
    let hosts = ["2:10.0.0.10", "2:10.0.0.9", "10:10.0.0.9"];
    let expected: Vec<_> = ["a/B", "a/b", "b/a"]
        .iter()
        .flat_map(|process| hosts.iter().map(move |host| format!("{process} {host}")))
        .collect();
    assert_eq!(sorted, expected);
    assert!(records.iter().all(|record| record.host.supplier == 4));
}

pub async fn processes_are_narrowed_by_every_field_of_the_query(store: Arc<dyn Store>) {
    enrol(&*store, 3).await;
    for number in 0..3 {
        for process in ["web/a", "web/b", "db/a"] {
            upsert(&*store, number, process, "one").await;
        }
    }
    let web = ProcessQuery { namespace: Some("web".parse().unwrap()), ..ProcessQuery::default() };
    let a = ProcessQuery { name: Some("a".parse().unwrap()), ..ProcessQuery::default() };
    let some = ProcessQuery { agents: Some(vec![agent(2), agent(1), agent(9)]), ..ProcessQuery::default() };
    let nobody = ProcessQuery { agents: Some(Vec::new()), ..ProcessQuery::default() };
    let every = ProcessQuery { name: a.name.clone(), agents: some.agents.clone(), ..web.clone() };

    for (query, expected) in [(web, 6), (a, 6), (some, 6), (nobody, 0), (every, 2)] {
        let (total, records) = store.processes(&query).await.unwrap();
        assert_eq!((total, records.len()), (expected, usize::try_from(expected).unwrap()), "{query:?}");
    }
}

pub async fn a_page_comes_with_the_number_before_paging(store: Arc<dyn Store>) {
    enrol(&*store, 5).await;
    for number in 0..5 {
        upsert(&*store, number, "web/a", "one").await;
    }
    let everything = all(&*store).await;

    let page = |offset, limit| ProcessQuery { offset, limit, ..ProcessQuery::default() };

    for (offset, limit, range) in [
        (0, Some(2), 0..2),
        (2, Some(2), 2..4),
        (4, Some(2), 4..5),
        (9, Some(2), 5..5),
        (3, None, 3..5),
        (0, Some(0), 0..0),
    ] {
        let (total, records) = store.processes(&page(offset, limit)).await.unwrap();
        assert_eq!(total, 5);
        assert_eq!(records, everything[range]);
    }
    let far = page(u64::MAX, Some(u64::MAX));
    assert_eq!(store.processes(&far).await.unwrap(), (5, Vec::new()));
}
