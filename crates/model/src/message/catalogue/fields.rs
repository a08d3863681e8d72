//! What is wrong with a field of a request. The path of the field stands in front.

super::catalogue! { Server:
    in_field(field: text, problem: message) = "{field}: {problem}" | "{field}: {problem}";

    is_missing() = "is missing" | "缺失";
    not_together_with(others: text) = "cannot be combined with {others}" | "不能与 {others} 同时使用";
    scope_is_missing() = "is missing, and so is bk_scope_type" | "缺失，且没有 bk_scope_type";
    schedule_is_missing() = "is missing: a periodic process needs a schedule" | "缺失：周期执行进程需要指定执行周期";
    value_does_not_fit(value: text, problem: message) = "'{value}' does not fit: {problem}" | "'{value}' 不符合要求：{problem}";
    not_an_integer_between(text: text, min: text, max: text) =
        "'{text}' is not an integer from {min} to {max}" |
        "'{text}' 不是 {min} 到 {max} 之间的整数";
    neither_true_nor_false(text: text) = "'{text}' is neither true nor false" | "'{text}' 既不是 true 也不是 false";
    is_there_twice() = "is listed twice" | "重复";
    is_not_a_field(known: text) = "is not a field of this call; there are: {known}" | "不是该接口的字段，可用字段：{known}";
    rolling_carries_no_spec() = "a rolling task runs what is registered: register the spec first" | "滚动任务只执行已注册的规格：请先注册该规格";
    status_does_not_roll() = "does not go with status, which is asked of all targets at once: leave it out" | "不能与 status 一起使用：查询状态会同时发往所有目标，请去掉该字段";
    status_does_not_wait() = "does not go with status, which tells what is so now: leave it out" | "不能与 status 一起使用：查询状态只反映当前情况，请去掉该字段";
    wait_out_of_range(max: text) = "must be between 1 and {max} seconds" | "必须在 1 到 {max} 秒之间";
    has_no_fields() = "is not a field of this call, which has none" | "不是该接口的字段，该接口没有字段";
    must_be(expected: message, found: message) = "must be {expected}, not {found}" | "必须是{expected}，而不是{found}";
    must_be_an_object() = "must be an object" | "必须是对象";
    must_be_a_scalar() = "must be text, a number or a boolean" | "必须是文本、数字或布尔值";
    must_be_at_least_1() = "must be at least 1" | "必须大于等于 1";
    must_not_be_empty() = "must not be empty" | "不能为空";
    longer_than_chars(max: text) = "must not be longer than {max} characters" | "长度不能超过 {max} 个字符";
    longer_than_bytes(max: text) = "must not be longer than {max} bytes" | "长度不能超过 {max} 字节";
    larger_than_bytes(max: text) = "must not be larger than {max} bytes" | "大小不能超过 {max} 字节";
    more_entries_than(max: text) = "must not have more than {max} entries" | "数量不能超过 {max}";
    has_control_characters() = "must not contain control characters" | "不能包含控制字符";
    has_a_nul_character() = "must not contain a NUL character" | "不能包含 NUL 字符";
    has_colon_or_slash() = "must not contain ':' or '/'" | "不能包含 ':' 或 '/'";
    has_a_colon() = "must not contain ':'" | "不能包含 ':'";
    must_be_a_file_name() = "must be a file name without '/'" | "必须是不含 '/' 的文件名";
    needs_a_group() = "must hold at least one group" | "至少要有一个进程组";
    needs_an_operation() = "must hold at least one operation" | "至少要有一个操作";
    needs_a_process() = "must hold at least one process" | "至少要有一个进程";
    needs_a_host() = "must name at least one host" | "至少要有一台主机";
    only_id_characters() = "may contain only letters, digits, '-', '_' and '.'" | "只能包含字母、数字、'-'、'_' 和 '.'";
    only_role_characters() = "may contain only a-z, 0-9, '-' and '_'" | "只能包含 a-z、0-9、'-' 和 '_'";
    too_many_targets(max: text) = "more than {max} targets in one request: split it" | "一次请求的目标超过 {max} 个，请拆分";
    too_many_groups(max: text) = "more than {max} groups in one request: split it" | "一次请求的进程组超过 {max} 个，请拆分";
    not_an_address(text: text) = "'{text}' is not an IP address" | "'{text}' 不是 IP 地址";
    neither_address_nor_host(text: text) = "'{text}' is neither an IP address nor CLOUD:IP" | "'{text}' 既不是 IP 地址也不是 云区域:IP";
    not_a_scope_type(text: text) = "'{text}' is neither biz nor biz_set" | "'{text}' 既不是 biz 也不是 biz_set";
    not_a_script_type(text: text) = "'{text}' is none of sh, bat, ps1" | "'{text}' 不是 sh、bat、ps1 之一";
    not_a_target(id: text) = "'{id}' is no target of this task" | "'{id}' 不是该任务的目标";
    not_a_task_id(text: text) = "'{text}' is not a task id of this server" | "'{text}' 不是本服务的任务 ID";
    must_be_absolute(path: text) = "'{path}' must be an absolute path" | "'{path}' 必须是绝对路径";
    has_dot_dot(path: text) = "'{path}' must not contain '..'" | "'{path}' 不能包含 '..'";
    not_one_of(text: text, known: text) = "'{text}' is not one of {known}" | "'{text}' 不是 {known} 之一";
    target_with_another_operation(target: text, first: text) =
        "target {target} is also at {first}, with another operation or spec" |
        "目标 {target} 同时出现在 {first}，但操作或进程定义不同";
    target_with_another_agent(target: text, first: text) =
        "target {target} is also at {first}, with another bk_agent_id" |
        "目标 {target} 同时出现在 {first}，但 bk_agent_id 不同";
    group_twice(id: text) = "group '{id}' is listed twice" | "进程组 '{id}' 重复";
    not_a_lifetime(number: text) = "{number} is none of 0 (periodic), 1 (resident), 2 (once)" | "{number} 不是 0（周期执行）、1（常驻）、2（单次执行）之一";
    neither_manage_nor_release(number: text) = "{number} is neither 1 (manage) nor 2 (release)" | "{number} 既不是 1（托管）也不是 2（取消托管）";
    not_a_percentage(number: text) = "{number} is not a percentage between 0 and 100" | "{number} 不是 0 到 100 之间的百分比";
    not_an_op_type(number: text) = "{number} is none of 0, 1, 2, 3, 4, 7, 8, 9" | "{number} 不是 0、1、2、3、4、7、8、9 之一";
    more_than_seconds(number: text, max: text) = "{number} is more than {max} seconds" | "{number} 超过 {max} 秒";
    neither_0_nor_1(number: text) = "{number} is neither 0 nor 1" | "{number} 既不是 0 也不是 1";
    must_be_positive(number: text) = "{number} must be greater than 0" | "{number} 必须大于 0";
    must_not_be_negative(number: text) = "{number} must not be negative" | "{number} 不能为负数";
    not_an_integer(number: text) = "{number} is not an integer" | "{number} 不是整数";
    not_a_whole_number(text: text) = "{text} is not a whole number" | "{text} 不是整数";
    more_than(number: text, max: text) = "{number} is more than {max}" | "{number} 超过 {max}";
    not_a_number(number: text) = "{number} is not a number" | "{number} 不是数字";
    too_large(number: text) = "{number} is too large" | "{number} 过大";

    // Numbers and lengths.
    must_be_between(min: text, max: text) = "must be between {min} and {max}" | "必须在 {min} 到 {max} 之间";
    not_between(number: text, min: text, max: text) = "{number} is not between {min} and {max}" | "{number} 不在 {min} 到 {max} 之间";
    must_last_days_at_most(days: text) = "must be between 1 second and {days} days" | "必须在 1 秒到 {days} 天之间";
    must_have_chars(max: text) = "must have 1 to {max} characters" | "长度必须为 1 到 {max} 个字符";
    must_have_bytes(max: text) = "must have 1 to {max} bytes" | "长度必须为 1 到 {max} 字节";
    must_have_visible_chars(max: text) =
        "must have 1 to {max} characters and no control characters" |
        "长度必须为 1 到 {max} 个字符，且不能包含控制字符";
    must_have_chars_for_a_name(max: text) =
        "must have 1 to {max} characters and no ':' or '/'" |
        "长度必须为 1 到 {max} 个字符，且不能包含 ':' 或 '/'";
    must_have_ascii_chars(max: text) =
        "must have 1 to {max} printable ASCII characters and no spaces" |
        "长度必须为 1 到 {max} 个可打印的 ASCII 字符，且不能包含空格";
    must_have_password_length(min: text, max: text) =
        "must have at least {min} characters and at most {max} bytes" |
        "至少 {min} 个字符，最多 {max} 字节";
    has_hidden_characters() =
        "must be one line without control or invisible characters" |
        "必须是一行，且不能包含控制字符或不可见字符";
    has_stray_spaces() =
        "must not start or end with a space, or have two in a row" |
        "首尾不能有空格，也不能有连续空格";
    has_indistinct_character(code_point: text) =
        "must not contain {code_point}: only ASCII, Latin-1 letters and Chinese, Japanese and Korean characters are told \
         apart by everybody" |
        "不能包含 {code_point}：只允许人人都能区分的字符：ASCII、Latin-1 字母以及中日韩文字";
    not_a_whole_number_up_to(text: text, max: text) = "'{text}' is not a whole number up to {max}" | "'{text}' 不是不超过 {max} 的整数";
    neither_number_nor_percentage(text: text) =
        "'{text}' is neither a number from 1 nor 1% to 100%" |
        "'{text}' 既不是大于等于 1 的整数，也不是 1% 到 100%";
    not_a_rate(text: text) = "'{text}' is not a number of calls per second such as 100/s" | "'{text}' 不是每秒请求数，例如 100/s";
    not_of_the_form(text: text, form: text) = "'{text}' is not of the form {form}" | "'{text}' 的格式不是 {form}";
    not_a_version(text: text) = "'{text}' is not a version such as 1.4.0 or 1.4.0-rc.2" | "'{text}' 不是版本号，例如 1.4.0 或 1.4.0-rc.2";
    not_a_network(text: text) = "'{text}' is not a network such as 10.0.0.0/8 or fd00::/8" | "'{text}' 不是网段，例如 10.0.0.0/8 或 fd00::/8";
    not_a_key_fingerprint() = "is not the fingerprint of a key (SHA-256 in hexadecimal)" | "不是密钥指纹（十六进制的 SHA-256）";
    not_an_rsa_public_key() = "is not an RSA public key in PEM (BEGIN PUBLIC KEY)" | "不是 PEM 格式的 RSA 公钥（BEGIN PUBLIC KEY）";
    not_a_host_reference(text: text) =
        "'{text}' is neither an IP address, CLOUD:IP nor an agent id" |
        "'{text}' 不是 IP 地址、云区域:IP 或 Agent ID";
    not_a_cloud_area(text: text) = "'{text}' is not a cloud area" | "'{text}' 不是云区域";
    scope_has_no_number(value: text, text: text) = "'{value}' in '{text}' is not a number" | "'{text}' 中的 '{value}' 不是数字";
    not_a_target_code(number: text) = "{number} is not the code of a target" | "{number} 不是目标的错误码";
    not_a_generation(number: text) = "{number} is not a generation of the history" | "{number} 不是历史中的版本";

    // Times and positions.
    is_in_the_past() = "is in the past" | "已经过去";
    is_too_many_days_away(days: text) = "is more than {days} days from now" | "距现在超过 {days} 天";
    must_be_before_until() = "must be before until" | "必须早于 until";
    makes_too_many_steps(steps: text, max: text) = "makes {steps} steps, more than {max}" | "会产生 {steps} 个区间，超过 {max} 个";
    not_an_event_id() = "is not the id of an event" | "不是事件 ID";
    not_a_log_position() = "must be the position from an earlier answer" | "必须是之前响应中的位置";
    not_a_cursor() = "is not the next of an earlier answer" | "不是之前响应中的 next";
    cursor_of_another_order() = "belongs to a list in another order" | "属于另一种排序的列表";

    // Fields that depend on others.
    process_is_missing() = "is missing: give a process, a selector or targets" | "缺失：请提供 process、selector 或 targets";
    hosts_are_missing() =
        "is missing: give a list of hosts, a business, or \"all\": true" |
        "缺失：请提供主机列表、business 或 \"all\": true";
    only_with(other: text) = "can only be used together with {other}" | "只能与 {other} 一起使用";
    business_name_without_business() = "is given without a business" | "提供了名称但没有 business";
    cordon_reason_is_empty() = "must not be empty: say why the host takes no starts" | "不能为空：请说明该主机为何不接受启动";
    relay_token_needs_area() =
        "must be given for a relay token: a relay serves one cloud area" |
        "中继令牌必须指定：中继只服务一个云区域";
    relay_token_takes_none() = "is for agents, and the token is for relays" | "只适用于 Agent，而该令牌用于中继";
    host_token_is_used_once() = "must be 1 for a token that names a host" | "指定主机的令牌必须为 1";
    token_host_in_another_area(cloud: text, host: text) =
        "is {cloud}, but host {host} is in another cloud area" |
        "为 {cloud}，但主机 {host} 位于另一个云区域";
    wrong_current_password() = "is not the current password" | "不是当前密码";

    // Lists.
    several(first: message, rest: message) = "{first}; {rest}" | "{first}；{rest}";
    has_wrong_columns(count: text) =
        "has {count} columns, not cloud,ip,business[,business_name]" |
        "有 {count} 列，应为 cloud,ip,business[,business_name]";
    too_many_rows(rows: text, max: text) = "{rows} rows are more than {max}" | "{rows} 行超过上限 {max} 行";
    target_is_there_twice(process: text, host: text) = "{process} on {host} is listed twice" | "{host} 上的 {process} 重复";
    host_is_there_twice(host: text) = "host {host} is listed twice" | "主机 {host} 重复";
    pool_is_there_twice(pool: text, namespace: text) = "pool {pool} of {namespace} is listed twice" | "{namespace} 的资源池 {pool} 重复";
    too_many_pools(max: text) = "more than {max} pools in one request: split it" | "一次请求的资源池超过 {max} 个，请拆分";
    too_few_addresses() = "has too few addresses after it" | "之后的地址不足";
    agent_serves_no_host(agent: text) = "agent {agent} serves no host" | "Agent {agent} 没有对应的主机";
    matches_no_host() = "matches no host" | "没有匹配的主机";

    // Selectors, schedules, bounds.
    selector_has_too_many_terms(count: text, max: text) = "has {count} terms, more than {max}" | "有 {count} 个条件，超过 {max} 个";
    not_a_selector_term(term: text) =
        "'{term}' is not NAME=VALUE, NAME!=VALUE, NAME or !NAME" |
        "'{term}' 不是 NAME=VALUE、NAME!=VALUE、NAME 或 !NAME";
    crontab_has_wrong_fields(rule: text, count: text) =
        "'{rule}' has {count} fields, and a rule has five: minute hour day month weekday" |
        "'{rule}' 有 {count} 个字段，规则应有五个：分 时 日 月 周";
    not_a_crontab_rule(rule: text, problem: text) = "'{rule}' is not a crontab rule: {problem}" | "'{rule}' 不是 crontab 规则：{problem}";
    crontab_never_runs(rule: text) = "'{rule}' never runs: there is no such day" | "'{rule}' 永远不会执行：没有这样的日期";
    user_outside_bounds(user: text, users: text) =
        "'{user}' is not one of the users allowed here: {users}" |
        "'{user}' 不在此处允许的用户之列：{users}";
    path_outside_bounds(path: text, roots: text) =
        "'{path}' is not below one of the allowed directories: {roots}" |
        "'{path}' 不在允许的目录之下：{roots}";
    no_binding_allows_registering() = "no binding allows registering there" | "没有角色绑定允许在此注册";

    // Upgrades.
    no_build_of_version(version: text, known: text) =
        "there is no build of version {version} in the download directory; there are: {known} (the server's log names \
         the files that it does not trust)" |
        "下载目录中没有版本 {version} 的构建，现有版本：{known}（服务日志中列出了不受信任的文件）";
    no_build_at_all(version: text) =
        "there is no build of version {version} in the download directory, nor of any other (the server's log names the \
         files that it does not trust)" |
        "下载目录中没有版本 {version} 的构建，也没有其他版本（服务日志中列出了不受信任的文件）";
    two_builds_of_version(first: text, second: text, version: text, arch: text) =
        "{first} and {second} are both version {version} for {arch}" |
        "{first} 和 {second} 都是 {arch} 的版本 {version}";

    // Addresses of webhooks.
    not_a_url(problem: text) = "is not a URL: {problem}" | "不是 URL：{problem}";
    url_has_wrong_scheme(scheme: text) = "the scheme is '{scheme}', not http or https" | "协议是 '{scheme}'，不是 http 或 https";
    url_has_credentials() =
        "must not contain a user or password; use a secret to prove who sends" |
        "不能包含用户名或密码；请使用 secret 证明发送者身份";
    no_event_type_in_gse() = "none of them exists in the format gse" | "gse 格式中没有这些类型";
    address_not_allowed(address: text, kind: message) =
        "{address} is {kind}: if it is meant, allow it with --webhook-allow of the server" |
        "{address} 是{kind}：如确需使用，请通过服务端的 --webhook-allow 允许";
    own_address() = "an address of this machine" | "本机地址";
    loopback_address() = "a loopback address" | "环回地址";
    link_local_address() = "a link-local address, where clouds serve their metadata" | "链路本地地址，云平台在此提供元数据";
    metadata_address() = "the metadata service of a cloud" | "云平台的元数据服务地址";
    no_host_address() = "not an address of a single host" | "非单个主机的地址";
    private_address() = "an address of a private network" | "私有网络地址";
    documentation_address() = "an address for documentation" | "文档专用地址";
    protocol_address() = "an address reserved for protocols" | "协议保留地址";
    benchmark_address() = "an address for benchmarks" | "基准测试专用地址";
    multicast_address() = "a multicast address" | "组播地址";
    not_a_public_address() = "not an address of the public internet" | "非公网地址";
}
