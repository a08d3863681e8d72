//! Who gets in, and the calls of processes, operations and pools.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_server::admin::{self, AppOptions};
use serde_json::{Value, json};

use crate::support::{AGENT, HOST, World, error, registration};

#[tokio::test]
async fn nobody_gets_in_without_an_app_and_its_secret() {
    let world = World::new().await;
    let weak = admin::create_app(&world.store, &"weak".parse().unwrap(), AppOptions::default(), Vec::new())
        .await
        .unwrap()
        .unwrap();

    let bare = world.send(Request::get("/api/v1/hosts").body(Body::empty()).unwrap()).await;
    let wrong = world.call_as("boss", "guess", Method::GET, "/hosts", Value::Null).await;
    let unknown = world.call_as("nobody", &world.secret, Method::GET, "/hosts", Value::Null).await;
    let untrusted = world.call_as("weak", &weak, Method::GET, "/hosts", Value::Null).await;

    for (status, answer) in [bare, wrong, unknown, untrusted] {
        assert_eq!((status, error(&answer).0), (StatusCode::UNAUTHORIZED, "unauthenticated"), "{answer}");
    }
}

#[tokio::test]
async fn hosts_are_listed_with_their_agents() {
    let world = World::new().await;

    let (status, answer) = world.get("/hosts").await;

    assert_eq!(status, StatusCode::OK);
    let host = &answer["hosts"][0];
    assert_eq!((&host["host"], &host["agent"], &host["online"]), (&json!(HOST), &json!(AGENT), &json!(false)));
}

#[tokio::test]
async fn a_registered_process_is_listed_and_shown_with_every_field() {
    let world = World::new().await;
    world.register("nginx").await;
    world.register("/opt/x/php-fpm").await;

    let (_, list) = world.get("/processes?namespace=web&host=10.0.0.1&limit=1").await;
    let (_, none) = world.get("/processes?host=10.0.0.9").await;
    let (_, shown) = world.get("/processes/web/nginx").await;
    let (status, slashed) = world.get("/processes/web/%2Fopt%2Fx%2Fphp-fpm").await;

    assert_eq!((list["next"].is_string(), list["processes"].as_array().unwrap().len()), (true, 1));
    assert!(list["processes"][0].get("spec").is_none());
    assert_eq!(none, json!({ "processes": [] }));
    let process = &shown["processes"][0];
    assert_eq!((&process["process"], &process["phase"]), (&json!("web/nginx"), &json!("unknown")));
    let spec = &process["spec"];
    assert_eq!(spec["control"]["health"], "./health.sh");
    assert_eq!(spec["limits"], json!({ "cpu": 12.5, "memory": 30.0, "fd": 1000, "disk": 7, "net": 8 }));
    assert_eq!((&spec["report_id"], &spec["configmap"][0]["md5"]), (&json!(9), &json!("abc")));
    assert_eq!(spec["labels"], json!({ "team": "a" }));
    assert_eq!((status, slashed["processes"].as_array().unwrap().len()), (StatusCode::OK, 1));
}

#[tokio::test]
async fn a_second_registration_changes_nothing_and_an_update_does() {
    let world = World::new().await;
    world.register("nginx").await;
    let mut changed = registration("nginx");
    changed["spec"]["control"]["start_cmd"] = json!("./other.sh");

    let (_, again) = world.post("/processes", changed.clone()).await;
    let (_, before) = world.get("/processes/web/nginx").await;
    let (_, update) = world.post("/processes?update=true", changed).await;
    let (_, after) = world.get("/processes/web/nginx").await;

    assert_eq!((&again["rows"][0]["code"], &again["rows"][0]["name"]), (&json!(850), &json!("already_registered")));
    assert_eq!(before["processes"][0]["spec"]["control"]["start"], "./start.sh");
    assert_eq!(update["rows"][0]["code"], 0);
    assert_eq!(after["processes"][0]["spec"]["control"]["start"], "./other.sh");
}

#[tokio::test]
async fn a_plan_of_a_registration_tells_what_would_change_and_changes_nothing() {
    let world = World::new().await;
    world.register("nginx").await;
    let mut changed = registration("nginx");
    changed["spec"]["control"]["start_cmd"] = json!("./other.sh");
    changed["hosts"] = json!([{ "ip": "10.0.0.1", "bk_cloud_id": 0 }, { "ip": "10.0.0.9", "bk_cloud_id": 0 }]);

    let (status, plan) = world.post("/processes/plan", changed).await;
    let (_, new) = world.post("/processes/plan", registration("other")).await;
    let (_, after) = world.get("/processes/web/nginx").await;

    assert_eq!(status, StatusCode::OK);
    let change = json!([{ "path": "control.start", "from": "./start.sh", "to": "./other.sh" }]);
    assert_eq!(plan["hosts"][0], json!({ "host": HOST, "registered": true, "changes": change }));
    assert_eq!(plan["hosts"][1]["refused"]["code"], 117);
    assert_eq!(new["hosts"][0]["registered"], false);
    assert!(new["hosts"][0]["changes"].as_array().unwrap().len() > 10);
    assert_eq!(after["processes"][0]["spec"]["control"]["start"], "./start.sh");
}

#[tokio::test]
async fn plans_say_why_one_instance_runs_where_several_are_asked_for() {
    let world = World::new().await;
    let mut several = registration("several");
    several["spec"]["monitor_policy"]["instance_num"] = json!(3);
    let note = "1 instance runs instead of 3: pid_path has no {instance} to tell them apart";

    let (_, planned) = world.post("/processes/plan", several.clone()).await;
    world.post("/processes", several).await;
    let body = json!({ "operation": "start", "process": "web/several", "all": true, "plan": true });
    let (_, start) = world.post("/operations", body.clone()).await;
    let mut stop = body;
    stop["operation"] = json!("stop");
    let (_, stop) = world.post("/operations", stop).await;

    assert_eq!(planned["hosts"][0]["note"], note, "{planned}");
    assert_eq!(start["plan"]["targets"][0]["note"], note, "{start}");
    assert_eq!(stop["plan"]["targets"][0].get("note"), None);
}

#[tokio::test]
async fn a_bad_registration_names_its_field_and_changes_nothing() {
    let world = World::new().await;
    let mut bad = registration("nginx");
    bad["hosts"][0]["ip"] = json!(10);

    let (status, answer) = world.post("/processes", bad).await;
    let (_, list) = world.get("/processes").await;

    assert_eq!((status, error(&answer)), (StatusCode::BAD_REQUEST, ("invalid_argument", "hosts[0].ip")), "{answer}");
    assert_eq!(list, json!({ "processes": [] }));
}

#[tokio::test]
async fn unregistering_says_for_each_host_whether_it_was_there() {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    world.register("nginx").await;

    let hosts = json!({ "hosts": ["10.0.0.1", "agent-2", "10.0.0.9"] });
    let (_, answer) = world.call(Method::DELETE, "/processes/web/nginx", hosts).await;
    let (gone, _) = world.get("/processes/web/nginx").await;
    let (none, _) = world.call(Method::DELETE, "/processes/web/nginx", json!({ "all": true })).await;

    let codes: Vec<&Value> = answer["rows"].as_array().unwrap().iter().map(|row| &row["code"]).collect();
    assert_eq!(codes, [&json!(0), &json!(829), &json!(117)], "{answer}");
    assert_eq!((gone, none), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn an_operation_is_a_task_whose_targets_are_there_from_the_first_read() {
    let world = World::new().await;
    world.register("nginx").await;

    let body = json!({ "operation": "start", "process": "web/nginx", "hosts": ["10.0.0.1", "0:10.0.0.9"] });
    let (status, accepted) = world.post("/operations", body).await;
    let path = format!("/tasks/{}", accepted["task_id"].as_str().unwrap());
    let (_, task) = world.get(&path).await;
    let (_, rows) = world.get(&format!("{path}/targets")).await;
    let (_, failed) = world.get(&format!("{path}/targets?state=failed")).await;
    let (_, page) = world.get(&format!("{path}/targets?limit=1")).await;
    let (_, rest) = world.get(&format!("{path}/targets?limit=1&after={}", page["next"])).await;

    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!((&task["total"], &task["pending"], &task["failed"]), (&json!(2), &json!(1), &json!(1)), "{task}");
    let (first, second) = (&rows["targets"][0], &rows["targets"][1]);
    assert_eq!((&first["host"], &first["code"], &first["message"]), (&json!(HOST), &json!(115), &json!("handling")));
    assert_eq!(
        (&second["host"], &second["code"], &second["name"]),
        (&json!("0:10.0.0.9"), &json!(117), &json!("agent_absent"))
    );
    assert_eq!(failed, json!({ "targets": [second] }));
    assert_eq!((&page["targets"], rest), (&json!([first]), json!({ "targets": [second] })));
}

#[tokio::test]
async fn a_bad_operation_names_its_field() {
    let world = World::new().await;
    world.register("nginx").await;
    let cases = [
        (json!({ "process": "web/nginx", "all": true }), "operation"),
        (json!({ "operation": "explode", "process": "web/nginx", "all": true }), "operation"),
        (json!({ "operation": "start", "process": "nginx", "all": true }), "process"),
        (json!({ "operation": "start", "process": "web/nginx" }), "hosts"),
        (json!({ "operation": "start", "process": "web/nginx", "hosts": ["10.0.0.1", AGENT] }), "hosts[1]"),
        (json!({ "operation": "start", "process": "web/nginx", "al": true }), "al"),
    ];
    for (body, field) in cases {
        let (status, answer) = world.post("/operations", body.clone()).await;

        assert_eq!((status, error(&answer)), (StatusCode::BAD_REQUEST, ("invalid_argument", field)), "{body}");
    }
    let (_, tasks) = world.post("/operations", json!([1])).await;
    assert_eq!(error(&tasks).0, "invalid_argument");
    assert!(world.store.task_ids(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_unknown_process_or_task_is_not_found() {
    let world = World::new().await;

    let (process, _) = world.post("/operations", json!({ "operation": "stop", "process": "a/b", "all": true })).await;
    let (foreign, _) = world.get("/tasks/GSETASK:20190813145456:8").await;
    let (unknown, answer) = world.get("/tasks/GSETASK:00000000000000000000000000000001").await;

    assert_eq!((process, foreign, unknown), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    assert_eq!(error(&answer).0, "not_found");
}

#[tokio::test]
async fn pools_are_set_and_read_back() {
    let world = World::new().await;
    let pool = json!({ "namespace": "web", "id": "web", "cpu": 20.0, "memory": 30.5,
                       "cpu_weight": "usage", "memory_weight": "usage_by_limit" });

    let (_, set) = world.call(Method::PUT, "/pools", json!({ "all": true, "pools": [pool.clone()] })).await;
    let (_, pools) = world.get("/pools?namespace=web").await;
    let twice = json!({ "all": true, "pools": [pool.clone(), pool.clone()] });
    let (refused, answer) = world.call(Method::PUT, "/pools", twice).await;

    assert_eq!(set["rows"], json!([{ "host": HOST, "code": 0, "name": "success", "message": "success" }]));
    let mut expected = pool;
    expected["host"] = json!(HOST);
    expected["agent"] = json!(AGENT);
    expected["dry_run"] = json!(false);
    assert_eq!(pools, json!({ "pools": [expected] }));
    assert_eq!((refused, error(&answer).1), (StatusCode::BAD_REQUEST, "pools[1]"));
}

#[tokio::test]
async fn tokens_and_apps_are_made_with_secrets_that_work() {
    let world = World::new().await;

    let (made, token) = world.post("/tokens", json!({ "uses": 2, "ttl_secs": 60, "cloud_id": 3 })).await;
    let (_, app) = world.post("/apps", json!({ "code": "second", "trusted": true })).await;
    let secret = app["secret"].as_str().unwrap();
    let (second, _) = world.call_as("second", secret, Method::GET, "/hosts", Value::Null).await;
    let (refused, answer) = world.post("/tokens", json!({ "uses": 0 })).await;

    assert_eq!(made, StatusCode::CREATED);
    assert!(token["token"].as_str().unwrap().parse::<proctor_pki::JoinToken>().is_ok());
    assert_eq!(second, StatusCode::OK);
    assert_eq!((refused, error(&answer).1), (StatusCode::BAD_REQUEST, "uses"));
}

#[tokio::test]
async fn what_is_not_served_is_refused_in_the_same_shape() {
    let world = World::new().await;

    let (path, nowhere) = world.get("/nowhere").await;
    let (method, wrong) = world.call(Method::PATCH, "/hosts", Value::Null).await;
    let (query, unknown) = world.get("/processes?namspace=web").await;
    let (slash, _) = world.get("/hosts/").await;

    assert_eq!((path, error(&nowhere).0), (StatusCode::NOT_FOUND, "not_found"));
    assert_eq!((method, error(&wrong).0), (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"));
    assert_eq!((query, error(&unknown).0), (StatusCode::BAD_REQUEST, "invalid_argument"));
    assert_eq!(slash, StatusCode::OK);
}
