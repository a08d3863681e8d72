//! What a caller without a role is told, in both languages.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_store::{AuditEntry, AuditPhase, AuditQuery, ProcessQuery};
use serde_json::{Value, json};

use crate::support::{APP, Answer, ESB, GATEWAY, JOB, SECRET, World, on_host, registered, spec};

/// The app without any role, for itself.
async fn as_stranger(world: &World, path: &str, mut body: Value, language: &str) -> Answer {
    body["bk_app_code"] = json!("stranger");
    body["bk_app_secret"] = json!(SECRET);
    body["bk_username"] = json!("stranger");
    in_language(world, path, &body, language).await
}

async fn in_language(world: &World, path: &str, body: &Value, language: &str) -> Answer {
    let request = Request::post(path).header("blueking-language", language);
    world.send(request.body(Body::from(body.to_string())).unwrap()).await
}

fn lacks_read_on(host: &str) -> Value {
    let instance = json!({"type": "host", "type_name": "host", "id": host, "name": host});
    let hosts = json!({"system_id": "proctor", "system_name": "Proctor", "type": "host", "type_name": "host",
        "instances": [[instance]]});
    json!({"system_id": "proctor", "system_name": "Proctor",
        "actions": [{"id": "read", "name": "read", "related_resource_types": [hosts]}]})
}

#[tokio::test]
async fn a_call_without_rows_fails_with_what_is_missing() {
    let world = World::new().await;
    let by_id = json!({"meta": {"namespace": "web", "name": "a"}, "agent_id_list": ["0:10.0.0.1"]});

    let esb = as_stranger(&world, &format!("{ESB}/get_proc_status"), on_host("a", "10.0.0.1"), "en").await;
    let gateway = as_stranger(&world, &format!("{GATEWAY}/get_proc_status_v2"), by_id, "en").await;

    assert_eq!((esb.status, esb.code()), (StatusCode::OK, 1_306_403), "{}", esb.json);
    assert_eq!(esb.json["permission"], lacks_read_on("0:10.0.0.1"));
    assert_eq!((gateway.status, gateway.code()), (StatusCode::FORBIDDEN, 1_640_301));
    assert_eq!(gateway.json["code_name"], "APP_NO_PERMISSION");
    assert_eq!(gateway.json["permission"], lacks_read_on("0:10.0.0.1"));
    world.end().await;
}

#[tokio::test]
async fn a_task_of_others_is_forbidden_in_the_shape_of_job() {
    let world = World::new().await;
    let info = json!({"setup_path": "/d", "proc_name": "n", "pid_path": "/d/n.pid",
        "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]});
    let body = json!({"bk_biz_id": 1, "op_type": 2, "process_infos": [info]});
    let task = world.post(&format!("{JOB}/operate_process"), body).await.data()["bk_gse_taskid"].clone();

    let result = json!({"bk_biz_id": 1, "bk_gse_taskid": task});
    let answer = as_stranger(&world, &format!("{JOB}/get_proc_result"), result, "en").await;

    assert_eq!((answer.status, answer.code()), (StatusCode::OK, 9_900_403), "{}", answer.json);
    assert_eq!(answer.json["permission"]["actions"][0]["id"], "read");
    world.end().await;
}

#[tokio::test]
async fn a_target_that_is_forbidden_is_a_row() {
    let world = World::new().await;

    let english = as_stranger(&world, &format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1"), "en").await;
    let chinese = as_stranger(&world, &format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1"), "zh-cn").await;

    let row = |answer: &Answer| answer.data()["0:7:10.0.0.1:web:a"].clone();
    assert_eq!((&row(&english)["error_code"], &row(&chinese)["error_code"]), (&json!(403), &json!(403)));
    assert!(row(&english)["error_msg"].as_str().unwrap().contains("register"));
    assert!(
        row(&chinese)["error_msg"]
            .as_str()
            .unwrap()
            .starts_with("应用 stranger（用户 stranger）没有注册（register）权限"),
        "{}",
        row(&chinese)
    );
    world.end().await;
}

#[tokio::test]
async fn an_operation_on_a_forbidden_target_registers_nothing_there() {
    let world = World::new().await;
    world.bind("app:stranger", "operator", "namespace:elsewhere").await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await;
    let before = world.store.processes(&ProcessQuery::default()).await.unwrap();
    let item = |name: &str| {
        let mut item = on_host(name, "10.0.0.1");
        item["op_type"] = json!(0);
        item["spec"] = spec();
        item["spec"]["control"]["start_cmd"] = json!("./evil");
        item
    };
    let body = json!({"proc_operate_req": [item("a"), item("b")]});

    let submitted = as_stranger(&world, &format!("{GATEWAY}/operate_proc_multi"), body, "en").await;

    assert_eq!((submitted.status, submitted.code()), (StatusCode::FORBIDDEN, 1_640_301), "{}", submitted.json);
    assert_eq!(stored(&world).await.0, 0, "no task");
    assert_eq!(world.store.processes(&ProcessQuery::default()).await.unwrap(), before);
    world.end().await;
}

/// Tasks, and the newest entry of the audit.
async fn stored(world: &World) -> (usize, AuditEntry) {
    let query = AuditQuery { limit: 100_000, ..AuditQuery::default() };
    let tasks = world.store.task_ids(10).await.unwrap().len();
    (tasks, world.store.audit(&query).await.unwrap().pop().unwrap())
}

#[tokio::test]
async fn what_an_app_without_any_role_asks_for_stores_nothing_but_a_small_audit_entry() {
    // A body of less than 256 KiB: a larger one is refused before it is parsed.
    const TARGETS: usize = 4000;
    let world = World::new().await;
    let agents: Vec<Value> = (0..TARGETS).map(|number| json!(format!("agent-{number}"))).collect();
    let operation =
        json!({"meta": {"namespace": "web", "name": "a"}, "op_type": 0, "spec": spec(), "agent_id_list": agents});
    let hosts: Vec<Value> = (0..TARGETS)
        .map(|number| json!({"ip": format!("10.0.{}.{}", number / 250, number % 250), "bk_cloud_id": 0, "bk_supplier_id": 0}))
        .collect();
    let mut registration = registered("a", "10.0.0.1");
    registration["hosts"] = json!(hosts);

    let submitted = as_stranger(&world, &format!("{ESB}/operate_proc_v2"), operation, "en").await;
    let (tasks, of_task) = stored(&world).await;
    let registered = as_stranger(&world, &format!("{ESB}/register_proc_info"), registration, "en").await;
    let (_, of_registration) = stored(&world).await;

    assert_eq!((submitted.status, submitted.code()), (StatusCode::OK, 1_306_403), "{}", submitted.json);
    assert_eq!(registered.data()["0:0:10.0.0.1:web:a"]["error_code"], 403);
    assert_eq!(tasks, 0);
    for entry in [of_task, of_registration] {
        assert_eq!((entry.draft.phase, entry.draft.target_count), (AuditPhase::Refused, TARGETS as u64), "{entry:?}");
        assert_eq!(entry.draft.targets.len(), 20);
        assert!(entry.draft.outcome.len() < 1000, "{}", entry.draft.outcome);
    }
    world.end().await;
}

/// Hosts `agent-0` to `agent-N`, all in a cloud area that the app may not touch; the host of [`World::new`] is not.
async fn forbidden_hosts(world: &World, count: u32) -> Vec<Value> {
    for number in 0..count {
        world.enrol(&format!("3:10.1.0.{number}"), &format!("agent-{number}")).await;
    }
    (0..count).map(|number| json!(format!("agent-{number}"))).collect()
}

#[tokio::test]
async fn an_operation_that_is_forbidden_on_every_target_makes_no_task() {
    let world = World::new().await;
    world.bind("app:stranger", "viewer", "everything").await;
    let agents = forbidden_hosts(&world, 101).await;
    let operation = |count: usize| json!({"meta": {"namespace": "web", "name": "a"}, "op_type": 0, "spec": spec(), "agent_id_list": agents[..count]});

    for count in [1, 100, 101] {
        let refused = as_stranger(&world, &format!("{ESB}/operate_proc_v2"), operation(count), "en").await;

        assert_eq!((refused.status, refused.code()), (StatusCode::OK, 1_306_403), "{}", refused.json);
        assert!(refused.message().contains("may not operate in namespace web on host agent-0"), "{}", refused.json);
        let (tasks, entry) = stored(&world).await;
        assert_eq!((tasks, entry.draft.phase, entry.draft.target_count), (0, AuditPhase::Refused, count as u64));
    }
    world.end().await;
}

/// What the tables of the store take.
async fn stored_bytes(world: &World) -> u64 {
    world.store.sizes().await.unwrap().iter().map(|size| size.bytes).sum()
}

#[tokio::test]
async fn what_a_viewer_of_everything_is_refused_does_not_fill_the_store() {
    const CALLS: usize = 300;
    let world = World::new().await;
    world.bind("app:stranger", "viewer", "everything").await;
    let agents = forbidden_hosts(&world, 100).await;
    let item = |op_type: u32, agents: &[Value]| json!({"meta": {"namespace": "web", "name": "a"}, "op_type": op_type, "spec": spec(), "agent_id_list": agents});
    let status =
        |agent: &str| json!({"meta": {"namespace": "web", "name": "a"}, "op_type": 2, "agent_id_list": [agent]});
    // Alone, and beside a query that is allowed, of a host that is known and of one that is not.
    let beside = |allowed: &str| json!({"proc_operate_req": [status(allowed), item(1, &agents)]});
    let bodies = [json!({"proc_operate_req": [item(1, &agents)]}), beside("0:10.0.0.1"), beside("0:10.9.9.9")];
    let before = stored_bytes(&world).await;
    let mut codes = Vec::new();

    for _ in 0..CALLS {
        for body in &bodies {
            codes.push(as_stranger(&world, &format!("{ESB}/operate_proc_multi"), body.clone(), "en").await.code());
        }
    }

    let grown = stored_bytes(&world).await - before;
    assert!(grown < 3 * 1024 * 1024, "{grown} bytes");
    let stored = codes.iter().filter(|code| **code == 0).count();
    assert!((1..60).contains(&stored), "rows beside others are stored up to a bound: {stored}");
    assert!(codes.iter().all(|code| [0, 1_306_403].contains(code)), "{codes:?}");
    world.end().await;
}

#[tokio::test]
async fn forbidden_targets_are_rows_beside_as_many_others() {
    let world = World::new().await;
    world.bind("app:stranger", "operator", "cloud:0").await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();
    let agents = forbidden_hosts(&world, 1).await;
    let who = json!({"bk_app_code": "stranger", "bk_app_secret": SECRET, "bk_username": "stranger"});
    let stop = json!({"operation": "stop", "process": "web/a", "hosts": ["0:10.0.0.1", agents[0]]});

    for _ in 0..100 {
        let made = world.call(&who, &Method::POST, "/api/v1/operations", &stop).await;
        assert_eq!(made.status, StatusCode::ACCEPTED, "{}", made.json);
        let rows = format!("/api/v1/tasks/{}/targets", made.json["task_id"].as_str().unwrap());
        let rows = world.call(&who, &Method::GET, &rows, &json!({})).await.json;
        let refused = rows["targets"].as_array().unwrap().iter().filter(|row| row["code"] == 403).count();
        assert_eq!((refused, &rows["targets"][1]["code"]), (1, &json!(403)), "{rows}");
    }
    world.end().await;
}

#[tokio::test]
async fn messages_are_in_the_language_of_the_caller() {
    let world = World::new().await;
    let who = |mut body: Value| {
        body["bk_app_code"] = json!(APP);
        body["bk_app_secret"] = json!(SECRET);
        body["bk_username"] = json!("admin");
        body
    };
    let register = format!("{ESB}/register_proc_info");
    let gone = who(registered("a", "10.9.9.9"));

    let field = in_language(&world, &format!("{ESB}/operate_proc"), &who(json!({})), "zh-hans").await;
    let job = in_language(&world, &format!("{JOB}/operate_process"), &who(json!({})), "zh-cn").await;
    let gateway = in_language(&world, &format!("{GATEWAY}/operate_proc_v2"), &json!({}), "zh-cn").await;
    let row = in_language(&world, &register, &gone, "zh-cn").await;
    let english = in_language(&world, &register, &gone, "en").await;
    let done = in_language(&world, &register, &who(registered("a", "10.0.0.1")), "zh-cn").await;
    let accepting = Request::post(format!("{ESB}/operate_proc")).header("Accept-Language", "zh-CN,zh;q=0.9");
    let accepting = world.send(accepting.body(Body::from(who(json!({})).to_string())).unwrap()).await;

    assert_eq!(field.message(), "meta: 缺失");
    assert_eq!(accepting.message(), "meta: 缺失");
    assert_eq!(job.message(), "bk_biz_id: 缺失，且没有 bk_scope_type");
    assert_eq!(gateway.message(), "应用认证失败 [reason=\"APP Code [bk_app_code] 不能为空\"]");
    let header = gateway.headers["X-Bkapi-Error-Message"].to_str().unwrap();
    assert!(header.contains("cannot be empty"), "a header is ASCII: {header}");
    let message = |answer: &Answer| answer.data()["0:7:10.9.9.9:web:a"]["error_msg"].clone();
    assert_eq!(message(&row), "主机 0:10.9.9.9 从未安装 Agent");
    assert_eq!(message(&english), "host 0:10.9.9.9 has never enrolled an agent");
    assert_eq!((done.message(), &done.data()["0:7:10.0.0.1:web:a"]["error_msg"]), ("success", &json!("success")));
    world.end().await;
}
