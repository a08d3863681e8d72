//! Every call of the native API, once: the router, the OpenAPI document and the list of required permissions are
//! built from this table.

use axum::Extension;
use axum::http::Method;
use proctor_model::Class;
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa::openapi::{OpenApi, Ref, RefOr};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::caller::RouteRequirement;
use super::error::Kind;
use super::{
    apps, audit, authority, businesses, events, facets, grants, grid, groups, history, host_identity, hosts, import,
    logs, maintenance, openapi, operations, overview, pools, processes, registration,
};
use super::{
    change_plans, relays, roles, search, server, session, tasks, tokens, upgrades, usage, users, webhooks, whoami,
};
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

fn read_route(class: Class, routes: UtoipaMethodRouter<ApiState>) -> Route {
    Route { class: Some(class), mutates: false, routes: with_errors(routes, &COMMON) }
}

fn whoami_route(routes: UtoipaMethodRouter<ApiState>) -> Route {
    Route { class: None, mutates: false, routes: with_errors(routes, &COMMON) }
}

fn write_route(class: Class, routes: UtoipaMethodRouter<ApiState>) -> Route {
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
        let needs = RouteRequirement { class: self.class, mutates: self.mutates, action };
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
        read_route(Read, routes!(overview::show)),
        read_route(Read, routes!(overview::map)),
        read_route(Read, routes!(search::search)),
        read_route(Read, routes!(hosts::list)),
        read_route(Admin, routes!(host_identity::unserved)),
        read_route(Read, routes!(hosts::show)),
        write_route(Admin, routes!(businesses::place_hosts)),
        write_route(Admin, routes!(import::import)),
        read_route(Admin, routes!(businesses::businesses)),
        write_route(Admin, routes!(businesses::put_business)),
        write_route(Admin, routes!(businesses::delete_business)),
        read_route(Admin, routes!(businesses::business_sets)),
        write_route(Admin, routes!(businesses::put_business_set)),
        write_route(Admin, routes!(businesses::delete_business_set)),
        write_route(Admin, routes!(host_identity::allow_rejoin)),
        write_route(Admin, routes!(host_identity::withdraw_rejoin)),
        write_route(Admin, routes!(host_identity::revoke)),
        write_route(Admin, routes!(host_identity::remove)),
        write_route(Admin, routes!(maintenance::approve)).or(Kind::Conflict),
        write_route(Operate, routes!(maintenance::cordon)),
        write_route(Operate, routes!(maintenance::uncordon)),
        read_route(Admin, routes!(authority::show)),
        write_route(Admin, routes!(authority::prepare)).or(Kind::Conflict),
        write_route(Admin, routes!(authority::switch)).or(Kind::Conflict),
        write_route(Admin, routes!(authority::finish)).or(Kind::Conflict),
        write_route(Admin, routes!(authority::abort)).or(Kind::Conflict),
        read_route(Admin, routes!(relays::list)),
        write_route(Admin, routes!(relays::revoke)),
        read_route(Admin, routes!(tokens::list)),
        write_route(Admin, routes!(tokens::create)),
        write_route(Admin, routes!(tokens::revoke)),
        read_route(Admin, routes!(tokens::downloads)),
        read_route(Admin, routes!(upgrades::builds)),
        read_route(Admin, routes!(upgrades::plan)),
        read_route(Admin, routes!(upgrades::list)),
        write_route(Admin, routes!(upgrades::start)).or(Kind::Conflict),
        read_route(Admin, routes!(upgrades::show)),
        write_route(Admin, routes!(upgrades::pause)).or(Kind::Conflict),
        write_route(Admin, routes!(upgrades::resume)).or(Kind::Conflict),
        write_route(Admin, routes!(upgrades::cancel)).or(Kind::Conflict),
        read_route(Read, routes!(processes::list)),
        read_route(Read, routes!(groups::groups)),
        read_route(Read, routes!(facets::facets)),
        write_route(Register, routes!(registration::register)),
        read_route(Read, routes!(registration::plan)),
        read_route(Read, routes!(processes::show)),
        write_route(Register, routes!(registration::unregister)),
        read_route(Read, routes!(change_plans::unregister)),
        read_route(Read, routes!(history::history)),
        read_route(Read, routes!(history::changes)),
        read_route(Read, routes!(grid::of_process)),
        read_route(Read, routes!(usage::usage)),
        read_route(Operate, routes!(logs::log)),
        write_route(Operate, routes!(operations::submit)).or(Kind::Conflict),
        read_route(Read, routes!(tasks::list)),
        read_route(Read, routes!(tasks::show)),
        read_route(Read, routes!(tasks::targets)),
        read_route(Read, routes!(grid::grid)),
        write_route(Operate, routes!(tasks::cancel)).or(Kind::Conflict),
        write_route(Operate, routes!(tasks::pause)).or(Kind::Conflict),
        write_route(Operate, routes!(tasks::resume)).or(Kind::Conflict),
        write_route(Operate, routes!(tasks::retry)).or(Kind::Conflict),
        read_route(Read, routes!(pools::list)),
        write_route(Limits, routes!(pools::set)),
        read_route(Read, routes!(change_plans::set_pools)),
        write_route(Limits, routes!(pools::delete)),
        read_route(Read, routes!(change_plans::delete_pool)),
        read_route(Read, routes!(events::list)),
        read_route(Read, routes!(events::histogram)),
        read_route(Read, routes!(events::stream)),
        read_route(Admin, routes!(webhooks::list)),
        write_route(Admin, routes!(webhooks::add)),
        write_route(Admin, routes!(webhooks::remove)),
        write_route(Admin, routes!(webhooks::test)),
        whoami_route(routes!(whoami::whoami)),
        read_route(Read, routes!(server::show)),
        read_route(Admin, routes!(server::storage)),
        read_route(Admin, routes!(apps::list)),
        write_route(Admin, routes!(apps::create)).or(Kind::Conflict),
        write_route(Admin, routes!(apps::rotate)),
        write_route(Admin, routes!(apps::delete)).or(Kind::Conflict),
        read_route(Admin, routes!(users::list)),
        write_route(Admin, routes!(users::create)).or(Kind::Conflict),
        write_route(Admin, routes!(users::update)),
        write_route(Admin, routes!(users::delete)),
        read_route(Admin, routes!(users::tokens)),
        write_route(Admin, routes!(users::create_token)),
        write_route(Admin, routes!(users::delete_token)),
        write_route(Admin, routes!(session::set_password)),
        write_route(Admin, routes!(session::create_link)),
        read_route(Admin, routes!(roles::list)),
        write_route(Admin, routes!(roles::put)).or(Kind::Conflict),
        write_route(Admin, routes!(roles::delete)).or(Kind::Conflict),
        read_route(Admin, routes!(roles::bindings)),
        write_route(Admin, routes!(roles::bind)),
        write_route(Admin, routes!(roles::unbind)),
        read_route(Admin, routes!(grants::list)),
        read_route(Admin, routes!(audit::list)),
        read_route(Admin, routes!(audit::export)),
        read_route(Admin, routes!(audit::verify)),
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
        with_errors(routes!(session::change_own_password), &[Kind::Conflict]),
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
