//! User-facing messages, by id, in every supported language.
//!
//! Promised: a [`Message`] is created by a function of [`messages`], next to its English and Chinese text in one
//! catalogue, so that neither can be changed without seeing the other. It is in one language throughout: if a part
//! has no Chinese, all of it is English. What comes from elsewhere (a link, a store) is checked against the
//! catalogue: an unknown id, or arguments other than the entry's, leave only the text.
//! Absent: which language somebody wants, and command output, which is quoted verbatim.
//!
//! To add a message, add an entry to `catalogue/`. To reword one, change both texts and keep the id. To change its
//! arguments, add a new id, because other versions send the old one.

mod catalogue;
mod phrase;

pub use catalogue::messages;
pub use phrase::known as known_phrase;
pub use phrase::{PHRASE_BYTES_MAX, Phrase};

use std::fmt;

use phrase::Arg;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One sentence of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: &'static str,
    pub sender: Sender,
    /// `{name}` stands for the argument of that name.
    pub english: &'static str,
    pub chinese: &'static str,
    pub args: &'static [&'static str],
}

/// Who may send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Only the server: about calls and permissions.
    Server,
    /// Agents too: about processes and hosts.
    Agent,
}

/// Every entry, in the order of the files.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    catalogue::TABLES.iter().copied().flatten().copied()
}

/// A sentence for people. One from the catalogue can be shown in every language.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Message {
    english: String,
    phrase: Option<Box<Phrase>>,
}

/// The arguments of an entry.
#[derive(Debug)]
enum Given {
    /// The same in every language: a name, a number, the output of a command.
    Text(String),
    Message(Message),
}

impl Message {
    fn new(entry: &'static Entry, given: Vec<Given>) -> Self {
        let texts: Vec<&str> = given
            .iter()
            .map(|given| match given {
                Given::Text(text) => text.as_str(),
                Given::Message(message) => &message.english,
            })
            .collect();
        let english = phrase::filled(entry.english, entry.args, &texts);
        let args = given.into_iter().map(|given| match given {
            Given::Text(text) => Some(Arg::Text(text)),
            Given::Message(message) => message.phrase.map(|phrase| Arg::Phrase(*phrase)),
        });
        let args: Option<Vec<Arg>> = args.collect();
        Self { english, phrase: args.map(|args| Box::new(Phrase::new(entry, args))) }
    }

    /// Text without an entry, the same in every language: what another program or version has said. Our own
    /// sentences have entries; text from outside that is part of a sentence is an argument.
    pub fn foreign(text: impl Into<String>) -> Self {
        Self { english: text.into(), phrase: None }
    }

    /// From stored or received text and, perhaps, a phrase. Without a phrase, the text is used.
    pub fn of_parts(text: String, phrase: Option<Phrase>) -> Self {
        Self { english: text, phrase: phrase.map(Box::new) }
    }

    pub fn as_str(&self) -> &str {
        &self.english
    }

    /// None if part of it has no Chinese.
    pub fn chinese(&self) -> Option<String> {
        self.phrase.as_ref().map(|phrase| phrase.chinese())
    }

    pub fn phrase(&self) -> Option<&Phrase> {
        self.phrase.as_deref()
    }

    /// For what can only show text.
    pub fn into_text(self) -> String {
        self.english
    }

    pub fn into_parts(self) -> (String, Option<Phrase>) {
        (self.english, self.phrase.map(|phrase| *phrase))
    }

    /// What it takes to keep it.
    pub fn bytes(&self) -> usize {
        self.english.len() + self.phrase.as_ref().map_or(0, |phrase| phrase.json_len())
    }

    /// The same in at most this many bytes, with `end` if something was cut off. A truncated message is plain text.
    #[must_use]
    pub fn fitted(mut self, bytes_max: usize, end: &str) -> Self {
        if self.english.len() > bytes_max {
            crate::status::cut(&mut self.english, bytes_max - end.len());
            self.english.push_str(end);
            self.phrase = None;
        }
        self.phrase = self.phrase.filter(|phrase| phrase.json_len() <= bytes_max.min(PHRASE_BYTES_MAX));
        self
    }
}

/// As its text, mainly for logs.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.english, f)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.english)
    }
}

impl std::ops::Deref for Message {
    type Target = str;
    fn deref(&self) -> &str {
        &self.english
    }
}

impl PartialEq<str> for Message {
    fn eq(&self, text: &str) -> bool {
        self.english == text
    }
}

impl PartialEq<String> for Message {
    fn eq(&self, text: &String) -> bool {
        self.english == *text
    }
}

impl PartialEq<&str> for Message {
    fn eq(&self, text: &&str) -> bool {
        self.english == *text
    }
}

/// How a message is stored inside a JSON object: its text under a name chosen by the object, as ever, and its
/// phrase beside it if there is one. Use with `#[serde(flatten, with = …)]`.
macro_rules! beside {
    ($module:ident, $text:ident) => {
        pub(crate) mod $module {
            use super::*;

            #[derive(Serialize)]
            struct Written<'a> {
                $text: &'a str,
                #[serde(skip_serializing_if = "Option::is_none")]
                phrase: Option<&'a Phrase>,
            }

            #[derive(Deserialize)]
            struct Read {
                $text: String,
                #[serde(default, deserialize_with = "phrase::known")]
                phrase: Option<Phrase>,
            }

            pub(crate) fn serialize<S: Serializer>(message: &Message, serializer: S) -> Result<S::Ok, S::Error> {
                Written { $text: &message.english, phrase: message.phrase() }.serialize(serializer)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Message, D::Error> {
                let Read { $text, phrase } = Read::deserialize(deserializer)?;
                Ok(Message::of_parts($text, phrase))
            }
        }
    };
}
beside!(as_message, message);
beside!(as_content, content);

#[cfg(test)]
mod tests;
