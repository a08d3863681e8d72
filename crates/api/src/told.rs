//! Sentences for people, beside what they say by their id: one type for each name that the text has.
//!
//! Promised: the text is in the language that the call asked for (`blueking-language`, `Accept-Language`), in English
//! where a part of it has no Chinese. Id and arguments are those of an entry of `docs/messages.json`, so that a client can
//! tell it in a language of its own.

use proctor_model::Phrase;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A text with what it says.
pub trait Sentence {
    fn new(text: String, phrase: Option<&Phrase>) -> Self;
}

macro_rules! sentence {
    ($(#[$about:meta])* $name:ident { $(#[$text_about:meta])* $text:ident: $type:ty, $id:ident, $args:ident }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            /// In the language that the call asked for.
            $(#[$text_about])*
            pub $text: $type,
            /// The entry of docs/messages.json that it is; absent where it is text alone.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $id: Option<String>,
            /// By the names of the entry: text, or an object with `id` and `args` of its own.
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
    /// What came of something.
    Told { message: String, message_id, message_args }
}

sentence! {
    /// Why something is as it is.
    Reason { reason: String, reason_id, reason_args }
}

sentence! {
    /// Why something is as it is, where there is a reason.
    OptionalReason {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        reason_id,
        reason_args
    }
}

sentence! {
    /// What somebody should know besides, where there is something.
    OptionalNote {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        note_id,
        note_args
    }
}

sentence! {
    /// What went wrong, where something did.
    OptionalFailure {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        error_id,
        error_args
    }
}
