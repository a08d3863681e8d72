//! Pools.

use std::sync::Arc;

use proctor_model::{Pool, PoolLimits, Weight};

use super::{agent, enrol, host, registration};
use crate::{PoolRecord, RegisterMode, Registered, Store};

pub(super) fn pool(namespace: &str, id: &str, cpu: f64) -> Pool {
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

pub async fn a_pool_that_is_deleted_is_gone_and_its_agent_learns_of_it(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    store.set_pools(&[agent(0), agent(1)], &[pool("web", "web", 50.0), pool("web", "batch", 20.0)], 1).await.unwrap();
    let newest = store.assignments(&agent(0), 0).await.unwrap().pools[1].generation;
    let (namespace, id) = ("web".parse().unwrap(), "web".parse().unwrap());

    let first = store.delete_pool(&[agent(0), agent(9)], &namespace, &id, 2).await.unwrap();
    let second = store.delete_pool(&[agent(0)], &namespace, &id, 3).await.unwrap();
    let told = store.assignments(&agent(0), newest).await.unwrap().pools;
    let from_nothing = store.assignments(&agent(0), 0).await.unwrap().pools;
    let left: Vec<_> =
        store.pools(None, None).await.unwrap().into_iter().map(|left| (left.agent, left.pool.id)).collect();
    store.set_pools(&[agent(0)], &[pool("web", "web", 50.0)], 4).await.unwrap();

    assert_eq!((first, second), (vec![true, false], vec![false]));
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].pool.limits.cpu.get(), told[0].pool.limits.memory.get()), (0.0, 0.0));
    assert_eq!(from_nothing.iter().map(|told| told.pool.id.as_str()).collect::<Vec<_>>(), ["batch"]);
    let batch = || "batch".parse().unwrap();
    assert_eq!(left, [(agent(0), batch()), (agent(1), batch()), (agent(1), id)]);
    let again = store.assignments(&agent(0), told[0].generation).await.unwrap().pools;
    assert_eq!(again.iter().map(|again| &again.pool).collect::<Vec<_>>(), [&pool("web", "web", 50.0)]);
}

pub async fn pools_and_processes_of_a_host_share_one_generation(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    store.set_pools(&[agent(0)], &[pool("web", "web", 50.0)], 1).await.unwrap();
    let before = store.assignments(&agent(0), 0).await.unwrap().pools[0].generation;

    let registered = store.register(&[registration(0, "web/a", "a")], RegisterMode::Create, 1).await.unwrap();

    assert!(matches!(registered[0], Registered::Stored { generation } if generation > before));
}
