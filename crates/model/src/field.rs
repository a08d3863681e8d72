//! The only form of a validation error: which field, and what is wrong with it.

use crate::message::{Phrase, Sender};
use crate::{Message, messages};

/// An invalid value from outside; `field` is a path such as `hosts[3].ip`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Empty if the caller knows the field and adds it.
    pub field: String,
    pub problem: Message,
}

impl std::error::Error for FieldError {}

/// Marks a phrase as JSON. None of our texts begins with it.
const PHRASE_MARK: char = '\0';

/// `{:#}` is for [`FieldError::message_of`].
impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if f.alternate()
            && let Some(phrase) = self.message().phrase()
        {
            return write!(f, "{PHRASE_MARK}{}", phrase.to_json());
        }
        if self.field.is_empty() { f.write_str(&self.problem) } else { write!(f, "{}: {}", self.field, self.problem) }
    }
}

impl FieldError {
    pub fn new(field: impl Into<String>, problem: Message) -> Self {
        Self { field: field.into(), problem }
    }

    /// The message of an error that passed through serde's `custom`, which keeps only its display form. Our own
    /// errors keep their id and arguments this way.
    pub fn message_of(error: &impl std::fmt::Display) -> Message {
        let text = format!("{error:#}");
        let phrase = text.strip_prefix(PHRASE_MARK).and_then(|json| Phrase::from_json(json, Sender::Server));
        match phrase {
            Some(phrase) => Message::of_parts(phrase.english(), Some(phrase)),
            None => Message::foreign(error.to_string()),
        }
    }

    /// With the field in front, in all languages.
    pub fn message(&self) -> Message {
        if self.field.is_empty() { self.problem.clone() } else { messages::in_field(&self.field, self.problem.clone()) }
    }

    /// The same error one level further out: `ip` inside `hosts[3]` is `hosts[3].ip`.
    #[must_use]
    pub fn inside(mut self, parent: &str) -> Self {
        self.field = match self.field.as_str() {
            "" => parent.to_owned(),
            field if field.starts_with('[') => format!("{parent}{field}"),
            field => format!("{parent}.{field}"),
        };
        self
    }
}

/// Whether a character is invisible or changes how others are displayed: control characters, line breaks, text
/// directions, joiners and tags. Text written for people contains none of them.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{FEFF}'
            | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
            | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

/// Rules that several kinds of text share: not empty, bounded, no control characters.
pub(crate) fn check_text(field: &str, text: &str, chars_max: usize) -> Result<(), FieldError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain && (1..=chars_max).contains(&text.len()) {
        return Ok(()); // as most are
    }
    if text.trim().is_empty() {
        return Err(FieldError::new(field, messages::must_not_be_empty()));
    }
    if text.chars().count() > chars_max {
        return Err(FieldError::new(field, messages::longer_than_chars(chars_max)));
    }
    if text.chars().any(char::is_control) {
        return Err(FieldError::new(field, messages::has_control_characters()));
    }
    Ok(())
}

/// Implements the usual traits of a validated text type: parsing, display and serde, all through
/// one `parse` function.
macro_rules! text_type {
    ($type:ident) => {
        impl std::str::FromStr for $type {
            type Err = $crate::FieldError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text.to_owned())
            }
        }

        impl TryFrom<String> for $type {
            type Error = $crate::FieldError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(text)
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.as_str().to_owned()
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl $type {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}
pub(crate) use text_type;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_id_on_its_way_through_serde() {
        let error = FieldError::new("ip", messages::not_an_address("ten"));

        let message = FieldError::message_of(&error);

        assert_eq!(message, error.message());
        assert_eq!(message.chinese().as_deref(), Some("ip: 'ten' 不是 IP 地址"));
    }

    #[test]
    fn the_error_of_another_type_is_kept_as_text() {
        for text in ["invalid IP address syntax", "\0{\"id\":\"nothing\"}", ""] {
            assert_eq!(FieldError::message_of(&text), Message::foreign(text));
        }
    }
}
