//! What a process is: how it is found, run, limited and kept alive.
//!
//! A spec is immutable and content-addressed by [`Spec::hash`]. Everything that the API documents
//! call reserved is kept here too, so that it can be shown again.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::field::{FieldError, check_text, text_type};
use crate::{Labels, Message, messages};

const PATH_BYTES_MAX: usize = 4096;
/// The kernel allows at most 128 KiB per argument of exec, and a command line is one argument.
const COMMAND_BYTES_MAX: usize = 128 * 1024 - 1;
/// Placeholder for the number of an instance in paths and commands.
const INSTANCE: &str = "{instance}";
const INSTANCES_MAX: u32 = 256;
/// Of a spec as JSON. Seven commands of the largest size fit.
pub const SPEC_BYTES_MAX: usize = 2 * 1024 * 1024;
/// A label of a few bytes takes a hundred in memory, so their number has its own limit.
pub const LABELS_MAX: usize = 64;
const SECONDS_MAX: u32 = 7 * 24 * 3600;
/// Allows a yearly run, even in a leap year.
const PERIOD_SECONDS_MAX: u32 = 366 * 24 * 3600;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Spec {
    pub identity: Identity,
    pub control: Control,
    pub limits: Limits,
    pub policy: Policy,
    pub ownership: Ownership,
    /// The alarm id of the original's warn_report_policy.
    pub report_id: Option<i64>,
    pub configmap: Vec<ConfigFile>,
    pub labels: Labels,
}

/// How the process is recognised on its host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Identity {
    /// Base name of its executable, or of its script if it is run by an interpreter.
    pub proc_name: ProcName,
    /// Working directory of every command.
    pub setup_path: AbsolutePath,
    /// Its pid file; a directory stands for `<pid_path>/<proc_name>.pid`.
    pub pid_path: AbsolutePath,
    /// Stored and shown; nothing is read there.
    pub config_path: Option<UncheckedPath>,
    /// Where it writes its log, relative to `setup_path` if need be; a directory stands for
    /// `<log_path>/<proc_name>.log`, or otherwise for the most recently written `.log` file in it.
    pub log_path: Option<UncheckedPath>,
    pub user: UserName,
    pub index_key: String,
}

impl Identity {
    /// Whether they describe two different processes: another pid file, or another program.
    pub fn is_other_process(&self, other: &Self) -> bool {
        (&self.pid_path, &self.proc_name) != (&other.pid_path, &other.proc_name)
    }
}

/// The commands, each a line for `/bin/sh -c`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Control {
    pub start: Option<CommandLine>,
    pub stop: Option<CommandLine>,
    pub restart: Option<CommandLine>,
    pub reload: Option<CommandLine>,
    pub kill: Option<CommandLine>,
    pub version: Option<CommandLine>,
    pub health: Option<CommandLine>,
}

/// Limits in % of the whole machine; None is unlimited. `disk` and `net` are reserved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Limits {
    pub cpu: Option<Percent>,
    pub memory: Option<Percent>,
    pub fd: Option<u64>,
    pub disk: Option<u64>,
    pub net: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Policy {
    pub lifetime: Lifetime,
    pub start_check: Seconds,
    pub stop_check: Seconds,
    pub start_retries: u32,
    pub start_interval: Seconds,
    pub op_timeout: Seconds,
    pub crontab_rule: Option<CronRule>,
    /// Period of a periodic process without a crontab rule.
    pub cycle: Option<Period>,
    pub instances: u32,
    /// JOB's start_check_end_time: if later than `start_check`, the process is checked again then.
    pub start_check_end: Option<Seconds>,
    #[serde(default)]
    pub health: HealthPolicy,
}

/// When the health command runs and how its results count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HealthPolicy {
    pub interval: Seconds,
    pub timeout: Seconds,
    /// Consecutive failures that make a process unhealthy.
    pub failures: u32,
    /// How long the health command is not run after a start.
    pub grace: Seconds,
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self { interval: Seconds(30), timeout: Seconds(10), failures: 3, grace: Seconds(30) }
    }
}

impl Policy {
    pub const START_CHECK: Seconds = Seconds(5);
    pub const STOP_CHECK: Seconds = Seconds(5);
    pub const START_RETRIES: u32 = 4;
    pub const START_INTERVAL: Seconds = Seconds(10);
    pub const OP_TIMEOUT: Seconds = Seconds(60);

    pub fn new(lifetime: Lifetime) -> Self {
        Self {
            lifetime,
            start_check: Self::START_CHECK,
            stop_check: Self::STOP_CHECK,
            start_retries: Self::START_RETRIES,
            start_interval: Self::START_INTERVAL,
            op_timeout: Self::OP_TIMEOUT,
            crontab_rule: None,
            cycle: None,
            instances: 1,
            start_check_end: None,
            health: HealthPolicy::default(),
        }
    }

    /// How long a process must stay alive after its start command: until the last check.
    pub fn last_start_check(&self) -> Seconds {
        self.start_check_end.map_or(self.start_check, |end| end.max(self.start_check))
    }

    /// Whether the process must still be the same one at a second check.
    pub fn has_second_check(&self) -> bool {
        self.last_start_check() > self.start_check
    }

    /// Whether a periodic process says when it runs.
    pub fn has_schedule(&self) -> bool {
        self.crontab_rule.is_some() || self.cycle.is_some()
    }

    /// Whether it is periodic but nothing says when it runs: it never would.
    pub fn lacks_schedule(&self) -> bool {
        self.lifetime == Lifetime::Periodic && !self.has_schedule()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// Kept alive while it is managed.
    Resident,
    /// Runs by a schedule.
    Periodic,
    /// Runs once, is never relaunched.
    Once,
}

/// Ownership and names in other systems; shown, without effect here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Ownership {
    pub contact: String,
    pub func_id: String,
    pub instance_id: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConfigFile {
    pub path: AbsolutePath,
    pub md5: String,
}

/// The content address of a spec.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpecHash(String);

impl SpecHash {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Spec {
    /// The canonical JSON text: the same spec always yields the same text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a spec has only string keys and finite numbers")
    }

    /// Number of instances on a host. More than one only if the pid file distinguishes them: without the
    /// placeholder they would be mistaken for each other.
    pub fn instances(&self) -> u32 {
        let tells_apart = self.identity.pid_path.as_str().contains(INSTANCE);
        if tells_apart { self.policy.instances.clamp(1, INSTANCES_MAX) } else { 1 }
    }

    /// Why fewer instances run than the spec asks for.
    pub fn instances_note(&self) -> Option<Message> {
        let (asked, running) = (self.policy.instances, self.instances());
        match running {
            _ if asked <= running => None,
            1 => Some(messages::one_instance_runs(asked)),
            most => Some(messages::fewer_instances_run(most, asked)),
        }
    }

    /// The spec of instance `number`: every `{instance}` in its paths and commands is that number.
    pub fn instance(&self, number: u32) -> Result<Self, FieldError> {
        let text = number.to_string();
        let path = |path: &AbsolutePath| path.as_str().replace(INSTANCE, &text).parse::<AbsolutePath>();
        let shown = |path: &UncheckedPath| path.as_str().replace(INSTANCE, &text).parse::<UncheckedPath>();
        let line = |line: &Option<CommandLine>| match line {
            Some(line) => line.as_str().replace(INSTANCE, &text).parse::<CommandLine>().map(Some),
            None => Ok(None),
        };
        let mut spec = self.clone();
        spec.policy.instances = 1;
        spec.identity.setup_path = path(&self.identity.setup_path)?;
        spec.identity.pid_path = path(&self.identity.pid_path)?;
        spec.identity.config_path = self.identity.config_path.as_ref().map(shown).transpose()?;
        spec.identity.log_path = self.identity.log_path.as_ref().map(shown).transpose()?;
        spec.control = Control {
            start: line(&self.control.start)?,
            stop: line(&self.control.stop)?,
            restart: line(&self.control.restart)?,
            reload: line(&self.control.reload)?,
            kill: line(&self.control.kill)?,
            version: line(&self.control.version)?,
            health: line(&self.control.health)?,
        };
        Ok(spec)
    }

    /// The spec itself, unless it is too large to send.
    pub fn bounded(self) -> Result<Self, FieldError> {
        if self.labels.len() > LABELS_MAX {
            return Err(FieldError::new("labels", messages::more_entries_than(LABELS_MAX)));
        }
        if self.to_json().len() > SPEC_BYTES_MAX {
            return Err(FieldError::new("", messages::larger_than_bytes(SPEC_BYTES_MAX)));
        }
        Ok(self)
    }

    pub fn hash(&self) -> SpecHash {
        SpecHash(blake3::hash(self.to_json().as_bytes()).to_hex().to_string())
    }
}

/// An absolute path without `..`, in UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
#[serde(try_from = "String")]
pub struct AbsolutePath(Box<str>);

text_type!(AbsolutePath);

impl AbsolutePath {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_text("", &text, PATH_BYTES_MAX)?;
        if text.len() > PATH_BYTES_MAX {
            return Err(FieldError::new("", messages::longer_than_bytes(PATH_BYTES_MAX)));
        }
        if !text.starts_with('/') {
            return Err(FieldError::new("", messages::must_be_absolute(text)));
        }
        if text.split('/').any(|part| part == "..") {
            return Err(FieldError::new("", messages::has_dot_dot(text)));
        }
        Ok(Self(text.into()))
    }
}

/// A path that is not checked at registration, so it may be relative.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
#[serde(try_from = "String")]
pub struct UncheckedPath(Box<str>);

text_type!(UncheckedPath);

impl UncheckedPath {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_text("", &text, PATH_BYTES_MAX)?;
        if text.len() > PATH_BYTES_MAX {
            return Err(FieldError::new("", messages::longer_than_bytes(PATH_BYTES_MAX)));
        }
        Ok(Self(text.into()))
    }
}

impl From<AbsolutePath> for UncheckedPath {
    fn from(path: AbsolutePath) -> Self {
        Self(path.0)
    }
}

/// The base name of an executable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
#[serde(try_from = "String")]
pub struct ProcName(Box<str>);

text_type!(ProcName);

impl ProcName {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_text("proc_name", &text, 255)?;
        if text.contains('/') {
            return Err(FieldError::new("proc_name", messages::must_be_a_file_name()));
        }
        Ok(Self(text.into()))
    }
}

/// An account of the host's operating system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
#[serde(try_from = "String")]
pub struct UserName(Box<str>);

text_type!(UserName);

impl UserName {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_text("user", &text, 256)?;
        if text.contains([':', '/']) {
            return Err(FieldError::new("user", messages::has_colon_or_slash()));
        }
        Ok(Self(text.into()))
    }
}

/// A shell command line. It is passed on verbatim; nothing is ever interpolated into it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
#[serde(try_from = "String")]
pub struct CommandLine(Box<str>);

text_type!(CommandLine);

impl CommandLine {
    fn parse(text: String) -> Result<Self, FieldError> {
        if text.trim().is_empty() {
            return Err(FieldError::new("", messages::must_not_be_empty()));
        }
        if text.len() > COMMAND_BYTES_MAX {
            return Err(FieldError::new("", messages::longer_than_bytes(COMMAND_BYTES_MAX)));
        }
        if text.contains('\0') {
            return Err(FieldError::new("", messages::has_a_nul_character()));
        }
        Ok(Self(text.into()))
    }
}

/// A crontab rule of five fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
#[serde(try_from = "String")]
pub struct CronRule(Box<str>);

text_type!(CronRule);

impl CronRule {
    fn parse(text: String) -> Result<Self, FieldError> {
        let bad = |problem: Message| FieldError::new("crontab_rule", problem);
        if text.len() > 256 {
            return Err(bad(messages::longer_than_bytes(256)));
        }
        let fields = text.split_whitespace().count();
        if fields != 5 && !text.trim_start().starts_with('@') {
            return Err(bad(messages::crontab_has_wrong_fields(&text, fields)));
        }
        let cron = croner::Cron::from_str(text.trim());
        let cron = cron.map_err(|error| bad(messages::not_a_crontab_rule(&text, error)))?;
        if !has_occurrence(&cron.pattern) {
            return Err(bad(messages::crontab_never_runs(&text)));
        }
        Ok(Self(text.into()))
    }
}

/// Whether there is a day on which the rule runs; every day has all hours and minutes. Within 28 years every date
/// falls on every weekday, so a rule without a run by then never runs. A search for the next run would continue to
/// the year 5000.
fn has_occurrence(pattern: &croner::CronPattern) -> bool {
    use croner::Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday, Wednesday};
    const WEEKDAYS: [croner::Weekday; 7] = [Sunday, Monday, Tuesday, Wednesday, Thursday, Friday, Saturday];
    const DAYS: usize = 28 * 1461 / 4;
    let mut day = jiff::civil::date(2000, 1, 1);
    for _ in 0..DAYS {
        let (year, month) = (i32::from(day.year()), day.month().unsigned_abs().into());
        let weekday = WEEKDAYS[day.weekday().to_sunday_zero_offset().unsigned_abs() as usize];
        let matches = |day| pattern.day_match(year, month, day, weekday).unwrap_or(false);
        if pattern.month_match(month).unwrap_or(false) && matches(day.day().unsigned_abs().into()) {
            return true;
        }
        day = day.tomorrow().expect("2028 is far from the last year");
    }
    false
}

/// A share of the whole machine, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(minimum = 0.0, maximum = 100.0))]
#[serde(try_from = "f64", into = "f64")]
pub struct Percent(f64);

impl Percent {
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Percent {
    type Error = FieldError;
    fn try_from(value: f64) -> Result<Self, Self::Error> {
        if (0.0..=100.0).contains(&value) {
            Ok(Self(value + 0.0)) // -0 becomes 0
        } else {
            Err(FieldError::new("", messages::not_a_percentage(value)))
        }
    }
}

impl From<Percent> for f64 {
    fn from(percent: Percent) -> Self {
        percent.0
    }
}

/// A duration of at most a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(maximum = 604800))]
#[serde(try_from = "u32", into = "u32")]
pub struct Seconds(u32);

/// The time from one run of a periodic process to the next in seconds, at most 366 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(maximum = 31622400))]
#[serde(try_from = "u32", into = "u32")]
pub struct Period(u32);

/// Whole seconds up to `$max`.
macro_rules! seconds_type {
    ($type:ident, $max:ident) => {
        impl $type {
            pub fn get(self) -> u32 {
                self.0
            }

            pub fn duration(self) -> std::time::Duration {
                std::time::Duration::from_secs(self.0.into())
            }
        }

        impl TryFrom<u32> for $type {
            type Error = FieldError;
            fn try_from(value: u32) -> Result<Self, Self::Error> {
                if value <= $max {
                    Ok(Self(value))
                } else {
                    Err(FieldError::new("", messages::more_than_seconds(value, $max)))
                }
            }
        }

        impl From<$type> for u32 {
            fn from(seconds: $type) -> Self {
                seconds.0
            }
        }
    };
}

seconds_type!(Seconds, SECONDS_MAX);
seconds_type!(Period, PERIOD_SECONDS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_must_be_absolute_and_straight() {
        assert!("/data/gsetest/".parse::<AbsolutePath>().is_ok());
        assert!("data".parse::<AbsolutePath>().is_err());
        assert!("/data/../etc/passwd".parse::<AbsolutePath>().is_err());
        assert!("/data/a\0b".parse::<AbsolutePath>().is_err());
        assert!("/data/..hidden".parse::<AbsolutePath>().is_ok());
    }

    #[test]
    fn a_path_that_is_only_shown_may_be_relative() {
        for good in ["../etc/nginx.conf", "etc", "/data/etc", r"C:\nginx\nginx.conf"] {
            assert_eq!(good.parse::<UncheckedPath>().unwrap().as_str(), good);
        }
        assert!("".parse::<UncheckedPath>().is_err());
        assert!("a\nb".parse::<UncheckedPath>().is_err());
        assert!("x".repeat(PATH_BYTES_MAX + 1).parse::<UncheckedPath>().is_err());
    }

    #[test]
    fn a_period_is_at_most_366_days_and_other_times_a_week() {
        assert_eq!(Period::try_from(366 * 86_400).unwrap().get(), 31_622_400);
        assert_eq!(Period::try_from(31_622_401).unwrap_err().problem, "31622401 is more than 31622400 seconds");
        assert_eq!(Seconds::try_from(604_801).unwrap_err().problem, "604801 is more than 604800 seconds");
    }

    #[test]
    fn who_asks_for_more_instances_than_run_is_told_why() {
        let spec = |pid_path: &str, instances| {
            crate::samples::spec(|spec| {
                spec.identity.pid_path = pid_path.parse().unwrap();
                spec.policy.instances = instances;
            })
        };

        let one = spec("/p.pid", 2).instances_note().unwrap();
        let most = spec("/p{instance}.pid", 1000).instances_note().unwrap();

        assert_eq!(one, "1 instance runs instead of 2: pid_path has no {instance} to tell them apart");
        assert_eq!(most, "256 instances run instead of 1000: there cannot be more on a host");
        assert_eq!(spec("/p{instance}.pid", 2).instances_note(), None);
        assert_eq!(spec("/p{instance}.pid", 2).instance(1).unwrap().instances_note(), None);
    }

    #[test]
    fn cron_rules_have_five_legal_fields() {
        for good in ["* * * * *", "*/5 0-6 1,15 * mon-fri", "@daily"] {
            assert!(good.parse::<CronRule>().is_ok(), "{good}");
        }
        let long = "1,".repeat(5000);
        for bad in ["60 * * * *", "*/0 * * * *", "31 2", "", "* * * * * *", long.as_str()] {
            assert!(bad.parse::<CronRule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rule_that_never_comes_true_is_refused_by_name() {
        for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "5 4 31 2 *"] {
            let error = never.parse::<CronRule>().unwrap_err();
            assert_eq!(error.field, "crontab_rule", "{never}");
            assert!(error.to_string().contains("never runs"), "{error}");
        }
        for rare in ["0 0 29 2 *", "0 0 30 2 mon", "0 0 31 * *", "0 0 L 2 *", "0 0 * 2 sun#5", "@yearly"] {
            assert!(rare.parse::<CronRule>().is_ok(), "{rare}");
        }
    }

    #[test]
    fn percentages_are_finite_and_bounded() {
        assert!(Percent::try_from(100.0).is_ok());
        assert!(Percent::try_from(-0.1).is_err());
        assert!(Percent::try_from(f64::NAN).is_err());
        assert!(Percent::try_from(-0.0).unwrap().get().is_sign_positive());
    }
}
