use axum::http::HeaderValue;
use proctor_model::{Code, FieldError, messages};

use super::*;
use crate::api::error::{PROBLEMS, Problem};

fn wanted(headers: &[(&'static str, &str)]) -> Language {
    let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()));
    Language::of(&headers.collect())
}

fn in_chinese<T>(say: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(Language::Chinese, say)
}

#[test]
fn the_language_is_that_of_the_client_then_that_of_its_user_then_english() {
    use Language::{Chinese, English};
    let cases: [(&[(&'static str, &str)], Language); 12] = [
        (&[], English),
        (&[("blueking-language", "zh-cn")], Chinese),
        (&[("blueking-language", "zh-hans")], Chinese),
        (&[("blueking-language", "ZH_CN")], Chinese),
        (&[("blueking-language", "en"), ("accept-language", "zh-CN")], English),
        (&[("blueking-language", "fr"), ("accept-language", "zh-CN")], Chinese),
        (&[("accept-language", "zh-CN,zh;q=0.9,en;q=0.8")], Chinese),
        (&[("accept-language", "en;q=0.3, zh;q=0.7")], Chinese),
        (&[("accept-language", "en, zh")], English),
        (&[("accept-language", "zh;q=0, en;q=0.1")], English),
        (&[("accept-language", "fr, *;q=0.5")], English),
        (&[("accept-language", ";;q=,q=1")], English),
    ];
    for (headers, expected) in cases {
        assert_eq!(wanted(headers), expected, "{headers:?}");
    }
}

#[test]
fn a_message_of_the_catalogue_is_told_in_the_language_of_the_call() {
    let error = ApiError::from(FieldError::new("page.limit", messages::more_than(2000, 1000)));

    assert_eq!(of_message(&error.message), "page.limit: 2000 is more than 1000");
    assert_eq!(in_chinese(|| of_message(&error.message)), "page.limit: 2000 超过 1000");
    assert_eq!(in_chinese(|| of_gateway_error(&error, "-")), "参数错误 [reason=\"page.limit: 2000 超过 1000\"]");
}

#[test]
fn what_has_no_chinese_is_told_in_english_alone() {
    let error = ApiError::new(Problem::Conflict, "something new");

    assert_eq!(in_chinese(|| of_message(&error.message)), "something new");
    assert_eq!(of_message(&error.message), "something new");
    assert_eq!(in_chinese(|| of_gateway_error(&error, "Conflict")), "Conflict [reason=\"something new\"]");
}

#[test]
fn a_message_is_in_one_language_to_its_end() {
    let told = |message: &str| in_chinese(|| of_outcome(&Outcome::new(Code::NotRunning, message, false)));
    let cases = [
        ("the process is not running: no pid file /run/a.pid", "进程未运行：没有 pid 文件 /run/a.pid"),
        ("the process is not running: something new", "the process is not running: something new"),
        ("start: the process is not alive: pid 7 of /a does not run", "启动：进程未存活：7 号进程（/a）没有运行"),
        ("start: the process is not alive: something new", "start: the process is not alive: something new"),
        (
            "success: 1 instance runs instead of 2: pid_path has no {instance} to tell them apart",
            "success: 只运行 1 个实例，而不是 2 个：pid_path 中没有 {instance} 来区分实例",
        ),
    ];
    for (english, expected) in cases {
        assert_eq!(told(english), expected);
    }
}

#[test]
fn what_clients_compare_is_the_same_in_both_languages() {
    let told = |code, message: &str| in_chinese(|| of_outcome(&Outcome::new(code, message, false)));

    assert_eq!(told(Code::Success, "success"), "success");
    assert_eq!(told(Code::Success, ""), "success");
    assert_eq!(told(Code::Handling, "handling"), "handling");
    assert_eq!(told(Code::CheckFailed, "stop: process 7 is still alive after 5 s"), "stop: 进程 7 在 5 秒后仍在运行");
    assert!(told(Code::CheckFailed, "stop and something new").starts_with("stop"));
    assert_eq!(told(Code::CommandFailed, "bash: no such file"), "bash: no such file");
    assert_eq!(told(Code::AgentAbsent, "agent a is not connected"), "Agent a 未连接");
    assert_eq!(told(Code::AlreadyRunning, "something new"), "something new");
}

#[test]
fn every_phrase_has_the_same_places_in_both_languages_and_finds_itself() {
    for (english, chinese) in PHRASES.iter().copied() {
        let places = |phrase: &str| {
            let mut rest = phrase;
            let mut places = Vec::new();
            while let Some((_, place, after)) = next_place(rest) {
                places.push(place.to_owned());
                rest = after;
            }
            places
        };
        assert_eq!(places(english), places(chinese), "{english}");
        let filled = english.replace(NOUN, "start").replace(ANYTHING, "7").replace(SENTENCE, "no pid file /a");
        let filled = filled.replace(WHO, "user a");
        let first = PHRASES.iter().find(|(english, _)| translated(&filled, english, "").is_some());
        assert_eq!(first.map(|(found, _)| *found), Some(english), "another phrase comes first");
    }
}

#[test]
fn every_problem_and_code_has_a_name_of_its_own() {
    let mut names: Vec<&str> = PROBLEMS.iter().map(|entry| problem_name(entry.problem)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();

    assert_eq!(names.len(), count);
    assert!(proctor_model::CODES.iter().all(|entry| !code_name(entry.code).is_empty()));
}
