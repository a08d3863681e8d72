//! What the tests themselves rely on.

use proctor_testkit::{Fleet, Subject, eventually, running_in};
use serde_json::json;

use crate::{code, hosts};

const IP: &str = "127.0.0.1";

#[tokio::test]
async fn nothing_outlives_a_fleet_in_whatever_order_a_test_drops_its_parts() {
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "undead").unwrap();
    let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &register).await.unwrap();
    let rows = fleet
        .operate("operate_proc", &json!({"meta": subject.meta(), "op_type": 0, "hosts": hosts(&[IP])}))
        .await
        .unwrap();
    assert_eq!(code(&rows, IP, "undead"), 0, "{rows}");
    let (dir, log) = (fleet.dir().to_owned(), subject.dir.join("commands.log"));

    drop(subject);
    eventually("the agent starts it again", || async {
        let starts = std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        (starts > 1).then_some(())
    })
    .await;
    drop(fleet);
    let left = running_in(&dir);
    drop(agent);

    assert_eq!(left, Vec::<i32>::new());
    assert!(!dir.exists());
}
