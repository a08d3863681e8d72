//! Nonces of signed requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::{Millis, Prune, Store};

/// A month.
const LATER: Millis = 30 * 24 * 3_600_000;

async fn prune_all(store: &dyn Store, now: Millis) -> Vec<u64> {
    let mut slices = Vec::new();
    loop {
        match store.prune(Prune::Nonces { now }).await.unwrap() {
            0 => return slices,
            deleted => slices.push(deleted),
        }
    }
}

pub async fn a_nonce_is_taken_once_until_its_end(store: Arc<dyn Store>) {
    let early = [
        store.take_nonce([1; 32], 1000, 900).await.unwrap(),
        store.take_nonce([1; 32], 1000, 1000).await.unwrap(),
        store.take_nonce([2; 32], LATER + 1200, 1000).await.unwrap(),
    ];
    store.advance_uptime(Duration::from_secs(3600)).await.unwrap();
    let later = [
        store.take_nonce([1; 32], 1300, 1001).await.unwrap(),
        store.take_nonce([1; 32], 1300, 1001).await.unwrap(),
        store.take_nonce([2; 32], LATER + 1300, LATER).await.unwrap(),
    ];

    assert_eq!((early, later), ([true, false, true], [true, false, false]));
}

pub async fn a_step_of_the_clock_makes_no_nonce_new(store: Arc<dyn Store>) {
    store.take_nonce([1; 32], 1000, 900).await.unwrap();

    assert!(prune_all(&*store, LATER).await.is_empty(), "the clock alone says that it is old");
    assert!(!store.take_nonce([1; 32], LATER + 1000, LATER).await.unwrap());
    store.advance_uptime(Duration::from_secs(3600)).await.unwrap();
    assert!(prune_all(&*store, 1000).await.is_empty(), "by the clock it counts");
    assert!(!store.take_nonce([1; 32], 1000, 1000).await.unwrap());
    assert_eq!(prune_all(&*store, 1001).await, [1]);
}

pub async fn old_nonces_go_in_slices_and_others_stay(store: Arc<dyn Store>) {
    let mut callers = JoinSet::new();
    for number in 0..1200_u32 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            let mut nonce = [0; 32];
            nonce[..4].copy_from_slice(&number.to_be_bytes());
            store.take_nonce(nonce, 1000, 900).await.unwrap()
        });
    }
    assert!(callers.join_all().await.into_iter().all(|is_new| is_new));
    store.advance_uptime(Duration::from_secs(3600)).await.unwrap();
    store.take_nonce([9; 32], 2000, 1900).await.unwrap();

    let slices = prune_all(&*store, LATER).await;

    assert_eq!(slices, [1000, 200]);
    assert!(!store.take_nonce([9; 32], 2000, 1900).await.unwrap());
}
