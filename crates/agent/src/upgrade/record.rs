//! What the agent records about an upgrade, across all programs that take part in it.
//!
//! Promised: a record is complete or the previous one, even after a power failure, and readable only by its owner.
//! Two programs never write it at once: the running agent does, and between its exit and the next start the one that
//! watches the trial. Later versions read it: fields are only added.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use proctor_model::{Message, Phrase, Sender, UpgradeStep};
use proctor_runtime::private;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// In the state directory.
const FILE: &str = "upgrade.json";
/// In the state directory: what the new program reports during its trial. The old one reads it, so its form is an
/// interface between versions: the id of the upgrade, a space, and one of [`Sign`].
const PROOF: &str = "upgrade-proof";
/// In the state directory: changes as long as the driver loop of the new program runs, and is an interface between
/// versions, too. The old one compares its contents with the previous ones.
const PULSE: &str = "upgrade-pulse";
/// A pulse is a few digits.
const PULSE_BYTES_MAX: u64 = 256;

/// One upgrade, the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) upgrade: Uuid,
    pub(crate) version: String,
    /// What ran before.
    pub(crate) from: String,
    /// In hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) size: u64,
    pub(crate) health_deadline_secs: u64,
    pub(crate) step: UpgradeStep,
    /// Trials that have begun.
    pub(crate) trials: u32,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) phrase: Option<String>,
    /// An event reports its end.
    #[serde(default)]
    pub(crate) told: bool,
}

impl Record {
    pub(crate) fn failed(mut self, reason: &Message) -> Self {
        self.step = UpgradeStep::Failed;
        self.told = false;
        self.phrase = reason.phrase().map(Phrase::to_json);
        self.reason = reason.to_string();
        self
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers always become JSON")
    }

    pub(crate) fn of_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    pub(crate) fn message(&self) -> Message {
        let phrase = self.phrase.as_deref().and_then(|json| Phrase::from_json(json, Sender::Agent));
        Message::of_parts(self.reason.clone(), phrase)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.step, UpgradeStep::Done | UpgradeStep::Failed)
    }
}

/// What a program on trial shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sign {
    /// Its driver supervises.
    Started,
    /// It had a session for long enough.
    Proved,
}

impl Sign {
    const ALL: [Self; 2] = [Self::Started, Self::Proved];

    fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Proved => "proved",
        }
    }
}

/// The files of an upgrade in the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    dir: PathBuf,
}

impl Records {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self { dir: state_dir.to_owned() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// An unreadable one counts as none: the server orders again what it wants.
    pub(crate) fn load(&self) -> Option<Record> {
        let path = self.dir.join(FILE);
        let text = std::fs::read_to_string(&path).ok()?;
        Record::of_json(&text)
            .inspect_err(|error| {
                tracing::error!(path = %path.display(), %error, "cannot read the upgrade record");
            })
            .ok()
    }

    pub(crate) fn save(&self, record: &Record) -> io::Result<()> {
        private::write(&self.dir.join(FILE), &record.to_json())
    }

    pub(crate) fn show(&self, upgrade: Uuid, sign: Sign) -> io::Result<()> {
        private::write(&self.dir.join(PROOF), &format!("{upgrade} {}", sign.as_str()))
    }

    pub(crate) fn shown(&self, upgrade: Uuid) -> Option<Sign> {
        let text = std::fs::read_to_string(self.dir.join(PROOF)).ok()?;
        let (of, shown) = text.trim().split_once(' ')?;
        let sign = Sign::ALL.into_iter().find(|sign| sign.as_str() == shown)?;
        (of == upgrade.to_string()).then_some(sign)
    }

    /// `turns` is another number each time.
    pub(crate) fn beat(&self, upgrade: Uuid, turns: u64) -> io::Result<()> {
        private::write(&self.dir.join(PULSE), &format!("{upgrade} {turns}"))
    }

    /// The contents; nothing if it cannot be read.
    pub(crate) fn pulse(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = File::open(self.dir.join(PULSE)).and_then(|file| file.take(PULSE_BYTES_MAX).read_to_end(&mut bytes));
        if read.is_ok() { bytes } else { Vec::new() }
    }

    pub(crate) fn clear_heartbeats(&self) -> io::Result<()> {
        for name in [PROOF, PULSE] {
            match std::fs::remove_file(self.dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) fn sample() -> Record {
    Record {
        upgrade: Uuid::from_u128(7),
        version: "1.2.3".into(),
        from: "1.2.2".into(),
        sha256: "ab".repeat(32),
        size: 5,
        health_deadline_secs: 60,
        step: UpgradeStep::Fetching,
        trials: 0,
        reason: String::new(),
        phrase: None,
        told: false,
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::messages;

    use super::*;

    #[test]
    fn a_record_is_read_back_with_its_reason_in_every_language() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path());
        let reason = messages::upgrade_hung(15);

        records.save(&sample().failed(&reason)).unwrap();

        let read = records.load().unwrap();
        assert_eq!((read.step, read.message()), (UpgradeStep::Failed, reason));
        assert!(read.message().phrase().is_some() && read.is_over());
    }

    #[test]
    fn a_sign_counts_for_its_own_upgrade_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (records, upgrade) = (Records::new(dir.path()), Uuid::from_u128(7));
        assert_eq!(records.shown(upgrade), None);

        records.show(upgrade, Sign::Started).unwrap();
        assert_eq!(records.shown(upgrade), Some(Sign::Started));
        records.show(upgrade, Sign::Proved).unwrap();

        assert_eq!(records.shown(upgrade), Some(Sign::Proved));
        assert_eq!(records.shown(Uuid::from_u128(8)), None);
        records.clear_heartbeats().unwrap();
        assert_eq!(records.shown(upgrade), None);
        std::fs::write(dir.path().join(PROOF), "anything").unwrap();
        assert_eq!(records.shown(upgrade), None);
    }

    #[test]
    fn a_damaged_record_is_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{\"upgrade\":").unwrap();

        assert_eq!(Records::new(dir.path()).load(), None);
    }
}
