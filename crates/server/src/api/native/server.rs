//! What the server reports about itself.

use axum::Json;
use axum::extract::State;
use proctor_api::{ServerView, StorageView, TableView};
use proctor_model::Class;
use proctor_runtime::clock;

use super::caller::Authenticated;
use super::{ApiState, Result};

/// The server's version, its clock, and how long agents will trust it. For anyone who may read anything.
#[utoipa::path(get, path = "/server", operation_id = "server", tag = "hosts",
               responses((status = 200, body = ServerView)))]
pub(super) async fn show(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<ServerView>> {
    caller.who.require_anywhere(Class::Read)?;
    Ok(Json(ServerView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time_ms: clock::unix_millis(),
        link_certificate_expires_at: state.control.link_expires_at(),
    }))
}

/// The size of each table of the store, and the free space of its file system. Reads the whole file.
#[utoipa::path(get, path = "/storage", operation_id = "storage", tag = "hosts",
               responses((status = 200, body = StorageView)))]
pub(super) async fn storage(_: Authenticated, State(state): State<ApiState>) -> Result<Json<StorageView>> {
    let disk = state.control.disk_space().await?;
    let sizes = state.control.table_sizes().await?.into_iter();
    let tables: Vec<TableView> =
        sizes.map(|size| TableView { table: size.table, rows: size.rows, bytes: size.bytes }).collect();
    Ok(Json(StorageView {
        bytes: tables.iter().map(|table| table.bytes).sum(),
        free_bytes: disk.map(|disk| disk.free_bytes),
        disk_bytes: disk.map(|disk| disk.total_bytes),
        tables,
    }))
}
