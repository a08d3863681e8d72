//! A task's row, and how its items and chunks of targets are stored.

use proctor_model::{OperationKind, ProcessKey, Scope, Subject, TaskId};
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::column::{SpecReader, from_json};
use super::super::failure::{Failure, Tried};
use crate::{Millis, Rollout, Target, TaskItem};

/// Two columns: whether the app and the user that created the task still hold their names.
macro_rules! lives {
    () => {
        "app_life = coalesce((SELECT ended FROM subject_life WHERE subject = 'app:' || app), 0),
         user_life = coalesce((SELECT ended FROM subject_life WHERE subject = 'user:' || user), 0)"
    };
}
pub(super) use lives;

/// Who created a task and still holds the name it was created under. An app that calls on its own behalf is stored
/// with its own code as the user; that does not make it a user of that name. The columns of [`lives!`] begin at
/// `lives`.
pub(super) fn owners(row: &Row<'_>, app: usize, user: usize, lives: usize) -> Tried<Vec<Subject>> {
    let (app, user): (String, String) = (row.get(app)?, row.get(user)?);
    let (app_lives, user_lives): (bool, bool) = (row.get(lives)?, row.get(lives + 1)?);
    let is_user = user_lives && !user.is_empty() && user != app;
    let app = (app_lives && !app.is_empty()).then_some(Subject::App(app));
    Ok(app.into_iter().chain(is_user.then_some(Subject::User(user))).collect())
}

fn scope(text: Option<String>) -> Tried<Option<Scope>> {
    let read = |text: String| text.parse().map_err(|error| Failure::damaged("scope of a task", error));
    text.map(read).transpose()
}

/// An item as stored in the column `items`; its spec is stored separately, under its hash.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredItem {
    pub(super) key: ProcessKey,
    pub(super) kind: Option<OperationKind>,
    pub(super) spec: Option<String>,
    /// Absent in rows of earlier versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) carried: bool,
    pub(super) time_limit_ms: u64,
    /// Absent in rows of earlier versions, and if nothing waits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) wait_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A task's row, without the other tables.
pub(super) struct Header {
    pub(super) seq: i64,
    pub(super) id: TaskId,
    pub(super) created_at: Millis,
    pub(super) app: String,
    pub(super) user: String,
    pub(super) owners: Vec<Subject>,
    pub(super) scope: Option<Scope>,
    pub(super) family: String,
    pub(super) cancelled_at: Option<Millis>,
    pub(super) retry_of: Option<TaskId>,
    pub(super) rollout: Option<Rollout>,
    pub(super) target_count: u32,
    items: String,
}

pub(super) const SELECT_HEADER: &str = concat!(
    "SELECT seq, id, created_at, app, user, family, cancelled_at, retry_of, rollout, target_count, items, ",
    lives!(),
    ", scope FROM task "
);

impl Header {
    pub(super) fn find(connection: &Connection, id: TaskId) -> Tried<Option<Self>> {
        let mut statement = connection.prepare_cached(&format!("{SELECT_HEADER} WHERE id = ?1 AND forgotten = 0"))?;
        let mut rows = statement.query([id.as_uuid().as_bytes().as_slice()])?;
        rows.next()?.map(Self::from_row).transpose()
    }

    pub(super) fn from_row(row: &Row<'_>) -> Tried<Self> {
        Ok(Self {
            seq: row.get(0)?,
            id: task_id(row.get(1)?),
            created_at: row.get(2)?,
            app: row.get(3)?,
            user: row.get(4)?,
            family: row.get(5)?,
            cancelled_at: row.get(6)?,
            retry_of: row.get::<_, Option<[u8; 16]>>(7)?.map(task_id),
            rollout: rollout(row, 8)?,
            target_count: row.get(9)?,
            items: row.get(10)?,
            owners: owners(row, 3, 4, 11)?,
            scope: scope(row.get(13)?)?,
        })
    }

    pub(super) fn stored_items(&self) -> Tried<Vec<StoredItem>> {
        from_json("task item", &self.items)
    }

    pub(super) fn items(&self, connection: &Connection, specs: &mut SpecReader) -> Tried<Vec<TaskItem>> {
        let read = |item: StoredItem| {
            let spec = item.spec.map(|hash| specs.of_hash(connection, &hash)).transpose()?;
            let StoredItem { key, kind, carried, time_limit_ms, wait_ms, .. } = item;
            Ok(TaskItem { key, kind, spec, carried, register: false, time_limit_ms, wait_ms })
        };
        self.stored_items()?.into_iter().map(read).collect()
    }

    pub(super) fn targets(&self, connection: &Connection) -> Tried<Vec<Target>> {
        let mut statement =
            connection.prepare_cached("SELECT targets FROM task_chunk WHERE task = ?1 ORDER BY first_index")?;
        let mut rows = statement.query([self.seq])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.append(&mut targets(row, 0)?);
        }
        Ok(all)
    }

    /// The chunk that contains the target `index`, if any.
    pub(super) fn chunk(&self, connection: &Connection, index: u32) -> Tried<Option<Chunk>> {
        let mut statement = connection.prepare_cached(
            "SELECT first_index, targets FROM task_chunk WHERE task = ?1 AND first_index <= ?2
             ORDER BY first_index DESC LIMIT 1",
        )?;
        let mut rows = statement.query((self.seq, index))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let chunk = Chunk { first: row.get(0)?, targets: targets(row, 1)? };
        Ok(chunk.holds(index).then_some(chunk))
    }
}

/// A chunk of a task's targets.
pub(super) struct Chunk {
    first: u32,
    targets: Vec<Target>,
}

impl Chunk {
    pub(super) fn holds(&self, index: u32) -> bool {
        index.checked_sub(self.first).is_some_and(|offset| (offset as usize) < self.targets.len())
    }

    /// Only for an index inside the chunk.
    pub(super) fn target(&self, index: u32) -> &Target {
        &self.targets[(index - self.first) as usize]
    }
}

fn targets(row: &Row<'_>, column: usize) -> Tried<Vec<Target>> {
    let text = row.get_ref(column)?.as_str().map_err(|error| Failure::damaged("task targets", error))?;
    from_json("task targets", text)
}

pub(in super::super) fn task_id(bytes: [u8; 16]) -> TaskId {
    TaskId::from_uuid(Uuid::from_bytes(bytes))
}

pub(in super::super) fn rollout(row: &Row<'_>, column: usize) -> Tried<Option<Rollout>> {
    let text = row.get_ref(column)?.as_str_or_null().map_err(|error| Failure::damaged("rollout", error))?;
    text.map(|text| from_json("rollout", text)).transpose()
}
