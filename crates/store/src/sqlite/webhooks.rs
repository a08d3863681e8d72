//! Webhooks and their cursors.

use proctor_model::Namespace;
use rusqlite::{Connection, Row};
use uuid::Uuid;

use super::column::{counter, from_json, parsed, signed, to_json, uuid};
use super::failure::{Failure, Tried};
use crate::Webhook;

pub(super) fn put(connection: &Connection, webhook: &Webhook) -> Tried<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO webhook
                 (id, url, namespace, report_id, kinds, format, secret, created_at, cursor)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute((
            webhook.id.as_bytes().as_slice(),
            &webhook.url,
            webhook.namespace.as_ref().map(Namespace::as_str),
            webhook.report_id,
            to_json(&webhook.kinds),
            webhook.format.as_str(),
            &webhook.secret,
            webhook.created_at,
            signed(webhook.cursor),
        ))?;
    Ok(())
}

pub(super) fn all(connection: &Connection) -> Tried<Vec<Webhook>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, url, namespace, report_id, kinds, format, secret, created_at, cursor
         FROM webhook ORDER BY created_at, id",
    )?;
    let mut rows = statement.query([])?;
    let mut webhooks = Vec::new();
    while let Some(row) = rows.next()? {
        webhooks.push(webhook(row)?);
    }
    Ok(webhooks)
}

fn webhook(row: &Row<'_>) -> Tried<Webhook> {
    let damaged = |error: &dyn std::fmt::Display| Failure::damaged("webhook", error);
    let namespace: Option<String> = row.get(2)?;
    let kinds = row.get_ref(4)?.as_str().map_err(|error| damaged(&error))?;
    Ok(Webhook {
        id: uuid(row, 0, "webhook")?,
        url: row.get(1)?,
        namespace: namespace.map(Namespace::try_from).transpose().map_err(|error| damaged(&error))?,
        report_id: row.get(3)?,
        kinds: from_json("webhook kinds", kinds)?,
        format: parsed(row, 5, "webhook format")?,
        secret: row.get(6)?,
        created_at: row.get(7)?,
        cursor: counter(row, 8)?,
    })
}

pub(super) fn delete(connection: &Connection, id: Uuid) -> Tried<bool> {
    let deleted =
        connection.prepare_cached("DELETE FROM webhook WHERE id = ?1")?.execute([id.as_bytes().as_slice()])?;
    Ok(deleted == 1)
}

pub(super) fn advance(connection: &Connection, id: Uuid, cursor: u64) -> Tried<()> {
    connection
        .prepare_cached("UPDATE webhook SET cursor = max(cursor, ?2) WHERE id = ?1")?
        .execute((id.as_bytes().as_slice(), signed(cursor)))?;
    Ok(())
}
