//! Narrowing and paging the list of processes.

use std::sync::Arc;

use proctor_model::{HostKey, Phase, ScopeSet, Snapshot};

use super::{agent, business, enrol, enrolment, host, key, opening, registration, spec};
use crate::{LabelTerm, Observation, ProcessQuery, RegisterMode, Registration, Store};

/// The processes that match, as `process host`.
async fn found(store: &dyn Store, query: &ProcessQuery) -> Vec<String> {
    let (total, records) = store.processes(query).await.unwrap();
    assert_eq!(total, records.len() as u64, "{query:?}");
    records.into_iter().map(|record| format!("{} {}", record.key, record.host)).collect()
}

/// Three hosts, 0 and 1 of them in businesses 1 and 2, with `web/a` and `db/a` on each.
async fn fleet(store: &dyn Store) {
    enrol(store, 3).await;
    for id in [1, 2] {
        store.put_business(business(id)).await.unwrap();
    }
    store.place_hosts(&[(host(0), Some(1)), (host(1), Some(2))]).await.unwrap().unwrap();
    for number in 0..3 {
        let both = [registration(number, "web/a", "x"), registration(number, "db/a", "x")];
        store.register(&both, RegisterMode::Create, 1).await.unwrap();
    }
}

pub async fn processes_know_the_business_of_their_host(store: Arc<dyn Store>) {
    fleet(&*store).await;

    let (_, records) = store.processes(&ProcessQuery::default()).await.unwrap();

    let businesses: Vec<_> = records.iter().map(|record| record.business).collect();
    assert_eq!(businesses, [Some(1), Some(2), None, Some(1), Some(2), None]);
}

pub async fn processes_are_narrowed_by_agent_and_told_in_their_own_order(store: Arc<dyn Store>) {
    fleet(&*store).await;
    let of = |agents: &[usize]| ProcessQuery {
        agents: Some(agents.iter().map(|number| agent(*number)).collect()),
        ..ProcessQuery::default()
    };
    let web = Some("web".parse().unwrap());

    let both = found(&*store, &of(&[2, 0, 2, 9])).await;
    let named = found(&*store, &ProcessQuery { namespace: web, name: Some("a".parse().unwrap()), ..of(&[1, 0]) }).await;
    let page = ProcessQuery { offset: 1, limit: Some(2), ..of(&[2, 0]) };
    let (total, page) = store.processes(&page).await.unwrap();

    assert_eq!(both, ["db/a 0:10.0.0.0", "db/a 0:10.0.0.2", "web/a 0:10.0.0.0", "web/a 0:10.0.0.2"]);
    assert_eq!(named, ["web/a 0:10.0.0.0", "web/a 0:10.0.0.1"]);
    assert!(found(&*store, &of(&[])).await.is_empty());
    let page: Vec<_> = page.into_iter().map(|record| format!("{} {}", record.key, record.host)).collect();
    assert_eq!((total, &page[..]), (4, &both[1..3]));
}

pub async fn processes_are_narrowed_by_several_names_at_once(store: Arc<dyn Store>) {
    fleet(&*store).await;
    store.register(&[registration(0, "web/b", "x")], RegisterMode::Create, 1).await.unwrap();
    let of = |keys: &[&str]| {
        let keys = Some(keys.iter().map(|name| key(name)).collect());
        ProcessQuery { keys, agents: Some(vec![agent(0), agent(2)]), ..ProcessQuery::default() }
    };

    let some = found(&*store, &of(&["web/b", "db/a", "db/b"])).await;

    assert_eq!(some, ["db/a 0:10.0.0.0", "db/a 0:10.0.0.2", "web/b 0:10.0.0.0"]);
    assert!(found(&*store, &of(&[])).await.is_empty());
}

pub async fn processes_are_read_by_host_and_key_in_the_order_of_the_question(store: Arc<dyn Store>) {
    fleet(&*store).await;
    store.unregister(&[(agent(2), key("web/a"))], 2).await.unwrap();
    let wanted = [(2, "db/a"), (0, "web/a"), (2, "web/a"), (1, "web/none"), (9, "web/a"), (0, "web/a")];

    let read =
        store.processes_at(wanted.map(|(number, process)| (agent(number), key(process))).to_vec()).await.unwrap();

    let read: Vec<_> = read.iter().map(|record| record.as_ref().map(|it| format!("{} {}", it.key, it.host))).collect();
    let (db, web) = (Some("db/a 0:10.0.0.2".to_owned()), Some("web/a 0:10.0.0.0".to_owned()));
    assert_eq!(read, [db, web.clone(), None, None, None, web]);
    assert!(store.processes_at(Vec::new()).await.unwrap().is_empty());
}

pub async fn processes_are_narrowed_by_business(store: Arc<dyn Store>) {
    fleet(&*store).await;
    let of = |businesses: &[u64]| ProcessQuery { businesses: Some(businesses.to_vec()), ..ProcessQuery::default() };

    assert_eq!(found(&*store, &of(&[1])).await, ["db/a 0:10.0.0.0", "web/a 0:10.0.0.0"]);
    assert_eq!(found(&*store, &of(&[2, 1])).await.len(), 4);
    assert!(found(&*store, &of(&[])).await.is_empty());
    assert!(found(&*store, &of(&[7])).await.is_empty());
}

pub async fn processes_are_narrowed_to_the_scopes_of_a_caller(store: Arc<dyn Store>) {
    fleet(&*store).await;
    let mut elsewhere = enrolment("fixture", 9);
    elsewhere.host = HostKey::new(5, 0, "10.0.0.9".parse().unwrap());
    store.enrol(elsewhere, 0).await.unwrap().unwrap();
    store.register(&[registration(9, "web/z", "x")], RegisterMode::Create, 1).await.unwrap();
    let inside = |scopes: ScopeSet| ProcessQuery { scopes: Some(scopes), ..ProcessQuery::default() };

    let nowhere = found(&*store, &inside(ScopeSet::default())).await;
    let everywhere = found(&*store, &inside(ScopeSet { everywhere: true, ..ScopeSet::default() })).await;
    let cloud = found(&*store, &inside(ScopeSet { clouds: [5].into(), ..ScopeSet::default() })).await;
    let namespace = "db".parse().unwrap();
    let union =
        ScopeSet { businesses: [1].into(), namespaces: [namespace].into(), clouds: [5].into(), ..ScopeSet::default() };
    let union = found(&*store, &inside(union)).await;

    assert!(nowhere.is_empty());
    assert_eq!(everywhere.len(), 7);
    assert_eq!(cloud, ["web/z 5:10.0.0.9"]);
    let expected = ["db/a 0:10.0.0.0", "db/a 0:10.0.0.1", "db/a 0:10.0.0.2", "web/a 0:10.0.0.0", "web/z 5:10.0.0.9"];
    assert_eq!(union, expected);
}

pub async fn processes_are_narrowed_by_labels(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    for (process, labels) in [
        ("web/a", vec![("env", "prod"), ("tier", "db")]),
        ("web/b", vec![("env", "prod"), ("tier", "")]),
        ("web/c", vec![("env", "test")]),
        ("web/d", vec![]),
    ] {
        let mut spec = (*spec("x")).clone();
        spec.labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let registration = Registration { agent: agent(0), key: key(process), spec: Arc::new(spec) };
        store.register(&[registration], RegisterMode::Create, 1).await.unwrap();
    }
    let equals = |key: &str, value: &str| LabelTerm::Equals(key.to_owned(), value.to_owned());
    let not_equals = |key: &str, value: &str| LabelTerm::NotEquals(key.to_owned(), value.to_owned());
    let exists = |key: &str| LabelTerm::Exists(key.to_owned());
    let absent = |key: &str| LabelTerm::Absent(key.to_owned());

    for (labels, expected) in [
        (vec![equals("env", "prod")], vec!["web/a", "web/b"]),
        (vec![not_equals("tier", "db")], vec!["web/b", "web/c", "web/d"]),
        (vec![exists("tier")], vec!["web/a", "web/b"]),
        (vec![absent("env")], vec!["web/d"]),
        (vec![equals("env", "prod"), not_equals("tier", "db")], vec!["web/b"]),
        (vec![equals("env", "prod"), absent("env")], vec![]),
        (vec![equals("tier", "")], vec!["web/b"]),
    ] {
        let query = ProcessQuery { labels, ..ProcessQuery::default() };
        let expected: Vec<_> = expected.into_iter().map(|process| format!("{process} 0:10.0.0.0")).collect();
        assert_eq!(found(&*store, &query).await, expected, "{query:?}");
    }
}

pub async fn processes_are_narrowed_by_their_last_phase(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = store.open_session(&opening(0), 1).await.unwrap().unwrap();
    for process in ["web/a", "web/b", "web/c"] {
        store.register(&[registration(0, process, "x")], RegisterMode::Create, 1).await.unwrap();
    }
    let observe = async |process: &str, phase| {
        let observation = Observation { key: key(process), snapshot: Snapshot { phase, ..Snapshot::default() } };
        store.observe(&agent(0), epoch, &[observation]).await.unwrap();
    };
    observe("web/a", Phase::Running).await;
    observe("web/b", Phase::Running).await;
    observe("web/b", Phase::Failed).await;
    let with = |phases: &[Phase]| ProcessQuery { phases: phases.to_vec(), ..ProcessQuery::default() };

    assert_eq!(found(&*store, &with(&[Phase::Running])).await, ["web/a 0:10.0.0.0"]);
    assert_eq!(found(&*store, &with(&[Phase::Failed, Phase::Unknown])).await.len(), 2);

    store.unregister(&[(agent(0), key("web/a"))], 2).await.unwrap();
    store.register(&[registration(0, "web/a", "x")], RegisterMode::Create, 3).await.unwrap();
    assert!(found(&*store, &with(&[Phase::Running])).await.is_empty(), "it is a new process");
}

pub async fn a_cursor_leads_through_all_processes_once(store: Arc<dyn Store>) {
    enrol(&*store, 0).await;
    for (number, cloud, ip) in [(0, 10, "10.0.0.9"), (1, 2, "10.0.0.9"), (2, 2, "10.0.0.10")] {
        let mut enrolment = enrolment("fixture", number);
        enrolment.host = HostKey::new(cloud, 0, ip.parse().unwrap());
        store.enrol(enrolment, 0).await.unwrap().unwrap();
        for process in ["b/a", "a/b", "a/B", "网/关"] {
            store.register(&[registration(number, process, "x")], RegisterMode::Create, 1).await.unwrap();
        }
    }
    let (_, everything) = store.processes(&ProcessQuery::default()).await.unwrap();

    let mut read = Vec::new();
    let mut after = None;
    loop {
        let query = ProcessQuery { after, limit: Some(5), ..ProcessQuery::default() };
        let (total, page) = store.processes(&query).await.unwrap();
        assert_eq!(total, 12, "the number before paging");
        let Some(last) = page.last() else { break };
        after = Some(last.cursor());
        read.extend(page);
    }

    assert_eq!(read, everything);
}

pub async fn a_cursor_goes_on_though_its_process_is_gone(store: Arc<dyn Store>) {
    fleet(&*store).await;
    let (_, everything) = store.processes(&ProcessQuery::default()).await.unwrap();
    let after = Some(everything[1].cursor());

    store.unregister(&[(agent(1), key("db/a"))], 2).await.unwrap();

    let (_, rest) = store.processes(&ProcessQuery { after, ..ProcessQuery::default() }).await.unwrap();
    assert_eq!(rest, everything[2..]);
}
