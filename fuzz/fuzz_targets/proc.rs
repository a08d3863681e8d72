//! Texts of `/proc` and of cgroups. The first byte says which: any stat, the stat of a name, mountinfo
//! and cgroup, or the small texts of numbers (statm, status, cmdline, meminfo, memory.stat, cpu.stat,
//! the list of CPUs), where each parser reads all of it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proctor_host::fuzz::{ParentCgroup, cgroup_path, cgroup_parents, numbers, stat};

const DEPTH_MAX: usize = 16;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    match first % 4 {
        0 => any_stat(rest),
        1 => stat_of_a_name(rest),
        3 => any_numbers(rest),
        _ => cgroups(&String::from_utf8_lossy(rest)),
    }
});

fn any_stat(text: &[u8]) {
    let Some(found) = stat(text) else { return };
    let open = text.iter().position(|byte| *byte == b'(').expect("a stat has a name");
    let close = text.iter().rposition(|byte| *byte == b')').expect("a stat has a name");
    assert_eq!(found.name, String::from_utf8_lossy(&text[open + 1..close]));
    assert!(!found.state.is_ascii_whitespace());
}

fn any_numbers(text: &[u8]) {
    let found = numbers(text);
    if let Some((resident, private)) = found.pages {
        assert!(private <= resident);
    }
    assert!(found.memory.is_none_or(|bytes| bytes % 1024 == 0));
    assert!(found.leaf_cpu.is_none_or(|nanos| nanos % 1000 == 0));
    assert!(found.cpus != Some(0));
    let bytes: usize = found.arguments.iter().map(String::len).sum();
    // A byte that is no text becomes a character of three.
    assert!(bytes <= 3 * text.len() && found.arguments.len() <= text.len() + 1);
}

/// Any name survives in an otherwise valid stat.
fn stat_of_a_name(name: &[u8]) {
    let mut text = b"42 (".to_vec();
    text.extend(name);
    text.extend(b") S 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 777 1 2\n");

    let found = stat(&text).expect("only the name is odd");

    assert_eq!(found.name, String::from_utf8_lossy(name));
    assert_eq!((found.state, found.ticks, found.since_boot.as_millis()), ('S', 5 + 6 + 7 + 8, 7770));
    assert!(!found.is_kernel_thread);
}

/// Mounts, our cgroups and those of the first process, with NUL between them.
fn cgroups(text: &str) {
    let mut parts = text.splitn(3, '\0');
    let (mounts, ours, init) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let parents = cgroup_parents(mounts, ours, init);
    // A line can be a mount of one of two kinds, and be found by four names.
    assert!(parents.len() <= mounts.lines().count() * 4 * DEPTH_MAX, "{} parents", parents.len());
    for parent in parents {
        check(&parent, ours);
    }
}

/// A parent is our own cgroup or above it, and never outside of that path.
fn check(parent: &ParentCgroup, ours: &str) {
    let path = cgroup_path(ours, &parent.selector).expect("a parent comes from a path of ours");
    let parts = |text: &str| text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let (ours, above) = (parts(path), parts(&parent.path));

    assert!(ours.starts_with(&above), "{parent:?} is not above {path}");
    assert!(!above.iter().any(|part| part == ".."), "{parent:?}");
    assert!(!parent.is_own || ours == above, "{parent:?} is not {path}");
}
