//! Pools.

use std::sync::Arc;

use proctor_model::{Pool, PoolLimits, Weight};

use super::{agent, enrol, host, registration};
use crate::{PoolRecord, RegisterMode, Registered, Store};

fn pool(namespace: &str, id: &str, cpu: f64) -> Pool {
    Pool {
        namespace: namespace.parse().unwrap(),
        id: id.parse().unwrap(),
        limits: PoolLimits {
            cpu: cpu.try_into().unwrap(),
            memory: 12.5.try_into().unwrap(),
            cpu_weight: Weight::Usage,
            memory_weight: Weight::UsageByLimit,
            dry_run: cpu > 50.0,
        },
    }
}

pub async fn pools_are_set_on_every_bound_agent(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;

    let set = store.set_pools(&[agent(1), agent(9), agent(0)], &[pool("web", "web", 50.0)], 1).await.unwrap();

    assert_eq!(set, [true, false, true]);
    let of = |number| PoolRecord { host: host(number), agent: agent(number), pool: pool("web", "web", 50.0) };
    assert_eq!(store.pools(None, None).await.unwrap(), [of(0), of(1)]);
}

pub async fn pools_are_narrowed_by_namespace_and_agent(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let pools = [pool("web", "web", 50.0), pool("db", "db", 20.0), pool("db", "batch", 10.0)];
    store.set_pools(&[agent(0), agent(1)], &pools, 1).await.unwrap();

    let db = "db".parse().unwrap();
    let of_namespace = store.pools(Some(&db), None).await.unwrap();
    let of_both = store.pools(Some(&db), Some(&[agent(1), agent(9)])).await.unwrap();
    let of_nobody = store.pools(None, Some(&[])).await.unwrap();

    let ids: Vec<_> = of_namespace.iter().map(|record| (record.pool.id.as_str(), record.host)).collect();
    assert_eq!(ids, [("batch", host(0)), ("batch", host(1)), ("db", host(0)), ("db", host(1))]);
    assert_eq!(of_both.len(), 2);
    assert!(of_both.iter().all(|record| record.agent == agent(1)));
    assert!(of_nobody.is_empty());
}

pub async fn a_pool_is_assigned_again_only_when_its_limits_change(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.set_pools(&[agent(0)], &[pool("web", "web", 50.0), pool("db", "db", 20.0)], 1).await.unwrap();
    let first = store.assignments(&agent(0), 0).await.unwrap().pools;
    let newest = first[1].generation;

    store.set_pools(&[agent(0)], &[pool("web", "web", 100.0 / 7.0), pool("db", "db", 20.0)], 2).await.unwrap();

    let changed = store.assignments(&agent(0), newest).await.unwrap().pools;
    assert_eq!(first.len(), 2);
    assert!(first[0].generation < newest);
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].pool, pool("web", "web", 100.0 / 7.0));
    assert!(changed[0].generation > newest);
    assert!(store.assignments(&agent(9), 0).await.unwrap().pools.is_empty());
}

pub async fn pools_and_processes_of_a_host_share_one_generation(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.set_pools(&[agent(0)], &[pool("web", "web", 50.0)], 1).await.unwrap();
    let before = store.assignments(&agent(0), 0).await.unwrap().pools[0].generation;

    let registered = store.register(&[registration(0, "web/a", "a")], RegisterMode::Create, 1).await.unwrap();

    assert!(matches!(registered[0], Registered::Stored { generation } if generation > before));
}
