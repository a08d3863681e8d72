//! Apps, users and their credentials, businesses, roles and bindings.

use async_trait::async_trait;
use proctor_model::{HostKey, Permissions, Role, RoleName, Subject};
use rusqlite::Connection;
use uuid::Uuid;

use crate::sqlite::{SqliteStore, access, apps, businesses, nonces, users};
use crate::{
    AccessStore, App, Binding, Business, BusinessSet, Millis, Refusal, Result, User, UserCredential, UserToken,
};

#[async_trait]
impl AccessStore for SqliteStore {
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

    async fn replace_secret(&self, name: &str, old: Vec<u8>, new: Vec<u8>) -> Result<bool> {
        let name = name.to_owned();
        self.writer.run("replace a secret", move |c| apps::replace_secret(c, &name, &old, &new)).await
    }

    async fn control_epoch(&self) -> Result<u64> {
        self.readers.run("read the epoch of the control plane", apps::control_epoch).await
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

    async fn disabled_names(&self) -> Result<Vec<String>> {
        self.readers.run("read the disabled names", users::disabled_names).await
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
}
