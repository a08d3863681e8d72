//! The OpenAPI document, generated from the routes and the types themselves.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use proctor_api::{
    ErrorBody, ErrorDetail, GroupSort, HealthState, HostStatus, HostTrouble, ProcessSort, SortOrder, TargetState,
    TaskState, Trouble,
};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, Response as Answer,
    ResponseBuilder, SecurityRequirement,
};
use utoipa::{PartialSchema, ToSchema};

use super::error::Kind;

const APP: &str = "app";
const USER: &str = "user";

/// Without the paths, which come from the table of routes.
pub(super) fn frame() -> OpenApi {
    // Types that only parameters refer to are not collected from the routes.
    let mut components = ComponentsBuilder::new()
        .schema(ProcessSort::name(), ProcessSort::schema())
        .schema(GroupSort::name(), GroupSort::schema())
        .schema(HealthState::name(), HealthState::schema())
        .schema(Trouble::name(), Trouble::schema())
        .schema(HostStatus::name(), HostStatus::schema())
        .schema(HostTrouble::name(), HostTrouble::schema())
        .schema(SortOrder::name(), SortOrder::schema())
        .schema(TaskState::name(), TaskState::schema())
        .schema(TargetState::name(), TargetState::schema())
        .schema(ErrorBody::name(), ErrorBody::schema())
        .schema(ErrorDetail::name(), ErrorDetail::schema())
        .security_scheme(APP, app_scheme())
        .security_scheme(USER, user_scheme());
    for kind in Kind::ALL {
        components = components.response(kind.code(), error_answer(kind));
    }
    let info = InfoBuilder::new()
        .title("Proctor")
        .version("v1")
        .description(Some("The native API of Proctor. docs/native-api.md shows every call at work."))
        .license(Some(LicenseBuilder::new().name("MIT OR Apache-2.0").build()))
        .build();
    let either = [SecurityRequirement::new(APP, [""; 0]), SecurityRequirement::new(USER, [""; 0])];
    OpenApiBuilder::new().info(info).components(Some(components.build())).security(Some(either)).build()
}

fn app_scheme() -> SecurityScheme {
    let description = "JSON: {\"bk_app_code\": …, \"bk_app_secret\": …, \"bk_username\": …}";
    SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description("X-Bkapi-Authorization", description)))
}

fn user_scheme() -> SecurityScheme {
    let description = "A token of a user, made at /users/{name}/tokens.";
    SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build())
}

fn error_answer(kind: Kind) -> Answer {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorBody::name()))).build();
    ResponseBuilder::new().description(kind.meaning()).content("application/json", content).build()
}

/// As it is served and kept in `docs/openapi.json`.
pub fn openapi_json() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let document = super::routes_table::document();
        let mut text = serde_json::to_string_pretty(&document).expect("a document has only string keys");
        text.push('\n');
        text
    })
}

/// For everybody: it says nothing about what is here.
pub(super) async fn serve() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi_json()).into_response()
}
