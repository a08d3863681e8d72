//! Many agents behind relays, and a server that shuts down: whose turn it is, and who is told when to come back.

use proctor_server::gateway::LinkPolicy;
use proctor_wire::FromServer;

use crate::relay_support::{Carried, HOST, Heard, PATIENCE, Relay, certificate};
use crate::support::{World, until};

#[tokio::test]
async fn the_greeting_of_an_agent_behind_a_relay_takes_its_turn() {
    let world = World::new().await;
    let (relay, agent) = (Relay::enrolled(&world, 0).await, world.agent(HOST, "owner").await);
    let carrying = relay.carrying(&world).await;
    let admitted = || world.metric("proctor_link_admissions_total{result=\"admitted\"}");
    // Both enrolments, and the relay.
    until("all connections are counted", || async { admitted().await == Some(3.0) }).await;

    let _carried = Carried::connected(&world, &carrying, &relay, &agent).await;

    assert_eq!(admitted().await, Some(4.0));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_tells_agents_behind_relays_when_to_come_back() {
    // The machine may be busy: nobody is cut off, and no session ends in silence.
    let world = World::with(LinkPolicy { goodbye_limit: PATIENCE, ..LinkPolicy::default() }).await;
    let (relay, heard) = (Relay::enrolled(&world, 0).await, Heard::default());
    let carrying = relay.carrying_with_beats(&world, heard.clone()).await;
    let mut carried = Vec::new();
    for number in 1..=3 {
        let agent = world.agent(&format!("0:10.0.0.{number}"), &format!("a-{number}")).await;
        carried.push(Carried::connected(&world, &carrying, &relay, &agent).await);
        heard.lock().push(number);
    }
    let mut greeting = Carried::open(&carrying, certificate(&world.agent("0:10.0.0.4", "a-4").await)).await;

    let longest = world.server.control.return_grace() / 2;
    world.end().await;

    for carried in &mut carried {
        let told = loop {
            match carried.next().await {
                Some(FromServer::Busy { retry_after }) => break retry_after,
                Some(FromServer::Signed(_) | FromServer::Beat) => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(told <= longest, "the next server still waits for it then: {told:?}");
        assert_eq!(carried.next().await, None, "it was the last word");
    }
    assert_eq!(greeting.next().await, None, "it had no session");
}
