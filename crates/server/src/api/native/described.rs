//! Describes administrators' changes for the audit log: what was there before, and what replaces it.
//!
//! Promised: no secret is in a description, and of an address only what is shown elsewhere.
//! Absent: the moment of the change; somebody else may have changed the same thing in between, and has their own
//! entry.

use proctor_model::{Classes, EventKind, HostKey, Namespace, RoleName, Subject};
use proctor_store::{Binding, BusinessSet, JoinTokenRecord, RelayToken, Webhook};
use uuid::Uuid;

use super::Result;
use crate::control::Control;
use crate::webhooks::WebhookUrl;

/// `what: after, was before`.
pub(super) fn changed(what: &str, after: &str, before: Option<&str>) -> String {
    match before {
        Some(before) => format!("{what}: {after}, was {before}"),
        None => format!("{what}: {after}, new"),
    }
}

pub(super) fn binding(binding: &Binding) -> String {
    let Binding { subject, role, scope, bounds, .. } = binding;
    let within = if bounds.is_unbounded() { String::new() } else { format!(" within {bounds}") };
    format!("{subject} as {role} on {scope}{within}")
}

pub(super) async fn binding_of(control: &Control, id: Uuid) -> Result<Option<String>> {
    Ok(control.bindings().await?.iter().find(|binding| binding.id == id).map(binding))
}

/// Those that go with their role or subject.
async fn bindings_where(control: &Control, is_meant: impl Fn(&Binding) -> bool) -> Result<String> {
    let bindings = control.bindings().await?;
    let named: Vec<String> = bindings.iter().filter(|binding| is_meant(binding)).map(binding).collect();
    Ok(if named.is_empty() { "no bindings".to_owned() } else { format!("bindings {}", named.join("; ")) })
}

pub(super) async fn app(control: &Control, code: &str) -> Result<Option<String>> {
    let Some(app) = control.app(code).await? else { return Ok(None) };
    let trust = if app.trusted { "trusted" } else { "not trusted" };
    let subject = Subject::App(app.code);
    Ok(Some(format!("{trust}, {}", bindings_where(control, |binding| binding.subject == subject).await?)))
}

pub(super) async fn user(control: &Control, name: &str) -> Result<Option<String>> {
    let Some(user) = control.user(name).await? else { return Ok(None) };
    let state = if user.disabled { "disabled" } else { "enabled" };
    let tokens = control.user_tokens(Some(name)).await?.len();
    let subject = Subject::User(user.name);
    let bindings = bindings_where(control, |binding| binding.subject == subject).await?;
    Ok(Some(format!("{state}, {tokens} tokens, {bindings}")))
}

pub(super) async fn user_token(control: &Control, id: &str) -> Result<Option<String>> {
    Ok(control.user_token(id).await?.map(|token| format!("note '{}'", token.note)))
}

pub(super) fn classes(classes: Classes) -> String {
    classes.iter().map(|class| class.to_string()).collect::<Vec<_>>().join(" ")
}

pub(super) async fn role_classes(control: &Control, name: &RoleName) -> Result<Option<String>> {
    Ok(control.roles().await?.into_iter().find(|role| role.name == *name).map(|role| classes(role.classes)))
}

pub(super) async fn role(control: &Control, name: &RoleName) -> Result<Option<String>> {
    let Some(classes) = role_classes(control, name).await? else { return Ok(None) };
    Ok(Some(format!("{classes}, {}", bindings_where(control, |binding| binding.role == *name).await?)))
}

pub(super) async fn business(control: &Control, id: u64) -> Result<Option<String>> {
    let businesses = control.businesses().await?;
    Ok(businesses.into_iter().find(|business| business.id == id).map(|business| format!("'{}'", business.name)))
}

pub(super) fn business_set(set: &BusinessSet) -> String {
    let members: Vec<String> = set.members.iter().map(ToString::to_string).collect();
    let members = if members.is_empty() { "none".to_owned() } else { members.join(" ") };
    format!("'{}' with businesses {members}", set.name)
}

pub(super) async fn business_set_of(control: &Control, id: u64) -> Result<Option<String>> {
    Ok(control.business_sets().await?.iter().find(|set| set.id == id).map(business_set))
}

pub(super) async fn join_token(control: &Control, id: &str) -> Result<Option<String>> {
    let describe = |JoinTokenRecord { token, used, .. }: &JoinTokenRecord| {
        let business = token.business.map_or_else(|| "none".to_owned(), |id| id.to_string());
        let host = token.host.map_or_else(|| "any".to_owned(), |host| host.to_string());
        format!("{used} of {} uses, business {business}, host {host}", token.uses)
    };
    if let Some(found) = control.tokens().await?.iter().find(|record| record.token.id == id) {
        return Ok(Some(describe(found)));
    }
    let of_relays = control.relay_tokens().await?;
    let found = of_relays.iter().find(|record| record.token.id == id);
    Ok(found.map(|record| {
        let RelayToken { uses, cloud, .. } = &record.token;
        format!("{} of {uses} uses, for relays of cloud area {cloud}", record.used)
    }))
}

pub(super) fn webhook(webhook: &Webhook) -> String {
    let url = webhook.url.parse::<WebhookUrl>();
    subscription(url.ok().as_ref(), &webhook.kinds, webhook.namespace.as_ref())
}

/// Without path and query of the address, which often hold a key.
pub(super) fn subscription(url: Option<&WebhookUrl>, kinds: &[EventKind], namespace: Option<&Namespace>) -> String {
    let url = url.map_or_else(|| "an unusable address".to_owned(), WebhookUrl::shown);
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let kinds = if kinds.is_empty() { "all events".to_owned() } else { kinds.join(" ") };
    let of = namespace.map_or_else(String::new, |namespace| format!(" of namespace {namespace}"));
    format!("{url}, {kinds}{of}")
}

/// Placements, each with the one before it.
pub(super) async fn placements(control: &Control, placements: &[(HostKey, Option<u64>)]) -> Result<Vec<String>> {
    let keys: Vec<HostKey> = placements.iter().map(|(key, _)| *key).collect();
    let named =
        |business: Option<u64>| business.map_or_else(|| "no business".to_owned(), |id| format!("business {id}"));
    let before = control.placements(&keys).await?;
    let one = |((key, after), before): (&(HostKey, Option<u64>), Option<u64>)| {
        format!("{key} to {}, was in {}", named(*after), named(before))
    };
    Ok(placements.iter().zip(before).map(one).collect())
}
