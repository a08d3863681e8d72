//! What the owner of the host allows: users, path roots and classes of operations.
//!
//! Promised: a list allows what it names and nothing else; a rule for namespaces only restricts further; a refusal
//! names the file and the line; a file that restricts anything also refuses upgrades over the link, unless it says
//! otherwise.
//! Absent: a sandbox. An allowed command can do whatever its user may do; the policy limits what can be requested of
//! the host.

mod file;
mod glob;
mod paths;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proctor_model::{AbsolutePath, Identity, Message, Namespace, OperationKind, messages};
use serde::Deserialize;

pub(crate) use file::PolicyFile;
use glob::Glob;

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot read the policy file {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the policy file {path} has unsafe ownership or permissions: {problem}")]
    Untrusted { path: PathBuf, problem: String },
    #[error("the policy file {path} is wrong in line {line}, column {column}: {problem}")]
    Wrong { path: PathBuf, line: usize, column: usize, problem: String },
}

/// Why something must not happen on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refusal(Message);

impl From<Refusal> for Message {
    fn from(refusal: Refusal) -> Self {
        refusal.0
    }
}

/// A policy file that was understood.
#[derive(Debug)]
pub(crate) struct Policy {
    path: PathBuf,
    everywhere: Lists,
    rules: Vec<Rule>,
    upgrades: bool,
    logs: Option<bool>,
}

/// An absent list allows everything, an empty one nothing.
#[derive(Debug)]
struct Lists {
    users: Option<Vec<Glob>>,
    paths: Option<Vec<AbsolutePath>>,
    operations: Option<Vec<OperationKind>>,
}

#[derive(Debug)]
struct Rule {
    namespaces: Vec<Glob>,
    lists: Lists,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    users: Option<Vec<Glob>>,
    paths: Option<Vec<AbsolutePath>>,
    operations: Option<Vec<OperationKind>>,
    /// Whether the agent may be upgraded over the link; where it does not say, only if it restricts nothing else: a new
    /// program can do everything that the lists forbid.
    upgrades: Option<bool>,
    /// Whether logs may be read; where it does not say, only in namespaces whose operations are not restricted: the
    /// owner of such a host has not said yes to anything new.
    logs: Option<bool>,
    #[serde(default)]
    rule: Vec<RuleDocument>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleDocument {
    namespaces: Vec<Glob>,
    users: Option<Vec<Glob>>,
    paths: Option<Vec<AbsolutePath>>,
    operations: Option<Vec<OperationKind>>,
}

impl Policy {
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, PolicyError> {
        let Document { users, paths, operations, upgrades, logs, rule } = toml::from_str(text).map_err(|error| {
            let (line, column) = line_and_column(text, error.span().map_or(0, |span| span.start));
            PolicyError::Wrong { path: path.to_owned(), line, column, problem: error.message().to_owned() }
        })?;
        let restricts = users.is_some() || paths.is_some() || operations.is_some() || !rule.is_empty();
        let rules = rule.into_iter().map(|RuleDocument { namespaces, users, paths, operations }| Rule {
            namespaces,
            lists: Lists { users, paths, operations },
        });
        let everywhere = Lists { users, paths, operations };
        let upgrades = upgrades.unwrap_or(!restricts);
        Ok(Self { path: path.to_owned(), everywhere, rules: rules.collect(), upgrades, logs })
    }

    /// The file that does.
    pub(crate) fn forbids_upgrades(&self) -> Option<&Path> {
        (!self.upgrades).then_some(&self.path)
    }

    pub(crate) fn check_operation(&self, namespace: &Namespace, kind: OperationKind) -> Result<(), Refusal> {
        for (rule, lists) in self.lists(namespace) {
            if lists.operations.as_ref().is_some_and(|allowed| !allowed.contains(&kind)) {
                return Err(self.refusal("operations", rule, messages::policy_without_operation(kind)));
            }
        }
        Ok(())
    }

    /// Whether the log of a process may be read, as far as memory tells; the paths of the log itself are not looked at.
    pub(crate) fn check_log(&self, namespace: &Namespace, identity: &Identity) -> Result<(), Refusal> {
        let restricting = self.lists(namespace).find(|(_, lists)| lists.operations.is_some());
        match (self.logs, restricting) {
            (Some(true), _) | (None, None) => self.check_identity(namespace, identity),
            (Some(false), _) => Err(self.refusal("logs", None, messages::policy_without_logs())),
            (None, Some((rule, _))) => Err(self.refusal("operations", rule, messages::policy_says_nothing_of_logs())),
        }
    }

    /// Users and paths, as far as their text tells: asks nothing of the file system.
    pub(crate) fn check_identity(&self, namespace: &Namespace, identity: &Identity) -> Result<(), Refusal> {
        let user = identity.user.as_str();
        for (rule, lists) in self.lists(namespace) {
            if lists.users.as_ref().is_some_and(|allowed| !allowed.iter().any(|glob| glob.matches(user))) {
                return Err(self.refusal("users", rule, messages::policy_without_user(user)));
            }
            let Some(roots) = &lists.paths else { continue };
            for (name, path) in [("setup_path", &identity.setup_path), ("pid_path", &identity.pid_path)] {
                if !paths::is_inside(Path::new(path.as_str()), roots) {
                    return Err(self.refusal(
                        "paths",
                        rule,
                        messages::path_problem(name, path, messages::path_outside()),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether [`Self::path_checks`] has anything to look at.
    pub(crate) fn has_paths(&self, namespace: &Namespace) -> bool {
        self.lists(namespace).any(|(_, lists)| lists.paths.is_some())
    }

    /// What must be asked of file systems before anything is done in the paths of a process.
    pub(crate) fn path_checks(self: &Arc<Self>, namespace: &Namespace, identity: &Identity) -> Vec<PathCheck> {
        let mut checks = Vec::new();
        for (rule, lists) in self.lists(namespace) {
            let Some(roots) = &lists.paths else { continue };
            for (name, path) in [("setup_path", &identity.setup_path), ("pid_path", &identity.pid_path)] {
                let path = PathBuf::from(path.as_str());
                let (own, others) = roots.iter().cloned().partition(|root| path.starts_with(root.as_str()));
                let program = (name == "pid_path").then(|| identity.proc_name.as_str().to_owned());
                checks.push(PathCheck { policy: Arc::clone(self), rule, name, path, program, own, others });
            }
        }
        checks
    }

    /// Whether a file is inside the allowed paths, as it is named and where its links lead. Asks the file
    /// system, which may hang.
    pub(crate) fn allows_file(&self, namespace: &Namespace, path: &Path) -> bool {
        let allowed =
            |roots: &Vec<AbsolutePath>| paths::is_inside(path, roots) && paths::stays_inside(path, roots).is_ok();
        self.lists(namespace).all(|(_, lists)| lists.paths.as_ref().is_none_or(allowed))
    }

    /// As [`Self::allows_file`], for where an open file really is.
    pub(crate) fn allows_opened(&self, namespace: &Namespace, real: &Path) -> bool {
        let allowed = |roots: &Vec<AbsolutePath>| paths::stays_inside(real, roots).is_ok();
        self.lists(namespace).all(|(_, lists)| lists.paths.as_ref().is_none_or(allowed))
    }

    /// What counts for a namespace: the lists of the file itself, then those of the first rule that
    /// names it, with the number of that rule.
    fn lists(&self, namespace: &Namespace) -> impl Iterator<Item = (Option<usize>, &Lists)> {
        let names = |rule: &Rule| rule.namespaces.iter().any(|glob| glob.matches(namespace.as_str()));
        let rule = self.rules.iter().zip(1..).find(|(rule, _)| names(rule));
        let everywhere = std::iter::once((None, &self.everywhere));
        everywhere.chain(rule.map(|(rule, number)| (Some(number), &rule.lists)))
    }

    fn refusal(&self, list: &str, rule: Option<usize>, problem: Message) -> Refusal {
        let line = match rule {
            Some(number) => messages::policy_line_of_rule(list, number),
            None => messages::policy_line(list),
        };
        Refusal(messages::refused_by_policy(self.path.display(), line, problem))
    }
}

/// Whether one path of a process stays inside where its links lead. Each question concerns one path, whose file system
/// may hang; who asks does so on a thread.
#[derive(Clone, Debug)]
pub(crate) struct PathCheck {
    policy: Arc<Policy>,
    rule: Option<usize>,
    name: &'static str,
    path: PathBuf,
    /// Of a pid path, which may be a directory.
    program: Option<String>,
    /// The roots on the way to the path, then the others.
    own: Vec<AbsolutePath>,
    others: Vec<AbsolutePath>,
}

impl PathCheck {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Asks the file system of the path. Where that leads out of the roots on the way to it, the answer is where: one
    /// of the other roots may be there.
    pub(crate) fn locate(&self) -> Result<Option<PathBuf>, Refusal> {
        let path = match &self.program {
            Some(program) => paths::pid_file(&self.path, program),
            None => self.path.clone(),
        };
        let real = paths::resolve(&path).map_err(|problem| self.refusal(problem))?;
        Ok((!paths::leads_inside(&real, &self.own)).then_some(real))
    }

    /// The roots that may hold what was [located](Self::locate) elsewhere.
    pub(crate) fn other_roots(&self) -> &[AbsolutePath] {
        &self.others
    }

    pub(crate) fn outside(&self, real: &Path) -> Refusal {
        self.refusal(paths::outside(real))
    }

    fn refusal(&self, problem: Message) -> Refusal {
        let problem = messages::path_problem(self.name, self.path.display(), problem);
        self.policy.refusal("paths", self.rule, problem)
    }
}

/// Whether a path without links is inside a root, wherever that leads. Asks the file system of the root.
pub(crate) fn is_in_root(real: &Path, root: &AbsolutePath) -> bool {
    paths::leads_inside(real, std::slice::from_ref(root))
}

/// Line and column, counted from 1, as editors show them.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
