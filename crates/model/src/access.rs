//! Who may do what where: classes of operations, scopes, roles, and the permissions they add up to.
//!
//! Promised: a target is allowed exactly where one of the grants covers it; a spec may be registered where one of
//! those also admits it; classes do not imply each other; more grants never allow less. Absent: who asks (an app, a
//! user or both; the caller collects the grants of all that vouch for a call), and which class a call needs.

mod bounds;
mod person;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::field::{FieldError, check_text, text_type};
use crate::{Message, Namespace, Spec, messages};

pub use bounds::Bounds;
pub use person::check_person_name;

const ROLE_NAME_CHARS_MAX: usize = 64;
const SUBJECT_CHARS_MAX: usize = 128;

/// A class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// View processes, hosts, tasks and events.
    Read,
    /// Act on what is registered: start, stop, restart, reload, kill, manage, release.
    Operate,
    /// Decide what runs: register, update, unregister, and any operation that carries another spec than the
    /// registered one.
    Register,
    /// Set the limits of pools.
    Limits,
    /// Businesses, apps, users, roles, bindings, webhooks, audit.
    Admin,
}

impl Class {
    pub const ALL: [Self; 5] = [Self::Read, Self::Operate, Self::Register, Self::Limits, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Register => "register",
            Self::Limits => "limits",
            Self::Admin => "admin",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Class {
    /// Its name in a sentence.
    pub fn message(self) -> Message {
        match self {
            Self::Read => messages::class_read(),
            Self::Operate => messages::class_operate(),
            Self::Register => messages::class_register(),
            Self::Limits => messages::class_limits(),
            Self::Admin => messages::class_admin(),
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Class {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL
            .into_iter()
            .find(|class| class.as_str() == text)
            .ok_or_else(|| FieldError::new("class", messages::not_one_of(text, all())))
    }
}

/// A set of classes; in JSON a list.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Class>", into = "Vec<Class>")]
pub struct Classes(u8);

impl Classes {
    pub fn contains(self, class: Class) -> bool {
        self.0 & class.bit() != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In the order of [`Class::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |class| self.contains(*class))
    }
}

impl std::fmt::Debug for Classes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Class> for Classes {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        Self(classes.into_iter().fold(0, |bits, class| bits | class.bit()))
    }
}

impl From<Vec<Class>> for Classes {
    fn from(classes: Vec<Class>) -> Self {
        classes.into_iter().collect()
    }
}

impl From<Classes> for Vec<Class> {
    fn from(classes: Classes) -> Self {
        classes.iter().collect()
    }
}

/// Where a binding applies. As text: `everything`, `business:3`, `set:2`, `namespace:web`, `cloud:0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    Everything,
    Business(u64),
    /// The businesses that belong to the set at the time of the check.
    BusinessSet(u64),
    Namespace(Namespace),
    Cloud(u32),
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Business(id) => write!(f, "business:{id}"),
            Self::BusinessSet(id) => write!(f, "set:{id}"),
            Self::Namespace(namespace) => write!(f, "namespace:{namespace}"),
            Self::Cloud(id) => write!(f, "cloud:{id}"),
        }
    }
}

impl std::str::FromStr for Scope {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |problem: Message| FieldError::new("scope", problem);
        if text == "everything" {
            return Ok(Self::Everything);
        }
        let (kind, value) = text.split_once(':').unwrap_or((text, ""));
        let number = || value.parse().map_err(|_| bad(messages::scope_has_no_number(value, text)));
        match kind {
            "business" => Ok(Self::Business(number()?)),
            "set" => Ok(Self::BusinessSet(number()?)),
            "namespace" => Ok(Self::Namespace(value.parse().map_err(|error: FieldError| error.inside("scope"))?)),
            "cloud" => {
                let number = number()?;
                Ok(Self::Cloud(u32::try_from(number).map_err(|_| bad(messages::not_a_cloud_area(text)))?))
            }
            _ => Err(bad(messages::not_one_of(text, "everything, business:N, set:N, namespace:NAME, cloud:N"))),
        }
    }
}

/// Who a binding is for. As text: `app:code`, `user:name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Subject {
    App(String),
    User(String),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::App(code) => write!(f, "app:{code}"),
            Self::User(name) => write!(f, "user:{name}"),
        }
    }
}

impl std::str::FromStr for Subject {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        let make = match kind {
            "app" => Self::App,
            "user" => Self::User,
            _ => return Err(FieldError::new("subject", messages::not_one_of(text, "app:CODE, user:NAME"))),
        };
        check_text("subject", name, SUBJECT_CHARS_MAX)?;
        Ok(make(name.to_owned()))
    }
}

/// Serde goes through the text form.
macro_rules! as_text {
    ($type:ident) => {
        impl TryFrom<String> for $type {
            type Error = FieldError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

as_text!(Scope);
as_text!(Subject);

/// The name of a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct RoleName(String);

text_type!(RoleName);

impl RoleName {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_text("role", &text, ROLE_NAME_CHARS_MAX)?;
        if !text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')) {
            return Err(FieldError::new("role", messages::only_role_characters()));
        }
        Ok(Self(text))
    }
}

/// A named set of classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    pub name: RoleName,
    pub classes: Classes,
}

impl Role {
    /// The built-in roles, which cannot be changed.
    pub fn built_in() -> [Self; 4] {
        use Class::{Limits, Operate, Read, Register};
        let role = |name: &str, classes: &[Class]| Self {
            name: RoleName(name.to_owned()),
            classes: classes.iter().copied().collect(),
        };
        [
            role("viewer", &[Read]),
            role("operator", &[Read, Operate]),
            role("owner", &[Read, Operate, Register, Limits]),
            role("admin", &Class::ALL),
        ]
    }
}

/// What one binding grants: the classes of its role, in its scope; for registration, within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub classes: Classes,
    pub scope: Scope,
    pub bounds: Bounds,
}

/// Where something is done. A host without a business is in no business's scope; a host as a whole has no
/// namespace; an unknown agent id is in no cloud area.
#[derive(Clone, Copy, Debug)]
pub struct AccessTarget<'a> {
    pub business: Option<u64>,
    pub cloud: Option<u32>,
    pub namespace: Option<&'a Namespace>,
}

/// The union of some scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeSet {
    pub everywhere: bool,
    pub businesses: BTreeSet<u64>,
    pub namespaces: BTreeSet<Namespace>,
    pub clouds: BTreeSet<u32>,
}

impl ScopeSet {
    pub fn contains(&self, target: &AccessTarget<'_>) -> bool {
        self.everywhere
            || target.business.is_some_and(|business| self.businesses.contains(&business))
            || target.cloud.is_some_and(|cloud| self.clouds.contains(&cloud))
            || target.namespace.is_some_and(|namespace| self.namespaces.contains(namespace))
    }

    pub fn is_empty(&self) -> bool {
        !self.everywhere && self.businesses.is_empty() && self.namespaces.is_empty() && self.clouds.is_empty()
    }

    /// The scopes that it consists of; a set of businesses counts as its members.
    pub fn scopes(&self) -> Vec<Scope> {
        if self.everywhere {
            return vec![Scope::Everything];
        }
        let businesses = self.businesses.iter().copied().map(Scope::Business);
        let namespaces = self.namespaces.iter().cloned().map(Scope::Namespace);
        businesses.chain(namespaces).chain(self.clouds.iter().copied().map(Scope::Cloud)).collect()
    }

    fn add(&mut self, scope: &Scope, sets: &BTreeMap<u64, BTreeSet<u64>>) {
        match scope {
            Scope::Everything => self.everywhere = true,
            Scope::Business(id) => _ = self.businesses.insert(*id),
            Scope::BusinessSet(id) => self.businesses.extend(sets.get(id).into_iter().flatten()),
            Scope::Namespace(namespace) => _ = self.namespaces.insert(namespace.clone()),
            Scope::Cloud(id) => _ = self.clouds.insert(*id),
        }
    }
}

/// Everything that a caller may do, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    scopes: [ScopeSet; Class::ALL.len()],
    /// Where any spec may be registered.
    unbounded: ScopeSet,
    /// Where some specs may be.
    bounded: Vec<(ScopeSet, Bounds)>,
}

impl Permissions {
    /// `sets` are the members of each business set; an unknown set has none.
    pub fn new<'a>(grants: impl IntoIterator<Item = &'a Grant>, sets: &BTreeMap<u64, BTreeSet<u64>>) -> Self {
        let mut permissions = Self::default();
        for grant in grants {
            for class in grant.classes.iter() {
                permissions.scopes[class as usize].add(&grant.scope, sets);
            }
            if grant.classes.contains(Class::Register) {
                permissions.add_bounds(grant, sets);
            }
        }
        permissions
    }

    fn add_bounds(&mut self, grant: &Grant, sets: &BTreeMap<u64, BTreeSet<u64>>) {
        if grant.bounds.is_unbounded() {
            return self.unbounded.add(&grant.scope, sets);
        }
        let mut scopes = ScopeSet::default();
        scopes.add(&grant.scope, sets);
        self.bounded.push((scopes, grant.bounds.clone()));
    }

    /// Every class, everywhere.
    pub fn everything() -> Self {
        let classes = Class::ALL.into_iter().collect();
        let everything = Grant { classes, scope: Scope::Everything, bounds: Bounds::default() };
        Self::new([&everything], &BTreeMap::new())
    }

    /// Where the class is allowed.
    pub fn scopes(&self, class: Class) -> &ScopeSet {
        &self.scopes[class as usize]
    }

    pub fn allows(&self, class: Class, target: &AccessTarget<'_>) -> bool {
        self.scopes(class).contains(target)
    }

    /// Where `register` is allowed only within bounds, and within which. Excludes targets that some grant allows
    /// without bounds.
    pub fn bounded(&self) -> impl Iterator<Item = (Vec<Scope>, &Bounds)> {
        let free = self.unbounded.scopes();
        let rest = move |scopes: &ScopeSet| -> Vec<Scope> {
            scopes.scopes().into_iter().filter(|scope| !free.contains(scope)).collect()
        };
        let is_everywhere = self.unbounded.everywhere;
        let all = self.bounded.iter().filter(move |_| !is_everywhere);
        all.map(move |(scopes, bounds)| (rest(scopes), bounds)).filter(|(scopes, _)| !scopes.is_empty())
    }

    /// Whether any spec may be registered there.
    pub fn registers_unbounded(&self, target: &AccessTarget<'_>) -> bool {
        self.unbounded.contains(target)
    }

    /// Whether this spec may be registered there: one grant must allow `register` and admit the spec. The error
    /// names what is outside the first grant that covers the target.
    pub fn admit(&self, target: &AccessTarget<'_>, spec: &Spec) -> Result<(), FieldError> {
        if self.registers_unbounded(target) {
            return Ok(());
        }
        let mut outside = None;
        for (_, bounds) in self.bounded.iter().filter(|(scopes, _)| scopes.contains(target)) {
            match bounds.admit(spec) {
                Ok(()) => return Ok(()),
                Err(error) => _ = outside.get_or_insert(error),
            }
        }
        Err(outside.unwrap_or_else(|| FieldError::new("spec", messages::no_binding_allows_registering())))
    }

    /// By a grant on everything; smaller scopes never add up to everywhere.
    pub fn allows_everywhere(&self, class: Class) -> bool {
        self.scopes(class).everywhere
    }

    /// Whether it is allowed for any target at all.
    pub fn allows_anywhere(&self, class: Class) -> bool {
        !self.scopes(class).is_empty()
    }
}

#[cfg(test)]
mod tests;
