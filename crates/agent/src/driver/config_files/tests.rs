use proctor_model::BootId;

use super::*;

fn at(secs: u64) -> Time {
    Time::since_boot(Duration::from_secs(secs))
}

fn key() -> ProcessKey {
    "team/web".parse().unwrap()
}

fn life(pid: i32) -> Incarnation {
    Incarnation { boot: BootId::from("boot"), pid, start_ticks: 1, pidfd_inode: None }
}

fn spec(paths: &[&str]) -> Arc<Spec> {
    let file = |path: &&str| ConfigFile { path: path.parse().unwrap(), md5: String::new() };
    proctor_model::samples::spec(|spec| spec.configmap = paths.iter().map(file).collect())
}

/// Checks what is due and says how many files changed.
fn check(configs: &mut ConfigMonitor, now: Time) -> Option<usize> {
    let job = configs.take_due(now).pop()?;
    Some(configs.checked(done(job), now)?.len())
}

fn done(mut job: Job) -> Checked {
    let changes = files::check(&mut job.files, job.ticket, i64::MAX, &Bounds::default(), || false);
    Checked { key: job.key, ticket: job.ticket, seen: Some((job.files, changes)) }
}

#[test]
fn a_check_that_fails_is_followed_by_the_next_one_and_what_was_told_is_not_told_again() {
    let (mut configs, spec) = (ConfigMonitor::default(), spec(&["/none/such"]));
    configs.set(&key(), &spec, Some(&life(1)), at(10));
    assert_eq!(check(&mut configs, at(10)), Some(1));
    let job = configs.take_due(at(40)).pop().unwrap();

    let failed = configs.checked(Checked { key: job.key, ticket: job.ticket, seen: None }, at(41));

    assert_eq!(failed.map(|changes| changes.len()), Some(0));
    assert_eq!(configs.next(), Some(at(71)));
    assert_eq!(check(&mut configs, at(71)), Some(0), "told already");
}

#[test]
fn a_life_is_checked_when_it_begins_and_then_every_half_minute() {
    let (mut configs, spec) = (ConfigMonitor::default(), spec(&["/none/such"]));

    configs.set(&key(), &spec, Some(&life(1)), at(10));

    assert_eq!(configs.next(), Some(at(10)));
    assert_eq!(check(&mut configs, at(10)), Some(1));
    assert_eq!(configs.next(), Some(at(40)));
    assert_eq!(check(&mut configs, at(39)), None);
    assert_eq!(check(&mut configs, at(40)), Some(0), "told already");
}

#[test]
fn a_process_that_does_not_run_or_has_no_configmap_is_not_checked() {
    let mut configs = ConfigMonitor::default();

    configs.set(&key(), &spec(&["/none/such"]), None, at(10));
    assert_eq!(configs.next(), None);
    configs.set(&key(), &spec(&[]), Some(&life(1)), at(10));
    assert_eq!(configs.next(), None);
    assert!(configs.of.is_empty());
}

#[test]
fn the_next_life_is_checked_at_once_and_what_was_told_is_not_told_again() {
    let (mut configs, spec) = (ConfigMonitor::default(), spec(&["/none/such"]));
    configs.set(&key(), &spec, Some(&life(1)), at(10));
    check(&mut configs, at(10));

    configs.set(&key(), &spec, None, at(20));
    assert_eq!(configs.next(), None);
    configs.set(&key(), &spec, Some(&life(2)), at(30));

    assert_eq!(configs.next(), Some(at(30)));
    assert_eq!(check(&mut configs, at(30)), Some(0));
}

#[test]
fn a_spec_that_comes_during_a_check_is_checked_after_it() {
    let mut configs = ConfigMonitor::default();
    configs.set(&key(), &spec(&["/none/such"]), Some(&life(1)), at(10));
    let job = configs.take_due(at(10)).pop().unwrap();

    configs.set(&key(), &spec(&["/none/such", "/none/other"]), Some(&life(1)), at(11));
    assert_eq!(configs.next(), None, "one at a time");
    assert_eq!(configs.checked(done(job), at(12)).map(|changes| changes.len()), Some(1));

    assert_eq!(configs.next(), Some(at(12)));
    assert_eq!(check(&mut configs, at(12)), Some(1), "the one that the first check did not know");
}

#[test]
fn the_answer_to_a_check_of_something_forgotten_does_not_count() {
    let (mut configs, spec) = (ConfigMonitor::default(), spec(&["/none/such"]));
    configs.set(&key(), &spec, Some(&life(1)), at(10));
    let job = configs.take_due(at(10)).pop().unwrap();

    configs.forget(&key());
    configs.set(&key(), &spec, Some(&life(1)), at(11));

    assert!(configs.checked(done(job), at(12)).is_none());
    assert_eq!(check(&mut configs, at(12)), Some(1));
}

#[test]
fn no_more_than_a_thousand_files_are_checked() {
    let paths: Vec<String> = (0..FILES_MAX + 5).map(|number| format!("/none/{number}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut configs = ConfigMonitor::default();
    configs.set(&key(), &spec(&paths), Some(&life(1)), at(10));

    assert_eq!(check(&mut configs, at(10)), Some(FILES_MAX));
}
