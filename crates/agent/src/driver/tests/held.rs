//! What the agent says it has, and what it sends to a server that has the same.

use proctor_model::{AgentState, StateHash};
use proctor_wire::RegisteredPart;

use super::*;

impl Stage {
    /// What the next greeting says.
    async fn state(&self) -> AgentState {
        let (answer, answered) = oneshot::channel();
        self.inbox.send(Input::Greeting(answer)).await.unwrap();
        answered.await.unwrap()
    }

    /// A new session, after the greeting.
    async fn connected(&mut self, is_state_known: bool) {
        let (link, heard) = mpsc::channel(1024);
        self.heard = heard;
        let link = LinkOutbox { control: link.clone(), reports: link };
        self.inbox.send(Input::Connected { link, is_state_known }).await.unwrap();
    }

    /// Whether a process was told of before it was measured, in what is heard up to a beat: so it is at the beginning of a
    /// session, and of one that does not run. (Measurements that are under way arrive on whatever session there is.)
    async fn tells_of_processes(&mut self) -> bool {
        self.inbox.send(Input::Beat).await.unwrap();
        let mut is_told = false;
        loop {
            let message = tokio::time::timeout(PATIENCE, self.heard.recv()).await.expect("in time").unwrap();
            if matches!(message, FromAgent::Beat) {
                return is_told;
            }
            if let FromAgent::Observed { observations } = message {
                is_told |= observations.iter().any(|(_, snapshot)| snapshot.usage == Usage::default());
            }
        }
    }
}

fn assigned(processes: &[(&str, u64)]) -> StateHash {
    let keys: Vec<_> = processes.iter().map(|(name, generation)| (key(name), *generation)).collect();
    StateHash::of_assigned(keys.iter().map(|(key, generation)| key.numbered(*generation)), [])
}

#[tokio::test]
async fn generations_are_known_again_after_a_restart_and_follow_what_is_registered() {
    let mut stage = Stage::new().await;
    let spec = stage.spec(|_| {});
    assert_eq!(stage.state().await.assigned, assigned(&[]));
    stage.assign("p", &spec).await;
    stage.assign("q", &spec).await;
    assert_eq!(stage.state().await.assigned, assigned(&[("p", 1), ("q", 2)]));

    let mut stage = stage.restarted().await;
    assert_eq!(stage.state().await.assigned, assigned(&[("p", 1), ("q", 2)]));

    stage.registered = 2;
    stage.assign("p", &spec).await;
    let gone = Assign { generation: 4, key: key("q"), spec: None, managed: false, registered_at: 1 };
    stage.say(FromServer::Assign { assignments: vec![gone] }).await;
    assert_eq!(stage.state().await.assigned, assigned(&[("p", 3)]));
    let part = RegisteredPart { offset: 0, processes: Vec::new(), pools: Vec::new(), is_last: true };
    stage.say(FromServer::Registered(part)).await;
    assert_eq!(stage.state().await.assigned, assigned(&[]));
}

#[tokio::test]
async fn instances_are_one_registration_and_a_pool_without_limits_is_none() {
    let mut stage = Stage::new().await;
    let pid_path = stage.path("p-{instance}.pid");
    let spec = stage.spec(|spec| {
        spec.policy.instances = 3;
        spec.identity.pid_path = pid_path.to_str().unwrap().parse().unwrap();
    });
    stage.assign("p", &spec).await;
    let pool = |cpu: f64| {
        let limits = proctor_model::PoolLimits {
            cpu: cpu.try_into().unwrap(),
            memory: 0.0.try_into().unwrap(),
            cpu_weight: proctor_model::Weight::Usage,
            memory_weight: proctor_model::Weight::Usage,
            dry_run: false,
        };
        proctor_model::Pool { namespace: "ns".parse().unwrap(), id: "small".parse().unwrap(), limits }
    };
    assert_eq!(stage.state().await.assigned, assigned(&[("p", 1)]));

    stage.say(FromServer::AssignPools { pools: vec![(7, pool(5.0))] }).await;
    let both = StateHash::of_assigned([("ns", "p", 1)], [("ns", "small", 7)]);
    assert_eq!(stage.state().await.assigned, both);
    let stage = stage.restarted().await;
    assert_eq!(stage.state().await.assigned, both);

    stage.say(FromServer::AssignPools { pools: vec![(8, pool(0.0))] }).await;
    assert_eq!(stage.state().await.assigned, assigned(&[("p", 1)]));
}

#[tokio::test]
async fn a_server_that_has_every_process_as_it_is_hears_of_changes_alone() {
    let mut stage = Stage::new().await;
    let spec = stage.spec(|spec| {
        spec.identity.proc_name = "sleep".parse().unwrap();
        spec.policy.start_check = 0.try_into().unwrap();
        spec.control.start = Some("sleep 1000 > /dev/null 2>&1 & echo $! | tee p.pid >> pids".parse().unwrap());
    });
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);

    stage.state().await;
    stage.connected(false).await;
    assert!(stage.tells_of_processes().await, "this server does not know");
    let greeted = stage.state().await;
    stage.connected(true).await;
    assert!(!stage.tells_of_processes().await);

    // It is killed while the next session is opened.
    assert_eq!(stage.state().await, greeted);
    let pid = numbers(&stage.path("pids"))[0];
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    while !stage.tells_of_processes().await {}
    stage.connected(true).await;
    assert!(stage.tells_of_processes().await, "the server was greeted with another state");
}
