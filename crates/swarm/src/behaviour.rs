//! How simulated agents misbehave: groups of agents, each with its own latencies and faults.
//!
//! Promised: a behaviour that parses is usable (shares add up to at most 1, ranges are not inverted); an unknown
//! key is refused. Agents without a group behave perfectly.

use std::time::Duration;

use serde::Deserialize;

/// The groups of a behaviour file, in the file's order.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behaviour {
    #[serde(default, rename = "group")]
    groups: Vec<Group>,
}

/// The behaviour of one group. Everything that is absent is perfect.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    pub name: String,
    /// Of all agents, between 0 and 1.
    pub share: f64,
    /// How long a command takes: drawn between the two for each operation.
    pub command_ms: [u64; 2],
    /// The share of commands that fail with 65535, between 0 and 1.
    pub failures: f64,
    /// Every running process exits this often and is started again by its agent.
    pub crash_every_secs: Option<u64>,
    /// The agent waits this long before it reads the next message.
    pub read_pause_ms: u64,
    /// How far the agent's clock is ahead of the server's; negative: behind.
    pub clock_offset_ms: i64,
    /// The agent drops its connection without a goodbye after this long.
    pub disconnect_every_secs: Option<u64>,
    /// The agent is killed this often and restarts at once: it forgets what its ledger does not hold.
    pub kill_every_secs: Option<u64>,
}

impl Group {
    /// How long a command takes, for a draw between 0 and 1.
    pub(crate) fn command_time(&self, draw: f64) -> Duration {
        let [least, most] = self.command_ms;
        Duration::from_millis(least) + Duration::from_millis(most - least).mul_f64(draw)
    }

    fn check(&self) -> Result<(), BehaviourError> {
        let problem = |what: &str| Err(BehaviourError::Group { name: self.name.clone(), problem: what.to_owned() });
        let is_share = |value: f64| (0.0..=1.0).contains(&value);
        if self.name.is_empty() {
            return problem("needs a name");
        }
        if !is_share(self.share) || !is_share(self.failures) {
            return problem("share and failures must be between 0 and 1");
        }
        if self.command_ms[0] > self.command_ms[1] {
            return problem("command_ms must be [LEAST, MOST]");
        }
        if [self.crash_every_secs, self.disconnect_every_secs, self.kill_every_secs].contains(&Some(0)) {
            return problem("crash_every_secs, disconnect_every_secs and kill_every_secs must be at least 1");
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BehaviourError {
    #[error("not a behaviour file")]
    Toml(#[from] toml::de::Error),
    #[error("group '{name}': {problem}")]
    Group { name: String, problem: String },
    #[error("the shares of all groups add up to {0}, more than 1")]
    Shares(f64),
}

impl std::str::FromStr for Behaviour {
    type Err = BehaviourError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let behaviour: Self = toml::from_str(text)?;
        behaviour.groups.iter().try_for_each(Group::check)?;
        let total: f64 = behaviour.groups.iter().map(|group| group.share).sum();
        if total > 1.0 + 1e-9 { Err(BehaviourError::Shares(total)) } else { Ok(behaviour) }
    }
}

impl Behaviour {
    /// The group of agent `index` of `count`: groups follow one another in the order of the file.
    pub fn group_of(&self, index: u32, count: u32) -> Group {
        let position = (f64::from(index) + 0.5) / f64::from(count.max(1));
        let mut end = 0.0;
        for group in &self.groups {
            end += group.share;
            if position < end {
                return group.clone();
            }
        }
        Group { name: "perfect".to_owned(), ..Group::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_divided_by_share_and_the_rest_is_perfect() {
        let behaviour: Behaviour = "[[group]]\nname = 'slow'\nshare = 0.25\ncommand_ms = [100, 200]\n\
                                    [[group]]\nname = 'broken'\nshare = 0.25\nfailures = 1.0"
            .parse()
            .unwrap();

        let names: Vec<String> = (0..8).map(|index| behaviour.group_of(index, 8).name).collect();

        assert_eq!(names, ["slow", "slow", "broken", "broken", "perfect", "perfect", "perfect", "perfect"]);
        assert_eq!(behaviour.group_of(0, 8).command_time(0.5), Duration::from_millis(150));
    }

    #[test]
    fn a_bad_file_names_its_group_and_what_is_wrong() {
        let refusal = |text: &str| text.parse::<Behaviour>().unwrap_err().to_string();

        assert!(refusal("[[group]]\nname = 'x'\nshare = 2.0").contains("group 'x'"));
        assert!(refusal("[[group]]\nname = 'x'\ncommand_ms = [2, 1]").contains("LEAST"));
        assert!(refusal("[[group]]\nshare = 0.1").contains("needs a name"));
        assert!(refusal("[[group]]\nname='a'\nshare=0.6\n[[group]]\nname='b'\nshare=0.6").contains("1.2"));
        let unknown = "[[group]]\nname = 'x'\nlatency = 3".parse::<Behaviour>().unwrap_err();
        assert!(matches!(&unknown, BehaviourError::Toml(error) if error.to_string().contains("latency")));
    }
}
