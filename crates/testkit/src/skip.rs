//! Visible skips: a test that this machine cannot run says so and is counted.
//!
//! Promised: every skip leaves a file named after its test in `target/skipped-tests`, which
//! `scripts/report-skips` lists at the end of `make test`; with `PROCTOR_SKIPS=forbid` a skip fails
//! the test. Absent: a verdict on whether a skip is acceptable; a person reads the list.

use std::path::PathBuf;

/// Records that the calling test cannot run on this machine; the test then returns.
///
/// # Panics
/// With `PROCTOR_SKIPS=forbid` in the environment, and where the skip cannot be recorded.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("unnamed").to_owned();
    assert!(
        std::env::var_os("PROCTOR_SKIPS").is_none_or(|value| value != "forbid"),
        "{test} may not be skipped (PROCTOR_SKIPS=forbid): {reason}"
    );
    let directory = record_directory();
    std::fs::create_dir_all(&directory).expect("the target directory is writable");
    std::fs::write(directory.join(&test), format!("{test}: {reason}\n")).expect("the target directory is writable");
    println!("SKIPPED {test}: {reason}");
}

/// `skipped-tests` in the target directory, which holds the profile directory with the test binary in `deps`.
fn record_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    test.ancestors().nth(3).expect("a test binary is in target/PROFILE/deps").join("skipped-tests")
}
