//! Businesses, sets of them, and the hosts that belong to them.

use std::sync::Arc;

use proctor_model::HostKey;

use super::{agent, business, enrol, enrolment, host, token};
use crate::{Business, BusinessSet, EnrolRefusal, Enrolment, HostQuery, JoinToken, Refusal, Store};

fn set(id: u64, members: &[u64]) -> BusinessSet {
    BusinessSet { id, name: format!("set {id}"), members: members.iter().copied().collect() }
}

async fn put_businesses(store: &dyn Store, ids: &[u64]) {
    for id in ids {
        store.put_business(business(*id)).await.unwrap();
    }
}

/// The business of each host that an agent serves.
async fn placed(store: &dyn Store) -> Vec<Option<u64>> {
    store.hosts(&HostQuery::default()).await.unwrap().into_iter().map(|host| host.business).collect()
}

pub async fn businesses_are_listed_by_id_and_renamed(store: Arc<dyn Store>) {
    let largest = u64::try_from(i64::MAX).unwrap();
    put_businesses(&*store, &[largest, 2, 10]).await;

    store.put_business(Business { id: 2, name: "游戏".to_owned() }).await.unwrap();

    let expected = [Business { id: 2, name: "游戏".to_owned() }, business(10), business(largest)];
    assert_eq!(store.businesses().await.unwrap(), expected);
}

pub async fn a_number_that_cannot_be_kept_exactly_is_refused(store: Arc<dyn Store>) {
    let too_large = u64::try_from(i64::MAX).unwrap() + 1;

    assert!(store.put_business(business(too_large)).await.is_err());
    assert!(store.businesses().await.unwrap().is_empty());
}

pub async fn a_set_is_read_back_and_replaced_whole(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1, 2, 3]).await;
    for set in [set(9, &[]), set(5, &[1, 2])] {
        store.put_business_set(set).await.unwrap().unwrap();
    }

    store.put_business_set(BusinessSet { name: "new".to_owned(), ..set(5, &[2, 3]) }).await.unwrap().unwrap();

    let expected = [BusinessSet { name: "new".to_owned(), ..set(5, &[2, 3]) }, set(9, &[])];
    assert_eq!(store.business_sets().await.unwrap(), expected);
}

pub async fn a_set_with_an_unknown_member_is_refused_and_changes_nothing(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1]).await;
    store.put_business_set(set(5, &[1])).await.unwrap().unwrap();

    let answer = store.put_business_set(BusinessSet { name: "new".to_owned(), ..set(5, &[1, 7]) }).await.unwrap();

    assert_eq!(answer, Err(Refusal::UnknownBusiness(7)));
    assert_eq!(store.business_sets().await.unwrap(), [set(5, &[1])]);
}

pub async fn a_set_that_is_deleted_is_gone_and_its_members_stay(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1]).await;
    store.put_business_set(set(5, &[1])).await.unwrap().unwrap();

    let first = store.delete_business_set(5).await.unwrap();
    let second = store.delete_business_set(5).await.unwrap();

    assert_eq!((first, second), (true, false));
    assert!(store.business_sets().await.unwrap().is_empty());
    assert_eq!(store.businesses().await.unwrap().len(), 1);
}

pub async fn a_host_is_placed_moved_and_taken_out(store: Arc<dyn Store>) {
    enrol(&*store, 3).await;
    put_businesses(&*store, &[1, 2]).await;

    let first = [(HostKey { supplier: 7, ..host(0) }, Some(1)), (host(1), Some(1)), (host(2), Some(2))];
    store.place_hosts(&first).await.unwrap().unwrap();
    let before = placed(&*store).await;
    store.place_hosts(&[(host(0), Some(1)), (host(0), Some(2)), (host(1), None)]).await.unwrap().unwrap();

    assert_eq!(before, [Some(1), Some(1), Some(2)]);
    assert_eq!(placed(&*store).await, [Some(2), None, Some(2)]);
    let by_key = store.hosts_by_key(&[host(0)]).await.unwrap();
    let by_agent = store.hosts_by_agent(&[agent(0)]).await.unwrap();
    assert_eq!(by_key[0].as_ref().unwrap().business, Some(2));
    assert_eq!(by_key, by_agent);
}

pub async fn a_host_can_be_placed_before_it_enrols(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1]).await;
    store.place_hosts(&[(host(1), Some(1))]).await.unwrap().unwrap();

    let before = store.placements(&[host(1), host(7)]).await.unwrap();
    enrol(&*store, 2).await;

    assert_eq!(before, [Some(1), None]);
    assert_eq!(placed(&*store).await, [None, Some(1)]);
}

pub async fn an_unknown_business_refuses_all_placements(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    put_businesses(&*store, &[1]).await;

    let answer = store.place_hosts(&[(host(0), Some(1)), (host(1), Some(4))]).await.unwrap();

    assert_eq!(answer, Err(Refusal::UnknownBusiness(4)));
    assert_eq!(placed(&*store).await, [None, None]);
}

pub async fn an_import_makes_businesses_and_places_hosts(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1, 2]).await;
    enrol(&*store, 3).await;
    let renamed = Business { id: 2, name: "游戏".to_owned() };

    let placements = [(host(0), Some(2)), (host(1), Some(3)), (host(2), Some(1)), (host(2), None)];
    store.import_hosts(&[renamed.clone(), business(3)], &placements).await.unwrap().unwrap();

    assert_eq!(store.businesses().await.unwrap(), [business(1), renamed, business(3)]);
    assert_eq!(placed(&*store).await, [Some(2), Some(3), None]);
}

pub async fn an_import_that_is_refused_changes_nothing(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1]).await;
    enrol(&*store, 2).await;
    let too_large = u64::try_from(i64::MAX).unwrap() + 1;
    let renamed = Business { id: 1, name: "new".to_owned() };
    let placements = [(host(0), Some(1)), (host(1), Some(7))];

    let refused = store.import_hosts(&[renamed.clone(), business(2)], &placements).await.unwrap();
    let failed = store.import_hosts(&[renamed, business(too_large)], &placements[..1]).await;

    assert_eq!(refused, Err(Refusal::UnknownBusiness(7)));
    assert!(failed.is_err());
    assert_eq!(store.businesses().await.unwrap(), [business(1)]);
    assert_eq!(placed(&*store).await, [None, None]);
}

pub async fn a_business_that_is_deleted_leaves_sets_hosts_and_tokens(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1, 2]).await;
    store.put_business_set(set(5, &[1, 2])).await.unwrap().unwrap();
    enrol(&*store, 2).await;
    store.place_hosts(&[(host(0), Some(1)), (host(1), Some(2))]).await.unwrap().unwrap();
    store.put_token(JoinToken { business: Some(1), ..token("of 1", 9) }).await.unwrap();

    let first = store.delete_business(1).await.unwrap();
    let second = store.delete_business(1).await.unwrap();

    assert_eq!((first, second), (true, false));
    assert_eq!(store.business_sets().await.unwrap(), [set(5, &[2])]);
    store.enrol(enrolment("of 1", 2), 0).await.unwrap().unwrap();
    put_businesses(&*store, &[1]).await;
    assert_eq!(placed(&*store).await, [None, Some(2), None]);
}

pub async fn a_tokens_business_becomes_that_of_a_new_host(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1, 2]).await;
    store.put_token(JoinToken { business: Some(1), ..token("of 1", 9) }).await.unwrap();
    store.place_hosts(&[(host(1), Some(1))]).await.unwrap().unwrap();

    store.enrol(enrolment("of 1", 0), 0).await.unwrap().unwrap();
    store.enrol(enrolment("of 1", 1), 0).await.unwrap().unwrap();

    assert_eq!(placed(&*store).await, [Some(1), Some(1)]);
}

pub async fn a_token_never_moves_an_address_from_another_business(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1, 2]).await;
    enrol(&*store, 1).await;
    store.put_token(JoinToken { business: Some(1), ..token("of 1", 9) }).await.unwrap();
    store.place_hosts(&[(host(0), Some(2)), (host(5), Some(2))]).await.unwrap().unwrap();
    store.allow_rejoin(&host(0), Some(9)).await.unwrap();
    let refused = |host| Err(EnrolRefusal::WrongBusiness { host, of_token: 1 });

    let known = store.enrol(Enrolment { host: host(0), ..enrolment("of 1", 9) }, 0).await.unwrap();
    let placed_before = store.enrol(enrolment("of 1", 5), 0).await.unwrap();
    let own_key = store.enrol(enrolment("of 1", 0), 0).await.unwrap();

    assert_eq!((known, placed_before), (refused(host(0)), refused(host(5))));
    assert!(own_key.is_ok());
    assert_eq!(placed(&*store).await, [Some(2)]);
}

pub async fn a_token_of_an_unknown_business_is_not_kept(store: Arc<dyn Store>) {
    assert!(store.put_token(JoinToken { business: Some(1), ..token("of 1", 9) }).await.is_err());
    assert!(store.enrol(enrolment("of 1", 0), 0).await.unwrap().is_err());
}

pub async fn a_repeated_enrolment_leaves_the_host_where_it_was_placed_since(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1, 2]).await;
    store.put_token(JoinToken { business: Some(1), ..token("of 1", 9) }).await.unwrap();
    store.enrol(enrolment("of 1", 0), 0).await.unwrap().unwrap();
    store.place_hosts(&[(host(0), Some(2))]).await.unwrap().unwrap();

    store.enrol(enrolment("of 1", 0), 1).await.unwrap().unwrap();

    assert_eq!(placed(&*store).await, [Some(2)]);
}

pub async fn a_host_that_changes_its_address_keeps_its_business(store: Arc<dyn Store>) {
    put_businesses(&*store, &[1, 2]).await;
    enrol(&*store, 1).await;
    store.place_hosts(&[(host(0), Some(1)), (host(8), Some(2))]).await.unwrap().unwrap();

    store.enrol(Enrolment { host: host(9), ..enrolment("fixture", 0) }, 5).await.unwrap().unwrap();
    let moved = placed(&*store).await;
    let elsewhere = store.enrol(Enrolment { host: host(8), ..enrolment("fixture", 0) }, 5).await.unwrap();

    assert_eq!(moved, [Some(1)]);
    assert_eq!(elsewhere, Err(EnrolRefusal::MovesBusiness { host: host(8) }));
    assert_eq!(placed(&*store).await, [Some(1)]);
}
