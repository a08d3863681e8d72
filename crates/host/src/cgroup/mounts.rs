//! Which cgroup hierarchies exist, and where in them we may be able to create our own cgroups.
//!
//! Promised: parents are tried from the highest that we share with the first process of this machine (or container)
//! downwards, because whatever is below the agent's own cgroup ends with it; never outside the container's own.
//! Absent: file access, so that it can be tested as text.

use std::path::PathBuf;

const MOUNTS_MAX: usize = 4096;
const DEPTH_MAX: usize = 16;
/// Controllers that only count or are asked for. To put a process into a cgroup of another one
/// would change what it gets of the machine: every leaf a share of the CPU for itself, and none of
/// the memory limit of where the agent runs.
const HARMLESS: [&str; 6] = ["freezer", "pids", "cpuacct", "perf_event", "net_cls", "net_prio"];
/// Which hierarchy of version 1 lists the members, best first. systemd moves nobody in the first.
const TREE_CONTROLLERS: [&str; 3] = ["freezer", "pids", "cpuacct"];

/// What the kernel says about cgroups, as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct CgroupMounts {
    /// `/proc/self/mountinfo`
    pub(crate) mounts: String,
    /// `/proc/self/cgroup`
    pub(crate) ours: String,
    /// `/proc/1/cgroup`; empty if it is hidden from us.
    pub(crate) init: String,
}

/// A cgroup below which ours may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParentCgroup {
    pub(crate) directory: PathBuf,
    /// As `/proc/<pid>/cgroup` names it.
    pub(crate) path: String,
    /// The agent itself is in it, and others than the agent are not known to be.
    pub(crate) is_own: bool,
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    point: PathBuf,
    root: String,
    /// Empty for version 2.
    controllers: Vec<String>,
}

impl CgroupMounts {
    pub(crate) fn v2(&self) -> Vec<Mount> {
        self.mounted("cgroup2")
    }

    /// Hierarchies of version 1 for the members, with the name that selects them, best first.
    pub(crate) fn v1_trees(&self) -> Vec<(String, Mount)> {
        let mounts = self.mounted("cgroup");
        let harmless: Vec<&Mount> = mounts.iter().filter(|mount| mount.is_harmless()).collect();
        let controllers = TREE_CONTROLLERS.iter().filter_map(|controller| {
            let mount = harmless.iter().find(|mount| mount.has(controller))?;
            Some(((*controller).to_owned(), (*mount).clone()))
        });
        // systemd's own hierarchy is how it knows its services; ours would be lost to it.
        let named = harmless.iter().filter_map(|mount| {
            let name = mount.controllers.iter().find(|name| name.starts_with("name=") && *name != "name=systemd")?;
            Some((name.clone(), (*mount).clone()))
        });
        controllers.chain(named).collect()
    }

    pub(crate) fn v1_cpu(&self) -> Option<Mount> {
        self.mounted("cgroup").into_iter().find(|mount| mount.has("cpuacct") && mount.is_harmless())
    }

    /// Where cgroups of ours may be made in a hierarchy, best first.
    pub(crate) fn parents(&self, selector: &str, mount: &Mount) -> Vec<ParentCgroup> {
        let Some(ours) = path_in(&self.ours, selector).and_then(|path| mount.relative(path)) else { return Vec::new() };
        let init = path_in(&self.init, selector).and_then(|path| mount.relative(path));
        let ours: Vec<&str> = ours.split('/').filter(|part| !part.is_empty()).collect();
        let shared = init.map_or(ours.len(), |init| {
            let init = init.split('/').filter(|part| !part.is_empty());
            ours.iter().zip(init).take_while(|(ours, init)| **ours == *init).count()
        });
        let depths = shared..=ours.len();
        depths
            .take(DEPTH_MAX)
            .map(|depth| {
                let below: Vec<&str> = ours.iter().take(depth).copied().collect();
                let below = below.join("/");
                let root = mount.root.trim_end_matches('/');
                let path = if below.is_empty() { root.to_owned() } else { format!("{root}/{below}") };
                ParentCgroup { directory: mount.point.join(&below), path, is_own: depth == ours.len() && depth > 0 }
            })
            .collect()
    }

    fn mounted(&self, kind: &str) -> Vec<Mount> {
        self.mounts.lines().take(MOUNTS_MAX).filter_map(|line| mount(line, kind)).collect()
    }
}

impl Mount {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|other| other == controller)
    }

    fn is_harmless(&self) -> bool {
        self.controllers.iter().all(|name| HARMLESS.contains(&name.as_str()) || name.starts_with("name="))
    }

    /// A path of the hierarchy as seen from what is mounted of it.
    fn relative<'a>(&self, path: &'a str) -> Option<&'a str> {
        let below = path.strip_prefix(self.root.trim_end_matches('/'))?;
        // What is outside of our cgroup namespace begins with "/..".
        let is_inside = (below.is_empty() || below.starts_with('/')) && !path.split('/').any(|part| part == "..");
        is_inside.then_some(below)
    }
}

/// The path in one hierarchy, from the text of `/proc/<pid>/cgroup`. The selector is a controller or
/// `name=…`, and empty for version 2.
pub(crate) fn path_in<'a>(text: &'a str, selector: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        // Of version 2 the list is empty, and splitting that gives one empty name.
        controllers.split(',').any(|name| name == selector).then_some(path)
    })
}

fn mount(line: &str, wanted: &str) -> Option<Mount> {
    let (fields, rest) = line.split_once(" - ")?;
    let mut fields = fields.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut rest = rest.split(' ');
    let (kind, options) = (rest.next()?, rest.nth(1).unwrap_or_default());
    if kind != wanted {
        return None;
    }
    let settings = ["rw", "ro", "xattr", "noprefix", "clone_children", "nsdelegate", "favordynmods"];
    let controllers = options.split(',').filter(|option| {
        let is_setting = settings.contains(option) || option.starts_with("release_agent=");
        kind == "cgroup" && !option.is_empty() && !is_setting
    });
    Some(Mount {
        point: PathBuf::from(unescape(point)),
        root: unescape(root),
        controllers: controllers.map(str::to_owned).collect(),
    })
}

/// mountinfo writes blanks and the like as `\040`.
fn unescape(text: &str) -> String {
    let mut found = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        found.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                found.push(char::from(byte));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                found.push('\\');
                rest = after;
            }
        }
    }
    found.push_str(rest);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const HYBRID: &str = "\
25 20 0:20 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
26 25 0:21 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw,nsdelegate
27 25 0:22 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
28 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
29 25 0:24 / /sys/fs/cgroup/free\\040zer rw - cgroup cgroup rw,freezer
30 25 0:25 / /sys/fs/cgroup/own rw - cgroup cgroup rw,name=own";

    fn surroundings(ours: &str, init: &str) -> CgroupMounts {
        CgroupMounts { mounts: HYBRID.to_owned(), ours: ours.to_owned(), init: init.to_owned() }
    }

    fn directories(found: &[ParentCgroup]) -> Vec<&str> {
        found.iter().filter_map(|parent| parent.directory.to_str()).collect()
    }

    #[test]
    fn a_service_of_systemd_begins_at_the_root() {
        let here = surroundings("0::/system.slice/proctor.service\n", "0::/init.scope\n");

        let parents = here.parents("", &here.v2()[0]);

        let root = "/sys/fs/cgroup/unified/";
        let slice = "/sys/fs/cgroup/unified/system.slice";
        assert_eq!(directories(&parents), [root, slice, "/sys/fs/cgroup/unified/system.slice/proctor.service"]);
        assert_eq!(parents.iter().map(|parent| parent.is_own).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(parents.iter().map(|parent| parent.path.as_str()).collect::<Vec<_>>()[..2], ["", "/system.slice"]);
    }

    #[test]
    fn a_container_is_not_left() {
        let here = surroundings("0::/docker/abc/agent\n", "0::/docker/abc/init\n");

        let parents = here.parents("", &here.v2()[0]);

        assert_eq!(directories(&parents)[0], "/sys/fs/cgroup/unified/docker/abc");
    }

    #[test]
    fn a_hidden_first_process_leaves_our_own_cgroup() {
        let here = surroundings("0::/a/b\n", "");

        assert_eq!(directories(&here.parents("", &here.v2()[0])), ["/sys/fs/cgroup/unified/a/b"]);
    }

    #[test]
    fn what_is_outside_of_the_namespace_or_the_mount_is_no_parent() {
        let outside = surroundings("0::/../x\n", "0::/\n");
        let mut below = Mount { root: "/docker/abc".to_owned(), ..outside.v2()[0].clone() };

        assert!(outside.parents("", &outside.v2()[0]).is_empty());
        assert!(surroundings("0::/docker/abcd\n", "").parents("", &below).is_empty());
        below.root = "/docker/abc".to_owned();
        let inside = surroundings("0::/docker/abc/x\n", "0::/docker/abc\n").parents("", &below);
        assert_eq!((directories(&inside)[0], inside[0].path.as_str()), ("/sys/fs/cgroup/unified/", "/docker/abc"));
    }

    #[test]
    fn hierarchies_that_share_out_the_machine_are_not_used() {
        let here = surroundings("", "");

        let trees = here.v1_trees();

        let names: Vec<&str> = trees.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["freezer", "name=own"]);
        assert_eq!(trees[0].1.point, Path::new("/sys/fs/cgroup/free zer"));
        assert_eq!(here.v1_cpu(), None);
    }

    #[test]
    fn odd_text_is_no_path_and_no_mount() {
        assert_eq!(path_in("\n:\n0:\nx", ""), None);
        assert_eq!(path_in("4:memory:/a:b\n0::/\n", "memory"), Some("/a:b"));
        for line in ["", " - ", "1 2 3 - cgroup2", "1 2 3 / - cgroup2 x"] {
            assert_eq!(mount(line, "cgroup2"), None, "{line}");
        }
        assert_eq!(unescape("a\\040b\\9"), "a b\\9");
    }
}
