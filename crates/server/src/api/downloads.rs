//! The agent program for new hosts, served by the server itself.
//!
//! Promised: only plain files directly in the download directory, with simple names, are served, to anybody: they are no
//! secret, and a new host has nothing to show yet. `NAME.sha256` is the digest, `NAME.sig` the authority's signature
//! (ECDSA P-256 with SHA-256, DER) of the file, `authority.pem` the certificate to check it with. A file is read in
//! pieces, by at most [`DOWNLOADS_MAX`] callers at once. Absent: trust in this way of transport; who joins a host pins
//! the digest, which the native API tells administrators (`proctor join-command`).

use std::collections::HashMap;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use proctor_pki::{Authority, hex};
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;

use super::ApiState;
use super::error::{ApiError, Problem};
use super::family::Family;
use super::response::ResponseWriter;
use crate::gateway;

/// Each takes a descriptor and a buffer; a fleet that joins at once waits its turn and asks again.
const DOWNLOADS_MAX: usize = 32;
const PIECE_BYTES: usize = 64 * 1024;
const FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;
const FILES_MAX: usize = 64;
const NAME_CHARS_MAX: usize = 100;
const AUTHORITY: &str = "authority.pem";

/// What new hosts may fetch.
#[derive(Debug)]
pub(super) struct Downloads {
    dir: Option<PathBuf>,
    callers: Arc<Semaphore>,
    known: Mutex<HashMap<String, (Stamp, Arc<Described>)>>,
    describing: tokio::sync::Mutex<()>,
}

/// By these a file is known to be the same.
type Stamp = (u64, Option<SystemTime>);

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
        Self {
            dir,
            callers: Arc::new(Semaphore::new(DOWNLOADS_MAX)),
            known: Mutex::default(),
            describing: tokio::sync::Mutex::default(),
        }
    }

    /// The path of a file that may be served.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '~');
        let is_simple = !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(is_plain);
        let path = self.dir.as_ref().filter(|_| is_simple && !name.starts_with('.'))?.join(name);
        // Not what a link leads to: only what an administrator put there.
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
        let Some(stamp) = stamp(&path) else { return Ok(None) };
        if let Some((_, known)) = self.known.lock().get(name).filter(|(known, _)| *known == stamp) {
            return Ok(Some(known.clone()));
        }
        // One at a time, whoever asks: a file is held in memory meanwhile.
        let _turn = self.describing.lock().await;
        if let Some((_, known)) = self.known.lock().get(name).filter(|(known, _)| *known == stamp) {
            return Ok(Some(known.clone()));
        }
        let unreadable = |error: &dyn std::fmt::Display| ApiError::new(Problem::Internal, format!("{name}: {error}"));
        let authority = gateway::authority(state.control.store()).await.map_err(|error| unreadable(&error))?;
        let of_name = name.to_owned();
        let described = tokio::task::spawn_blocking(move || read_file(&path, of_name, &authority)).await;
        let described = described.map_err(|error| unreadable(&error))?.map_err(|error| unreadable(&error))?;
        let described = Arc::new(described);
        let mut known = self.known.lock();
        if known.len() >= FILES_MAX {
            known.retain(|name, _| self.path(name).is_some());
        }
        if known.len() < FILES_MAX || known.contains_key(name) {
            known.insert(name.to_owned(), (stamp, described.clone()));
        }
        Ok(Some(described))
    }
}

fn stamp(path: &FilePath) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()))
}

fn read_file(path: &FilePath, name: String, authority: &Authority) -> std::io::Result<Described> {
    let content = std::fs::read(path)?;
    let sha256 = hex(digest::digest(&digest::SHA256, &content).as_ref());
    let signature = authority.sign_bytes(&content).map_err(std::io::Error::other)?;
    Ok(Described { name, bytes: content.len() as u64, sha256, signature })
}

pub(super) async fn download(State(state): State<ApiState>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    match answer(&state, &name).await {
        Ok(response) => response,
        Err(error) => ResponseWriter::new(Family::of_path("/api/v1"), &headers).failure(&error),
    }
}

async fn answer(state: &ApiState, name: &str) -> Result<Response, ApiError> {
    let downloads = &state.border.downloads;
    let unknown = || ApiError::new(Problem::NotFound, format!("there is no file {name} to download"));
    if name == AUTHORITY {
        let authority = gateway::authority(state.control.store()).await;
        let authority = authority.map_err(|error| ApiError::new(Problem::Internal, error.to_string()))?;
        return Ok(text(authority.certificate_pem().to_owned()));
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
    let Ok(permit) = downloads.callers.clone().try_acquire_owned() else {
        let wait = [(header::RETRY_AFTER, HeaderValue::from_static("5"))];
        return Ok((StatusCode::SERVICE_UNAVAILABLE, wait, "too many downloads at once: try again").into_response());
    };
    let file = tokio::fs::File::open(&path).await.map_err(|_| unknown())?;
    let length = file.metadata().await.map_err(|_| unknown())?.len();
    let pieces = futures::stream::unfold((file, permit), |(mut file, permit)| async move {
        let mut piece = vec![0; PIECE_BYTES];
        match file.read(&mut piece).await {
            Ok(0) => None,
            Ok(count) => {
                piece.truncate(count);
                Some((Ok(Bytes::from(piece)), (file, permit)))
            }
            Err(error) => Some((Err(error), (file, permit))),
        }
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
    use super::*;

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
}
