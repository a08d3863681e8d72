use std::time::Instant;
use std::sync::Arc;
use proctor_model::*;
use proctor_store::*;
use proctor_store::sqlite::SqliteStore;
fn spec(n: &str) -> Arc<Spec> {
    Arc::new(Spec { identity: Identity { proc_name: n.parse().unwrap(), setup_path: "/opt/app".parse().unwrap(), pid_path: "/run/app.pid".parse().unwrap(), config_path: None, log_path: None, user: "root".parse().unwrap(), index_key: String::new() },
        control: Control::default(), limits: Limits::default(), policy: Policy::new(Lifetime::Resident), ownership: Ownership::default(), report_id: None, configmap: Vec::new(), labels: Default::default() })
}
const N: u32 = 30_000;
fn agent(n: u32) -> AgentId { AgentId::from_uuid(uuid::Uuid::from_u128(n as u128 * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1<<127))) }
fn host(n: u32) -> HostKey { HostKey::new(0, 0, std::net::IpAddr::V4(std::net::Ipv4Addr::from(0x0A000000 + n))) }
fn task(id: u128, register: bool, hosts: u32, items: u32, s: &str) -> NewTask {
    NewTask { id: TaskId::from_uuid(uuid::Uuid::from_u128(id)), created_at: 0, app: "a".into(), user: "u".into(), family: "v2".into(),
        items: (0..items).map(|i| TaskItem { key: format!("web/p{i}").parse().unwrap(), kind: Some(OperationKind::Start), spec: Some(spec(s)), register, time_limit_ms: 1 }).collect(),
        targets: (0..items).flat_map(|i| (0..hosts).map(move |h| Target { item: i, agent: Some(agent(h)), host: Some(host(h)), row_key: format!("0:{}:web:p{i}", host(h).ip) })).collect(), outcomes: vec![] }
}
#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir_in("/work").unwrap();
    let store = Arc::new(SqliteStore::open(&dir.path().join("p.db")).await.unwrap());
    store.put_token(JoinToken { id: "t".into(), secret_hash: "s".into(), uses: u32::MAX, expires_at: i64::MAX, cloud: None }).await.unwrap();
    let t = Instant::now();
    let mut set = tokio::task::JoinSet::new();
    for n in 0..N { let store = store.clone(); set.spawn(async move { store.enrol(Enrolment { token_id: "t".into(), token_secret_hash: "s".into(), host: host(n), agent: agent(n), key_fingerprint: format!("{n}") }, 0).await.unwrap().unwrap() }); }
    set.join_all().await;
    println!("enrol 30k concurrent {:?}", t.elapsed());
    macro_rules! time { ($what:literal, $e:expr) => {{ let t = Instant::now(); let r = $e; println!("{} {:?}", $what, t.elapsed()); r }} }
    let x = task(1, false, N, 1, "a"); time!("create_task 30k plain", store.create_task(x).await.unwrap());
    let x = task(2, true, N, 1, "a"); time!("create_task 30k register (30k hosts x 1)", store.create_task(x).await.unwrap());
    let x = task(3, true, N, 1, "a"); time!("create_task 30k register again, equal", store.create_task(x).await.unwrap());
    let x = task(4, true, N, 1, "b"); time!("create_task 30k register again, changed", store.create_task(x).await.unwrap());
    let x = task(5, true, 1000, 30, "c"); time!("create_task 30k register (1000 hosts x 30)", store.create_task(x).await.unwrap());
    let id = TaskId::from_uuid(uuid::Uuid::from_u128(1));
    let mut snap = Snapshot::default(); snap.usage.command_line = "x".repeat(100);
    let outcomes: Vec<_> = (0..N).map(|index| (OperationId { task: id, index, attempt: 0 }, Outcome { snapshot: Some(snap.clone()), ..Outcome::success(true) })).collect();
    time!("task, no outcomes", store.task(id).await.unwrap());
    time!("record 30k in one", store.record_outcomes(&outcomes, 0).await.unwrap());
    time!("task, 30k outcomes with snapshot", store.task(id).await.unwrap());
    let id = TaskId::from_uuid(uuid::Uuid::from_u128(2));
    let t = Instant::now();
    let mut set = tokio::task::JoinSet::new();
    for index in 0..N { let store = store.clone(); set.spawn(async move { store.record_outcomes(&[(OperationId { task: id, index, attempt: 0 }, Outcome::success(true))], 0).await.unwrap() }); }
    set.join_all().await;
    println!("record 30k one by one, concurrent {:?}", t.elapsed());
    time!("task, 30k outcomes", store.task(id).await.unwrap());
    time!("open_targets (90k)", store.open_targets().await.unwrap());
    let q = ProcessQuery { limit: Some(20), ..Default::default() };
    println!("{}", time!("processes page of 20 of 59k, no filter", store.processes(&q).await.unwrap()).0);
    let q = ProcessQuery { namespace: Some("web".parse().unwrap()), name: Some("p7".parse().unwrap()), ..Default::default() };
    println!("{}", time!("processes ns+name", store.processes(&q).await.unwrap()).0);
    let q = ProcessQuery { agents: Some((0..100).map(agent).collect()), ..Default::default() };
    println!("{}", time!("processes of 100 agents", store.processes(&q).await.unwrap()).0);
    let q = ProcessQuery { namespace: Some("web".parse().unwrap()), name: Some("p0".parse().unwrap()), agents: Some((0..N).map(agent).collect()), ..Default::default() };
    println!("{}", time!("processes ns+name+30k agents", store.processes(&q).await.unwrap()).0);
    let a: Vec<_> = (0..N).map(agent).collect(); time!("hosts_by_agent 30k", store.hosts_by_agent(&a).await.unwrap());
    let a: Vec<_> = (0..N).map(host).collect(); time!("hosts_by_key 30k", store.hosts_by_key(&a).await.unwrap());
    time!("assignments", store.assignments(&agent(5), 0).await.unwrap());
    let t = Instant::now(); for n in 0..100 { store.put_app(App { code: format!("{n}"), secret_hash: String::new(), trusted: false, created_at: 0 }).await.unwrap(); } println!("one small write {:?}", t.elapsed() / 100);
    println!("pruned {}", time!("prune", store.prune_tasks(1).await.unwrap()));
}
