//! The typed client, call by call, against a real server with a real agent and process.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use proctor_client::{
    AppQuery, AuditFilter, AuditQuery, BindingQuery, Client, CountOrPercent, Credentials, DiffQuery, EventFilter,
    HostQuery, HostView, Hosts, ImportRow, NewApp, NewBinding, NewGrant, NewToken, NewUserToken, NewWebhook,
    OperationRequest, PoolQuery, PoolSetting, ProcessQuery, ProcessView, Rolling, RolloutState, ShowQuery, TargetQuery,
    TargetState, TaskQuery, TaskView, Text, WebhookFormat,
};
use proctor_model::{EventKind, OperationKind, Percent, ProcessKey, TaskId, Weight};
use proctor_testkit::{APP, Agent, Fleet, Subject, eventually};
use serde_json::{Value, json};

use crate::hosts;

const IP: &str = "127.0.0.1";
const HOST: &str = "0:127.0.0.1";
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    client: Client,
    key: ProcessKey,
    body: Value,
    subject: Subject,
    _agent: Agent,
    fleet: Fleet,
}

/// With one host, on which the process `e2e/NAME` is registered.
async fn world(name: &str) -> World {
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), name).unwrap();
    let client = Client::new(&fleet.url(""), Credentials::new(APP, &fleet.secret, "admin")).unwrap();
    let body = json!({ "meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec() });
    let rows = client.register(&body).await.unwrap();
    assert!(rows.iter().all(proctor_client::Row::is_success), "{rows:?}");
    World { client, key: format!("e2e/{name}").parse().unwrap(), body, subject, _agent: agent, fleet }
}

fn on_all(kind: OperationKind, key: &ProcessKey) -> OperationRequest {
    OperationRequest { process: Some(Text(key.clone())), all: true, ..OperationRequest::new(kind) }
}

impl World {
    async fn submit(&self, request: &OperationRequest) -> TaskId {
        self.client.operate(request, None).await.unwrap().task_id.unwrap()
    }

    async fn finished(&self, id: TaskId) -> TaskView {
        eventually("the task is over", || async {
            let task = self.client.task(id).await.unwrap();
            task.is_finished().then_some(task)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_and_businesses_through_the_client() {
    let world = world("placed").await;
    let client = &world.client;

    client.put_business(3, "web").await.unwrap();
    client.put_business_set(1, "all", BTreeSet::from([3])).await.unwrap();
    client.place_hosts(&[HOST.to_owned()], Some(3)).await.unwrap();
    let row =
        ImportRow { cloud: 1, ip: "10.0.0.7".parse().unwrap(), business: Some(4), business_name: Some("db".into()) };
    let imported = client.import_hosts(&[row]).await.unwrap();
    client.import_hosts_csv("1,10.0.0.7,".to_owned()).await.unwrap();
    let query = HostQuery { business: Some(3), limit: Some(1), ..HostQuery::default() };
    let hosts: Vec<HostView> = client.all_hosts(&query).try_collect().await.unwrap();
    let token = NewToken { business: Some(3), ..NewToken::default() };

    assert_eq!((imported.hosts, imported.businesses), (1, 1));
    assert_eq!(hosts.iter().map(|host| host.host.as_str()).collect::<Vec<_>>(), [HOST]);
    assert!(client.create_token(&token).await.unwrap().expires_at > 0);
    assert_eq!(client.businesses().await.unwrap().len(), 2);
    assert_eq!(client.business_sets().await.unwrap()[0].members, BTreeSet::from([3]));
    client.delete_business_set(1).await.unwrap();
    client.delete_business(4).await.unwrap();
    assert_eq!(client.delete_business(4).await.unwrap_err().status(), Some(404));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_and_pools_through_the_client() {
    let world = world("listed").await;
    let (client, key) = (&world.client, &world.key);
    let mut changed = world.body.clone();
    changed["spec"]["control"]["reload_cmd"] = json!("echo again");

    let plan = client.plan_registration(&changed).await.unwrap();
    client.register_or_update(&changed).await.unwrap();
    let history = client.spec_history(key, HOST).await.unwrap();
    let diff = client.spec_diff(key, &DiffQuery { host: HOST.into(), from: None, to: None }).await.unwrap();
    let query = ProcessQuery { selector: Some("proc_name=listed".into()), limit: Some(1), ..ProcessQuery::default() };
    let listed: Vec<ProcessView> = client.all_processes(&query).try_collect().await.unwrap();
    let shown = client.process(key, &ShowQuery::default()).await.unwrap();
    let pool = PoolSetting {
        namespace: "e2e".parse().unwrap(),
        id: "e2e".parse().unwrap(),
        cpu: Percent::try_from(90.0).unwrap(),
        memory: Percent::try_from(90.0).unwrap(),
        cpu_weight: Weight::Usage,
        memory_weight: Weight::Usage,
        dry_run: false,
    };
    client.set_pools(&Hosts::All, &[pool]).await.unwrap();
    let pools = client.pools(&PoolQuery { usage: Some(true), ..PoolQuery::default() }).await.unwrap();

    assert_eq!(plan.hosts[0].changes[0].path, "control.reload");
    assert_eq!((history.len(), &diff.changes), (2, &plan.hosts[0].changes));
    assert_eq!((listed.len(), listed[0].process.as_str()), (1, "e2e/listed"));
    assert_eq!(shown.processes[0].spec.as_ref().unwrap().labels.get("proc_name"), Some("listed"));
    assert!(pools[0].usage.is_some());
    let rows = client.unregister(key, &Hosts::These(vec![IP.into()])).await.unwrap();
    assert!(rows[0].is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_and_tasks_through_the_client() {
    let world = world("operated").await;
    let (client, key) = (&world.client, &world.key);
    let start = on_all(OperationKind::Start, key);

    let plan = client.operate(&OperationRequest { plan: true, ..start.clone() }, None).await.unwrap().plan.unwrap();
    let first = client.operate(&start, Some("once")).await.unwrap().task_id.unwrap();
    let second = client.operate(&start, Some("once")).await.unwrap().task_id.unwrap();
    let task = world.finished(first).await;
    let whole = client.whole_task(first).await.unwrap();
    let again = world.finished(world.submit(&start).await).await;
    let failed = TargetQuery { state: Some(TargetState::Failed), ..TargetQuery::default() };
    let failed = client.task_targets(again.task_id, &failed).await.unwrap();
    let retried = client.retry_task(again.task_id).await.unwrap();
    let tasks: Vec<TaskView> =
        client.all_tasks(&TaskQuery { limit: Some(1), ..TaskQuery::default() }).try_collect().await.unwrap();

    assert_eq!((plan.total, plan.refused, first), (1, 0, second));
    assert_eq!((task.succeeded, whole.targets[0].code), (1, 0), "{whole:?}");
    assert!(world.subject.pid().is_some());
    assert_eq!(failed.targets[0].code, 828);
    assert_eq!((retried.retry_of, tasks.len()), (Some(again.task_id), 3));
    assert_eq!(client.cancel_task(first).await.unwrap_err().status(), Some(409));
    assert_eq!(client.resume_task(first).await.unwrap_err().status(), Some(409));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_task_pauses_after_its_canary_and_goes_on_when_it_is_resumed() {
    let world = world("rolled").await;
    let mut other = world.body.clone();
    let second = Subject::new(world.fleet.dir(), "rolled2").unwrap();
    (other["meta"], other["spec"]) = (second.meta(), second.spec());
    world.client.register(&other).await.unwrap();
    let rolling = Rolling { max_parallel: CountOrPercent::Count(1), max_failures: 0, canary: 1, wait_healthy: true };
    let start = OperationRequest {
        selector: Some("proc_name".into()),
        all: true,
        rolling: Some(rolling),
        ..OperationRequest::new(OperationKind::Start)
    };

    let id = world.submit(&start).await;
    let paused = eventually("the task pauses", || async {
        let task = world.client.task(id).await.unwrap();
        (task.rollout.as_ref().unwrap().state == RolloutState::Paused).then_some(task)
    })
    .await;
    let alive_then = (world.subject.pid().is_some(), second.pid().is_some());
    world.client.resume_task(id).await.unwrap();
    let done = world.finished(id).await;

    assert_eq!((paused.succeeded, paused.pending), (1, 1));
    assert_eq!(alive_then, (true, false));
    assert_eq!(done.succeeded, 2);
    assert!(second.pid().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_through_the_client() {
    let world = world("told").await;
    let filter = EventFilter {
        after: Some(0),
        types: vec![EventKind::Started],
        name: Some("told".into()),
        ..EventFilter::default()
    };

    let mut stream = std::pin::pin!(world.client.event_stream(&filter).await.unwrap());
    world.finished(world.submit(&on_all(OperationKind::Start, &world.key)).await).await;
    let event = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    let followed = world.client.follow_events(&filter, Duration::from_secs(20)).await.unwrap();
    let newest = world.client.events(&EventFilter { after: None, ..filter }).await.unwrap();
    let webhook = NewWebhook {
        url: "http://127.0.0.1:9/".into(),
        namespace: None,
        report_id: None,
        types: Vec::new(),
        format: WebhookFormat::Native,
        secret: None,
    };
    let added = world.client.add_webhook(&webhook).await.unwrap();

    assert_eq!((event.process.as_deref(), event.kind.as_str()), (Some("e2e/told"), "started"));
    assert_eq!((&followed.events[0], &newest.events[0]), (&event, &event));
    assert_eq!(world.client.webhooks().await.unwrap()[0].id, added.id);
    world.client.remove_webhook(&added.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn access_and_audit_through_the_client() {
    let world = world("guarded").await;
    let client = &world.client;
    let grant = NewGrant { role: "viewer".into(), scope: "everything".into(), ..NewGrant::default() };

    let app =
        client.create_app(&NewApp { code: "second".into(), roles: vec![grant], ..NewApp::default() }).await.unwrap();
    let rotated = client.rotate_app_secret("second", &AppQuery::default()).await.unwrap();
    client.create_user("ana").await.unwrap();
    let token = client.create_user_token("ana", &NewUserToken::default()).await.unwrap();
    let ana = Client::new(&world.fleet.url(""), Credentials::user_token(&token.token)).unwrap();
    let before = ana.hosts(&HostQuery::default()).await.unwrap_err();
    client.put_role("looker", vec!["read".into()]).await.unwrap();
    let binding = NewBinding {
        role: "looker".into(),
        subject: "user:ana".into(),
        scope: "everything".into(),
        allow_users: vec!["web".into()],
        allow_roots: vec!["/opt/web".into()],
    };
    let binding = client.create_binding(&binding).await.unwrap();
    let seen = ana.hosts(&HostQuery::default()).await.unwrap();
    let refused = ana.users().await.unwrap_err();

    assert_ne!(app.secret, rotated.secret);
    assert_eq!((before.status(), refused.status(), seen.hosts.len()), (Some(403), Some(403), 1));
    assert_eq!(client.apps().await.unwrap().len(), 2);
    assert_eq!(client.user_tokens("ana").await.unwrap()[0].id, token.id);
    let query = BindingQuery { subject: Some("user:ana".into()) };
    assert_eq!(client.bindings(&query).await.unwrap()[0], binding);
    client.delete_binding(&binding.id).await.unwrap();
    client.delete_role("looker").await.unwrap();
    client.delete_user_token("ana", &token.id).await.unwrap();
    assert!(client.disable_user("ana", true).await.unwrap().disabled);
    client.delete_user("ana").await.unwrap();
    client.delete_app("second").await.unwrap();
    assert!(client.users().await.unwrap().is_empty() && client.roles().await.unwrap().len() == 4);

    let page = client.audit(&AuditQuery { action: Some("create_user".into()), ..AuditQuery::default() }).await.unwrap();
    let filter = AuditFilter { app: Some(APP.into()), ..AuditFilter::default() };
    let all: Vec<_> = client.all_audit(&filter).try_collect().await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.phase.as_str()).collect::<Vec<_>>(), ["begun", "ended"]);
    assert!(all.len() > 20, "{}", all.len());
    assert!(client.verify_audit().await.unwrap().intact);
}
