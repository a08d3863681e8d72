//! Error messages at the worst moment: one line that says what is wrong and what to do, from the real programs.

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use proctor_pki::{AgentKey, Authority, AuthoritySecret};
use proctor_runtime::clock;
use proctor_store::Store;
use proctor_store::sqlite::SqliteStore;
use proctor_testkit::{APP, Fleet, binary, eventually, run_proctor};

const IP: &str = "127.0.0.1";

fn list_hosts(fleet: &Fleet, server: &str) -> Output {
    let mut command = Command::new(binary("proctor"));
    command.args(["hosts", "--server", server, "--app-code", APP, "--app-secret", &fleet.secret, "--user", "ada"]);
    command.output().unwrap()
}

/// Its output, which must be one line.
fn one_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_address_of_the_server_is_told_in_one_line_with_what_to_do() {
    let fleet = Fleet::start().await.unwrap();
    let (http, link) = (fleet.server.http, fleet.server.link);

    let tls_at_plain_port = list_hosts(&fleet, &format!("https://127.0.0.1:{http}"));
    let without_scheme = list_hosts(&fleet, &format!("127.0.0.1:{http}"));
    let right = list_hosts(&fleet, &format!("http://127.0.0.1:{http}"));
    let link_port = list_hosts(&fleet, &format!("http://127.0.0.1:{link}"));

    assert!(right.status.success(), "{right:?}");
    assert_eq!(
        one_line(&tls_at_plain_port),
        format!(
            "proctor: cannot reach https://127.0.0.1:{http}: this port does not speak TLS: write http:// instead of \
             https://"
        )
    );
    assert_eq!(tls_at_plain_port.status.code(), Some(3));
    assert_eq!(
        one_line(&without_scheme),
        format!(
            "proctor: '127.0.0.1:{http}' is not the address of a server: it has no scheme; write http://127.0.0.1:{http} \
             (or https://)"
        )
    );
    assert_eq!(without_scheme.status.code(), Some(2));
    let why = "the peer does not speak HTTP: if it speaks HTTPS, let it use http://, or serve HTTPS here";
    let in_log = eventually("the server says so, too", || async {
        let log = fleet.server.program.log();
        log.lines().find(|line| line.contains("HTTP connection failed")).map(str::to_owned)
    })
    .await;
    assert!(in_log.contains(why), "{in_log}");
    let words = one_line(&link_port);
    assert!(words.contains("its link") && words.contains("API (8080 if not set)"), "{words}");
    assert_eq!(link_port.status.code(), Some(3), "{link_port:?}");
}

/// The authority of the fleet's server.
async fn authority(fleet: &Fleet) -> Authority {
    let file = fleet.dir().join("data/proctor.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_beside(&file).await.unwrap());
    let secret = store.secret("authority").await.unwrap().unwrap();
    Authority::load(&AuthoritySecret::from_bytes(&secret).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_certificate_has_expired_says_so_and_what_lets_it_back() {
    let fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();
    agent.program.kill();
    fleet.until_online(IP, false).await;
    let identity = agent.state_dir().join("identity");
    let key = AgentKey::from_pem(&std::fs::read_to_string(identity.join("key.pem")).unwrap()).unwrap();
    let id = fleet.get("/api/v1/hosts").await.unwrap()["hosts"][0]["agent"].as_str().unwrap().parse().unwrap();
    let (hour, two_hours) = (Duration::from_secs(3600), 2 * 3600 * 1000);
    let then = jiff::Timestamp::from_millisecond(clock::unix_millis() - two_hours).unwrap();
    let expired = authority(&fleet).await.issue_agent(&key.csr_der().unwrap(), &id, then, hour).unwrap();
    let expired_at = proctor_pki::expires_at(&expired).unwrap();
    std::fs::write(identity.join("certificate.pem"), expired).unwrap();

    agent.restart().unwrap();

    let line = eventually("the agent says why", || async {
        let log = agent.program.log();
        log.lines().find(|line| line.contains("certificate expired")).map(str::to_owned)
    })
    .await;
    let words = format!(
        "this agent's certificate expired at {expired_at} (check the clock), and it got no new one: the certificate of \
         host 0:{IP} has expired: let it come back with `proctor hosts approve 0:{IP}`"
    );
    assert!(line.contains(&words), "{line}");
    assert!(!fleet.server.program.log().contains("TLS handshake failed"), "it does not try with that certificate");

    // A join token helps, too.
    agent.program.kill();
    std::fs::remove_file(identity.join("certificate.pem")).unwrap();
    let _again = fleet.agent(IP).await.unwrap();
}

/// The token with one letter of one of its parts changed.
fn mistyped(token: &str, part: usize) -> String {
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    let last = parts[part].pop().unwrap();
    let before = parts[part].pop().unwrap();
    parts[part].extend([if before == 'a' { 'b' } else { 'a' }, last]);
    parts.join(".")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_mistyped_token_ends_and_says_what_to_do_and_so_does_the_server() {
    let fleet = Fleet::start().await.unwrap();
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--data-dir", &data]).unwrap();
    let server = format!("127.0.0.1:{}", fleet.server.link);
    let enrol = |token: &str| {
        let state_dir = fleet.dir().join("mistyped");
        let mut command = Command::new(binary("proctor-agent"));
        command.args(["--server", &server, "--ip", IP, "--token", token, "--state-dir"]).arg(state_dir);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };

    let (secret, fingerprint, cut) = (enrol(&mistyped(&token, 2)), enrol(&mistyped(&token, 3)), enrol(&token[..20]));

    let unknown = "the join token is unknown";
    for (said, words) in [
        (&secret, unknown),
        (
            &fingerprint,
            "has another authority than the join token names: was the token mistyped, made by another server, or made before its authority was replaced?",
        ),
        (&cut, "it must have four parts separated by '.': PT1.ID.SECRET.FINGERPRINT"),
    ] {
        let lines = said.lines().filter(|line| line.contains(words)).count();
        assert_eq!(lines, 1, "{words}: {said}");
        assert!(!said.contains("OtherAuthority") && !said.contains("panicked"), "{said}");
    }
    let log = fleet.server.program.log();
    let refused = log.lines().find(|line| line.contains("enrolment refused"));
    assert!(refused.is_some_and(|line| line.contains(unknown)), "{log}");
    assert_eq!(fleet.get("/api/v1/hosts").await.unwrap()["hosts"], serde_json::json!([]));
}
