//! The text of a spec, made once for a call that goes to a whole fleet.
//!
//! Promised: while a spec is shared (one `Arc`), its text is written once by each thread that sends it, and copied from
//! then on. Absent: specs that are equal and not shared; whoever reads them from a store gives equal ones as one.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use proctor_model::Spec;

/// Specs whose text a thread remembers: a call has few different ones at a time.
const TEXTS_MAX: usize = 4;
/// Longer texts are not remembered.
const TEXT_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static TEXTS: RefCell<SpecTexts> = RefCell::default();
}

/// As it goes over the link.
pub(crate) fn spec_text(spec: &Arc<Spec>) -> Arc<str> {
    TEXTS.with_borrow_mut(|texts| texts.of(spec))
}

/// How long the text of a spec is on the link.
pub fn spec_bytes(spec: &Arc<Spec>) -> usize {
    spec_text(spec).len()
}

#[derive(Default)]
struct SpecTexts {
    /// The oldest first. A weak reference keeps the place in memory from being another spec's.
    texts: Vec<(Weak<Spec>, Arc<str>)>,
}

impl SpecTexts {
    fn of(&mut self, spec: &Arc<Spec>) -> Arc<str> {
        let known = self.texts.iter().find(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(spec)));
        if let Some((_, text)) = known {
            return text.clone();
        }
        let text: Arc<str> = spec.to_json().into();
        if text.len() <= TEXT_BYTES_MAX {
            self.texts.retain(|(known, _)| known.strong_count() > 0);
            if self.texts.len() == TEXTS_MAX {
                self.texts.remove(0);
            }
            self.texts.push((Arc::downgrade(spec), text.clone()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> Arc<Spec> {
        let labels = [("name".to_owned(), name.to_owned())];
        proctor_model::samples::spec(|spec| spec.labels = labels.into_iter().collect())
    }

    #[test]
    fn a_shared_spec_is_written_once() {
        let (mut texts, spec) = (SpecTexts::default(), spec("web"));

        let written: Vec<_> = (0..1000).map(|_| texts.of(&Arc::clone(&spec))).collect();

        assert!(written.iter().all(|text| Arc::ptr_eq(text, &written[0])));
        assert_eq!(*written[0], spec.to_json());
    }

    #[test]
    fn another_spec_in_the_same_place_has_its_own_text() {
        let mut texts = SpecTexts::default();

        for number in 0..100 {
            let spec = spec(&number.to_string());
            assert_eq!(*texts.of(&spec), spec.to_json());
        }
    }

    #[test]
    fn few_texts_are_kept_and_none_that_is_large() {
        let mut texts = SpecTexts::default();
        let specs: Vec<_> = (0..10).map(|number| spec(&number.to_string())).collect();
        for spec in &specs {
            texts.of(spec);
        }
        assert_eq!(texts.texts.len(), TEXTS_MAX);

        texts.of(&spec(&"x".repeat(TEXT_BYTES_MAX)));

        assert_eq!(texts.texts.len(), TEXTS_MAX);
    }
}
