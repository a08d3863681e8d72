//! The examples of docs/api.md work verbatim.

use std::process::Command;

use proctor_testkit::{APP, Fleet, eventually, running_from};

/// The shell blocks of the page, in order.
fn blocks() -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api.md")).unwrap();
    page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_curl_of_the_api_page_works() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent("127.0.0.1").await.unwrap();
    let authorization = format!(
        r#"X-Bkapi-Authorization: {{"bk_app_code":"{APP}","bk_app_secret":"{}","bk_username":"admin"}}"#,
        fleet.secret
    );
    let dir = fleet.dir().join("page");
    let own = |block: &String| block.replace("/tmp/proctor-doc", dir.to_str().unwrap());
    let script: String =
        blocks().iter().map(own).map(|block| format!("{block}\necho; echo '--- end of block ---'\n")).collect();

    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env("PROCTOR", fleet.url(""))
        .env("AUTH", authorization)
        .output()
        .unwrap();

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut answers = 0;
    for (block, answer) in blocks().iter().zip(text.split("--- end of block ---")) {
        if block.trim_start().starts_with("curl") || answer.contains("\"result\"") {
            assert!(answer.contains(r#""result":true"#), "{block}\n{answer}");
            answers += 1;
        }
    }
    assert!(answers >= 12, "only {answers} answers were seen");
    eventually("the stop at the end has worked", || async { running_from(&dir).is_empty().then_some(()) }).await;
}
