//! The agent program for new hosts, served by the server itself.
//!
//! Promised: only plain files directly in the download directory, with simple names, are served, to anybody: they are
//! not secret, and a new host has no credentials yet. `NAME.sha256` is the digest, `NAME.sig` the authority's
//! signature (ECDSA P-256 with SHA-256, DER) of the file, which is valid only for a file, `authority.pem` the
//! certificate to verify it with. A file is read in chunks, also to sign it, by a bounded number of callers at once
//! (`slots`).
//! Absent: trust in the transport; new hosts pin the digest, which the native API shows to administrators
//! (`proctor join-command`).

mod slots;

use proctor_model::messages;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use proctor_pki::{Authority, FileDigest};

use super::ApiState;
use super::auth::Credentials;
use super::connections::share_of;
use super::error::{ApiError, Problem};
use super::family::Family;
use super::request::{known, origin_of};
use super::response::ResponseWriter;
use slots::{Downloader, Slots};

const FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Files that are listed.
const FILES_MAX: usize = 64;
/// Files whose digests are kept: whoever asks again for one beyond them has it read again.
const DESCRIBED_MAX: usize = 1024;
const NAME_CHARS_MAX: usize = 100;
const AUTHORITY: &str = "authority.pem";

/// What new hosts may fetch.
#[derive(Debug)]
pub(super) struct Downloads {
    dir: Option<PathBuf>,
    slots: Arc<Slots>,
    known: Mutex<HashMap<String, (Stamp, Arc<Described>)>>,
    describing: tokio::sync::Mutex<()>,
}

/// By these a file is known to be the same, and signed by the same authority.
type Stamp = (u64, Option<SystemTime>, String);

/// A file that is served.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// In hexadecimal digits.
    pub(super) sha256: String,
    pub(super) signature: Vec<u8>,
}

impl Downloads {
    pub(super) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, slots: Arc::default(), known: Mutex::default(), describing: tokio::sync::Mutex::default() }
    }

    /// The path of a file that may be served.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '~');
        let is_simple = !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(is_plain);
        let path = self.dir.as_ref().filter(|_| is_simple && !name.starts_with('.'))?.join(name);
        // Not what a symlink leads to: only what an administrator put there.
        let metadata = std::fs::symlink_metadata(&path).ok()?;
        (metadata.is_file() && metadata.len() <= FILE_BYTES_MAX).then_some(path)
    }

    /// All files that are served, by name.
    pub(super) async fn list(&self, state: &ApiState) -> Result<Vec<Arc<Described>>, ApiError> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names.truncate(FILES_MAX);
        let mut files = Vec::new();
        for name in names {
            files.extend(self.describe(state, &name).await?);
        }
        Ok(files)
    }

    /// Reads a file once for each change of it.
    async fn describe(&self, state: &ApiState, name: &str) -> Result<Option<Arc<Described>>, ApiError> {
        let Some(path) = self.path(name) else { return Ok(None) };
        let unreadable = |error: &dyn std::fmt::Display| {
            ApiError::new(Problem::Internal, messages::in_field(name, messages::because(error)))
        };
        let believed = state.control.authorities().await.map_err(|error| unreadable(&error))?;
        let Some(stamp) = stamp(&path, believed.authorities.current()) else { return Ok(None) };
        if let Some((_, known)) = self.known.lock().get(name).filter(|(known, _)| *known == stamp) {
            return Ok(Some(known.clone()));
        }
        // One at a time, whoever asks: a large file keeps a disk busy.
        let _turn = self.describing.lock().await;
        if let Some((_, known)) = self.known.lock().get(name).filter(|(known, _)| *known == stamp) {
            return Ok(Some(known.clone()));
        }
        let of_name = name.to_owned();
        let authority = believed.clone();
        let read = move || read_file(&path, of_name, authority.authorities.current());
        let described = tokio::task::spawn_blocking(read).await;
        let described = described.map_err(|error| unreadable(&error))?.map_err(|error| unreadable(&error))?;
        let described = Arc::new(described);
        let mut known = self.known.lock();
        if known.len() >= DESCRIBED_MAX {
            known.retain(|name, _| self.path(name).is_some());
        }
        if known.len() < DESCRIBED_MAX || known.contains_key(name) {
            known.insert(name.to_owned(), (stamp, described.clone()));
        }
        Ok(Some(described))
    }
}

fn stamp(path: &FilePath, authority: &Authority) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok(), authority.fingerprint()))
}

fn read_file(path: &FilePath, name: String, authority: &Authority) -> std::io::Result<Described> {
    let digest = FileDigest::of(File::open(path)?.take(FILE_BYTES_MAX))?;
    let signature = authority.sign_file(&digest).map_err(std::io::Error::other)?;
    Ok(Described { name, bytes: digest.bytes(), sha256: digest.sha256(), signature })
}

pub(super) async fn download(State(state): State<ApiState>, Path(name): Path<String>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    match answer(&state, &name, &head).await {
        Ok(response) => response,
        Err(error) => ResponseWriter::new(Family::of_path("/api/v1"), &head.headers).failure(&error),
    }
}

/// Credentials are optional, so wrong ones count as an unknown client's.
async fn downloader(state: &ApiState, head: &Parts) -> Downloader {
    let origin = origin_of(&head.headers, &head.extensions);
    let peer = origin.remote;
    let is_administrator = match Credentials::from_headers(&head.headers) {
        Ok(Some(shown)) => known(state, &shown, &head.extensions, origin).await.is_ok_and(|caller| caller.is_admin()),
        Ok(None) | Err(_) => false,
    };
    let is_host = match peer {
        Some(address) if !is_administrator => state.control.is_address_of_host(address).await,
        Some(_) | None => false,
    };
    Downloader { peer: peer.map(share_of), is_known: is_administrator || is_host }
}

async fn answer(state: &ApiState, name: &str, head: &Parts) -> Result<Response, ApiError> {
    let downloads = &state.border.downloads;
    let unknown = || ApiError::new(Problem::NotFound, messages::no_file_to_download(name));
    if name == AUTHORITY {
        let believed = state.control.authorities().await;
        let believed = believed.map_err(|error| ApiError::new(Problem::Internal, messages::because(error)))?;
        return Ok(text(believed.authorities.current().certificate_pem().to_owned()));
    }
    if let Some(file) = name.strip_suffix(".sha256") {
        let described = downloads.describe(state, file).await?.ok_or_else(unknown)?;
        return Ok(text(format!("{}  {}\n", described.sha256, described.name)));
    }
    if let Some(file) = name.strip_suffix(".sig") {
        let described = downloads.describe(state, file).await?.ok_or_else(unknown)?;
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
        return Ok((kind, described.signature.clone()).into_response());
    }
    let path = downloads.path(name).ok_or_else(unknown)?;
    let Some(download) = downloads.slots.take(downloader(state, head).await, Instant::now()) else {
        let wait = [(header::RETRY_AFTER, HeaderValue::from_static("5"))];
        return Ok((StatusCode::SERVICE_UNAVAILABLE, wait, "too many downloads at once: try again").into_response());
    };
    let file = tokio::fs::File::open(&path).await.map_err(|_| unknown())?;
    let length = file.metadata().await.map_err(|_| unknown())?.len();
    download.begin(file, Instant::now());
    let pieces = futures::stream::try_unfold(download, |download| async move {
        Ok::<_, std::io::Error>(download.piece().await?.map(|piece| (piece, download)))
    });
    let head = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ];
    Ok((head, Body::from_stream(pieces)).into_response())
}

fn text(text: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))], text).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proctor_runtime::Tasks;
    use proctor_store::sqlite::SqliteStore;

    use super::*;
    use crate::api::Settings;
    use crate::control::Control;

    #[test]
    fn only_plain_files_with_simple_names_are_served() {
        let dir = tempfile::tempdir().unwrap();
        let (downloads, inside) = (dir.path().join("downloads"), dir.path().join("secret"));
        std::fs::create_dir_all(downloads.join("folder")).unwrap();
        std::fs::write(&inside, "x").unwrap();
        std::fs::write(downloads.join("proctor-agent-x86_64"), "x").unwrap();
        std::fs::write(downloads.join(".hidden"), "x").unwrap();
        std::os::unix::fs::symlink(&inside, downloads.join("link")).unwrap();
        let served = Downloads::new(Some(downloads));

        assert!(served.path("proctor-agent-x86_64").is_some());
        for name in ["", ".", "..", "../secret", "/etc/passwd", "folder", "link", ".hidden", "absent", "a b", "a%2fb"] {
            assert_eq!(served.path(name), None, "{name}");
        }
        assert_eq!(Downloads::new(None).path("proctor-agent-x86_64"), None);
    }

    #[tokio::test]
    async fn a_file_is_read_once_however_many_there_are() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..=FILES_MAX {
            std::fs::write(dir.path().join(format!("agent-{number}")), "x").unwrap();
        }
        let store = SqliteStore::open(&dir.path().join(".test.db")).await.unwrap();
        let control = Control::start(Arc::new(store), &Tasks::default()).await.unwrap();
        let settings = Settings { download_dir: Some(dir.path().to_owned()), ..Settings::default() };
        let state = ApiState::new(control, None, settings);
        let downloads = &state.border.downloads;

        for number in 0..=FILES_MAX {
            let name = format!("agent-{number}");
            let first = downloads.describe(&state, &name).await.unwrap().unwrap();
            let again = downloads.describe(&state, &name).await.unwrap().unwrap();

            assert!(Arc::ptr_eq(&first, &again), "{name}");
        }
    }

    #[tokio::test]
    async fn files_are_described_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("agent"), "x").unwrap();
        let store = SqliteStore::open(&dir.path().join("test.db")).await.unwrap();
        let control = Control::start(Arc::new(store), &Tasks::default()).await.unwrap();
        let settings = Settings { download_dir: Some(dir.path().to_owned()), ..Settings::default() };
        let state = ApiState::new(control, None, settings);
        let downloads = &state.border.downloads;
        let of_agent = || downloads.describe(&state, "agent");

        let turn = downloads.describing.lock().await;
        let early = tokio::time::timeout(Duration::from_secs(1), of_agent()).await;
        drop(turn);

        assert!(early.is_err(), "another file is being read");
        assert_eq!(of_agent().await.unwrap().unwrap().bytes, 1);
    }
}
