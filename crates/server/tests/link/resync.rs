//! What two ends that agree send each other: nothing.

use futures::SinkExt;
use proctor_model::{AgentState, OperationKind, Phase, ProcessKey, Snapshot, StateHash, TaskId};
use proctor_runtime::clock;
use proctor_server::control::{Caller, HostRef, SpecSource, Submission, SubmitOptions, SubmittedItem, SubmittedTarget};
use proctor_store::conformance::spec;
use proctor_store::{RegisterMode, Registered, Registration};
use proctor_wire::{FromAgent, FromServer};

use crate::support::{Agent, Link, World, leave, next, until};

async fn register(world: &World, agent: &Agent, process: &str, proc_name: &str) -> u64 {
    let registration = Registration { agent: agent.id.clone(), key: process.parse().unwrap(), spec: spec(proc_name) };
    let now = clock::unix_millis();
    let answers = world.store.register(&[registration], RegisterMode::Upsert, now).await.unwrap();
    let [Registered::Stored { generation }] = answers[..] else { panic!("{answers:?}") };
    generation
}

fn running(pid: i32) -> Snapshot {
    Snapshot { phase: Phase::Running, pid: Some(pid), reported_at: clock::unix_millis() / 1000, ..Snapshot::default() }
}

/// Of an agent with these processes.
fn state(processes: &[(&str, u64, &Snapshot)]) -> AgentState {
    let keys: Vec<ProcessKey> = processes.iter().map(|(process, ..)| process.parse().unwrap()).collect();
    let each = || keys.iter().zip(processes);
    AgentState {
        assigned: StateHash::of_assigned(each().map(|(key, (_, generation, _))| key.numbered(*generation)), []),
        observed: StateHash::of_observed(
            each().map(|(key, (_, _, snapshot))| (key.numbered(snapshot.digest()), snapshot.managed)),
        ),
    }
}

/// Whether the server had nothing to hear, with the settled session.
async fn session(world: &World, agent: &mut Agent) -> (bool, Link) {
    let (answer, mut link) = agent.greet(world, agent.tls_config(), "run").await;
    let FromServer::Welcome { epoch, state_known, .. } = answer else { panic!("{answer:?}") };
    agent.seen_epoch = Some(epoch);
    link.send(FromAgent::Settled { epoch, recorded: true }).await.unwrap();
    (state_known, link)
}

/// What is assigned before an operation that is asked for now, by name, with the whole list where one came.
async fn assigned(world: &World, agent: &Agent, link: &mut Link) -> (Vec<String>, Option<Vec<String>>) {
    let (mut names, mut list) = (Vec::new(), None);
    let task = ask(world, agent).await;
    loop {
        match next(link).await {
            FromServer::Assign { assignments } => {
                let name = |key: &ProcessKey, is_there| if is_there { key.to_string() } else { format!("-{key}") };
                names.extend(assignments.iter().map(|one| name(&one.key, one.spec.is_some())));
            }
            FromServer::Registered(part) => {
                list.get_or_insert_with(Vec::new).extend(part.processes.iter().map(ToString::to_string));
            }
            FromServer::Operate { operation, .. } if operation.task == task => return (names, list),
            // Earlier ones are open, and come again on each session.
            FromServer::Operate { .. } | FromServer::Beat | FromServer::Pace { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The status of a process that is not registered, which changes nothing.
async fn ask(world: &World, agent: &Agent) -> TaskId {
    let host = HostRef::Key(agent.host);
    let item = SubmittedItem {
        key: "web/none".parse().unwrap(),
        kind: Some(OperationKind::Status),
        spec: SpecSource::Registered,
        targets: vec![SubmittedTarget { row_key: host.to_string(), host }],
    };
    let (caller, options) = (Caller::local("test"), SubmitOptions::default());
    let submission = Submission { caller, family: "native", items: vec![item], options };
    world.server.control.submit(submission).await.unwrap().task
}

#[tokio::test]
async fn an_agent_that_has_what_the_store_has_is_told_nothing_and_has_nothing_to_report_also_after_a_restart() {
    let mut world = World::new().await;
    let mut agent = world.agent("0:10.0.0.1", "a").await;
    let a = register(&world, &agent, "web/a", "one").await;
    let (seen, other) = (running(7), running(8));

    // At first it has nothing.
    agent.state = Some(state(&[]));
    let (is_known, mut link) = session(&world, &mut agent).await;
    assert!(!is_known);
    assert_eq!(assigned(&world, &agent, &mut link).await, (vec!["web/a".to_owned()], None));
    link.send(FromAgent::Observed { observations: vec![("web/a".parse().unwrap(), seen.clone())] }).await.unwrap();
    let is_observed = || async { !world.store.observations(&agent.id).await.unwrap().is_empty() };
    until("it is stored", is_observed).await;
    leave(&world, &agent, link).await;

    agent.seen_generation = a;
    agent.state = Some(state(&[("web/a", a, &seen)]));
    world.restart().await;
    let (is_known, mut link) = session(&world, &mut agent).await;
    assert!(is_known);
    assert_eq!(assigned(&world, &agent, &mut link).await, (Vec::new(), None));
    // Somebody else registers something meanwhile.
    register(&world, &agent, "web/b", "one").await;
    leave(&world, &agent, link).await;
    for (what, result, count) in [("assignments", "equal", 1.0), ("observations", "equal", 1.0)] {
        let series = format!("proctor_link_resyncs_total{{what=\"{what}\",result=\"{result}\"}}");
        assert_eq!(world.metric(&series).await, Some(count), "{series}");
    }

    // What it has since that generation, and nothing else; of its processes the store has too few.
    let (is_known, mut link) = session(&world, &mut agent).await;
    assert!(!is_known, "of web/b the store has no state, and the agent has no web/b");
    assert_eq!(assigned(&world, &agent, &mut link).await, (vec!["web/b".to_owned()], None));
    leave(&world, &agent, link).await;

    agent.state = Some(state(&[("web/a", a, &other)]));
    let (is_known, _link) = session(&world, &mut agent).await;
    assert!(!is_known, "another life");
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_has_other_registrations_than_its_generation_says_is_told_everything_once() {
    let world = World::new().await;
    let mut agent = world.agent("0:10.0.0.1", "a").await;
    let a = register(&world, &agent, "web/a", "one").await;
    let b = register(&world, &agent, "web/b", "one").await;
    agent.seen_generation = b;

    // It could not read web/b then, and has something that nobody registered.
    agent.state = Some(state(&[("web/a", a, &running(1)), ("web/c", 3, &running(1))]));
    let (is_known, mut link) = session(&world, &mut agent).await;
    assert!(!is_known);
    let both = vec!["web/a".to_owned(), "web/b".to_owned()];
    assert_eq!(assigned(&world, &agent, &mut link).await, (both.clone(), Some(both)));
    assert_eq!(assigned(&world, &agent, &mut link).await, (Vec::new(), None), "once a session");
    leave(&world, &agent, link).await;

    agent.state = Some(state(&[("web/a", a, &running(1)), ("web/b", b, &running(1))]));
    let (_, mut link) = session(&world, &mut agent).await;
    assert_eq!(assigned(&world, &agent, &mut link).await, (Vec::new(), None));
    leave(&world, &agent, link).await;

    // An older agent says only its generation, and is believed as ever.
    agent.state = None;
    let (is_known, mut link) = session(&world, &mut agent).await;
    assert!(!is_known);
    assert_eq!(assigned(&world, &agent, &mut link).await, (Vec::new(), None));
    world.end().await;
}

#[tokio::test]
async fn what_an_agent_says_of_itself_concerns_its_own_host_alone() {
    let world = World::new().await;
    let [mut honest, mut liar] = [world.agent("0:10.0.0.1", "a").await, world.agent("0:10.0.0.2", "b").await];
    let a = register(&world, &honest, "web/a", "one").await;
    let seen = running(7);
    honest.state = Some(state(&[]));
    let (_, mut link) = session(&world, &mut honest).await;
    link.send(FromAgent::Observed { observations: vec![("web/a".parse().unwrap(), seen.clone())] }).await.unwrap();
    until("it is stored", || async { !world.store.observations(&honest.id).await.unwrap().is_empty() }).await;

    // It says what the other one has.
    (liar.seen_generation, liar.state) = (u64::MAX, Some(state(&[("web/a", a, &seen)])));
    let (is_known, mut lying) = session(&world, &mut liar).await;

    assert!(!is_known);
    assert_eq!(
        assigned(&world, &liar, &mut lying).await,
        (Vec::new(), Some(Vec::new())),
        "nothing is registered there"
    );
    assert_eq!(assigned(&world, &honest, &mut link).await.0, ["web/a"]);
    assert_eq!(world.store.observations(&honest.id).await.unwrap()[0].snapshot.pid, Some(7));
    world.end().await;
}
