//! Identifiers that we generate.

use std::sync::Arc;

use crate::messages;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::field::{FieldError, check_text, text_type};

const TASK_PREFIX: &str = "GSETASK:";

/// The stable name of the agent on a host, independent of the host's address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.-]+$"))]
#[serde(try_from = "String")]
pub struct AgentId(Arc<str>);

text_type!(AgentId);

impl AgentId {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_text("agent_id", &text, 64)?;
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
            return Err(FieldError::new("agent_id", messages::only_id_characters()));
        }
        Ok(Self(text.into()))
    }

    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid.simple().to_string().into())
    }
}

/// The name of a relay, given by the server when it enrols.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.-]+$"))]
#[serde(try_from = "String")]
pub struct RelayId(Arc<str>);

text_type!(RelayId);

impl RelayId {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_text("relay_id", &text, 64)?;
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
            return Err(FieldError::new("relay_id", messages::only_id_characters()));
        }
        Ok(Self(text.into()))
    }

    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid.simple().to_string().into())
    }
}

/// One accepted call that is carried out in the background. Clients treat the text as opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^GSETASK:[0-9a-f]{32}$"))]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(Uuid);

impl TaskId {
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{TASK_PREFIX}{}", self.0.simple())
    }
}

impl std::str::FromStr for TaskId {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix(TASK_PREFIX)
            .and_then(|hex| Uuid::try_parse(hex).ok())
            .map(Self)
            .ok_or_else(|| FieldError::new("task_id", messages::not_a_task_id(text)))
    }
}

impl TryFrom<String> for TaskId {
    type Error = FieldError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> Self {
        id.to_string()
    }
}

/// One delivery-independent piece of work for one process on one host: target `index` of `task`.
/// An agent runs an operation id at most once, however often it is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId {
    pub task: TaskId,
    pub index: u32,
    pub attempt: u32,
    /// The share of one instance (from 1) on its host; 0 is the whole.
    #[serde(default)]
    pub part: u32,
}

impl OperationId {
    /// The first attempt. Everyone must derive the same one: an agent knows it by this id.
    pub fn first(task: TaskId, index: u32) -> Self {
        Self { task, index, attempt: 1, part: 0 }
    }

    /// Every operation of a task, in an ordered collection.
    pub fn all_of(task: TaskId) -> std::ops::RangeInclusive<Self> {
        let at = |number| Self { task, index: number, attempt: number, part: number };
        at(0)..=at(u32::MAX)
    }

    #[must_use]
    pub fn part(self, part: u32) -> Self {
        Self { part, ..self }
    }

    #[must_use]
    pub fn whole(self) -> Self {
        self.part(0)
    }
}

impl std::fmt::Display for OperationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.task, self.index, self.attempt)?;
        if self.part > 0 { write!(f, "/{}", self.part) } else { Ok(()) }
    }
}

impl std::str::FromStr for OperationId {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || FieldError::new("operation_id", messages::not_of_the_form(text, "TASK/INDEX/ATTEMPT"));
        let number = |text: &str| text.parse().map_err(|_| bad());
        let pieces: Vec<&str> = text.split('/').collect();
        match pieces[..] {
            [task, index, attempt] => {
                Ok(Self { task: task.parse()?, index: number(index)?, attempt: number(attempt)?, part: 0 })
            }
            [task, index, attempt, part] => {
                Ok(Self { task: task.parse()?, index: number(index)?, attempt: number(attempt)?, part: number(part)? })
            }
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_their_text_form() {
        let task = TaskId::from_uuid(Uuid::from_u128(7));
        let operation = OperationId::first(task, 3).part(2);

        assert_eq!(operation.to_string().parse::<OperationId>().unwrap(), operation);
        assert!(task.to_string().starts_with("GSETASK:"));
        assert!("GSETASK:20190813145456:8".parse::<TaskId>().is_err());
    }
}
