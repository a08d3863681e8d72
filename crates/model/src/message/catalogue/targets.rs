//! What the server says about one target of a task. No agent says it.

super::catalogue! { Server:
    already_registered() = "Fail to register, for the process info already exists." | "注册失败，进程信息已存在。";
    never_enrolled(host: text) = "host {host} has never enrolled an agent" | "主机 {host} 从未安装 Agent";
    not_a_host(text: text) = "{text} is neither an IP address nor an agent id" | "{text} 既不是 IP 地址也不是 Agent ID";
    no_longer_enrolled() = "the host is no longer enrolled" | "主机已不再注册";
    host_served_by_another() =
        "another agent serves the host now, so the operation no longer waits" |
        "该主机已由其他 Agent 服务，操作不再等待";
    host_removed(host: text) = "host {host} was removed" | "主机 {host} 已被移除";
    host_awaits_approval(host: text) =
        "host {host} awaits approval: `proctor hosts approve {host}`" |
        "主机 {host} 等待批准：`proctor hosts approve {host}`";
    host_cordoned(host: text, by: text, reason: text) =
        "host {host} is cordoned by {by} until somebody ends it: {reason}" |
        "主机 {host} 已被 {by} 设为维护状态，直到有人结束维护：{reason}";
    host_cordoned_until(host: text, by: text, until: text, reason: text) =
        "host {host} is cordoned by {by} until {until}: {reason}" |
        "主机 {host} 已被 {by} 设为维护状态，直到 {until}：{reason}";
    agent_not_connected(agent: text) = "agent {agent} is not connected" | "Agent {agent} 未连接";
    target_waits_for_agent(agent: text, secs: text) =
        "waits for agent {agent}, which is not connected, for another {secs} s" |
        "等待未连接的 Agent {agent}，剩余 {secs} 秒";
    area_unreachable(agent: text, cloud: text) =
        "agent {agent} cannot be reached: no relay of cloud area {cloud} is connected" |
        "无法连接 Agent {agent}：云区域 {cloud} 没有在线的中继";
    agent_lost(agent: text) =
        "agent {agent} was lost during the operation; its result is unknown" |
        "Agent {agent} 在操作期间失联，结果未知";
    agent_gave_no_outcome(agent: text, secs: text) =
        "agent {agent} gave no outcome within {secs} s; the operation may still be in progress" |
        "Agent {agent} 在 {secs} 秒内没有返回结果，操作可能仍在执行";
    outcome_lost_by_restore() =
        "the server was restored from a backup: whether this was carried out is not known" |
        "服务已从备份恢复：该操作是否已执行未知";
    outcome_unreadable(error: text) = "it ended, but its outcome cannot be read: {error}" | "操作已结束，但无法读取其结果：{error}";
    op_type_is_none() = "op_type must be one of 0, 1, 2, 3, 4, 7, 8, 9" | "op_type 必须是 0、1、2、3、4、7、8、9 之一";
    register_first(process: text, host: text) =
        "process {process} is not registered on host {host}: register it first" |
        "进程 {process} 未在主机 {host} 上注册，请先注册";
    not_registered_there(process: text) = "process {process} is not registered there" | "进程 {process} 未在该主机上注册";
    no_pool_there(pool: text) = "there is no pool {pool} there" | "该主机上没有资源池 {pool}";
    spec_was_not_kept() =
        "the spec of this target was not kept when it was refused: send the operation again, with its spec" |
        "该目标被拒绝时没有保留其进程定义：请携带进程定义重新发送操作";
    cancelled_before_delivery() =
        "the task was cancelled before it was delivered to the agent" |
        "任务在下发到 Agent 之前已取消";
    cancelled_before_its_turn() =
        "the task was cancelled before this target's turn came" |
        "任务在轮到该目标之前已取消";
    cancelled_too_late() = "cancelled: the rolling task did not finish in time" | "已取消：滚动任务未在规定时间内完成";
    skipped_before_its_turn() = "skipped: the rolling task ended before this target's turn came" | "已跳过：轮到此目标之前滚动任务已结束";
    skipped_after_failures() = "skipped: too many targets before this one failed" | "已跳过：之前失败的目标过多";
    skipped_because(reason: text) = "skipped: {reason}, so the rolling task was stopped" | "已跳过：{reason}，滚动任务已停止";
    may_not_register_spec(who: message, namespace: text, host: text, problem: message) =
        "{who} may not register this spec in namespace {namespace} on host {host}: {problem}" |
        "{who}不能在命名空间 {namespace}、主机 {host} 上注册该进程定义：{problem}";
    may_not_on_host(who: message, class: message, namespace: text, host: text, role: text) =
        "{who} may not {class} in namespace {namespace} on host {host}: ask an administrator for a role with '{role}' there" |
        "{who}没有{class}权限，命名空间 {namespace}，主机 {host}：请向管理员申请包含 '{role}' 的角色";
    may_not_register_carried(who: message, namespace: text, host: text) =
        "{who} may not register in namespace {namespace} on host {host}, and the call carries a spec that is not \
         registered there: send the registered spec, or ask an administrator for a role with 'register' there" |
        "{who}没有注册（register）权限，命名空间 {namespace}，主机 {host}，而请求携带的进程定义与已注册的不同：请使用已注册的定义，或向管理员申请包含 'register' 的角色";
}
