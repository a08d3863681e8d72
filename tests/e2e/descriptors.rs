//! Descriptor limits that a server is started with.

use proctor_testkit::{Fleet, Launcher, Setup};

/// A server started with these limits, without the capability by which root could raise the hard one.
pub(crate) async fn limited_fleet(soft: u64, hard: u64) -> Fleet {
    let limits = format!("--nofile={soft}:{hard}");
    let prefix = ["prlimit", &limits, "setpriv", "--bounding-set", "-sys_resource"].map(str::to_owned).to_vec();
    let launcher = Launcher { prefix, ..Launcher::default() };
    Fleet::start_as(tempfile::tempdir().unwrap(), Setup { launcher, ..Setup::default() }).await.unwrap()
}

/// The soft and the hard limit of the running server.
pub(crate) fn descriptor_limits(fleet: &Fleet) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{}/limits", fleet.server.program.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut numbers = line.split_ascii_whitespace().map(|number| number.parse().unwrap_or(u64::MAX));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// The line of its log about limits.
fn told(fleet: &Fleet) -> String {
    let log = fleet.server.program.log();
    log.lines().find(|line| line.contains(" limits ")).unwrap_or_else(|| panic!("no such line: {log}")).to_owned()
}

#[tokio::test]
async fn a_server_with_a_soft_limit_of_1024_raises_it_to_the_hard_one_and_says_what_it_got() {
    let fleet = limited_fleet(1024, 5000).await;

    assert_eq!(descriptor_limits(&fleet), (5000, 5000));
    // Half of those that are not reserved.
    let line = told(&fleet);
    assert!(line.contains("descriptors=5000") && line.contains("http_connections=2436"), "{line}");
}

#[tokio::test]
async fn a_server_that_cannot_raise_its_limit_says_what_it_has() {
    let fleet = limited_fleet(1024, 1024).await;

    assert_eq!(descriptor_limits(&fleet), (1024, 1024));
    let line = told(&fleet);
    assert!(line.contains("descriptors=1024") && line.contains("http_connections=448"), "{line}");
}
