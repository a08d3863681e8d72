//! The summary of a host.

use std::sync::Arc;

use proctor_model::{AgentState, Phase, Snapshot, StateHash};

use super::pools::pool;
use super::{agent, enrol, key, opening, registration};
use crate::{HostState, Managed, Observation, RegisterMode, Registered, Store};

async fn upsert(store: &dyn Store, process: &str, proc_name: &str) -> u64 {
    let answers = store.register(&[registration(0, process, proc_name)], RegisterMode::Upsert, 1).await.unwrap();
    let [Registered::Stored { generation }] = answers[..] else { panic!("{answers:?}") };
    generation
}

async fn state(store: &dyn Store) -> HostState {
    store.host_state(&agent(0)).await.unwrap().unwrap()
}

fn snapshot(pid: i32) -> Snapshot {
    Snapshot { phase: Phase::Running, managed: true, pid: Some(pid), ..Snapshot::default() }
}

async fn observe(store: &dyn Store, epoch: u64, process: &str, snapshot: &Snapshot) {
    let observation = Observation { key: key(process), snapshot: snapshot.clone() };
    store.observe(&agent(0), epoch, &[observation]).await.unwrap();
}

/// What an agent with these processes and no pools reports.
fn said(processes: &[(&str, u64, Snapshot)]) -> AgentState {
    let keys: Vec<_> = processes.iter().map(|(process, ..)| key(process)).collect();
    let each = || keys.iter().zip(processes);
    AgentState {
        assigned: StateHash::of_assigned(each().map(|(key, (_, generation, _))| key.numbered(*generation)), []),
        observed: StateHash::of_observed(
            each().map(|(key, (_, _, snapshot))| (key.numbered(snapshot.digest()), snapshot.managed)),
        ),
    }
}

pub async fn the_state_of_a_host_is_what_an_agent_says_that_has_the_same(store: Arc<dyn Store>) {
    enrol(&*store, 2).await;
    let epoch = store.open_session(&opening(0), 1).await.unwrap().unwrap();
    assert_eq!(state(&*store).await, HostState { epoch, generation: 0, state: said(&[]) });
    let (b, a) = (upsert(&*store, "web/b", "one").await, upsert(&*store, "web/a", "one").await);
    observe(&*store, epoch, "web/a", &snapshot(1)).await;
    observe(&*store, epoch, "web/b", &snapshot(2)).await;

    let both = said(&[("web/a", a, snapshot(1)), ("web/b", b, snapshot(2))]);
    assert_eq!(state(&*store).await, HostState { epoch, generation: a.max(b), state: both });
    assert_eq!(store.host_state(&agent(1)).await.unwrap().unwrap().state, said(&[]), "another host");
    assert_eq!(store.host_state(&agent(9)).await.unwrap(), None);

    // Usage is no part of it.
    let mut measured = snapshot(1);
    (measured.usage.cpu_percent, measured.reported_at) = (50.0, 99);
    observe(&*store, epoch, "web/a", &measured).await;
    assert_eq!(state(&*store).await.state, both);
}

pub async fn whatever_changes_what_is_registered_changes_the_state_of_the_host(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let mut seen = vec![state(&*store).await];
    let mut changed = |state: HostState| {
        let last = seen.last().unwrap();
        assert!(state.generation > last.generation, "{state:?}");
        assert!(seen.iter().all(|before| before.state.assigned != state.state.assigned), "{state:?}");
        seen.push(state);
    };

    upsert(&*store, "web/a", "one").await;
    changed(state(&*store).await);
    upsert(&*store, "web/a", "two").await;
    changed(state(&*store).await);
    upsert(&*store, "web/b", "one").await;
    changed(state(&*store).await);
    store.set_pools(&[agent(0)], &[pool("web", "small", 10.0)], 1).await.unwrap();
    changed(state(&*store).await);
    store.set_pools(&[agent(0)], &[pool("web", "small", 20.0)], 1).await.unwrap();
    changed(state(&*store).await);
    store.unregister(&[(agent(0), key("web/a"))], 2).await.unwrap();
    changed(state(&*store).await);
    let before = state(&*store).await;

    store.delete_pool(&[agent(0)], &"web".parse().unwrap(), &"small".parse().unwrap(), 3).await.unwrap();

    let after = state(&*store).await;
    assert!(after.generation > before.generation);
    let b = store.assignments(&agent(0), 0).await.unwrap().processes[0].generation;
    assert_eq!(after.state.assigned, said(&[("web/b", b, Snapshot::default())]).assigned, "as if it had never been");
}

pub async fn what_was_never_observed_or_was_changed_by_others_is_in_the_state_of_no_agent(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let epoch = store.open_session(&opening(0), 1).await.unwrap().unwrap();
    let a = upsert(&*store, "web/a", "one").await;
    let unseen = said(&[("web/a", a, Snapshot::default())]);
    assert_eq!(state(&*store).await.state.assigned, unseen.assigned);
    assert_ne!(state(&*store).await.state.observed, unseen.observed);
    assert_ne!(state(&*store).await.state.observed, said(&[]).observed);
    observe(&*store, epoch, "web/a", &snapshot(1)).await;
    assert_eq!(state(&*store).await.state, said(&[("web/a", a, snapshot(1))]));

    let managed = |managed| Managed { agent: agent(0), epoch, key: key("web/a"), managed };
    store.keep_managed(&[managed(false)]).await.unwrap();
    assert_eq!(state(&*store).await.state, said(&[("web/a", a, Snapshot { managed: false, ..snapshot(1) })]));
    store.unregister(&[(agent(0), key("web/a"))], 2).await.unwrap();
    let again = upsert(&*store, "web/a", "one").await;
    let seen_before = said(&[("web/a", again, Snapshot { managed: false, ..snapshot(1) })]);
    assert_ne!(state(&*store).await.state.observed, seen_before.observed, "that was another process");

    observe(&*store, epoch - 1, "web/a", &snapshot(3)).await;
    let late = said(&[("web/a", again, snapshot(3))]);
    assert_ne!(state(&*store).await.state.observed, late.observed, "of an older session");
}
