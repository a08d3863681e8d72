//! Apps and the server's own secrets.

use proctor_model::Subject;
use rusqlite::{Connection, OptionalExtension, Row};

use super::access::{self, end_life, forget_subject};
use super::failure::Tried;
use crate::{App, Binding, Refusal};

pub(super) fn put_app(connection: &Connection, app: &App) -> Tried<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO app (code, secret_hash, sealed_secret, trusted, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((&app.code, &app.secret_hash, &app.sealed_secret, app.trusted, app.created_at))?;
    Ok(())
}

pub(super) fn create(connection: &Connection, app: &App, bindings: &[Binding]) -> Tried<Result<(), Refusal>> {
    if connection.prepare_cached("SELECT 1 FROM app WHERE code = ?1")?.exists([&app.code])? {
        return Ok(Err(Refusal::AppExists(app.code.clone())));
    }
    for binding in bindings {
        if let Some(refusal) = access::refusal(connection, binding)? {
            return Ok(Err(refusal));
        }
    }
    put_app(connection, app)?;
    for binding in bindings {
        let _ = access::put_binding(connection, binding)?;
    }
    Ok(Ok(()))
}

pub(super) fn renew_hash(connection: &Connection, code: &str, old: &str, new: &str) -> Tried<bool> {
    let renewed = connection
        .prepare_cached("UPDATE app SET secret_hash = ?3 WHERE code = ?1 AND secret_hash = ?2")?
        .execute([code, old, new])?;
    Ok(renewed == 1)
}

pub(super) fn set_secret(
    connection: &Connection,
    code: &str,
    secret_hash: &str,
    sealed_secret: Option<Vec<u8>>,
) -> Tried<Option<App>> {
    connection.prepare_cached("UPDATE app SET secret_hash = ?2, sealed_secret = ?3 WHERE code = ?1")?.execute((
        code,
        secret_hash,
        sealed_secret,
    ))?;
    app(connection, code)
}

pub(super) fn app(connection: &Connection, code: &str) -> Tried<Option<App>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT_APP} WHERE code = ?1"))?;
    Ok(statement.query_row([code], read_app).optional()?)
}

pub(super) fn apps(connection: &Connection) -> Tried<Vec<App>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT_APP} ORDER BY code"))?;
    let apps = statement.query_map([], read_app)?;
    Ok(apps.collect::<rusqlite::Result<_>>()?)
}

const SELECT_APP: &str = "SELECT code, secret_hash, sealed_secret, trusted, created_at FROM app";

fn read_app(row: &Row<'_>) -> rusqlite::Result<App> {
    Ok(App {
        code: row.get(0)?,
        secret_hash: row.get(1)?,
        sealed_secret: row.get(2)?,
        trusted: row.get(3)?,
        created_at: row.get(4)?,
    })
}

pub(super) fn delete_app(connection: &Connection, code: &str) -> Tried<bool> {
    let deleted = connection.prepare_cached("DELETE FROM app WHERE code = ?1")?.execute([code])?;
    let subject = Subject::App(code.to_owned());
    forget_subject(connection, &subject)?;
    if deleted == 1 {
        end_life(connection, &subject, false)?;
    }
    Ok(deleted == 1)
}

pub(super) fn secret_or_insert(connection: &Connection, name: &str, value: Vec<u8>) -> Tried<Vec<u8>> {
    connection
        .prepare_cached("INSERT INTO secret (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute((name, &value))?;
    Ok(secret(connection, name)?.unwrap_or(value))
}

pub(super) fn replace_secret(connection: &Connection, name: &str, old: &[u8], new: &[u8]) -> Tried<bool> {
    let replaced = connection
        .prepare_cached("UPDATE secret SET value = ?3 WHERE name = ?1 AND value = ?2")?
        .execute((name, old, new))?;
    Ok(replaced == 1)
}

pub(super) fn control_epoch(connection: &Connection) -> Tried<u64> {
    let epoch: i64 = connection.query_row("SELECT epoch FROM control_plane", [], |row| row.get(0))?;
    Ok(epoch.cast_unsigned())
}

pub(super) fn secret(connection: &Connection, name: &str) -> Tried<Option<Vec<u8>>> {
    let value = connection
        .prepare_cached("SELECT value FROM secret WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    Ok(value)
}
