use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{Identity, Namespace, OperationKind};
use proctor_supervise::Time;
use proctor_testkit::skip;

use super::{Policy, PolicyError, PolicyFile, is_in_root};

const FILE: &str = "/etc/proctor/policy.toml";

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse(Path::new(FILE), text).unwrap())
}

fn identity(user: &str, setup_path: &str, pid_path: &str) -> Identity {
    Identity {
        proc_name: "web".parse().unwrap(),
        setup_path: setup_path.parse().unwrap(),
        pid_path: pid_path.parse().unwrap(),
        config_path: None,
        log_path: None,
        user: user.parse().unwrap(),
        index_key: String::new(),
    }
}

fn namespace(name: &str) -> Namespace {
    name.parse().unwrap()
}

fn refused(policy: &Policy, user: &str, path: &str) -> Option<String> {
    let identity = identity(user, path, path);
    policy.check_identity(&namespace("team"), &identity).err().map(|refusal| refusal.to_string())
}

/// The same after the links were followed.
fn resolved(policy: &Arc<Policy>, path: &Path) -> Result<(), String> {
    let path = path.to_str().unwrap();
    for check in policy.path_checks(&namespace("team"), &identity("app", path, path)) {
        let Some(real) = check.locate().map_err(|refusal| refusal.to_string())? else { continue };
        if !check.other_roots().iter().any(|root| is_in_root(&real, root)) {
            return Err(check.outside(&real).to_string());
        }
    }
    Ok(())
}

#[test]
fn a_refusal_names_the_file_and_the_line() {
    let policy = policy("users = ['app', 'www-*']\npaths = ['/opt']\noperations = ['status']");

    assert_eq!(
        refused(&policy, "root", "/opt/web").unwrap(),
        "refused by the host's policy /etc/proctor/policy.toml, line `users`: user 'root' is not allowed"
    );
    assert!(
        refused(&policy, "app", "/srv")
            .unwrap()
            .ends_with("line `paths`: setup_path '/srv' is outside the allowed paths")
    );
    let stop = policy.check_operation(&namespace("team"), OperationKind::Stop).unwrap_err().to_string();
    assert!(stop.ends_with("line `operations`: operation 'stop' is not allowed"), "{stop}");
    assert_eq!(refused(&policy, "www-data", "/opt/web"), None);
    assert!(policy.check_operation(&namespace("team"), OperationKind::Status).is_ok());
}

#[test]
fn paths_are_compared_by_components() {
    let policy = policy("paths = ['/data', '/opt/']");

    for inside in ["/data", "/data/", "//data//web", "/opt/web.pid"] {
        assert_eq!(refused(&policy, "app", inside), None, "{inside}");
    }
    for outside in ["/database", "/", "/dat", "/srv/data"] {
        assert!(refused(&policy, "app", outside).is_some(), "{outside}");
    }
}

#[test]
fn an_absent_list_allows_everything_and_an_empty_one_nothing() {
    assert_eq!(refused(&policy(""), "root", "/"), None);
    assert!(refused(&policy("users = []"), "app", "/").is_some());
    assert!(refused(&policy("paths = []"), "app", "/").is_some());
}

#[test]
fn a_policy_that_restricts_anything_refuses_upgrades_unless_it_allows_them() {
    let forbids = |text: &str| policy(text).forbids_upgrades().map(Path::to_path_buf);
    let rule = "[[rule]]\nnamespaces = ['db']\nusers = []";

    for restricted in ["users = ['app']", "paths = ['/opt']", "operations = ['status']", "users = []", rule] {
        assert_eq!(forbids(restricted), Some(PathBuf::from(FILE)), "{restricted}");
        assert_eq!(forbids(&format!("upgrades = true\n{restricted}")), None, "{restricted}");
    }
    assert_eq!(forbids(""), None);
    assert!(forbids("upgrades = false").is_some());
}

#[test]
fn the_first_rule_for_a_namespace_counts_and_only_narrows() {
    let policy = policy(
        "users = ['app', 'db']\n\
         [[rule]]\nnamespaces = ['team', 'x-*']\nusers = ['app', 'root']\n\
         [[rule]]\nnamespaces = ['*']\nusers = []",
    );
    let check = |space: &str, user: &str| policy.check_identity(&namespace(space), &identity(user, "/", "/"));

    assert!(check("team", "app").is_ok());
    assert!(check("x-1", "db").unwrap_err().to_string().contains("line `users` of rule 1"));
    assert!(check("team", "root").unwrap_err().to_string().contains("line `users`: user 'root'"));
    assert!(check("other", "app").unwrap_err().to_string().contains("line `users` of rule 2"));
}

#[test]
fn what_is_not_understood_is_an_error_with_its_position() {
    let problem = |text: &str| match Policy::parse(Path::new(FILE), text).unwrap_err() {
        PolicyError::Wrong { line, column, problem, .. } => (line, column, problem),
        other @ (PolicyError::Read { .. } | PolicyError::Untrusted { .. }) => panic!("{other}"),
    };

    let (line, column, unknown) = problem("users = []\n  user = []");
    assert_eq!((line, column), (2, 3));
    assert!(unknown.contains("unknown field `user`"), "{unknown}");
    assert!(problem("operations = ['explode']").2.contains("unknown variant `explode`"));
    assert!(problem("paths = ['data']").2.contains("must be an absolute path"));
    assert!(problem("users = ['']").2.contains("must not be empty"));
    assert!(problem("[[rule]]\nusers = []").2.contains("missing field `namespaces`"));
    assert_eq!(problem("users = [").0, 1);
}

#[test]
fn links_must_not_lead_outside() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("data/app")).unwrap();
    std::fs::create_dir(at("elsewhere")).unwrap();
    symlink(at("elsewhere"), at("data/out")).unwrap();
    symlink(at("data/app"), at("data/in")).unwrap();
    symlink(at("nothing"), at("data/dangling")).unwrap();
    symlink(at("data/loop"), at("data/loop")).unwrap();
    symlink(at("data"), at("root")).unwrap();
    let policy = policy(&format!("paths = ['{}', '{}']", at("data").display(), at("root").display()));

    for inside in ["data", "data/app", "data/app/not/yet", "data/in/web.pid", "root/app/web.pid"] {
        assert_eq!(resolved(&policy, &at(inside)), Ok(()), "{inside}");
    }
    for (outside, problem) in [
        ("data/out", "outside the allowed paths"),
        ("data/out/not/yet", "outside the allowed paths"),
        ("root/out", "outside the allowed paths"),
        ("data/dangling", "is a link to nothing"),
        ("data/dangling/below", "is a link to nothing"),
        ("data/loop", "cannot be resolved"),
    ] {
        let refusal = resolved(&policy, &at(outside)).unwrap_err();
        assert!(refusal.contains(problem) && refusal.contains("line `paths`"), "{outside}: {refusal}");
    }
}

#[test]
fn a_pid_file_in_an_allowed_directory_must_not_lead_outside() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(dir.path().join("other.pid"), "1").unwrap();
    symlink(dir.path().join("other.pid"), root.join("web.pid")).unwrap();
    let policy = policy(&format!("paths = ['{}']", root.display()));

    assert!(resolved(&policy, &root).unwrap_err().contains("pid_path"));
}

struct OnDisk {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl OnDisk {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let on_disk = Self { path: dir.path().join("policy.toml"), _dir: dir };
        on_disk.write(text, 0o644);
        on_disk
    }

    /// Replaces the file, as an editor does.
    fn write(&self, text: &str, mode: u32) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(new, &self.path).unwrap();
    }
}

fn at(secs: u64) -> Time {
    Time::since_boot(Duration::from_secs(secs))
}

fn allows_root(file: &PolicyFile, now: Time) -> bool {
    file.current(now).is_none_or(|policy| refused(&policy, "root", "/").is_none())
}

#[test]
fn a_file_that_others_may_write_is_not_obeyed() {
    let on_disk = OnDisk::new("users = []");
    let problem = || PolicyFile::open(Some(&on_disk.path)).unwrap_err().to_string();

    on_disk.write("users = []", 0o664);
    let by_group = problem();
    on_disk.write("users = []", 0o646);
    let by_others = problem();

    assert!(by_group.contains("0664") && by_group.contains(on_disk.path.to_str().unwrap()), "{by_group}");
    assert!(by_others.contains("0646"), "{by_others}");
}

#[test]
fn a_file_of_another_user_is_not_obeyed() {
    let on_disk = OnDisk::new("users = []");
    if chown(&on_disk.path, Some(12345), None).is_err() {
        return skip("only root can give a file away");
    }

    let problem = PolicyFile::open(Some(&on_disk.path)).unwrap_err().to_string();

    assert!(problem.contains("belongs to uid 12345") && problem.contains("must belong to root"), "{problem}");
}

#[test]
fn a_file_that_was_named_must_be_there_and_be_a_file() {
    let dir = tempfile::tempdir().unwrap();

    let absent = PolicyFile::open(Some(&dir.path().join("none"))).unwrap_err();
    let directory = PolicyFile::open(Some(dir.path())).unwrap_err();

    assert!(matches!(absent, PolicyError::Read { .. }), "{absent}");
    assert!(matches!(directory, PolicyError::Read { .. }), "{directory}");
}

#[test]
fn a_change_counts_after_a_second() {
    let on_disk = OnDisk::new("users = ['*']");
    let file = PolicyFile::open(Some(&on_disk.path)).unwrap();
    assert!(allows_root(&file, at(10)));

    on_disk.write("users = ['app']", 0o644);

    assert!(allows_root(&file, Time::since_boot(Duration::from_millis(10_900))), "asked a moment ago");
    assert!(!allows_root(&file, at(11)));
}

#[test]
fn a_file_that_goes_bad_or_away_leaves_the_last_good_policy_in_force() {
    let on_disk = OnDisk::new("users = ['app']");
    let file = PolicyFile::open(Some(&on_disk.path)).unwrap();
    assert_eq!(file.in_force(), Some(on_disk.path.as_path()));

    on_disk.write("users = [", 0o644);
    let after_bad = allows_root(&file, at(20));
    on_disk.write("users = ['*']", 0o666);
    let after_untrusted = allows_root(&file, at(30));
    std::fs::remove_file(&on_disk.path).unwrap();
    let after_removal = allows_root(&file, at(40));
    on_disk.write("users = ['root']", 0o600);
    let after_repair = allows_root(&file, at(50));

    assert_eq!((after_bad, after_untrusted, after_removal, after_repair), (false, false, false, true));
}
