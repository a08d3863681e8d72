//! Apps and the server's own secrets.

use rusqlite::{Connection, OptionalExtension};

use super::failure::Tried;
use crate::App;

pub(super) fn put_app(connection: &Connection, app: &App) -> Tried<()> {
    connection
        .prepare_cached(
            "INSERT INTO app (code, secret_hash, trusted, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (code) DO UPDATE SET secret_hash = excluded.secret_hash, trusted = excluded.trusted,
                                              created_at = excluded.created_at",
        )?
        .execute((&app.code, &app.secret_hash, app.trusted, app.created_at))?;
    Ok(())
}

pub(super) fn app(connection: &Connection, code: &str) -> Tried<Option<App>> {
    let app = connection
        .prepare_cached("SELECT code, secret_hash, trusted, created_at FROM app WHERE code = ?1")?
        .query_row([code], |row| {
            Ok(App { code: row.get(0)?, secret_hash: row.get(1)?, trusted: row.get(2)?, created_at: row.get(3)? })
        })
        .optional()?;
    Ok(app)
}

pub(super) fn secret_or_insert(connection: &Connection, name: &str, value: Vec<u8>) -> Tried<Vec<u8>> {
    connection
        .prepare_cached("INSERT INTO secret (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute((name, &value))?;
    Ok(secret(connection, name)?.unwrap_or(value))
}

pub(super) fn secret(connection: &Connection, name: &str) -> Tried<Option<Vec<u8>>> {
    let value = connection
        .prepare_cached("SELECT value FROM secret WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    Ok(value)
}
