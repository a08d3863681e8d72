//! Rows that the product may not fulfil yet.
use super::{Scene, until};
use proctor_testkit::{Subject, eventually};
use serde_json::{Value, json};

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
