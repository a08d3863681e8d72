//! What a call carries decides what it needs: every dialect that carries specs, every operation, every kind of
//! spec, as every role. The agent's part is played by hand, so that "admitted" means that exactly this operation
//! was delivered with exactly this spec.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use proctor_model::{Code, Message, OperationKind, Outcome, ProcessKey, Spec, TaskId};
use proctor_server::control::{Delivery, Session};
use proctor_store::{ProcessQuery, TaskView};
use serde_json::{Value, json};

use crate::spec_calls::{Given, IP, OPERATIONS, Shape, SpecCall, spec_calls};
use crate::support::{Answer, ESB, SECRET, World};

const AGENT: &str = "020000000052540a9b2c1641";
const ROLES: [&str; 5] = ["nobody", "viewer", "operator", "owner", "admin"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carries {
    /// What is registered, word by word.
    Same,
    /// Another command for everything that can be run.
    OtherCommands,
    /// The pid file of somebody else's process.
    OtherPidFile,
    OtherUser,
    /// A spec for a process that is not registered.
    New,
}

use Carries::{New, OtherCommands, OtherPidFile, OtherUser, Same};

const SETUP: &str = "/data/m";

fn body(call: &SpecCall, name: &str, op_type: i64, carries: Carries) -> Value {
    let given = Given {
        user: if carries == OtherUser { "nobody" } else { "root" },
        setup_path: SETUP,
        pid_path: if carries == OtherPidFile { "/run/sshd.pid" } else { "/data/m/m.pid" },
        config_path: None,
        log_path: None,
        configmap: None,
        command: if carries == OtherCommands { "rm -rf " } else { "./" },
    };
    call.body(name, op_type, &given)
}

/// What a call can carry. Other paths of the same calls are known to differ in nothing but their path.
fn carried_by(call: &SpecCall) -> Vec<Carries> {
    let can_carry = |carries: &Carries| call.shape != Shape::JobScripts || *carries != OtherCommands;
    let all: &[Carries] =
        if call.is_alias() { &[OtherPidFile] } else { &[Same, OtherCommands, OtherPidFile, OtherUser, New] };
    all.iter().copied().filter(can_carry).collect()
}

/// operate_proc_v2 of the ESB.
fn v2() -> SpecCall {
    SpecCall { method: Method::POST, path: format!("{ESB}/operate_proc_v2"), shape: Shape::Operate }
}

struct Stage {
    world: World,
    session: Arc<Session>,
}

impl Stage {
    /// A host whose agent is connected, and an app with each of the built-in roles.
    async fn new() -> Self {
        let world = World::new().await;
        for role in ROLES {
            world.app(role).await;
            if role != "nobody" {
                world.bind(&format!("app:{role}"), role, "everything").await;
            }
        }
        let session = world.connect(AGENT).await;
        Self { world, session }
    }

    async fn call(&self, app: &str, path: &str, body: &Value) -> Answer {
        let credentials = json!({ "bk_app_code": app, "bk_app_secret": SECRET, "bk_username": "tester" });
        self.world.call(&credentials, &Method::POST, path, body).await
    }

    /// The task that a call has made.
    async fn submit(&self, app: &str, call: &SpecCall, body: &Value) -> TaskView {
        let answer = self.call(app, &call.path, body).await;
        let data = answer.data();
        let id = data["task_id"].as_str().or_else(|| data["bk_gse_taskid"].as_str()).unwrap();
        self.task(id.parse().unwrap()).await
    }

    async fn task(&self, id: TaskId) -> TaskView {
        self.world.store.task(id).await.unwrap().unwrap()
    }

    /// Registers the process as the dialect itself does, and answers.
    async fn register(&self, call: &SpecCall, name: &str) -> Arc<Spec> {
        self.submit("owner", call, &body(call, name, 3, Same)).await;
        self.finish(Code::Success).await;
        self.registered(&call.key(name, SETUP)).await.expect("a manage with a spec registers it")
    }

    async fn registered(&self, key: &ProcessKey) -> Option<Arc<Spec>> {
        let (namespace, name) = (Some(key.namespace.clone()), Some(key.name.clone()));
        let query = ProcessQuery { namespace, name, ..ProcessQuery::default() };
        self.world.store.processes(&query).await.unwrap().1.into_iter().next().map(|record| record.spec)
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.world.control.take_deliveries(&self.session, 10)
    }

    /// Ends what was delivered; waits until that is in the store.
    async fn finish(&self, code: Code) -> Vec<Delivery> {
        let deliveries = self.deliveries();
        for delivery in &deliveries {
            let outcome = Outcome::new(code, Message::foreign("said the test"), false);
            self.world.control.arrived(&self.session, delivery.operation, outcome).await.unwrap();
            let task = delivery.operation.task;
            let wait = async {
                while self.task(task).await.targets.iter().any(|target| target.outcome.is_none()) {
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.expect("outcomes are recorded");
        }
        deliveries
    }

    async fn retry(&self, app: &str, task: TaskId) -> TaskView {
        let answer = self.call(app, &format!("/api/v1/tasks/{task}/retry"), &json!({})).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.json);
        self.task(answer.json["task_id"].as_str().unwrap().parse().unwrap()).await
    }

    /// A retry that is forbidden on its only target.
    async fn refused_retry(&self, app: &str, task: TaskId) -> Answer {
        let answer = self.call(app, &format!("/api/v1/tasks/{task}/retry"), &json!({})).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", answer.json);
        assert!(self.deliveries().is_empty(), "{}", answer.json);
        answer
    }
}

/// Whether the role may do this, from the table in docs/access.md.
fn may(role: &str, op_type: i64, carries: Carries) -> bool {
    let classes: &[&str] = match role {
        "viewer" => &["read"],
        "operator" => &["read", "operate"],
        "owner" => &["read", "operate", "register"],
        "admin" => &["read", "operate", "register"],
        _ => &[],
    };
    let by_kind = if op_type == 2 { "read" } else { "operate" };
    // A status query runs nothing, so its user does not matter.
    let is_other = carries != Same && (op_type, carries) != (2, OtherUser);
    classes.contains(&by_kind) && (!is_other || classes.contains(&"register"))
}

fn outcome(task: &TaskView) -> Option<&Outcome> {
    let [target] = &task.targets[..] else { panic!("one target: {task:?}") };
    target.outcome.as_ref()
}

/// One call; what is wrong with its answer.
async fn check(stage: &Stage, call: &SpecCall, role: &str, op_type: i64, carries: Carries) -> Result<(), String> {
    let kind = OPERATIONS.iter().find(|(number, _)| *number == op_type).unwrap().1;
    let name = format!("{}-{role}-{op_type}-{carries:?}", call.path.replace('/', "_")).to_lowercase();
    let key = call.key(&name, SETUP);
    let before = if carries == New { None } else { Some(stage.register(call, &name).await) };

    let body = body(call, &name, op_type, carries);
    if !may(role, op_type, carries) {
        // Forbidden on its only target, the call is refused as a whole.
        let answer = stage.call(role, &call.path, &body).await;
        let found = (answer.code(), stage.deliveries().len(), stage.registered(&key).await == before);
        let wanted = (call.refused_code(), 0, true);
        return if found == wanted { Ok(()) } else { Err(format!("must be refused: {found:?}")) };
    }
    let task = stage.submit(role, call, &body).await;
    let delivered = stage.finish(Code::CheckFailed).await;

    let after = stage.registered(&key).await;
    let [delivery] = &delivered[..] else { return Err(format!("must be delivered: {task:?}")) };
    if outcome(&task).is_some() || (delivery.kind, &delivery.key) != (kind, &key) {
        return Err(format!("another operation was delivered: {delivery:?}"));
    }
    let sent = delivery.spec.as_ref().ok_or("no spec was delivered")?;
    let commands = sent.control.stop.as_ref().map(|line| line.as_str().starts_with("rm "));
    let is_stored = matches!(op_type, 0 | 3 | 7) && carries != Same;
    match (kind, carries) {
        (OperationKind::Status, Same | OtherUser) if before.as_ref() == Some(sent) => {}
        (OperationKind::Status, Same | OtherUser) => return Err(format!("not the registered spec: {sent:?}")),
        (OperationKind::Status, _) if sent.control == proctor_model::Control::default() => {}
        (OperationKind::Status, _) => return Err(format!("a status query takes commands along: {:?}", sent.control)),
        (_, OtherCommands) if commands == Some(true) => {}
        (_, Same) if before.as_ref() == Some(sent) => {}
        (_, OtherPidFile) if sent.identity.pid_path.as_str() == "/run/sshd.pid" => {}
        (_, OtherUser) if sent.identity.user.as_str() == "nobody" => {}
        (_, New) => {}
        (_, _) => return Err(format!("another spec was delivered: {sent:?}")),
    }
    match (is_stored, after) {
        (true, Some(after)) if after == *sent => Ok(()),
        (false, after) if after == before => Ok(()),
        (is_stored, after) => Err(format!("stored: {is_stored}, but registered is {after:?}")),
    }
}

#[tokio::test]
async fn a_spec_that_is_not_registered_takes_register_whatever_the_operation() {
    let stage = Stage::new().await;
    let calls: Vec<SpecCall> = spec_calls().into_iter().filter(SpecCall::operates).collect();
    let mut wrong = Vec::new();
    let mut walked = 0;

    for call in &calls {
        for carries in carried_by(call) {
            for (op_type, _) in call.operations() {
                for role in ROLES {
                    walked += 1;
                    if let Err(problem) = check(&stage, call, role, op_type, carries).await {
                        wrong.push(format!("{} op {op_type} carries {carries:?} as {role}: {problem}", call.path));
                    }
                }
            }
        }
    }

    // Of eight calls with all operations one cannot carry commands; manage_proc has two; and seven other paths.
    assert_eq!(walked, ((8 * 5 - 1) * 8 + 5 * 2 + 6 * 8 + 2) * 5);
    assert!(wrong.is_empty(), "{} of {walked}:\n{}", wrong.len(), wrong.join("\n"));
    stage.world.end().await;
}

#[tokio::test]
async fn cancelling_runs_nothing_and_takes_the_class_of_the_operation_alone() {
    let stage = Stage::new().await;
    stage.register(&v2(), "m").await;
    for carries in [Same, OtherCommands] {
        let task = stage.submit("owner", &v2(), &body(&v2(), "m", 1, carries)).await;
        let cancel = format!("/api/v1/tasks/{}/cancel", task.id);

        let by_viewer = stage.call("viewer", &cancel, &json!({})).await;
        let by_operator = stage.call("operator", &cancel, &json!({})).await;

        assert_eq!(by_viewer.status, StatusCode::FORBIDDEN, "{carries:?}: {}", by_viewer.json);
        assert_eq!(by_operator.status, StatusCode::OK, "{carries:?}: {}", by_operator.json);
        assert_eq!(outcome(&stage.task(task.id).await).unwrap().code, Code::Cancelled, "{carries:?}");
        assert!(stage.deliveries().is_empty(), "{carries:?}");
    }
    stage.world.end().await;
}

/// An app that may register on the host of another cloud area, and has the role everywhere.
async fn partly(stage: &Stage, role: &str) -> Arc<Session> {
    stage.world.enrol("3:10.0.0.2", "agent-2").await;
    stage.world.app("partly").await;
    stage.world.bind("app:partly", role, "everything").await;
    stage.world.bind("app:partly", "owner", "cloud:3").await;
    stage.world.connect("agent-2").await
}

#[tokio::test]
async fn a_retry_of_a_refused_target_asks_again_and_has_no_spec_to_run() {
    for (op_type, _) in OPERATIONS {
        let stage = Stage::new().await;
        let allowed = partly(&stage, if op_type == 2 { "viewer" } else { "operator" }).await;
        let mut body = body(&v2(), "m", op_type, New);
        body["hosts"] = json!([{ "ip": IP, "bk_cloud_id": 0 }, { "ip": "10.0.0.2", "bk_cloud_id": 3 }]);
        let task = stage.submit("partly", &v2(), &body).await;
        let [refused, open] = &task.targets[..] else { panic!("two targets: {task:?}") };
        assert_eq!(refused.outcome.as_ref().unwrap().code, Code::Forbidden, "op {op_type}");
        assert_eq!(task.items[refused.target.item as usize].spec, None, "op {op_type}: nothing of it is kept");
        assert!(open.outcome.is_none() && task.items[open.target.item as usize].spec.is_some(), "op {op_type}");
        for delivery in stage.world.control.take_deliveries(&allowed, 10) {
            stage.world.control.arrived(&allowed, delivery.operation, Outcome::success(true)).await.unwrap();
        }
        stage.world.finished(&format!("{ESB}/get_proc_operate_result_v2"), &json!(task.id.to_string())).await;

        stage.refused_retry("partly", task.id).await;
        let by_owner = stage.retry("owner", task.id).await;

        let answer = outcome(&by_owner).unwrap();
        assert_eq!(answer.code, Code::CommandFailed, "op {op_type}");
        assert!(answer.message.contains("send the operation again, with its spec"), "{}", answer.message);
        assert!(stage.deliveries().is_empty(), "op {op_type}");
        let here = ProcessQuery { agents: Some(vec![AGENT.parse().unwrap()]), ..ProcessQuery::default() };
        assert_eq!(stage.world.store.processes(&here).await.unwrap().1, [], "op {op_type}");
        stage.world.end().await;
    }
}

#[tokio::test]
async fn a_retry_of_an_operation_with_a_spec_of_its_own_takes_what_the_first_one_took() {
    let stage = Stage::new().await;
    let registered = stage.register(&v2(), "m").await;
    for op_type in [1, 4, 8, 9] {
        let task = stage.submit("owner", &v2(), &body(&v2(), "m", op_type, OtherCommands)).await;
        let first = stage.finish(Code::CheckFailed).await;

        stage.refused_retry("operator", task.id).await;

        stage.retry("owner", task.id).await;
        let again = stage.finish(Code::CheckFailed).await;
        assert_eq!(again.len(), 1, "op {op_type}");
        assert_eq!((&again[0].spec, again[0].kind), (&first[0].spec, first[0].kind), "op {op_type}");
        assert_eq!(stage.registered(&v2().key("m", SETUP)).await.as_ref(), Some(&registered), "op {op_type}");
    }
    stage.world.end().await;
}

#[tokio::test]
async fn a_retry_of_a_start_runs_what_is_registered_by_then() {
    let stage = Stage::new().await;
    let task = stage.submit("owner", &v2(), &body(&v2(), "m", 0, OtherCommands)).await;
    stage.finish(Code::CheckFailed).await;
    let corrected = stage.register(&v2(), "m").await;

    stage.retry("operator", task.id).await;

    let again = stage.finish(Code::CheckFailed).await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].spec.as_ref(), Some(&corrected));

    let mut gone = body(&v2(), "m", 0, Same);
    gone["hosts"][0]["bk_supplier_id"] = json!(0);
    stage.call("owner", &format!("{ESB}/unregister_proc_info"), &gone).await.data();
    // Nothing of it is registered any more.
    stage.refused_retry("operator", task.id).await;
    stage.world.end().await;
}

#[tokio::test]
async fn a_refusal_for_a_carried_spec_says_so() {
    let stage = Stage::new().await;
    stage.register(&v2(), "m").await;

    let answer = stage.call("viewer", &v2().path, &body(&v2(), "m", 2, OtherCommands)).await;

    let expected = "app viewer for user tester may not register in namespace web on host 0:10.0.0.1, and the call \
                    carries a spec that is not registered there: send the registered spec, or ask an administrator \
                    for a role with 'register' there";
    assert_eq!((answer.code(), answer.message()), (v2().refused_code(), expected));
    stage.world.end().await;
}
