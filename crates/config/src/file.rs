//! The file itself: TOML without sections.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Arg;
use toml::{Spanned, Value};

use crate::{ConfigError, takes_value};

/// A configuration is a page of text.
const BYTES_MAX: u64 = 1024 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// The value of one key, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) line: usize,
    value: Value,
}

impl ConfigFile {
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let size = std::fs::metadata(path).map_err(failed)?.len();
        if size > BYTES_MAX {
            return Err(failed(std::io::Error::other(format!("it is larger than {BYTES_MAX} bytes"))));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let parsed: BTreeMap<String, Spanned<Value>> = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(span.start));
            let line = format!("{}, line {line}: {}", path.display(), error.message());
            ConfigError::Mistakes { lines: vec![line] }
        })?;
        let entry = |value: Spanned<Value>| Entry { line: line_of(value.span().start), value: value.into_inner() };
        let entries = parsed.into_iter().map(|(key, value)| (key, entry(value))).collect();
        Ok(Self { path: path.to_owned(), entries })
    }
}

impl Entry {
    /// Why the value is invalid for this flag, even if its parser accepts it.
    pub(crate) fn mismatch(&self, arg: &Arg) -> Option<String> {
        let is_many = matches!(arg.get_action(), clap::ArgAction::Append) || arg.get_value_delimiter().is_some();
        match &self.value {
            Value::Table(_) => Some("there are no sections: write the key alone".to_owned()),
            Value::Boolean(_) if takes_value(arg) => Some("must be a text or a number".to_owned()),
            value if !takes_value(arg) && !value.is_bool() => Some("must be true or false".to_owned()),
            Value::Array(_) if !is_many => Some("must be one value, not a list".to_owned()),
            Value::Array(values) if values.iter().any(|value| scalar(value).is_none()) => {
                Some("must be a list of texts or numbers".to_owned())
            }
            Value::Array(_) | Value::Boolean(_) => None,
            Value::Datetime(_) => Some("must be a text or a number".to_owned()),
            Value::String(_) | Value::Integer(_) | Value::Float(_) => None,
        }
    }

    /// As they would be typed. With `=`, a value that begins with a dash is not taken for a flag.
    pub(crate) fn arguments(&self, arg: &Arg) -> Vec<OsString> {
        let long = arg.get_long().unwrap_or_default();
        let typed = |value: &Value| scalar(value).map(|text| OsString::from(format!("--{long}={text}")));
        match &self.value {
            Value::Boolean(true) => vec![format!("--{long}").into()],
            Value::Boolean(false) => Vec::new(),
            Value::Array(values) => values.iter().filter_map(typed).collect(),
            value @ (Value::String(_) | Value::Integer(_) | Value::Float(_)) => typed(value).into_iter().collect(),
            Value::Datetime(_) | Value::Table(_) => Vec::new(),
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}
