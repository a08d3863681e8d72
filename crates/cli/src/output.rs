//! Data to stdout, as tables for people or as JSON and YAML for programs; everything else goes to stderr.
//!
//! Promised: a table has one header and one line per row, its columns align whatever the width of the characters,
//! and it is never truncated to the terminal's width; colours only on a terminal and only without NO_COLOR; what a
//! process printed cannot control the terminal.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, Color, ColumnConstraint, Table, presets};
use jiff::Timestamp;
use serde::Serialize;

use crate::args::Output;

/// The meaning of a cell, shown as a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellStyle {
    Plain,
    Good,
    Warning,
    Bad,
}

/// A table under construction.
#[derive(Debug)]
pub(crate) struct TextTable {
    table: Table,
    /// Columns that only `-o wide` shows.
    wide: Vec<usize>,
}

impl TextTable {
    pub(crate) fn new(headers: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(headers.iter().map(Cell::new));
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        if !use_colors() {
            table.force_no_tty();
        }
        Self { table, wide: Vec::new() }
    }

    /// Numbers line up on their right.
    pub(crate) fn right(mut self, columns: &[usize]) -> Self {
        for index in columns {
            if let Some(column) = self.table.column_mut(*index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self
    }

    /// These columns are only shown with `-o wide`.
    pub(crate) fn only_wide(mut self, columns: &[usize]) -> Self {
        self.wide = columns.to_vec();
        self
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [(String, CellStyle); N]) {
        self.table.add_row(cells.map(|(text, style)| {
            let cell = Cell::new(one_line(&text));
            match style {
                CellStyle::Plain => cell,
                CellStyle::Good => cell.fg(Color::Green),
                CellStyle::Warning => cell.fg(Color::Yellow),
                CellStyle::Bad => cell.fg(Color::Red),
            }
        }));
    }

    /// Without the wide columns.
    pub(crate) fn to_text(&self) -> String {
        let mut table = self.table.clone();
        for index in &self.wide {
            if let Some(column) = table.column_mut(*index) {
                column.set_constraint(ColumnConstraint::Hidden);
            }
        }
        lines(&table)
    }

    /// With every column.
    pub(crate) fn to_wide_text(&self) -> String {
        lines(&self.table)
    }
}

fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A cell without a style.
pub(crate) fn plain(text: impl ToString) -> (String, CellStyle) {
    (text.to_string(), CellStyle::Plain)
}

fn use_colors() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && io::stdout().is_terminal()
}

/// The first line, without terminal control characters.
pub(crate) fn one_line(text: &str) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    first.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// Several lines, without terminal control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { ' ' } else { c }).collect()
}

/// Prints `data` for programs, or the table made from it.
pub(crate) fn print<T: Serialize>(output: Output, data: &T, table: impl FnOnce(&T) -> TextTable) -> Result<()> {
    write_out(&text(output, data, table)?)
}

/// What [`print`] prints.
pub(crate) fn text<T: Serialize>(output: Output, data: &T, table: impl FnOnce(&T) -> TextTable) -> Result<String> {
    text_or(output, data, || {
        let table = table(data);
        if output == Output::Wide { table.to_wide_text() } else { table.to_text() }
    })
}

/// Prints `data` for programs, or the text for people.
pub(crate) fn print_or<T: Serialize + ?Sized>(output: Output, data: &T, text: impl FnOnce() -> String) -> Result<()> {
    write_out(&text_or(output, data, text)?)
}

fn text_or<T: Serialize + ?Sized>(output: Output, data: &T, text: impl FnOnce() -> String) -> Result<String> {
    match output {
        Output::Json => {
            let text = serde_json::to_string_pretty(data).context("cannot write the answer as JSON")?;
            Ok(json_for_terminals(&text) + "\n")
        }
        Output::Yaml => yaml(data),
        Output::Table | Output::Wide => Ok(text()),
    }
}

/// The same JSON without raw DEL and C1 controls, which some terminals obey and JSON allows in strings.
pub(crate) fn json_for_terminals(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => text.push(c),
        }
    }
    text
}

/// Converted through JSON, so that both use the same words.
pub(crate) fn yaml<T: Serialize + ?Sized>(data: &T) -> Result<String> {
    let value = serde_json::to_value(data).context("cannot write the answer as YAML")?;
    serde_yaml_ng::to_string(&value).context("cannot write the answer as YAML")
}

/// A reader that has seen enough (`| head`) is no error.
pub(crate) fn write_out(text: &str) -> Result<()> {
    write_more(text).map(drop)
}

/// False once stdout is closed.
pub(crate) fn write_more(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("cannot write to stdout"),
    }
}

/// How long ago, in the two largest units: `3d4h`, `12m5s`; `-` for never.
pub(crate) fn ago(unix_seconds: i64, now_millis: i64) -> String {
    if unix_seconds <= 0 {
        return "-".into();
    }
    let seconds = (now_millis / 1000 - unix_seconds).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// `2030-01-02T03:04:05Z`; `-` for never.
pub(crate) fn moment(unix_seconds: i64) -> String {
    match Timestamp::from_second(unix_seconds) {
        Ok(time) if unix_seconds > 0 => time.to_string(),
        Ok(_) | Err(_) => "-".into(),
    }
}

pub(crate) fn yes_no(value: bool) -> String {
    if value { "yes".into() } else { "no".into() }
}

/// `-` where there is nothing to show.
pub(crate) fn or_dash(text: impl Into<String>) -> String {
    let text = text.into();
    if text.trim().is_empty() { "-".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_no_raw_control_and_means_the_same() {
        let words = serde_json::json!({ "text": "a\u{7f}\u{9b}31m\u{1b}é\n" });

        let text = text_or(Output::Json, &words, String::new).unwrap();

        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), words);
    }

    #[test]
    fn columns_align_also_for_wide_characters() {
        let mut table = TextTable::new(&["NAME", "PID"]).right(&[1]);
        table.row([plain("进程"), plain(7)]);
        table.row([("nginx".into(), CellStyle::Bad), plain(1234)]);

        assert_eq!(table.to_text(), "NAME    PID\n进程      7\nnginx  1234\n");
    }

    #[test]
    fn wide_columns_are_shown_only_when_asked_for() {
        let table = || {
            let mut table = TextTable::new(&["NAME", "业务", "PID"]).right(&[2]).only_wide(&[1]);
            table.row([plain("进程"), plain("蓝鲸 3"), plain(7)]);
            table.row([plain("ab"), plain("x"), plain(12)]);
            table
        };

        assert_eq!(table().to_text(), "NAME  PID\n进程    7\nab     12\n");
        assert_eq!(table().to_wide_text(), "NAME  业务    PID\n进程  蓝鲸 3    7\nab    x        12\n");
    }

    #[test]
    fn yaml_says_what_json_says() {
        let data = serde_json::json!({ "name": "进程", "yes": "no", "pid": null, "list": [1, 2.5] });

        let text = yaml(&data).unwrap();

        assert!(text.contains("name: 进程\n"), "{text}");
        assert_eq!(serde_yaml_ng::from_str::<serde_json::Value>(&text).unwrap(), data);
    }

    #[test]
    fn a_row_is_one_line_that_steers_no_terminal() {
        let mut table = TextTable::new(&["OUTPUT"]);
        table.row([plain("\n\u{1b}[31mred\tx\nsecond")]);

        assert_eq!(table.to_text(), "OUTPUT\n[31mred x\n");
        assert_eq!(printable("a\u{7}\nb"), "a \nb");
    }

    #[test]
    fn times_are_shown_in_two_units() {
        let now = 1_000_000_000;
        let cases = [(5, "5s"), (65, "1m5s"), (3 * 3600 + 60, "3h1m"), (4 * 86400 + 7200, "4d2h")];
        for (age, text) in cases {
            assert_eq!(ago(now / 1000 - age, now), text);
        }
        assert_eq!(ago(0, now), "-");
        assert_eq!(ago(now, now), "0s");
        assert_eq!(moment(0), "-");
    }
}
