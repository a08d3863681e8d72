//! The text of a spec, written once for a call to a whole fleet, and parsed once by whoever already has the spec.
//!
//! Promised: while a spec is shared (one `Arc`), each thread that sends it writes its text once, and copies it from
//! then on. A text that a thread has parsed recently is not parsed again as long as somebody holds its spec: an
//! operation carries the spec that was assigned before, and the agents of a swarm are assigned the same one.
//! Nothing is kept alive for this. Absent: specs that are equal but not shared; stores return equal ones as one.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use proctor_model::Spec;

/// Specs whose text a thread remembers: a call has few distinct ones at a time.
const TEXTS_MAX: usize = 4;
/// Longer texts are not remembered.
const TEXT_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static TEXTS: RefCell<SpecTexts> = RefCell::default();
    /// Separate from the other: a received text need not equal the one that would be written.
    static READ: RefCell<SpecTexts> = RefCell::default();
}

/// As sent over the link.
pub(crate) fn spec_text(spec: &Arc<Spec>) -> Arc<str> {
    TEXTS.with_borrow_mut(|texts| texts.of(spec))
}

/// The spec of a text from the link: an existing one, or what `read` parses.
pub(crate) fn spec_of_text<E>(text: String, read: impl FnOnce(&str) -> Result<Spec, E>) -> Result<Arc<Spec>, E> {
    READ.with_borrow_mut(|texts| texts.spec(text, read))
}

/// How long the text of a spec is on the link.
pub fn spec_bytes(spec: &Arc<Spec>) -> usize {
    spec_text(spec).len()
}

#[derive(Default)]
struct SpecTexts {
    /// Oldest first. A weak reference keeps its address from being reused for another spec.
    texts: Vec<(Weak<Spec>, Arc<str>)>,
}

impl SpecTexts {
    fn of(&mut self, spec: &Arc<Spec>) -> Arc<str> {
        let known = self.texts.iter().find(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(spec)));
        if let Some((_, text)) = known {
            return text.clone();
        }
        let text: Arc<str> = spec.to_json().into();
        self.remember(spec, &text);
        text
    }

    fn spec<E>(&mut self, text: String, read: impl FnOnce(&str) -> Result<Spec, E>) -> Result<Arc<Spec>, E> {
        let known = self.texts.iter().find(|(_, known)| **known == *text);
        if let Some(spec) = known.and_then(|(known, _)| known.upgrade()) {
            return Ok(spec);
        }
        let spec = Arc::new(read(&text)?);
        self.remember(&spec, &text.into());
        Ok(spec)
    }

    fn remember(&mut self, spec: &Arc<Spec>, text: &Arc<str>) {
        if text.len() <= TEXT_BYTES_MAX {
            self.texts.retain(|(known, _)| known.strong_count() > 0);
            if self.texts.len() == TEXTS_MAX {
                self.texts.remove(0);
            }
            self.texts.push((Arc::downgrade(spec), text.clone()));
        }
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
    fn another_spec_at_the_same_address_has_its_own_text() {
        let mut texts = SpecTexts::default();

        for number in 0..100 {
            let spec = spec(&number.to_string());
            assert_eq!(*texts.of(&spec), spec.to_json());
        }
    }

    #[test]
    fn a_text_is_read_again_only_where_nobody_has_its_spec() {
        let (mut texts, text) = (SpecTexts::default(), spec("web").to_json());
        let mut reads = 0;
        let mut read = |text: &str| {
            texts.spec(text.to_owned(), |text| {
                reads += 1;
                serde_json::from_str::<Spec>(text)
            })
        };

        let first = read(&text).unwrap();
        let second = read(&text).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let other = read(&spec("db").to_json()).unwrap();
        assert_eq!((&*first, &*other), (&*spec("web"), &*spec("db")));
        assert!(read("{").is_err() && read("{").is_err());
        drop((first, second));
        assert_eq!(read(&text).unwrap(), spec("web"));

        assert_eq!(reads, 5, "two specs, one twice, and what is none of them each time");
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
