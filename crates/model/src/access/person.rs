//! User names, as trusted apps write them.
//!
//! Promised: two admitted names that look the same are the same. Permissions depend on names, and auditors read
//! them. Absent: whether such a user exists.

use crate::field::{FieldError, check_text};
use crate::messages;

const NAME_CHARS_MAX: usize = 128;

/// Admits printable ASCII, Latin-1 letters, and Chinese, Japanese and Korean characters, with single spaces inside.
/// Letters of other scripts can look like ASCII (а, ο, ａ), and marks and invisible characters make two names look
/// like one.
pub fn check_person_name(field: &str, name: &str) -> Result<(), FieldError> {
    check_text(field, name, NAME_CHARS_MAX)?;
    if name.starts_with(' ') || name.ends_with(' ') || name.contains("  ") {
        return Err(FieldError::new(field, messages::has_stray_spaces()));
    }
    match name.chars().find(|c| !is_distinct(*c)) {
        None => Ok(()),
        Some(c) => {
            let code_point = format!("U+{:04X}", u32::from(c));
            Err(FieldError::new(field, messages::has_indistinct_character(code_point)))
        }
    }
}

fn is_distinct(c: char) -> bool {
    c.is_ascii_graphic()
        || matches!(c,
            ' ' | '·'
            | 'À'..='Ö' | 'Ø'..='ö' | 'ø'..='ÿ'
            | '々' | '〇' | 'ー'
            | '\u{3041}'..='\u{3096}' // hiragana
            | '\u{30A1}'..='\u{30FA}' // katakana
            | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' // Han
            | '\u{AC00}'..='\u{D7A3}' // hangul
            | '\u{20000}'..='\u{2EBE0}' | '\u{30000}'..='\u{323AF}') // rare Han
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_clients_send_are_admitted() {
        for good in
            ["admin", "bk_gsekit", "ana.b-c@example.com", "张三", "José", "Ana B", "李·四", "デモ", "김", "DOMAIN\\x"]
        {
            assert_eq!(check_person_name("bk_username", good), Ok(()), "{good}");
        }
        assert_eq!(check_person_name("bk_username", &"x".repeat(128)), Ok(()));
    }

    #[test]
    fn names_that_look_like_others_are_not() {
        let long = "x".repeat(129);
        for bad in [
            "",
            " ",
            " admin",
            "admin ",
            "a  b",
            "ad\tmin",
            "admin\n",
            "admin\0",
            &long,
            "аdmin",         // a Cyrillic letter
            "adμin",         // a Greek one
            "ａdmin",        // full width
            "𝐚dmin",         // mathematical
            "admın",         // without its dot
            "jose\u{301}",   // a combining mark
            "admin\u{200B}", // a space of no width
            "ad\u{AD}min",   // a soft hyphen
            "\u{202E}nimda", // written from the right
            "admin\u{A0}",   // a space that does not break
            "a\u{3000}b",    // a wide space
            "\u{F900}",      // a compatible ideograph
        ] {
            assert_eq!(check_person_name("bk_username", bad).unwrap_err().field, "bk_username", "{bad:?}");
        }
    }
}
