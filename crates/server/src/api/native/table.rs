//! Every call of the native API, once: the router, the OpenAPI document and the list of what it takes
//! to call each are made from this table.

use axum::Extension;
use axum::http::Method;
use proctor_model::Class;
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa::openapi::{OpenApi, Ref, RefOr};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::caller::Needs;
use super::error::Kind;
use super::{
    apps, audit, events, groups, history, host_identity, hosts, import, openapi, operations, overview, places, pools,
    processes, registration,
};
use super::{roles, search, server, session, tasks, tokens, users, webhooks, whoami};
use crate::api::{ApiState, RouteInfo};

pub(super) const PREFIX: &str = "/api/v1";

/// What every call may answer beside its own.
const COMMON: [Kind; 7] = [
    Kind::InvalidArgument,
    Kind::Unauthenticated,
    Kind::PermissionDenied,
    Kind::NotFound,
    Kind::TooManyRequests,
    Kind::Internal,
    Kind::Unavailable,
];

/// One method on one path.
struct Route {
    /// None: for everybody who has proved who they are.
    class: Option<Class>,
    mutates: bool,
    routes: UtoipaMethodRouter<ApiState>,
}

fn look(class: Class, routes: UtoipaMethodRouter<ApiState>) -> Route {
    Route { class: Some(class), mutates: false, routes: with_errors(routes, &COMMON) }
}

fn look_at_oneself(routes: UtoipaMethodRouter<ApiState>) -> Route {
    Route { class: None, mutates: false, routes: with_errors(routes, &COMMON) }
}

fn change(class: Class, routes: UtoipaMethodRouter<ApiState>) -> Route {
    Route { class: Some(class), mutates: true, routes: with_errors(routes, &COMMON) }
}

impl Route {
    /// With an error that most calls do not know.
    fn or(self, kind: Kind) -> Self {
        Self { routes: with_errors(self.routes, &[kind]), ..self }
    }

    /// With what it needs where [`super::caller::Authenticated`] finds it.
    fn guarded(self) -> UtoipaMethodRouter<ApiState> {
        let item = self.routes.1.paths.values().next().expect("a route has a path");
        let (_, operation) = operations(item).next().expect("a path has an operation");
        let action = operation.operation_id.clone().unwrap_or_default();
        let needs = Needs { class: self.class, mutates: self.mutates, action };
        let (schemas, paths, methods) = self.routes;
        (schemas, paths, methods.layer(Extension(needs)))
    }

    fn info(&self) -> RouteInfo {
        let (path, item) = self.routes.1.paths.iter().next().expect("a route has a path");
        let (method, _) = operations(item).next().expect("a path has an operation");
        RouteInfo { method, path: format!("{PREFIX}{path}"), class: self.class, mutates: self.mutates }
    }
}

fn table() -> Vec<Route> {
    use Class::{Admin, Limits, Operate, Read, Register};
    vec![
        look(Read, routes!(overview::show)),
        look(Read, routes!(overview::map)),
        look(Read, routes!(search::search)),
        look(Read, routes!(hosts::list)),
        look(Read, routes!(hosts::show)),
        change(Admin, routes!(places::place_hosts)),
        change(Admin, routes!(import::import)),
        look(Admin, routes!(places::businesses)),
        change(Admin, routes!(places::put_business)),
        change(Admin, routes!(places::delete_business)),
        look(Admin, routes!(places::business_sets)),
        change(Admin, routes!(places::put_business_set)),
        change(Admin, routes!(places::delete_business_set)),
        change(Admin, routes!(host_identity::allow_rejoin)),
        change(Admin, routes!(host_identity::withdraw_rejoin)),
        change(Admin, routes!(host_identity::revoke)),
        change(Admin, routes!(host_identity::remove)),
        look(Admin, routes!(tokens::list)),
        change(Admin, routes!(tokens::create)),
        change(Admin, routes!(tokens::revoke)),
        look(Read, routes!(processes::list)),
        look(Read, routes!(groups::groups)),
        look(Read, routes!(groups::facets)),
        change(Register, routes!(registration::register)),
        look(Read, routes!(registration::plan)),
        look(Read, routes!(processes::show)),
        change(Register, routes!(registration::unregister)),
        look(Read, routes!(history::history)),
        look(Read, routes!(history::changes)),
        change(Operate, routes!(operations::submit)).or(Kind::Conflict),
        look(Read, routes!(tasks::list)),
        look(Read, routes!(tasks::show)),
        look(Read, routes!(tasks::targets)),
        change(Operate, routes!(tasks::cancel)).or(Kind::Conflict),
        change(Operate, routes!(tasks::resume)).or(Kind::Conflict),
        change(Operate, routes!(tasks::retry)).or(Kind::Conflict),
        look(Read, routes!(pools::list)),
        change(Limits, routes!(pools::set)),
        change(Limits, routes!(pools::delete)),
        look(Read, routes!(events::list)),
        look(Read, routes!(events::stream)),
        look(Admin, routes!(webhooks::list)),
        change(Admin, routes!(webhooks::add)),
        change(Admin, routes!(webhooks::remove)),
        look_at_oneself(routes!(whoami::whoami)),
        look(Read, routes!(server::show)),
        look(Admin, routes!(server::storage)),
        look(Admin, routes!(apps::list)),
        change(Admin, routes!(apps::create)).or(Kind::Conflict),
        change(Admin, routes!(apps::rotate)),
        change(Admin, routes!(apps::delete)).or(Kind::Conflict),
        look(Admin, routes!(users::list)),
        change(Admin, routes!(users::create)).or(Kind::Conflict),
        change(Admin, routes!(users::update)),
        change(Admin, routes!(users::delete)),
        look(Admin, routes!(users::tokens)),
        change(Admin, routes!(users::create_token)),
        change(Admin, routes!(users::delete_token)),
        change(Admin, routes!(session::set_password)),
        change(Admin, routes!(session::create_link)),
        look(Admin, routes!(roles::list)),
        change(Admin, routes!(roles::put)).or(Kind::Conflict),
        change(Admin, routes!(roles::delete)).or(Kind::Conflict),
        look(Admin, routes!(roles::bindings)),
        change(Admin, routes!(roles::bind)),
        change(Admin, routes!(roles::unbind)),
        look(Admin, routes!(audit::list)),
        look(Admin, routes!(audit::export)),
        look(Admin, routes!(audit::verify)),
    ]
}

/// What it takes to call each.
pub fn routes() -> Vec<RouteInfo> {
    table().iter().map(Route::info).collect()
}

pub(super) fn router() -> axum::Router<ApiState> {
    assembled().split_for_parts().0
}

/// With the paths as callers write them.
pub(super) fn document() -> OpenApi {
    OpenApiRouter::<ApiState>::with_openapi(openapi::frame()).nest(PREFIX, assembled()).split_for_parts().1
}

fn assembled() -> OpenApiRouter<ApiState> {
    let sessions = sessions().into_iter().map(|routes| with_errors(routes, &COMMON));
    let guarded = table().into_iter().map(Route::guarded);
    guarded.chain(sessions).fold(OpenApiRouter::new(), |router, routes| router.routes(routes))
}

/// The calls by which a browser becomes somebody; what they need is not a class, and they check it themselves.
fn sessions() -> [UtoipaMethodRouter<ApiState>; 4] {
    [
        routes!(session::sign_in),
        routes!(session::show),
        routes!(session::sign_out),
        routes!(session::change_own_password),
    ]
}

/// Adds the errors that a call may answer with, beside those that it says itself.
fn with_errors(mut routes: UtoipaMethodRouter<ApiState>, kinds: &[Kind]) -> UtoipaMethodRouter<ApiState> {
    let Paths { paths, .. } = &mut routes.1;
    for operation in paths.values_mut().flat_map(operations_mut) {
        let with_body = operation.request_body.is_some().then_some(Kind::BodyTooLarge);
        for kind in kinds.iter().copied().chain(with_body) {
            let status = kind.status().as_u16().to_string();
            let error = RefOr::Ref(Ref::from_response_name(kind.code()));
            operation.responses.responses.entry(status).or_insert(error);
        }
    }
    routes
}

fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
}

fn operations(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    let all = [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::DELETE, &item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}
