//! Messages for people with their id and arguments: one type for each field name that the text has.
//!
//! Promised: the text is in the language of the call (`blueking-language`, `Accept-Language`), or in English if a
//! part of it has no Chinese. Id and arguments are those of an entry of `docs/messages.json`, so that a client can
//! render it in its own language.

use proctor_model::Phrase;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A text with its id and arguments.
pub trait Sentence {
    fn new(text: String, phrase: Option<&Phrase>) -> Self;
}

macro_rules! sentence {
    ($(#[$about:meta])* $name:ident { $(#[$text_about:meta])* $text:ident: $type:ty, $id:ident, $args:ident }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            /// In the language of the call.
            $(#[$text_about])*
            pub $text: $type,
            /// The entry of docs/messages.json that it is; absent if it is plain text.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $id: Option<String>,
            /// The arguments of the entry by name: text, or an object with its own `id` and `args`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<Object>)]
            pub $args: Option<serde_json::Map<String, serde_json::Value>>,
        }

        impl Sentence for $name {
            fn new($text: String, phrase: Option<&Phrase>) -> Self {
                Self {
                    $text: $text.into(),
                    $id: phrase.map(|phrase| phrase.id().to_owned()),
                    $args: phrase.map(Phrase::args_json),
                }
            }
        }
    };
}

sentence! {
    /// The result of something.
    LocalizedMessage { message: String, message_id, message_args }
}

sentence! {
    /// The reason of something.
    Reason { reason: String, reason_id, reason_args }
}

sentence! {
    /// The reason of something, if there is one.
    OptionalReason {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        reason_id,
        reason_args
    }
}

sentence! {
    /// A note, if there is one.
    OptionalNote {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        note_id,
        note_args
    }
}

sentence! {
    /// What went wrong, if something did.
    OptionalFailure {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        error_id,
        error_args
    }
}
