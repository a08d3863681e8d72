//! Roles and bindings, and the permissions that they add up to.

use std::collections::HashMap;

use proctor_model::{Bounds, Classes, Grant, Permissions, Role, RoleName, Scope, Subject};
use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::column::{from_json, parsed, to_json, uuid};
use super::failure::{Failure, Tried};
use super::{businesses, users};
use crate::{Binding, Refusal};

pub(super) fn put_role(connection: &Connection, role: &Role) -> Tried<Result<(), Refusal>> {
    if is_built_in(&role.name) {
        return Ok(Err(Refusal::BuiltInRole(role.name.clone())));
    }
    connection
        .prepare_cached(
            "INSERT INTO role (name, classes) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET classes = excluded.classes",
        )?
        .execute((role.name.as_str(), to_json(&role.classes)))?;
    Ok(Ok(()))
}

fn is_built_in(name: &RoleName) -> bool {
    Role::built_in().iter().any(|role| role.name == *name)
}

pub(super) fn roles(connection: &Connection) -> Tried<Vec<Role>> {
    let mut roles = Vec::from(Role::built_in());
    let mut statement = connection.prepare_cached("SELECT name, classes FROM role ORDER BY name")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let classes = row.get_ref(1)?.as_str().map_err(|error| Failure::damaged("role", error))?;
        roles.push(Role { name: parsed(row, 0, "role")?, classes: from_json("role", classes)? });
    }
    Ok(roles)
}

pub(super) fn delete_role(connection: &Connection, name: &RoleName) -> Tried<bool> {
    let deleted = connection.prepare_cached("DELETE FROM role WHERE name = ?1")?.execute([name.as_str()])?;
    if deleted == 1 {
        connection.prepare_cached("DELETE FROM binding WHERE role = ?1")?.execute([name.as_str()])?;
    }
    Ok(deleted == 1)
}

pub(super) fn put_binding(connection: &Connection, binding: &Binding) -> Tried<Result<Uuid, Refusal>> {
    if let Some(refusal) = refusal(connection, binding)? {
        return Ok(Err(refusal));
    }
    let bounds = if binding.bounds.is_unbounded() { String::new() } else { to_json(&binding.bounds) };
    let words = (binding.subject.to_string(), binding.role.as_str(), binding.scope.to_string(), bounds);
    let present = connection
        .prepare_cached("SELECT id FROM binding WHERE subject = ?1 AND role = ?2 AND scope = ?3 AND bounds = ?4")?
        .query_row((&words.0, words.1, &words.2, &words.3), |row| row.get::<_, [u8; 16]>(0))
        .optional()?;
    if let Some(id) = present {
        return Ok(Ok(Uuid::from_bytes(id)));
    }
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO binding (id, subject, role, scope, bounds, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute((binding.id.as_bytes().as_slice(), words.0, words.1, words.2, words.3, binding.created_at))?;
    Ok(Ok(binding.id))
}

/// Why the binding cannot be stored.
pub(super) fn refusal(connection: &Connection, binding: &Binding) -> Tried<Option<Refusal>> {
    let role = &binding.role;
    let has_role = is_built_in(role)
        || connection.prepare_cached("SELECT 1 FROM role WHERE name = ?1")?.exists([role.as_str()])?;
    if !has_role {
        return Ok(Some(Refusal::UnknownRole(role.clone())));
    }
    Ok(match binding.scope {
        Scope::Business(id) if !businesses::exists(connection, id)? => Some(Refusal::UnknownBusiness(id)),
        Scope::BusinessSet(id) if !businesses::set_exists(connection, id)? => Some(Refusal::UnknownBusinessSet(id)),
        Scope::Business(_) | Scope::BusinessSet(_) | Scope::Everything | Scope::Namespace(_) | Scope::Cloud(_) => None,
    })
}

const SELECT_BINDING: &str = "SELECT id, role, subject, scope, bounds, created_at FROM binding";

pub(super) fn bindings(connection: &Connection) -> Tried<Vec<Binding>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT_BINDING} ORDER BY created_at, id"))?;
    let mut rows = statement.query([])?;
    let mut bindings = Vec::new();
    while let Some(row) = rows.next()? {
        bindings.push(binding(row)?);
    }
    Ok(bindings)
}

fn binding(row: &Row<'_>) -> Tried<Binding> {
    Ok(Binding {
        id: uuid(row, 0, "binding")?,
        role: parsed(row, 1, "binding")?,
        subject: parsed(row, 2, "binding")?,
        scope: parsed(row, 3, "binding")?,
        bounds: bounds(row, 4)?,
        created_at: row.get(5)?,
    })
}

fn bounds(row: &Row<'_>, column: usize) -> Tried<Bounds> {
    let text = row.get_ref(column)?.as_str().map_err(|error| Failure::damaged("binding", error))?;
    if text.is_empty() { Ok(Bounds::default()) } else { from_json("binding", text) }
}

pub(super) fn delete_binding(connection: &Connection, id: Uuid) -> Tried<bool> {
    let deleted =
        connection.prepare_cached("DELETE FROM binding WHERE id = ?1")?.execute([id.as_bytes().as_slice()])?;
    Ok(deleted == 1)
}

/// A later holder of the same name must not inherit what the earlier one was granted.
pub(super) fn forget_subject(connection: &Connection, subject: &Subject) -> Tried<()> {
    connection.prepare_cached("DELETE FROM binding WHERE subject = ?1")?.execute([subject.to_string()])?;
    Ok(())
}

/// The next holder of the name owns none of the earlier tasks, neither by id nor by idempotency key. A name that
/// was disabled when removed stays disabled until it is taken again.
pub(super) fn end_life(connection: &Connection, subject: &Subject, disabled: bool) -> Tried<()> {
    let text = subject.to_string();
    connection
        .prepare_cached(
            "INSERT INTO subject_life (subject, ended, disabled) VALUES (?1, 1, ?2)
             ON CONFLICT (subject) DO UPDATE SET ended = ended + 1, disabled = excluded.disabled",
        )?
        .execute((&text, disabled))?;
    let keys_of = match subject {
        Subject::App(code) => code,
        Subject::User(_) => &text,
    };
    connection.prepare_cached("DELETE FROM idempotency WHERE app = ?1")?.execute([keys_of])?;
    Ok(())
}

pub(super) fn forget_scope(connection: &Connection, scope: &Scope) -> Tried<()> {
    connection.prepare_cached("DELETE FROM binding WHERE scope = ?1")?.execute([scope.to_string()])?;
    Ok(())
}

pub(super) fn permissions(connection: &Connection, subjects: &[Subject]) -> Tried<Result<Permissions, Refusal>> {
    for subject in subjects {
        if let Subject::User(name) = subject
            && users::is_disabled(connection, name)?
        {
            return Ok(Err(Refusal::UserDisabled(name.clone())));
        }
    }
    let classes: HashMap<RoleName, Classes> =
        roles(connection)?.into_iter().map(|role| (role.name, role.classes)).collect();
    let mut statement = connection.prepare_cached(&format!("{SELECT_BINDING} WHERE subject = ?1"))?;
    let mut grants = Vec::new();
    for subject in subjects {
        let mut rows = statement.query([subject.to_string()])?;
        while let Some(row) = rows.next()? {
            let Binding { role, scope, bounds, .. } = binding(row)?;
            let classes = classes.get(&role).copied().unwrap_or_default();
            grants.push(Grant { classes, scope, bounds });
        }
    }
    Ok(Ok(Permissions::new(&grants, &businesses::members(connection)?)))
}
