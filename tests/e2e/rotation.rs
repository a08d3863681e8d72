//! Rotation of the certificate authority with real programs: an agent, one behind a relay, and a process that is left
//! alone meanwhile; and an agent that comes back with an expired certificate.

use std::sync::Arc;
use std::time::Duration;

use proctor_pki::{AgentKey, Authority, AuthoritySecret};
use proctor_store::Store;
use proctor_store::sqlite::SqliteStore;
use proctor_testkit::{Fleet, Program, Subject, eventually, free_port, run_proctor};
use serde_json::{Value, json};

use crate::{code, hosts};

const IP: &str = "127.0.0.1";
const RELAYED: &str = "127.0.0.2";

/// What `proctor ca` prints, or the error.
fn ca(fleet: &Fleet, step: &[&str]) -> Result<Value, String> {
    let (server, secret) = (fleet.url(""), fleet.secret.clone());
    let mut arguments = vec!["ca"];
    arguments.extend(step);
    arguments.extend(["-o", "json", "--server", &server, "--app-code", proctor_testkit::APP]);
    arguments.extend(["--app-secret", &secret, "--user", "op"]);
    run_proctor(&arguments).map(|said| serde_json::from_str(&said).unwrap()).map_err(|error| format!("{error:#}"))
}

async fn until(fleet: &Fleet, what: &str, holds: impl Fn(&Value) -> bool) {
    eventually(what, || async { ca(fleet, &["status"]).ok().filter(&holds).map(drop) }).await;
}

async fn relay(fleet: &Fleet) -> (Program, u16) {
    let (port, data) = (free_port(), fleet.dir().join("data").display().to_string());
    let token = run_proctor(&["token", "create", "--relay", "--cloud-id", "0", "--data-dir", &data]).unwrap();
    let (upstream, listen) = (format!("127.0.0.1:{}", fleet.server.link), format!("127.0.0.1:{port}"));
    let state_dir = fleet.dir().join("relay").display().to_string();
    let arguments = ["relay", "--upstream", &upstream, "--listen", &listen, "--cloud-id", "0", "--state-dir"];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
    arguments.extend([state_dir, "--token".to_owned(), token]);
    let program = Program::start("proctor", &arguments, &fleet.dir().join("relay.log")).unwrap();
    eventually("the relay is connected", || async {
        let relays = fleet.get("/api/v1/relays").await.ok()?;
        (relays["relays"][0]["connected"] == true).then_some(())
    })
    .await;
    (program, port)
}

async fn start(fleet: &Fleet, ip: &str, name: &str) -> Subject {
    let subject = Subject::new(fleet.dir(), name).unwrap();
    let register = json!({ "meta": subject.meta(), "hosts": hosts(&[ip]), "spec": subject.spec() });
    fleet.gse("register_proc_info", &register).await.unwrap();
    let start = json!({ "meta": subject.meta(), "op_type": 0, "hosts": hosts(&[ip]) });
    let rows = fleet.operate("operate_proc", &start).await.unwrap();
    assert_eq!(code(&rows, ip, name), 0, "{rows}");
    subject
}

fn certificates(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().matches("BEGIN CERTIFICATE").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_follows_to_another_authority_and_back_while_the_server_is_killed_between_phases() {
    let mut fleet = Fleet::start().await.unwrap();
    let (_relay, port) = relay(&fleet).await;
    let mut agent = fleet.agent(IP).await.unwrap();
    let _relayed = fleet.agent_through(port, RELAYED, &[]).await.unwrap();
    let (one, two) = (start(&fleet, IP, "kept").await, start(&fleet, RELAYED, "kept_behind_relay").await);
    let pids = (one.pid(), two.pid());
    let old = ca(&fleet, &["status"]).unwrap()["fingerprint"].as_str().unwrap().to_owned();
    let followed =
        |field: &'static str| move |status: &Value| status["agents"][field] == 2 && status["relays"][field] == 1;

    // There and back.
    assert!(ca(&fleet, &["switch"]).unwrap_err().contains("prepare one first"));
    ca(&fleet, &["prepare"]).unwrap();
    until(&fleet, "all trust the new authority", followed("trust_successor")).await;
    fleet.restart_server().await.unwrap();
    ca(&fleet, &["switch"]).unwrap();
    until(&fleet, "all have a new certificate", followed("new_certificate")).await;
    fleet.restart_server().await.unwrap();
    assert_eq!(ca(&fleet, &["abort"]).unwrap()["phase"], "prepared");
    until(&fleet, "all have an old certificate again", |status| {
        status["agents"]["new_certificate"] == 0 && status["relays"]["new_certificate"] == 0
    })
    .await;
    let idle = ca(&fleet, &["abort"]).unwrap();
    assert_eq!((&idle["phase"], &idle["fingerprint"]), (&json!("idle"), &json!(old)));
    let authority = agent.state_dir().join("identity/authority.pem");
    eventually("the agent has dropped the other one", || async { (certificates(&authority) == 1).then_some(()) }).await;

    // To the end, with an agent that starts again in the middle.
    ca(&fleet, &["prepare"]).unwrap();
    until(&fleet, "all trust the new authority", followed("trust_successor")).await;
    ca(&fleet, &["switch"]).unwrap();
    until(&fleet, "all have a new certificate", followed("new_certificate")).await;
    agent.restart().unwrap();
    fleet.until_online(IP, true).await;
    fleet.restart_server().await.unwrap();
    let finished = ca(&fleet, &["finish"]).unwrap();
    assert!(finished["phase"] == "idle" && finished["fingerprint"] != json!(old), "{finished}");
    let relay_authority = fleet.dir().join("relay/identity/authority.pem");
    eventually("agent and relay have dropped the old one", || async {
        (certificates(&authority) == 1 && certificates(&relay_authority) == 1).then_some(())
    })
    .await;
    fleet.restart_server().await.unwrap();
    agent.restart().unwrap();
    for ip in [IP, RELAYED] {
        fleet.until_online(ip, true).await;
    }

    let late = fleet.agent("127.0.0.3").await;
    assert!(late.is_ok(), "a new agent enrols with the new authority: {late:?}");
    assert_eq!((one.pid(), two.pid()), pids);
    assert_eq!((one.starts(), two.starts()), (1, 1), "supervised processes were left alone");
    let another = start(&fleet, IP, "after").await;
    assert!(another.pid().is_some(), "commands are believed under the new authority");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_an_expired_certificate_comes_back_after_an_operator_approved_it() {
    let fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();
    let subject = start(&fleet, IP, "kept").await;
    let pid = subject.pid();
    agent.program.kill();
    fleet.until_online(IP, false).await;
    let identity = agent.state_dir().join("identity");
    expire(&fleet, &identity).await;

    agent.restart().unwrap();
    eventually("the agent says what to do", || async {
        agent.program.log().contains("proctor hosts approve 0:127.0.0.1").then_some(())
    })
    .await;
    let waiting = || async { Some(fleet.get("/api/v1/hosts").await.ok()?["hosts"][0]["awaits_approval"] == true) };
    eventually("the host is shown as waiting", || async { waiting().await.filter(|waits| *waits) }).await;
    let (server, secret) = (fleet.url(""), fleet.secret.clone());
    let mut approve = vec!["hosts", "approve", IP, "--server", &server, "--app-code", proctor_testkit::APP];
    approve.extend(["--app-secret", &secret, "--user", "op"]);
    run_proctor(&approve).unwrap();

    fleet.until_online(IP, true).await;
    assert_eq!(waiting().await, Some(false));
    assert_eq!((subject.pid(), subject.starts()), (pid, 1), "supervised meanwhile, and left alone");
}

/// As if the agent had been away for more than a month.
async fn expire(fleet: &Fleet, identity: &std::path::Path) {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_beside(&fleet.dir().join("data/proctor.db")).await.unwrap());
    let secret = store.secret("authority").await.unwrap().unwrap();
    let authority = Authority::load(&AuthoritySecret::from_bytes(&secret).unwrap()).unwrap();
    let key = AgentKey::from_pem(&std::fs::read_to_string(identity.join("key.pem")).unwrap()).unwrap();
    let card: Value = serde_json::from_str(&std::fs::read_to_string(identity.join("agent.json")).unwrap()).unwrap();
    let agent = card["agent"].as_str().unwrap().parse().unwrap();
    let now = jiff::Timestamp::from_millisecond(proctor_testkit::unix_millis()).unwrap();
    let day = Duration::from_secs(24 * 3600);
    let certificate = authority.issue_agent(&key.csr_der().unwrap(), &agent, now - 40 * day, 30 * day).unwrap();
    std::fs::write(identity.join("certificate.pem"), certificate).unwrap();
}
