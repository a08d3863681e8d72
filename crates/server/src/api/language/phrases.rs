//! The Chinese names of problems and codes, for the gateway's responses and `docs/errors.md`.

use proctor_model::Code;

use crate::api::error::Problem;

/// The problem of a request in a few words.
pub(in crate::api) fn problem_name(problem: Problem) -> &'static str {
    match problem {
        Problem::MalformedBody => "请求体不是完整的 JSON 对象",
        Problem::InvalidField => "参数错误",
        Problem::MalformedAuthorization => "认证信息格式错误",
        Problem::AppUnverified => "应用认证失败",
        Problem::UserUnverified => "用户认证失败",
        Problem::OperatorMissing => "缺少操作人",
        Problem::NetworkUnknown => "来源网络不受信任",
        Problem::GatewayUnverified => "网关令牌校验失败",
        Problem::RateLimited => "请求过于频繁",
        Problem::ConcurrencyLimited => "并发请求过多",
        Problem::Forbidden => "没有权限",
        Problem::Conflict => "与当前状态冲突",
        Problem::NotFound => "请求的内容不存在",
        Problem::BodyTooLarge => "请求体过大",
        Problem::UnknownTask => "任务不存在",
        Problem::NoAgentFound => "未找到任何 Agent",
        Problem::Unavailable => "服务暂不可用",
        Problem::StoreFull => "存储空间已满",
        Problem::Internal => "服务内部错误",
    }
}

/// The code of a target in a few words.
pub(in crate::api) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Success => "成功",
        Code::Handling => "执行中",
        Code::AgentAbsent => "Agent 异常或不存在",
        Code::Cancelled => "操作已取消",
        Code::Skipped => "滚动任务已停止，未执行",
        Code::Cordoned => "主机维护中，不接受启动",
        Code::Forbidden => "没有权限",
        Code::AlreadyRunning => "进程已在运行，无需启动",
        Code::NotRunning => "进程未运行或未注册",
        Code::IllegalOperation => "非法的操作类型",
        Code::CheckFailed => "操作后检查失败",
        Code::AlreadyRegistered => "进程信息已注册",
        Code::CommandFailed => "命令执行失败",
    }
}
