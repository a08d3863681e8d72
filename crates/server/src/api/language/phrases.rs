//! The Chinese of our sentences, beside the catalogue of errors.

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

/// Words that stand in sentences.
pub(super) const NOUNS: [(&str, &str); 12] = [
    ("start", "启动"),
    ("stop", "停止"),
    ("restart", "重启"),
    ("reload", "重新加载"),
    ("kill", "强制终止"),
    ("read", "查看（read）"),
    ("operate", "操作（operate）"),
    ("register", "注册（register）"),
    ("limits", "限额（limits）"),
    ("admin", "管理（admin）"),
    ("manage", "托管"),
    ("release", "取消托管"),
];

/// In the order in which they are tried.
pub(super) const PHRASES: &[(&str, &str)] = &[
    // Targets.
    ("success: {sentence}", "success: {sentence}"),
    (
        "1 instance runs instead of {}: pid_path has no {instance} to tell them apart",
        "只运行 1 个实例，而不是 {} 个：pid_path 中没有 {instance} 来区分实例",
    ),
    (
        "{} instances run instead of {}: there cannot be more on a host",
        "运行 {} 个实例，而不是 {} 个：一台主机上最多这么多",
    ),
    ("Fail to register, for the process info already exists.", "注册失败，进程信息已存在。"),
    ("host {} has never enrolled an agent", "主机 {} 从未安装 Agent"),
    ("the host is no longer enrolled", "主机已不再注册"),
    ("agent {} is not connected", "Agent {} 未连接"),
    ("agent {} was lost during the operation; its end is not known", "Agent {} 在操作期间失联，结果未知"),
    (
        "agent {} gave no outcome within {} s; the operation may still be under way",
        "Agent {} 在 {} 秒内没有返回结果，操作可能仍在执行",
    ),
    ("op_type must be one of 0, 1, 2, 3, 4, 7, 8, 9", "op_type 必须是 0、1、2、3、4、7、8、9 之一"),
    ("process {} is not registered on host {}: register it first", "进程 {} 未在主机 {} 上注册，请先注册"),
    ("process {} is not registered on host {}", "进程 {} 未在主机 {} 上注册"),
    ("process {} is not registered there", "进程 {} 未在该主机上注册"),
    ("process {} runs already", "进程 {} 已在运行"),
    ("the process is not running: {sentence}", "进程未运行：{sentence}"),
    ("no pid file {}", "没有 pid 文件 {}"),
    ("pid file {} is not readable for the process's user", "进程的用户无权读取 pid 文件 {}"),
    ("pid {} of {} does not run", "{} 号进程（{}）没有运行"),
    ("pid {} of {} has just ended", "{} 号进程（{}）刚刚结束"),
    ("pid {} of {} is dead, and its parent has not noticed", "{} 号进程（{}）已死亡，其父进程尚未回收"),
    ("the process is not registered on this host", "进程未在该主机上注册"),
    ("process {} ended", "进程 {} 已结束"),
    ("{} is neither an IP address nor an agent id", "{} 既不是 IP 地址也不是 Agent ID"),
    ("stop: process {} is still alive after {} s", "stop: 进程 {} 在 {} 秒后仍在运行"),
    ("the task was cancelled before the agent heard of it", "任务在下发到 Agent 之前已取消"),
    ("the {noun} command did not end within {} s and was killed: {}", "{noun}命令在 {} 秒内未结束，已被终止：{}"),
    ("{noun}: the process is not alive: {sentence}", "{noun}：进程未存活：{sentence}"),
    ("{noun}: process {} ended between its two start checks", "{noun}：进程 {} 在两次启动检查之间已结束"),
    (
        "{who} may not register in namespace {} on host {}, and the call carries a spec that is not registered there: \
         send the registered spec, or ask an administrator for a role with 'register' there",
        "{who}没有注册（register）权限，命名空间 {}，主机 {}，而请求携带的进程定义与已注册的不同：\
         请使用已注册的定义，或向管理员申请包含 'register' 的角色",
    ),
    (
        "{who} may not {noun} in namespace {} on host {}: ask an administrator for a role with '{}' there",
        "{who}没有{noun}权限，命名空间 {}，主机 {}：请向管理员申请包含 '{}' 的角色",
    ),
];
