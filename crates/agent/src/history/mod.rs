//! Usage history of each process: the last hour in memory, the last seven days on disk.
//!
//! Promised: the rings of all processes take at most [`RING_BYTES_MAX`] of memory, allocated with the first sample. A
//! process with watched limits gets steps of 10 s while [`FINE_BYTES_MAX`] lasts and of 60 s beyond; one that is
//! measured once a minute gets steps of 60 s; if nothing is left its hour is not kept, and queries say so. Five
//! minutes of all processes are written together, so a crash of the agent costs at most the last five.
//! Absent: clocks (`now` is an argument, in Unix seconds; it may go back) and measuring.
//! Start at `hour` (memory) and `files` (disk).

mod files;
mod hour;
mod keeper;
mod percent;
mod week;

use std::collections::HashMap;

use proctor_model::{Incarnation, ProcessKey, UsageHistory, UsageKept, UsagePoint};

use hour::HourRing;
pub(crate) use keeper::Keeper;
use week::{OpenStep, WeekStep, number_at};

/// For all rings of the last hour.
const RING_BYTES_MAX: usize = 2 * 1024 * 1024;
/// For those of them that have steps of 10 s: 546 processes.
const FINE_BYTES_MAX: usize = 1536 * 1024;
/// Finished steps of a process that wait for a slow disk; beyond that the oldest are dropped.
const UNWRITTEN_MAX: usize = 12;
/// A slow sample adds nothing where a fast one is younger than this, in seconds.
const FAST_SECS: u64 = 60;

/// One measurement, in percent of the whole machine.
#[derive(Clone, Copy, Debug)]
struct Sample {
    cpu: f32,
    memory: f32,
    is_new_life: bool,
}

/// What was measured, and by whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) rate: Rate,
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// By the limit sampling: every ten seconds or more often.
    Fast,
    /// With everything that runs, once a minute.
    Slow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Fine,
    Coarse,
}

impl Step {
    const fn seconds(self) -> u64 {
        match self {
            Self::Fine => 10,
            Self::Coarse => 60,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct History {
    /// In boxes: a half of the table is empty.
    tracks: HashMap<ProcessKey, Box<Track>>,
    ring_bytes: usize,
    fine_bytes: usize,
    /// Steps before this one have been handed out to be written.
    written_before: u32,
}

#[derive(Debug, Default)]
struct Track {
    /// The life that was last measured.
    life: Option<(i32, u64)>,
    fast_at: Option<u64>,
    hour: Option<HourRing>,
    open: Option<OpenStep>,
    unwritten: Vec<WeekStep>,
}

impl History {
    pub(crate) fn record(&mut self, now: u64, key: &ProcessKey, life: &Incarnation, reading: Reading) {
        let track = match self.tracks.get_mut(key) {
            Some(track) => track,
            None => self.tracks.entry(key.clone()).or_default(),
        };
        match (reading.rate, track.fast_at) {
            (Rate::Slow, Some(fast)) if fast.abs_diff(now) < FAST_SECS => return,
            (Rate::Slow, _) => track.fast_at = None,
            (Rate::Fast, _) => track.fast_at = Some(now),
        }
        let life = (life.pid, life.start_ticks);
        let is_new_life = track.life.replace(life).is_some_and(|before| before != life);
        let sample = Sample { cpu: share(reading.cpu), memory: share(reading.memory), is_new_life };
        track.collect(now, sample);
        let wanted = if reading.rate == Rate::Fast { Step::Fine } else { Step::Coarse };
        let mut hour = track.hour.take();
        self.fit(&mut hour, wanted, now);
        if let Some(hour) = &mut hour {
            hour.record(now, sample);
        }
        if let Some(track) = self.tracks.get_mut(key) {
            track.hour = hour;
        }
    }

    /// Gives a process the ring that it should have, as far as there is room.
    fn fit(&mut self, hour: &mut Option<HourRing>, wanted: Step, now: u64) {
        let current = hour.as_ref().map(HourRing::step);
        if current == Some(wanted) {
            return;
        }
        let step = [wanted, Step::Coarse].into_iter().find(|step| self.has_room(current, *step));
        let Some(step) = step.filter(|step| current != Some(*step)) else { return };
        let ring = match hour.take() {
            Some(old) => old.in_step(step, now),
            None => HourRing::new(step),
        };
        self.give_back(current);
        self.ring_bytes += HourRing::bytes(step);
        if step == Step::Fine {
            self.fine_bytes += HourRing::bytes(step);
        }
        *hour = Some(ring);
    }

    /// Whether a ring of `step` fits into the file of the current one.
    fn has_room(&self, current: Option<Step>, step: Step) -> bool {
        let before = current.map_or(0, HourRing::bytes);
        let is_within = self.ring_bytes - before + HourRing::bytes(step) <= RING_BYTES_MAX;
        let fine = self.fine_bytes + HourRing::bytes(Step::Fine);
        is_within && (step == Step::Coarse || fine <= FINE_BYTES_MAX)
    }

    fn give_back(&mut self, step: Option<Step>) {
        let Some(step) = step else { return };
        self.ring_bytes -= HourRing::bytes(step);
        if step == Step::Fine {
            self.fine_bytes -= HourRing::bytes(step);
        }
    }

    pub(crate) fn forget(&mut self, key: &ProcessKey) {
        if let Some(track) = self.tracks.remove(key) {
            self.give_back(track.hour.as_ref().map(HourRing::step));
        }
    }

    /// The last hour of a process that is registered.
    pub(crate) fn hour(&self, key: &ProcessKey, now: u64) -> UsageHistory {
        let step_secs = |step: Step| u32::try_from(step.seconds()).unwrap_or(u32::MAX);
        match self.tracks.get(key).map(|track| &track.hour) {
            Some(Some(ring)) => {
                UsageHistory { kept: UsageKept::Kept, step_secs: step_secs(ring.step()), points: ring.points(now) }
            }
            Some(None) => UsageHistory::empty(UsageKept::NotKept, step_secs(Step::Coarse)),
            None => UsageHistory::empty(UsageKept::Kept, step_secs(Step::Coarse)),
        }
    }

    /// The newest step of the last hour, if it is not older than two steps.
    pub(crate) fn newest(&self, key: &ProcessKey, now: u64) -> Option<UsagePoint> {
        self.tracks.get(key)?.hour.as_ref()?.newest(now)
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// What of the week is not on disk yet.
    fn unwritten(&self, key: &ProcessKey) -> Vec<WeekStep> {
        let Some(track) = self.tracks.get(key) else { return Vec::new() };
        track.unwritten.iter().copied().chain(track.open.map(|open| open.so_far())).collect()
    }

    /// Finished steps, once per step: of all processes together.
    fn take_finished(&mut self, now: u64) -> Vec<(ProcessKey, Vec<WeekStep>)> {
        let current = number_at(now);
        if current == std::mem::replace(&mut self.written_before, current) {
            return Vec::new();
        }
        let finished = self.take(|open| open.number() != current);
        self.forget_idle(now);
        finished
    }

    /// What has not run for an hour has no points in memory: others get its room.
    fn forget_idle(&mut self, now: u64) {
        let is_idle = |track: &Track| track.open.is_none() && track.hour.as_ref().is_none_or(|hour| hour.is_stale(now));
        let idle: Vec<ProcessKey> =
            self.tracks.iter().filter(|(_, track)| is_idle(track)).map(|(key, _)| key.clone()).collect();
        for key in idle {
            self.forget(&key);
        }
    }

    /// Everything that is not written, at the end of the agent.
    fn take_all(&mut self) -> Vec<(ProcessKey, Vec<WeekStep>)> {
        self.take(|_| true)
    }

    fn take(&mut self, is_taken: impl Fn(&OpenStep) -> bool) -> Vec<(ProcessKey, Vec<WeekStep>)> {
        let mut taken = Vec::new();
        for (key, track) in &mut self.tracks {
            if track.open.as_ref().is_some_and(&is_taken) {
                track.close();
            }
            if !track.unwritten.is_empty() {
                taken.push((key.clone(), std::mem::take(&mut track.unwritten)));
            }
        }
        taken
    }
}

impl Track {
    fn collect(&mut self, now: u64, sample: Sample) {
        match &mut self.open {
            Some(open) if open.number() == number_at(now) => open.add(sample),
            Some(_) | None => {
                self.close();
                self.open = Some(OpenStep::new(now, sample));
            }
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if self.unwritten.len() >= UNWRITTEN_MAX {
            self.unwritten.remove(0);
        }
        self.unwritten.push(open.so_far());
    }
}

fn share(percent: f64) -> f32 {
    let percent = if percent.is_nan() { 0.0 } else { percent.clamp(0.0, 100.0) };
    percent as f32
}

#[cfg(test)]
mod tests;
