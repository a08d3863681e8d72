use std::time::Duration;

use axum::http::HeaderValue;
use proctor_model::{Code, FieldError, Message, Subject, messages};

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
fn who_calls_too_often_is_told_in_one_language() {
    let wait = Duration::from_millis(250);
    let app = ApiError::too_often(&Subject::App("job".to_owned()), wait);
    let sign_in = ApiError::too_many_sign_ins(wait);

    assert_eq!(of_message(&app.message), "app job exceeded its rate limit: try again in 250 ms");
    assert_eq!(in_chinese(|| of_message(&app.message)), "应用 job 请求过于频繁，请在 250 毫秒后重试");
    assert_eq!(of_message(&sign_in.message), "too many sign-in attempts: try again in 250 ms");
    assert_eq!(in_chinese(|| of_message(&sign_in.message)), "登录过于频繁，请在 250 毫秒后重试");
}

#[test]
fn what_has_no_chinese_is_told_in_english_alone() {
    let error = ApiError::new(Problem::Conflict, Message::foreign("something new"));

    assert_eq!(in_chinese(|| of_message(&error.message)), "something new");
    assert_eq!(of_message(&error.message), "something new");
    assert_eq!(in_chinese(|| of_gateway_error(&error, "Conflict")), "Conflict [reason=\"something new\"]");
}

#[test]
fn a_message_is_in_one_language_to_its_end() {
    let told = |message: Message| in_chinese(|| of_outcome(&Outcome::new(Code::NotRunning, message, false)));

    assert_eq!(
        told(messages::process_not_running(messages::no_pid_file("/run/a.pid"))),
        "进程未运行：没有 pid 文件 /run/a.pid"
    );
    assert_eq!(
        told(messages::process_not_running(Message::foreign("something new"))),
        "the process is not running: something new"
    );
    assert_eq!(
        told(messages::success_but(messages::one_instance_runs(2))),
        "success: 只运行 1 个实例，而不是 2 个：pid_path 中没有 {instance} 来区分实例"
    );
}

#[test]
fn what_clients_compare_is_the_same_in_both_languages() {
    let told = |code, message: Message| in_chinese(|| of_outcome(&Outcome::new(code, message, false)));

    assert_eq!(told(Code::Success, Message::foreign("success")), "success");
    assert_eq!(told(Code::Success, Message::foreign("")), "success");
    assert_eq!(told(Code::Handling, Message::foreign("handling")), "handling");
    assert_eq!(told(Code::CheckFailed, messages::still_alive_after_stop(7, 5)), "stop: 进程 7 在 5 秒后仍在运行");
    for message in [
        messages::nothing_was_done_released("stop", messages::no_pid_file("/p")),
        messages::not_running_but("stop", messages::no_pid_file("/p")),
        messages::ended_but_left_behind("stop", 2),
    ] {
        assert!(told(Code::CheckFailed, message.clone()).starts_with("stop"), "{message}");
    }
    assert_eq!(told(Code::CommandFailed, Message::foreign("bash: no such file")), "bash: no such file");
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
