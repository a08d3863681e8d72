//! Links that are late, slow, doubled, reset, silent or half-open, and a network that is gone: every operation runs once,
//! and its result arrives. Longer faults, and loss of packets: `make soak`.

use std::net::Ipv4Addr;
use std::time::Duration;

use proctor_testkit::{Direction, FaultProxy, Fleet, Marked, NetworkNamespace, Setup, eventually, skip};

const IP: &str = "127.0.0.1";
const HANDLING: u32 = proctor_testkit::HANDLING;
const AGENT_ABSENT: u32 = 117;

/// The codes of all operations, in the order of their submits, with every invariant intact.
async fn judged(marked: Marked, fleet: &Fleet) -> Vec<u32> {
    let (history, codes) = marked.finish(fleet).await.unwrap();
    history.assert_holds();
    codes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_delays_by_a_fifth_of_a_second_and_drips_keeps_one_session() {
    let fleet = Fleet::start().await.unwrap();
    let proxy = FaultProxy::start(fleet.server.link).await.unwrap();
    proxy.set_delay(Duration::from_millis(200), Duration::from_millis(100));
    let agent = fleet.agent_through(proxy.port, IP, &[]).await.unwrap();
    let mut marked = Marked::start(&fleet, &agent, "late").await.unwrap();

    for bytes_per_second in [1_000_000, 2_000] {
        proxy.set_bytes_per_second(bytes_per_second);
        for _ in 0..3 {
            let task = marked.submit(&fleet, "true").await.unwrap();
            fleet.until_final(&task).await;
        }
    }

    assert_eq!(judged(marked, &fleet).await, [0; 6]);
    assert_eq!(proxy.connections(), 2, "an enrolment and one session: {}", agent.program.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_reset_or_doubled_runs_every_operation_once() {
    let fleet = Fleet::start().await.unwrap();
    let proxy = FaultProxy::start(fleet.server.link).await.unwrap();
    let agent = fleet.agent_through(proxy.port, IP, &[]).await.unwrap();
    let mut marked = Marked::start(&fleet, &agent, "reset").await.unwrap();

    for round in 0..6 {
        proxy.set_doubled(round % 2 == 0);
        for _ in 0..3 {
            marked.submit(&fleet, "sleep 0.1").await.unwrap();
        }
        marked.until_executed(1).await;
        let before = proxy.connections();
        proxy.reset_all();
        eventually("the agent connects again", || async { (proxy.connections() > before).then_some(()) }).await;
        fleet.until_online(IP, true).await;
    }

    let codes = judged(marked, &fleet).await;
    assert_eq!(codes.len(), 18);
    assert!(codes.iter().all(|code| [0, AGENT_ABSENT].contains(code)), "{codes:?}");
    assert!(codes.contains(&0), "{codes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_replaced_and_what_it_swallowed_runs_once() {
    let fleet = Fleet::start().await.unwrap();
    let proxy = FaultProxy::start(fleet.server.link).await.unwrap();
    let agent = fleet.agent_through(proxy.port, IP, &[]).await.unwrap();
    let mut marked = Marked::start(&fleet, &agent, "swallowed").await.unwrap();

    proxy.make_half_open();
    // Delivered into the void, and again on the next session.
    let task = marked.submit(&fleet, "true").await.unwrap();
    let before = proxy.connections();
    eventually("the agent gives the connection up", || async { (proxy.connections() > before).then_some(()) }).await;
    fleet.until_final(&task).await;

    assert_eq!(judged(marked, &fleet).await, [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_silent_in_one_direction_is_noticed_on_both_sides() {
    tokio::join!(silent(Direction::ToServer), silent(Direction::ToAgent));
}

async fn silent(direction: Direction) {
    let fleet = Fleet::start().await.unwrap();
    let proxy = FaultProxy::start(fleet.server.link).await.unwrap();
    let agent = fleet.agent_through(proxy.port, IP, &[]).await.unwrap();
    let mut marked = Marked::start(&fleet, &agent, "unheard").await.unwrap();

    proxy.hold(direction, true);
    // Either the operation is on its way for ever, or its result.
    let task = marked.submit(&fleet, "true").await.unwrap();
    fleet.until_online(IP, false).await;
    assert_eq!(marked.code(&fleet, &task).await, Some(HANDLING), "it is not lost before its time is over");
    proxy.hold(direction, false);
    fleet.until_online(IP, true).await;

    assert_eq!(judged(marked, &fleet).await, [0], "{direction:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_partition_supervision_goes_on_and_results_arrive_once_it_heals() {
    let namespace = match NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(error) => return skip(&format!("no network namespace can be made here: {error:#}")),
    };
    let setup = Setup { link_ip: Ipv4Addr::UNSPECIFIED.into(), ..Setup::default() };
    let fleet = Fleet::start_as(tempfile::tempdir().unwrap(), setup).await.unwrap();
    let link = format!("{}:{}", namespace.gateway, fleet.server.link);
    let agent = fleet.agent_by(&namespace.launcher(), &link, IP, &[]).await.unwrap();
    let mut marked = Marked::start(&fleet, &agent, "cut-off").await.unwrap();
    let task = marked.submit(&fleet, "touch begun; until test -e go; do sleep 0.1; done").await.unwrap();
    let begun = marked.subject.dir.join("begun");
    eventually("the command runs", || async { begun.exists().then_some(()) }).await;
    let before = marked.subject.pid().unwrap();

    namespace.partition().unwrap();
    std::fs::write(marked.subject.dir.join("go"), "").unwrap();
    marked.until_executed(1).await;
    marked.subject.kill(before);
    let restarted = || async { marked.subject.pid().filter(|pid| *pid != before) };
    eventually("the process is started again behind the partition", restarted).await;
    fleet.until_online(IP, false).await;
    assert_eq!(marked.code(&fleet, &task).await, Some(HANDLING), "it is not lost before its time is over");
    namespace.heal().unwrap();
    fleet.until_online(IP, true).await;

    assert_eq!(marked.subject.copies().len(), 1);
    assert_eq!(judged(marked, &fleet).await, [0]);
}
