//! How many targets may be open at once: each is held in memory until it has its outcome.
//!
//! Promised: status queries, which take no right but to read, leave room for operations; both are bounded, except
//! those of administrators. Those of rolling tasks have bounds of their own (`rollout`). Absent: parts of single callers; what is open ends within its time limit, and the number of calls of one
//! caller is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{ControlError, Result};

/// With more open targets than this, no status query is taken: twice what one call may name.
const WITH_STATUS_MAX: usize = 400_000;
/// With more than this, nothing is taken.
const TOTAL_MAX: usize = 1_000_000;

/// Targets of calls that are being stored, and not yet among the open ones. Clones share one.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenTargets(Arc<AtomicUsize>);

/// Room for the targets of a call, given back when it is dropped.
#[derive(Debug)]
pub(super) struct OpenRoom {
    coming: OpenTargets,
    targets: usize,
}

impl OpenTargets {
    /// So many are open already.
    pub(super) fn take(&self, is_open: usize, targets: usize, is_read_only: bool) -> Result<OpenRoom> {
        let room = OpenRoom { coming: self.clone(), targets };
        let coming = self.0.fetch_add(targets, Ordering::Relaxed) + targets;
        let limit = if is_read_only { WITH_STATUS_MAX } else { TOTAL_MAX };
        // A call that has nothing open takes nothing.
        if targets > 0 && is_open + coming > limit {
            return Err(ControlError::TooManyOpen { limit });
        }
        Ok(room)
    }
}

impl Drop for OpenRoom {
    fn drop(&mut self) {
        self.coming.0.fetch_sub(self.targets, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::{Bounds, OperationKind, Subject};
    use proctor_runtime::Tasks;
    use proctor_store::sqlite::SqliteStore;
    use proctor_store::{AccessStore, Binding, Enrolment, HostStore, JoinToken};
    use uuid::Uuid;

    use super::*;
    use crate::control::{
        Caller, Control, HostRef, SpecSource, Submission, SubmitOptions, SubmittedItem, SubmittedTarget,
    };

    /// A host, and somebody who may read everything.
    async fn world(dir: &std::path::Path, tasks: &Tasks) -> (Control, Caller) {
        let store = Arc::new(SqliteStore::open(&dir.join("test.db")).await.unwrap());
        let (id, secret_hash) = ("token".to_owned(), proctor_pki::hash_secret("token"));
        let token = JoinToken {
            id: id.clone(),
            secret_hash: secret_hash.clone(),
            uses: 1,
            expires_at: i64::MAX,
            cloud: None,
            business: None,
            host: None,
        };
        store.put_token(token).await.unwrap();
        let enrolment = Enrolment {
            token_id: id,
            token_secret_hash: secret_hash,
            host: "0:10.0.0.1".parse().unwrap(),
            agent: "agent-1".parse().unwrap(),
            key_fingerprint: "key".to_owned(),
            remote: None,
            needs_approval: false,
        };
        store.enrol(enrolment, 1).await.unwrap().unwrap();
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

    #[tokio::test]
    async fn a_status_query_that_finds_no_room_is_refused_and_makes_no_task() {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let (control, caller) = world(dir.path(), &tasks).await;
        let held = control.inner.budgets.open.take(0, WITH_STATUS_MAX, true).unwrap();

        let refused = control.submit(status(&caller)).await;
        let of_administrator = control.submit(status(&Caller::local("boss"))).await;
        drop(held);
        let taken = control.submit(status(&caller)).await;

        assert!(matches!(refused, Err(ControlError::TooManyOpen { limit: WITH_STATUS_MAX })), "{refused:?}");
        assert!(of_administrator.is_ok() && taken.is_ok(), "{of_administrator:?} {taken:?}");
        assert_eq!(control.inner.store.task_ids(10).await.unwrap().len(), 2);
        tasks.shutdown().cancel();
    }

    fn limit_of(taken: Result<OpenRoom>) -> Option<usize> {
        match taken {
            Err(ControlError::TooManyOpen { limit }) => Some(limit),
            Ok(_) | Err(_) => None,
        }
    }

    #[test]
    fn status_queries_leave_room_for_operations() {
        let open = OpenTargets::default();
        let largest = WITH_STATUS_MAX / 2;
        let first = open.take(0, largest, true).unwrap();
        let second = open.take(0, largest, true).unwrap();

        assert_eq!(limit_of(open.take(0, 1, true)), Some(WITH_STATUS_MAX));
        assert!(open.take(0, 0, true).is_ok(), "what reaches no host");
        assert!(open.take(0, largest, false).is_ok());
        drop((first, second));
        assert_eq!(limit_of(open.take(WITH_STATUS_MAX, 1, true)), Some(WITH_STATUS_MAX), "those are open now");
        assert!(open.take(WITH_STATUS_MAX - 1, 1, true).is_ok());
    }

    #[test]
    fn operations_are_bounded_too() {
        let open = OpenTargets::default();

        assert!(open.take(TOTAL_MAX - 1, 1, false).is_ok());
        assert_eq!(limit_of(open.take(TOTAL_MAX, 1, false)), Some(TOTAL_MAX));
        assert_eq!(open.0.load(Ordering::Relaxed), 0, "what is refused is given back");
    }
}
