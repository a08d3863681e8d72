//! The example request of each of the five documents, verbatim except for the host.

use proctor_testkit::{Fleet, Subject};
use serde_json::{Value, json};

use crate::{content, hosts};

const IP: &str = "127.0.0.1";

fn register_example() -> Value {
    json!({
        "meta": {"namespace": "gse", "name": "proc-test", "labels": {"proc_name": "proc-test"}},
        "hosts": [{"ip": IP, "bk_cloud_id": 0, "bk_supplier_id": 0}],
        "spec": {
            "identity": {
                "index_key": "", "proc_name": "proc-test", "setup_path": "/data/gsetest/",
                "pid_path": "/data/gsetest/proc-test.pid", "config_path": "/data/gsetest/proc-test.conf",
                "log_path": "/data/gsetest/logs/", "user": "root"
            },
            "control": {
                "start_cmd": "./start.sh", "stop_cmd": "./stop.sh", "restart_cmd": "./restart.sh",
                "reload_cmd": "./reload.sh", "kill_cmd": "./kill.sh", "version_cmd": "./version.sh",
                "health_cmd": "./health.sh"
            },
            "resource": {"cpu": 10.0, "mem": 10.0, "fd": 10000, "disk": 100, "net": 0},
            "monitor_policy": {
                "auto_type": 1, "start_check_secs": 5, "stop_check_secs": 5,
                "start_retries": 3, "start_interval": 20, "crotab_rule": ""
            },
            "warn_report_policy": {"report_id": 0},
            "configmap": [{"path": "", "md5": ""}]
        }
    })
}

#[tokio::test]
async fn register_update_status_and_unregister_follow_their_documents() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let key = format!("0:0:{IP}:gse:proc-test");

    let answer = fleet.gse("register_proc_info", &register_example()).await.unwrap();
    assert_eq!((&answer["result"], &answer["code"]), (&json!(true), &json!(0)), "{answer}");
    assert_eq!(answer["data"][&key], json!({"error_code": 0, "error_msg": "success", "content": ""}));

    let again = fleet.gse("register_proc_info", &register_example()).await.unwrap();
    assert_eq!(again["data"][&key]["error_code"], 850);
    let update = fleet.gse("update_proc_info", &register_example()).await.unwrap();
    assert_eq!(update["data"][&key]["error_code"], 0);

    let meta = json!({"namespace": "gse", "name": "proc-test"});
    let status = fleet.gse("get_proc_status", &json!({"meta": meta, "hosts": hosts(&[IP])})).await.unwrap();
    let info = &status["data"]["proc_infos"][0];
    assert_eq!(info["meta"]["labels"]["proc_name"], "proc-test");
    assert_eq!((&info["status"], &info["isauto"]), (&json!(2), &json!(false)), "{info}");
    assert_eq!(info["host"], json!({"ip": IP, "bk_cloud_id": 0, "bk_supplier_id": 0}));

    let shown = fleet.get("/api/v1/processes/gse/proc-test").await.unwrap().to_string();
    for kept in ["/data/gsetest/proc-test.conf", "./health.sh", "10000", "\"start_interval\":20"] {
        assert!(shown.contains(kept), "{kept} is not shown in {shown}");
    }

    let gone = fleet.gse("unregister_proc_info", &json!({"meta": meta, "hosts": hosts(&[IP])})).await.unwrap();
    assert_eq!(gone["data"][&key]["error_code"], 0);
    let again = fleet.gse("unregister_proc_info", &json!({"meta": meta, "hosts": hosts(&[IP])})).await.unwrap();
    assert_eq!(again["data"][&key]["error_code"], 829);
}

#[tokio::test]
async fn operate_proc_answers_a_task_whose_first_poll_holds_every_key() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "polled").unwrap();
    let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &register).await.unwrap();

    let body = json!({"meta": subject.meta(), "op_type": 0, "hosts": hosts(&[IP])});
    let answer = fleet.gse("operate_proc", &body).await.unwrap();
    let task = answer["data"]["task_id"].as_str().unwrap();
    assert!(task.starts_with("GSETASK:"));
    let poll = fleet.gse("get_proc_operate_result", &json!({"task_id": task})).await.unwrap();

    let key = format!("0:0:{IP}:e2e:polled");
    assert_eq!(poll["data"][&key], json!({"error_code": 115, "error_msg": "handling", "content": ""}));
    assert_eq!(poll["data"].as_object().unwrap().len(), 1);
    let rows = fleet.until_final(task).await;
    assert_eq!(rows[&key]["error_code"], 0);
    let value = &content(&rows[&key])["value"][0];
    assert_eq!((&value["procName"], &value["isAuto"]), (&json!("polled"), &json!(true)));
}

#[tokio::test]
async fn an_operation_without_a_registration_says_so_but_a_status_query_answers() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let key = format!("0:0:{IP}:gse:nobody");
    let body = |op_type: i64| json!({"meta": {"namespace": "gse", "name": "nobody"}, "op_type": op_type, "hosts": hosts(&[IP])});

    let start = fleet.operate("operate_proc", &body(0)).await.unwrap();
    let status = fleet.operate("operate_proc", &body(2)).await.unwrap();

    assert_eq!(start[&key]["error_code"], 65535);
    assert!(start[&key]["error_msg"].as_str().unwrap().contains("not registered"));
    assert_eq!(status[&key]["error_code"], 0);
    let instance = &content(&status[&key])["process"][0]["instance"][0];
    assert_eq!((&instance["pid"], &instance["isAuto"]), (&json!(-1), &json!(false)));
}

#[tokio::test]
async fn process_groups_are_kept_and_shown() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let resource = json!({"cpu_pool_limit": 20, "mem_pool_limit": 20, "cpu_pool_weight": 0, "mem_pool_weight": 0});
    let set = json!({
        "meta": {"namespace": "gse", "name": "", "labels": {}},
        "hosts": hosts(&[IP]),
        "spec": {"process_group": [{"id": "gse", "resource": resource}]}
    });

    let answer = fleet.gse("set_process_group_info", &set).await.unwrap();
    let get = json!({"meta": {"namespace": "gse"}, "hosts": hosts(&[IP])});
    let shown = fleet.gse("get_process_group_info", &get).await.unwrap();

    let key = format!("0:0:{IP}:gse");
    assert_eq!(answer["data"][&key], json!({"error_code": 0, "error_msg": "success", "content": ""}));
    let group = &shown["data"]["process_group_infos"][0];
    assert_eq!(group["id"], "gse");
    assert_eq!(group["resource"]["cpu_pool_limit"].as_f64(), Some(20.0));
    assert_eq!(group["host"]["ip"], IP);
}

#[tokio::test]
async fn operate_proc_multi_runs_a_batch_of_specs_without_any_registration() {
    let fleet = Fleet::start().await.unwrap();
    let _agents = (fleet.agent("127.0.0.1").await.unwrap(), fleet.agent("127.0.0.2").await.unwrap());
    let (one, two) = (Subject::new(fleet.dir(), "one").unwrap(), Subject::new(fleet.dir(), "two").unwrap());
    let item = |subject: &Subject, ip: &str, op_type: i64| {
        let mut spec = subject.spec();
        spec["alive_monitor_policy"] = spec["monitor_policy"].take();
        spec.as_object_mut().unwrap().retain(|key, _| key != "monitor_policy" && key != "resource");
        json!({"meta": {"namespace": "e2e", "name": subject.name, "labels": {"bk_process_id": 46}},
               "op_type": op_type, "agent_id_list": [format!("0:{ip}")], "spec": spec,
               "nodeman_spec": {"process_status_id": 1}})
    };
    let batch = |op_type| json!({"proc_operate_req": [item(&one, "127.0.0.1", op_type), item(&two, "127.0.0.2", op_type)], "no_request": true});

    let rows = fleet.operate("operate_proc_multi", &batch(0)).await.unwrap();
    assert_eq!(rows["0:127.0.0.1:e2e:one"]["error_code"], 0, "{rows}");
    assert_eq!(rows["0:127.0.0.2:e2e:two"]["error_code"], 0, "{rows}");
    assert_eq!(rows.as_object().unwrap().len(), 2);
    assert!(one.pid().is_some() && two.pid().is_some());

    let status = fleet.operate("operate_proc_multi", &batch(2)).await.unwrap();
    let process = &content(&status["0:127.0.0.1:e2e:one"])["process"][0];
    assert_eq!((&process["procname"], &process["instance"][0]["processName"]), (&json!("one"), &json!("one")));
    assert_eq!(process["instance"][0]["pid"], one.pid().unwrap());

    let infos = json!({"meta": {"namespace": "e2e", "name": "one"}, "agent_id_list": ["0:127.0.0.1"]});
    let infos = fleet.gse("get_proc_status_v2", &infos).await.unwrap();
    let info = &infos["data"]["proc_infos"][0];
    assert_eq!((&info["status"], &info["isauto"]), (&json!(1), &json!(true)), "{info}");
    assert_eq!(info["meta"]["labels"]["bk_process_id"], "46");

    let rows = fleet.operate("operate_proc_multi", &batch(1)).await.unwrap();
    assert_eq!(rows["0:127.0.0.1:e2e:one"]["error_code"], 0, "{rows}");
    assert!(one.copies().is_empty() && two.copies().is_empty());
}
