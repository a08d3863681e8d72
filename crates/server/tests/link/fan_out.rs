//! What a call that goes to many agents puts on the link.

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{OperationKind, Spec, TaskId};
use proctor_runtime::clock;
use proctor_store::conformance::spec;
use proctor_store::{NewTask, Target, TaskItem};
use proctor_wire::{FromServer, spec_bytes};
use uuid::Uuid;

use crate::support::{Agent, Link, World, next};

/// A start of web/a with this spec, which it registers; made while no server runs.
async fn start(world: &World, agent: &Agent, spec: Arc<Spec>, register: bool) {
    let item = TaskItem {
        key: "web/a".parse().unwrap(),
        kind: Some(OperationKind::Start),
        spec: Some(spec),
        carried: true,
        register,
        time_limit_ms: 600_000,
        wait_ms: 0,
    };
    let target = Target {
        item: 0,
        agent: Some(agent.id.clone()),
        host: Some(agent.host),
        row_key: "row".to_owned(),
        other_row_keys: Vec::new(),
    };
    let task = NewTask {
        id: TaskId::from_uuid(Uuid::now_v7()),
        created_at: clock::unix_millis(),
        app: "job".to_owned(),
        user: "admin".to_owned(),
        family: "v2".to_owned(),
        items: vec![item],
        targets: vec![target],
        outcomes: Vec::new(),
        audit: None,
        idempotency: None,
        retry_of: None,
        scope: None,
        rollout: None,
    };
    world.store.create_task(task).await.unwrap();
}

/// The specs of the assignments, and of the first operation, that a session gets.
async fn told(link: &mut Link) -> (Vec<Arc<Spec>>, Option<Arc<Spec>>) {
    let mut assigned = Vec::new();
    loop {
        match next(link).await {
            FromServer::Assign { assignments } => assigned.extend(assignments.into_iter().filter_map(|one| one.spec)),
            FromServer::Operate { spec, .. } => return (assigned, spec),
            FromServer::Beat => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_operation_carries_its_spec_although_that_was_assigned_just_before() {
    let mut world = World::new().await;
    let mut agent = world.agent("0:10.0.0.1", "one").await;
    start(&world, &agent, spec("a"), true).await;
    world.restart().await;

    let mut link = agent.session(&world, "run").await;

    assert_eq!(told(&mut link).await, (vec![spec("a")], Some(spec("a"))));
    world.end().await;
}

#[tokio::test]
async fn an_operation_with_another_spec_than_the_assigned_one_carries_it() {
    let mut world = World::new().await;
    let mut agent = world.agent("0:10.0.0.1", "one").await;
    start(&world, &agent, spec("a"), false).await;
    let key = "web/a".parse().unwrap();
    let other = proctor_store::Registration { agent: agent.id.clone(), key, spec: spec("b") };
    world.store.register(&[other], proctor_store::RegisterMode::Create, 1).await.unwrap();
    world.restart().await;

    let mut link = agent.session(&world, "run").await;

    assert_eq!(told(&mut link).await, (vec![spec("b")], Some(spec("a"))));
    world.end().await;
}

#[tokio::test]
async fn an_operation_does_not_wait_for_the_assignments_of_other_processes() {
    let mut world = World::new().await;
    let mut agent = world.agent("0:10.0.0.1", "one").await;
    start(&world, &agent, spec("a"), true).await;
    let other = |number: u32| proctor_store::Registration {
        agent: agent.id.clone(),
        key: format!("web/p{number}").parse().unwrap(),
        spec: spec(&format!("p{number}")),
    };
    let others: Vec<_> = (0..500).map(other).collect();
    world.store.register(&others, proctor_store::RegisterMode::Create, 1).await.unwrap();
    world.restart().await;

    let mut link = agent.session(&world, "run").await;
    let (mut assigned, mut assigned_before) = (Vec::new(), None);
    while assigned.len() < others.len() + 1 {
        match next(&mut link).await {
            FromServer::Assign { assignments } => {
                let bytes: usize = assignments.iter().filter_map(|one| one.spec.as_ref()).map(spec_bytes).sum();
                assert!(bytes <= 16 * 1024, "{bytes} in {} assignments", assignments.len());
                assigned.extend(assignments.into_iter().map(|one| one.key));
            }
            FromServer::Operate { key, .. } => {
                assert!(assigned.contains(&key), "after its own process was assigned");
                assigned_before = Some(assigned.len());
            }
            FromServer::Beat => {}
            other => panic!("{other:?}"),
        }
    }

    let assigned_before = assigned_before.expect("it came before the last frame");
    assert!(assigned_before < others.len() / 2, "{assigned_before} of {}", others.len());
    world.end().await;
}

#[tokio::test]
async fn the_time_that_an_operation_has_left_is_told_when_it_is_sent_and_not_when_it_was_taken() {
    let mut world = World::new().await;
    let mut agent = world.agent("0:10.0.0.1", "one").await;
    // More than all buffers between the two hold.
    let mut large = (*spec("large")).clone();
    large.control.start = Some("x".repeat(120_000).parse().unwrap());
    let large = Arc::new(large);
    let other = |number: u32| proctor_store::Registration {
        agent: agent.id.clone(),
        key: format!("web/p{number}").parse().unwrap(),
        spec: large.clone(),
    };
    let others: Vec<_> = (0..250).map(other).collect();
    world.store.register(&others, proctor_store::RegisterMode::Create, 1).await.unwrap();
    // Its process is assigned last, and it is held until then.
    start(&world, &agent, spec("a"), true).await;
    world.restart().await;

    let mut link = agent.session(&world, "run").await;
    // A slow reader.
    let unread = Duration::from_secs(4);
    tokio::time::sleep(unread).await;
    let expires_in = loop {
        if let FromServer::Operate { expires_in, .. } = next(&mut link).await {
            break expires_in;
        }
    };

    let (limit, travel) = (Duration::from_secs(600), Duration::from_secs(5));
    assert!(expires_in <= limit - travel - unread, "{expires_in:?}");
    world.end().await;
}
