//! A carrier between agent and server with everything but the signing key: it terminates TLS on both sides, as a
//! relay would, reads every frame, and changes, adds or invents what it likes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use proctor_model::{OperationId, OperationKind, ProcessKey, TaskId};
use proctor_pki::{
    AgentKey, Authority, AuthoritySecret, CommandSigner, HelloTerms, SessionTerms, SigningSecret, signed_welcome,
};
use proctor_runtime::clock;
use proctor_store::Store;
use proctor_store::sqlite::SqliteStore;
use proctor_testkit::{Fleet, Subject, eventually};
use proctor_wire::{AgentCodec, FromAgent, FromServer, ServerCodec, WelcomeProof, decode_part, encode_part, framed};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::hosts;

const IP: &str = "127.0.0.1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Bytes, uninspected.
    Bytes,
    /// Messages, unchanged.
    Messages,
    /// Commands are changed in transit.
    Changes,
    /// Inserts a command of its own before the server's first message.
    Adds,
    /// Acts as the server itself, and signs nothing.
    PretendsUnsigned,
    /// Acts as the server itself, and signs with its own key under the right certificate.
    PretendsSigned,
}

/// Everything that the authority's key and the agent's state directory permit.
struct Carrier {
    port: u16,
    shared: Arc<Shared>,
    _carrying: JoinSet<()>,
}

struct Shared {
    to: u16,
    authority: Authority,
    signer_der: Mutex<Vec<u8>>,
    state_dir: PathBuf,
    /// The command that it invents.
    wants: ProcessKey,
    mode: Mutex<Mode>,
    forged: AtomicU64,
    changed: Notify,
}

impl Carrier {
    async fn start(fleet: &Fleet, wants: &str) -> Self {
        let file = fleet.dir().join("data/proctor.db");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open_beside(&file).await.unwrap());
        let secret = store.secret("authority").await.unwrap().unwrap();
        let authority = Authority::load(&AuthoritySecret::from_bytes(&secret).unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to: fleet.server.link,
            authority,
            signer_der: Mutex::default(),
            state_dir: fleet.dir().join(format!("agent-{IP}")),
            wants: wants.parse().unwrap(),
            mode: Mutex::new(Mode::Bytes),
            forged: AtomicU64::new(0),
            changed: Notify::new(),
        });
        let mut carrying = JoinSet::new();
        carrying.spawn(accept(listener, shared.clone()));
        Self { port, shared, _carrying: carrying }
    }

    /// Closes every connection; new ones are carried in this mode.
    fn set(&self, mode: Mode) {
        *self.shared.mode.lock() = mode;
        self.shared.forged.store(0, Ordering::SeqCst);
        self.shared.changed.notify_waiters();
    }

    async fn until_forged(&self, count: u64) {
        eventually("the carrier has forged something", || async {
            (self.shared.forged.load(Ordering::SeqCst) >= count).then_some(())
        })
        .await;
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let shared = shared.clone();
        connections.spawn(async move {
            // Subscribes to changes before it looks at the mode.
            let changed = shared.changed.notified();
            let mode = *shared.mode.lock();
            tokio::select! {
                () = changed => {}
                _ = Box::pin(carry(&shared, mode, near)) => {}
            }
        });
    }
}

async fn carry(shared: &Shared, mode: Mode, mut near: TcpStream) -> Option<()> {
    if mode == Mode::Bytes {
        let mut far = TcpStream::connect(("127.0.0.1", shared.to)).await.ok()?;
        tokio::io::copy_bidirectional(&mut near, &mut far).await.ok()?;
        return None;
    }
    let now = jiff::Timestamp::from_millisecond(clock::unix_millis()).unwrap();
    let (config, _) = proctor_pki::server_config(&shared.authority, now).unwrap();
    let near = TlsAcceptor::from(Arc::new(config)).accept(near).await.ok()?;
    let mut near = framed(near, ServerCodec::new());
    if matches!(mode, Mode::PretendsUnsigned | Mode::PretendsSigned) {
        let hello = near.next().await?.ok()?;
        near.send(welcome(shared, mode, &hello)).await.ok()?;
        near.send(command(shared)).await.ok()?;
        while let Some(Ok(_)) = near.next().await {}
        // The agent has ended the connection, so it has read the command.
        shared.forged.fetch_add(1, Ordering::SeqCst);
        return None;
    }
    let identity = |name: &str| std::fs::read_to_string(shared.state_dir.join("identity").join(name)).unwrap();
    let key = AgentKey::from_pem(&identity("key.pem")).unwrap();
    let config = proctor_pki::session_config(&identity("authority.pem"), &identity("certificate.pem"), &key).unwrap();
    let far = TcpStream::connect(("127.0.0.1", shared.to)).await.ok()?;
    let far = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), far).await.ok()?;
    let mut far = framed(far, AgentCodec::new());
    let mut has_added = false;
    let ended: Option<()> = async {
        loop {
            tokio::select! {
                said = near.next() => far.send(said?.ok()?).await.ok()?,
                said = far.next() => {
                    let said = said?.ok()?;
                    if let FromServer::Welcome { proof: Some(proof), .. } = &said {
                        *shared.signer_der.lock() = proof.signer_der.clone();
                    }
                    let said = if mode == Mode::Changes { changed(shared, said) } else { said };
                    near.send(said).await.ok()?;
                    if mode == Mode::Adds && !std::mem::replace(&mut has_added, true) {
                        near.send(command(shared)).await.ok()?;
                    }
                }
            }
        }
    }
    .await;
    // The agent has ended the connection, so it has read the command.
    if has_added {
        shared.forged.fetch_add(1, Ordering::SeqCst);
    }
    ended
}

fn command(shared: &Shared) -> FromServer {
    FromServer::Operate {
        operation: OperationId::first(TaskId::from_uuid(uuid::Uuid::now_v7()), 0),
        key: shared.wants.clone(),
        kind: OperationKind::Start,
        spec: None,
        expires_in: Duration::from_secs(60),
    }
}

/// Redirects an operation to the process that the carrier wants.
fn changed(shared: &Shared, said: FromServer) -> FromServer {
    let FromServer::Signed(mut signed) = said else { return said };
    for part in &mut signed.messages {
        let message: FromServer = decode_part(part, &mut None).unwrap();
        if let FromServer::Operate { operation, kind, spec, expires_in, .. } = message {
            let key = shared.wants.clone();
            *part = encode_part(FromServer::Operate { operation, key, kind, spec, expires_in });
            shared.forged.fetch_add(1, Ordering::SeqCst);
        }
    }
    FromServer::Signed(signed)
}

fn welcome(shared: &Shared, mode: Mode, hello: &FromAgent) -> FromServer {
    let FromAgent::Hello { agent, challenge, boot, nonce, seen_generation, seen_epoch, .. } = hello else {
        panic!("{hello:?}")
    };
    let (epoch, beat_interval, server_time_ms) = (1 << 40, Duration::from_secs(5), clock::unix_millis());
    let proof = (mode == Mode::PretendsSigned).then(|| {
        let terms = SessionTerms {
            agent,
            challenge: challenge.as_ref().unwrap(),
            epoch,
            control_epoch: 1,
            beat_interval_ms: 5_000,
            server_time_ms,
            signed_reports: false,
            state_known: false,
            hello: HelloTerms { boot, nonce, seen_generation: *seen_generation, seen_epoch: *seen_epoch },
        };
        let now = jiff::Timestamp::from_millisecond(server_time_ms).unwrap();
        let own = CommandSigner::issue(&shared.authority, &SigningSecret::generate().unwrap(), now).unwrap();
        let (proof, _) = signed_welcome(&own, &terms).unwrap();
        WelcomeProof { signer_der: shared.signer_der.lock().clone(), ..proof }
    });
    FromServer::Welcome { epoch, beat_interval, server_time_ms, proof, state_known: false }
}

async fn register(fleet: &Fleet, dir: &Path, name: &str) -> Subject {
    let subject = Subject::new(dir, name).unwrap();
    let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &register).await.unwrap();
    subject
}

async fn refusals(fleet: &Fleet) -> Option<Vec<String>> {
    let events = fleet.get("/api/v1/events?type=command_refused").await.ok()?;
    let contents = events["events"].as_array()?.iter().map(|event| event["content"].as_str().map(str::to_owned));
    contents.collect::<Option<Vec<_>>>().filter(|contents| !contents.is_empty())
}

#[tokio::test]
async fn a_carrier_that_changes_or_adds_commands_gets_nothing_done() {
    let fleet = Fleet::start().await.unwrap();
    let carrier = Carrier::start(&fleet, "e2e/unwanted").await;
    let _agent = fleet.agent_through(carrier.port, IP, &[]).await.unwrap();
    let wanted = register(&fleet, fleet.dir(), "wanted").await;
    let unwanted = register(&fleet, fleet.dir(), "unwanted").await;
    let start = json!({"meta": wanted.meta(), "op_type": 0, "hosts": hosts(&[IP])});

    carrier.set(Mode::Adds);
    carrier.until_forged(1).await;
    carrier.set(Mode::Changes);
    fleet.until_online(IP, true).await;
    fleet.gse("operate_proc", &start).await.unwrap();
    // A target can end before the agent is back; then it is requested again.
    while tokio::time::timeout(Duration::from_secs(3), carrier.until_forged(1)).await.is_err() {
        fleet.gse("operate_proc", &start).await.unwrap();
    }
    assert_eq!((wanted.starts(), unwanted.starts()), (0, 0));
    carrier.set(Mode::Messages);
    eventually("an honest carrier is good enough", || async {
        fleet.operate("operate_proc", &start).await.ok()?;
        wanted.pid()
    })
    .await;

    assert_eq!((wanted.starts(), unwanted.starts()), (1, 0));
    let told = eventually("the refusals are told", || refusals(&fleet)).await;
    assert!(told[0].contains("it is not signed"), "{told:?}");
}

#[tokio::test]
async fn a_server_of_the_right_authority_without_the_signing_key_is_not_obeyed() {
    let fleet = Fleet::start().await.unwrap();
    let carrier = Carrier::start(&fleet, "e2e/unwanted").await;
    let _agent = fleet.agent_through(carrier.port, IP, &[]).await.unwrap();
    let unwanted = register(&fleet, fleet.dir(), "unwanted").await;

    // So that it has seen the right certificate.
    carrier.set(Mode::Messages);
    eventually("the welcome went through it", || async {
        (!carrier.shared.signer_der.lock().is_empty()).then_some(())
    })
    .await;
    for mode in [Mode::PretendsUnsigned, Mode::PretendsSigned] {
        carrier.set(mode);
        carrier.until_forged(1).await;
    }
    carrier.set(Mode::Bytes);

    let told = eventually("the refusals are told", || refusals(&fleet)).await;
    assert!(told[0].contains("it is not signed"), "{told:?}");
    assert_eq!(unwanted.starts(), 0);
}
