use super::*;

struct World {
    dir: tempfile::TempDir,
    inputs: mpsc::Receiver<Input>,
    upgrader: Upgrader,
}

fn world(policy: &str) -> World {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    std::fs::write(&file, policy).unwrap();
    let policy = Arc::new(PolicyFile::open(Some(&file)).unwrap());
    let (inbox, inputs) = crate::driver::inbox();
    let now = Box::new(|| Time::since_boot(Duration::ZERO));
    let upgrader = Upgrader::new(dir.path(), policy, inbox, Arc::default(), now, true);
    World { dir, inputs, upgrader }
}

fn order() -> UpgradeOrder {
    UpgradeOrder {
        upgrade: Uuid::from_u128(7),
        version: "999.0.0".into(),
        arch: std::env::consts::ARCH.into(),
        sha256: [1; 32],
        size: 5,
        allow_downgrade: false,
        health_deadline: Duration::from_secs(60),
    }
}

async fn refusal(policy: &str, order: UpgradeOrder, is_signed: bool) -> String {
    let mut world = world(policy);
    let (link, mut heard) = mpsc::channel(4);
    world.upgrader.link = Some(link);

    assert!(!world.upgrader.ordered(order.clone(), is_signed).await);

    let Ok(FromAgent::UpgradeReport { upgrade, step, reason }) = heard.try_recv() else { panic!("it is reported") };
    assert_eq!((upgrade, step), (order.upgrade, UpgradeStep::Failed));
    assert!(matches!(world.inputs.try_recv(), Ok(Input::Tell(_))), "an event tells of it");
    let kept = Records::new(world.dir.path()).load().unwrap();
    assert_eq!((kept.message(), kept.told), (reason.clone(), true));
    // Said again, it is answered, and there is no second event.
    assert!(!world.upgrader.ordered(order, is_signed).await);
    assert!(heard.try_recv().is_ok() && world.inputs.try_recv().is_err());
    reason.phrase().unwrap().id().to_owned()
}

#[tokio::test]
async fn an_order_that_must_not_be_obeyed_is_refused_once_with_its_reason() {
    let with = |change: fn(&mut UpgradeOrder)| {
        let mut order = order();
        change(&mut order);
        order
    };
    assert_eq!(refusal("", order(), false).await, "upgrade_unsigned");
    assert_eq!(refusal("upgrades = false", order(), true).await, "upgrade_by_policy");
    assert_eq!(refusal("users = ['app']", order(), true).await, "upgrade_by_policy");
    assert_eq!(refusal("", with(|order| order.arch = "pdp11".into()), true).await, "upgrade_other_arch");
    assert_eq!(refusal("", with(|order| order.version = "0.0.1".into()), true).await, "upgrade_would_downgrade");
    assert_eq!(refusal("", with(|order| order.version = "new".into()), true).await, "upgrade_bad_order");
    assert_eq!(refusal("", with(|order| order.size = 0), true).await, "upgrade_bad_order");
    assert_eq!(refusal("", with(|order| order.size = u64::MAX), true).await, "upgrade_bad_order");
    let endless = with(|order| order.health_deadline = Duration::from_secs(86_400));
    assert_eq!(refusal("", endless, true).await, "upgrade_bad_order");
}

#[test]
fn an_agent_that_does_not_know_its_own_version_goes_to_no_other() {
    let wanted: AgentVersion = "1.2.3".parse().unwrap();
    let id = |ours| check_newer(ours, &wanted).map_err(|reason| reason.phrase().unwrap().id().to_owned());

    assert_eq!([id("1.2.3"), id("1.2.2")], [Ok(()), Ok(())]);
    assert_eq!(id("1.2.4"), Err("upgrade_would_downgrade".to_owned()));
    assert_eq!(id("unknown"), Err("upgrade_bad_order".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_sign_that_could_not_be_written_is_shown_later() {
    let dir = tempfile::tempdir().unwrap();
    let (upgrade, state_dir) = (Uuid::from_u128(7), dir.path().join("state"));
    let records = Records::new(&state_dir);
    let lasting = Duration::from_secs(5);
    let mut proof = Proof { upgrade, lasting, session: Some((Instant::now(), 0)), shown: None, beaten: None };
    tokio::time::advance(lasting).await;
    proof.show(&records, 1).await.unwrap_err();
    proof.show(&records, 1).await.unwrap_err();

    std::fs::create_dir(&state_dir).unwrap();
    proof.show(&records, 1).await.unwrap();

    assert_eq!(records.shown(upgrade), Some(Sign::Proved));
}

#[tokio::test(start_paused = true)]
async fn a_program_on_trial_has_a_pulse_while_its_driver_turns() {
    let dir = tempfile::tempdir().unwrap();
    let (upgrade, records) = (Uuid::from_u128(7), Records::new(dir.path()));
    let lasting = Duration::from_secs(30);
    let mut proof = Proof { upgrade, lasting, session: None, shown: None, beaten: None };
    let mut pulses = Vec::new();

    for turns in [1, 2, 2, 3] {
        proof.show(&records, turns).await.unwrap();
        pulses.push(records.pulse());
        tokio::time::advance(PULSE_PERIOD).await;
    }

    assert!(pulses[0] != pulses[1] && pulses[1] == pulses[2] && pulses[2] != pulses[3], "{pulses:?}");
    records.clear_heartbeats().unwrap();
    assert_eq!((records.pulse(), records.shown(upgrade)), (Vec::new(), None));
}

#[tokio::test]
async fn an_agent_inside_another_program_is_not_replaced() {
    let mut world = world("");
    world.upgrader.is_program = false;

    assert_eq!(world.upgrader.admit(&order()).unwrap_err(), messages::upgrade_embedded());
}

#[tokio::test]
async fn a_trial_that_was_cut_short_is_repeated_once() {
    for (trials, expected) in [(1, UpgradeStep::Fetching), (2, UpgradeStep::Failed)] {
        let mut world = world("");
        let left = Record { step: UpgradeStep::Trying, trials, ..record::sample() };
        world.upgrader.record = Some(left);

        world.upgrader.take_up().await;

        assert_eq!(world.upgrader.record.unwrap().step, expected);
    }
}

#[tokio::test]
async fn a_program_that_took_the_place_of_the_old_one_says_so_once() {
    let mut world = world("");
    let (link, mut heard) = mpsc::channel(4);
    world.upgrader.link = Some(link);
    let sha256 = proctor_pki::hex(&proctor_pki::sha256_of(File::open("/proc/self/exe").unwrap()).unwrap());
    world.upgrader.record = Some(Record { step: UpgradeStep::Trying, trials: 1, sha256, ..record::sample() });
    let path = world.dir.path().join("agent");
    world.upgrader.find_program = Arc::new(move || Ok(Program::at(path.clone())));

    world.upgrader.take_up().await;
    world.upgrader.take_up().await;
    world.upgrader.report();

    assert!(matches!(world.inputs.try_recv(), Ok(Input::Tell(_))) && world.inputs.try_recv().is_err());
    let kept = Records::new(world.dir.path()).load().unwrap();
    assert_eq!((kept.step, kept.told), (UpgradeStep::Done, true));
    assert!(matches!(heard.try_recv(), Ok(FromAgent::UpgradeReport { step: UpgradeStep::Done, .. })));
}

#[test]
fn a_session_proves_a_program_after_half_of_a_short_deadline() {
    let secs = Duration::from_secs;

    assert_eq!([10, 60, 3600].map(|deadline| prove_after(secs(deadline))), [secs(5), secs(30), secs(30)]);
}

#[tokio::test(start_paused = true)]
async fn a_program_on_trial_proves_itself_by_one_lasting_session_and_needs_no_record() {
    let mut world = world("");
    let (upgrade, turns) = (Uuid::from_u128(7), world.upgrader.turns.clone());
    world.upgrader.trial_of = Some(upgrade);
    let (records, (inbox, outbox)) = (Records::new(world.dir.path()), inbox());
    let second = Duration::from_secs(1);
    let tries = async {
        let connect = || inbox.connect(Some(mpsc::channel(4).0));
        tokio::time::sleep(second).await;
        assert_eq!(records.shown(upgrade), None, "its driver does not turn yet");
        turns.fetch_add(1, Ordering::Relaxed);
        connect();
        tokio::time::sleep(second).await;
        turns.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PROVE_AFTER_MAX - 2 * second).await;
        assert_eq!(records.shown(upgrade), Some(Sign::Started));
        inbox.connect(None);
        tokio::time::sleep(PROVE_AFTER_MAX).await;
        assert_eq!(records.shown(upgrade), Some(Sign::Started), "it has no session");
        connect();
        tokio::time::sleep(second).await;
        turns.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PROVE_AFTER_MAX - 2 * second).await;
        assert_eq!(records.shown(upgrade), Some(Sign::Started), "the time begins anew");
        tokio::time::sleep(2 * second).await;
        assert_eq!(records.shown(upgrade), Some(Sign::Proved));
    };

    tokio::select! {
        _ = Box::pin(world.upgrader.run(outbox)) => unreachable!("it waits for its end"),
        () = tries => {}
    }
}

/// An agent's program of its own, and an upgrade to another one that comes over a link.
struct Fetching {
    world: World,
    heard: mpsc::Receiver<FromAgent>,
    order: UpgradeOrder,
    content: Vec<u8>,
}

impl Fetching {
    fn new() -> Self {
        let mut world = world("");
        let path = world.dir.path().join("agent");
        std::fs::write(&path, "old").unwrap();
        world.upgrader.find_program = Arc::new(move || Ok(Program::at(path.clone())));
        let (link, heard) = mpsc::channel(16);
        world.upgrader.link = Some(link);
        let said = ProgramCheck { version: "999.0.0".into(), ..ProgramCheck::ours() };
        let content = format!("#!/bin/sh\necho '{}'\n", serde_json::to_string(&said).unwrap()).into_bytes();
        let sha256 = proctor_pki::sha256_of(content.as_slice()).unwrap();
        let order = UpgradeOrder { sha256, size: content.len() as u64, ..order() };
        Self { world, heard, order, content }
    }

    /// What the agent asks for next.
    fn asked(&mut self) -> Option<(u64, u32)> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).find_map(|message| {
            if let FromAgent::FetchBuild { offset, length, .. } = message { Some((offset, length)) } else { None }
        })
    }

    /// Whether the whole build is here.
    async fn arrive(&mut self, (offset, length): (u64, u32)) -> bool {
        let (from, length) = (usize::try_from(offset).unwrap(), usize::try_from(length).unwrap());
        let bytes = self.content[from..from + length].to_vec();
        self.world.upgrader.arrived(self.order.upgrade, offset, bytes).await
    }

    fn reason(&self) -> String {
        self.world.upgrader.record.as_ref().unwrap().message().phrase().unwrap().id().to_owned()
    }
}

#[tokio::test]
async fn an_owner_who_changes_the_policy_during_the_fetch_is_asked_again() {
    let mut fetching = Fetching::new();
    assert!(!fetching.world.upgrader.ordered(fetching.order.clone(), true).await);
    let asked = fetching.asked().unwrap();
    assert!(fetching.arrive(asked).await);
    // The agent looks once a second.
    fetching.world.upgrader.now = Box::new(|| Time::since_boot(Duration::from_secs(2)));
    std::fs::write(fetching.world.dir.path().join("policy.toml"), "users = ['app']").unwrap();

    let trial = fetching.world.upgrader.trial().await;

    assert!(trial.is_none());
    assert_eq!(fetching.reason(), "upgrade_by_policy");
}

#[tokio::test]
async fn what_a_power_failure_left_of_a_fetch_is_fetched_once_more() {
    let mut fetching = Fetching::new();
    let sha256 = proctor_pki::hex(&fetching.order.sha256);
    fetching.world.upgrader.record = Some(Record { sha256, ..record::sample() });
    std::fs::write(fetching.world.dir.path().join(".agent.upgrade.part"), [0; 9]).unwrap();
    assert!(!fetching.world.upgrader.ordered(fetching.order.clone(), true).await);
    let rest = fetching.asked().unwrap();
    assert_eq!(rest.0, 9, "it goes on with what is there");
    assert!(fetching.arrive(rest).await);

    assert!(fetching.world.upgrader.trial().await.is_none());

    let again = fetching.asked().unwrap();
    assert_eq!(again, (0, u32::try_from(fetching.content.len()).unwrap()));
    assert!(fetching.arrive(again).await);
    let trial = fetching.world.upgrader.trial().await.unwrap();
    assert_eq!(std::fs::read(trial.program.staged()).unwrap(), fetching.content);
}

#[tokio::test]
async fn a_build_with_other_bytes_is_fetched_only_once() {
    let mut fetching = Fetching::new();
    assert!(!fetching.world.upgrader.ordered(fetching.order.clone(), true).await);
    let asked = fetching.asked().unwrap();
    fetching.content[0] ^= 1;
    assert!(fetching.arrive(asked).await);

    assert!(fetching.world.upgrader.trial().await.is_none());

    assert_eq!((fetching.asked(), fetching.reason().as_str()), (None, "upgrade_other_bytes"));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_without_a_session_waits_quietly_and_does_not_take_for_ever() {
    let mut fetching = Fetching::new();
    assert!(!fetching.world.upgrader.ordered(fetching.order.clone(), true).await);
    let asked = fetching.asked().unwrap();
    fetching.world.upgrader.link = None;
    tokio::time::advance(PART_MAX).await;

    fetching.world.upgrader.ask_again().await;

    let fetch = fetching.world.upgrader.fetch.as_ref().unwrap();
    assert_eq!(fetch.asked_at, Some(Instant::now()), "the next look is due later");
    assert_eq!(fetch.part_bytes, PART_BYTES_FIRST, "the link was not too slow");
    // Nor where parts keep coming.
    tokio::time::advance(FETCH_MAX).await;
    assert!(!fetching.arrive(asked).await);
    assert_eq!(fetching.reason(), "upgrade_fetch_expired");
}
