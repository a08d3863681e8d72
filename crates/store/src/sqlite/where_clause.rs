//! A query built from the conditions that narrow it.

use rusqlite::{Connection, Row, ToSql};

use super::failure::Tried;

/// Conditions, and a value for each `?` in them.
#[derive(Default)]
pub(super) struct WhereClause {
    conditions: Vec<&'static str>,
    values: Vec<Box<dyn ToSql>>,
}

impl WhereClause {
    pub(super) fn by(&mut self, condition: &'static str, value: impl ToSql + 'static) {
        self.conditions.push(condition);
        self.values.push(Box::new(value));
    }

    /// With a value for each of its two `?`.
    pub(super) fn by_both(
        &mut self,
        condition: &'static str,
        first: impl ToSql + 'static,
        second: impl ToSql + 'static,
    ) {
        self.by(condition, first);
        self.values.push(Box::new(second));
    }

    pub(super) fn by_fact(&mut self, condition: &'static str) {
        self.conditions.push(condition);
    }

    /// No condition if there is no value.
    pub(super) fn by_some(&mut self, condition: &'static str, value: Option<impl ToSql + 'static>) {
        if let Some(value) = value {
            self.by(condition, value);
        }
    }

    /// What follows WHERE.
    pub(super) fn conditions(&self) -> String {
        if self.conditions.is_empty() { "true".to_owned() } else { self.conditions.join(" AND ") }
    }

    /// `sql` ends with `LIMIT ?`.
    pub(super) fn read<T>(
        mut self,
        connection: &Connection,
        sql: &str,
        limit: u32,
        record: impl Fn(&Row<'_>) -> Tried<T>,
    ) -> Tried<Vec<T>> {
        self.values.push(Box::new(limit));
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(self.values))?;
        let mut records = Vec::new();
        while let Some(row) = rows.next()? {
            records.push(record(row)?);
        }
        Ok(records)
    }
}
