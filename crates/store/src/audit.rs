//! The audit log: who changed what, in a hash chain that reveals every later change.
//!
//! Promised: entries are numbered from 1 without a gap; each holds the hash of the one before it,
//! and its own hash is BLAKE3 of those 32 bytes followed by its [canonical JSON](AuditEntry::canonical).
//! Absent: protection against someone who rewrites or truncates the whole end of the log; for that, the newest hash
//! must be kept elsewhere from time to time.

use std::net::IpAddr;

use proctor_model::{Classes, FieldError, messages};
use serde::{Deserialize, Serialize};

use crate::{AuditAnchor, Millis};

/// Beyond this number, targets are only counted.
pub const AUDIT_TARGETS_MAX: usize = 1000;
/// Each text of an entry is truncated here, so an entry is bounded whatever a caller sends.
pub const AUDIT_TEXT_CHARS_MAX: usize = 1000;

/// The hash before the first entry.
pub const FIRST_HASH: [u8; 32] = [0; 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditPhase {
    /// A change is about to be made; a closing entry follows.
    Begun,
    /// The result of a change that was begun.
    Ended,
    /// A change and this entry, in one transaction.
    Done,
    /// Nothing was changed: the caller was not permitted.
    Refused,
}

impl AuditPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Ended => "ended",
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }
}

impl std::str::FromStr for AuditPhase {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Begun, Self::Ended, Self::Done, Self::Refused]
            .into_iter()
            .find(|phase| phase.as_str() == text)
            .ok_or_else(|| FieldError::new("phase", messages::not_one_of(text, "begun, ended, done, refused")))
    }
}

/// An entry to be appended; the store adds its number, its time and the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditDraft {
    pub phase: AuditPhase,
    /// The entry that opened what this one closes.
    pub of: Option<u64>,
    pub app: String,
    pub user: String,
    /// None if the call did not come over the network.
    pub remote: Option<IpAddr>,
    pub request_id: String,
    /// What was done, for example `processes.register`.
    pub action: String,
    pub classes: Classes,
    pub target_count: u64,
    /// The first ones; at most [`AUDIT_TARGETS_MAX`] are kept.
    pub targets: Vec<String>,
    pub outcome: String,
}

impl AuditDraft {
    /// Truncated to the bounds of every entry.
    pub(crate) fn bounded(mut self) -> Self {
        self.targets.truncate(AUDIT_TARGETS_MAX);
        let texts = [&mut self.app, &mut self.user, &mut self.request_id, &mut self.action, &mut self.outcome];
        for text in texts.into_iter().chain(&mut self.targets) {
            if let Some((end, _)) = text.char_indices().nth(AUDIT_TEXT_CHARS_MAX) {
                text.truncate(end);
            }
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    pub seq: u64,
    pub at: Millis,
    pub draft: AuditDraft,
    pub prev_hash: [u8; 32],
    pub hash: [u8; 32],
}

/// What is hashed. The fields are in the order of their names.
#[derive(Serialize)]
struct Canonical<'a> {
    action: &'a str,
    app: &'a str,
    at: Millis,
    classes: Classes,
    of: Option<u64>,
    outcome: &'a str,
    phase: AuditPhase,
    prev_hash: String,
    remote: Option<IpAddr>,
    request_id: &'a str,
    seq: u64,
    target_count: u64,
    targets: &'a [String],
    user: &'a str,
}

impl AuditEntry {
    pub(crate) fn new(seq: u64, at: Millis, draft: AuditDraft, prev_hash: [u8; 32]) -> Self {
        let mut entry = Self { seq, at, draft, prev_hash, hash: FIRST_HASH };
        entry.hash = entry.expected_hash();
        entry
    }

    /// The JSON text that is hashed: all fields except `hash`, sorted by name, without spaces, hashes as lower-case
    /// hex. Any JSON library that sorts keys produces the same text from an exported entry.
    pub fn canonical(&self) -> String {
        let draft = &self.draft;
        let canonical = Canonical {
            action: &draft.action,
            app: &draft.app,
            at: self.at,
            classes: draft.classes,
            of: draft.of,
            outcome: &draft.outcome,
            phase: draft.phase,
            prev_hash: blake3::Hash::from_bytes(self.prev_hash).to_string(),
            remote: draft.remote,
            request_id: &draft.request_id,
            seq: self.seq,
            target_count: draft.target_count,
            targets: &draft.targets,
            user: &draft.user,
        };
        serde_json::to_string(&canonical).expect("texts and numbers serialise without error")
    }

    /// The entry with its hash as a line of JSON, for an archive; see [`verify_line`].
    pub fn to_line(&self) -> String {
        let canonical = self.canonical();
        let hash = blake3::Hash::from_bytes(self.hash);
        format!("{},\"hash\":\"{hash}\"}}", canonical.strip_suffix('}').unwrap_or(&canonical))
    }

    fn expected_hash(&self) -> [u8; 32] {
        hash_of(&self.prev_hash, &self.canonical())
    }
}

fn hash_of(prev_hash: &[u8; 32], canonical: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(prev_hash);
    hasher.update(canonical.as_bytes());
    *hasher.finalize().as_bytes()
}

/// A filter; a field that is None does not narrow.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only those with a higher number.
    pub after: u64,
    /// Only those with a lower number.
    pub before: Option<u64>,
    /// At most this many: the oldest matching ones or, with `newest`, the newest.
    pub limit: u32,
    pub newest: bool,
    pub app: Option<String>,
    pub user: Option<String>,
    pub action: Option<String>,
    /// From this moment on.
    pub since: Option<Millis>,
    /// Before this moment.
    pub until: Option<Millis>,
}

/// Where and how a chain breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditBreak {
    #[error("entry {expected} is missing: entry {found} follows")]
    Missing { expected: u64, found: u64 },
    #[error("entry {seq} does not hold the hash of the entry before it")]
    Unlinked { seq: u64 },
    #[error("entry {seq} was changed: its hash does not fit")]
    Changed { seq: u64 },
    #[error("the line after entry {seq} is not an entry")]
    Unreadable { seq: u64 },
}

impl AuditBreak {
    /// The number of the first entry that does not fit.
    pub fn at(self) -> u64 {
        match self {
            Self::Missing { expected, .. } => expected,
            Self::Unlinked { seq } | Self::Changed { seq } => seq,
            Self::Unreadable { seq } => seq + 1,
        }
    }
}

/// Checks consecutive entries that follow an older one, in order.
pub fn verify_after(anchor: AuditAnchor, entries: &[AuditEntry]) -> Result<(), AuditBreak> {
    let Some(first) = entries.first() else { return Ok(()) };
    if first.seq != anchor.seq + 1 {
        return Err(AuditBreak::Missing { expected: anchor.seq + 1, found: first.seq });
    }
    if first.prev_hash != anchor.hash {
        return Err(AuditBreak::Unlinked { seq: first.seq });
    }
    verify(entries)
}

/// Checks a line of an archive or an export that follows an older entry, and returns what it adds.
pub fn verify_line(anchor: AuditAnchor, line: &str) -> Result<AuditAnchor, AuditBreak> {
    let unreadable = || AuditBreak::Unreadable { seq: anchor.seq };
    // Sorted by name, as what is hashed.
    let mut fields: std::collections::BTreeMap<String, serde_json::Value> =
        serde_json::from_str(line).map_err(|_| unreadable())?;
    let hex = |value: Option<&serde_json::Value>| {
        let hash = blake3::Hash::from_hex(value?.as_str()?).ok()?;
        Some(*hash.as_bytes())
    };
    let seq = fields.get("seq").and_then(serde_json::Value::as_u64).ok_or_else(unreadable)?;
    let hash = hex(fields.remove("hash").as_ref()).ok_or_else(unreadable)?;
    let prev_hash = hex(fields.get("prev_hash")).ok_or_else(unreadable)?;
    if seq != anchor.seq + 1 {
        return Err(AuditBreak::Missing { expected: anchor.seq + 1, found: seq });
    }
    if prev_hash != anchor.hash {
        return Err(AuditBreak::Unlinked { seq });
    }
    let canonical = serde_json::to_string(&fields).map_err(|_| unreadable())?;
    if hash != hash_of(&prev_hash, &canonical) {
        return Err(AuditBreak::Changed { seq });
    }
    Ok(AuditAnchor { seq, hash })
}

/// Checks a consecutive piece of the log. The hash that the first entry refers to is trusted, unless it is the
/// first entry of all.
pub fn verify(entries: &[AuditEntry]) -> Result<(), AuditBreak> {
    let Some(first) = entries.first() else { return Ok(()) };
    let mut prev_hash = if first.seq == 1 { FIRST_HASH } else { first.prev_hash };
    for (expected, entry) in (first.seq..).zip(entries) {
        if entry.seq != expected {
            return Err(AuditBreak::Missing { expected, found: entry.seq });
        }
        if entry.prev_hash != prev_hash {
            return Err(AuditBreak::Unlinked { seq: entry.seq });
        }
        if entry.hash != entry.expected_hash() {
            return Err(AuditBreak::Changed { seq: entry.seq });
        }
        prev_hash = entry.hash;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(action: &str) -> AuditDraft {
        AuditDraft {
            phase: AuditPhase::Done,
            of: None,
            app: "job".to_owned(),
            user: "张三".to_owned(),
            remote: Some("10.0.0.1".parse().unwrap()),
            request_id: "r-1".to_owned(),
            action: action.to_owned(),
            classes: [proctor_model::Class::Operate].into_iter().collect(),
            target_count: 2,
            targets: vec!["0:10.0.0.1 web/\"a\"\n".to_owned()],
            outcome: "ok".to_owned(),
        }
    }

    fn chain(count: u64) -> Vec<AuditEntry> {
        let mut entries: Vec<AuditEntry> = Vec::new();
        for seq in 1..=count {
            let prev_hash = entries.last().map_or(FIRST_HASH, |entry| entry.hash);
            entries.push(AuditEntry::new(seq, 5, draft(&format!("action {seq}")), prev_hash));
        }
        entries
    }

    #[test]
    fn a_whole_chain_and_each_piece_of_it_are_sound() {
        let entries = chain(5);

        for first in 0..5 {
            for last in first..=5 {
                assert_eq!(verify(&entries[first..last]), Ok(()));
            }
        }
    }

    #[test]
    fn every_field_counts() {
        type Change = fn(&mut AuditEntry);
        let changes: [Change; 13] = [
            |entry| entry.at += 1,
            |entry| entry.draft.phase = AuditPhase::Ended,
            |entry| entry.draft.of = Some(1),
            |entry| entry.draft.app.push('x'),
            |entry| entry.draft.user.push('x'),
            |entry| entry.draft.remote = None,
            |entry| entry.draft.request_id.push('x'),
            |entry| entry.draft.action.push('x'),
            |entry| entry.draft.classes = Classes::default(),
            |entry| entry.draft.target_count += 1,
            |entry| entry.draft.targets.clear(),
            |entry| entry.draft.outcome.push('x'),
            |entry| entry.hash[0] ^= 1,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut entries = chain(3);

            change(&mut entries[1]);

            assert_eq!(verify(&entries), Err(AuditBreak::Changed { seq: 2 }), "change {number}");
        }
    }

    #[test]
    fn a_missing_an_added_and_a_rewritten_entry_are_told() {
        let mut missing = chain(4);
        missing.remove(2);
        let mut rewritten = chain(3);
        let prev_hash = rewritten[0].hash;
        rewritten[1] = AuditEntry::new(2, 6, draft("another"), prev_hash);
        let mut foreign_begin = chain(2);
        foreign_begin[0] = AuditEntry::new(1, 5, draft("action 1"), [7; 32]);

        assert_eq!(verify(&missing), Err(AuditBreak::Missing { expected: 3, found: 4 }));
        assert_eq!(verify(&rewritten), Err(AuditBreak::Unlinked { seq: 3 }));
        assert_eq!(verify(&foreign_begin), Err(AuditBreak::Unlinked { seq: 1 }));
    }

    #[test]
    fn the_canonical_text_is_sorted_and_has_no_spaces() {
        let text = chain(1)[0].canonical();

        let zeros = "0".repeat(64);
        assert_eq!(
            text,
            format!(
                r#"{{"action":"action 1","app":"job","at":5,"classes":["operate"],"of":null,"outcome":"ok","phase":"done","prev_hash":"{zeros}","remote":"10.0.0.1","request_id":"r-1","seq":1,"target_count":2,"targets":["0:10.0.0.1 web/\"a\"\n"],"user":"张三"}}"#
            )
        );
    }

    #[test]
    fn lines_of_an_archive_are_a_chain_of_their_own() {
        let begin = AuditAnchor { seq: 0, hash: FIRST_HASH };
        let lines: Vec<String> = chain(3).iter().map(AuditEntry::to_line).collect();

        let whole = lines.iter().try_fold(begin, |anchor, line| verify_line(anchor, line));
        let first = verify_line(begin, &lines[0]).unwrap();
        let changed = lines[1].replace("action 2", "action 9");

        assert_eq!(whole, Ok(AuditAnchor { seq: 3, hash: chain(3)[2].hash }));
        assert_eq!(verify_line(first, &lines[2]), Err(AuditBreak::Missing { expected: 2, found: 3 }));
        assert_eq!(verify_line(first, &changed), Err(AuditBreak::Changed { seq: 2 }));
        assert_eq!(
            verify_line(AuditAnchor { hash: [7; 32], ..first }, &lines[1]),
            Err(AuditBreak::Unlinked { seq: 2 })
        );
        assert_eq!(verify_line(first, "{}"), Err(AuditBreak::Unreadable { seq: 1 }));
        assert_eq!(verify_after(first, &chain(3)[1..]), Ok(()));
        assert_eq!(verify_after(begin, &chain(3)[1..]), Err(AuditBreak::Missing { expected: 1, found: 2 }));
    }

    #[test]
    fn a_draft_is_cut_to_its_bounds_between_characters() {
        let mut long = draft("x");
        long.outcome = "进".repeat(AUDIT_TEXT_CHARS_MAX + 1);
        long.targets = vec!["进".repeat(AUDIT_TEXT_CHARS_MAX + 1); AUDIT_TARGETS_MAX + 1];

        let cut = long.bounded();

        assert_eq!(cut.outcome, "进".repeat(AUDIT_TEXT_CHARS_MAX));
        assert_eq!(cut.targets, vec!["进".repeat(AUDIT_TEXT_CHARS_MAX); AUDIT_TARGETS_MAX]);
    }
}
