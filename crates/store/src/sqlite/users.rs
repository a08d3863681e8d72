//! Users and their tokens.

use proctor_model::Subject;
use rusqlite::{Connection, OptionalExtension, Row};

use super::access::{end_life, forget_subject};
use super::failure::Tried;
use crate::{Millis, Refusal, SESSIONS_PER_USER_MAX, TokenKind, User, UserCredential, UserToken};

pub(super) fn create(connection: &Connection, user: &User) -> Tried<Result<(), Refusal>> {
    let created = connection
        .prepare_cached("INSERT INTO user (name, created_at, disabled) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
        .execute((&user.name, user.created_at, user.disabled))?;
    if created == 0 {
        return Ok(Err(Refusal::UserExists(user.name.clone())));
    }
    // What an app did under this name before does not belong to the user.
    end_life(connection, &Subject::User(user.name.clone()), false)?;
    Ok(Ok(()))
}

pub(super) fn disable(connection: &Connection, name: &str, disabled: bool) -> Tried<Option<User>> {
    if disabled {
        renew_credential(connection, name)?;
    }
    let mut statement = connection
        .prepare_cached("UPDATE user SET disabled = ?2 WHERE name = ?1 RETURNING name, created_at, disabled")?;
    Ok(statement.query_row((name, disabled), user).optional()?)
}

fn user(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User { name: row.get(0)?, created_at: row.get(1)?, disabled: row.get(2)? })
}

pub(super) fn get(connection: &Connection, name: &str) -> Tried<Option<User>> {
    let mut statement = connection.prepare_cached("SELECT name, created_at, disabled FROM user WHERE name = ?1")?;
    Ok(statement.query_row([name], user).optional()?)
}

pub(super) fn all(connection: &Connection) -> Tried<Vec<User>> {
    let mut statement = connection.prepare_cached("SELECT name, created_at, disabled FROM user ORDER BY name")?;
    let users = statement.query_map([], user)?;
    Ok(users.collect::<rusqlite::Result<_>>()?)
}

/// Whether nobody may act under this name: its user is disabled, or was when it was removed.
pub(super) fn is_disabled(connection: &Connection, name: &str) -> Tried<bool> {
    let subject = Subject::User(name.to_owned()).to_string();
    let mut statement = connection.prepare_cached(
        "SELECT coalesce((SELECT disabled FROM user WHERE name = ?1),
                         (SELECT disabled FROM subject_life WHERE subject = ?2), 0)",
    )?;
    Ok(statement.query_row((name, subject), |row| row.get(0))?)
}

/// All names of which [`is_disabled`] is true.
pub(super) fn disabled_names(connection: &Connection) -> Tried<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT name FROM user WHERE disabled
         UNION
         SELECT substr(subject, 6) FROM subject_life
         WHERE disabled AND substr(subject, 1, 5) = 'user:' AND substr(subject, 6) NOT IN (SELECT name FROM user)
         ORDER BY 1",
    )?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

/// A foreign key removes the tokens.
pub(super) fn delete(connection: &Connection, name: &str) -> Tried<bool> {
    let subject = Subject::User(name.to_owned());
    let was_disabled = is_disabled(connection, name)?;
    forget_subject(connection, &subject)?;
    let deleted = connection.prepare_cached("DELETE FROM user WHERE name = ?1")?.execute([name])?;
    if deleted == 1 {
        end_life(connection, &subject, was_disabled)?;
    }
    Ok(deleted == 1)
}

pub(super) fn put_token(connection: &Connection, token: &UserToken) -> Tried<Result<(), Refusal>> {
    if get(connection, &token.user)?.is_none() {
        return Ok(Err(Refusal::UnknownUser(token.user.clone())));
    }
    let (is_session, parent) = match &token.kind {
        TokenKind::Call => (false, None),
        TokenKind::Session { parent } => (true, parent.as_deref()),
    };
    if let Some(parent) = parent
        && self::token(connection, parent)?.is_none()
    {
        return Ok(Err(Refusal::UnknownToken(parent.to_owned())));
    }
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO user_token
                 (id, user, secret_hash, note, created_at, expires_at, is_session, parent)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute((
            &token.id,
            &token.user,
            &token.secret_hash,
            &token.note,
            token.created_at,
            token.expires_at,
            is_session,
            parent,
        ))?;
    if is_session {
        close_oldest_sessions(connection, &token.user)?;
    }
    Ok(Ok(()))
}

pub(super) fn put_session(
    connection: &Connection,
    token: &UserToken,
    expected: Option<&UserCredential>,
) -> Tried<Result<(), Refusal>> {
    if get(connection, &token.user)?.is_some_and(|user| user.disabled) {
        return Ok(Err(Refusal::UserDisabled(token.user.clone())));
    }
    if expected.is_some() && credential(connection, &token.user)?.as_ref() != expected {
        return Ok(Err(Refusal::CredentialChanged(token.user.clone())));
    }
    put_token(connection, token)
}

fn close_oldest_sessions(connection: &Connection, user: &str) -> Tried<()> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM user_token WHERE id IN (
             SELECT id FROM user_token WHERE user = ?1 AND is_session
             ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?2)",
    )?;
    statement.execute((user, SESSIONS_PER_USER_MAX))?;
    Ok(())
}

const SELECT_TOKEN: &str =
    "SELECT id, user, secret_hash, note, created_at, expires_at, is_session, parent FROM user_token";

fn user_token(row: &Row<'_>) -> rusqlite::Result<UserToken> {
    Ok(UserToken {
        id: row.get(0)?,
        user: row.get(1)?,
        secret_hash: row.get(2)?,
        note: row.get(3)?,
        created_at: row.get(4)?,
        expires_at: row.get(5)?,
        kind: if row.get(6)? { TokenKind::Session { parent: row.get(7)? } } else { TokenKind::Call },
    })
}

pub(super) fn tokens(connection: &Connection, user: Option<&str>) -> Tried<Vec<UserToken>> {
    let which = if user.is_some() { "WHERE user = ?1" } else { "" };
    let mut statement = connection.prepare_cached(&format!("{SELECT_TOKEN} {which} ORDER BY created_at, id"))?;
    let tokens = statement.query_map(rusqlite::params_from_iter(user), user_token)?;
    Ok(tokens.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn token(connection: &Connection, id: &str) -> Tried<Option<UserToken>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT_TOKEN} WHERE id = ?1"))?;
    Ok(statement.query_row([id], user_token).optional()?)
}

pub(super) fn delete_token(connection: &Connection, id: &str) -> Tried<bool> {
    let deleted = connection.prepare_cached("DELETE FROM user_token WHERE id = ?1")?.execute([id])?;
    Ok(deleted == 1)
}

pub(super) fn set_password(
    connection: &Connection,
    name: &str,
    hash: Option<&str>,
    expected: Option<&UserCredential>,
    now: Millis,
) -> Tried<Result<(), Refusal>> {
    let Some(present) = credential(connection, name)? else {
        return Ok(Err(Refusal::UnknownUser(name.to_owned())));
    };
    if expected.is_some_and(|expected| *expected != present) {
        return Ok(Err(Refusal::CredentialChanged(name.to_owned())));
    }
    match hash {
        Some(hash) => connection
            .prepare_cached("INSERT OR REPLACE INTO user_password (user, hash, changed_at) VALUES (?1, ?2, ?3)")?
            .execute((name, hash, now))?,
        None => connection.prepare_cached("DELETE FROM user_password WHERE user = ?1")?.execute([name])?,
    };
    renew_credential(connection, name)?;
    Ok(Ok(()))
}

/// Everything that was opened with the credential is closed, and what is based on it opens nothing any more.
fn renew_credential(connection: &Connection, user: &str) -> Tried<()> {
    connection
        .prepare_cached("UPDATE user SET credential_version = credential_version + 1 WHERE name = ?1")?
        .execute([user])?;
    connection.prepare_cached("DELETE FROM user_token WHERE user = ?1 AND is_session")?.execute([user])?;
    Ok(())
}

pub(super) fn credential(connection: &Connection, name: &str) -> Tried<Option<UserCredential>> {
    let mut statement = connection.prepare_cached(
        "SELECT ifnull((SELECT ended FROM subject_life WHERE subject = ?2), 0), credential_version,
                (SELECT hash FROM user_password WHERE user_password.user = user.name)
         FROM user WHERE name = ?1",
    )?;
    let subject = Subject::User(name.to_owned()).to_string();
    let credential =
        |row: &Row<'_>| Ok(UserCredential { life: row.get(0)?, version: row.get(1)?, password_hash: row.get(2)? });
    Ok(statement.query_row((name, subject), credential).optional()?)
}
