//! Who may do what where: each binding, split into the classes it grants.
//!
//! Promised: whether a grant covers a target is decided by the same [`Permissions`] that calls are checked with.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use axum::Json;
use axum::extract::State;
use proctor_api::{GrantList, GrantQuery, GrantView};
use proctor_model::{
    AccessTarget, Bounds, Class, Classes, FieldError, Grant, Namespace, Permissions, RoleName, Subject, messages,
};
use proctor_store::Binding;

use super::body::Params;
use super::caller::Authenticated;
use super::hosts::{parse_host_param, unknown_host};
use super::{ApiState, Result};

/// Who may do what where.
#[utoipa::path(get, path = "/access/grants", operation_id = "grants", params(GrantQuery), tag = "access",
               responses((status = 200, body = GrantList)))]
pub(super) async fn list(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<GrantQuery>,
) -> Result<Json<GrantList>> {
    let subject: Option<Subject> = query.subject.as_deref().map(str::parse).transpose()?;
    let class: Option<Class> = query.class.as_deref().map(str::parse).transpose()?;
    let wanted = wanted(&state, &query).await?;
    let control = &state.control;
    let roles: HashMap<RoleName, Classes> =
        control.roles().await?.into_iter().map(|role| (role.name, role.classes)).collect();
    let sets = control.business_sets().await?.into_iter().map(|set| (set.id, set.members)).collect();
    let disabled: HashSet<Subject> = control.disabled_names().await?.into_iter().map(Subject::User).collect();
    let mut bindings = control.bindings().await?;
    bindings.retain(|binding| subject.as_ref().is_none_or(|subject| binding.subject == *subject));
    bindings.sort_by(|one, other| one.subject.cmp(&other.subject).then_with(|| one.scope.cmp(&other.scope)));
    let mut grants = Vec::new();
    for binding in &bindings {
        let classes = roles.get(&binding.role).copied().unwrap_or_default();
        let given = classes.iter().filter(|given| class.is_none_or(|class| class == *given));
        let covered = given.filter(|given| wanted.is_covered_by(binding, *given, &sets));
        grants.extend(covered.map(|given| view(binding, given, disabled.contains(&binding.subject))));
    }
    Ok(Json(GrantList { grants }))
}

/// Where.
enum Wanted {
    /// Wherever it is.
    Any,
    Everywhere,
    Target {
        business: Option<u64>,
        cloud: Option<u32>,
        namespace: Option<Namespace>,
    },
}

impl Wanted {
    fn is_covered_by(&self, binding: &Binding, class: Class, sets: &BTreeMap<u64, BTreeSet<u64>>) -> bool {
        let classes = [class].into_iter().collect();
        let grant = Grant { classes, scope: binding.scope.clone(), bounds: Bounds::default() };
        let permissions = Permissions::new([&grant], sets);
        match self {
            Self::Any => true,
            Self::Everywhere => permissions.allows_everywhere(class),
            Self::Target { business, cloud, namespace } => {
                let target = AccessTarget { business: *business, cloud: *cloud, namespace: namespace.as_ref() };
                permissions.allows(class, &target)
            }
        }
    }
}

async fn wanted(state: &ApiState, query: &GrantQuery) -> Result<Wanted> {
    let namespace: Option<Namespace> = query.namespace.as_deref().map(str::parse).transpose()?;
    let host = parse_host_param(query.host.as_deref())?;
    let names_target = namespace.is_some() || host.is_some() || query.business.is_some() || query.cloud.is_some();
    if query.everywhere == Some(true) {
        let excluded = "namespace, host, business, cloud";
        let together = || FieldError::new("everywhere", messages::not_together_with(excluded));
        return if names_target { Err(together().into()) } else { Ok(Wanted::Everywhere) };
    }
    let Some(host) = host else {
        let target = Wanted::Target { business: query.business, cloud: query.cloud, namespace };
        return Ok(if names_target { target } else { Wanted::Any });
    };
    if query.business.is_some() || query.cloud.is_some() {
        return Err(FieldError::new("host", messages::not_together_with("business, cloud")).into());
    }
    let site = state.control.sites(std::slice::from_ref(&host)).await?.pop().flatten();
    let site = site.ok_or_else(|| unknown_host(&host))?;
    Ok(Wanted::Target { business: site.business, cloud: Some(site.key.cloud), namespace })
}

fn view(binding: &Binding, class: Class, disabled: bool) -> GrantView {
    let bounds = if class == Class::Register { binding.bounds.clone() } else { Bounds::default() };
    GrantView {
        subject: binding.subject.to_string(),
        class: class.to_string(),
        role: binding.role.to_string(),
        scope: binding.scope.to_string(),
        binding: binding.id.to_string(),
        disabled,
        allow_users: bounds.users.iter().map(ToString::to_string).collect(),
        allow_roots: bounds.roots.iter().map(ToString::to_string).collect(),
    }
}
