//! Roles, and who has them where.

use proctor_model::{Role, RoleName};
use proctor_store::{Binding, Result};
use uuid::Uuid;

use super::Changed;
use crate::control::Control;

impl Control {
    pub(crate) async fn roles(&self) -> Result<Vec<Role>> {
        self.inner.store.roles().await
    }

    pub(crate) async fn put_role(&self, role: Role) -> Changed {
        self.inner.store.put_role(role).await
    }

    pub(crate) async fn delete_role(&self, name: &RoleName) -> Result<bool> {
        self.inner.store.delete_role(name).await
    }

    pub(crate) async fn bindings(&self) -> Result<Vec<Binding>> {
        self.inner.store.bindings().await
    }

    pub(crate) async fn put_binding(&self, binding: Binding) -> Changed<Uuid> {
        self.inner.store.put_binding(binding).await
    }

    pub(crate) async fn delete_binding(&self, id: Uuid) -> Result<bool> {
        self.inner.store.delete_binding(id).await
    }
}
