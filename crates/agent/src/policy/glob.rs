//! Names with `*`, which matches any text, including none.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Glob(String);

impl TryFrom<String> for Glob {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() { Err("a name must not be empty") } else { Ok(Self(text)) }
    }
}

impl Glob {
    pub(super) fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut name) = name.strip_prefix(first) else { return false };
        let Some((middle, last)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
        // The earliest match is the best one: it leaves the most for what follows.
        for part in middle.split('*') {
            let Some(at) = name.find(part) else { return false };
            name = &name[at + part.len()..];
        }
        name.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let matches = |glob: &str, name: &str| Glob(glob.to_owned()).matches(name);

        for (glob, name) in [("app", "app"), ("*", "root"), ("app-*", "app-"), ("*-db", "my-db"), ("a*b*c", "axxbyc")] {
            assert!(matches(glob, name), "{glob} {name}");
        }
        for (glob, name) in [("app", "apps"), ("app-*", "app"), ("ab*ba", "aba"), ("a*b*c", "acb"), ("*x*", "")] {
            assert!(!matches(glob, name), "{glob} {name}");
        }
    }
}
