//! Who may do what: apps and secrets, users with tokens and sessions, businesses with their hosts, roles and
//! bindings.
//!
//! Promised: what a removed thing owned goes with it, in the same transaction. Absent: hashing and sealing;
//! secrets arrive here as they are kept.

use async_trait::async_trait;
use proctor_model::{HostKey, Permissions, Role, RoleName, Subject};
use uuid::Uuid;

use crate::{App, Binding, Business, BusinessSet, Millis, Refusal, Result, User, UserCredential, UserToken};

/// Apps, users and their credentials, businesses, roles and bindings.
#[async_trait]
pub trait AccessStore: Send + Sync + std::fmt::Debug {
    // Apps and secrets.

    /// Inserts the app, or replaces the one of the same code.
    async fn put_app(&self, app: App) -> Result<()>;
    /// Inserts the app with its bindings, all or nothing. One of the same code refuses it, and so does
    /// a binding that [`Self::put_binding`] would refuse.
    async fn create_app(&self, app: App, bindings: &[Binding]) -> Result<std::result::Result<(), Refusal>>;
    async fn app(&self, code: &str) -> Result<Option<App>>;
    /// Replaces the hash of the app's secret if it is `old`; false where it is not, or the app is gone.
    async fn renew_app_hash(&self, code: &str, old: &str, new: &str) -> Result<bool>;
    /// Replaces the secret of an app and nothing else of it, and returns the app; None for one that is not there.
    async fn set_app_secret(
        &self,
        code: &str,
        secret_hash: String,
        sealed_secret: Option<Vec<u8>>,
    ) -> Result<Option<App>>;
    /// Sorted by code.
    async fn apps(&self) -> Result<Vec<App>>;
    /// Whether it was there. Its bindings go with it.
    async fn delete_app(&self, code: &str) -> Result<bool>;
    /// The value under `name`, which is `value` if nothing was there: the first writer wins.
    async fn secret_or_insert(&self, name: &str, value: Vec<u8>) -> Result<Vec<u8>>;
    async fn secret(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Replaces a secret if it is `old`; false where it is not.
    async fn replace_secret(&self, name: &str, old: Vec<u8>, new: Vec<u8>) -> Result<bool>;
    /// Rises with every restore, and so tells a control plane from an older copy of it.
    async fn control_epoch(&self) -> Result<u64>;

    // Businesses.

    /// Inserts the business, or renames the one of the same id.
    async fn put_business(&self, business: Business) -> Result<()>;
    /// Sorted by id.
    async fn businesses(&self) -> Result<Vec<Business>>;
    /// Whether it was there. Its hosts belong to nobody then, sets lose it, join tokens no longer
    /// place hosts there, and the bindings on it go with it.
    async fn delete_business(&self, id: u64) -> Result<bool>;
    /// Inserts the set, or replaces the one of the same id. All members must be there.
    async fn put_business_set(&self, set: BusinessSet) -> Result<std::result::Result<(), Refusal>>;
    /// Sorted by id.
    async fn business_sets(&self) -> Result<Vec<BusinessSet>>;
    /// Whether it was there. The bindings on it go with it.
    async fn delete_business_set(&self, id: u64) -> Result<bool>;
    /// Says which business each host belongs to (None: to nobody), also before it enrols. By `cloud`
    /// and `ip`; of two for one host the last counts. A business that is not there refuses them all.
    async fn place_hosts(&self, placements: &[(HostKey, Option<u64>)]) -> Result<std::result::Result<(), Refusal>>;
    /// Where addresses are placed, in order, whether or not they have enrolled.
    async fn placements(&self, hosts: &[HostKey]) -> Result<Vec<Option<u64>>>;
    /// As [`Self::put_business`] for each of the businesses and then [`Self::place_hosts`], all or nothing.
    async fn import_hosts(
        &self,
        businesses: &[Business],
        placements: &[(HostKey, Option<u64>)],
    ) -> Result<std::result::Result<(), Refusal>>;

    // Access.

    /// Inserts the role, or replaces the one of the same name.
    async fn put_role(&self, role: Role) -> Result<std::result::Result<(), Refusal>>;
    /// The built-in ones first, then the others by name.
    async fn roles(&self) -> Result<Vec<Role>>;
    /// Whether it was there; a built-in one never goes. Its bindings go with it.
    async fn delete_role(&self, name: &RoleName) -> Result<bool>;
    /// Keeps the binding and returns its id. One that gives the same role to the same subject in the
    /// same scope within the same bounds stays as it is, and its id is returned. The role, and a business or set that the
    /// scope names, must be there; the subject need not.
    async fn put_binding(&self, binding: Binding) -> Result<std::result::Result<Uuid, Refusal>>;
    /// The oldest first.
    async fn bindings(&self) -> Result<Vec<Binding>>;
    /// Whether it was there.
    async fn delete_binding(&self, id: Uuid) -> Result<bool>;
    /// All that the bindings of these subjects allow together. A disabled user among them refuses it: nobody
    /// acts in the name of one, whatever else vouches for the call.
    async fn permissions(&self, subjects: &[Subject]) -> Result<std::result::Result<Permissions, Refusal>>;
    /// Takes the nonce of a signed request until then; false where it is taken already. Those whose time is
    /// over are forgotten.
    async fn take_nonce(&self, fingerprint: [u8; 32], until: Millis, now: Millis) -> Result<bool>;

    // Users.

    /// Inserts the user; one of the same name refuses it. What was done in this name before is not the user's.
    async fn create_user(&self, user: User) -> Result<std::result::Result<(), Refusal>>;
    /// Says whether the user is disabled, and returns it; None for one that is not there. The tokens stay;
    /// disabling closes the user's sessions.
    async fn disable_user(&self, name: &str, disabled: bool) -> Result<Option<User>>;
    async fn user(&self, name: &str) -> Result<Option<User>>;
    /// Sorted by name.
    async fn users(&self) -> Result<Vec<User>>;
    /// The names that nobody may act in: of users that are disabled, or were when they were removed. Sorted.
    async fn disabled_names(&self) -> Result<Vec<String>>;
    /// Whether it was there. The user's tokens and bindings go with it.
    async fn delete_user(&self, name: &str) -> Result<bool>;
    /// Inserts the token, or replaces the one of the same id. The user must be there, and the parent of a
    /// session too, or [`Refusal::UnknownToken`]. Of sessions the newest [`SESSIONS_PER_USER_MAX`](crate::SESSIONS_PER_USER_MAX) are kept.
    async fn put_user_token(&self, token: UserToken) -> Result<std::result::Result<(), Refusal>>;
    /// As [`Self::put_user_token`], for a session that was opened with a password or a link only while the
    /// credential is still the present one, or [`Refusal::CredentialChanged`]. The user must not be disabled.
    async fn put_session(
        &self,
        token: UserToken,
        credential: Option<UserCredential>,
    ) -> Result<std::result::Result<(), Refusal>>;
    /// Of one user or of all, the oldest first.
    async fn user_tokens(&self, user: Option<&str>) -> Result<Vec<UserToken>>;
    async fn user_token(&self, id: &str) -> Result<Option<UserToken>>;
    /// Whether it was there. Sessions that were opened with it go too.
    async fn delete_user_token(&self, id: &str) -> Result<bool>;
    /// Sets the hash of the user's password, or removes it; either closes the user's sessions. With an expected
    /// credential only while that is the present one, or [`Refusal::CredentialChanged`].
    async fn set_user_password(
        &self,
        name: &str,
        hash: Option<String>,
        expected: Option<UserCredential>,
        now: Millis,
    ) -> Result<std::result::Result<(), Refusal>>;
    /// None for a user that is not there.
    async fn user_credential(&self, name: &str) -> Result<Option<UserCredential>>;
}
