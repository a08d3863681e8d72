//! Where a list continues: opaque to callers, so that its form may change.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proctor_model::{FieldError, messages};
use serde::Serialize;
use serde::de::DeserializeOwned;

const CURSOR_BYTES_MAX: usize = 4096;

pub(super) fn encode<T: Serialize>(cursor: &T) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(cursor).expect("a cursor has only string keys"))
}

/// `next` of an earlier answer.
pub(super) fn decode<T: DeserializeOwned>(after: Option<&str>) -> Result<Option<T>, FieldError> {
    let Some(text) = after else { return Ok(None) };
    let bad = || FieldError::new("after", messages::not_a_cursor());
    if text.len() > CURSOR_BYTES_MAX {
        return Err(bad());
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    serde_json::from_slice(&bytes).map(Some).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_and_nonsense_is_refused() {
        let text = encode(&("web", 7));

        assert_eq!(decode::<(String, u32)>(Some(&text)), Ok(Some(("web".to_owned(), 7))));
        assert_eq!(decode::<(String, u32)>(None), Ok(None));
        for bad in ["", "!", "e30", &"A".repeat(5000)] {
            assert_eq!(decode::<(String, u32)>(Some(bad)).unwrap_err().field, "after", "{bad}");
        }
    }
}
