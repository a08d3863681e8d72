//! Samples, their summaries, and their output: a table for people, JSON for programs.

use std::time::Duration;

use serde_json::{Value, json};

/// The sample at `part` (0.5 is the median) of the sorted samples.
pub(crate) fn quantile(samples: &[Duration], part: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let index = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted[index]
}

pub(crate) fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64()
}

/// With a sensible number of digits.
pub(crate) fn millis(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    if millis < 100.0 { format!("{millis:.2} ms") } else { format!("{millis:.0} ms") }
}

/// The result of one benchmark.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    /// What a reader has to know.
    pub(crate) notes: Vec<String>,
    /// Load averages before and after.
    pub(crate) load: (f64, f64),
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, columns: &[&'static str]) -> Self {
        let load = crate::procs::load();
        Self { title: title.into(), columns: columns.to_vec(), rows: Vec::new(), notes: Vec::new(), load: (load, load) }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    pub(crate) fn finish(mut self) -> Self {
        self.load.1 = crate::procs::load();
        self
    }

    pub(crate) fn markdown(&self) -> String {
        let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
        let mut text = format!("## {}\n\n", self.title);
        text += &line(self.columns.clone());
        text += &format!("|{}\n", "---|".repeat(self.columns.len()));
        for row in &self.rows {
            text += &line(row.iter().map(String::as_str).collect());
        }
        text += &format!("\nLoad average {:.1} before, {:.1} after.", self.load.0, self.load.1);
        for note in &self.notes {
            text += &format!(" {note}");
        }
        text + "\n"
    }

    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| self.columns.iter().zip(row).map(|(name, cell)| ((*name).to_owned(), json!(cell))).collect())
            .map(Value::Object)
            .collect();
        json!({"title": self.title, "rows": rows, "notes": self.notes, "load": [self.load.0, self.load.1]})
    }
}
