//! Businesses, business sets, and which hosts belong where.

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{
    BusinessList, BusinessName, BusinessSetList, BusinessSetSetting, BusinessSetView, BusinessView, ID_MAX, Placed,
    Placement, Removed,
};
use proctor_model::{FieldError, HostKey, messages};
use proctor_store::{Business, BusinessSet};

use super::body::Body;
use super::caller::Authenticated;
use super::described;
use super::hosts::parse_hosts;
use super::{ApiState, Result};
use crate::control::{Control, HostRef};

const NAME_CHARS_MAX: usize = 128;

/// All businesses, by id.
#[utoipa::path(get, path = "/businesses", operation_id = "businesses", tag = "hosts",
               responses((status = 200, body = BusinessList)))]
pub(super) async fn businesses(_: Authenticated, State(state): State<ApiState>) -> Result<Json<BusinessList>> {
    let view = |Business { id, name }| BusinessView { id, name };
    let businesses = state.control.businesses().await?.into_iter().map(view).collect();
    Ok(Json(BusinessList { businesses }))
}

/// Creates or renames a business.
#[utoipa::path(put, path = "/businesses/{id}", operation_id = "put_business", params(("id" = u64, Path)),
               request_body = BusinessName, tag = "hosts", responses((status = 200, body = BusinessView)))]
pub(super) async fn put_business(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
    Body(body): Body<BusinessName>,
) -> Result<Json<BusinessView>> {
    let business = Business { id: parse_id(&id)?, name: checked_name(body.name)? };
    let view = BusinessView { id: business.id, name: business.name.clone() };
    let before = described::business(&state.control, business.id).await?;
    let after = format!("'{}'", business.name);
    let target = described::changed(&format!("business {}", business.id), &after, before.as_deref());
    caller
        .administer(&state, "put_business", [target], async move |control| control.put_business(business).await.map(Ok))
        .await?;
    Ok(Json(view))
}

/// Deletes a business; its hosts then belong to none.
#[utoipa::path(delete, path = "/businesses/{id}", operation_id = "delete_business", params(("id" = u64, Path)),
               tag = "hosts", responses((status = 200, body = Removed)))]
pub(super) async fn delete_business(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<Removed>> {
    let id = parse_id(&text)?;
    let before = described::business(&state.control, id).await?;
    let what = format!("business {id}");
    caller.remove(&state, "delete_business", what, before, async move |control| control.delete_business(id).await).await
}

/// All business sets, by id.
#[utoipa::path(get, path = "/business-sets", operation_id = "business_sets", tag = "hosts",
               responses((status = 200, body = BusinessSetList)))]
pub(super) async fn business_sets(_: Authenticated, State(state): State<ApiState>) -> Result<Json<BusinessSetList>> {
    let view = |BusinessSet { id, name, members }| BusinessSetView { id, name, members };
    let business_sets = state.control.business_sets().await?.into_iter().map(view).collect();
    Ok(Json(BusinessSetList { business_sets }))
}

/// Creates or replaces a business set.
#[utoipa::path(put, path = "/business-sets/{id}", operation_id = "put_business_set", params(("id" = u64, Path)),
               request_body = BusinessSetSetting, tag = "hosts", responses((status = 200, body = BusinessSetView)))]
pub(super) async fn put_business_set(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(id): Path<String>,
    Body(body): Body<BusinessSetSetting>,
) -> Result<Json<BusinessSetView>> {
    let (id, name, members) = (parse_id(&id)?, checked_name(body.name)?, body.members);
    let view = BusinessSetView { id, name: name.clone(), members: members.clone() };
    let set = BusinessSet { id, name, members };
    let before = described::business_set_of(&state.control, id).await?;
    let target = described::changed(&format!("set {id}"), &described::business_set(&set), before.as_deref());
    caller
        .administer(&state, "put_business_set", [target], async move |control| control.put_business_set(set).await)
        .await?;
    Ok(Json(view))
}

/// Deletes a business set; its businesses stay.
#[utoipa::path(delete, path = "/business-sets/{id}", operation_id = "delete_business_set",
               params(("id" = u64, Path)), tag = "hosts", responses((status = 200, body = Removed)))]
pub(super) async fn delete_business_set(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<Removed>> {
    let id = parse_id(&text)?;
    let before = described::business_set_of(&state.control, id).await?;
    let work = async move |control: Control| control.delete_business_set(id).await;
    caller.remove(&state, "delete_business_set", format!("set {id}"), before, work).await
}

/// Assigns hosts to a business, all or nothing. Hosts need not be enrolled yet.
#[utoipa::path(put, path = "/hosts/placements", operation_id = "place_hosts", request_body = Placement, tag = "hosts",
               responses((status = 200, body = Placed)))]
pub(super) async fn place_hosts(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<Placement>,
) -> Result<Json<Placed>> {
    if body.hosts.is_empty() {
        return Err(FieldError::new("hosts", messages::must_not_be_empty()).into());
    }
    let keys = keys(&state.control, &parse_hosts(&body.hosts)?).await?;
    let placements: Vec<(HostKey, Option<u64>)> = keys.into_iter().map(|key| (key, body.business)).collect();
    let hosts = placements.len();
    let targets = described::placements(&state.control, &placements).await?;
    caller
        .administer(&state, "place_hosts", targets, async move |control| control.place_hosts(&placements).await)
        .await?;
    Ok(Json(Placed { hosts }))
}

/// The addresses of the hosts; an agent id stands for the host that it serves.
async fn keys(control: &Control, hosts: &[HostRef]) -> Result<Vec<HostKey>> {
    let records = control.sites(hosts).await?;
    let one = |(index, (host, record)): (usize, (&HostRef, Option<proctor_store::HostLocation>))| {
        let unknown = || FieldError::new(format!("hosts[{index}]"), messages::agent_serves_no_host(host));
        host.key().or_else(|| record.map(|record| record.key)).ok_or_else(unknown)
    };
    Ok(hosts.iter().zip(records).enumerate().map(one).collect::<std::result::Result<_, _>>()?)
}

fn parse_id(text: &str) -> Result<u64> {
    let number = text.parse().ok().filter(|id| *id <= ID_MAX);
    let bad = || FieldError::new("id", messages::not_a_whole_number_up_to(text, ID_MAX));
    Ok(number.ok_or_else(bad)?)
}

pub(super) fn checked_name(name: String) -> std::result::Result<String, FieldError> {
    let length = name.chars().count();
    if name.trim().is_empty() || length > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        let problem = messages::must_have_visible_chars(NAME_CHARS_MAX);
        return Err(FieldError::new("name", problem));
    }
    Ok(name)
}
