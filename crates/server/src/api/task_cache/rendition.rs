//! One task as JSON text, in chunks that are replaced one by one.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use proctor_model::{AgentId, Code, Outcome};
use proctor_store::{Target, TaskView};
use serde::Serialize;

use crate::api::connections::SharedAnswer;
use crate::api::content::{Content, content};
use crate::api::rows::Row;

/// Rows in one piece: large enough that a poll sends few, small enough that one outcome rewrites little.
const ROWS_PER_PIECE: usize = 256;

/// How a family writes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::api) enum Shape {
    /// `content` is text that holds JSON.
    Gse,
    /// `content` is an object, and the whole task has a status.
    Job,
}

/// A task at the time when some of its outcomes were known.
#[derive(Debug)]
pub(in crate::api) struct RenderedTask {
    shape: Shape,
    is_known: Vec<bool>,
    known: u32,
    pieces: Vec<Piece>,
    /// None once every outcome is known: nothing will be written again.
    source: Option<Arc<Source>>,
    /// By it those who take the text are known to hold the same.
    shared: SharedAnswer,
}

/// What rows are rendered from, besides their outcomes.
#[derive(Debug)]
struct Source {
    /// Without its targets.
    task: TaskView,
    targets: Vec<Target>,
    bound: BoundIds,
}

/// The ids that agents were bound to, by their own.
pub(super) type BoundIds = HashMap<AgentId, AgentId>;

/// Some rows with a comma in front of each but the first of the task.
#[derive(Clone, Debug)]
struct Piece {
    text: Bytes,
    /// Where each row ends.
    ends: Vec<u32>,
}

impl RenderedTask {
    /// In the current language.
    pub(super) fn new(shape: Shape, mut task: TaskView, bound: BoundIds) -> Self {
        let views = std::mem::take(&mut task.targets);
        let (targets, outcomes): (Vec<Target>, Vec<Option<Outcome>>) =
            views.into_iter().map(|view| (view.target, view.outcome)).unzip();
        let source = Source { task, targets, bound };
        let mut pieces = Vec::new();
        for (number, outcomes) in outcomes.chunks(ROWS_PER_PIECE).enumerate() {
            let mut piece = PieceWriter::default();
            for (index, outcome) in (number * ROWS_PER_PIECE..).zip(outcomes) {
                piece.row(|text| source.write(text, shape, index, outcome.as_ref()));
            }
            pieces.push(piece.end());
        }
        let is_known = outcomes.iter().map(Option::is_some).collect();
        let source = Some(Arc::new(source));
        Self { shape, known: 0, is_known, pieces, source, shared: SharedAnswer::new(0) }.settled()
    }

    /// With outcomes that have become known since, sorted by index; in the current language.
    pub(super) fn with(&self, new: &[(u32, Outcome)]) -> Self {
        let Self { shape, known, ref is_known, ref pieces, ref source, ref shared } = *self;
        let (shared, is_known) = (shared.clone(), is_known.clone());
        let mut next = Self { shape, known, is_known, pieces: pieces.clone(), source: source.clone(), shared };
        let Some(source) = source else { return next };
        for of_piece in new.chunk_by(|left, right| piece_of(left.0) == piece_of(right.0)) {
            let number = piece_of(of_piece[0].0);
            let mut of_piece = of_piece.iter().peekable();
            let mut piece = PieceWriter::default();
            for (index, old) in (number * ROWS_PER_PIECE..).zip(pieces[number].rows()) {
                match of_piece.next_if(|(new, _)| *new as usize == index) {
                    None => piece.row(|text| text.extend_from_slice(old)),
                    Some((_, outcome)) => {
                        next.is_known[index] = true;
                        piece.row(|text| source.write(text, shape, index, Some(outcome)));
                    }
                }
            }
            next.pieces[number] = piece.end();
        }
        next.settled()
    }

    /// Counts what is known; where that is all, keeps nothing but the text.
    fn settled(mut self) -> Self {
        let known = self.is_known.iter().filter(|is_known| **is_known).count();
        self.known = u32::try_from(known).expect("targets are bounded by the body");
        if known == self.is_known.len() {
            self.source = None;
            self.is_known = Vec::new();
            self.pieces.iter_mut().for_each(|piece| piece.ends = Vec::new());
        }
        self.shared = SharedAnswer::new(self.pieces.iter().map(|piece| piece.text.len()).sum());
        self
    }

    /// How many targets have an outcome here.
    pub(super) fn known(&self) -> u32 {
        self.known
    }

    /// For each target whether it has one; nothing where all have.
    pub(super) fn is_known(&self) -> &[bool] {
        &self.is_known
    }

    /// The memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(|piece| piece.text.len() + size_of_val(&piece.ends[..])).sum();
        pieces + self.is_known.len() + self.source.as_ref().map_or(0, |source| source.bytes())
    }

    pub(in crate::api) fn shared(&self) -> SharedAnswer {
        self.shared.clone()
    }

    /// The `data` of an answer, in pieces.
    pub(in crate::api) fn data(&self) -> Vec<Bytes> {
        let (head, tail) = match (self.shape, &self.source) {
            (Shape::Gse, _) => ("{".to_owned(), "}"),
            // Reserved in the documents, but clients wait for something other than 115.
            (Shape::Job, None) => (job_head(Code::Success), "}}"),
            (Shape::Job, Some(_)) => (job_head(Code::Handling), "}}"),
        };
        let pieces = self.pieces.iter().map(|piece| piece.text.clone());
        [Bytes::from(head)].into_iter().chain(pieces).chain([Bytes::from_static(tail.as_bytes())]).collect()
    }
}

fn job_head(status: Code) -> String {
    format!(r#"{{"status":{},"result":{{"#, status.number())
}

fn piece_of(index: u32) -> usize {
    index as usize / ROWS_PER_PIECE
}

impl Source {
    /// For a target without an outcome: that it is in progress.
    fn write(&self, text: &mut Vec<u8>, shape: Shape, index: usize, outcome: Option<&Outcome>) {
        let target = &self.targets[index];
        let row_keys = std::iter::once(&target.row_key).chain(&target.other_row_keys);
        for (number, row_key) in row_keys.enumerate() {
            if index + number > 0 {
                text.push(b',');
            }
            put(text, row_key);
            text.push(b':');
            self.write_row(text, shape, target, outcome);
        }
    }

    fn write_row(&self, text: &mut Vec<u8>, shape: Shape, target: &Target, outcome: Option<&Outcome>) {
        let known_as = target.agent.as_ref().map(|agent| self.bound.get(agent).unwrap_or(agent));
        let content = outcome.map(|outcome| (outcome, content(&self.task, target, known_as, outcome)));
        match (shape, content) {
            (Shape::Gse, None) => put(text, &Row::pending("")),
            (Shape::Gse, Some((outcome, content))) => put(text, &Row::finished(outcome, written(&content))),
            (Shape::Job, None) => put(text, &Row::pending(Nothing {})),
            (Shape::Job, Some((outcome, content))) => put(text, &Row::finished(outcome, content)),
        }
    }

    fn bytes(&self) -> usize {
        let texts = |target: &Target| {
            let others: usize = target.other_row_keys.iter().map(|key| key.len() + size_of::<String>()).sum();
            target.row_key.len() + others + target.agent.as_ref().map_or(0, |agent| agent.as_str().len())
        };
        let bound = self.bound.len() * 2 * size_of::<AgentId>();
        size_of_val(&self.targets[..]) + bound + self.targets.iter().map(texts).sum::<usize>()
    }
}

/// The content of a row that is not finished, where content is an object.
#[derive(Serialize)]
struct Nothing {}

fn written(content: &Content<'_>) -> String {
    serde_json::to_string(content).expect("content has only string keys")
}

fn put(text: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(text, value).expect("rows have only string keys, and memory takes every byte");
}

#[derive(Default)]
struct PieceWriter {
    text: Vec<u8>,
    ends: Vec<u32>,
}

impl PieceWriter {
    fn row(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.text);
        self.ends.push(u32::try_from(self.text.len()).expect("outputs of commands are bounded"));
    }

    fn end(mut self) -> Piece {
        self.text.shrink_to_fit();
        Piece { text: self.text.into(), ends: self.ends }
    }
}

impl Piece {
    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start as usize..*end as usize])
    }
}
