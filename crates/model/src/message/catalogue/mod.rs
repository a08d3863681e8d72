//! The message catalogue, in English and Chinese, by area.
//!
//! An entry is `id(argument: kind, …) = "English" | "Chinese";` and becomes a function of that name. An argument of
//! kind `text` is the same in every language; one of kind `message` is another entry. Absent: text that another
//! program or version wrote. Start at `outcomes`.

mod events;
mod fields;
mod fleet;
mod outcomes;
mod requests;
mod targets;
mod upgrades;
mod words;

use super::Entry;

/// A function for each entry.
pub mod messages {
    pub use super::events::*;
    pub use super::fields::*;
    pub use super::fleet::*;
    pub use super::outcomes::*;
    pub use super::requests::*;
    pub use super::targets::*;
    pub use super::upgrades::*;
    pub use super::words::*;
}

pub(super) static TABLES: &[&[&Entry]] = &[
    words::TABLE,
    fields::TABLE,
    requests::TABLE,
    outcomes::TABLE,
    targets::TABLE,
    events::TABLE,
    upgrades::TABLE,
    fleet::TABLE,
];

macro_rules! given_type {
    (text) => { impl std::fmt::Display };
    (message) => { Message };
}

macro_rules! given {
    (text, $arg:ident) => {
        $crate::message::Given::Text($arg.to_string())
    };
    (message, $arg:ident) => {
        $crate::message::Given::Message($arg)
    };
}

macro_rules! catalogue {
    ($sender:ident: $($(#[$doc:meta])* $id:ident($($arg:ident: $kind:ident),*) = $english:literal | $chinese:literal;)+) => {
        use $crate::message::{Entry, Message, Sender};

        #[allow(non_upper_case_globals, reason = "an entry has the name of its function, which is its id")]
        mod entry {
            use super::{Entry, Sender};
            $(
                pub(super) static $id: Entry = Entry {
                    id: stringify!($id),
                    sender: Sender::$sender,
                    english: $english,
                    chinese: $chinese,
                    args: &[$(stringify!($arg)),*],
                };
            )+
        }

        $(
            #[doc = $english]
            $(#[$doc])*
            pub fn $id($($arg: $crate::message::catalogue::given_type!($kind)),*) -> Message {
                Message::new(&entry::$id, vec![$($crate::message::catalogue::given!($kind, $arg)),*])
            }
        )+

        pub(in crate::message) static TABLE: &[&Entry] = &[$(&entry::$id),+];
    };
}
use {catalogue, given, given_type};
