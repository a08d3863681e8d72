//! Why an upgrade of an agent was refused, skipped or failed.

super::catalogue! { Agent:
    // Refused before anything was done.
    upgrade_unsigned() =
        "the order was not signed for this session" |
        "该指令没有为此会话签名";
    upgrade_by_policy(file: text) =
        "the host's policy {file} does not allow upgrades over the link (`upgrades = true` would)" |
        "主机策略 {file} 不允许通过链路升级（需要 `upgrades = true`）";
    upgrade_other_arch(wanted: text, ours: text) =
        "the build is for {wanted}, and this host is {ours}" |
        "该构建适用于 {wanted}，而本主机是 {ours}";
    upgrade_would_downgrade(ours: text, wanted: text) =
        "version {ours} runs, which is newer than {wanted}: only an upgrade that allows downgrades goes back" |
        "当前版本 {ours} 比 {wanted} 新：只有允许降级的升级才能回退";
    upgrade_bad_order(problem: text) = "the order is not usable: {problem}" | "该指令不可用：{problem}";
    upgrade_not_replaceable(path: text, problem: text) =
        "the agent's program {path} cannot be replaced: {problem}" |
        "代理程序 {path} 无法替换：{problem}";
    upgrade_embedded() =
        "this agent is part of another program, which has to be upgraded instead" |
        "该代理是另一个程序的一部分，需要升级那个程序";

    // On the way.
    upgrade_not_kept(path: text, problem: text) =
        "the new program could not be kept in {path}: {problem}" |
        "新程序无法保存到 {path}：{problem}";
    upgrade_not_served() =
        "the server no longer has the build" |
        "服务器不再提供该构建";
    upgrade_other_bytes() =
        "what was fetched is not the build that was ordered (its SHA-256 differs)" |
        "下载的内容不是所要求的构建（SHA-256 不同）";
    upgrade_fetch_expired(minutes: text) =
        "the new program was not fetched within {minutes} minutes" |
        "{minutes} 分钟后新程序仍未下载完";
    upgrade_check_failed(problem: text) =
        "the new program failed its check: {problem}" |
        "新程序未通过检查：{problem}";
    upgrade_cannot_go_back(schema: text) =
        "the new program writes a ledger (schema {schema}) that the present one could not read, so there would be no way back" |
        "新程序写入的账本（模式 {schema}）无法被当前版本读取，因此无法回退";

    // The trial.
    upgrade_not_started(problem: text) = "the new program could not be started: {problem}" | "新程序无法启动：{problem}";
    upgrade_ended(how: text) = "the new program ended during its trial: {how}" | "新程序在试运行期间结束：{how}";
    upgrade_hung(secs: text) =
        "the new program sent no heartbeat within {secs} s" |
        "新程序在 {secs} 秒内没有任何响应";
    upgrade_unproved(secs: text) =
        "the new program had no lasting session with the server within {secs} s" |
        "新程序在 {secs} 秒内没有与服务器建立稳定会话";
    upgrade_interrupted(times: text) =
        "the trial was interrupted because the host or the agent went down (interruptions: {times})" |
        "主机或代理在试运行期间中断了 {times} 次";
    upgrade_not_installed(path: text, problem: text) =
        "the new program proved itself, but could not replace {path}: {problem}" |
        "新程序已通过验证，但无法替换 {path}：{problem}";

    // Of a host, by the server.
    upgrade_host_absent() = "the host is not connected" | "主机未连接";
    upgrade_agent_too_old() =
        "its agent is too old to be upgraded over the link, or is part of another program" |
        "其代理版本过旧，无法通过链路升级，或者是另一个程序的一部分";
    upgrade_runs_already(version: text) = "version {version} is already running" | "版本 {version} 已在运行";
    upgrade_no_build(arch: text) = "there is no build for {arch}" | "没有适用于 {arch} 的构建";
    upgrade_host_lost() =
        "the host was notified but reported no result" |
        "已通知主机，但未收到结果";
    upgrade_gone_back(version: text) =
        "it was upgraded, and then ran version {version} again" |
        "升级后又运行了版本 {version}";
    upgrade_not_held() =
        "it was upgraded, and did not keep a session with the new version" |
        "升级后新版本未能保持会话";

    // As events tell it.
    agent_was_upgraded(from: text, version: text) =
        "the agent was upgraded from version {from} to {version}" |
        "代理已从版本 {from} 升级到 {version}";
    agent_was_not_upgraded(version: text, from: text, reason: message) =
        "the agent was not upgraded to version {version}, and version {from} runs: {reason}" |
        "代理未升级到版本 {version}，仍在运行版本 {from}：{reason}";
}
