//! A process's resource use over time, as its host records it.
//!
//! Promised: points are in order of time and at most [`UsageRange::points_max`]; shares are percent of the whole
//! machine, from 0 to 100. A point covers one step from its time on. Absent: how it is recorded (the agent).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{FieldError, messages};

/// How far back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UsageRange {
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "7d")]
    Week,
}

impl UsageRange {
    pub const ALL: [Self; 2] = [Self::Hour, Self::Week];

    pub const fn seconds(self) -> u32 {
        match self {
            Self::Hour => 3600,
            Self::Week => 7 * 24 * 3600,
        }
    }

    /// The finest step of this range, in seconds.
    pub const fn step_min(self) -> u32 {
        match self {
            Self::Hour => 10,
            Self::Week => 300,
        }
    }

    /// Including the current step.
    pub const fn points_max(self) -> usize {
        (self.seconds() / self.step_min()) as usize + 1
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::Week => "7d",
        }
    }
}

impl fmt::Display for UsageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for UsageRange {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let found = Self::ALL.into_iter().find(|range| range.as_str() == text);
        found.ok_or_else(|| FieldError::new("range", messages::not_one_of(text, "1h, 7d")))
    }
}

/// One resource within one step, in percent of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Not recorded for the last hour.
    pub min: Option<f32>,
    pub avg: f32,
    pub max: f32,
}

impl Spread {
    /// Whether the numbers are valid shares.
    pub fn is_sound(&self) -> bool {
        let is_share = |number: f32| (0.0..=100.0).contains(&number);
        let min = self.min.unwrap_or(self.avg);
        is_share(min) && is_share(self.avg) && is_share(self.max) && min <= self.avg && self.avg <= self.max
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsagePoint {
    /// When the step began, in Unix seconds of the host's clock.
    pub at: i64,
    pub cpu: Spread,
    pub memory: Spread,
    /// A new life of the process began in this step.
    pub restarted: bool,
}

/// Whether there can be any points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageKept {
    #[default]
    Kept,
    /// The host has more processes than its agent records.
    NotKept,
    /// The host does not know the process.
    NotRegistered,
}

/// The usage of one process over one range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageHistory {
    pub kept: UsageKept,
    /// Seconds between points if none is missing.
    pub step_secs: u32,
    pub points: Vec<UsagePoint>,
}

impl UsageHistory {
    /// Without points.
    pub fn empty(kept: UsageKept, step_secs: u32) -> Self {
        Self { kept, step_secs, points: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_written() {
        for range in UsageRange::ALL {
            assert_eq!(range.to_string().parse::<UsageRange>().unwrap(), range);
        }
        assert_eq!("2h".parse::<UsageRange>().unwrap_err().field, "range");
        assert_eq!((UsageRange::Hour.points_max(), UsageRange::Week.points_max()), (361, 2017));
    }

    #[test]
    fn a_spread_of_impossible_numbers_is_not_sound() {
        let sound = Spread { min: Some(0.0), avg: 50.0, max: 100.0 };
        let unsound = [
            Spread { max: 100.1, ..sound },
            Spread { avg: f32::NAN, ..sound },
            Spread { min: Some(51.0), ..sound },
            Spread { max: 49.0, ..sound },
            Spread { min: Some(-1.0), ..sound },
        ];

        assert!(sound.is_sound() && Spread { min: None, ..sound }.is_sound());
        assert!(unsound.iter().all(|spread| !spread.is_sound()), "{unsound:?}");
    }
}
