//! Why a whole request was refused.

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
        "the signature is wrong, or the app is not known or was not created for signing (--signing)" |
        "签名错误，或应用不存在，或应用未开启签名（--signing）";
    nonce_was_used() = "bk_nonce was already used: every request needs a new one" | "bk_nonce 已被使用，每个请求需要自己的 bk_nonce";
    timestamp_is_off(secs: text) = "bk_timestamp is more than {secs} s away from the server's time" | "bk_timestamp 与服务器时间相差超过 {secs} 秒";
    too_many_signed_of_app(app: text) =
        "too many signed requests of app {app} in a short time" |
        "应用 {app} 短时间内的签名请求过多";
    too_many_signed() = "too many signed requests in a short time" | "短时间内的签名请求过多";
    missing_from_signed_query(name: text) = "{name} is missing from the query of a signed request" | "签名请求的查询串缺少 {name}";

    // How much.
    caller_calls_too_often(who: message, wait_ms: text) =
        "{who} exceeded its rate limit: try again in {wait_ms} ms" |
        "{who} 请求过于频繁，请在 {wait_ms} 毫秒后重试";
    too_many_sign_ins(wait_ms: text) =
        "too many sign-in attempts: try again in {wait_ms} ms" |
        "登录过于频繁，请在 {wait_ms} 毫秒后重试";
    too_many_at_once(what: message, limit: text) =
        "too many {what} (limit {limit}): try again in a moment" |
        "{what}过多（上限 {limit}），请稍后重试";
    too_many_of_caller(what: message, limit: text) =
        "too many {what} of one caller (limit {limit}): try again in a moment" |
        "同一调用方的{what}过多（上限 {limit}），请稍后重试";
    body_too_slow() = "the body came too slowly while others waited: send it again" | "请求体传输过慢，而其他请求在等待，请重新发送";
    too_many_fleet_questions() = "too many concurrent queries of the whole fleet: try again in a moment" | "同时查询整个集群的请求过多，请稍后重试";
    too_many_planned_rows(rows: text, max: text) =
        "{rows} rows, one for each pool on each host, are more than {max} in one plan: split it" |
        "共 {rows} 行（每台主机的每个进程组一行），超过一次计划的上限 {max}，请拆分";
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
        "{targets} targets of this call are unknown or not registered, and a caller may leave {mebibytes} MiB \
         of such targets in an hour: leave them out, or try again in {secs} s" |
        "该请求中有 {targets} 个目标不存在或未注册，而每个调用方每小时最多留下 {mebibytes} MiB 这样的目标：请去掉它们，或在 {secs} 秒后重试";
    too_many_forbidden(forbidden: text, targets: text) =
        "{forbidden} of the {targets} targets of this call are forbidden, more than the task may list: leave them out" |
        "该请求的 {targets} 个目标中有 {forbidden} 个没有权限，超过了任务可以列出的数量：请去掉它们";
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

    // Who asks, at the native API.
    header_is_no_jwt() = "the header X-Bkapi-JWT is not a JSON web token" | "请求头 X-Bkapi-JWT 不是 JSON Web Token";
    header_has_no_text_credentials(line: text, column: text) =
        "the header X-Bkapi-Authorization is not a JSON object with text values (line {line} column {column})" |
        "请求头 X-Bkapi-Authorization 不是以文本为值的 JSON 对象（第 {line} 行第 {column} 列）";
    user_name_unfit(problem: message) = "the name of the user {problem}" | "用户名{problem}";
    gateway_key_is_missing() = "no key of a gateway is configured (--gateway-public-key)" | "未配置网关公钥（--gateway-public-key）";
    jwt_malformed() = "it is not a JSON web token" | "不是 JSON Web Token";
    jwt_header_unreadable() = "its header cannot be read" | "无法读取其头部";
    jwt_signature_unreadable() = "its signature cannot be read" | "无法读取其签名";
    jwt_claims_unreadable() = "its claims cannot be read" | "无法读取其声明";
    jwt_of_another_algorithm() = "its algorithm is not RS512" | "其算法不是 RS512";
    jwt_of_another_key() = "it is not signed with the gateway's key" | "不是用网关的密钥签名的";
    jwt_without_end() = "it has no end (exp)" | "没有过期时间（exp）";
    jwt_expired() = "it has expired" | "已过期";
    jwt_not_valid_yet() = "it is not valid yet" | "尚未生效";
    jwt_app_unverified() = "the gateway did not verify the app" | "网关未验证应用";
    jwt_user_unverified() = "the gateway did not verify the user" | "网关未验证用户";
    content_type_must_be_json() = "the header Content-Type must be application/json" | "请求头 Content-Type 必须是 application/json";
    sign_in_with_one() = "send either token, or user and password, or link" | "请提供 token、user 和 password，或 link 之一";
    wrong_user_or_password() = "the user is not known or the password is wrong" | "用户不存在或密码错误";
    wrong_sign_in_link() = "the sign-in link is not known or has expired" | "登录链接不存在或已失效";
    user_disabled_or_gone(user: text) = "user {user} is disabled or was deleted" | "用户 {user} 已停用或已删除";
    app_secret_replaced(app: text) =
        "the secret of app {app} was replaced, or the app removed" |
        "应用 {app} 的密钥已更换，或应用已删除";
    user_token_gone(id: text, user: text) =
        "token {id} of user {user} was revoked or has expired" |
        "用户 {user} 的令牌 {id} 已吊销或已过期";
    no_session() = "there is no session: sign in" | "没有会话，请登录";
    own_password_without_app() = "users change their passwords themselves, not through an app" | "用户须自行修改密码，不能通过应用修改";
    too_many_password_checks() = "too many passwords are being checked: try again in a moment" | "正在校验的密码过多，请稍后重试";
    too_many_log_reads() = "the host is reading too many logs: try again in a second" | "该主机正在读取的日志过多，请在一秒后重试";
    body_is_incomplete(problem: message) = "the body did not arrive whole: {problem}" | "请求体未完整到达：{problem}";
    nothing_came_for(ms: text) = "nothing came for {ms} ms" | "{ms} 毫秒内没有收到数据";

    bearer_is_no_user_token() =
        "the text in Authorization: Bearer is not a user token: those begin with pt_" |
        "Authorization: Bearer 中不是用户令牌：用户令牌以 pt_ 开头";
    csrf_token_is_wrong(header: text) =
        "the header {header} of the session is missing or wrong: sign in again" |
        "会话的请求头 {header} 缺失或错误，请重新登录";
    app_header_not_trusted(address: text) =
        "the header Bk-App-Code is not trusted from {address}: add its network to --procapi-from \
         (PROCTOR_PROCAPI_FROM) of the server, or send an app's secret" |
        "不信任来自 {address} 的请求头 Bk-App-Code：请将其网段加入服务端的 --procapi-from（PROCTOR_PROCAPI_FROM），或提供应用密钥";
    app_header_from_nowhere() =
        "the header Bk-App-Code is not trusted from an unknown address: add its network to --procapi-from \
         (PROCTOR_PROCAPI_FROM) of the server, or send an app's secret" |
        "不信任来自未知地址的请求头 Bk-App-Code：请将其网段加入服务端的 --procapi-from（PROCTOR_PROCAPI_FROM），或提供应用密钥";
    too_many_bodies_at_once() =
        "too many large bodies at once: try again in a moment, and send credentials in the header \
         X-Bkapi-Authorization, so that they are known before the body" |
        "同时传输的大请求体过多：请稍后重试，并在请求头 X-Bkapi-Authorization 中提供认证信息，以便在请求体之前识别";
    too_many_host_questions() =
        "too many questions to hosts at once: try again in a moment" |
        "同时向主机发起的查询过多，请稍后重试";
    too_many_webhook_tests() =
        "webhooks are being tested, this one within the last seconds: try again in a moment" |
        "正在测试 Webhook，或该 Webhook 刚刚测试过，请稍后重试";
    too_many_webhooks(max: text) = "there are {max} webhooks already: remove one first" | "已有 {max} 个 Webhook，请先删除一个";
    task_is_too_large(targets: text, max: text) =
        "these are {targets} targets, more than {max} in one task" |
        "共有 {targets} 个目标，超过一个任务的上限 {max} 个";

    // What there is, at the native API.
    process_metrics_are_off() =
        "usage of processes is not exposed: start the server with --metrics-processes" |
        "未开放进程用量：请使用 --metrics-processes 启动服务";
    never_registered_on_host(process: text, host: text) =
        "process {process} was never registered on host {host}" |
        "进程 {process} 从未在主机 {host} 上注册";
    upgrade_is_not_over(id: text) =
        "upgrade {id} is not over: cancel it, or wait until its last host is done" |
        "升级 {id} 尚未结束：请取消，或等待最后一台主机完成";
    upgrade_is_in_state(id: text, state: text) = "upgrade {id} is {state}" | "升级 {id} 的状态是 {state}";
    no_such_path() = "there is no such path under /api/v1" | "/api/v1 下没有该路径";
    path_without_method(method: text) = "the path does not take {method}" | "该路径不支持 {method}";
    no_such_thing(what: text) = "there is no {what}" | "{what} 不存在";
    no_file_to_download(name: text) = "there is no file {name} to download" | "没有可下载的文件 {name}";
    app_removes_itself() = "an app cannot remove itself" | "应用不能删除自己";
    host_is_not_known(host: text) =
        "host {host} is not known: it has never enrolled, or was removed" |
        "主机 {host} 不存在：从未注册，或已被移除";
    host_unknown_or_hidden(host: text) =
        "host {host} has never enrolled an agent, or you may not read it" |
        "主机 {host} 从未安装 Agent，或您没有查看权限";
    no_such_host_yet() = "no such host has enrolled yet" | "尚无这样的主机注册";
    host_does_not_wait(host: text) =
        "host {host} is not waiting for approval: it was approved before, or its agent has not asked yet; an agent that is \
         refused asks again within two minutes, and its log says why it was" |
        "主机 {host} 没有在等待批准：它此前已被批准，或其 Agent 尚未请求；被拒绝的 Agent 会在两分钟内再次请求，原因见其日志";
    host_is_not_cordoned(host: text) = "host {host} is not cordoned" | "主机 {host} 不在维护状态";
    relay_never_enrolled(relay: text) = "relay {relay} has never enrolled" | "中继 {relay} 从未注册";
    not_registered_on_host(process: text, host: text) =
        "process {process} is not registered on host {host}" |
        "进程 {process} 未在主机 {host} 上注册";
    registered_on_no_host(process: text) = "process {process} is not registered on any host" | "进程 {process} 未在任何主机上注册";
    pool_on_no_host(pool: text) = "pool {pool} is not set on any host" | "资源池 {pool} 未在任何主机上设置";
    selector_matches_nothing(selector: text) = "'{selector}' matches no registered process there" | "'{selector}' 没有匹配到已注册的进程";
    task_is_over(task: text) = "task {task} is over, or was cancelled before" | "任务 {task} 已结束或已取消";

    // What the store cannot do.
    store_failed(what: text) = "the store cannot {what}" | "存储无法执行：{what}";
    store_full(what: text) = "the store has no space left to {what}" | "存储空间不足，无法执行：{what}";
    store_damaged(what: text) = "the store holds a damaged {what}" | "存储中有损坏的数据：{what}";
    store_newer(found: text, known: text) =
        "the store was written by a newer version (schema {found}, this program knows {known})" |
        "存储由更新的版本写入（模式 {found}，本程序支持 {known}）";
    store_closed() = "the store is closed" | "存储已关闭";

    // What the store refuses.
    business_is_unknown(id: text) = "business {id} is not known" | "业务 {id} 不存在";
    business_set_is_unknown(id: text) = "business set {id} is not known" | "业务集 {id} 不存在";
    role_is_unknown(role: text) = "role {role} is not known" | "角色 {role} 不存在";
    role_is_built_in(role: text) = "role {role} is built in and cannot be changed" | "角色 {role} 是内置角色，不能修改";
    user_token_is_unknown(id: text) = "user token {id} is not known" | "用户令牌 {id} 不存在";
    app_exists(app: text) =
        "app {app} exists already: rotate its secret (`proctor app rotate {app}`)" |
        "应用 {app} 已存在：请轮换其密钥（`proctor app rotate {app}`）";
    user_exists(user: text) = "user {user} exists already" | "用户 {user} 已存在";
    credential_changed(user: text) =
        "the password of user {user} was changed, or the user disabled, in the meantime" |
        "用户 {user} 的密码在此期间已修改，或该用户已停用";
    host_has_another_key(host: text, found: text, given: text) =
        "host {host} enrolled with key {found}, not with {given}: somebody else may have used its join token; compare \
         with `proctor-agent doctor` on the host, and remove the host if it is not the one" |
        "主机 {host} 注册时使用的密钥是 {found}，而不是 {given}：其加入令牌可能已被他人使用；请与该主机上的 `proctor-agent doctor` 对照，如不一致请移除该主机";
}
