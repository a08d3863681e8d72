//! The native API as its documents show it: docs/native-api.md and the OpenAPI document.

use std::path::{Path, PathBuf};
use std::process::Command;

use proctor_testkit::{Fleet, Subject, eventually, running_from};
use serde_json::{Value, json};

use crate::hosts;

const IP: &str = "127.0.0.1";

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// Every operation of the OpenAPI document, as `METHOD /path`.
fn operations() -> Vec<String> {
    let document: Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &Value)| {
        let path = path.trim_start_matches("/api/v1").to_owned();
        let methods: Vec<String> = item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        methods.into_iter().map(move |method| format!("{method} {path}"))
    };
    paths.iter().flat_map(of_path).collect()
}

#[test]
fn every_call_is_on_the_page_of_the_native_api() {
    let page = read("docs/native-api.md").replace('\n', " ");

    for operation in operations() {
        assert!(page.contains(&operation), "docs/native-api.md does not show {operation}");
    }
}

/// Ends the process that the page starts, also if the page fails half way.
struct Dozer(PathBuf);

impl Drop for Dozer {
    fn drop(&mut self) {
        for pid in running_from(&self.0) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_curl_of_the_native_page_works() {
    let fleet = Fleet::start().await.unwrap();
    let dozer = Dozer(fleet.dir().join("page"));
    let _agent = fleet.agent(IP).await.unwrap();
    let page = read("docs/native-api.md").replace("/tmp/proctor-native", dozer.0.to_str().unwrap());
    let blocks: String = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    // A refusal ends the script, whatever the page does with the answer.
    let script = format!("curl() {{ command curl --fail-with-body \"$@\" && echo; }}\n{blocks}");

    let output = Command::new("timeout")
        .args(["100", "bash", "-euo", "pipefail", "-c", &script])
        .env("PROCTOR", fleet.url(""))
        .env("AUTH", format!("X-Bkapi-Authorization: {}", fleet.authorization()))
        .output()
        .unwrap();

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("\"error\":{"), "{text}");
    assert!(text.contains("event: started"), "{text}");
    eventually("the stop at the end has worked", || async { running_from(&dozer.0).is_empty().then_some(()) }).await;
}

/// Requests generated from the document, valid and invalid: no defect, and no answer that is not documented.
/// `SCHEMATHESIS_EXAMPLES` makes it run longer.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_made_up_from_the_openapi_document_is_answered_as_it_says() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "madeup").unwrap();
    let body = json!({ "meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec() });
    fleet.gse("register_proc_info", &body).await.unwrap();

    let output = tokio::process::Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/schemathesis"))
        .args([fleet.url(""), fleet.authorization()])
        .output()
        .await
        .unwrap();

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // A lockout half way would have been documented answers, too.
    let apps = fleet.get("/api/v1/apps").await.unwrap();
    assert!(apps["apps"].is_array(), "{apps}");
}
