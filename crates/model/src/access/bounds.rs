//! Which specs a binding lets its subject register.
//!
//! Promised: a spec is admitted only if its user is one of the allowed ones and every path that it names is below
//! an allowed root, component by component. Absent: what commands do (they are shell lines and run as the spec's
//! user), and symbolic links on hosts.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::{AbsolutePath, FieldError, Spec, UncheckedPath, UserName, messages};

/// An empty set does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Values of `identity.user`.
    pub users: BTreeSet<UserName>,
    /// Directories.
    pub roots: BTreeSet<AbsolutePath>,
}

impl Bounds {
    pub fn is_unbounded(&self) -> bool {
        self.users.is_empty() && self.roots.is_empty()
    }

    /// The error names the field of the spec that is outside.
    pub fn admit(&self, spec: &Spec) -> Result<(), FieldError> {
        let user = &spec.identity.user;
        if !self.users.is_empty() && !self.users.contains(user) {
            let problem = messages::user_outside_bounds(user, listed(&self.users));
            return Err(FieldError::new("identity.user", problem));
        }
        if self.roots.is_empty() {
            return Ok(());
        }
        match paths(spec).find(|(_, path)| !self.is_below_a_root(Path::new(path))) {
            None => Ok(()),
            Some((field, path)) => {
                let problem = messages::path_outside_bounds(path, listed(&self.roots));
                Err(FieldError::new(field, problem))
            }
        }
    }

    /// A relative path is resolved against setup_path, which is checked itself.
    fn is_below_a_root(&self, path: &Path) -> bool {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        !climbs && (path.is_relative() || self.roots.iter().any(|root| path.starts_with(root.as_str())))
    }
}

impl std::fmt::Display for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [("users ", listed(&self.users)), ("roots ", listed(&self.roots))];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(kind, values)| kind.to_owned() + &values)
            .collect();
        f.write_str(&parts.join("; "))
    }
}

fn listed<T: ToString>(values: &BTreeSet<T>) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Every path that a spec names, with its field. A new one must be added here.
fn paths(spec: &Spec) -> impl Iterator<Item = (String, &str)> {
    let Spec { identity, control: _, limits: _, policy: _, ownership: _, report_id: _, configmap, labels: _ } = spec;
    let crate::Identity { proc_name: _, setup_path, pid_path, config_path, log_path, user: _, index_key: _ } = identity;
    let named = [
        ("identity.setup_path", Some(setup_path.as_str())),
        ("identity.pid_path", Some(pid_path.as_str())),
        ("identity.config_path", config_path.as_ref().map(UncheckedPath::as_str)),
        ("identity.log_path", log_path.as_ref().map(UncheckedPath::as_str)),
    ];
    let named = named.into_iter().filter_map(|(field, path)| Some((field.to_owned(), path?)));
    let files =
        configmap.iter().enumerate().map(|(index, file)| (format!("configmap[{index}].path"), file.path.as_str()));
    named.chain(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConfigFile;

    fn spec() -> Spec {
        let spec = crate::samples::spec(|spec| {
            spec.identity.proc_name = "nginx".parse().unwrap();
            spec.identity.setup_path = "/opt/web".parse().unwrap();
            spec.identity.pid_path = "/opt/web/run/nginx.pid".parse().unwrap();
            spec.identity.user = "web".parse().unwrap();
        });
        Spec::clone(&spec)
    }

    fn bounds(users: &[&str], roots: &[&str]) -> Bounds {
        Bounds {
            users: users.iter().map(|user| user.parse().unwrap()).collect(),
            roots: roots.iter().map(|root| root.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn without_bounds_everything_is_admitted() {
        assert!(bounds(&[], &[]).is_unbounded());
        assert_eq!(bounds(&[], &[]).admit(&spec()), Ok(()));
    }

    #[test]
    fn the_user_is_one_of_those_and_no_other_way_to_write_root_helps() {
        let web = bounds(&["app", "web"], &[]);

        assert_eq!(web.admit(&spec()), Ok(()));
        for user in ["root", "0", "Web", "web "] {
            let Ok(user) = user.parse() else { continue };
            let mut spec = spec();
            spec.identity.user = user;
            let error = web.admit(&spec).unwrap_err();
            assert_eq!(error.field, "identity.user");
            assert!(error.problem.ends_with("allowed here: app, web"), "{error}");
        }
    }

    #[test]
    fn every_path_lies_below_a_root_by_whole_components() {
        let web = bounds(&[], &["/opt/web/", "/var/log/web"]);
        let path = |text: &str| text.parse::<AbsolutePath>().unwrap();
        type Change = fn(&mut Spec, AbsolutePath);
        let fields: [(&str, Change); 5] = [
            ("identity.setup_path", |spec, path| spec.identity.setup_path = path),
            ("identity.pid_path", |spec, path| spec.identity.pid_path = path),
            ("identity.config_path", |spec, path| spec.identity.config_path = Some(path.into())),
            ("identity.log_path", |spec, path| spec.identity.log_path = Some(path.into())),
            ("configmap[0].path", |spec, path| spec.configmap = vec![ConfigFile { path, md5: String::new() }]),
        ];

        for (field, change) in fields {
            for inside in ["/opt/web", "/opt/web/x", "/opt//web/./x", "/var/log/web/{instance}.log"] {
                let mut spec = spec();
                change(&mut spec, path(inside));
                assert_eq!(web.admit(&spec), Ok(()), "{field} {inside}");
            }
            for outside in ["/", "/opt", "/opt/website", "/opt/web2/x", "/opt/{instance}", "/etc/shadow"] {
                let mut spec = spec();
                change(&mut spec, path(outside));
                assert_eq!(web.admit(&spec).unwrap_err().field, field, "{outside}");
            }
        }
        assert!("/opt/web/../../etc".parse::<AbsolutePath>().is_err(), "a path with '..' is no path here");
        for (text, admitted) in [("etc/nginx.conf", true), ("../etc", false), ("/opt/web/../etc", false), (".", true)] {
            let mut spec = spec();
            spec.identity.log_path = Some(text.parse().unwrap());
            assert_eq!(web.admit(&spec).is_ok(), admitted, "{text}");
        }
    }
}
