//! Bad input: the documented envelope, a message that names the field, and nothing changed.

use proctor_testkit::{APP, Fleet, Subject};
use serde_json::{Value, json};

use crate::hosts;

const IP: &str = "127.0.0.1";

async fn raw(fleet: &Fleet, path: &str, body: String) -> (u16, Value) {
    let answer = fleet.client.post(fleet.url(path)).body(body).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}

#[tokio::test]
async fn every_bad_register_names_its_field_and_changes_nothing() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "checked").unwrap();
    let good = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    let cases: [(&str, Value, &str); 12] = [
        ("/meta/namespace", json!("a:b"), "namespace"),
        ("/meta/name", json!(""), "name"),
        ("/meta/name", json!("x".repeat(129)), "name"),
        ("/hosts", json!([]), "hosts"),
        ("/hosts/0/ip", Value::Null, "hosts[0].ip"),
        ("/spec/identity/setup_path", json!("relative"), "setup_path"),
        ("/spec/identity/pid_path", json!("/run/../etc/x"), "pid_path"),
        ("/spec/identity/proc_name", Value::Null, "proc_name"),
        ("/spec/resource/cpu", json!(101), "cpu"),
        ("/spec/monitor_policy/auto_type", json!(7), "auto_type"),
        ("/spec/monitor_policy/crontab_rule", json!("61 * * * *"), "crontab_rule"),
        ("/spec/control/start_cmd", json!("x".repeat(200_000)), "start_cmd"),
    ];
    for (pointer, value, field) in cases {
        let mut body = good.clone();
        match body.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => body["spec"]["monitor_policy"]["crontab_rule"] = value,
        }

        let answer = fleet.gse("register_proc_info", &body).await.unwrap();

        assert_eq!((&answer["result"], &answer["code"]), (&json!(false), &json!(1_306_406)), "{pointer}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(field), "{pointer}: {answer}");
        assert!(answer["data"].is_null());
    }
    assert_eq!(fleet.get("/api/v1/processes").await.unwrap()["processes"], json!([]));
}

#[tokio::test]
async fn one_bad_item_stops_the_whole_batch() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "batched").unwrap();
    let good = json!({"meta": subject.meta(), "op_type": 0, "hosts": hosts(&[IP]), "spec": subject.spec()});
    let mut bad = good.clone();
    bad["meta"]["name"] = json!("bad:name");

    let answer = fleet.gse("operate_proc_multi", &json!({"proc_operate_req": [good, bad]})).await.unwrap();

    assert_eq!((&answer["result"], &answer["code"]), (&json!(false), &json!(1_306_406)), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("proc_operate_req[1]"), "{answer}");
    assert_eq!(fleet.get("/api/v1/processes").await.unwrap()["processes"], json!([]));
    assert!(subject.copies().is_empty());
}

#[tokio::test]
async fn credentials_are_checked_wherever_they_are() {
    let fleet = Fleet::start().await.unwrap();
    let path = "/api/c/compapi/v2/gse/get_proc_operate_result";
    let with = |secret: &str, user: Value| {
        let mut body = json!({"bk_app_code": APP, "bk_app_secret": secret, "task_id": "GSETASK:nothing"});
        if !user.is_null() {
            body["bk_username"] = user;
        }
        body.to_string()
    };

    let (status, wrong) = raw(&fleet, path, with("wrong", json!("admin"))).await;
    assert_eq!((status, &wrong["code"]), (200, &json!(1_306_000)), "{wrong}");
    assert!(!wrong.to_string().contains(&fleet.secret));
    let (_, nobody) = raw(&fleet, path, with(&fleet.secret, Value::Null)).await;
    assert_eq!(nobody["code"], 1_306_401, "{nobody}");
    let (_, malformed) = raw(&fleet, path, "{\"task_id\": ".into()).await;
    assert_eq!((&malformed["result"], &malformed["code"]), (&json!(false), &json!(1_306_000)), "{malformed}");
    let (status, unknown) = raw(&fleet, path, with(&fleet.secret, json!("admin"))).await;
    let expected = (200, &json!(false), &json!(1_000_101));
    assert_eq!((status, &unknown["result"], &unknown["code"]), expected, "an unknown task: {unknown}");
    assert!(unknown["message"].as_str().unwrap().contains("GSETASK:nothing"), "{unknown}");
    let (status, lost) = raw(&fleet, "/api/c/compapi/v2/gse/no_such_call/", with(&fleet.secret, json!("admin"))).await;
    assert_eq!((status, &lost["result"]), (404, &json!(false)));
}
