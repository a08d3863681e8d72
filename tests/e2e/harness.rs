//! What the tests themselves rely on.

use std::collections::HashSet;
use std::net::TcpListener;

use proctor_testkit::{Fleet, Subject, eventually, free_port, running_in};
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

#[tokio::test]
async fn a_server_that_ends_at_its_start_is_reported_with_its_log() {
    let mut fleet = Fleet::start().await.unwrap();
    fleet.server.program.kill();
    let _taken = TcpListener::bind(("127.0.0.1", fleet.server.link)).unwrap();

    let error = fleet.start_server_again().await.unwrap_err();

    assert!(error.to_string().contains("Address already in use"), "{error}");
}

#[test]
fn a_port_is_given_to_one_test_only() {
    let ports: Vec<u16> = (0..500).map(|_| free_port()).collect();
    assert_eq!(ports.iter().collect::<HashSet<_>>().len(), ports.len());
}
