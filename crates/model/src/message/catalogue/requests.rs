//! Why a request as a whole was refused.

super::catalogue! { Server:
    // Who asks.
    app_code_is_empty() = "APP Code [bk_app_code] cannot be empty" | "APP Code [bk_app_code] 不能为空";
    app_secret_is_empty() = "APP Secret [bk_app_secret] cannot be empty" | "APP Secret [bk_app_secret] 不能为空";
    app_unverified() = "the app is not known or its secret is wrong" | "应用不存在或密钥错误";
    user_unverified() =
        "User authentication failed, please provide a valid user identity, such as bk_token, bk_username" |
        "用户认证失败，请提供有效的用户身份，如 bk_token、bk_username";
    no_user_named() = "the request names no user: send bk_username or bk_token" | "请求没有指定用户，请提供 bk_username 或 bk_token";
    no_user_header() = "the request names no user: send the header Bk-Username" | "请求没有指定用户，请提供请求头 Bk-Username";
    app_header_is_empty() = "the header Bk-App-Code is empty" | "请求头 Bk-App-Code 为空";
    header_is_no_name(header: text, max: text) =
        "the header {header} is not a name of at most {max} characters" |
        "请求头 {header} 不是长度不超过 {max} 个字符的名称";
    wrong_signature() =
        "the signature is wrong, or the app is not known or was not made for signatures (--signing)" |
        "签名错误，或应用不存在，或应用未开启签名（--signing）";
    nonce_was_used() = "bk_nonce was used before: every request needs one of its own" | "bk_nonce 已被使用，每个请求需要自己的 bk_nonce";
    timestamp_is_off(secs: text) = "bk_timestamp is more than {secs} s away from the server's time" | "bk_timestamp 与服务器时间相差超过 {secs} 秒";
    too_many_signed_of_app(app: text) =
        "too many signed requests of app {app} in a short time" |
        "应用 {app} 短时间内的签名请求过多";
    too_many_signed() = "too many signed requests in a short time" | "短时间内的签名请求过多";
    missing_from_signed_query(name: text) = "{name} is missing from the query of a signed request" | "签名请求的查询串缺少 {name}";

    // How much.
    caller_calls_too_often(who: message, wait_ms: text) =
        "{who} calls too often: try again in {wait_ms} ms" |
        "{who} 请求过于频繁，请在 {wait_ms} 毫秒后重试";
    too_many_sign_ins(wait_ms: text) =
        "too many sign-ins in a short time: try again in {wait_ms} ms" |
        "登录过于频繁，请在 {wait_ms} 毫秒后重试";
    too_many_at_once(what: message, limit: text) =
        "too many {what} (limit {limit}): try again in a moment" |
        "{what}过多（上限 {limit}），请稍后重试";
    too_many_of_caller(what: message, limit: text) =
        "too many {what} of one caller (limit {limit}): try again in a moment" |
        "同一调用方的{what}过多（上限 {limit}），请稍后重试";
    body_too_slow() = "the body came too slowly while others waited: send it again" | "请求体传输过慢，而其他请求在等待，请重新发送";
    too_many_fleet_questions() = "too many questions about the whole fleet at once: try again in a moment" | "同时查询整个集群的请求过多，请稍后重试";
    too_many_large_bodies() = "too many large bodies are being parsed: send it again" | "正在解析的大请求体过多，请重新发送";

    // What was sent.
    malformed_query() = "the query string is malformed" | "查询串格式错误";
    body_is_not_json(line: text, column: text) = "the body is not JSON: line {line} column {column}" | "请求体不是 JSON：第 {line} 行第 {column} 列";
    body_ends_early(line: text, column: text) =
        "the body ends in the middle of its JSON: line {line} column {column}" |
        "请求体的 JSON 不完整：第 {line} 行第 {column} 列";
    body_has_no_text_credentials(line: text, column: text) =
        "the body is not a JSON object with text as credentials: line {line} column {column}" |
        "请求体不是以文本为认证信息的 JSON 对象：第 {line} 行第 {column} 列";
    body_is_a_list() = "the body is not a JSON object but a list" | "请求体不是 JSON 对象，而是列表";
    body_is_larger_than(limit: text) = "the body is larger than {limit}" | "请求体超过 {limit}";
    body_took_longer(secs: text) = "the body did not arrive whole: it took longer than {secs} s" | "请求体未完整到达：超过 {secs} 秒";
    body_has_too_many_values(max: text) =
        "the body has more than {max} JSON values: send several smaller ones" |
        "请求体包含超过 {max} 个 JSON 值，请拆分后发送";

    // What there is.
    task_is_not_known(id: text) = "task '{id}' is not known" | "任务 '{id}' 不存在";
    no_agent_is_known() = "none of the agents is known" | "所有 Agent 均不存在";
    nothing_served(method: text, path: text) = "nothing is served at {method} {path}" | "{method} {path} 不存在";
    shutting_down() = "the server is shutting down" | "服务正在停止";
    server_failed() = "the server failed on this request; it is in the server's log" | "服务处理该请求时出错，详见服务日志";
    no_process_in_namespace(namespace: text) =
        "no process of namespace {namespace} is registered on this host" |
        "该主机上没有注册命名空间 {namespace} 的进程";
    no_process_with_label(namespace: text, label: text) =
        "no process of namespace {namespace} on this host has the label {label}" |
        "该主机上命名空间 {namespace} 中没有标签为 {label} 的进程";
    scope_lacks_host(scope: message, hosts: text) = "{scope} does not contain host {hosts}" | "{scope} 不包含主机 {hosts}";
    targets_are_one_host(first: text, second: text) =
        "targets {first} and {second} are one host, with different operations or specs" |
        "目标 {first} 和 {second} 是同一台主机，但操作或进程定义不同";
    may_not(who: message, class: message, targets: message) = "{who} may not {class} on {targets}" | "{who}没有{class}权限，目标：{targets}";
    idempotency_key_reused(task: text) =
        "the idempotency key was used for another request, which made task {task}" |
        "该幂等键已用于另一个请求，对应任务 {task}";
    task_was_forgotten(id: text) =
        "task '{id}' was never given out here, or was forgotten with old tasks" |
        "任务 '{id}' 从未由本服务创建，或已随旧任务清除";
    task_has_none_to_release(task: text) = "task {task} has no targets that wait to be released" | "任务 {task} 没有等待放行的目标";
    task_is_not_paused(task: text) = "task {task} is not waiting to be resumed" | "任务 {task} 没有在等待继续";
    task_is_not_over(task: text) = "task {task} is not over: wait for its end, or cancel it" | "任务 {task} 尚未结束：请等待其结束，或取消任务";
    task_has_no_failed(task: text) = "task {task} has no failed targets" | "任务 {task} 没有失败的目标";
    too_many_unknown_targets(targets: text, mebibytes: text, secs: text) =
        "{targets} targets of this call are unknown, not registered or forbidden, and a caller may leave {mebibytes} MiB \
         of such targets in an hour: leave them out, or try again in {secs} s" |
        "该请求中有 {targets} 个目标不存在、未注册或没有权限，而每个调用方每小时最多留下 {mebibytes} MiB 这样的目标：请去掉它们，或在 {secs} 秒后重试";
    too_many_open_targets(limit: text) =
        "too many targets are open (limit {limit}): try again in a moment" |
        "未结束的目标过多（上限 {limit}），请稍后重试";
    too_many_open_targets_of_caller(limit: text) =
        "too many targets of this caller are open (limit {limit}): try again in a moment" |
        "该调用方未结束的目标过多（上限 {limit}），请稍后重试";
    too_many_rollouts_of_caller(limit: text) =
        "this caller has {limit} rolling tasks that are not over, and may not have more: wait for one to end, or cancel one" |
        "该调用方已有 {limit} 个未结束的滚动任务，不能再创建：请等待其中一个结束，或取消一个";
    too_many_rollouts(limit: text) =
        "{limit} rolling tasks are not over, and there may not be more: wait for one to end, or cancel one" |
        "已有 {limit} 个未结束的滚动任务，不能再创建：请等待其中一个结束，或取消一个";
    too_many_planned(targets: text, max: text, secs: text) =
        "this plan has {targets} targets, and a caller may have {max} planned in an hour: plan for fewer, or try again \
         in {secs} s" |
        "该计划有 {targets} 个目标，而每个调用方每小时最多计划 {max} 个：请减少目标，或在 {secs} 秒后重试";
    call_is_too_large(targets: text) =
        "this call is too large: {targets} of its targets take more than this caller ever gets at once, so waiting does not \
         help: split the call" |
        "该请求过大：其中 {targets} 个目标超出该调用方一次可用的总量，等待也无济于事：请拆分请求";
    too_many_status(targets: text, mebibytes: text, secs: text) =
        "this status query has {targets} targets, and those of a caller may take {mebibytes} MiB in an hour: read the \
         status without a task (get_proc_status, GET /processes), or try again in {secs} s" |
        "该状态查询有 {targets} 个目标，而每个调用方每小时的状态查询最多占用 {mebibytes} MiB：请改用不创建任务的查询\
         （get_proc_status、GET /processes），或在 {secs} 秒后重试";
}
