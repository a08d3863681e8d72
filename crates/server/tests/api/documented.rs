//! The example of each of the five documents that this service began with, verbatim except for the host, and the
//! documented answer.

use serde_json::{Value, json};

use crate::support::{APP, SECRET, World};

/// The examples' host, enrolled.
async fn world() -> World {
    let world = World::new().await;
    world.enrol("1:10.0.0.1", "agent-of-the-example").await;
    world
}

fn as_caller(mut body: Value) -> Value {
    body["bk_app_code"] = json!(APP);
    body["bk_app_secret"] = json!(SECRET);
    body["bk_token"] = json!("xxx");
    body
}

#[tokio::test]
async fn set_process_group_info() {
    let world = world().await;
    let body = json!({
        "meta": {"namespace": "gse", "name": "", "labels": {}},
        "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 1, "bk_supplier_id": 2}],
        "spec": {"process_group": [{"id": "gse", "resource":
            {"cpu_pool_limit": 20, "mem_pool_limit": 20, "cpu_pool_weight": 0, "mem_pool_weight": 0}}]}
    });

    let answer = world.post_as_is("/api/c/compapi/v2/gse/set_process_group_info/", &as_caller(body)).await;

    let expected = json!({"1:2:10.0.0.1:gse": {"error_code": 0, "error_msg": "success", "content": ""}});
    assert_eq!((answer.data(), answer.message()), (&expected, "success"));
    world.end().await;
}

fn register_example() -> Value {
    json!({
        "meta": {"namespace": "gse", "name": "proc-test", "labels": {"proc_name": "proc-test"}},
        "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 1, "bk_supplier_id": 2}],
        "spec": {
            "identity": {"index_key": "", "proc_name": "proc-test", "setup_path": "/data/gsetest/",
                "pid_path": "/data/gsetest/proc-test.pid", "config_path": "/data/gsetest/proc-test.conf",
                "log_path": "/data/gsetest/logs/", "user": "root"},
            "control": {"start_cmd": "./start.sh", "stop_cmd": "./stop.sh", "restart_cmd": "./restart.sh",
                "reload_cmd": "./reload.sh", "kill_cmd": "./kill.sh", "version_cmd": "./version.sh",
                "health_cmd": "./health.sh"},
            "resource": {"cpu": 10.0, "mem": 10.0, "fd": 10000, "disk": 100, "net": 0},
            "monitor_policy": {"auto_type": 1, "start_check_secs": 5, "stop_check_secs": 5, "start_retries": 3,
                "start_interval": 20, "crotab_rule": ""},
            "warn_report_policy": {"report_id": 0},
            "configmap": [{"path": "", "md5": ""}]
        }
    })
}

#[tokio::test]
async fn register_proc_info() {
    let world = world().await;

    let answer = world.post_as_is("/api/c/compapi/v2/gse/register_proc_info/", &as_caller(register_example())).await;

    let expected = json!({"1:2:10.0.0.1:gse:proc-test": {"error_code": 0, "error_msg": "success", "content": ""}});
    assert_eq!((answer.data(), answer.message()), (&expected, "success"));
    world.end().await;
}

#[tokio::test]
async fn operate_proc() {
    let world = world().await;
    world.post_as_is("/api/c/compapi/v2/gse/register_proc_info/", &as_caller(register_example())).await.data();
    let body = json!({
        "meta": {"namespace": "gse", "name": "proc-test", "labels": {"proc_name": "proc-test"}},
        "op_type": 0,
        "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 1, "bk_supplier_id": 2}]
    });

    let answer = world.post_as_is("/api/c/compapi/v2/gse/operate_proc/", &as_caller(body)).await;

    let task = answer.data()["task_id"].clone();
    assert_eq!(answer.data().as_object().unwrap().len(), 1);
    assert!(task.as_str().unwrap().starts_with("GSETASK:"));
    let first = world.post("/api/c/compapi/v2/gse/get_proc_operate_result/", json!({"task_id": task})).await;
    let handling = json!({"error_code": 115, "error_msg": "handling", "content": ""});
    assert_eq!(*first.data(), json!({"1:2:10.0.0.1:gse:proc-test": handling}));
    world.end().await;
}

#[tokio::test]
async fn manage_proc() {
    let world = world().await;
    let body = json!({
        "bk_scope_type": "biz", "bk_scope_id": "1", "op_type": 1,
        "process_infos": [{
            "proc_name": "nginx", "proc_owner": "root", "setup_path": "/data/home/nginx/bin/",
            "cfg_path": "/data/etc/nginx.conf", "log_path": "/data/logs/nginx/", "pid_path": "/data/var/run/nginx/",
            "start_cmd": "echo start", "stop_cmd": "echo stop", "restart_cmd": "echo restart",
            "reload_cmd": "echo reload", "kill_cmd": "echo kill", "func_id": "", "instance_id": "",
            "value_key": "key_test", "type": 2, "cpu_lmt": 20, "mem_lmt": 30, "cycle_time": 10, "instance_num": 2,
            "start_check_begin_time": 5, "start_check_end_time": 5, "op_timeout": 5,
            "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]
        }]
    });

    let answer = world.post_as_is("/api/c/compapi/v2/jobv3/manage_proc/", &as_caller(body)).await;

    let task = answer.data()["bk_gse_taskid"].clone();
    assert_eq!(answer.message(), "");
    let result = json!({"bk_biz_id": 1, "bk_gse_taskid": task});
    let result = world.post("/api/c/compapi/v2/jobv3/get_proc_result/", result).await;
    assert_eq!(result.data()["status"], 115);
    assert_eq!(result.data()["result"]["key_test:0:10.0.0.1"]["error_msg"], "handling");
    world.end().await;
}

#[tokio::test]
async fn operate_process() {
    let world = world().await;
    let body = json!({
        "bk_biz_id": 1, "op_type": 1,
        "process_infos": [{
            "setup_path": "/usr/local/xxx", "proc_name": "gseagent", "pid_path": "/usr/local/xxx", "account": "root",
            "contact": "root", "cpu_lmt": 50, "mem_lmt": 30, "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]
        }]
    });

    for family in ["job", "jobv3"] {
        let path = format!("/api/c/compapi/v2/{family}/operate_process/");
        let answer = world.post_as_is(&path, &as_caller(body.clone())).await;

        let task = answer.data()["bk_gse_taskid"].as_str().unwrap();
        assert!(task.starts_with("GSETASK:"), "{task}");
        assert_eq!(answer.message(), "");
    }
    world.end().await;
}
