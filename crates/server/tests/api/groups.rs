//! Process groups: set, and read back.

use serde_json::{Value, json};

use crate::support::{ESB, World};

fn group(id: &str, limit: f64) -> Value {
    json!({"id": id, "resource":
        {"cpu_pool_limit": limit, "mem_pool_limit": 20, "cpu_pool_weight": 0, "mem_pool_weight": 1}})
}

fn body(ips: &[&str], groups: Vec<Value>) -> Value {
    let hosts: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip, "bk_cloud_id": 0, "bk_supplier_id": 2})).collect();
    json!({"meta": {"namespace": "web", "name": ""}, "hosts": hosts, "spec": {"process_group": groups}})
}

#[tokio::test]
async fn a_group_is_read_back_as_it_was_set() {
    let world = World::new().await;

    let set = world
        .post(&format!("{ESB}/set_process_group_info/"), body(&["10.0.0.1", "10.9.9.9"], vec![group("web", 20.5)]))
        .await;
    let read = world.post(&format!("{ESB}/get_process_group_info/"), body(&["10.0.0.1", "10.9.9.9"], vec![])).await;

    assert_eq!(set.data()["0:2:10.0.0.1:web"], json!({"error_code": 0, "error_msg": "success", "content": ""}));
    assert_eq!(set.data()["0:2:10.9.9.9:web"]["error_code"], 117);
    let groups = read.data()["process_group_infos"].as_array().unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0]["meta"], json!({"namespace": "web", "name": "", "labels": {}}));
    assert_eq!(groups[0]["host"], json!({"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_supplier_id": 2}));
    assert_eq!(groups[0]["id"], "web");
    assert_eq!(
        groups[0]["resource"],
        json!({"cpu_pool_limit": 20.5, "mem_pool_limit": 20.0, "cpu_pool_weight": 0, "mem_pool_weight": 1})
    );
    world.end().await;
}

#[tokio::test]
async fn a_request_with_one_bad_group_changes_nothing() {
    let world = World::new().await;
    let groups = vec![group("web", 20.0), group("db", 101.0)];

    let set = world.post(&format!("{ESB}/set_process_group_info"), body(&["10.0.0.1"], groups)).await;
    let read = world.post(&format!("{ESB}/get_process_group_info"), body(&["10.0.0.1"], vec![])).await;

    assert_eq!(set.code(), 1_306_406);
    assert!(set.message().starts_with("spec.process_group[1].resource.cpu_pool_limit: "), "{}", set.message());
    assert_eq!(read.data()["process_group_infos"], json!([]));
    world.end().await;
}
