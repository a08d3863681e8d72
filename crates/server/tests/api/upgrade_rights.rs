//! Upgrades of agents end with the rights of who began them, and go on with those of who resumes them.

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{AgentId, Message, Subject};
use proctor_runtime::Tasks;
use proctor_server::control::{Caller, Control, UpgradeWish};
use proctor_store::{Upgrade, UpgradeBuild, UpgradeHost, UpgradeHostState, UpgradePlan, UpgradeState, User};
use uuid::Uuid;

use crate::rolling_rights::{Taken, caller};
use crate::support::{World, greeting};

const PATIENCE: Duration = Duration::from_secs(60);

/// With user ana, who administers everything, and a host that is away.
async fn world() -> (World, Caller) {
    let world = World::new().await;
    world.enrol("0:10.0.1.0", "agent-0").await;
    world.hold_build("9.0.0").await;
    world.store.create_user(User { name: "ana".to_owned(), created_at: 0, disabled: false }).await.unwrap().unwrap();
    world.bind("user:ana", "admin", "everything").await;
    let ana = caller(&world, &["user:ana"]).await;
    (world, ana)
}

fn agent() -> AgentId {
    "agent-0".parse().unwrap()
}

async fn upgrade(world: &World, makers: &[Subject]) -> Upgrade {
    let build = &world.control.builds().await[0];
    let plan = UpgradePlan {
        version: build.version.to_string(),
        builds: vec![UpgradeBuild {
            arch: build.arch.to_owned(),
            name: build.name.clone(),
            sha256: build.sha256.clone(),
            size: build.size,
        }],
        rings: vec![1],
        health_deadline_secs: 60,
        failures_max: 0,
        allow_downgrade: false,
    };
    Upgrade {
        id: Uuid::from_u128(1),
        plan,
        state: UpgradeState::Running,
        reason: Message::default(),
        created_by: "user ana".to_owned(),
        makers: makers.to_vec(),
        created_at: 0,
        changed_at: 0,
    }
}

fn host() -> UpgradeHost {
    UpgradeHost {
        agent: agent(),
        host: "0:10.0.1.0".parse().unwrap(),
        ring: 0,
        state: UpgradeHostState::Waiting,
        reason: Message::foreign(""),
        version_before: "1.0.0".to_owned(),
        changed_at: 0,
    }
}

/// The host comes, and can be upgraded.
async fn connect(world: &World) {
    let mut greeting = greeting(&agent());
    greeting.takes_upgrades = true;
    greeting.opening.facts.arch = "x86_64".to_owned();
    world.control.open_session(greeting).await.unwrap().unwrap();
}

async fn until(control: &Control, what: &str, is_so: impl Fn(&Upgrade, &UpgradeHost) -> bool) -> Upgrade {
    let reached = async {
        loop {
            let (upgrade, hosts) = control.upgrade(Uuid::from_u128(1)).await.unwrap().unwrap();
            if is_so(&upgrade, &hosts[0]) {
                return upgrade;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

fn is_paused_in_time(upgrade: &Upgrade, host: &UpgradeHost) -> bool {
    assert_eq!(host.state, UpgradeHostState::Waiting, "no host begins without the right");
    upgrade.state == UpgradeState::Paused
}

#[tokio::test]
async fn an_upgrade_is_paused_when_who_began_it_is_unbound_or_disabled() {
    for taken in [Taken::Binding, Taken::Enabled, Taken::BindingUnseen] {
        let (world, ana) = world().await;
        let upgrade = upgrade(&world, &ana.subjects).await;
        world.control.begin_upgrade(upgrade, vec![host()]).await.unwrap().unwrap();

        taken.take(&world).await;
        connect(&world).await;

        let paused = until(&world.control, "it is paused", is_paused_in_time).await;
        let why = match taken {
            Taken::Binding | Taken::BindingUnseen => "user:ana may no longer administer everything",
            Taken::Enabled => "user ana is disabled",
        };
        assert_eq!(paused.reason, format!("{why}: an administrator can resume or cancel it"), "{taken:?}");
        world.end().await;
    }
}

#[tokio::test]
async fn an_upgrade_goes_on_with_the_rights_of_who_resumes_it() {
    let (world, ana) = world().await;
    let upgrade = upgrade(&world, &ana.subjects).await;
    world.control.begin_upgrade(upgrade.clone(), vec![host()]).await.unwrap().unwrap();
    Taken::Binding.take(&world).await;
    until(&world.control, "it is paused", is_paused_in_time).await;
    connect(&world).await;

    // Whose right is no longer there, either.
    assert!(world.control.steer_upgrade(upgrade.id, UpgradeWish::Resume, &ana).await.unwrap());
    until(&world.control, "it is paused again", is_paused_in_time).await;
    world.bind("user:bob", "admin", "everything").await;
    let bob = caller(&world, &["user:bob"]).await;
    assert!(world.control.steer_upgrade(upgrade.id, UpgradeWish::Resume, &bob).await.unwrap());

    let begun = |_: &Upgrade, host: &UpgradeHost| host.state == UpgradeHostState::Upgrading;
    let going_on = until(&world.control, "the host is told", begun).await;
    assert_eq!((going_on.state, going_on.makers), (UpgradeState::Running, bob.subjects));
    world.end().await;
}

#[tokio::test]
async fn a_server_that_starts_does_not_go_on_without_the_right() {
    let (world, ana) = world().await;
    let upgrade = upgrade(&world, &ana.subjects).await;
    // Left by an earlier life of the server.
    world.store.begin_upgrade(upgrade, vec![host()]).await.unwrap().unwrap();
    Taken::BindingUnseen.take(&world).await;

    let tasks = Tasks::default();
    let control = Control::start(Arc::clone(&world.store), &tasks).await.unwrap();

    until(&control, "it is paused", is_paused_in_time).await;
    assert!(tasks.end(PATIENCE).await);
    world.end().await;
}
