//! How many targets may be open at once: each is held in memory until it has its outcome.
//!
//! Promised: status queries, which only need permission to read, leave room for operations, and so do targets that
//! may wait an hour for offline hosts; all are bounded, except those of administrators, and one caller gets at most
//! half of each (`shares`). The count is exact: targets are counted from before they are stored until they have their
//! outcome, under the lock of what is open (`dispatch`). Those of rolling tasks have their own bounds (`rollout`),
//! and count towards the total.
//! Absent: whose those are that an earlier run of the server left open; they count towards the total.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use proctor_model::TaskId;

use super::dispatch::Dispatch;
use super::{Control, ControlError, Result};
use crate::shares::{Held, Shares};

/// With more open targets than this, no status query is taken: three times what one call may name, so that the largest
/// call fits into what one user gets of an app's half.
const WITH_STATUS_MAX: usize = 600_000;
/// With more than this, nothing is taken.
const TOTAL_MAX: usize = 1_000_000;

/// With more than this, nothing is taken that waits for offline hosts: what stays open for long leaves room to everybody.
const WITH_WAITING_MAX: usize = 300_000;

/// What a call opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opens {
    Operations,
    StatusQueries,
    /// Operations that wait for hosts that are offline.
    Waiting,
}

impl Opens {
    fn limit(self) -> usize {
        match self {
            Self::Operations => TOTAL_MAX,
            Self::StatusQueries => WITH_STATUS_MAX,
            Self::Waiting => WITH_WAITING_MAX,
        }
    }
}

/// Targets that are open or about to be, by who pays for them.
#[derive(Debug, Default)]
pub(super) struct OpenRooms {
    /// Of calls that are being stored, and not yet among the open ones.
    coming: usize,
    /// Open or coming, by account.
    held: Held,
    /// Whose the open ones of a task are, and how many.
    by_task: HashMap<TaskId, (String, usize)>,
}

impl OpenRooms {
    /// Beside so many that are open.
    pub(super) fn take(&mut self, is_open: usize, account: &str, targets: usize, opens: Opens) -> Result<()> {
        // A call that has nothing open takes nothing.
        if targets == 0 {
            return Ok(());
        }
        let limit = opens.limit();
        // All together are those that are open, whoever pays for them.
        let shares = Shares::new(u64::MAX, limit as u64 / 2);
        if let Some(full) = self.held.full(account, targets as u64, shares) {
            let (limit, is_own) = full.limit();
            return Err(ControlError::TooManyOpen { limit: usize::try_from(limit).unwrap_or(usize::MAX), is_own });
        }
        if is_open + self.coming + targets > limit {
            return Err(ControlError::TooManyOpen { limit, is_own: false });
        }
        self.coming += targets;
        self.held.add(account, targets as u64);
        Ok(())
    }

    /// Those that were coming are among the open ones now.
    fn opened(&mut self, task: TaskId, account: &str, targets: usize) {
        self.coming -= targets;
        self.by_task.insert(task, (account.to_owned(), targets));
    }

    /// They do not come after all.
    fn give_back(&mut self, account: &str, targets: usize) {
        self.coming -= targets;
        self.held.remove(account, targets as u64);
    }

    /// One of this task has its outcome.
    pub(super) fn closed(&mut self, task: TaskId) {
        let Entry::Occupied(mut of_task) = self.by_task.entry(task) else { return };
        let (account, open) = of_task.get_mut();
        *open -= 1;
        self.held.remove(account, 1);
        if *open == 0 {
            of_task.remove();
        }
    }
}

/// Room for the targets of a call, given back when it is dropped before they are open.
#[derive(Debug)]
pub(super) struct OpenRoom {
    control: Control,
    account: String,
    targets: usize,
}

impl OpenRoom {
    pub(super) fn take(control: &Control, account: String, targets: usize, opens: Opens) -> Result<Self> {
        control.inner.dispatch.lock().take_room(&account, targets, opens)?;
        Ok(Self { control: control.clone(), account, targets })
    }

    /// From now on each of the task's targets gives back its own. Under the lock, with which they are added.
    pub(super) fn opens(mut self, task: TaskId, dispatch: &mut Dispatch) {
        let targets = std::mem::take(&mut self.targets);
        if targets > 0 {
            dispatch.rooms.opened(task, &self.account, targets);
        }
    }
}

impl Drop for OpenRoom {
    fn drop(&mut self) {
        if self.targets > 0 {
            self.control.inner.dispatch.lock().rooms.give_back(&self.account, self.targets);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use proctor_model::{BootId, Bounds, OperationId, OperationKind, Outcome, Subject};
    use proctor_runtime::Tasks;
    use proctor_store::conformance::{Joining, opening_of};
    use proctor_store::sqlite::SqliteStore;
    use proctor_store::{AccessStore, Binding};
    use uuid::Uuid;

    use super::*;
    use crate::control::{
        Caller, Greeting, HostRef, SpecSource, Submission, SubmitOptions, SubmittedItem, SubmittedTarget,
    };
    use crate::shares::account_of;

    /// A host, and somebody who may read everything.
    async fn world(dir: &std::path::Path, tasks: &Tasks) -> (Control, Caller) {
        let store = Arc::new(SqliteStore::open(&dir.join("test.db")).await.unwrap());
        Joining::new("0:10.0.0.1", "agent-1").enrol(&*store).await;
        let subject = Subject::User("ana".to_owned());
        let (role, scope) = ("viewer".parse().unwrap(), "everything".parse().unwrap());
        let binding = Binding {
            id: Uuid::now_v7(),
            role,
            subject: subject.clone(),
            scope,
            bounds: Bounds::default(),
            created_at: 0,
        };
        store.put_binding(binding).await.unwrap().unwrap();
        let control = Control::start(store, tasks).await.unwrap();
        let permissions = control.permissions(std::slice::from_ref(&subject)).await.unwrap();
        let caller = Caller { app: String::new(), subjects: vec![subject], permissions, ..Caller::local("ana") };
        (control, caller)
    }

    fn greeting() -> Greeting {
        Greeting::new(opening_of(&"agent-1".parse().unwrap()), BootId::from("boot"))
    }

    fn status(caller: &Caller) -> Submission {
        let host = HostRef::Key("0:10.0.0.1".parse().unwrap());
        let item = SubmittedItem {
            key: "web/m".parse().unwrap(),
            kind: Some(OperationKind::Status),
            spec: SpecSource::Registered,
            targets: vec![SubmittedTarget { row_key: host.to_string(), host }],
        };
        Submission { caller: caller.clone(), family: "native", items: vec![item], options: SubmitOptions::default() }
    }

    fn user(name: &str) -> String {
        account_of("", name)
    }

    /// Room for so many targets, of two others.
    fn held(control: &Control, targets: usize) -> [OpenRoom; 2] {
        ["bob", "eve"].map(|name| OpenRoom::take(control, user(name), targets / 2, Opens::Operations).unwrap())
    }

    #[tokio::test]
    async fn a_status_query_that_finds_no_room_is_refused_and_makes_no_task() {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let (control, caller) = world(dir.path(), &tasks).await;
        let held = held(&control, WITH_STATUS_MAX);

        let refused = control.submit(status(&caller)).await;
        let of_administrator = control.submit(status(&Caller::local("boss"))).await;
        drop(held);
        let taken = control.submit(status(&caller)).await;

        assert!(
            matches!(refused, Err(ControlError::TooManyOpen { limit: WITH_STATUS_MAX, is_own: false })),
            "{refused:?}"
        );
        assert!(of_administrator.is_ok() && taken.is_ok(), "{of_administrator:?} {taken:?}");
        assert_eq!(control.inner.store.task_ids(10).await.unwrap().len(), 2);
        tasks.shutdown().cancel();
    }

    #[tokio::test]
    async fn what_is_open_counts_for_its_caller_until_it_has_its_outcome() {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let (control, caller) = world(dir.path(), &tasks).await;
        let _session = control.open_session(greeting()).await.unwrap().unwrap();
        let own = || control.inner.dispatch.lock().rooms.held.of_payer(&caller.account());

        let task = control.submit(status(&caller)).await.unwrap().task;
        let of_administrator = control.submit(status(&Caller::local("boss"))).await.unwrap().task;
        let while_open = own();
        let ends = |task| (OperationId::first(task, 0), Outcome::success(true));
        control.record(&[ends(task), ends(of_administrator)]).await;
        control.record(&[ends(task)]).await;

        assert_eq!((while_open, own()), (1, 0));
        let dispatch = control.inner.dispatch.lock();
        assert_eq!((dispatch.open_count(), dispatch.rooms.coming, dispatch.rooms.by_task.len()), (0, 0, 0));
        drop(dispatch);
        tasks.shutdown().cancel();
    }

    #[tokio::test]
    async fn status_queries_beyond_the_hour_are_refused_and_make_no_task() {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let (control, caller) = world(dir.path(), &tasks).await;
        let (budgets, rows) = (&control.inner.budgets, vec!["0:10.0.0.1"; 1000]);
        // Later than the calls below, so that nothing is gained until then.
        let later = Instant::now() + std::time::Duration::from_secs(3600);
        while budgets.take_status(&caller, &rows, 0, later).is_ok() {}
        while budgets.take_status(&caller, &rows[..1], 0, later).is_ok() {}

        let refused = control.submit(status(&caller)).await;
        let mut mixed = status(&caller);
        // An operation that is none, of which a call may hold some besides.
        mixed.items.push(SubmittedItem { kind: None, ..status(&caller).items.remove(0) });
        let mixed = control.submit(mixed).await;
        let of_administrator = control.submit(status(&Caller::local("boss"))).await;

        for refused in [refused, mixed] {
            assert!(matches!(refused, Err(ControlError::TooManyStatus { targets: 1, .. })), "{refused:?}");
        }
        assert!(of_administrator.is_ok(), "{of_administrator:?}");
        assert_eq!(control.inner.store.task_ids(10).await.unwrap().len(), 1);
        assert!(control.inner.dispatch.lock().rooms.held.is_empty(), "what is refused gives its room back");
        tasks.shutdown().cancel();
    }

    fn refusal(taken: Result<()>) -> Option<(usize, bool)> {
        match taken {
            Err(ControlError::TooManyOpen { limit, is_own }) => Some((limit, is_own)),
            Ok(()) | Err(_) => None,
        }
    }

    #[test]
    fn status_queries_leave_room_for_operations() {
        let (mut rooms, half) = (OpenRooms::default(), WITH_STATUS_MAX / 2);
        rooms.take(0, &user("ana"), half, Opens::StatusQueries).unwrap();
        rooms.take(0, &user("bob"), half, Opens::StatusQueries).unwrap();

        assert_eq!(refusal(rooms.take(0, &user("eve"), 1, Opens::StatusQueries)), Some((WITH_STATUS_MAX, false)));
        assert!(rooms.take(0, &user("eve"), 0, Opens::StatusQueries).is_ok(), "what reaches no host");
        assert!(rooms.take(0, &user("eve"), half, Opens::Operations).is_ok());
        for (name, targets) in [("ana", half), ("bob", half), ("eve", half)] {
            rooms.give_back(&user(name), targets);
        }
        assert_eq!(
            refusal(rooms.take(WITH_STATUS_MAX, &user("ana"), 1, Opens::StatusQueries)),
            Some((WITH_STATUS_MAX, false))
        );
        assert!(rooms.take(WITH_STATUS_MAX - 1, &user("ana"), 1, Opens::StatusQueries).is_ok());
    }

    #[test]
    fn a_caller_gets_half_and_leaves_the_other_half_to_others() {
        for opens in [Opens::StatusQueries, Opens::Waiting, Opens::Operations] {
            let limit = opens.limit();
            let mut rooms = OpenRooms::default();
            rooms.take(0, &user("ana"), limit / 2, opens).unwrap();

            assert_eq!(refusal(rooms.take(0, &user("ana"), 1, opens)), Some((limit / 2, true)));
            assert!(rooms.take(0, &user("bob"), limit / 2, opens).is_ok());
            assert_eq!(refusal(rooms.take(0, &user("eve"), 1, opens)), Some((limit, false)));
        }
    }

    #[test]
    fn what_waits_for_offline_hosts_leaves_room_to_stops_and_status_queries() {
        let mut rooms = OpenRooms::default();
        for name in ["ana", "bob"] {
            rooms.take(0, &user(name), WITH_WAITING_MAX / 2, Opens::Waiting).unwrap();
        }

        assert_eq!(refusal(rooms.take(0, &user("eve"), 1, Opens::Waiting)), Some((WITH_WAITING_MAX, false)));
        assert!(rooms.take(0, &user("eve"), 100_000, Opens::StatusQueries).is_ok());
        assert!(rooms.take(0, &user("eve"), 100_000, Opens::Operations).is_ok());
    }

    #[test]
    fn one_user_of_an_app_leaves_some_of_its_half_to_the_others() {
        let (mut rooms, largest_call) = (OpenRooms::default(), 200_000);
        let [ana, bob] = ["ana", "bob"].map(|user| account_of("app", user));

        assert!(rooms.take(0, &ana, largest_call, Opens::StatusQueries).is_ok());
        assert_eq!(refusal(rooms.take(0, &ana, 25_001, Opens::StatusQueries)), Some((225_000, true)));
        assert!(rooms.take(0, &bob, WITH_STATUS_MAX / 2 - largest_call, Opens::StatusQueries).is_ok());
        assert_eq!(refusal(rooms.take(0, &bob, 1, Opens::StatusQueries)), Some((WITH_STATUS_MAX / 2, true)));
    }

    #[test]
    fn operations_are_bounded_too() {
        let mut rooms = OpenRooms::default();

        assert!(rooms.take(TOTAL_MAX - 1, &user("ana"), 1, Opens::Operations).is_ok());
        rooms.give_back(&user("ana"), 1);
        assert_eq!(refusal(rooms.take(TOTAL_MAX, &user("ana"), 1, Opens::Operations)), Some((TOTAL_MAX, false)));
        assert!(rooms.coming == 0 && rooms.held.is_empty(), "what is refused takes nothing");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn calls_at_the_same_time_never_get_more_than_there_is() {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let (control, _) = world(dir.path(), &tasks).await;
        let part = TOTAL_MAX / 8;
        let race = |name: String| {
            let control = control.clone();
            tokio::task::spawn_blocking(move || OpenRoom::take(&control, user(&name), part, Opens::Operations).ok())
        };

        let raced = futures::future::join_all((0..64).map(|number| race(format!("user{}", number % 16)))).await;

        let taken: Vec<OpenRoom> = raced.into_iter().filter_map(std::result::Result::unwrap).collect();
        assert_eq!(taken.len(), 8);
        drop(taken);
        let dispatch = control.inner.dispatch.lock();
        assert!(dispatch.rooms.coming == 0 && dispatch.rooms.held.is_empty());
        drop(dispatch);
        tasks.shutdown().cancel();
    }
}
