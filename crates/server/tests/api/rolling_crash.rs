//! Rolling tasks of a server that dies between any two of its writes.
//!
//! A life of the server runs on a store that takes a given number of writes and then no more, as if the
//! process had been killed there. The next life has to bring the task to a sound end. Agents are played
//! by hand: they begin an operation once, remember its outcome, and tell it to every life that asks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proctor_model::{Code, Message, OperationId, Outcome, Phase, Snapshot, Subject, TaskId};
use proctor_runtime::{Tasks, clock};
use proctor_server::control::{Caller, Control, ControlError, Session, SubmitOptions};
use proctor_store::sqlite::SqliteStore;
use proctor_store::{RolloutState, Store, TaskView, User};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::rolling::{HOSTS, codes, fleet, is_over, restart, rolling};

const PATIENCE: Duration = Duration::from_secs(120);
/// Enough for any script to run to its end.
const NO_DEATH: u64 = 1_000_000;
/// How often agents say how their processes are.
const REPORT_PERIOD: Duration = Duration::from_millis(500);
/// Lives that run at the same time; each has a file of its own.
const AT_ONCE: usize = 8;

/// Who makes a task whose rights are taken.
const MAKER: &str = "ana";

fn maker() -> Subject {
    Subject::User(MAKER.to_owned())
}

/// What the agents and the people do.
#[derive(Clone, Debug)]
struct Script {
    rolling: SubmitOptions,
    ends: [End; HOSTS],
    when_paused: Act,
    /// Cancel as soon as this target was delivered, before its agent answers.
    cancel_at: Option<u32>,
    /// Somebody pauses as soon as this target was delivered; then `when_paused` holds.
    pause_at: Option<u32>,
    /// The rights of who made the task are taken as soon as this target was delivered, before its agent answers.
    withdraw_at: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Fails,
    /// And is running afterwards.
    Succeeds,
    /// And is never seen running.
    NeverHealthy,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Resume,
    Cancel,
}

fn script(max_parallel: u32, max_failures: u32, canary: u32) -> Script {
    Script {
        rolling: rolling(max_parallel, max_failures, canary),
        ends: [End::Succeeds; HOSTS],
        when_paused: Act::Resume,
        cancel_at: None,
        pause_at: None,
        withdraw_at: None,
    }
}

impl Script {
    fn waiting(mut self) -> Self {
        self.rolling.rolling.as_mut().unwrap().wait_healthy = true;
        self
    }

    fn ending(self, index: usize, end: End) -> Self {
        let mut ends = self.ends;
        ends[index] = end;
        Self { ends, ..self }
    }
}

/// What the agents remember, and the people.
#[derive(Default)]
struct Ledgers {
    outcomes: BTreeMap<u32, Outcome>,
    cancel_was_answered: bool,
    pause_was_answered: bool,
    /// The rights of who made the task are gone.
    is_withdrawn: bool,
}

struct Life<'a> {
    script: &'a Script,
    ledgers: &'a mut Ledgers,
    store: Arc<dyn Store>,
    control: Control,
    sessions: Vec<Arc<Session>>,
    left: Arc<AtomicU64>,
    tasks: Tasks,
    reported: Option<Instant>,
    /// Their agents answer once the people have done what they are about to.
    unanswered: Vec<OperationId>,
}

/// The store with its hosts and registrations, as a file to copy.
async fn fixture() -> (TempDir, PathBuf) {
    let (world, _sessions) = fleet().await;
    world.store.create_user(User { name: MAKER.to_owned(), created_at: 0, disabled: false }).await.unwrap().unwrap();
    world.bind(&maker().to_string(), "operator", "namespace:web").await;
    let directory = world.ended().await;
    let file = directory.path().join("proctor.db");
    (directory, file)
}

/// None where the server did not even start.
async fn live<'a>(file: &Path, script: &'a Script, ledgers: &'a mut Ledgers, writes: u64) -> Option<Life<'a>> {
    let left = Arc::new(AtomicU64::new(writes));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_dying(file, left.clone()).await.unwrap());
    let tasks = Tasks::default();
    let control = Control::start(Arc::clone(&store), &tasks).await.ok()?;
    let mut life = Life {
        script,
        ledgers,
        store,
        control,
        sessions: Vec::new(),
        left,
        tasks,
        reported: None,
        unanswered: Vec::new(),
    };
    for number in 0..HOSTS {
        let agent = format!("agent-{number}").parse().unwrap();
        let opened = life.control.open_session(crate::support::greeting(&agent)).await;
        life.sessions.push(opened.ok()?.ok()?);
    }
    Some(life)
}

impl Life<'_> {
    fn is_dead(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    async fn task(&self) -> Option<TaskView> {
        let id = self.store.task_ids(1).await.unwrap().pop()?;
        self.store.task(id).await.unwrap()
    }

    /// Until the server is dead or `is_done`; the task as it was left.
    async fn run_until(&mut self, is_done: impl Fn(&TaskView, &Ledgers) -> bool) -> Option<TaskView> {
        if self.task().await.is_none() {
            self.submit().await;
        }
        let begun = Instant::now();
        loop {
            let is_dead = self.is_dead();
            let task = self.task().await;
            if let Some(task) = &task {
                check_bounds(task);
                self.act(task).await;
                self.answer(task.id).await;
            }
            if is_dead || task.as_ref().is_some_and(|task| is_done(task, self.ledgers)) {
                return task;
            }
            assert!(begun.elapsed() < PATIENCE, "{:?} does not end: {task:?}", self.script);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// By an administrator, or by somebody whose rights are taken later.
    async fn submit(&self) {
        let mut submission = restart(self.script.rolling.clone());
        if self.script.withdraw_at.is_some() {
            let subjects = vec![maker()];
            let Ok(permissions) = self.control.permissions(&subjects).await else { return };
            let caller = Caller::local(MAKER);
            submission.caller = Caller { app: String::new(), subjects, permissions, ..caller };
        }
        let _ = self.control.submit(submission).await;
    }

    fn has_begun(&self, index: Option<u32>) -> bool {
        index.is_some_and(|index| self.ledgers.outcomes.contains_key(&index))
    }

    /// Beside the server, which is told of it.
    async fn withdraw(&mut self) {
        for binding in self.store.bindings().await.unwrap() {
            if binding.subject == maker() && self.store.delete_binding(binding.id).await.is_err() {
                return;
            }
        }
        self.control.access_changed();
        self.ledgers.is_withdrawn = true;
    }

    async fn pause(&mut self, task: TaskId) {
        match self.control.pause(&Caller::local("test"), task).await {
            // There may be nothing left to pause.
            Ok(()) | Err(ControlError::TaskState(_)) => self.ledgers.pause_was_answered = true,
            Err(_) => {}
        }
    }

    async fn act(&mut self, task: &TaskView) {
        if self.has_begun(self.script.withdraw_at) && !self.ledgers.is_withdrawn {
            self.withdraw().await;
        }
        if self.has_begun(self.script.pause_at) && !self.ledgers.pause_was_answered {
            return self.pause(task.id).await;
        }
        let caller = Caller::local("test");
        let has_begun = self.has_begun(self.script.cancel_at);
        let is_paused = task.rollout.as_ref().unwrap().state == RolloutState::Paused;
        let act = match (has_begun, is_paused) {
            (true, _) => Act::Cancel,
            (false, true) => self.script.when_paused,
            (false, false) => return,
        };
        match act {
            Act::Resume => _ = self.control.resume(&caller, task.id).await,
            Act::Cancel if task.cancelled_at.is_some() => {}
            // The answer may wait for what a dead store never takes.
            Act::Cancel => {
                let cancel = tokio::time::timeout(Duration::from_secs(1), self.control.cancel(&caller, task.id));
                if let Ok(Ok(true)) = cancel.await {
                    self.ledgers.cancel_was_answered = true;
                }
            }
        }
    }

    /// Whether the people are about to do something, and are quicker than the agent.
    fn is_awaited(&self, index: u32) -> bool {
        let Script { pause_at, withdraw_at, .. } = self.script;
        (*pause_at == Some(index) && !self.ledgers.pause_was_answered)
            || (*withdraw_at == Some(index) && !self.ledgers.is_withdrawn)
    }

    /// The agents begin what they are told to, answer, and say how their processes are.
    async fn answer(&mut self, task: TaskId) {
        for operation in std::mem::take(&mut self.unanswered) {
            if self.is_awaited(operation.index) {
                self.unanswered.push(operation);
                continue;
            }
            self.tell(&self.sessions[operation.index as usize], operation, operation.index).await;
        }
        let reports = self.reported.is_none_or(|at| at.elapsed() > REPORT_PERIOD);
        if reports {
            self.reported = Some(Instant::now());
        }
        for (index, session) in (0..).zip(&self.sessions) {
            let delivered = self.control.take_deliveries(session, 10);
            let cancelled = self.control.take_cancels(session);
            for operation in delivered.iter().map(|delivery| delivery.operation).filter(|it| it.task == task) {
                assert_eq!(operation.index, index, "target n is on host n");
                let end = self.script.ends[index as usize];
                let code = if end == End::Fails { Code::CommandFailed } else { Code::Success };
                self.ledgers
                    .outcomes
                    .entry(index)
                    .or_insert_with(|| Outcome::new(code, Message::foreign("said the agent"), true));
                // The people who cancel are quicker than the agent.
                if self.script.cancel_at == Some(index) {
                    continue;
                }
                if self.is_awaited(index) {
                    self.unanswered.push(operation);
                    continue;
                }
                self.tell(session, operation, index).await;
            }
            for operation in cancelled {
                self.tell(session, operation, index).await;
            }
            let is_running =
                self.ledgers.outcomes.contains_key(&index) && self.script.ends[index as usize] == End::Succeeds;
            if is_running && reports {
                let snapshot =
                    Snapshot { phase: Phase::Running, reported_at: clock::unix_millis() / 1000, ..Snapshot::default() };
                self.control.observed(session, vec![("web/m".parse().unwrap(), snapshot)]).await;
            }
        }
    }

    async fn tell(&self, session: &Session, operation: OperationId, index: u32) {
        let Some(outcome) = self.ledgers.outcomes.get(&index) else { return };
        let _ = self.control.arrived(session, operation, outcome.clone()).await;
    }

    async fn end(self) {
        self.tasks.end(Duration::ZERO).await;
    }
}

/// Never more than allowed are under way, as far as the store knows.
fn check_bounds(task: &TaskView) {
    let rollout = task.rollout.as_ref().unwrap();
    let released = &task.targets[..rollout.released as usize];
    let open = released.iter().filter(|target| target.outcome.is_none()).count();
    assert!(open <= rollout.max_parallel as usize, "{task:?}");
}

/// Runs the script with a server that dies after so many writes, once for each number, and then with one
/// that lives. Returns how many writes the last life took.
async fn survive(fixture: &Path, script: &Script, deaths: &[u64]) -> u64 {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("proctor.db");
    std::fs::copy(fixture, &file).unwrap();
    let mut ledgers = Ledgers::default();
    let never_healthy = script.ends.contains(&End::NeverHealthy);
    let is_done = |task: &TaskView, ledgers: &Ledgers| is_settled(task, ledgers) || (never_healthy && is_waiting(task));
    for writes in deaths {
        let Some(mut life) = live(&file, script, &mut ledgers, *writes).await else { continue };
        life.run_until(is_done).await;
        life.end().await;
    }
    let begun: Vec<u32> = ledgers.outcomes.keys().copied().collect();
    let was_cancelled = ledgers.cancel_was_answered;
    let mut life = live(&file, script, &mut ledgers, NO_DEATH).await.expect("the server starts");
    let stored = life.task().await;
    let task = life.run_until(is_done).await.unwrap();
    if never_healthy {
        life.outlast_another_task().await;
    }
    let task = life.store.task(task.id).await.unwrap().unwrap();
    let used = NO_DEATH - life.left.load(Ordering::Relaxed);
    life.end().await;

    let rollout = task.rollout.clone().unwrap();
    if never_healthy {
        assert!(ledgers.outcomes.len() == 1 && rollout.released == 1, "went on past what was never healthy: {task:?}");
        return used;
    }
    assert!(is_settled(&task, &ledgers), "{deaths:?}: {task:?}");
    if was_cancelled {
        let is_stopped = matches!(rollout.state, RolloutState::Cancelled | RolloutState::Failed);
        assert!(is_stopped, "{deaths:?}: {task:?}");
    }
    let stored_as_cancelled = stored.filter(|task| task.cancelled_at.is_some());
    if let Some(cancelled) = stored_as_cancelled {
        let released = cancelled.rollout.unwrap().released;
        let late: Vec<&u32> = ledgers.outcomes.keys().filter(|it| !begun.contains(it) && **it >= released).collect();
        assert!(late.is_empty(), "{deaths:?}: a cancelled rollout went on with {late:?}");
    }
    if let Some(index) = script.withdraw_at.filter(|_| ledgers.is_withdrawn && rollout.max_parallel == 1) {
        let late: Vec<&u32> = ledgers.outcomes.keys().filter(|begun| **begun > index).collect();
        assert!(
            late.is_empty(),
            "{deaths:?}: went on with {late:?} after the rights of who made it were taken: {task:?}"
        );
    }
    for (index, target) in (0..).zip(&task.targets) {
        let code = target.outcome.as_ref().map(|outcome| outcome.code);
        let is_untouched = matches!(code, None | Some(Code::Skipped | Code::Cancelled));
        assert!(is_untouched || ledgers.outcomes.contains_key(&index), "{deaths:?}: {index} never ran: {task:?}");
    }
    if rollout.state == RolloutState::Done {
        assert!(codes(&task).iter().all(|code| !matches!(code, Some(Code::Skipped | Code::Cancelled))), "{task:?}");
    }
    used
}

/// The rollout is over and so is every row. Only what was released and cancelled before its agent heard
/// of it may still be open: after a restart the server cannot know that, and waits out the row's time.
fn is_settled(task: &TaskView, ledgers: &Ledgers) -> bool {
    let rollout = task.rollout.as_ref().unwrap();
    let unheard =
        |index: u32| task.cancelled_at.is_some() && index < rollout.released && !ledgers.outcomes.contains_key(&index);
    let is_over = (0..).zip(&task.targets).all(|(index, target)| target.outcome.is_some() || unheard(index));
    is_over && !rollout.state.is_under_way()
}

/// The first target has its outcome.
fn is_waiting(task: &TaskView) -> bool {
    task.targets[0].outcome.is_some()
}

impl Life<'_> {
    /// Another rolling task runs to its end: by then every open one was looked at several times.
    async fn outlast_another_task(&mut self) {
        let sessions = std::mem::take(&mut self.sessions);
        let id = self.control.submit(restart(rolling(1, 0, 0))).await.unwrap().task;
        let patience = async {
            loop {
                for session in &sessions {
                    for delivery in self.control.take_deliveries(session, 10) {
                        if delivery.operation.task != id {
                            self.ledgers.outcomes.insert(delivery.operation.index, Outcome::success(true));
                        }
                        let _ = self.control.arrived(session, delivery.operation, Outcome::success(true)).await;
                    }
                }
                if is_over(&self.store.task(id).await.unwrap().unwrap()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, patience).await.expect("the other task ends");
    }
}

/// Lets the server die after every number of writes that the script takes.
async fn survive_every_death(script: Script) {
    let (_directory, file) = fixture().await;
    let writes = survive(&file, &script, &[]).await;
    assert!(writes >= 10, "{writes} writes: the script has run");
    let mut lives = JoinSet::new();
    for death in 0..writes {
        if lives.len() >= AT_ONCE {
            lives.join_next().await.unwrap().unwrap();
        }
        let (file, script) = (file.clone(), script.clone());
        lives.spawn(async move { survive(&file, &script, &[death]).await });
    }
    while let Some(ended) = lives.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_ends_well_whenever_the_server_dies() {
    survive_every_death(script(2, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_skips_the_rest_whenever_the_server_dies() {
    survive_every_death(script(1, 0, 0).ending(1, End::Fails)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_is_resumed_whenever_the_server_dies() {
    survive_every_death(script(3, 0, 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_rollout_is_cancelled_whenever_the_server_dies() {
    survive_every_death(Script { when_paused: Act::Cancel, ..script(1, 0, 2) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_rollout_is_cancelled_whenever_the_server_dies() {
    survive_every_death(Script { cancel_at: Some(1), ..script(2, 0, 0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_rollout_is_paused_and_resumed_whenever_the_server_dies() {
    survive_every_death(Script { pause_at: Some(1), ..script(1, 0, 0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_stops_with_the_rights_of_its_maker_whenever_the_server_dies() {
    survive_every_death(Script { withdraw_at: Some(1), ..script(1, 0, 0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_rollout_stops_with_the_rights_of_its_maker_whenever_the_server_dies() {
    survive_every_death(Script { pause_at: Some(0), withdraw_at: Some(0), ..script(1, 0, 0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_waits_for_health_whenever_the_server_dies() {
    survive_every_death(script(2, 0, 0).waiting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_never_healthy_does_not_count_as_healthy_whenever_the_server_dies() {
    survive_every_death(script(1, 0, 0).waiting().ending(0, End::NeverHealthy)).await;
}

fn scripts() -> impl Strategy<Value = Script> {
    let end = prop::sample::select(vec![End::Fails, End::Succeeds, End::Succeeds]);
    let act = prop::sample::select(vec![Act::Resume, Act::Resume, Act::Cancel]);
    let at = || prop::option::of(0..HOSTS as u32);
    (1..4u32, 0..3u32, 0..4u32, prop::array::uniform4(end), act, at(), at(), at()).prop_map(
        |(max_parallel, max_failures, canary, ends, when_paused, cancel_at, pause_at, withdraw_at)| Script {
            ends,
            when_paused,
            cancel_at,
            pause_at,
            withdraw_at,
            ..script(max_parallel, max_failures, canary)
        },
    )
}

proptest! {
    // A case is three lives of a server with a file each; this many take some seconds.
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_rollout_ends_well_though_the_server_dies_twice(
        script in scripts(),
        deaths in (4..40u64, 4..30u64),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (_directory, file) = fixture().await;
            survive(&file, &script, &[deaths.0, deaths.1]).await;
        });
        runtime.shutdown_background();
    }
}
