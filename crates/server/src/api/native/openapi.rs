//! The OpenAPI document, made from the routes and the types themselves.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use proctor_api::{ErrorBody, ErrorDetail, ProcessSort, TargetState};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr,
    Response as Answer, ResponseBuilder, SecurityRequirement,
};
use utoipa::{PartialSchema, ToSchema};

use super::error::Kind;

const APP: &str = "app";
const USER: &str = "user";

/// What every call may answer beside its own.
const COMMON: [Kind; 6] = [
    Kind::InvalidArgument,
    Kind::Unauthenticated,
    Kind::PermissionDenied,
    Kind::NotFound,
    Kind::TooManyRequests,
    Kind::Unavailable,
];

/// Without the paths, which come from the table of routes.
pub(super) fn frame() -> OpenApi {
    // Types that only parameters refer to are not collected from the routes.
    let mut components = ComponentsBuilder::new()
        .schema(ProcessSort::name(), ProcessSort::schema())
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

/// Adds to every operation the errors that it may answer with.
pub(super) fn add_errors(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            let with_body = operation.request_body.is_some().then_some(Kind::BodyTooLarge);
            for kind in COMMON.into_iter().chain(with_body).chain([Kind::Internal]) {
                let status = kind.status().as_u16().to_string();
                let error = RefOr::Ref(Ref::from_response_name(kind.code()));
                operation.responses.responses.entry(status).or_insert(error);
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten()
}

/// As it is served and kept in `docs/openapi.json`.
pub fn openapi_json() -> String {
    let document = super::document();
    let mut text = serde_json::to_string_pretty(&document).expect("a document has only string keys");
    text.push('\n');
    text
}

/// For everybody: it says nothing about what is here.
pub(super) async fn serve() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi_json()).into_response()
}
