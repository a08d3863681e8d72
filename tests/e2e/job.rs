//! The JOB family: documents S3 and S4.

use proctor_testkit::{Fleet, Subject, eventually};
use serde_json::{Value, json};

const IP: &str = "127.0.0.1";

async fn until_done(fleet: &Fleet, answer: &Value) -> Value {
    assert_eq!(answer["code"], 0, "{answer}");
    let task = answer["data"]["bk_gse_taskid"].as_str().unwrap().to_owned();
    assert!(task.starts_with("GSETASK:"));
    eventually("the task is done", || async {
        let body = json!({"bk_biz_id": "1", "bk_gse_taskid": task});
        let answer = fleet.job("get_proc_result", &body).await.unwrap();
        (answer["data"]["status"] != 115).then(|| answer["data"]["result"].clone())
    })
    .await
}

fn process_info(subject: &Subject) -> Value {
    json!({
        "setup_path": subject.dir, "proc_name": subject.name, "pid_path": subject.pid_file(),
        "account": "root", "contact": "root", "cpu_lmt": 50, "mem_lmt": 30, "type": 1,
        "start_cmd": subject.start_cmd(), "stop_cmd": format!("kill $(cat {}.pid)", subject.name),
        "start_check_begin_time": 1, "op_timeout": 20,
        "ip_list": [{"bk_cloud_id": 0, "ip": IP}]
    })
}

#[tokio::test]
async fn operate_process_starts_queries_and_stops() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "jobbed").unwrap();
    let body = |op_type: i64| json!({"bk_biz_id": 1, "op_type": op_type, "process_infos": [process_info(&subject)]});
    let key = format!("{}/jobbed:0:{IP}", subject.dir.display());

    let rows = until_done(&fleet, &fleet.job("operate_process", &body(0)).await.unwrap()).await;
    assert_eq!(rows[&key]["error_code"], 0, "{rows}");
    assert!(rows[&key]["content"]["value"].is_array(), "content is an object: {rows}");

    let rows = until_done(&fleet, &fleet.job("operate_process", &body(2)).await.unwrap()).await;
    let instance = &rows[&key]["content"]["process"][0]["instance"][0];
    assert_eq!((&instance["pid"], &instance["isAuto"]), (&json!(subject.pid().unwrap()), &json!(true)));

    let rows = until_done(&fleet, &fleet.job("operate_process", &body(1)).await.unwrap()).await;
    assert_eq!(rows[&key]["error_code"], 0, "{rows}");
    assert!(subject.copies().is_empty());
}

#[tokio::test]
async fn manage_proc_hosts_and_releases_and_never_stops() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "hosted").unwrap();
    let body = |op_type: i64| {
        let mut info = process_info(&subject);
        info["value_key"] = json!("key_test");
        json!({"bk_scope_type": "biz", "bk_scope_id": "1", "op_type": op_type, "process_infos": [info]})
    };

    let rows = until_done(&fleet, &fleet.job("manage_proc", &body(1)).await.unwrap()).await;
    assert_eq!(rows[format!("key_test:0:{IP}")]["error_code"], 0, "{rows}");
    let pid = eventually("hosting has started it", || async { subject.pid() }).await;

    let rows = until_done(&fleet, &fleet.job("manage_proc", &body(2)).await.unwrap()).await;
    assert_eq!(rows[format!("key_test:0:{IP}")]["error_code"], 0, "{rows}");
    assert_eq!(subject.pid(), Some(pid), "a released process lives on");
}

#[tokio::test]
async fn the_examples_of_both_documents_are_accepted_with_their_credentials() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let credentials = json!({"bk_app_code": proctor_testkit::APP, "bk_app_secret": fleet.secret, "bk_token": "xxx"});
    let manage = json!({
        "bk_scope_type": "biz", "bk_scope_id": "1", "op_type": 1,
        "process_infos": [{
            "proc_name": "nginx", "proc_owner": "root", "setup_path": "/data/home/nginx/bin/",
            "cfg_path": "/data/etc/nginx.conf", "log_path": "/data/logs/nginx/", "pid_path": "/data/var/run/nginx/",
            "start_cmd": "echo start", "stop_cmd": "echo stop", "restart_cmd": "echo restart",
            "reload_cmd": "echo reload", "kill_cmd": "echo kill", "func_id": "", "instance_id": "",
            "value_key": "key_test", "type": 2, "cpu_lmt": 20, "mem_lmt": 30, "cycle_time": 10, "instance_num": 2,
            "start_check_begin_time": 5, "start_check_end_time": 5, "op_timeout": 5,
            "ip_list": [{"bk_cloud_id": 0, "ip": IP}]
        }]
    });
    let operate = json!({
        "bk_biz_id": 1, "op_type": 1,
        "process_infos": [{
            "setup_path": "/usr/local/xxx", "proc_name": "gseagent", "pid_path": "/usr/local/xxx",
            "account": "root", "contact": "root", "cpu_lmt": 50, "mem_lmt": 30,
            "ip_list": [{"bk_cloud_id": 0, "ip": IP}]
        }]
    });

    for (name, mut body) in [("manage_proc", manage), ("operate_process", operate)] {
        let fields = body.as_object_mut().unwrap();
        fields.extend(credentials.as_object().unwrap().clone());
        let url = fleet.url(&format!("/api/c/compapi/v2/jobv3/{name}/"));
        let answer = fleet.client.post(url).body(body.to_string()).send().await.unwrap().text().await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();

        let rows = until_done(&fleet, &answer).await;
        let (key, code) = match name {
            "manage_proc" => (format!("key_test:0:{IP}"), 0),
            _ => (format!("/usr/local/xxx/gseagent:0:{IP}"), 829),
        };
        assert_eq!(rows[&key]["error_code"], code, "{rows}");
    }
}

#[tokio::test]
async fn several_instances_of_one_process_are_one_target_and_shown_one_by_one() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "many").unwrap();
    let mut info = process_info(&subject);
    info["pid_path"] = json!(subject.dir.join("many.{instance}.pid"));
    info["start_cmd"] = json!("./many 10000$PROCTOR_INSTANCE > /dev/null 2>&1 & echo $! > many.{instance}.pid");
    info["stop_cmd"] = json!("kill $(cat many.{instance}.pid)");
    info["instance_num"] = json!(3);
    let body = |op_type: i64| json!({"bk_biz_id": 1, "op_type": op_type, "process_infos": [info]});
    let key = format!("{}/many:0:{IP}", subject.dir.display());

    let rows = until_done(&fleet, &fleet.job("operate_process", &body(0)).await.unwrap()).await;
    assert_eq!(rows[&key]["error_code"], 0, "{rows}");
    assert_eq!(subject.copies().len(), 3);

    let rows = until_done(&fleet, &fleet.job("operate_process", &body(2)).await.unwrap()).await;
    let instances = rows[&key]["content"]["process"][0]["instance"].as_array().unwrap();
    let mut pids: Vec<i64> = instances.iter().map(|instance| instance["pid"].as_i64().unwrap()).collect();
    pids.sort_unstable();
    let mut copies: Vec<i64> = subject.copies().into_iter().map(i64::from).collect();
    copies.sort_unstable();
    assert_eq!(pids, copies);

    // Each is supervised by itself.
    let victim = subject.copies()[0];
    subject.kill(victim);
    eventually("there are three again", || async {
        let copies = subject.copies();
        (copies.len() == 3 && !copies.contains(&victim)).then_some(())
    })
    .await;

    let rows = until_done(&fleet, &fleet.job("operate_process", &body(1)).await.unwrap()).await;
    assert_eq!(rows[&key]["error_code"], 0, "{rows}");
    assert!(subject.copies().is_empty());
}
