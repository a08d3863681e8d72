//! The catalogue of errors that concern a whole request.
//!
//! Promised: every family's numbers, and `docs/errors.md`, are generated from [`PROBLEMS`] (whole requests) and
//! [`proctor_model::CODES`] (single targets).
//! Absent: texts that depend on the request; they are in the error itself.

use std::time::Duration;

use proctor_model::{CODES, FieldError, Message, Subject, messages};
use proctor_store::StoreError;

use super::language::{code_name, problem_name};
use super::limits::Exceeded;
use super::permission::Permission;
use crate::control::ControlError;

/// Most targets end within seconds.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// A rolling task ends after minutes, or when somebody cancels it.
const ROLLOUT_WAIT: Duration = Duration::from_secs(60);

/// What went wrong with a request as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    MalformedBody,
    InvalidField,
    Forbidden,
    Conflict,
    MalformedAuthorization,
    AppUnverified,
    UserUnverified,
    OperatorMissing,
    NetworkUnknown,
    GatewayUnverified,
    RateLimited,
    ConcurrencyLimited,
    NotFound,
    BodyTooLarge,
    UnknownTask,
    NoAgentFound,
    Unavailable,
    StoreFull,
    Internal,
}

/// How the gateway family answers.
#[derive(Clone, Copy, Debug)]
pub enum GatewayAnswer {
    /// Like the gateway itself: real HTTP status, its body and its headers.
    Level { http: u16, number: u32, code_name: &'static str, text: &'static str },
    /// Like a backend behind the gateway: HTTP 200 with this code.
    Business(u32),
}

/// One row of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct ProblemEntry {
    pub problem: Problem,
    pub name: &'static str,
    /// HTTP status on the ESB and JOB families.
    pub esb_http: u16,
    /// None: the body has no code.
    pub esb: Option<u32>,
    pub job: Option<u32>,
    pub gateway: GatewayAnswer,
    pub meaning: &'static str,
    pub what_to_do: &'static str,
}

const INVALID_ARGS: GatewayAnswer =
    GatewayAnswer::Level { http: 400, number: 1_640_001, code_name: "INVALID_ARGS", text: "Parameters error" };
const APP_VERIFY_FAILED: GatewayAnswer = GatewayAnswer::Level {
    http: 401,
    number: 1_640_101,
    code_name: "APP_VERIFY_FAILED",
    text: "App authentication failed",
};
const USER_VERIFY_FAILED: GatewayAnswer = GatewayAnswer::Level {
    http: 401,
    number: 1_640_102,
    code_name: "USER_VERIFY_FAILED",
    text: "User authentication failed",
};
const IP_NOT_ALLOWED: GatewayAnswer =
    GatewayAnswer::Level { http: 403, number: 1_640_302, code_name: "IP_NOT_ALLOWED", text: "Request rejected by ip" };
const APP_NO_PERMISSION: GatewayAnswer = GatewayAnswer::Level {
    http: 403,
    number: 1_640_301,
    code_name: "APP_NO_PERMISSION",
    text: "App has no permission to the resource",
};
const JWT_VERIFY_FAILED: GatewayAnswer =
    GatewayAnswer::Level { http: 400, number: 1_640_004, code_name: "JWT_VERIFY_FAILED", text: "JWT verify failed" };
const RATE_LIMIT_RESTRICTION: GatewayAnswer = GatewayAnswer::Level {
    http: 429,
    number: 1_642_901,
    code_name: "RATE_LIMIT_RESTRICTION",
    text: "API rate limit exceeded",
};
const CONCURRENCY_LIMIT_RESTRICTION: GatewayAnswer = GatewayAnswer::Level {
    http: 429,
    number: 1_642_904,
    code_name: "CONCURRENCY_LIMIT_RESTRICTION",
    text: "Request concurrency exceeds",
};
const API_NOT_FOUND: GatewayAnswer =
    GatewayAnswer::Level { http: 404, number: 1_640_401, code_name: "API_NOT_FOUND", text: "API not found" };
const BODY_SIZE_LIMIT_EXCEED: GatewayAnswer = GatewayAnswer::Level {
    http: 413,
    number: 1_641_301,
    code_name: "BODY_SIZE_LIMIT_EXCEED",
    text: "Request body size too large",
};
const INTERNAL_SERVER_ERROR: GatewayAnswer = GatewayAnswer::Level {
    http: 500,
    number: 1_650_001,
    code_name: "INTERNAL_SERVER_ERROR",
    text: "Internal Server Error",
};
const SERVICE_UNAVAILABLE: GatewayAnswer = GatewayAnswer::Level {
    http: 503,
    number: 1_650_300,
    code_name: "SERVICE_UNAVAILABLE",
    text: "The upstream service is temporarily unavailable",
};

/// Every problem. Numbers of the original where they are known; where they are not, the gateway
/// family's business errors take the ESB's.
pub const PROBLEMS: [ProblemEntry; 19] = [
    ProblemEntry {
        problem: Problem::MalformedBody,
        name: "malformed_body",
        esb_http: 200,
        esb: Some(1_306_000),
        job: Some(1_306_000),
        gateway: GatewayAnswer::Business(1_306_000),
        meaning: "The body is not a JSON object, or it did not arrive whole; the message names line and column.",
        what_to_do: "Send one JSON object.",
    },
    ProblemEntry {
        problem: Problem::InvalidField,
        name: "invalid_field",
        esb_http: 200,
        esb: Some(1_306_406),
        job: Some(1_241_002),
        gateway: GatewayAnswer::Business(1_306_406),
        meaning: "A field is missing or its value does not fit; the message begins with the field's path, such as `hosts[0].ip`. Nothing was changed.",
        what_to_do: "Correct the field and send the request again.",
    },
    ProblemEntry {
        problem: Problem::MalformedAuthorization,
        name: "malformed_authorization",
        esb_http: 200,
        esb: Some(1_306_406),
        job: Some(1_306_406),
        gateway: INVALID_ARGS,
        meaning: "The header X-Bkapi-Authorization is not a JSON object with text values, or the query string is malformed.",
        what_to_do: "Correct the header; where it is present, nothing else is looked at for credentials.",
    },
    ProblemEntry {
        problem: Problem::AppUnverified,
        name: "app_unverified",
        esb_http: 200,
        esb: Some(1_306_000),
        job: Some(1_306_000),
        gateway: APP_VERIFY_FAILED,
        meaning: "bk_app_code or bk_app_secret is missing, the app is not known, or its secret is wrong.",
        what_to_do: "Check the app's code and secret (header X-Bkapi-Authorization, body, or query of a GET).",
    },
    ProblemEntry {
        problem: Problem::UserUnverified,
        name: "user_unverified",
        esb_http: 200,
        esb: Some(1_306_000),
        job: Some(1_306_000),
        gateway: USER_VERIFY_FAILED,
        meaning: "The app may not name a user without proof, and the proof that came cannot be verified here.",
        what_to_do: "Have the app marked as trusted, and send bk_username.",
    },
    ProblemEntry {
        problem: Problem::OperatorMissing,
        name: "operator_missing",
        esb_http: 200,
        esb: Some(1_306_401),
        job: Some(1_306_401),
        gateway: USER_VERIFY_FAILED,
        meaning: "The request names no user: neither bk_username nor bk_token.",
        what_to_do: "Send bk_username.",
    },
    ProblemEntry {
        problem: Problem::NetworkUnknown,
        name: "network_unknown",
        esb_http: 200,
        esb: Some(1_306_000),
        job: Some(1_306_000),
        gateway: IP_NOT_ALLOWED,
        meaning: "Bk-App-Code and Bk-Username, which an ESB sends without a secret, came from an address that is in none of the networks of `--procapi-from`.",
        what_to_do: "Name the ESB's network in `--procapi-from`, or send an app's code and secret.",
    },
    ProblemEntry {
        problem: Problem::Forbidden,
        name: "forbidden",
        esb_http: 200,
        esb: Some(1_306_403),
        job: Some(9_900_403),
        gateway: APP_NO_PERMISSION,
        meaning: "Neither the app nor the user has a role that allows this there; the message names class and hosts.",
        what_to_do: "Ask an administrator for a role with that class (`proctor binding add`).",
    },
    ProblemEntry {
        problem: Problem::Conflict,
        name: "conflict",
        esb_http: 200,
        esb: Some(1_306_406),
        job: Some(1_241_002),
        gateway: GatewayAnswer::Business(1_306_406),
        meaning: "The request does not fit the present state: an idempotency key of another request, a task that is over.",
        what_to_do: "Read the message.",
    },
    ProblemEntry {
        problem: Problem::GatewayUnverified,
        name: "gateway_unverified",
        esb_http: 200,
        esb: Some(1_306_000),
        job: Some(1_306_000),
        gateway: JWT_VERIFY_FAILED,
        meaning: "The token of the header X-Bkapi-JWT is not one that the configured gateway gives out for a verified app and user, or it is past its time.",
        what_to_do: "Check `--gateway-public-key`, the clocks, and that the gateway's resource asks for app and user.",
    },
    ProblemEntry {
        problem: Problem::RateLimited,
        name: "rate_limited",
        esb_http: 200,
        esb: Some(1_306_429),
        job: Some(1_306_429),
        gateway: RATE_LIMIT_RESTRICTION,
        meaning: "The app has made more calls in a second than `--rate-limit` allows.",
        what_to_do: "Wait as long as the message (or Retry-After) says.",
    },
    ProblemEntry {
        problem: Problem::ConcurrencyLimited,
        name: "concurrency_limited",
        esb_http: 200,
        esb: Some(1_306_429),
        job: Some(1_306_429),
        gateway: CONCURRENCY_LIMIT_RESTRICTION,
        meaning: "Too many concurrent requests (`--concurrency-limit`).",
        what_to_do: "Try again in a moment.",
    },
    ProblemEntry {
        problem: Problem::NotFound,
        name: "not_found",
        esb_http: 404,
        esb: None,
        job: None,
        gateway: API_NOT_FOUND,
        meaning: "Nothing is served at this path, or not with this method.",
        what_to_do: "Check the path; a trailing slash does not matter.",
    },
    ProblemEntry {
        problem: Problem::BodyTooLarge,
        name: "body_too_large",
        esb_http: 200,
        esb: Some(1_306_000),
        job: Some(1_306_000),
        gateway: BODY_SIZE_LIMIT_EXCEED,
        meaning: "The body is larger than 64 MiB, or the call has more targets than its caller ever gets at once.",
        what_to_do: "Split the request.",
    },
    ProblemEntry {
        problem: Problem::UnknownTask,
        name: "unknown_task",
        esb_http: 200,
        esb: Some(1_000_101),
        job: Some(1_210_001),
        gateway: GatewayAnswer::Business(1_000_101),
        meaning: "No task has this id: it was never given out here, or its results are past their time.",
        what_to_do: "Use the id of the answer to the operation; results are kept for at least 24 hours.",
    },
    ProblemEntry {
        problem: Problem::NoAgentFound,
        name: "no_agent_found",
        esb_http: 200,
        esb: Some(1_011_003),
        job: Some(1_011_003),
        gateway: GatewayAnswer::Business(1_011_003),
        meaning: "None of the agents that were asked for has ever enrolled.",
        what_to_do: "Check the ids; enrol the agents.",
    },
    ProblemEntry {
        problem: Problem::Unavailable,
        name: "unavailable",
        esb_http: 200,
        esb: Some(1_306_201),
        job: Some(1_210_001),
        gateway: SERVICE_UNAVAILABLE,
        meaning: "The store cannot be read or written, or the server is shutting down.",
        what_to_do: "Try again; if it stays, the server's log has the cause.",
    },
    ProblemEntry {
        problem: Problem::StoreFull,
        name: "store_full",
        esb_http: 200,
        esb: Some(1_306_201),
        job: Some(1_210_001),
        gateway: SERVICE_UNAVAILABLE,
        meaning: "The store has no space left; nothing was changed.",
        what_to_do: "Make space on the server's disk; the request may then be sent again.",
    },
    ProblemEntry {
        problem: Problem::Internal,
        name: "internal",
        esb_http: 500,
        esb: Some(1_306_000),
        job: Some(1_306_000),
        gateway: INTERNAL_SERVER_ERROR,
        meaning: "Internal error in the server.",
        what_to_do: "Report it with the request id; the server's log says where it happened.",
    },
];

impl Problem {
    pub(crate) fn entry(self) -> &'static ProblemEntry {
        PROBLEMS.iter().find(|entry| entry.problem == self).expect("every problem has a row in PROBLEMS")
    }
}

/// Why a request as a whole was refused. The message is for the caller, the source for the log.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub problem: Problem,
    pub message: Message,
    pub source: Option<Box<ControlError>>,
    /// When to retry, if known.
    pub retry_after: Option<Duration>,
    /// What the caller lacks.
    pub permission: Option<Box<Permission>>,
}

impl ApiError {
    pub(crate) fn new(problem: Problem, message: Message) -> Self {
        Self { problem, message, source: None, retry_after: None, permission: None }
    }

    pub(crate) fn too_often(payer: &Subject, wait: Duration) -> Self {
        let who = match payer {
            Subject::App(app) => messages::app_named(app),
            Subject::User(user) => messages::user_named(user),
        };
        Self::rate_limited(messages::caller_calls_too_often(who, wait_ms(wait)), wait)
    }

    pub(crate) fn too_many_sign_ins(wait: Duration) -> Self {
        Self::rate_limited(messages::too_many_sign_ins(wait_ms(wait)), wait)
    }

    pub(crate) fn rate_limited(message: Message, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..Self::new(Problem::RateLimited, message) }
    }

    /// Something is used up for the moment.
    pub(crate) fn busy(message: Message) -> Self {
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(Problem::ConcurrencyLimited, message) }
    }
}

fn wait_ms(wait: Duration) -> u128 {
    wait.as_millis().max(1)
}

impl From<Exceeded> for ApiError {
    fn from(Exceeded { what, limit, is_own }: Exceeded) -> Self {
        let too_many = if is_own { messages::too_many_of_caller } else { messages::too_many_at_once };
        Self::busy(too_many(what, limit))
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Self::new(Problem::InvalidField, error.message())
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let problem = match &error {
            ControlError::Store(StoreError::Full { .. }) => Problem::StoreFull,
            ControlError::Store(_) | ControlError::ShuttingDown => Problem::Unavailable,
            ControlError::Unauthenticated(_) => Problem::UserUnverified,
            ControlError::Forbidden(_) | ControlError::OutOfScope { .. } | ControlError::AllForbidden { .. } => {
                Problem::Forbidden
            }
            ControlError::Contradiction { .. } => Problem::InvalidField,
            ControlError::TooManyStrangers { .. }
            | ControlError::TooManyPlanned { .. }
            | ControlError::TooManyStatus { .. } => Problem::RateLimited,
            ControlError::TooLarge { .. } => Problem::BodyTooLarge,
            ControlError::TooManyOpen { .. } | ControlError::TooManyRollouts { .. } => Problem::ConcurrencyLimited,
            ControlError::UnknownTask(_) => Problem::UnknownTask,
            ControlError::KeyReused { .. } | ControlError::TaskState(_) => Problem::Conflict,
        };
        // What the caller sees names no file of the server; the log has the whole chain.
        let refused = Self::new(problem, error.message());
        match error {
            ControlError::Forbidden(missing) => Self { permission: Some(Box::new((&missing).into())), ..refused },
            ControlError::OutOfScope { missing, .. } | ControlError::AllForbidden { missing, .. } => {
                Self { permission: Some(Box::new((&*missing).into())), ..refused }
            }
            ControlError::TooManyStrangers { wait, .. }
            | ControlError::TooManyPlanned { wait, .. }
            | ControlError::TooManyStatus { wait, .. } => Self { retry_after: Some(wait), ..refused },
            ControlError::TooManyOpen { .. } => Self { retry_after: Some(OPEN_WAIT), ..refused },
            ControlError::TooManyRollouts { .. } => Self { retry_after: Some(ROLLOUT_WAIT), ..refused },
            ControlError::Unauthenticated(_)
            | ControlError::Contradiction { .. }
            | ControlError::TooLarge { .. }
            | ControlError::KeyReused { .. }
            | ControlError::UnknownTask(_)
            | ControlError::TaskState(_) => refused,
            ControlError::Store(_) | ControlError::ShuttingDown => Self { source: Some(Box::new(error)), ..refused },
        }
    }
}

/// `docs/errors.md`.
pub fn catalogue_markdown() -> String {
    let mut text = String::from(
        "# Errors\n\n\
         Generated from the code (`PROCTOR_UPDATE_DOCS=1 cargo nextest run -p proctor-server errors`); do not edit.\n\n\
         An answer has two levels. `code` in the envelope says what became of the request as a whole; `error_code` in\n\
         a row says what became of one target.\n\n\
         ## Codes of a target (`error_code`)\n\n\
         The same numbers in every family.\n\n\
         | number | name | 中文 | meaning | what to do |\n|---|---|---|---|---|\n",
    );
    for entry in CODES {
        let chinese = code_name(entry.code);
        text +=
            &format!("| {} | {} | {chinese} | {} | {} |\n", entry.number, entry.name, entry.meaning, entry.what_to_do);
    }
    text += "\n## Codes of a request (`code`)\n\n\
             ESB is `/api/c/compapi/v2/gse/…`, JOB is `/api/c/compapi/v2/job/…` and `…/jobv3/…`; both answer with HTTP\n\
             200 where no other status is given. The gateway family (`/api/bk-gse/{stage}/api/v2/…`, `/api/v2/…` and\n\
             `/api/c/compapi/v2/gse/api/v2/…`) answers business errors with HTTP 200 and the numbers of the ESB, and\n\
             its own with a real HTTP status, the gateway's body and the headers `X-Bkapi-Error-Code`,\n\
             `X-Bkapi-Error-Message` and `X-Bkapi-Request-Id`.\n\n\
             Messages are in English or Chinese, as `blueking-language` (`zh-cn`, `zh-hans`, `en`) or\n\
             `Accept-Language` says, English by default. What clients compare (`success`, `handling`, a message\n\
             of 836 that begins with `stop`) is the same in both, and the output of commands is left alone.\n\n\
             | name | 中文 | ESB | JOB | gateway | meaning | what to do |\n|---|---|---|---|---|---|---|\n";
    for entry in &PROBLEMS {
        text += &problem_row(entry);
    }
    text
}

fn problem_row(entry: &ProblemEntry) -> String {
    let number = |code: Option<u32>| {
        let code = code.map_or_else(|| "no code".to_owned(), |code| code.to_string());
        if entry.esb_http == 200 { code } else { format!("HTTP {}, {code}", entry.esb_http) }
    };
    let gateway = match entry.gateway {
        GatewayAnswer::Level { http, number, code_name, .. } => format!("HTTP {http}, {number} {code_name}"),
        GatewayAnswer::Business(number) => number.to_string(),
    };
    format!(
        "| {} | {} | {} | {} | {gateway} | {} | {} |\n",
        entry.name,
        problem_name(entry.problem),
        number(entry.esb),
        number(entry.job),
        entry.meaning,
        entry.what_to_do
    )
}
