//! Upgrades of this agent over the link: order, fetch, check, trial.
//!
//! Promised: only an order signed for the session is obeyed, and only if the host's policy allows it, it is for this
//! architecture, and it does not downgrade unless it says so; the policy is checked again before the new program
//! runs. The new program is fetched in chunks that the agent requests one at a time, so that a slow link stays in
//! order and memory is bounded; an interruption costs one chunk. What arrived is compared with the order before any
//! of it runs. A repeated order is answered but not carried out again. The result is reported by an event, and on
//! every session until the next upgrade.
//! Absent: what the driver does, and the trial itself (`trial`).
//!
//! Start at [`Upgrader::run`].

mod program;
mod record;
#[cfg(test)]
mod tests;
mod trial;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proctor_model::{AgentVersion, EventKind, Message, UpgradeStep, messages};
use proctor_supervise::Time;
use proctor_wire::{BUILD_PART_BYTES_MAX, FromAgent, UpgradeOrder};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::driver::{Inbox, Input};
use crate::policy::PolicyFile;
use crate::spool::Draft;
pub use program::{CHECK_COMMAND, ProgramCheck};
use program::{Program, Unstaged};
use record::{Record, Records, Sign};
pub(crate) use trial::upgrade_on_trial;
pub use trial::{Startup, TRIAL_COMMAND, Trial, WATCH_COMMAND, become_trial};

/// What the link may have for the upgrader; what does not fit is asked for again.
const TOLD_MAX: usize = 16;
/// A session of a program on trial has to last this long, or half of the health deadline where that is less.
const PROVE_AFTER_MAX: Duration = Duration::from_secs(30);
const PROVE_POLL: Duration = Duration::from_millis(50);
/// How often the old version is shown, at most, that the driver turns; it waits six times as long.
const PULSE_PERIOD: Duration = Duration::from_secs(5);
/// After a sign that could not be written.
const SHOW_RETRY: Duration = Duration::from_secs(1);
/// A health deadline outside is not what anybody means.
const DEADLINE_MIN: Duration = Duration::from_secs(10);
const DEADLINE_MAX: Duration = Duration::from_secs(3600);
/// The first part is small: nobody knows the link yet.
const PART_BYTES_FIRST: u32 = 16 * 1024;
const PART_BYTES_MIN: u32 = 4 * 1024;
#[allow(clippy::cast_possible_truncation, reason = "it is small")]
const PART_BYTES_MAX: u32 = BUILD_PART_BYTES_MAX as u32;
/// A part that took less may be larger next time, one that took more must be smaller: commands wait behind it.
const PART_QUICK: Duration = Duration::from_millis(250);
const PART_SLOW: Duration = Duration::from_secs(1);
/// A part that did not come is asked for again.
const PART_MAX: Duration = Duration::from_secs(60);
const FETCH_MAX: Duration = Duration::from_secs(2 * 3600);
/// After so many trials that a crash of the host or of everything cut short, there is no other one.
const TRIALS_MAX: u32 = 2;

/// What the link has for the upgrader.
#[derive(Debug)]
pub(crate) enum Told {
    Order { order: UpgradeOrder, is_signed: bool },
    Part { upgrade: Uuid, offset: u64, bytes: Vec<u8> },
}

/// Hands things to the upgrader, and never waits.
#[derive(Debug)]
pub(crate) struct UpgradeInbox {
    told: mpsc::Sender<Told>,
    link: watch::Sender<Option<mpsc::Sender<FromAgent>>>,
}

/// What the upgrader hears.
#[derive(Debug)]
pub(crate) struct UpgradeOutbox {
    told: mpsc::Receiver<Told>,
    link: watch::Receiver<Option<mpsc::Sender<FromAgent>>>,
}

impl UpgradeInbox {
    pub(crate) fn tell(&self, told: Told) {
        if self.told.try_send(told).is_err() {
            tracing::debug!("the upgrader is busy");
        }
    }

    /// A session begins, or has ended.
    pub(crate) fn connect(&self, link: Option<mpsc::Sender<FromAgent>>) {
        self.link.send_replace(link);
    }
}

pub(crate) fn inbox() -> (UpgradeInbox, UpgradeOutbox) {
    let (sender, told) = mpsc::channel(TOLD_MAX);
    let (link, sessions) = watch::channel(None);
    (UpgradeInbox { told: sender, link }, UpgradeOutbox { told, link: sessions })
}

impl UpgradeOutbox {
    /// The next session, or the end of one; never returns where there will be none.
    async fn session(link: &mut watch::Receiver<Option<mpsc::Sender<FromAgent>>>) -> Option<mpsc::Sender<FromAgent>> {
        if link.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        link.borrow_and_update().clone()
    }

    async fn told(told: &mut mpsc::Receiver<Told>) -> Told {
        match told.recv().await {
            Some(told) => told,
            None => std::future::pending().await,
        }
    }
}

/// A build on its way.
struct Fetch {
    upgrade: Uuid,
    file: Arc<File>,
    offset: u64,
    part_bytes: u32,
    asked_at: Option<Instant>,
    begun: Instant,
    /// It began with what an earlier life of the agent left.
    is_resumed: bool,
}

/// Where the agent's program is, or why it cannot be replaced.
type FindProgram = Arc<dyn Fn() -> Result<Program, Message> + Send + Sync>;

pub(crate) struct Upgrader {
    pub(crate) records: Records,
    pub(crate) policy: Arc<PolicyFile>,
    pub(crate) driver: Inbox,
    /// Changes with every turn of the driver.
    pub(crate) turns: Arc<AtomicU64>,
    pub(crate) now: Box<dyn Fn() -> Time + Send + Sync>,
    /// The agent is a program of its own.
    pub(crate) is_program: bool,
    find_program: FindProgram,
    /// The upgrade that this program is on trial for.
    trial_of: Option<Uuid>,
    record: Option<Record>,
    fetch: Option<Fetch>,
    link: Option<mpsc::Sender<FromAgent>>,
}

impl Upgrader {
    pub(crate) fn new(
        state_dir: &Path,
        policy: Arc<PolicyFile>,
        driver: Inbox,
        turns: Arc<AtomicU64>,
        now: Box<dyn Fn() -> Time + Send + Sync>,
        is_program: bool,
    ) -> Self {
        let records = Records::new(state_dir);
        let record = records.load();
        let find_program: FindProgram = Arc::new(Program::ours);
        let (trial_of, fetch, link) = (upgrade_on_trial(), None, None);
        Self { records, policy, driver, turns, now, is_program, find_program, trial_of, record, fetch, link }
    }

    /// Returns when a new program is ready for its trial.
    pub(crate) async fn run(mut self, mut outbox: UpgradeOutbox) -> Trial {
        // Also where it cannot read the record of the old one: it must not take itself for the agent of this host.
        if let Some(upgrade) = self.trial_of {
            self.prove(upgrade, &mut outbox).await;
        }
        self.take_up().await;
        loop {
            let asked_at = self.fetch.as_ref().and_then(|fetch| fetch.asked_at);
            let wait = asked_at.map_or(PART_MAX, |at| (at + PART_MAX).saturating_duration_since(Instant::now()));
            let is_whole = tokio::select! {
                told = UpgradeOutbox::told(&mut outbox.told) => self.hear(told).await,
                () = tokio::time::sleep(wait), if self.fetch.is_some() => {
                    self.ask_again().await;
                    false
                }
                link = UpgradeOutbox::session(&mut outbox.link) => {
                    self.link = link;
                    self.report();
                    self.ask();
                    false
                }
            };
            if is_whole && let Some(trial) = self.trial().await {
                return trial;
            }
        }
    }

    /// Shows that this program works. From then on it waits for its end: the old one watches.
    async fn prove(&mut self, upgrade: Uuid, outbox: &mut UpgradeOutbox) {
        let record = self.record.as_ref().filter(|record| record.upgrade == upgrade);
        let deadline = record.map_or(DEADLINE_MAX, |record| Duration::from_secs(record.health_deadline_secs));
        let mut proof = Proof { upgrade, lasting: prove_after(deadline), session: None, shown: None, beaten: None };
        loop {
            tokio::select! {
                told = UpgradeOutbox::told(&mut outbox.told) => match told {
                    Told::Order { .. } => self.report(),
                    Told::Part { .. } => {}
                },
                link = UpgradeOutbox::session(&mut outbox.link) => {
                    proof.session = link.is_some().then(|| (Instant::now(), self.turns.load(Ordering::Relaxed)));
                    self.link = link;
                    self.report();
                }
                () = tokio::time::sleep(PROVE_POLL) => {
                    if let Err(error) = proof.show(&self.records, self.turns.load(Ordering::Relaxed)).await {
                        tracing::error!(%error, "cannot write upgrade heartbeat");
                        tokio::time::sleep(SHOW_RETRY).await;
                    }
                }
            }
        }
    }

    /// What an earlier program left.
    async fn take_up(&mut self) {
        let Some(record) = self.record.clone() else { return };
        if record.step == UpgradeStep::Trying {
            let sha256 = record.sha256.clone();
            let is_new = blocking(move || program::is_running(&sha256)).await.unwrap_or(false);
            let record = if is_new {
                Record { step: UpgradeStep::Done, ..record }
            } else if record.trials >= TRIALS_MAX {
                let reason = messages::upgrade_interrupted(record.trials);
                record.failed(&reason)
            } else {
                Record { step: UpgradeStep::Fetching, ..record } // the server orders it again
            };
            self.keep(record);
        }
        let is_over = self.record.as_ref().is_some_and(Record::is_over);
        if is_over && let Ok(program) = (self.find_program)() {
            program.clear();
        }
        self.tell().await;
    }

    fn keep(&mut self, record: Record) {
        if let Err(error) = self.records.save(&record) {
            tracing::error!(%error, "cannot record the upgrade");
        }
        self.record = Some(record);
    }

    /// How it ended, by an event; once.
    async fn tell(&mut self) {
        let Some(record) = self.record.clone().filter(|record| record.is_over() && !record.told) else { return };
        let (from, version) = (&record.from, &record.version);
        let draft = if record.step == UpgradeStep::Done {
            Draft::new(EventKind::AgentUpgraded, messages::agent_was_upgraded(from, version))
        } else {
            let content = messages::agent_was_not_upgraded(version, from, record.message());
            Draft::new(EventKind::AgentUpgradeFailed, content).detail("reason", &record.reason)
        };
        let draft = draft.detail("from", from).detail("version", version).detail("upgrade", record.upgrade);
        if self.driver.send(Input::Tell(Box::new(draft))).await.is_ok() {
            self.keep(Record { told: true, ..record });
        }
    }

    fn report(&self) {
        let (Some(link), Some(record)) = (&self.link, &self.record) else { return };
        let report = FromAgent::UpgradeReport { upgrade: record.upgrade, step: record.step, reason: record.message() };
        let _ = link.try_send(report);
    }

    /// Whether the whole build is here.
    async fn hear(&mut self, told: Told) -> bool {
        match told {
            Told::Order { order, is_signed } => self.ordered(order, is_signed).await,
            Told::Part { upgrade, offset, bytes } => self.arrived(upgrade, offset, bytes).await,
        }
    }

    async fn ordered(&mut self, order: UpgradeOrder, is_signed: bool) -> bool {
        let known = self.record.clone().filter(|record| record.upgrade == order.upgrade);
        if known.as_ref().is_some_and(Record::is_over)
            || self.fetch.as_ref().is_some_and(|f| f.upgrade == order.upgrade)
        {
            self.report();
            return false;
        }
        let sha256 = proctor_pki::hex(&order.sha256);
        // What is there of the same build is of use, whichever order it was for.
        let is_same_build = self.record.as_ref().is_some_and(|record| record.sha256 == sha256);
        let record = Record {
            upgrade: order.upgrade,
            version: order.version.clone(),
            from: crate::version().to_owned(),
            sha256,
            size: order.size,
            health_deadline_secs: order.health_deadline.as_secs(),
            step: UpgradeStep::Fetching,
            trials: known.map_or(0, |known| known.trials),
            reason: String::new(),
            phrase: None,
            told: false,
        };
        tracing::info!(version = order.version, upgrade = %order.upgrade, "upgrade ordered by the server");
        self.fetch = None;
        match self.begin(&order, &record, is_signed, is_same_build).await {
            Ok(fetch) => {
                let is_whole = fetch.offset == order.size;
                self.fetch = Some(fetch);
                self.keep(record);
                self.report();
                self.ask();
                is_whole
            }
            Err(reason) => {
                self.fail(record, &reason).await;
                false
            }
        }
    }

    async fn begin(
        &self,
        order: &UpgradeOrder,
        record: &Record,
        is_signed: bool,
        is_same_build: bool,
    ) -> Result<Fetch, Message> {
        if !is_signed {
            return Err(messages::upgrade_unsigned());
        }
        self.admit(order)?;
        let program = (self.find_program)()?;
        let (part, staged) = (program.part(), program.staged());
        let (size, sha256) = (order.size, record.sha256.clone());
        let opened = blocking(move || {
            // A trial that was cut short has its program already.
            if is_same_build && program::has_digest(&staged, &sha256).unwrap_or(false) {
                std::fs::rename(&staged, &part)?;
            }
            program::open_part(&part, is_same_build, size)
        });
        let kept = |error: std::io::Error| messages::upgrade_not_kept(program.part().display(), error);
        let (file, offset) = opened.await.and_then(|opened| opened).map_err(kept)?;
        Ok(Fetch {
            upgrade: order.upgrade,
            file: Arc::new(file),
            offset,
            part_bytes: PART_BYTES_FIRST,
            asked_at: None,
            begun: Instant::now(),
            is_resumed: offset > 0,
        })
    }

    /// Whether the order may be obeyed here.
    fn admit(&self, order: &UpgradeOrder) -> Result<(), Message> {
        if !self.is_program {
            return Err(messages::upgrade_embedded());
        }
        self.check_policy()?;
        let ours = std::env::consts::ARCH;
        if order.arch != ours {
            return Err(messages::upgrade_other_arch(&order.arch, ours));
        }
        let wanted: AgentVersion = order.version.parse().map_err(messages::upgrade_bad_order)?;
        if !(1..=program::SIZE_MAX).contains(&order.size) {
            return Err(messages::upgrade_bad_order(format!("a build of {} bytes", order.size)));
        }
        if !(DEADLINE_MIN..=DEADLINE_MAX).contains(&order.health_deadline) {
            return Err(messages::upgrade_bad_order(format!("a health deadline of {:?}", order.health_deadline)));
        }
        if order.allow_downgrade { Ok(()) } else { check_newer(crate::version(), &wanted) }
    }

    /// Whether the owner of the host allows it, now.
    fn check_policy(&self) -> Result<(), Message> {
        let policy = self.policy.current((self.now)());
        let file = policy.as_ref().and_then(|policy| policy.forbids_upgrades());
        file.map_or(Ok(()), |file| Err(messages::upgrade_by_policy(file.display())))
    }

    /// Asks for the next part, if none was asked for on this session.
    fn ask(&mut self) {
        let (Some(fetch), Some(link), Some(record)) = (&mut self.fetch, &self.link, &self.record) else { return };
        let left = record.size.saturating_sub(fetch.offset);
        let length = u32::try_from(left).unwrap_or(u32::MAX).min(fetch.part_bytes);
        if length == 0 {
            return;
        }
        fetch.asked_at = Some(Instant::now());
        let _ = link.try_send(FromAgent::FetchBuild { upgrade: fetch.upgrade, offset: fetch.offset, length });
    }

    /// The part did not come, or there is nobody to ask.
    async fn ask_again(&mut self) {
        let Some(fetch) = &mut self.fetch else { return };
        if fetch.begun.elapsed() >= FETCH_MAX {
            return self.fail_expired().await;
        }
        // Without a session, too: the next look is due after the same time.
        fetch.asked_at = Some(Instant::now());
        if self.link.is_some() {
            fetch.part_bytes = (fetch.part_bytes / 2).max(PART_BYTES_MIN);
        }
        self.ask();
    }

    async fn fail_expired(&mut self) {
        self.fail_fetch(&messages::upgrade_fetch_expired(FETCH_MAX.as_secs() / 60)).await;
    }

    async fn arrived(&mut self, upgrade: Uuid, offset: u64, bytes: Vec<u8>) -> bool {
        let Some(size) = self.record.as_ref().map(|record| record.size) else { return false };
        let Some(fetch) = self.fetch.as_mut().filter(|fetch| fetch.upgrade == upgrade && fetch.offset == offset) else {
            return false; // asked for twice
        };
        if fetch.begun.elapsed() >= FETCH_MAX {
            self.fail_expired().await;
            return false;
        }
        if bytes.is_empty() {
            self.fail_fetch(&messages::upgrade_not_served()).await;
            return false;
        }
        let took = fetch.asked_at.take().map_or(PART_SLOW, |at| at.elapsed());
        if took < PART_QUICK {
            fetch.part_bytes = (fetch.part_bytes * 2).min(PART_BYTES_MAX);
        } else if took > PART_SLOW {
            fetch.part_bytes = (fetch.part_bytes / 2).max(PART_BYTES_MIN);
        }
        let (file, length) = (fetch.file.clone(), bytes.len() as u64);
        if offset + length > size {
            self.fail_fetch(&messages::upgrade_other_bytes()).await;
            return false;
        }
        fetch.offset += length;
        let is_whole = fetch.offset == size;
        if let Err(error) = blocking(move || program::append(&file, &bytes)).await.and_then(|written| written) {
            let path = (self.find_program)().map(|program| program.part().display().to_string()).unwrap_or_default();
            self.fail_fetch(&messages::upgrade_not_kept(path, error)).await;
            return false;
        }
        self.ask();
        is_whole
    }

    async fn fail_fetch(&mut self, reason: &Message) {
        if let Some(record) = self.record.clone() {
            self.fail(record, reason).await;
        }
    }

    async fn fail(&mut self, record: Record, reason: &Message) {
        tracing::error!(version = record.version, upgrade = %record.upgrade, %reason, "upgrade failed");
        self.fetch = None;
        if let Ok(program) = (self.find_program)() {
            program.clear();
        }
        self.keep(record.failed(reason));
        self.report();
        self.tell().await;
    }

    /// The build is here: checks it, and records that its trial begins.
    async fn trial(&mut self) -> Option<Trial> {
        // Its file is closed now: what is open for writing cannot be run.
        let Fetch { begun: fetch_begun, is_resumed, .. } = self.fetch.take()?;
        let record = self.record.clone()?;
        // The fetch may have taken hours.
        if let Err(reason) = self.check_policy() {
            self.fail(record, &reason).await;
            return None;
        }
        let (find_program, sha256) = (self.find_program.clone(), record.sha256.clone());
        let staged = blocking(move || {
            let program = find_program()?;
            program.stage(&sha256)?;
            Ok::<_, Unstaged>(program)
        });
        let checked = match staged.await.unwrap_or_else(|error| Err(messages::upgrade_check_failed(error).into())) {
            Err(Unstaged::OtherBytes) if is_resumed => {
                self.restart_fetch(fetch_begun, record).await;
                return None;
            }
            Err(unstaged) => Err(unstaged.into_reason()),
            Ok(program) => {
                let (staged, version) = (program.staged(), record.version.clone());
                let checked = blocking(move || program::check(&staged, &version)).await;
                checked.unwrap_or_else(|error| Err(messages::upgrade_check_failed(error))).map(|()| program)
            }
        };
        let program = match checked {
            Ok(program) => program,
            Err(reason) => {
                self.fail(record, &reason).await;
                return None;
            }
        };
        let begun = Record { step: UpgradeStep::Trying, trials: record.trials + 1, ..record.clone() };
        // Without the record nobody would know how often it was tried.
        if let Err(error) = self.records.save(&begun) {
            let reason = messages::upgrade_not_started(error);
            self.fail(record, &reason).await;
            return None;
        }
        self.record = Some(begun.clone());
        self.report();
        Some(Trial { records: self.records.clone(), record: begun, program })
    }

    /// What an earlier life of the agent left was not what it had written, as after a power failure: once more, from the
    /// beginning, in what is left of the time.
    async fn restart_fetch(&mut self, begun: Instant, record: Record) {
        tracing::warn!(upgrade = %record.upgrade, "partial download corrupt, fetching again");
        let (find_program, size) = (self.find_program.clone(), record.size);
        let opened = blocking(move || {
            let part = find_program()?.part();
            program::open_part(&part, false, size).map_err(|error| messages::upgrade_not_kept(part.display(), error))
        });
        match opened.await.unwrap_or_else(|error| Err(messages::upgrade_check_failed(error))) {
            Ok((file, offset)) => {
                self.fetch = Some(Fetch {
                    upgrade: record.upgrade,
                    file: Arc::new(file),
                    offset,
                    part_bytes: PART_BYTES_FIRST,
                    asked_at: None,
                    begun,
                    is_resumed: false,
                });
                self.ask();
            }
            Err(reason) => self.fail(record, &reason).await,
        }
    }
}

/// Without a version of our own nobody knows what is newer.
fn check_newer(ours: &str, wanted: &AgentVersion) -> Result<(), Message> {
    let known: AgentVersion = ours.parse().map_err(messages::upgrade_bad_order)?;
    if *wanted < known { Err(messages::upgrade_would_downgrade(ours, wanted)) } else { Ok(()) }
}

/// What a program on trial has shown.
struct Proof {
    upgrade: Uuid,
    lasting: Duration,
    /// When it began, and how often the driver had turned.
    session: Option<(Instant, u64)>,
    shown: Option<Sign>,
    /// The turns of the driver that were shown last, and when.
    beaten: Option<(u64, Instant)>,
}

impl Proof {
    /// Shows what is new. What cannot be written counts as not shown.
    async fn show(&mut self, records: &Records, turns: u64) -> std::io::Result<()> {
        let (upgrade, records) = (self.upgrade, records.clone());
        let is_lasting = self.session.is_some_and(|(since, at)| since.elapsed() >= self.lasting && turns != at);
        let sign = (turns > 0).then_some(if is_lasting { Sign::Proved } else { Sign::Started });
        if let Some(sign) = sign.filter(|sign| self.shown.is_none_or(|shown| shown < *sign)) {
            let records = records.clone();
            blocking(move || records.show(upgrade, sign)).await??;
            self.shown = Some(sign);
        }
        if self.beaten.is_none_or(|(shown, at)| shown != turns && at.elapsed() >= PULSE_PERIOD) {
            blocking(move || records.beat(upgrade, turns)).await??;
            self.beaten = Some((turns, Instant::now()));
        }
        Ok(())
    }
}

/// How long a session has to last that proves a program which has this long in all.
fn prove_after(deadline: Duration) -> Duration {
    PROVE_AFTER_MAX.min(deadline / 2)
}

/// On a thread that may wait for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)
}
