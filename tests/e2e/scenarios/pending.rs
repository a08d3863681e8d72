//! Rows that the product may not fulfil yet.
use super::Scene;
use proctor_testkit::{Subject, eventually};
use serde_json::json;

#[tokio::test]
async fn a3_what_a_start_without_a_pid_file_left_behind_is_told_or_ended() {
    let scene = Scene::new("leftover", |_, spec| {
        spec["control"]["start_cmd"] = json!("echo start >> commands.log; ./leftover 100000 > /dev/null 2>&1 &");
        spec["monitor_policy"]["start_check_secs"] = json!(1);
    })
    .await;

    let row = scene.operate(0).await;

    assert_eq!(row["error_code"], 836, "{row}");
    let left = scene.subject.copies();
    let told = left.iter().all(|pid| row["error_msg"].as_str().unwrap().contains(&pid.to_string()));
    assert!(told, "{left:?} are still there and the row does not say so: {row}");
    scene.zero_list(left.len()).await;
}

#[tokio::test]
async fn a3_retries_of_a_start_without_a_pid_file_do_not_add_copies() {
    let scene = Scene::new("multiplied", |_, spec| {
        spec["control"]["start_cmd"] = json!("echo start >> commands.log; ./multiplied 100000 > /dev/null 2>&1 &");
        spec["monitor_policy"]["start_check_secs"] = json!(1);
        spec["monitor_policy"]["start_retries"] = json!(3);
    })
    .await;

    assert_eq!(scene.operate(3).await["error_code"], 0);
    scene.event("cancel_restart").await;

    let copies = scene.subject.copies().len();
    assert!(copies <= 1, "{copies} copies");
    scene.zero_list(copies).await;
}

#[tokio::test]
async fn a16_a_second_registration_with_the_same_pid_path_is_refused() {
    let scene = Scene::running("first", |_, _| {}).await;
    let second = Subject::new(scene.fleet.dir(), "second").unwrap();
    let path = scene.subject.pid_file();

    let answer = scene
        .register(&second, |_, spec| {
            spec["identity"]["pid_path"] = json!(path);
            spec["identity"]["proc_name"] = json!("first");
        })
        .await;

    let code = answer["data"][format!("0:0:{}:e2e:second", super::IP)]["error_code"].clone();
    assert!(answer["code"] != 0 || (code.is_number() && code != 0), "{answer}");
    assert!(answer.to_string().contains("pid_path"), "{answer}");
    scene.zero_list(1).await;
}

#[tokio::test]
async fn g4_a_config_file_that_differs_is_missing_or_huge_is_told_and_restarts_nothing() {
    let scene = Scene::new("configured", |subject, spec| {
        let file = |name: &str| subject.dir.join(name);
        std::fs::write(file("good.conf"), "hello\n").unwrap();
        std::fs::write(file("bad.conf"), "changed\n").unwrap();
        std::fs::File::create(file("huge.conf")).unwrap().set_len(1 << 40).unwrap();
        let md5 = "b1946ac92492d2347c6235b4d2611184"; // of hello
        let entry = |name: &str| json!({"path": file(name), "md5": md5});
        spec["configmap"] = json!([entry("good.conf"), entry("bad.conf"), entry("absent.conf"), entry("huge.conf")]);
    })
    .await;
    assert_eq!(scene.operate(0).await["error_code"], 0);
    let pid = scene.subject.pid().unwrap();

    for name in ["bad.conf", "absent.conf", "huge.conf"] {
        eventually("the event is there", || async {
            scene.events("config_changed").await.iter().any(|event| event.to_string().contains(name)).then_some(())
        })
        .await;
    }
    std::fs::write(scene.path("good.conf"), "changed\n").unwrap();
    eventually("a change is told", || async {
        scene.events("config_changed").await.iter().any(|event| event.to_string().contains("good.conf")).then_some(())
    })
    .await;

    assert_eq!(scene.subject.pid(), Some(pid), "nothing is restarted");
    scene.zero_list(1).await;
}
