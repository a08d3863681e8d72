//! Finding hosts, and the presence of their agents.

use std::sync::Arc;

use proctor_model::{HostFacts, HostKey, ScopeSet};

use super::{agent, business, ended, enrol, enrolment, host, opening, token};
use crate::{
    EnrolRefusal, Enrolment, EventQuery, HostQuery, HostRecord, JoinToken, SessionOpening, SessionRefusal, Store,
};

fn facts(hostname: &str) -> HostFacts {
    let agent_version = "0.9.1".to_owned();
    HostFacts { hostname: hostname.to_owned(), agent_version, cpus: 8, memory_bytes: 1 << 40, ..HostFacts::default() }
}

fn with_facts(number: usize, hostname: &str) -> SessionOpening {
    SessionOpening { facts: facts(hostname), ..opening(number) }
}

async fn only_host(store: &dyn Store) -> HostRecord {
    store.hosts(&HostQuery::default()).await.unwrap().remove(0)
}

pub async fn hosts_are_found_by_cloud_and_ip_whatever_the_supplier(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let other_supplier = HostKey { supplier: 7, ..host(1) };
    let other_cloud = HostKey { cloud: 7, ..host(1) };

    let found = store.hosts_by_key(&[other_supplier, other_cloud, host(0)]).await.unwrap();

    assert_eq!(found[0].as_ref().map(|found| &found.agent), Some(&agent(1)));
    assert_eq!(found[1], None);
    assert_eq!(found[2].as_ref().map(|found| &found.agent), Some(&agent(0)));
}

pub async fn hosts_are_found_by_agent_and_unknown_ones_are_none(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;

    let found = store.hosts_by_agent(&[agent(1), agent(9), agent(1)]).await.unwrap();

    assert_eq!(found[0].as_ref().map(|found| found.key), Some(host(1)));
    assert_eq!(found[1], None);
    assert_eq!(found[2], found[0]);
}

pub async fn thousands_of_hosts_are_found_in_the_order_of_the_question(store: Arc<dyn Store>) {
    enrol(&*store, 3).await;
    let numbers: Vec<usize> = (0..5000).map(|number| number % 4).collect();
    let keys: Vec<_> = numbers.iter().map(|number| host(*number)).collect();
    let agents: Vec<_> = numbers.iter().map(|number| agent(*number)).collect();

    let by_key = store.hosts_by_key(&keys).await.unwrap();
    let by_agent = store.hosts_by_agent(&agents).await.unwrap();

    assert_eq!(by_key, by_agent);
    for (number, found) in numbers.into_iter().zip(by_key) {
        assert_eq!(found.map(|found| found.key), (number < 3).then(|| host(number)));
    }
}

pub async fn the_sites_of_hosts_are_those_of_their_records(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.put_business(business(3)).await.unwrap();
    store.place_hosts(&[(host(1), Some(3))]).await.unwrap().unwrap();
    store.bind_agent_ids(&[(host(0), agent(7))]).await.unwrap();
    let (keys, agents) = ([host(1), host(9), host(0)], [agent(1), agent(9), agent(7)]);
    let site = |found: Option<HostRecord>| found.map(|found| found.site);

    let by_key = store.sites_by_key(&keys).await.unwrap();
    let by_agent = store.sites_by_agent(&agents).await.unwrap();

    let expected: Vec<_> = store.hosts_by_key(&keys).await.unwrap().into_iter().map(site).collect();
    assert_eq!(by_key[0].as_ref().and_then(|site| site.business), Some(3));
    assert_eq!((&by_key, &by_agent), (&expected, &expected));
    let many: Vec<usize> = (0..keys.len()).cycle().take(1500).collect();
    let many_keys: Vec<_> = many.iter().map(|index| keys[*index]).collect();
    let many_agents: Vec<_> = many.iter().map(|index| agents[*index].clone()).collect();
    let all_expected: Vec<_> = many.iter().map(|index| expected[*index].clone()).collect();
    assert_eq!(store.sites_by_key(&many_keys).await.unwrap(), all_expected);
    assert_eq!(store.sites_by_agent(&many_agents).await.unwrap(), all_expected);
}

pub async fn hosts_are_listed_by_cloud_and_ip(store: Arc<dyn Store>) {
    enrol(&*store, 0).await;
    for (number, cloud, ip) in [(0, 2, "10.0.0.1"), (1, 10, "10.0.0.1"), (2, 2, "10.0.0.10"), (3, 2, "10.0.0.9")] {
        let mut enrolment = enrolment("fixture", number);
        enrolment.host = HostKey::new(cloud, 0, ip.parse().unwrap());
        store.enrol(enrolment, 0).await.unwrap().unwrap();
    }

    let listed: Vec<_> =
        store.hosts(&HostQuery::default()).await.unwrap().into_iter().map(|host| host.key.to_string()).collect();

    assert_eq!(listed, ["2:10.0.0.1", "2:10.0.0.10", "2:10.0.0.9", "10:10.0.0.1"]);
}

/// In cloud areas 2 and 10, the first of them online and the second in business 1.
async fn four_hosts(store: &dyn Store) -> Vec<HostKey> {
    enrol(store, 0).await;
    store.put_business(business(1)).await.unwrap();
    let mut keys = Vec::new();
    for (number, cloud, ip) in [(0, 2, "10.0.0.1"), (1, 2, "10.0.0.10"), (2, 2, "10.0.0.9"), (3, 10, "10.0.0.1")] {
        let host = HostKey::new(cloud, 0, ip.parse().unwrap());
        store.enrol(Enrolment { host, ..enrolment("fixture", number) }, 0).await.unwrap().unwrap();
        keys.push(host);
    }
    store.open_session(&with_facts(0, "a"), 1).await.unwrap().unwrap();
    store.place_hosts(&[(keys[1], Some(1))]).await.unwrap().unwrap();
    keys
}

async fn listed(store: &dyn Store, query: HostQuery) -> Vec<HostKey> {
    store.hosts(&query).await.unwrap().into_iter().map(|host| host.key).collect()
}

pub async fn hosts_are_narrowed_by_every_field_of_the_query(store: Arc<dyn Store>) {
    let keys = four_hosts(&*store).await;
    let scopes = |businesses: &[u64], clouds: &[u32]| {
        let scopes = ScopeSet {
            businesses: businesses.iter().copied().collect(),
            clouds: clouds.iter().copied().collect(),
            namespaces: ["web".parse().unwrap()].into(),
            ..ScopeSet::default()
        };
        HostQuery { scopes: Some(scopes), ..HostQuery::default() }
    };
    let everywhere =
        HostQuery { scopes: Some(ScopeSet { everywhere: true, ..ScopeSet::default() }), ..HostQuery::default() };

    assert_eq!(listed(&*store, HostQuery { cloud: Some(10), ..HostQuery::default() }).await, keys[3..]);
    assert_eq!(listed(&*store, HostQuery { business: Some(1), ..HostQuery::default() }).await, keys[1..2]);
    assert_eq!(listed(&*store, HostQuery { online: Some(true), ..HostQuery::default() }).await, keys[..1]);
    assert_eq!(listed(&*store, HostQuery { online: Some(false), ..HostQuery::default() }).await, keys[1..]);
    let text = |text: &str| HostQuery { text: Some(text.to_owned()), ..HostQuery::default() };
    assert_eq!(listed(&*store, text("2:10.0.0.1")).await, keys[..2]);
    assert_eq!(listed(&*store, text("A")).await.len(), 4, "the agents' ids have the letter");
    assert_eq!(listed(&*store, HostQuery { cloud: Some(10), ..text("10.0.0.9") }).await, []);
    assert_eq!(listed(&*store, text("%")).await, []);
    let version = |version: &str| HostQuery { version: Some(version.to_owned()), ..HostQuery::default() };
    assert_eq!(listed(&*store, version(&facts("a").agent_version)).await, keys[..1]);
    assert_eq!(listed(&*store, version("none")).await, []);
    assert_eq!(listed(&*store, scopes(&[1], &[10])).await, [keys[1], keys[3]]);
    assert_eq!(listed(&*store, scopes(&[], &[])).await, []);
    assert_eq!(listed(&*store, everywhere).await, keys);
    assert_eq!(listed(&*store, HostQuery { cloud: Some(10), ..scopes(&[1], &[]) }).await, []);
    store.put_token(token("other", 1)).await.unwrap();
    let fifth = enrolment("other", 4);
    let key = fifth.host;
    store.enrol(fifth, 0).await.unwrap().unwrap();
    let by_token = |id: &str| HostQuery { token: Some(id.to_owned()), ..HostQuery::default() };
    assert_eq!(listed(&*store, by_token("other")).await, [key]);
    assert_eq!(listed(&*store, HostQuery { cloud: Some(2), ..by_token("fixture") }).await, keys[..3]);
    assert_eq!(listed(&*store, by_token("none")).await, []);
}

pub async fn a_cursor_leads_through_all_hosts_once(store: Arc<dyn Store>) {
    let keys = four_hosts(&*store).await;
    let mut after = None;
    let mut pages = Vec::new();

    loop {
        let page = listed(&*store, HostQuery { after, limit: Some(3), ..HostQuery::default() }).await;
        after = page.last().copied();
        if page.is_empty() {
            break;
        }
        pages.push(page);
    }

    assert_eq!(pages, [keys[..3].to_vec(), keys[3..].to_vec()]);
    assert_eq!(listed(&*store, HostQuery { limit: Some(0), ..HostQuery::default() }).await, []);
}

pub async fn every_session_has_a_higher_epoch(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let mut epochs = Vec::new();

    for now in 0..3 {
        let epoch = store.open_session(&with_facts(0, "a"), now).await.unwrap().unwrap();
        store.end_sessions(&[ended(0, epoch)], now).await.unwrap();
        epochs.push(epoch);
    }

    assert!(epochs[0] > 0 && epochs[0] < epochs[1] && epochs[1] < epochs[2], "{epochs:?}");
    assert_eq!(only_host(&*store).await.epoch, epochs[2]);
}

pub async fn a_session_of_an_unbound_agent_is_refused(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;

    assert_eq!(store.open_session(&opening(9), 0).await.unwrap(), Err(SessionRefusal::Unbound { agent: agent(9) }));
}

pub async fn a_session_keeps_the_facts_and_the_time_of_the_change(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;

    store.open_session(&with_facts(0, "a"), 10).await.unwrap().unwrap();
    let epoch = store.open_session(&with_facts(0, "b"), 20).await.unwrap().unwrap();
    let online = only_host(&*store).await;
    store.end_sessions(&[ended(0, epoch)], 30).await.unwrap();
    store.end_sessions(&[ended(0, epoch)], 40).await.unwrap();
    let offline = only_host(&*store).await;

    assert_eq!((online.online, online.presence_changed_at, online.facts), (true, 10, facts("b")));
    assert_eq!((offline.online, offline.presence_changed_at, offline.facts), (false, 30, facts("b")));
}

pub async fn the_end_of_an_older_session_does_not_mark_a_newer_one_offline(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let older = store.open_session(&with_facts(0, "a"), 1).await.unwrap().unwrap();
    store.open_session(&with_facts(0, "a"), 2).await.unwrap().unwrap();

    store.end_sessions(&[ended(0, older)], 3).await.unwrap();

    assert!(only_host(&*store).await.online);
}

pub async fn ends_of_sessions_are_told_unless_a_newer_one_is_open(store: Arc<dyn Store>) {
    enrol(&*store, 3).await;
    let mut epochs = Vec::new();
    for number in 0..3 {
        epochs.push(store.open_session(&with_facts(number, "a"), 1).await.unwrap().unwrap());
    }
    store.open_session(&with_facts(1, "a"), 2).await.unwrap().unwrap();
    store.revoke_host(&host(2), 3).await.unwrap().unwrap();
    let all: Vec<_> = (0..).zip(&epochs).map(|(number, epoch)| ended(number, *epoch)).collect();

    store.end_sessions(&all, 50).await.unwrap();
    store.end_sessions(&[ended(9, 1)], 60).await.unwrap();

    let hosts = store.hosts(&HostQuery::default()).await.unwrap();
    assert_eq!(hosts.iter().map(|host| host.online).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(hosts.iter().map(|host| host.presence_changed_at).collect::<Vec<_>>(), [50, 1, 3]);
    let events = store.events(&EventQuery { after: Some(0), limit: 9, ..EventQuery::default() }).await.unwrap().events;
    assert_eq!(events.iter().map(|stored| stored.agent.clone()).collect::<Vec<_>>(), [agent(0), agent(2)]);
}

pub async fn a_host_answers_to_the_id_that_it_was_given_last(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;

    let first = store.bind_agent_ids(&[(HostKey { supplier: 7, ..host(0) }, agent(100))]).await.unwrap();
    let by_first = store.hosts_by_agent(&[agent(100), agent(0)]).await.unwrap();
    let second = store.bind_agent_ids(&[(host(0), agent(101))]).await.unwrap();
    let by_second = store.hosts_by_agent(&[agent(100), agent(101), agent(0)]).await.unwrap();

    assert_eq!((first, second), (vec![true], vec![true]));
    assert_eq!(by_first[0].as_ref().map(|found| (found.key, &found.agent)), Some((host(0), &agent(0))));
    assert_eq!(by_first[0].as_ref().unwrap().alias, Some(agent(100)));
    assert_eq!(by_first[0], by_first[1]);
    assert_eq!(by_second[0], None);
    assert_eq!(by_second[1].as_ref().unwrap().alias, Some(agent(101)));
    assert_eq!(by_second[1], by_second[2]);
}

pub async fn an_id_that_is_another_hosts_is_not_given_away(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.bind_agent_ids(&[(host(0), agent(100))]).await.unwrap();

    let own_of_other = (host(1), agent(0));
    let alias_of_other = (host(1), agent(100));
    let no_host = (host(9), agent(101));
    let own = (host(1), agent(1));
    let answers = store.bind_agent_ids(&[own_of_other, alias_of_other, no_host, own]).await.unwrap();

    assert_eq!(answers, [false, false, false, true]);
    let found = store.hosts_by_agent(&[agent(0), agent(100), agent(101), agent(1)]).await.unwrap();
    let keys: Vec<_> = found.iter().map(|found| found.as_ref().map(|found| found.key)).collect();
    assert_eq!(keys, [Some(host(0)), Some(host(0)), None, Some(host(1))]);
    assert_eq!(found[3].as_ref().unwrap().alias, None);
}

pub async fn an_id_that_a_host_answers_to_is_not_taken_by_another_agent(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.bind_agent_ids(&[(host(0), agent(1))]).await.unwrap();

    let answer = store.enrol(enrolment("fixture", 1), 5).await.unwrap();

    assert_eq!(answer, Err(EnrolRefusal::AgentTaken { agent: agent(1) }));
    let found = store.hosts_by_agent(&[agent(0), agent(1)]).await.unwrap();
    assert_eq!(found[0].as_ref().unwrap().alias, Some(agent(1)));
    assert_eq!(found[1].as_ref().map(|found| found.key), Some(host(0)));
    store.allow_rejoin(&host(0), Some(6)).await.unwrap();
    store.enrol(enrolment("fixture", 1), 5).await.unwrap().unwrap();
    let found = store.hosts_by_agent(&[agent(0), agent(1)]).await.unwrap();
    assert_eq!(found[0].as_ref().unwrap().alias, None);
    assert_eq!(found[1].as_ref().map(|found| found.key), Some(host(1)));
}

pub async fn a_host_keeps_its_second_id_when_its_agent_is_replaced_and_loses_it_with_its_last(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.put_token(JoinToken { host: Some(host(0)), ..token("for 0", 9) }).await.unwrap();
    store.bind_agent_ids(&[(host(0), agent(100)), (host(1), agent(101))]).await.unwrap();

    store.enrol(Enrolment { host: host(0), ..enrolment("for 0", 9) }, 5).await.unwrap().unwrap();
    store.enrol(Enrolment { host: host(0), ..enrolment("for 0", 1) }, 5).await.unwrap().unwrap();

    let found = store.hosts_by_agent(&[agent(100), agent(101)]).await.unwrap();
    assert_eq!(found[0].as_ref().map(|found| &found.agent), Some(&agent(1)));
    assert_eq!(found[1], None);
    assert_eq!(store.bind_agent_ids(&[(host(0), agent(101))]).await.unwrap(), [true]);
}
