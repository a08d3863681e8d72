//! Apps, users, roles, bindings, and the audit log.

use futures::Stream;
use proctor_api::{
    AppList, AppQuery, AppView, AuditFilter, AuditPage, AuditQuery, AuditVerdict, AuditView, BindingList, BindingQuery,
    BindingView, CreatedApp, CreatedUserToken, GrantList, GrantQuery, GrantView, NewApp, NewBinding, NewPassword,
    NewRole, NewUser, NewUserToken, RoleList, RoleView, SignInLink, UserChange, UserList, UserTokenList, UserTokenView,
    UserView, Who,
};
use reqwest::Method;

use crate::paging::pages;
use crate::{Client, NOTHING, Result};

impl Client {
    /// Who the caller is to the server, and what it may do.
    pub async fn whoami(&self) -> Result<Who> {
        self.get(&["whoami"], NOTHING).await
    }

    /// Who may do what where.
    pub async fn grants(&self, query: &GrantQuery) -> Result<Vec<GrantView>> {
        let list: GrantList = self.get(&["access", "grants"], query).await?;
        Ok(list.grants)
    }

    pub async fn apps(&self) -> Result<Vec<AppView>> {
        let list: AppList = self.get(&["apps"], NOTHING).await?;
        Ok(list.apps)
    }

    pub async fn create_app(&self, app: &NewApp) -> Result<CreatedApp> {
        self.send(Method::POST, &["apps"], NOTHING, app).await
    }

    /// With its bindings.
    pub async fn delete_app(&self, code: &str) -> Result<()> {
        self.remove(&["apps", code]).await
    }

    /// A new secret; the old one stops working.
    pub async fn rotate_app_secret(&self, code: &str, query: &AppQuery) -> Result<CreatedApp> {
        self.send(Method::POST, &["apps", code, "secret"], query, &serde_json::json!({})).await
    }

    pub async fn users(&self) -> Result<Vec<UserView>> {
        let list: UserList = self.get(&["users"], NOTHING).await?;
        Ok(list.users)
    }

    pub async fn create_user(&self, name: &str) -> Result<UserView> {
        self.send(Method::POST, &["users"], NOTHING, &NewUser { name: name.to_owned() }).await
    }

    pub async fn disable_user(&self, name: &str, disabled: bool) -> Result<UserView> {
        self.send(Method::PUT, &["users", name], NOTHING, &UserChange { disabled }).await
    }

    /// With its tokens and bindings.
    pub async fn delete_user(&self, name: &str) -> Result<()> {
        self.remove(&["users", name]).await
    }

    /// None removes the password. The user's sessions are closed.
    pub async fn set_user_password(&self, name: &str, password: Option<String>) -> Result<()> {
        self.done(Method::PUT, &["users", name, "password"], &NewPassword { password }).await
    }

    /// Signs the user in at the console, once.
    pub async fn sign_in_link(&self, name: &str) -> Result<SignInLink> {
        self.send(Method::POST, &["users", name, "sign-in-link"], NOTHING, &serde_json::json!({})).await
    }

    pub async fn user_tokens(&self, user: &str) -> Result<Vec<UserTokenView>> {
        let list: UserTokenList = self.get(&["users", user, "tokens"], NOTHING).await?;
        Ok(list.tokens)
    }

    pub async fn create_user_token(&self, user: &str, token: &NewUserToken) -> Result<CreatedUserToken> {
        self.send(Method::POST, &["users", user, "tokens"], NOTHING, token).await
    }

    pub async fn delete_user_token(&self, user: &str, id: &str) -> Result<()> {
        self.remove(&["users", user, "tokens", id]).await
    }

    pub async fn roles(&self) -> Result<Vec<RoleView>> {
        let list: RoleList = self.get(&["roles"], NOTHING).await?;
        Ok(list.roles)
    }

    /// Creates a role, or changes its classes.
    pub async fn put_role(&self, name: &str, classes: Vec<String>) -> Result<RoleView> {
        self.send(Method::PUT, &["roles", name], NOTHING, &NewRole { classes }).await
    }

    pub async fn delete_role(&self, name: &str) -> Result<()> {
        self.remove(&["roles", name]).await
    }

    pub async fn bindings(&self, query: &BindingQuery) -> Result<Vec<BindingView>> {
        let list: BindingList = self.get(&["bindings"], query).await?;
        Ok(list.bindings)
    }

    pub async fn create_binding(&self, binding: &NewBinding) -> Result<BindingView> {
        self.send(Method::POST, &["bindings"], NOTHING, binding).await
    }

    pub async fn delete_binding(&self, id: &str) -> Result<()> {
        self.remove(&["bindings", id]).await
    }

    /// One page of the audit log.
    pub async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        self.get(&["audit"], query).await
    }

    /// All entries that match, oldest first.
    pub fn all_audit<'a>(&'a self, filter: &'a AuditFilter) -> impl Stream<Item = Result<AuditView>> + 'a {
        pages(move |after: Option<u64>| async move {
            let query = AuditQuery {
                after,
                before: None,
                order: None,
                limit: Some(proctor_api::LIMIT_MAX),
                app: filter.app.clone(),
                user: filter.user.clone(),
                action: filter.action.clone(),
                since: filter.since,
                until: filter.until,
            };
            let page = self.audit(&query).await?;
            let next = (!page.entries.is_empty()).then_some(page.next);
            Ok((page.entries, next))
        })
    }

    /// Has the server verify the whole chain.
    pub async fn verify_audit(&self) -> Result<AuditVerdict> {
        self.get(&["audit", "verify"], NOTHING).await
    }
}
