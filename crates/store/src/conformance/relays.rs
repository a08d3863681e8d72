//! Relays, their tokens, and sessions that came through them.

use std::sync::Arc;

use proctor_model::RelayId;

use super::{ended, enrol, opening};
use crate::{
    AuditQuery, EndedSession, EnrolRefusal, EventQuery, HostQuery, PeerTrust, RelayEnrolment, RelayToken,
    SessionOpening, SessionRefusal, Store,
};

const EXPIRES_AT: i64 = 1_000;

fn token(id: &str, uses: u32) -> RelayToken {
    RelayToken { id: id.to_owned(), secret_hash: format!("secret-{id}"), uses, expires_at: EXPIRES_AT, cloud: 3 }
}

fn relay(number: usize) -> RelayId {
    format!("r-{number}").parse().unwrap()
}

fn enrolment(token: &str, number: usize) -> RelayEnrolment {
    RelayEnrolment {
        token_id: token.to_owned(),
        token_secret_hash: format!("secret-{token}"),
        cloud: 3,
        relay: relay(number),
        key_fingerprint: format!("relay-key-{number}"),
        remote: Some("192.0.2.1".parse().unwrap()),
    }
}

pub async fn a_relay_enrols_with_a_token_of_its_area_and_kind(store: Arc<dyn Store>) {
    let store = store.as_ref();
    store.put_relay_token(token("t", 1)).await.unwrap();
    enrol(store, 0).await;
    let other_area = RelayEnrolment { cloud: 4, ..enrolment("t", 0) };
    let by_agents_token = RelayEnrolment { token_id: "fixture".to_owned(), ..enrolment("t", 0) };

    assert_eq!(store.enrol_relay(other_area, 1).await.unwrap(), Err(EnrolRefusal::WrongCloud { allowed: 3 }));
    assert_eq!(store.enrol_relay(by_agents_token, 1).await.unwrap(), Err(EnrolRefusal::UnknownToken));
    assert_eq!(store.enrol_relay(enrolment("t", 0), EXPIRES_AT).await.unwrap(), Err(EnrolRefusal::Expired));
    assert_eq!(store.enrol_relay(enrolment("t", 0), 1).await.unwrap(), Ok(relay(0)));
    let again = RelayEnrolment { relay: relay(9), ..enrolment("t", 0) };
    assert_eq!(store.enrol_relay(again, 2).await.unwrap(), Ok(relay(0)), "its key keeps its name");
    assert_eq!(store.enrol_relay(enrolment("t", 1), 2).await.unwrap(), Err(EnrolRefusal::UsedUp));

    let tokens = store.relay_tokens().await.unwrap();
    assert_eq!(tokens.iter().map(|record| (record.used, record.refused)).collect::<Vec<_>>(), [(1, 3)]);
    assert!(store.knows_relay_token("t", "secret-t").await.unwrap());
    assert!(!store.knows_token("t", "secret-t").await.unwrap(), "no agent enrols with it");
    let audited =
        store.audit(&AuditQuery { action: Some("enrol_relay".to_owned()), limit: 1000, ..AuditQuery::default() }).await;
    assert_eq!(audited.unwrap().len(), 5);
    assert!(store.delete_relay_token("t").await.unwrap());
    assert!(!store.delete_relay_token("t").await.unwrap());
}

pub async fn a_relay_is_met_by_its_key_until_it_is_revoked(store: Arc<dyn Store>) {
    let store = store.as_ref();
    store.put_relay_token(token("t", 9)).await.unwrap();
    store.enrol_relay(enrolment("t", 0), 1).await.unwrap().unwrap();

    let met = store.meet_relay(&relay(0), "relay-key-0", Some("192.0.2.9".parse().unwrap()), 5).await.unwrap().unwrap();
    assert_eq!((met.cloud, met.last_seen_at, met.remote), (3, Some(5), Some("192.0.2.9".parse().unwrap())));
    assert_eq!(store.meet_relay(&relay(0), "other key", None, 6).await.unwrap(), None);
    assert_eq!(store.meet_relay(&relay(1), "relay-key-0", None, 6).await.unwrap(), None);

    assert_eq!(store.revoke_relay(&relay(1), 7).await.unwrap(), None);
    let peer = PeerTrust::peer_of_relay(&relay(0));
    store.keep_trust(&peer, Some(PeerTrust::default())).await.unwrap();
    assert_eq!(store.revoke_relay(&relay(0), 7).await.unwrap(), Some(true));
    assert_eq!(store.trusts().await.unwrap(), [], "what it said of its trust is forgotten");
    assert_eq!(store.revoke_relay(&relay(0), 8).await.unwrap(), Some(false));
    assert_eq!(store.meet_relay(&relay(0), "relay-key-0", None, 9).await.unwrap(), None);
    assert_eq!(store.enrol_relay(enrolment("t", 0), 9).await.unwrap(), Err(EnrolRefusal::KeyRevoked));
    let relays = store.relays().await.unwrap();
    assert_eq!(
        relays.iter().map(|relay| (relay.revoked_at, relay.last_seen_at)).collect::<Vec<_>>(),
        [(Some(7), Some(5))]
    );
}

pub async fn a_session_through_a_relay_is_of_its_area_and_noted(store: Arc<dyn Store>) {
    let store = store.as_ref();
    enrol(store, 1).await;
    let through = |cloud| SessionOpening { relay_cloud: Some(cloud), ..opening(0) };
    let relayed = async || store.hosts(&HostQuery::default()).await.unwrap()[0].relayed;

    let refused = store.open_session(&through(7), 1).await.unwrap();
    assert!(matches!(refused, Err(SessionRefusal::OtherArea { cloud: 7, .. })), "{refused:?}");
    assert!(!relayed().await);
    store.open_session(&through(0), 1).await.unwrap().unwrap();
    assert!(relayed().await);
    store.open_session(&opening(0), 1).await.unwrap().unwrap();

    assert!(!relayed().await);
}

pub async fn who_is_out_of_reach_is_remembered_until_somebody_is_told(store: Arc<dyn Store>) {
    let store = store.as_ref();
    enrol(store, 1).await;
    let through = SessionOpening { relay_cloud: Some(0), ..opening(0) };
    let host = async || {
        let host = store.hosts(&HostQuery::default()).await.unwrap().remove(0);
        (host.online, host.untold, host.presence_changed_at)
    };
    let events = async || store.events(&EventQuery { limit: 10, ..EventQuery::default() }).await.unwrap().events.len();

    let epoch = store.open_session(&through, 1).await.unwrap().unwrap();
    let untold = EndedSession { event: None, untold: true, ..ended(0, epoch) };
    store.end_sessions(std::slice::from_ref(&untold), 5).await.unwrap();
    assert_eq!((host().await, events().await), ((false, true, 5), 0));
    store.end_sessions(&[ended(0, epoch)], 9).await.unwrap();
    assert_eq!((host().await, events().await), ((false, false, 5), 1));

    let epoch = store.open_session(&through, 20).await.unwrap().unwrap();
    store.end_sessions(&[EndedSession { epoch, ..untold }], 25).await.unwrap();
    store.open_session(&through, 30).await.unwrap().unwrap();
    assert_eq!(host().await, (true, false, 30), "it is back, and there is nothing to tell");
}
