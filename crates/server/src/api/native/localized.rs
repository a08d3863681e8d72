//! Messages of the catalogue, as responses carry them.

use proctor_api::Sentence;
use proctor_model::Message;

use crate::api::language;

/// In the language of the call, with id and arguments.
pub(super) fn localized<T: Sentence>(message: &Message) -> T {
    T::new(language::of_message(message), message.phrase())
}
