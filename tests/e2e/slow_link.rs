//! Agents on slow links: a frame that takes longer than every limit gets through, both ways.

use proctor_testkit::{FaultProxy, Fleet, Subject};
use serde_json::json;

use crate::{content, hosts, row};

const IP: &str = "127.0.0.1";
/// The most output that an outcome carries.
const BYTES: usize = 8 * 1024;
/// Then a frame of this size takes five seconds longer than either side waits for a silent one.
const BYTES_PER_SECOND: u64 = BYTES as u64 / 21;

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_takes_longer_than_the_limits_of_silence_gets_through_each_way() {
    let fleet = Fleet::start().await.unwrap();
    let proxy = FaultProxy::start(fleet.server.link).await.unwrap();
    let agent = fleet.agent_through(proxy.port, IP, &[]).await.unwrap();
    let subject = Subject::new(fleet.dir(), "far").unwrap();
    std::fs::write(subject.dir.join("large"), "y".repeat(2 * BYTES)).unwrap();
    let mut spec = subject.spec();
    spec["control"]["reload_cmd"] = json!(format!("cat large #{}", "x".repeat(BYTES)));
    spec["monitor_policy"]["op_timeout"] = json!(300);
    let operate = |op_type: i64| json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
    proxy.set_bytes_per_second(BYTES_PER_SECOND);

    // Down: the spec, and behind it the operation.
    let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
    fleet.gse("register_proc_info", &register).await.unwrap();
    let started = fleet.operate("operate_proc", &operate(0)).await.unwrap();
    // Up: the output of the command.
    let reloaded = fleet.operate("operate_proc", &operate(8)).await.unwrap();

    assert_eq!(row(&started, IP, "far")["error_code"], 0, "{started}");
    let printed = content(row(&reloaded, IP, "far"))["value"][0]["result"].to_string();
    assert!(printed.matches('y').count() >= BYTES, "{reloaded}");
    assert_eq!(proxy.connections(), 2, "an enrolment and one session: {}", agent.program.log());
}
