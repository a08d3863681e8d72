//! The sort orders of process lists as SQL terms.
//!
//! Promised: every order is total, so each cursor is passed exactly once. A rank is a column of the process's row.

use rusqlite::Row;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::failure::{Failure, Tried};
use super::process_filter::Filter;
use crate::{ProcessCursor, ProcessOrder, ProcessSort, Rank};

const NAMES: &str = "(process.namespace, process.name, cloud, ip)";
const NAMES_BEHIND: &str = "(:behind_namespace, :behind_name, :behind_cloud, :behind_ip)";

/// The sort key before names; None if the list is sorted by name or host only.
pub(super) fn rank(sort: ProcessSort) -> Option<&'static str> {
    match sort {
        ProcessSort::Name | ProcessSort::Host => None,
        ProcessSort::Phase => Some("process.phase"),
        ProcessSort::Cpu => Some("process.cpu"),
        ProcessSort::Memory => Some("process.memory"),
        ProcessSort::Restarts => Some("process.restarts"),
        ProcessSort::Started => Some("process.started_at"),
        ProcessSort::Reported => Some("process.reported_at"),
    }
}

/// What follows ORDER BY.
pub(super) fn terms(order: ProcessOrder) -> String {
    let direction = if order.is_descending { "DESC" } else { "ASC" };
    match (order.by, rank(order.by)) {
        (ProcessSort::Host, _) => {
            format!("cloud {direction}, ip {direction}, namespace {direction}, name {direction}")
        }
        (_, None) => format!("namespace {direction}, name {direction}, cloud {direction}, ip {direction}"),
        (_, Some(rank)) => format!("{rank} {direction}, namespace, name, cloud, ip"),
    }
}

/// Narrows to what sorts after the cursor. The first condition can use an index, the second is the whole order.
pub(super) fn behind(filter: &mut Filter, order: ProcessOrder, cursor: &ProcessCursor) {
    let beyond = if order.is_descending { "<" } else { ">" };
    filter.value(":behind_namespace", cursor.namespace.as_str().to_owned());
    filter.value(":behind_name", cursor.name.as_str().to_owned());
    filter.value(":behind_cloud", cursor.cloud);
    filter.value(":behind_ip", cursor.ip.to_string());
    match (order.by, rank(order.by)) {
        (ProcessSort::Host, _) => {
            filter.condition(format!("cloud {beyond}= :behind_cloud"));
            filter.condition(format!(
                "(cloud, ip, process.namespace, process.name)
                 {beyond} (:behind_cloud, :behind_ip, :behind_namespace, :behind_name)"
            ));
        }
        (_, None) => {
            filter.condition(format!("process.namespace {beyond}= :behind_namespace"));
            filter.condition(format!("{NAMES} {beyond} {NAMES_BEHIND}"));
        }
        (_, Some(rank)) => {
            filter.condition(format!(
                "({rank} {beyond} :behind_rank OR ({rank} = :behind_rank AND {NAMES} > {NAMES_BEHIND}))"
            ));
            filter.value(":behind_rank", cursor.rank.clone().unwrap_or(Rank::Number(0.0)));
        }
    }
}

impl rusqlite::ToSql for Rank {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Number(number) => ToSqlOutput::Owned(Value::Real(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

pub(super) fn rank_at(row: &Row<'_>, column: usize) -> Tried<Option<Rank>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        #[allow(clippy::cast_precision_loss, reason = "counts and seconds are far below 2^53")]
        ValueRef::Integer(number) => Ok(Some(Rank::Number(number as f64))),
        ValueRef::Real(number) => Ok(Some(Rank::Number(number))),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text).map_err(|error| Failure::damaged("process", error))?;
            Ok(Some(Rank::Text(text.to_owned())))
        }
        ValueRef::Blob(_) => Err(Failure::Damaged("process".to_owned())),
    }
}
