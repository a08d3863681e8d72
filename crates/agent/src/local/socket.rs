//! The server side of the control socket, in the agent.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_runtime::{Backoff, Tasks};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};

use super::{AgentView, LocalAnswer, LocalCall, LocalRequest, SOCKET};
use crate::driver::{Inbox, Input};
use crate::identity::Identity;
use crate::metrics::AgentMetrics;

/// Users at a terminal, and a script or two.
const CONNECTIONS_MAX: usize = 16;
/// Operations may take long. The other connections are left for questions, which do not.
const OPERATIONS_MAX: usize = 8;
const REQUEST_BYTES_MAX: u64 = 16 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that commands of a process may take, and more; the operation itself continues.
const OPERATION_MAX: Duration = Duration::from_secs(2 * 3600);
const NO_CLOCK: i64 = i64::MIN;

/// What is known about the agent besides its processes.
#[derive(Debug)]
pub(crate) struct About {
    server: String,
    tracking: String,
    identity: Mutex<Option<(String, String)>>,
    policy: Arc<crate::policy::PolicyFile>,
    connected: AtomicBool,
    clock_ahead_ms: AtomicI64,
    pub(crate) metrics: Arc<AgentMetrics>,
}

impl About {
    pub(crate) fn new(
        server: String,
        tracking: String,
        policy: Arc<crate::policy::PolicyFile>,
        metrics: Arc<AgentMetrics>,
    ) -> Self {
        let (connected, clock_ahead_ms) = (AtomicBool::new(false), AtomicI64::new(NO_CLOCK));
        Self { server, tracking, identity: Mutex::default(), policy, connected, clock_ahead_ms, metrics }
    }

    pub(crate) fn enrolled(&self, identity: &Identity) {
        *self.identity.lock() = Some((identity.agent.to_string(), identity.host.to_string()));
    }

    pub(crate) fn connected(&self, clock_ahead_ms: i64) {
        self.clock_ahead_ms.store(clock_ahead_ms, Ordering::Relaxed);
        self.connected.store(true, Ordering::Relaxed);
        self.metrics.session_opened();
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) fn disconnected(&self) {
        self.connected.store(false, Ordering::Relaxed);
        self.metrics.session_closed();
    }

    fn view(&self) -> AgentView {
        let identity = self.identity.lock().clone();
        let clock = self.clock_ahead_ms.load(Ordering::Relaxed);
        AgentView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            agent: identity.as_ref().map(|(agent, _)| agent.clone()),
            host: identity.map(|(_, host)| host),
            server: self.server.clone(),
            connected: self.connected.load(Ordering::Relaxed),
            clock_ahead_ms: (clock != NO_CLOCK).then_some(clock),
            tracking: self.tracking.clone(),
            policy: self.policy.in_force().map(|path| path.display().to_string()),
        }
    }
}

/// Listens until `tasks` end. Without the socket the agent still does its work.
pub(crate) fn serve(state_dir: &Path, inbox: Inbox, about: Arc<About>, tasks: &Tasks) {
    match bind(state_dir) {
        Ok(listener) => {
            let of_tasks = tasks.clone();
            tasks.spawn("control socket", accept(listener, inbox, about, of_tasks));
        }
        Err(error) => {
            let path = state_dir.join(SOCKET);
            tracing::warn!(path = %path.display(), %error, "no control socket: proctor-agent ctl does not work");
        }
    }
}

/// Private before it gets its name. An existing socket was left by a dead agent: the directory is locked.
fn bind(state_dir: &Path) -> std::io::Result<UnixListener> {
    let (path, new) = (state_dir.join(SOCKET), state_dir.join("control.new"));
    for old in [&path, &new] {
        match std::fs::remove_file(old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let (_dir, short) = short(&new)?;
    let listener = UnixListener::bind(short)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&new, &path)?;
    Ok(listener)
}

/// A name of the socket that the kernel can take (108 bytes), good while the directory is open.
pub(super) fn short(path: &Path) -> std::io::Result<(Option<std::fs::File>, PathBuf)> {
    const PATH_BYTES_MAX: usize = 100;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok((None, path.to_owned())) };
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok((None, path.to_owned()));
    }
    let dir = std::fs::File::open(dir)?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&dir);
    Ok((Some(dir), Path::new("/proc/self/fd").join(number.to_string()).join(name)))
}

async fn accept(listener: UnixListener, inbox: Inbox, about: Arc<About>, tasks: Tasks) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let operations = Arc::new(Semaphore::new(OPERATIONS_MAX));
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control connection");
                tokio::time::sleep(backoff.next_wait()).await;
                continue;
            }
        };
        backoff.reset();
        // Whoever waits here has mode 0600 on their side: the agent's own user.
        let Ok(permit) = slots.clone().acquire_owned().await else { return };
        let (inbox, about, operations) = (inbox.clone(), about.clone(), operations.clone());
        tasks.spawn("control connection", async move {
            let _permit = permit;
            if let Err(error) = talk(stream, &inbox, &about, &operations).await {
                tracing::debug!(%error, "control connection ended");
            }
        });
    }
}

async fn talk(mut stream: UnixStream, inbox: &Inbox, about: &About, operations: &Semaphore) -> std::io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let answer = match request(&mut stream, uid).await {
        Ok(request) => {
            let mut gone = [0; 1];
            tokio::select! {
                answer = answered(request, uid, inbox, about, operations) => answer,
                // Nobody waits any more; what was begun continues.
                _ = stream.read(&mut gone) => return Ok(()),
            }
        }
        Err(reason) => LocalAnswer::Refused { reason },
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    let sent = async {
        stream.write_all(&line).await?;
        stream.shutdown().await
    };
    tokio::time::timeout(ANSWER_TIMEOUT, sent).await?
}

async fn request(stream: &mut UnixStream, uid: u32) -> Result<LocalRequest, String> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream.take(REQUEST_BYTES_MAX));
    let read = tokio::time::timeout(REQUEST_TIMEOUT, reader.read_until(b'\n', &mut line)).await;
    // After it: an answer is lost where something sent is unread.
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        tracing::warn!(uid, "control connection of another user refused");
        return Err(format!("uid {uid} may not control this agent: only root may"));
    }
    match read {
        Err(_) => Err(format!("no request within {} s", REQUEST_TIMEOUT.as_secs())),
        Ok(Err(error)) => Err(format!("cannot read the request: {error}")),
        Ok(Ok(_)) if !line.ends_with(b"\n") => {
            Err(format!("the request is not a line of at most {REQUEST_BYTES_MAX} bytes"))
        }
        Ok(Ok(_)) => serde_json::from_slice(&line).map_err(|error| format!("the request cannot be read: {error}")),
    }
}

async fn answered(
    request: LocalRequest,
    uid: u32,
    inbox: &Inbox,
    about: &About,
    operations: &Semaphore,
) -> LocalAnswer {
    let refused = |reason: &str| LocalAnswer::Refused { reason: reason.to_owned() };
    if request == LocalRequest::About {
        return LocalAnswer::About(about.view());
    }
    let permit = request.may_wait().then(|| operations.try_acquire());
    let Ok(_permit) = permit.transpose() else {
        return refused(&format!("{OPERATIONS_MAX} local operations are in progress: try again later"));
    };
    let (answer, answered) = oneshot::channel();
    if inbox.send(Input::Local(LocalCall { request, uid, answer })).await.is_err() {
        return refused("the agent is shutting down");
    }
    match tokio::time::timeout(OPERATION_MAX, answered).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => refused("the agent is shutting down"),
        Err(_) => refused("the operation is still under way: see `proctor-agent ctl ledger`"),
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::{OperationKind, Outcome};

    use tokio::task::JoinSet;

    use super::*;
    use crate::driver;
    use crate::local::{LocalError, ask};
    use crate::policy::PolicyFile;

    #[tokio::test]
    async fn questions_are_answered_while_as_many_operations_as_may_be_are_under_way() {
        let directory = tempfile::tempdir().unwrap();
        let (tasks, (inbox, mut inputs)) = (Tasks::default(), driver::inbox());
        let policy = Arc::new(PolicyFile::open(None).unwrap());
        let about = Arc::new(About::new(String::new(), String::new(), policy, Arc::default()));
        serve(directory.path(), inbox, about, &tasks);
        let start = || LocalRequest::Operate { process: "ns/p".parse().unwrap(), operation: OperationKind::Start };
        let mut asked = JoinSet::new();
        let mut asks = |request: LocalRequest| {
            let path = directory.path().to_owned();
            asked.spawn_blocking(move || ask(&path, &request));
        };
        let mut under_way = Vec::new();
        for _ in 0..OPERATIONS_MAX {
            asks(start());
            let Some(Input::Local(call)) = inputs.recv().await else { panic!("an operation") };
            under_way.push(call);
        }

        let (path, request) = (directory.path().to_owned(), start());
        let refused = tokio::task::spawn_blocking(move || ask(&path, &request)).await.unwrap();
        asks(LocalRequest::List);
        let Some(Input::Local(listing)) = inputs.recv().await else { panic!("a question") };
        let stop = || LocalRequest::Operate { process: "ns/p".parse().unwrap(), operation: OperationKind::Stop };
        asks(stop());
        let Some(Input::Local(stopping)) = inputs.recv().await else { panic!("a stop") };

        assert!(
            matches!(&refused, Err(LocalError::Refused(reason)) if reason.contains("8 local operations")),
            "{refused:?}"
        );
        assert_eq!(listing.request, LocalRequest::List);
        assert_eq!(stopping.request, stop());
        under_way.extend([listing, stopping]);
        for call in under_way {
            call.answer.send(LocalAnswer::Outcome { outcome: Box::new(Outcome::success(true)) }).unwrap();
        }
        while let Some(answer) = asked.join_next().await {
            assert!(matches!(answer, Ok(Ok(LocalAnswer::Outcome { .. }))), "{answer:?}");
        }
        let (path, request) = (directory.path().to_owned(), start());
        asked.spawn_blocking(move || ask(&path, &request));
        let Some(Input::Local(again)) = inputs.recv().await else { panic!("there is room again") };
        drop(again);
        assert!(matches!(asked.join_next().await, Some(Ok(Err(LocalError::Refused(_))))));
        tasks.shutdown().cancel();
    }
}
