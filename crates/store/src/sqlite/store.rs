//! What [`Store`] promises, area by area: each call runs one function of its area on the writer or on a reader.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use proctor_model::{
    AgentId, Code, Event, HostKey, Namespace, OperationId, Outcome, Permissions, Pool, PoolId, ProcessKey, Role,
    RoleName, Subject, TaskId,
};
use rusqlite::Connection;
use uuid::Uuid;

use super::{
    SqliteStore, access, apps, audit, businesses, enrolment, events, fleet, health, hosts, identity, nonces, outcomes,
    pools, processes, registrations, retention, rollouts, tasks, users, webhooks,
};
use crate::{
    App, Assignments, AuditAnchor, AuditDraft, AuditEntry, AuditQuery, Binding, Business, BusinessSet, Cordon,
    CreatedTask, DiskSpace, EndedSession, EnrolRefusal, Enrolled, Enrolment, EventCountQuery, EventPage, EventQuery,
    Fleet, HostLocation, HostQuery, HostRecord, Idempotency, JoinToken, JoinTokenRecord, Managed, Millis, NewTask,
    Observation, OpenRollout, OpenTarget, OperationStats, PoolRecord, ProcessQuery, ProcessRecord, ProcessTaskQuery,
    Prune, Refusal, RegisterMode, Registered, Registration, Result, RolloutStep, SessionOpening, SessionRefusal,
    SpecRevision, Store, StoreStats, TableSize, TargetQuery, TargetRow, TaskQuery, TaskSummary, TaskView, Uptime, User,
    UserCredential, UserToken, Webhook,
};

#[async_trait]
impl Store for SqliteStore {
    async fn closed(&self) {
        self.writer.closed().await;
    }

    fn stats(&self) -> StoreStats {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        // Some read first and then write.
        let mut operations: BTreeMap<&str, OperationStats> = BTreeMap::new();
        for one in self.readers.meter.operations().into_iter().chain(self.writer.meter.operations()) {
            operations.entry(one.what).and_modify(|known| known.add(&one)).or_insert(one);
        }
        StoreStats {
            reads: self.readers.meter.latency(),
            writes: self.writer.meter.latency(),
            operations: operations.into_values().collect(),
            writes_queued: self.writer.queued(),
            file_bytes: size(&self.path),
            log_bytes: size(Path::new(&log)),
            free_bytes: health::disk_space(&self.path).map(|space| space.free_bytes),
        }
    }

    async fn check_readable(&self) -> Result<()> {
        let path = self.path.clone();
        self.readers.run("be read", move |c| health::read(c, &path)).await
    }

    async fn check_writable(&self) -> Result<()> {
        let path = self.path.clone();
        self.writer.run("be written", move |c| health::write(c, &path)).await
    }

    async fn put_app(&self, app: App) -> Result<()> {
        self.writer.run("keep an app", move |c| apps::put_app(c, &app)).await
    }

    async fn create_app(&self, app: App, bindings: &[Binding]) -> Result<std::result::Result<(), Refusal>> {
        let bindings = bindings.to_vec();
        self.writer.run("keep an app", move |c| apps::create(c, &app, &bindings)).await
    }

    async fn renew_app_hash(&self, code: &str, old: &str, new: &str) -> Result<bool> {
        let (code, old, new) = (code.to_owned(), old.to_owned(), new.to_owned());
        self.writer.run("renew the hash of an app", move |c| apps::renew_hash(c, &code, &old, &new)).await
    }

    async fn set_app_secret(
        &self,
        code: &str,
        secret_hash: String,
        sealed_secret: Option<Vec<u8>>,
    ) -> Result<Option<App>> {
        let code = code.to_owned();
        self.writer
            .run("change the secret of an app", move |c| apps::set_secret(c, &code, &secret_hash, sealed_secret))
            .await
    }

    async fn app(&self, code: &str) -> Result<Option<App>> {
        let code = code.to_owned();
        self.readers.run("read an app", move |c| apps::app(c, &code)).await
    }

    async fn apps(&self) -> Result<Vec<App>> {
        self.readers.run("read the apps", apps::apps).await
    }

    async fn delete_app(&self, code: &str) -> Result<bool> {
        let code = code.to_owned();
        self.writer.run("remove an app", move |c| apps::delete_app(c, &code)).await
    }

    async fn secret_or_insert(&self, name: &str, value: Vec<u8>) -> Result<Vec<u8>> {
        let name = name.to_owned();
        self.writer.run("keep a secret", move |c| apps::secret_or_insert(c, &name, value)).await
    }

    async fn secret(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.readers.run("read a secret", move |c| apps::secret(c, &name)).await
    }

    async fn put_business(&self, business: Business) -> Result<()> {
        self.writer.run("keep a business", move |c| businesses::put(c, &business)).await
    }

    async fn businesses(&self) -> Result<Vec<Business>> {
        self.readers.run("read the businesses", businesses::all).await
    }

    async fn delete_business(&self, id: u64) -> Result<bool> {
        self.writer.run("remove a business", move |c| businesses::delete(c, id)).await
    }

    async fn put_business_set(&self, set: BusinessSet) -> Result<std::result::Result<(), Refusal>> {
        self.writer.run("keep a business set", move |c| businesses::put_set(c, &set)).await
    }

    async fn business_sets(&self) -> Result<Vec<BusinessSet>> {
        self.readers.run("read the business sets", businesses::sets).await
    }

    async fn delete_business_set(&self, id: u64) -> Result<bool> {
        self.writer.run("remove a business set", move |c| businesses::delete_set(c, id)).await
    }

    async fn place_hosts(&self, placements: &[(HostKey, Option<u64>)]) -> Result<std::result::Result<(), Refusal>> {
        let placements = placements.to_vec();
        self.writer.run("place hosts", move |c| businesses::place(c, &placements)).await
    }

    async fn placements(&self, hosts: &[HostKey]) -> Result<Vec<Option<u64>>> {
        let hosts = hosts.to_vec();
        let each = move |c: &_| hosts.iter().map(|host| businesses::business_of(c, host)).collect();
        self.readers.run("look up placements", each).await
    }

    async fn import_hosts(
        &self,
        businesses: &[Business],
        placements: &[(HostKey, Option<u64>)],
    ) -> Result<std::result::Result<(), Refusal>> {
        let (businesses, placements) = (businesses.to_vec(), placements.to_vec());
        self.writer.run("import hosts", move |c| businesses::import(c, &businesses, &placements)).await
    }

    async fn put_role(&self, role: Role) -> Result<std::result::Result<(), Refusal>> {
        self.writer.run("keep a role", move |c| access::put_role(c, &role)).await
    }

    async fn roles(&self) -> Result<Vec<Role>> {
        self.readers.run("read the roles", access::roles).await
    }

    async fn delete_role(&self, name: &RoleName) -> Result<bool> {
        let name = name.clone();
        self.writer.run("remove a role", move |c| access::delete_role(c, &name)).await
    }

    async fn put_binding(&self, binding: Binding) -> Result<std::result::Result<Uuid, Refusal>> {
        self.writer.run("keep a binding", move |c| access::put_binding(c, &binding)).await
    }

    async fn bindings(&self) -> Result<Vec<Binding>> {
        self.readers.run("read the bindings", access::bindings).await
    }

    async fn delete_binding(&self, id: Uuid) -> Result<bool> {
        self.writer.run("remove a binding", move |c| access::delete_binding(c, id)).await
    }

    async fn permissions(&self, subjects: &[Subject]) -> Result<std::result::Result<Permissions, Refusal>> {
        let subjects = subjects.to_vec();
        self.readers.run("read permissions", move |c| access::permissions(c, &subjects)).await
    }

    async fn take_nonce(&self, fingerprint: [u8; 32], until: Millis, now: Millis) -> Result<bool> {
        self.writer.run("keep a nonce", move |c| nonces::take(c, fingerprint, until, now)).await
    }

    async fn create_user(&self, user: User) -> Result<std::result::Result<(), Refusal>> {
        self.writer.run("keep a user", move |c| users::create(c, &user)).await
    }

    async fn disable_user(&self, name: &str, disabled: bool) -> Result<Option<User>> {
        let name = name.to_owned();
        self.writer.run("disable a user", move |c| users::disable(c, &name, disabled)).await
    }

    async fn user(&self, name: &str) -> Result<Option<User>> {
        let name = name.to_owned();
        self.readers.run("read a user", move |c| users::get(c, &name)).await
    }

    async fn users(&self) -> Result<Vec<User>> {
        self.readers.run("read the users", users::all).await
    }

    async fn delete_user(&self, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.writer.run("remove a user", move |c| users::delete(c, &name)).await
    }

    async fn put_user_token(&self, token: UserToken) -> Result<std::result::Result<(), Refusal>> {
        self.writer.run("keep a user's token", move |c| users::put_token(c, &token)).await
    }

    async fn put_session(
        &self,
        token: UserToken,
        credential: Option<UserCredential>,
    ) -> Result<std::result::Result<(), Refusal>> {
        self.writer.run("keep a session", move |c| users::put_session(c, &token, credential.as_ref())).await
    }

    async fn user_tokens(&self, user: Option<&str>) -> Result<Vec<UserToken>> {
        let user = user.map(str::to_owned);
        self.readers.run("read users' tokens", move |c| users::tokens(c, user.as_deref())).await
    }

    async fn user_token(&self, id: &str) -> Result<Option<UserToken>> {
        let id = id.to_owned();
        self.readers.run("read a user's token", move |c| users::token(c, &id)).await
    }

    async fn delete_user_token(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.writer.run("remove a user's token", move |c| users::delete_token(c, &id)).await
    }

    async fn set_user_password(
        &self,
        name: &str,
        hash: Option<String>,
        expected: Option<UserCredential>,
        now: Millis,
    ) -> Result<std::result::Result<(), Refusal>> {
        let name = name.to_owned();
        let set = move |c: &Connection| users::set_password(c, &name, hash.as_deref(), expected.as_ref(), now);
        self.writer.run("set a user's password", set).await
    }

    async fn user_credential(&self, name: &str) -> Result<Option<UserCredential>> {
        let name = name.to_owned();
        self.readers.run("read a user's credential", move |c| users::credential(c, &name)).await
    }

    async fn append_audit(&self, draft: AuditDraft, now: Millis) -> Result<u64> {
        self.writer.run("write the audit log", move |c| audit::append(c, draft, now)).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        let query = query.clone();
        self.readers.run("read the audit log", move |c| audit::list(c, &query)).await
    }

    async fn audit_anchor(&self) -> Result<AuditAnchor> {
        self.readers.run("read the audit log", retention::anchor).await
    }

    async fn audit_before(&self, before: Uptime) -> Result<u64> {
        self.readers.run("read the audit log", move |c| retention::audit_before(c, before)).await
    }

    async fn put_token(&self, token: JoinToken) -> Result<()> {
        self.writer.run("keep a join token", move |c| enrolment::put_token(c, &token)).await
    }

    async fn tokens(&self) -> Result<Vec<JoinTokenRecord>> {
        self.readers.run("read the join tokens", enrolment::tokens).await
    }

    async fn delete_token(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.writer.run("remove a join token", move |c| enrolment::delete_token(c, &id)).await
    }

    async fn knows_token(&self, id: &str, secret_hash: &str) -> Result<bool> {
        let (id, secret_hash) = (id.to_owned(), secret_hash.to_owned());
        self.readers.run("find a join token", move |c| enrolment::knows_token(c, &id, &secret_hash)).await
    }

    async fn enrol(&self, enrolment: Enrolment, now: Millis) -> Result<std::result::Result<Enrolled, EnrolRefusal>> {
        self.writer.run("enrol a host", move |c| enrolment::enrol(c, &enrolment, now)).await
    }

    async fn allow_rejoin(&self, host: &HostKey, until: Option<Millis>) -> Result<bool> {
        let host = *host;
        self.writer.run("let a host rejoin", move |c| identity::allow_rejoin(c, &host, until)).await
    }

    async fn set_cordon(&self, host: &HostKey, cordon: Option<Cordon>) -> Result<Option<Option<Cordon>>> {
        let host = *host;
        self.writer.run("set the cordon of a host", move |c| hosts::set_cordon(c, &host, cordon.as_ref())).await
    }

    async fn approve_host(&self, host: &HostKey) -> Result<Option<bool>> {
        let host = *host;
        self.writer.run("approve a host", move |c| hosts::approve(c, &host)).await
    }

    async fn revoke_host(&self, host: &HostKey, now: Millis) -> Result<Option<(AgentId, u64)>> {
        let host = *host;
        self.writer.run("revoke a host's key", move |c| identity::revoke(c, &host, now)).await
    }

    async fn remove_host(&self, host: &HostKey) -> Result<Option<AgentId>> {
        let host = *host;
        self.writer.run("remove a host", move |c| identity::remove(c, &host)).await
    }

    async fn hosts(&self, query: &HostQuery) -> Result<Vec<HostRecord>> {
        let query = query.clone();
        self.readers.run("read the hosts", move |c| hosts::list(c, &query)).await
    }

    async fn hosts_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostRecord>>> {
        let keys = keys.to_vec();
        self.readers.run("find hosts", move |c| hosts::by_key(c, &keys)).await
    }

    async fn hosts_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostRecord>>> {
        let agents = agents.to_vec();
        self.readers.run("find hosts", move |c| hosts::by_agent(c, &agents)).await
    }

    async fn sites_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostLocation>>> {
        let keys = keys.to_vec();
        self.readers.run("look up hosts", move |c| hosts::sites_by_key(c, &keys)).await
    }

    async fn sites_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostLocation>>> {
        let agents = agents.to_vec();
        self.readers.run("look up hosts", move |c| hosts::sites_by_agent(c, &agents)).await
    }

    async fn bind_agent_ids(&self, bindings: &[(HostKey, AgentId)]) -> Result<Vec<bool>> {
        let bindings = bindings.to_vec();
        self.writer.run("bind agent ids", move |c| hosts::bind_aliases(c, &bindings)).await
    }

    async fn open_session(
        &self,
        opening: &SessionOpening,
        now: Millis,
    ) -> Result<std::result::Result<u64, SessionRefusal>> {
        let opening = opening.clone();
        self.writer.run("open a session", move |c| identity::open_session(c, &opening, now)).await
    }

    async fn settle_session(&self, agent: &AgentId, epoch: u64) -> Result<bool> {
        let agent = agent.clone();
        self.writer.run("settle a session", move |c| identity::settle_session(c, &agent, epoch)).await
    }

    async fn end_sessions(&self, ended: &[EndedSession], now: Millis) -> Result<()> {
        let ended = ended.to_vec();
        self.writer.run("close a session", move |c| hosts::end_sessions(c, ended, now)).await
    }

    async fn register(
        &self,
        registrations: &[Registration],
        mode: RegisterMode,
        now: Millis,
    ) -> Result<Vec<Registered>> {
        let registrations = registrations.to_vec();
        self.writer.run("register processes", move |c| registrations::register(c, &registrations, mode, now)).await
    }

    async fn unregister(&self, processes: &[(AgentId, ProcessKey)], now: Millis) -> Result<Vec<bool>> {
        let processes = processes.to_vec();
        self.writer.run("unregister processes", move |c| registrations::unregister(c, &processes, now)).await
    }

    async fn processes(&self, query: &ProcessQuery) -> Result<(u64, Vec<ProcessRecord>)> {
        let query = query.clone();
        self.readers.run("read the processes", move |c| processes::list(c, &query)).await
    }

    async fn fleet(&self, before: Option<Arc<Fleet>>) -> Result<Fleet> {
        self.readers.run("read the fleet", move |c| fleet::read(c, before.as_deref())).await
    }

    async fn spec_history(&self, agent: &AgentId, key: &ProcessKey, limit: u32) -> Result<Vec<SpecRevision>> {
        let (agent, key) = (agent.clone(), key.clone());
        self.readers.run("read the history of a process", move |c| registrations::history(c, &agent, &key, limit)).await
    }

    async fn assignments(&self, agent: &AgentId, since: u64) -> Result<Assignments> {
        let agent = agent.clone();
        let read = move |c: &Connection| {
            let processes = processes::assignments(c, &agent, since)?;
            Ok(Assignments { processes, pools: pools::assignments(c, &agent, since)? })
        };
        self.readers.run("read what changed for an agent", read).await
    }

    async fn observe(&self, agent: &AgentId, epoch: u64, observations: &[Observation]) -> Result<Vec<bool>> {
        let (agent, observations) = (agent.clone(), observations.to_vec());
        self.writer.run("keep observations", move |c| processes::observe(c, &agent, epoch, &observations)).await
    }

    async fn keep_managed(&self, managed: &[Managed]) -> Result<()> {
        let managed = managed.to_vec();
        self.writer.run("keep who is managed", move |c| processes::keep_managed(c, &managed)).await
    }

    async fn set_pools(&self, agents: &[AgentId], pools: &[Pool], now: Millis) -> Result<Vec<bool>> {
        let (agents, pools) = (agents.to_vec(), pools.to_vec());
        self.writer.run("set pools", move |c| pools::set(c, &agents, &pools, now)).await
    }

    async fn delete_pool(
        &self,
        agents: &[AgentId],
        namespace: &Namespace,
        id: &PoolId,
        now: Millis,
    ) -> Result<Vec<bool>> {
        let (agents, namespace, id) = (agents.to_vec(), namespace.clone(), id.clone());
        self.writer.run("remove a pool", move |c| pools::delete(c, &agents, &namespace, &id, now)).await
    }

    async fn pools(&self, namespace: Option<&Namespace>, agents: Option<&[AgentId]>) -> Result<Vec<PoolRecord>> {
        let (namespace, agents) = (namespace.cloned(), agents.map(<[_]>::to_vec));
        self.readers.run("read the pools", move |c| pools::list(c, namespace.as_ref(), agents.as_deref())).await
    }

    async fn create_task(&self, task: NewTask) -> Result<CreatedTask> {
        self.writer.run("keep a task", move |c| tasks::create(c, &task)).await
    }

    async fn task_of_key(&self, key: &Idempotency) -> Result<Option<(TaskId, bool)>> {
        let key = key.clone();
        self.readers.run("find a repeated task", move |c| tasks::of_key(c, &key)).await
    }

    async fn task(&self, id: TaskId) -> Result<Option<TaskView>> {
        self.readers.run("read a task", move |c| tasks::get(c, id)).await
    }

    async fn task_summary(&self, id: TaskId) -> Result<Option<TaskSummary>> {
        self.readers.run("read a task", move |c| tasks::summary(c, id)).await
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Vec<TaskSummary>> {
        let query = query.clone();
        self.readers.run("list the tasks", move |c| tasks::list(c, &query)).await
    }

    async fn task_targets(&self, id: TaskId, query: &TargetQuery) -> Result<Vec<TargetRow>> {
        let query = *query;
        self.readers.run("read targets of a task", move |c| tasks::targets(c, id, query)).await
    }

    async fn target_codes(&self, id: TaskId) -> Result<Vec<(u32, Code)>> {
        self.readers.run("read the codes of a task", move |c| outcomes::codes(c, id)).await
    }

    async fn process_tasks(&self, query: &ProcessTaskQuery) -> Result<Vec<(TaskSummary, Vec<TargetRow>)>> {
        let query = query.clone();
        self.readers.run("read the tasks of a process", move |c| tasks::of_process(c, &query)).await
    }

    async fn cancel_task(&self, id: TaskId, unreleased: Outcome, now: Millis) -> Result<bool> {
        self.writer.run("cancel a task", move |c| rollouts::cancel_task(c, id, &unreleased, now)).await
    }

    async fn step_rollout(&self, id: TaskId, step: RolloutStep, now: Millis) -> Result<bool> {
        self.writer.run("write a rollout step", move |c| rollouts::step(c, id, &step, now)).await
    }

    async fn open_rollouts(&self) -> Result<Vec<OpenRollout>> {
        self.readers.run("read the open rollouts", rollouts::open).await
    }

    async fn task_ids(&self, limit: u32) -> Result<Vec<TaskId>> {
        self.readers.run("list the tasks", move |c| tasks::ids(c, limit)).await
    }

    async fn open_targets(&self) -> Result<Vec<OpenTarget>> {
        self.readers.run("read the open targets", tasks::open_targets).await
    }

    async fn record_outcomes(&self, outcomes: &[(OperationId, Outcome)], now: Millis) -> Result<Vec<OperationId>> {
        let outcomes = outcomes.to_vec();
        self.writer.run("keep outcomes", move |c| outcomes::record(c, &outcomes, now)).await
    }

    async fn new_outcomes(&self, id: TaskId, known: &[bool]) -> Result<Vec<(u32, Outcome)>> {
        let known = known.to_vec();
        self.readers.run("read outcomes of a task", move |c| outcomes::besides(c, id, &known)).await
    }

    async fn append_events(&self, agent: &AgentId, epoch: u64, events: &[Event], now: Millis) -> Result<u64> {
        let (agent, events) = (agent.clone(), events.to_vec());
        self.writer.run("keep events", move |c| events::append(c, &agent, epoch, &events, now)).await
    }

    async fn append_server_events(&self, events: &[(AgentId, Event)], now: Millis) -> Result<u64> {
        let events = events.to_vec();
        self.writer.run("keep events", move |c| events::append_own(c, events, now)).await
    }

    async fn events(&self, query: &EventQuery) -> Result<EventPage> {
        let query = query.clone();
        self.readers.run("read the events", move |c| events::list(c, &query)).await
    }

    async fn count_events(&self, query: &EventCountQuery) -> Result<BTreeMap<String, Vec<u64>>> {
        let query = query.clone();
        self.readers.run("count the events", move |c| events::count(c, &query)).await
    }

    async fn advance_uptime(&self, by: Duration) -> Result<Uptime> {
        let by = Uptime::try_from(by.as_millis()).unwrap_or(Uptime::MAX / 2);
        self.writer.run("count the uptime", move |c| retention::advance(c, by)).await
    }

    async fn note_generations(&self, seen: &[(AgentId, u64)]) -> Result<()> {
        let seen = seen.to_vec();
        self.writer.run("note what agents know", move |c| retention::note_generations(c, &seen)).await
    }

    async fn prune(&self, what: Prune) -> Result<u64> {
        const WHAT: &str = "delete what is old";
        let Prune::Specs { before } = what else {
            return self.writer.run(WHAT, move |c| retention::prune(c, what)).await;
        };
        let unused = self.readers.run(WHAT, move |c| retention::unused_specs(c, before)).await?;
        let mut deleted = 0;
        for id in unused {
            deleted += self.writer.run(WHAT, move |c| retention::delete_spec(c, id, before)).await?;
        }
        Ok(deleted)
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        let path = self.path.clone();
        self.readers.run("ask for free space", move |_| Ok(health::disk_space(&path))).await
    }

    async fn sizes(&self) -> Result<Vec<TableSize>> {
        self.readers.run("measure its tables", retention::sizes).await
    }

    async fn put_webhook(&self, webhook: Webhook) -> Result<()> {
        self.writer.run("keep a webhook", move |c| webhooks::put(c, &webhook)).await
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>> {
        self.readers.run("read the webhooks", webhooks::all).await
    }

    async fn delete_webhook(&self, id: Uuid) -> Result<bool> {
        self.writer.run("remove a webhook", move |c| webhooks::delete(c, id)).await
    }

    async fn advance_webhook(&self, id: Uuid, cursor: u64) -> Result<()> {
        self.writer.run("move a webhook's cursor", move |c| webhooks::advance(c, id, cursor)).await
    }
}
