//! Administration on the data directory itself, without the API: how the first app is created.
//!
//! Promised: a change leaves the same audit entries as one through the API, under the app [`LOCAL_APP`] and the
//! system user who ran the command.
//! Absent: permissions. Anyone who can write the file can do everything, and the audit log only shows what honest
//! administrators did.

use std::pin::pin;
use std::sync::Arc;

use proctor_model::{Class, Subject};
use proctor_pki::{JoinToken, OldKey};
use proctor_runtime::clock;
use proctor_store::{App, Millis, Refusal, Store, User};

use super::{AppCode, AppOptions, TokenRequest};
use crate::ServerError;
use crate::control::{AuditAction, Caller, ControlError, audited_on};
use crate::keys::{HashMatch, Keys};

/// In the audit log, instead of an app; no app has a ':' in its code.
pub const LOCAL_APP: &str = "local:cli";

/// Somebody with access to the data directory.
#[derive(Debug)]
pub struct LocalAdmin {
    store: Arc<dyn Store>,
    caller: Caller,
}

impl LocalAdmin {
    /// `user` is the system user, for the audit.
    pub fn new(store: Arc<dyn Store>, user: &str) -> Self {
        Self { store, caller: Caller { app: LOCAL_APP.to_owned(), user: user.to_owned(), ..Caller::local("") } }
    }

    pub async fn create_token(&self, request: TokenRequest) -> Result<(JoinToken, Millis), ServerError> {
        let target = request.to_string();
        self.audited("create_token", target, async { super::create_token(&self.store, request).await.map(Ok) }).await
    }

    /// Makes an app and returns its secret. An app of the same code refuses it.
    pub async fn create_app(&self, code: &AppCode, options: AppOptions) -> Result<String, ServerError> {
        let target = options.describe(code, &[]);
        self.audited("create_app", target, super::create_app(&self.store, code, options, Vec::new())).await
    }

    /// Gives an app a new secret, which is returned with the app.
    pub async fn rotate_app(&self, code: &AppCode, signing: Option<bool>) -> Result<(App, String), ServerError> {
        let target = super::describe_rotation(&code.to_string(), signing);
        self.audited("rotate_app_secret", target, super::rotate_app(&self.store, code, signing)).await
    }

    /// Makes sure that the app exists with this secret; an existing one is left alone.
    pub async fn ensure_app(&self, code: &AppCode, secret: &str, options: AppOptions) -> Result<(), ServerError> {
        let keys = Keys::load(self.store.as_ref()).await?;
        let present = self.store.app(&code.to_string()).await?;
        if present.is_some_and(|app| app.trusted == options.trusted && is_right(&keys, secret, &app)) {
            return Ok(());
        }
        let target = options.describe(code, &[]);
        let work = async { super::put_app(&self.store, code, secret, options).await.map(Ok) };
        self.audited("put_app", target, work).await
    }

    /// Makes sure that the user exists and may do everything; an existing one is left alone.
    pub async fn ensure_admin(&self, user: &str) -> Result<(), ServerError> {
        if self.store.user(user).await?.is_some() {
            return Ok(());
        }
        let created_at = clock::unix_millis();
        let made = User { name: user.to_owned(), created_at, disabled: false };
        let binding = super::all_powers(Subject::User(user.to_owned()));
        let work = async {
            Ok(match self.store.create_user(made).await? {
                Ok(()) => self.store.put_binding(binding).await?,
                Err(refusal) => Err(refusal),
            })
        };
        self.audited("create_user", format!("user {user}, admin of everything"), work).await.map(drop)
    }

    /// Replaces the key that signs commands by one of at least this number, which is returned. A server that runs on
    /// the store follows.
    pub async fn rotate_signing_key(&self, old: OldKey, number_min: u64) -> Result<u64, ServerError> {
        let target = match old {
            OldKey::Accepted => "signing key; the old one is still accepted",
            OldKey::Refused => "signing key; the old one is refused",
        };
        let work = async { crate::gateway::rotate_signing_key(&self.store, old, number_min).await.map(Ok) };
        self.audited("rotate_signing_key", target.to_owned(), work).await
    }

    /// Leaves word that the store was restored from this file.
    pub async fn restored(&self, from: &str) -> Result<(), ServerError> {
        self.audited("restore", format!("backup {from}"), async { Ok(Ok(())) }).await
    }

    /// Copies the store with `work`, to what `target` names. A store that cannot take an entry, on a full disk or
    /// from an earlier version, does not prevent a backup: then `unrecorded` gets the reason.
    pub async fn back_up<T, E: std::fmt::Display>(
        &self,
        target: String,
        work: impl Future<Output = Result<T, E>>,
        unrecorded: impl FnOnce(ControlError),
    ) -> Result<T, E> {
        let deed = AuditAction::new("backup", [Class::Admin]).on([target]);
        let mut work = pin!(work);
        let mut done = None;
        let copy = async {
            let ended = done.insert(work.as_mut().await);
            Ok(ended.as_ref().map_or_else(|error| format!("failed: {error}"), |_| "done".to_owned()))
        };
        let recorded = audited_on(self.store.as_ref(), &self.caller, &deed, copy, String::clone).await;
        if let Some(done) = done {
            return done;
        }
        if let Err(error) = recorded {
            unrecorded(error);
        }
        work.await
    }

    async fn audited<T>(
        &self,
        action: &'static str,
        target: String,
        work: impl Future<Output = Result<Result<T, Refusal>, ServerError>>,
    ) -> Result<T, ServerError> {
        let deed = AuditAction::new(action, [Class::Admin]).on([target]);
        let work = async { Ok(work.await) };
        let told = |done: &Result<Result<T, Refusal>, ServerError>| match done {
            Ok(Ok(_)) => "done".to_owned(),
            Ok(Err(refusal)) => format!("refused: {refusal}"),
            Err(error) => format!("failed: {error}"),
        };
        let done = Box::pin(audited_on(self.store.as_ref(), &self.caller, &deed, work, told)).await??;
        done.map_err(|refusal| ServerError::Refused(refusal.message()))
    }
}

fn is_right(keys: &Keys, secret: &str, app: &App) -> bool {
    keys.compare(secret, &app.secret_hash) != HashMatch::Wrong
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use proctor_store::sqlite::SqliteStore;
    use proctor_store::{AuditQuery, audit};

    use super::*;

    async fn store(dir: &tempfile::TempDir) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&dir.path().join("proctor.db")).await.unwrap())
    }

    #[tokio::test]
    async fn every_local_change_is_audited_and_a_refused_one_says_so() {
        let dir = tempfile::TempDir::new().unwrap();
        let store = store(&dir).await;
        let local = LocalAdmin::new(store.clone(), "root");
        let code: AppCode = "first".parse().unwrap();

        let secret = local.create_app(&code, AppOptions { trusted: true, signing: false }).await.unwrap();
        let again = local.create_app(&code, AppOptions::default()).await.unwrap_err();
        let (app, rotated) = local.rotate_app(&code, None).await.unwrap();
        local.create_token(TokenRequest::new(2, Duration::from_secs(60), None).unwrap()).await.unwrap();
        let unknown = local.rotate_app(&"second".parse().unwrap(), None).await.unwrap_err();

        let entries = store.audit(&AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap();
        let ended: Vec<(&str, &str)> = entries
            .iter()
            .filter(|entry| entry.draft.of.is_some())
            .map(|entry| (entry.draft.action.as_str(), entry.draft.outcome.as_str()))
            .collect();
        assert_eq!(
            ended,
            [
                ("create_app", "done"),
                ("create_app", "refused: app first exists already: rotate its secret (`proctor app rotate first`)"),
                ("rotate_app_secret", "done"),
                ("create_token", "done"),
                ("rotate_app_secret", "refused: app second is not known"),
            ]
        );
        assert!(
            entries.iter().all(|entry| (entry.draft.app.as_str(), entry.draft.user.as_str()) == (LOCAL_APP, "root"))
        );
        assert_eq!(audit::verify(&entries), Ok(()));
        assert!(app.trusted && secret != rotated);
        let texts = format!("{entries:?}");
        assert!(!texts.contains(&secret) && !texts.contains(&rotated));
        assert_eq!(again.to_string(), "app first exists already: rotate its secret (`proctor app rotate first`)");
        assert_eq!(unknown.to_string(), "app second is not known");
    }

    #[tokio::test]
    async fn a_backup_is_audited_before_it_is_made_and_made_where_that_fails() {
        let dir = tempfile::TempDir::new().unwrap();
        let store = store(&dir).await;
        let local = LocalAdmin::new(store.clone(), "root");
        let begun = async {
            let entries = store.audit(&AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap();
            Ok::<_, ServerError>(entries.iter().any(|entry| entry.draft.action == "backup"))
        };
        let path = dir.path().join("proctor.db");
        let full = SqliteStore::open_dying(&path, Arc::new(AtomicU64::new(0))).await.unwrap();
        let on_full_disk = LocalAdmin::new(Arc::new(full), "root");

        let is_known_before = local.back_up("/b, its keys readable".to_owned(), begun, |error| panic!("{error}")).await;
        let mut unrecorded = None;
        let copied = async { Ok::<_, ServerError>("copied") };
        let made = on_full_disk.back_up("/c".to_owned(), copied, |error| unrecorded = Some(error)).await;

        assert!(is_known_before.unwrap());
        assert_eq!(made.unwrap(), "copied");
        assert!(unrecorded.is_some(), "somebody is told");
        let entries = store.audit(&AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap();
        let told: Vec<_> = entries.iter().map(|entry| (&entry.draft.targets, entry.draft.outcome.as_str())).collect();
        let target = vec!["/b, its keys readable".to_owned()];
        assert_eq!(told, [(&target, ""), (&target, "done")]);
    }

    #[tokio::test]
    async fn an_administrator_is_made_once_and_never_given_back_what_was_taken() {
        let dir = tempfile::TempDir::new().unwrap();
        let store = store(&dir).await;
        let local = LocalAdmin::new(store.clone(), "root");
        local.ensure_admin("admin").await.unwrap();
        let binding = store.bindings().await.unwrap().remove(0);

        store.delete_binding(binding.id).await.unwrap();
        local.ensure_admin("admin").await.unwrap();

        assert_eq!(binding.subject, Subject::User("admin".to_owned()));
        assert_eq!(store.bindings().await.unwrap(), []);
    }

    #[tokio::test]
    async fn an_app_that_is_there_with_its_secret_is_left_alone() {
        let dir = tempfile::TempDir::new().unwrap();
        let store = store(&dir).await;
        let local = LocalAdmin::new(store.clone(), "root");
        let (code, options) = ("dev".parse().unwrap(), AppOptions { trusted: true, signing: false });
        local.ensure_app(&code, "one", options).await.unwrap();
        let binding = store.bindings().await.unwrap().remove(0);
        store.delete_binding(binding.id).await.unwrap();

        local.ensure_app(&code, "one", options).await.unwrap();

        assert_eq!(store.bindings().await.unwrap(), []);
        assert_eq!(store.audit(&AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap().len(), 2);
    }
}
