//! An entry of the catalogue with its arguments, and its JSON form.
//!
//! `{"id": "process_already_running", "args": {"pid": "7"}}`: the same on links, in files and stores, and in the native
//! API. An argument is text, or a phrase of its own.

use std::collections::BTreeMap;

use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Entry, Sender, entries};

/// Of the JSON form. Enough for the output of a failed command.
pub const PHRASE_BYTES_MAX: usize = 64 * 1024;
/// Nesting of phrases: the lines of 256 instances, two by two, each with its own message.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    entry: &'static Entry,
    /// One for each name of the entry, in its order.
    args: Vec<Arg>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arg {
    Text(String),
    Phrase(Phrase),
}

impl Phrase {
    pub(super) fn new(entry: &'static Entry, args: Vec<Arg>) -> Self {
        debug_assert_eq!(entry.args.len(), args.len(), "{}", entry.id);
        Self { entry, args }
    }

    /// None if the id is unknown here or not for this sender, if the arguments are not those of the entry, and if
    /// it is too long.
    pub fn from_json(json: &str, sender: Sender) -> Option<Self> {
        if json.is_empty() || json.len() > PHRASE_BYTES_MAX {
            return None;
        }
        serde_json::from_str::<Unchecked>(json).ok()?.checked(sender, DEPTH_MAX)
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts by texts are JSON")
    }

    pub(super) fn json_len(&self) -> usize {
        self.to_json().len()
    }

    pub fn id(&self) -> &'static str {
        self.entry.id
    }

    /// By the names of the entry.
    pub fn args_json(&self) -> serde_json::Map<String, serde_json::Value> {
        let value = |arg: &Arg| match arg {
            Arg::Text(text) => text.as_str().into(),
            Arg::Phrase(phrase) => serde_json::json!({"id": phrase.id(), "args": phrase.args_json()}),
        };
        self.entry.args.iter().zip(&self.args).map(|(name, arg)| ((*name).to_owned(), value(arg))).collect()
    }

    /// In the wording of this version.
    pub fn english(&self) -> String {
        self.render(|entry| entry.english)
    }

    pub fn chinese(&self) -> String {
        self.render(|entry| entry.chinese)
    }

    fn render(&self, template: fn(&Entry) -> &'static str) -> String {
        let texts: Vec<String> = self
            .args
            .iter()
            .map(|arg| match arg {
                Arg::Text(text) => text.clone(),
                Arg::Phrase(phrase) => phrase.render(template),
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        filled(template(self.entry), self.entry.args, &texts)
    }
}

/// `template` with a text for each name. Braces around anything else stay.
pub(super) fn filled(template: &str, names: &[&str], texts: &[&str]) -> String {
    let mut rendered = String::with_capacity(template.len() + texts.iter().map(|text| text.len()).sum::<usize>());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        rendered += before;
        let named = after.split_once('}').and_then(|(name, after)| {
            let index = names.iter().position(|known| *known == name)?;
            Some((texts.get(index)?, after))
        });
        match named {
            Some((text, after)) => {
                rendered += text;
                rest = after;
            }
            None => {
                rendered.push('{');
                rest = after;
            }
        }
    }
    rendered + rest
}

impl Serialize for Phrase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut phrase = serializer.serialize_struct("Phrase", 2)?;
        phrase.serialize_field("id", self.entry.id)?;
        phrase.serialize_field("args", &Args(self))?;
        phrase.end()
    }
}

struct Args<'a>(&'a Phrase);

impl Serialize for Args<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Phrase { entry, args } = self.0;
        let mut map = serializer.serialize_map(Some(args.len()))?;
        for (name, arg) in entry.args.iter().zip(args) {
            match arg {
                Arg::Text(text) => map.serialize_entry(name, text)?,
                Arg::Phrase(phrase) => map.serialize_entry(name, phrase)?,
            }
        }
        map.end()
    }
}

/// As received, before it is checked against the catalogue.
#[derive(Deserialize)]
struct Unchecked {
    id: String,
    #[serde(default)]
    args: BTreeMap<String, UncheckedArg>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UncheckedArg {
    Text(String),
    Phrase(Unchecked),
}

impl Unchecked {
    fn checked(mut self, sender: Sender, depth: usize) -> Option<Phrase> {
        let depth = depth.checked_sub(1)?;
        let entry = entries().find(|entry| entry.id == self.id)?;
        let may_say = match sender {
            Sender::Server => true,
            Sender::Agent => entry.sender == Sender::Agent,
        };
        if !may_say || self.args.len() != entry.args.len() {
            return None;
        }
        let arg = |name: &&str| match self.args.remove(*name)? {
            UncheckedArg::Text(text) => Some(Arg::Text(text)),
            UncheckedArg::Phrase(phrase) => phrase.checked(sender, depth).map(Arg::Phrase),
        };
        let args: Option<Vec<Arg>> = entry.args.iter().map(arg).collect();
        Some(Phrase::new(entry, args?))
    }
}

/// From one of our files, or None if this version does not know it: for `deserialize_with`.
pub fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Phrase>, D::Error> {
    let unchecked = Option::<Unchecked>::deserialize(deserializer)?;
    Ok(unchecked.and_then(|unchecked| unchecked.checked(Sender::Server, DEPTH_MAX)))
}
