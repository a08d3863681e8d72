use super::*;

fn here(root: &Path, kind: &str, options: &str) -> CgroupMounts {
    let line = format!("26 25 0:21 / {} rw - {kind} {kind} {options}\n", root.display());
    let path = "7:freezer:/a/b\n3:cpuacct:/a/b\n0::/a/b\n".to_owned();
    fs::create_dir_all(root.join("a/b")).unwrap();
    CgroupMounts { mounts: line, ours: path, init: "7:freezer:/a\n0::/a\n".to_owned() }
}

/// A leaf in a plain directory: like a cgroup, but for the files.
fn try_directory(hierarchy: &Hierarchy) -> io::Result<()> {
    let leaf = Leaf::of("x");
    hierarchy.make(&leaf)?;
    hierarchy.remove(&leaf).map(|_| ())
}

#[test]
fn a_leaf_is_named_after_its_key_for_ever() {
    assert_eq!(Leaf::of("gse:nginx#1").as_str(), "gse-nginx-1-3ffe22bd4b731e60");
    assert_ne!(Leaf::of("gse:nginx/1"), Leaf::of("gse:nginx#1"));
    assert!(Leaf::of(&"../ü".repeat(1000)).as_str().chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
}

#[test]
fn version_two_is_taken_as_high_as_we_may_write() {
    let root = tempfile::tempdir().unwrap();
    let here = here(root.path(), "cgroup2", "rw");
    let refuse_high = |hierarchy: &Hierarchy| match hierarchy.scope().starts_with(root.path().join("a/b")) {
        true => try_directory(hierarchy),
        false => Err(io::Error::from_raw_os_error(libc::EACCES)),
    };

    let (highest, tracking) = choose(&here, "s", TrackingPreference::Best, &try_directory);
    let (own, below) = choose(&here, "s", TrackingPreference::Best, &refuse_high);

    assert_eq!(highest.unwrap().tree.scope(), root.path().join("a/proctor/s"));
    assert_eq!(tracking.method, Method::CgroupV2);
    assert!(!tracking.detail.contains("own cgroup"), "{tracking:?}");
    assert_eq!(own.unwrap().tree.scope(), root.path().join("a/b/proctor/s"));
    assert!(below.detail.contains("own cgroup"), "{below:?}");
    assert!(!root.path().join("a/proctor").exists(), "something empty is left");
}

#[test]
fn what_cannot_be_used_is_said() {
    let root = tempfile::tempdir().unwrap();
    let refuse = |_: &Hierarchy| Err(io::Error::from_raw_os_error(libc::EROFS));

    let (none, read_only) = choose(&here(root.path(), "cgroup2", "ro"), "s", TrackingPreference::Best, &refuse);
    let (nothing, absent) = choose(&CgroupMounts::default(), "s", TrackingPreference::Best, &refuse);

    assert!(none.is_none() && nothing.is_none());
    assert_eq!((read_only.method, absent.method), (Method::Descendants, Method::Descendants));
    assert!(read_only.detail.contains("Read-only file system"), "{}", read_only.detail);
    assert_eq!(absent.detail, "there is no cgroup hierarchy to use");
}

#[test]
fn version_one_is_named_by_its_hierarchy() {
    let root = tempfile::tempdir().unwrap();

    let (groups, tracking) =
        choose(&here(root.path(), "cgroup", "rw,freezer"), "s", TrackingPreference::Best, &try_directory);

    assert_eq!(tracking.method, Method::CgroupV1 { hierarchy: "freezer".to_owned() });
    assert_eq!(groups.unwrap().cpu_file(&Leaf::of("x")), None);
}

#[test]
fn two_state_directories_have_two_scopes() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());

    assert_eq!(scope_of(one.path()), scope_of(&one.path().join(".")));
    assert_ne!(scope_of(one.path()), scope_of(two.path()));
}
