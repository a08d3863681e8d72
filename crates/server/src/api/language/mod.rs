//! English and Chinese: which one a caller wants. The texts are in the catalogue of `proctor_model::messages`.
//!
//! Promised: `blueking-language` decides, then `Accept-Language`, then English. What clients compare ("success",
//! "handling", a message that begins with `stop`) is the same in both. A message is in one language: if a part of it
//! has no Chinese, all of it is English. Command output is never touched.
//! Absent: other languages, and the meanings of data (states, fields, names).

mod phrases;

use axum::http::{HeaderMap, header};
use proctor_model::{Message, Outcome};

use super::error::ApiError;
pub(super) use phrases::{code_name, problem_name};

/// How a BlueKing client says it.
const BLUEKING_LANGUAGE: &str = "blueking-language";
/// Preferences of one Accept-Language that are looked at.
const PREFERENCES_MAX: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    #[default]
    English,
    Chinese,
}

tokio::task_local! {
    static CURRENT: Language;
}

impl Language {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let chosen = text(BLUEKING_LANGUAGE).and_then(Self::named);
        let accepted = || text(header::ACCEPT_LANGUAGE.as_str()).and_then(Self::preferred);
        chosen.or_else(accepted).unwrap_or_default()
    }

    /// That of the request that is being answered.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(|language| *language).unwrap_or_default()
    }

    /// Does `work` with this as the current one.
    pub(super) async fn during<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// As [`Self::during`], on a thread for work that takes long.
    pub(super) fn within<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, work)
    }

    /// `zh-cn`, `zh_CN`, `zh-hans`, `en`, …
    fn named(text: &str) -> Option<Self> {
        let base = text.trim().split(['-', '_']).next().unwrap_or_default();
        match base.to_ascii_lowercase().as_str() {
            "zh" => Some(Self::Chinese),
            "en" => Some(Self::English),
            _ => None,
        }
    }

    /// The one with the highest weight that we speak, the first among equals.
    fn preferred(accept: &str) -> Option<Self> {
        let mut best: Option<(f32, Self)> = None;
        for preference in accept.split(',').take(PREFERENCES_MAX) {
            let (name, parameters) = preference.split_once(';').unwrap_or((preference, ""));
            let weight = parameters.trim().strip_prefix("q=").map_or(Some(1.0), |weight| weight.trim().parse().ok());
            let (Some(language), Some(weight)) = (Self::named(name), weight) else { continue };
            if weight > 0.0 && best.is_none_or(|(other, _)| weight > other) {
                best = Some((weight, language));
            }
        }
        best.map(|(_, language)| language)
    }
}

/// A sentence for people, in English where we have no Chinese for all of it.
pub(super) fn of_message(message: &Message) -> String {
    in_chinese(message).unwrap_or_else(|| message.as_str().to_owned())
}

fn in_chinese(message: &Message) -> Option<String> {
    match Language::current() {
        Language::English => None,
        Language::Chinese => message.chinese(),
    }
}

/// The gateway's own text about a problem with the reason, both in one language.
pub(super) fn of_gateway_error(error: &ApiError, text: &str) -> String {
    match in_chinese(&error.message) {
        Some(reason) => format!("{} [reason=\"{reason}\"]", problem_name(error.problem)),
        None => format!("{text} [reason=\"{}\"]", error.message),
    }
}

/// The message of a finished target. There always is one: clients check how it begins.
pub(super) fn of_outcome(outcome: &Outcome) -> String {
    if outcome.message.is_empty() { outcome.code.name().to_owned() } else { of_message(&outcome.message) }
}

#[cfg(test)]
mod tests;
