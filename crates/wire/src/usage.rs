//! Conversions of usage histories.
//!
//! From the wire: invalid or unordered points are dropped one by one, and so are those beyond the longest range.

use proctor_model::{Spread, UsageHistory, UsageKept, UsagePoint, UsageRange};

use crate::value::{Skipped, each, numbered};
use crate::{WireError, proto};

/// The end of the year 9999, in Unix seconds: nobody can display later times.
const AT_MAX: i64 = 253_402_300_799;
/// Of the longest range.
const POINTS_MAX: usize = UsageRange::Week.points_max();

numbered!(number_of_range, range, UsageRange, "usage range", Hour, Week);
numbered!(number_of_kept, kept, UsageKept, "usage state", Kept, NotKept, NotRegistered);

pub(crate) fn history_to(request: u64, history: UsageHistory) -> proto::UsageHistory {
    let point = |point: UsagePoint| proto::UsagePoint {
        at: point.at,
        cpu_min: point.cpu.min,
        cpu_avg: point.cpu.avg,
        cpu_max: point.cpu.max,
        memory_min: point.memory.min,
        memory_avg: point.memory.avg,
        memory_max: point.memory.max,
        restarted: point.restarted,
    };
    proto::UsageHistory {
        request,
        kept: number_of_kept(history.kept),
        step_secs: history.step_secs,
        points: history.points.into_iter().take(POINTS_MAX).map(point).collect(),
    }
}

pub(crate) fn history_from(history: proto::UsageHistory, skipped: &mut Option<Skipped>) -> UsageHistory {
    let mut points = history.points;
    points.truncate(POINTS_MAX);
    let mut points = each("usage point", points, skipped, point_from);
    let mut newest = i64::MIN;
    points.retain(|point| {
        let is_newer = point.at > newest;
        newest = newest.max(point.at);
        is_newer
    });
    // Does not keep the memory of skipped points with the answer.
    points.shrink_to_fit();
    UsageHistory { kept: kept(history.kept).unwrap_or_default(), step_secs: history.step_secs, points }
}

fn point_from(point: proto::UsagePoint) -> Result<UsagePoint, WireError> {
    if !(0..=AT_MAX).contains(&point.at) {
        return Err(WireError::NoTime { what: "at" });
    }
    let sound = |what, min, avg, max| {
        let spread = Spread { min, avg, max };
        if spread.is_sound() { Ok(spread) } else { Err(WireError::NoShare { what }) }
    };
    Ok(UsagePoint {
        at: point.at,
        cpu: sound("cpu", point.cpu_min, point.cpu_avg, point.cpu_max)?,
        memory: sound("memory", point.memory_min, point.memory_avg, point.memory_max)?,
        restarted: point.restarted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: i64) -> proto::UsagePoint {
        proto::UsagePoint { at, cpu_avg: 1.0, cpu_max: 2.0, memory_avg: 1.0, memory_max: 1.0, ..Default::default() }
    }

    #[test]
    fn points_that_are_no_usage_or_out_of_order_cost_themselves() {
        let points = vec![
            point(10),
            point(10),
            proto::UsagePoint { cpu_max: f32::NAN, ..point(20) },
            proto::UsagePoint { memory_max: 101.0, ..point(30) },
            proto::UsagePoint { cpu_avg: 3.0, ..point(40) },
            point(5),
            point(-1),
            point(i64::MAX),
            point(50),
        ];
        let mut skipped = None;

        let history = history_from(proto::UsageHistory { points, ..Default::default() }, &mut skipped);

        assert_eq!(history.points.iter().map(|point| point.at).collect::<Vec<_>>(), [10, 50]);
        assert_eq!(skipped.map(|skipped| skipped.count), Some(5));
    }

    #[test]
    fn no_answer_has_more_points_than_the_longest_range() {
        let points = (0..10_000).map(point).collect();

        let history = history_from(proto::UsageHistory { points, ..Default::default() }, &mut None);

        assert_eq!(history.points.len(), POINTS_MAX);
    }
}
