//! What happened on a host, as events tell it.

super::catalogue! { Agent:
    // A process comes and goes.
    process_was_started(process: text, pid: text) = "process {process} was started as {pid}" | "进程 {process} 已启动，pid 为 {pid}";
    process_was_found(process: text, pid: text) = "process {process} runs as {pid}" | "进程 {process} 正在运行，pid 为 {pid}";
    pid_has_changed(process: text, pid: text, old_pid: text) =
        "process {process} runs as {pid} now, it was {old_pid}" |
        "进程 {process} 的 pid 由 {old_pid} 变为 {pid}";
    process_has_ended(process: text, pid: text) = "process {process} ({pid}) ended" | "进程 {process}（{pid}）已结束";
    process_has_ended_with(process: text, pid: text, exit: message) =
        "process {process} ({pid}) ended with {exit}" |
        "进程 {process}（{pid}）已结束，{exit}";

    // Supervision. The English is GSE's.
    restart_succeeded(name: text) =
        "check {name} not running, and restart it success" |
        "检测到 {name} 未运行，重启成功";
    restart_failed(name: text, reason: message) =
        "check {name} not running, and restart it failed: {reason}" |
        "检测到 {name} 未运行，重启失败：{reason}";
    no_longer_managed(name: text, attempts: text, reason: message) =
        "{name} is no longer managed (failed restarts: {attempts}): {reason}" |
        "{name} 重启失败 {attempts} 次后已取消托管：{reason}";

    // Health.
    healthy_again(process: text) = "process {process} is healthy again" | "进程 {process} 已恢复健康";
    unhealthy(process: text, reason: message) = "process {process} is unhealthy: {reason}" | "进程 {process} 不健康：{reason}";
    health_not_known(process: text, reason: message) =
        "the health of process {process} is unknown: {reason}" |
        "进程 {process} 的健康状态未知：{reason}";
    health_command(how: message) = "health_cmd: {how}" | "health_cmd：{how}";
    health_command_said(how: message, output: text) = "health_cmd: {how}: {output}" | "health_cmd：{how}：{output}";
    timed_out() = "timed out" | "超时";
    end_not_known() = "its result is unknown" | "结束情况未知";
    postponed() = "postponed" | "已推迟";
    ended_as_unhealthy(reason: message) = "ended as unhealthy: {reason}" | "因不健康而被结束：{reason}";

    // Limits. The name of the resource is that of the field.
    ended_over_limit(resource: text, usage: text, limit: text) =
        "ended for its use of {resource}: {usage} %, limit {limit} %" |
        "因 {resource} 用量而被结束：{usage} %，限额 {limit} %";
    ended_over_pool_limit(resource: text, usage: text, limit: text, pool: text, next: message) =
        "ended for its use of {resource}: pool {pool} uses {usage} %, limit {limit} %; next in line: {next}" |
        "因 {resource} 用量而被结束：进程组 {pool} 使用 {usage} %，限额 {limit} %；下一个：{next}";
    nobody_next() = "nobody" | "无";
    over_own_limit(name: text, resource: text, usage: text, limit: text) =
        "{name} is ended: {resource} use of {usage} % exceeds its limit of {limit} %" |
        "{name} 将被结束：{resource} 用量 {usage} % 超过其限额 {limit} %";
    over_pool_limit(name: text, resource: text, usage: text, pool: text, limit: text) =
        "{name} is ended: {resource} use of {usage} % exceeds the limit of pool {pool} of {limit} %" |
        "{name} 将被结束：{resource} 用量 {usage} % 超过进程组 {pool} 的限额 {limit} %";
    too_many_descriptors(process: text, open: text, limit: text) =
        "process {process} has {open} open descriptors, more than its {limit}" |
        "进程 {process} 打开了 {open} 个文件描述符，超过 {limit} 个";
    pool_would_end(pool: message, process: text, usage: text, limit: text, ranking: text) =
        "{pool} would have to end {process}: {usage} % of {limit} % ({ranking})" |
        "{pool}将结束 {process}：{usage} %，限额 {limit} %（{ranking}）";
    pool_warning(pool: message, warning: message, usage: text, limit: text) =
        "{pool}: {warning} ({usage} % of {limit} %)" |
        "{pool}：{warning}（{usage} %，限额 {limit} %）";
    pool_resource(pool: text, namespace: text, resource: text) =
        "pool {pool} of {namespace} ({resource})" |
        "{namespace} 的进程组 {pool}（{resource}）";
    pool_limit_lowered() =
        "its limit was lowered below its current usage and takes effect in 10 s" |
        "限额已调低到当前用量以下，10 秒后生效";
    pool_has_no_victim() = "over its limit, but no member can be evicted" | "已超过限额，但没有可结束的进程";
    pool_is_blocked(process: text) =
        "it is over its limit; {process} uses the most and cannot be evicted now, so no member is" |
        "已超过限额；{process} 用量最多但现在不能结束，因此不结束任何进程";
    pool_kills_capped() = "six members were ended within a minute; no more for now" | "一分钟内已结束六个成员，暂时不再结束";
    pool_victim_survives(process: text) = "{process} was evicted but is still running" | "{process} 应被结束但仍在运行";

    // Schedules.
    scheduled_run_ended(process: text, exit: message) =
        "the scheduled run of {process} ended with {exit}" |
        "{process} 的定时执行已结束，{exit}";
    scheduled_run_did_not_run(process: text, reason: message) =
        "the scheduled run of {process} did not run: {reason}" |
        "{process} 的定时执行未运行：{reason}";
    scheduled_run_took_too_long(process: text) =
        "the scheduled run of {process} took too long and was killed" |
        "{process} 的定时执行超时，已被终止";
    scheduled_run_was_killed(process: text) = "the scheduled run of {process} was killed" | "{process} 的定时执行已被终止";
    scheduled_run_end_not_known(process: text) =
        "the scheduled run of {process} ended with an unknown result" |
        "{process} 的定时执行已结束，结束情况未知";
    run_was_skipped(process: text, planned: text, reason: message) =
        "the run of {process} planned for {planned} was skipped: {reason}" |
        "{process} 计划于 {planned} 的执行已跳过：{reason}";
    run_could_not_begin() = "it could not begin before the next one was due" | "在下一次执行到期之前无法开始";
    earlier_run_not_over() = "the previous run is still in progress" | "上一次执行尚未结束";

    // Configuration files.
    config_file_changed(path: text, process: text, state: message) =
        "configuration file {path} of process {process} {state}" |
        "进程 {process} 的配置文件 {path} {state}";
    config_right_again() = "matches its md5 again" | "已恢复正确";
    config_differs() = "does not match its md5" | "内容不符：md5 不同";
    config_missing() = "is missing" | "不存在";
    config_too_large(bytes: text) = "is too large to be checked: more than {bytes} bytes" | "过大，无法检查：超过 {bytes} 字节";
    config_unreadable(reason: text) = "cannot be checked: {reason}" | "无法检查：{reason}";
    config_outside() =
        "is not checked: it is outside the paths that the host's policy allows" |
        "未检查：不在主机策略允许的路径内";
    more_config_files_changed(count: text, process: text) =
        "further configuration files of process {process} that have become wrong or right: {count}" |
        "进程 {process} 另有 {count} 个配置文件变为错误或恢复正确";

    // The host and its agent.
    local_operation_asked(who: message, operation: message, process: text) =
        "{who} on the host asked for a {operation} of {process}" |
        "主机上的{who}请求对 {process} 执行{operation}";
    local_operation_ended(operation: message, process: text, who: message, result: message) =
        "the {operation} of {process} by {who} on the host ended: {result}" |
        "主机上的{who}对 {process} 执行的{operation}已结束：{result}";
    somebody() = "somebody" | "某用户";
    user_id(uid: text) = "uid {uid}" | "uid {uid} ";
    link_message_refused(server: text, reason: text) =
        "refused what came over the link from {server}: {reason}" |
        "已拒绝来自 {server} 的链路消息：{reason}";
    events_dropped_offline(count: text) =
        "events of this host were dropped while the server could not be reached: {count}" |
        "无法连接服务器期间，该主机的 {count} 个事件已丢弃";
    events_dropped_over_budget(count: text) =
        "events of this host were dropped by the server, because the host sends more than its budget: {count}" |
        "服务器已丢弃该主机的 {count} 个事件：超出该主机的事件预算";
    event_unreadable(sequence: text, reason: text) =
        "event {sequence} of the agent cannot be read: {reason}" |
        "agent 的事件 {sequence} 无法读取：{reason}";
    agent_connected(agent: text) = "agent {agent} is connected" | "agent {agent} 已连接";
    agent_disconnected(agent: text) = "agent {agent} is no longer connected" | "agent {agent} 已断开连接";
    agent_did_not_return(agent: text) =
        "agent {agent} did not come back after a restart of the server" |
        "服务器重启后 agent {agent} 未重新连接";
    agent_did_not_move(agent: text) =
        "agent {agent} did not come back when its relay was gone" |
        "agent {agent} 的中继断开后，未重新连接";
    agent_did_not_return_with_relays(agent: text) =
        "agent {agent} did not come back when the relays of its cloud area did" |
        "所在云区域的中继恢复后，agent {agent} 未重新连接";
    agent_copy_refused(agent: text, address: text) =
        "a copy of the state directory of agent {agent} tried to connect from {address} and was refused" |
        "agent {agent} 的状态目录副本尝试从 {address} 连接，已被拒绝";
    clock_ahead(secs: text) =
        "the clock of this host is {secs} s ahead of the server's" | "该主机的时钟比服务器快 {secs} 秒";
    clock_behind(secs: text) =
        "the clock of this host is {secs} s behind the server's" | "该主机的时钟比服务器慢 {secs} 秒";
    clock_right() = "the clock of this host agrees with the server's again" | "该主机的时钟已与服务器一致";
    webhook_test() = "a test of this webhook; nothing happened" | "这是 webhook 测试，没有发生任何事件";
}
