//! Selectors: which processes, by their labels. `env=prod,tier!=db,!x,y`: all terms must hold.

use proctor_model::{FieldError, Message, messages};
use proctor_store::LabelTerm;

const TERMS_MAX: usize = 32;

/// The terms of a selector; there is at least one.
pub(super) fn parse(text: &str) -> Result<Vec<LabelTerm>, FieldError> {
    let terms: Vec<LabelTerm> = text.split(',').map(term).collect::<Result<_, _>>()?;
    if terms.len() > TERMS_MAX {
        return Err(bad(messages::selector_has_too_many_terms(terms.len(), TERMS_MAX)));
    }
    Ok(terms)
}

fn bad(problem: Message) -> FieldError {
    FieldError::new("selector", problem)
}

fn term(text: &str) -> Result<LabelTerm, FieldError> {
    let text = text.trim();
    if let Some((name, value)) = text.split_once("!=") {
        return Ok(LabelTerm::NotEquals(label(name, text)?, value.trim().to_owned()));
    }
    if let Some((name, value)) = text.split_once('=') {
        // As other selectors write it: env==prod.
        let value = value.strip_prefix('=').unwrap_or(value);
        return Ok(LabelTerm::Equals(label(name, text)?, value.trim().to_owned()));
    }
    match text.strip_prefix('!') {
        Some(name) => Ok(LabelTerm::Absent(label(name, text)?)),
        None => Ok(LabelTerm::Exists(label(text, text)?)),
    }
}

fn label(name: &str, term: &str) -> Result<String, FieldError> {
    let name = name.trim();
    if name.is_empty() || name.contains('!') {
        return Err(bad(messages::not_a_selector_term(term)));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_term_is_read() {
        let terms = parse("env=prod, tier != db,!x,y,a==b,empty=").unwrap();

        let text = |text: &str| text.to_owned();
        assert_eq!(
            terms,
            [
                LabelTerm::Equals(text("env"), text("prod")),
                LabelTerm::NotEquals(text("tier"), text("db")),
                LabelTerm::Absent(text("x")),
                LabelTerm::Exists(text("y")),
                LabelTerm::Equals(text("a"), text("b")),
                LabelTerm::Equals(text("empty"), text("")),
            ]
        );
    }

    #[test]
    fn what_is_no_selector_is_refused_with_its_term() {
        for bad in ["", ",", "a=b,", "=x", "!=x", "!", "!!x", "a!b"] {
            assert_eq!(parse(bad).unwrap_err().field, "selector", "{bad}");
        }
        assert!(parse("=x").unwrap_err().problem.contains("'=x'"));
        assert!(parse(&["a"; 33].join(",")).is_err());
    }
}
