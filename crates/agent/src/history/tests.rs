use proctor_model::BootId;

use super::*;

const NOW: u64 = 1_700_000_000;

fn key(number: usize) -> ProcessKey {
    format!("ns/p{number}").parse().unwrap()
}

fn life(pid: i32) -> Incarnation {
    Incarnation { boot: BootId::from("boot".to_owned()), pid, start_ticks: 7, pidfd_inode: None }
}

fn reading(rate: Rate, cpu: f64) -> Reading {
    Reading { rate, cpu, memory: 1.0 }
}

#[test]
fn rings_stay_within_their_budget_and_say_what_they_are() {
    let mut history = History::default();
    for number in 0..4000 {
        history.record(NOW, &key(number), &life(1), reading(Rate::Fast, 1.0));
    }

    let steps: Vec<UsageHistory> = (0..4000).map(|number| history.hour(&key(number), NOW)).collect();

    assert!(history.ring_bytes <= RING_BYTES_MAX && history.fine_bytes <= FINE_BYTES_MAX);
    let fine = steps.iter().filter(|hour| hour.kept == UsageKept::Kept && hour.step_secs == 10).count();
    let coarse = steps.iter().filter(|hour| hour.kept == UsageKept::Kept && hour.step_secs == 60).count();
    let none = steps.iter().filter(|hour| hour.kept == UsageKept::NotKept).count();
    assert_eq!((fine, fine + coarse + none), (546, 4000));
    assert!(coarse > 1000 && none > 0, "{coarse} {none}");
    for number in 0..4000 {
        history.forget(&key(number));
    }
    assert_eq!((history.ring_bytes, history.fine_bytes), (0, 0));
}

#[test]
fn a_process_gets_finer_steps_with_its_limits_and_loses_them_with_those() {
    let mut history = History::default();
    let mut step_after = |now, rate| {
        history.record(now, &key(1), &life(1), reading(rate, 1.0));
        history.hour(&key(1), now).step_secs
    };

    let steps = [
        step_after(NOW, Rate::Slow),
        step_after(NOW + 30, Rate::Fast),
        // Measured with all others, while its limits are watched.
        step_after(NOW + 60, Rate::Slow),
        step_after(NOW + 200, Rate::Slow),
    ];

    assert_eq!(steps, [60, 10, 10, 60]);
    assert_eq!(history.fine_bytes, 0);
}

#[test]
fn a_slow_sample_beside_fast_ones_is_not_recorded() {
    let mut history = History::default();
    history.record(NOW, &key(1), &life(1), reading(Rate::Fast, 1.0));

    history.record(NOW + 5, &key(1), &life(1), reading(Rate::Slow, 90.0));

    let points = history.hour(&key(1), NOW + 5).points;
    assert!(points.iter().all(|point| point.cpu.max < 2.0), "{points:?}");
}

#[test]
fn a_new_life_is_marked_and_the_first_is_not() {
    let mut history = History::default();
    for (seconds, pid) in [(0, 1), (10, 1), (20, 2), (30, 2)] {
        history.record(NOW + seconds, &key(1), &life(pid), reading(Rate::Fast, 1.0));
    }

    let marks: Vec<bool> = history.hour(&key(1), NOW + 30).points.iter().map(|point| point.restarted).collect();

    assert_eq!(marks, [false, false, true, false]);
}

#[test]
fn finished_steps_are_handed_out_once_and_together() {
    let mut history = History::default();
    let first = NOW / 300 * 300;
    for number in 0..3 {
        history.record(first + number as u64, &key(number), &life(1), reading(Rate::Slow, 1.0));
    }
    assert!(history.take_finished(first).is_empty());
    history.record(first + 310, &key(0), &life(1), reading(Rate::Slow, 1.0));

    let taken = history.take_finished(first + 310);

    assert_eq!(taken.len(), 3);
    assert!(taken.iter().all(|(_, steps)| steps.len() == 1));
    assert!(history.take_finished(first + 320).is_empty());
    assert_eq!(history.unwritten(&key(0)).len(), 1);
    assert_eq!(history.take_all().len(), 1);
}

#[test]
fn a_disk_that_takes_nothing_costs_a_bounded_number_of_steps() {
    let mut history = History::default();
    for number in 0..100 {
        history.record(NOW + number * 300, &key(1), &life(1), reading(Rate::Slow, 1.0));
    }

    assert_eq!(history.unwritten(&key(1)).len(), UNWRITTEN_MAX + 1);
}

#[test]
fn a_process_that_has_not_run_for_an_hour_gives_its_room_to_others() {
    let mut history = History::default();
    for number in 0..4000 {
        history.record(NOW, &key(number), &life(1), reading(Rate::Fast, 1.0));
    }
    history.take_finished(NOW + 600);
    history.record(NOW + 3700, &key(4001), &life(1), reading(Rate::Fast, 1.0));
    let before = history.hour(&key(4001), NOW + 3700);

    history.take_finished(NOW + 3700);
    history.record(NOW + 3710, &key(4001), &life(1), reading(Rate::Fast, 1.0));

    assert_eq!(before.kept, UsageKept::NotKept);
    let after = history.hour(&key(4001), NOW + 3710);
    assert_eq!((after.kept, after.step_secs), (UsageKept::Kept, 10));
    assert_eq!(history.tracks.len(), 1);
    assert_eq!(history.hour(&key(0), NOW + 3710).kept, UsageKept::Kept, "it has used nothing");
}
