//! What the server says about the fleet: what needs attention, and why something stopped or did not arrive.

super::catalogue! { Server:
    host_agent_away() = "the agent is not connected" | "Agent 未连接";
    no_relay_of_area() = "no relay of the cloud area is connected" | "所在云区域没有在线的中继";
    agent_version_differs(version: text, server: text) =
        "version {version}, the server's is {server}" |
        "版本 {version}，服务端为 {server}";
    certificate_ends_within(days: text) = "the certificate expires within {days} days" | "证书将在 {days} 天内到期";
    clock_apart(seconds: text) = "{seconds} s off the server's clock" | "与服务端时钟相差 {seconds} 秒";
    new_host_awaits_approval() = "new: an administrator has to approve it" | "新主机，等待管理员批准";
    restarted_in_a_loop(starts: text) =
        "started again {starts} times or more without a stable run" |
        "未稳定运行，已连续拉起 {starts} 次或更多";

    // Why a rolling task stopped.
    skipped_for(reason: message) =
        "skipped: {reason}, so the rolling task was stopped" |
        "已跳过：{reason}，滚动任务已停止";
    may_no_longer(who: message, class: message, namespace: text, host: text) =
        "{who} may no longer {class} in namespace {namespace} on host {host}" |
        "{who} 已失去{class}权限，命名空间 {namespace}，主机 {host}";
    registration_changed(process: text) =
        "the registration of process {process} changed while the task waited" |
        "进程 {process} 的注册信息在任务等待期间已变更";
    both(one: message, other: message) = "{one} and {other}" | "{one} 和 {other}";
    user_is_disabled(user: text) = "user {user} is disabled" | "用户 {user} 已停用";
    user_is_unknown(user: text) = "user {user} is not known" | "用户 {user} 不存在";
    app_is_unknown(app: text) = "app {app} is not known" | "应用 {app} 不存在";

    // Webhooks.
    webhook_secret_sealed() =
        "its secret cannot be opened: add the webhook again" |
        "无法解开其密钥，请重新添加该 Webhook";
    webhook_answered(status: text) = "the receiver answered with {status}" | "接收方返回 {status}";
    webhook_unreachable(error: text) = "cannot reach the receiver: {error}" | "无法连接接收方：{error}";
    webhook_address_unusable(problem: message) = "its address cannot be used: {problem}" | "其地址不可用：{problem}";
    webhook_not_read(error: text) = "the server cannot read the webhook: {error}" | "服务端无法读取该 Webhook：{error}";

    // Why a step of an authority rotation is refused.
    rotation_under_way() =
        "a rotation is already in progress: finish or abort it first" |
        "证书颁发机构轮换正在进行，请先完成或中止";
    rotation_not_prepared() = "there is no successor: prepare one first" | "没有后继证书颁发机构，请先准备";
    rotation_switched() =
        "the successor already issues certificates: finish or abort the rotation" |
        "后继证书颁发机构已在签发证书，请完成或中止轮换";
    no_rotation() = "no rotation is in progress" | "没有正在进行的轮换";
    rotation_not_switched() =
        "the successor issues no certificates yet: switch to it first" |
        "后继证书颁发机构尚未签发证书，请先切换";
    rotation_cuts_off(count: text, names: text) =
        "{count} would be cut off: {names}; force it to go on without them" |
        "将有 {count} 个失去连接：{names}；如需忽略它们继续，请使用 force";
    rotation_changed() =
        "somebody else changed the rotation at the same time: look at its status" |
        "轮换同时被他人修改，请查看其状态";

    // Why an upgrade of agents is paused or over.
    upgrade_paused_by(who: text) = "paused by {who}" | "由 {who} 暂停";
    upgrade_cancelled_by(who: text) = "cancelled by {who}" | "由 {who} 取消";
    upgrade_failed_too_often(failed: text, max: text) =
        "failed hosts: {failed} (allowed: {max})" |
        "失败主机 {failed} 台（最多允许 {max} 台）";
    upgrade_of_nobody() =
        "no host of the earlier rings was upgraded: see why, then resume or cancel" |
        "之前各批没有主机升级成功：请查明原因，然后继续或取消";
    upgrade_build_is_gone(build: text) =
        "the build {build} is gone: put that very file back and resume, or cancel" |
        "构建 {build} 已不存在：请放回同一文件后继续，或取消";
    upgrade_without_right(why: message) =
        "{why}: an administrator can resume or cancel it" |
        "{why}：管理员可以继续或取消";
    may_not_administer(who: text) = "{who} may no longer administer everything" | "{who} 已不再是全局管理员";
}
