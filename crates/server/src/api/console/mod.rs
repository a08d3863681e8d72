//! The web console's files, built into the program.
//!
//! Promised: every file is served compressed, with an ETag; files under `/assets/` have a hash in their name and are
//! cached forever; every other path that a browser opens gets the console's page, which has its own routes; the page
//! can load nothing from elsewhere and cannot be framed.
//! Absent: data (the page uses the native API), and responses for programs: a client that does not ask for HTML gets
//! the usual 404.

use std::collections::HashMap;
use std::io::Read;
use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;

const PAGE: &str = "index.html";
const ASSETS: &str = "assets/";
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

/// Ant Design writes its styles at run time, so inline styles are allowed; inline scripts are not.
const POLICY: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
             font-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
             frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// One file of the console, compressed.
struct File {
    gzip: &'static [u8],
    etag: String,
}

/// Written by the build script.
static TABLE: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/console/files.rs"));

static FILES: LazyLock<HashMap<&'static str, File>> = LazyLock::new(|| {
    let file = |gzip: &'static [u8]| File { gzip, etag: format!("\"{}\"", &blake3::hash(gzip).to_hex()[..32]) };
    TABLE.iter().map(|(name, gzip)| (*name, file(gzip))).collect()
});

/// What a browser gets here; None if the request is not for the console.
pub(super) fn answer(request: &Request) -> Option<Response> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let path = request.uri().path().trim_start_matches('/');
    if let Some(file) = FILES.get(path) {
        return Some(serve(path, file, request.headers()));
    }
    let is_page = !path.starts_with(ASSETS) && !path.starts_with("api/") && wants_html(request.headers());
    is_page.then(|| serve(PAGE, &FILES[PAGE], request.headers()))
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

fn serve(path: &str, file: &File, headers: &HeaderMap) -> Response {
    let caching = if path.starts_with(ASSETS) { FOREVER } else { ASK_AGAIN };
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| names(known, &file.etag));
    let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { content(path, file, headers) };
    let head = response.headers_mut();
    head.insert(header::CACHE_CONTROL, caching);
    head.insert(header::ETAG, HeaderValue::try_from(&file.etag).expect("hexadecimal digits are ASCII"));
    head.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    head.extend(POLICY.map(|(name, value)| (Some(name), value)));
    response
}

/// A browser accepts gzip; for clients that do not, it is decompressed.
fn content(path: &str, file: &File, headers: &HeaderMap) -> Response {
    let takes_gzip = headers.get(header::ACCEPT_ENCODING).and_then(|taken| taken.to_str().ok());
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(content_type(path)));
    if takes_gzip.is_some_and(|taken| taken.contains("gzip")) {
        return (
            [kind, (header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))],
            Body::from(Bytes::from_static(file.gzip)),
        )
            .into_response();
    }
    let mut plain = Vec::new();
    GzDecoder::new(file.gzip).read_to_end(&mut plain).expect("the build compressed it");
    ([kind], plain).into_response()
}

fn names(known: &HeaderValue, etag: &str) -> bool {
    let known = known.to_str().unwrap_or_default();
    known.split(',').map(|one| one.trim().trim_start_matches("W/")).any(|one| one == etag || one == "*")
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        Some(_) | None => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, headers: &[(&'static str, &str)]) -> Option<Response> {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(&request.body(Body::empty()).unwrap())
    }

    const BROWSER: [(&str, &str); 2] = [("accept", "text/html,*/*;q=0.8"), ("accept-encoding", "gzip, br")];

    #[test]
    fn a_browser_gets_the_page_wherever_it_is_and_a_program_does_not() {
        for path in ["/", "/index.html", "/processes/web/nginx?tab=spec", "/sign-in"] {
            let response = get(path, &BROWSER).unwrap();

            assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
            assert_eq!(response.headers()[header::CACHE_CONTROL], "no-cache");
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
        }
        assert!(get("/processes", &[("accept", "application/json")]).is_none());
        assert!(get("/processes", &[]).is_none());
        assert!(get("/assets/missing.js", &BROWSER).is_none());
        assert!(get("/api/v1/nothing", &BROWSER).is_none());
        let posted = Request::post("/").header("accept", "text/html").body(Body::empty()).unwrap();
        assert!(answer(&posted).is_none());
    }

    #[test]
    fn a_page_may_load_nothing_from_elsewhere() {
        let response = get("/", &BROWSER).unwrap();

        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self'; script-src 'self';"), "{policy}");
        assert!(policy.ends_with("frame-ancestors 'none'"), "{policy}");
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }

    #[tokio::test]
    async fn a_known_page_is_not_sent_again_and_a_plain_client_gets_plain_text() {
        let first = get("/", &BROWSER).unwrap();
        let etag = first.headers()[header::ETAG].to_str().unwrap().to_owned();

        let again = get("/", &[("accept", "text/html"), ("if-none-match", &etag)]).unwrap();
        let plain = get("/", &[("accept", "text/html")]).unwrap();

        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(plain.headers().get(header::CONTENT_ENCODING).is_none());
        let body = axum::body::to_bytes(plain.into_body(), 1 << 20).await.unwrap();
        assert!(body.to_ascii_lowercase().starts_with(b"<!doctype html>"));
    }
}
