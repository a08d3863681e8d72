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
    has_no_fields() = "is not a field of this call, which has none" | "不是该接口的字段，该接口没有字段";
    must_be(expected: message, found: message) = "must be {expected}, not {found}" | "必须是{expected}，而不是{found}";
    must_be_an_object() = "must be an object" | "必须是对象";
    must_be_a_scalar() = "must be text, a number or a boolean" | "必须是文本、数字或布尔值";
    must_be_at_least_1() = "must be at least 1" | "必须大于等于 1";
    must_not_be_empty() = "must not be empty" | "不能为空";
    longer_than_chars(max: text) = "must not be longer than {max} characters" | "长度不能超过 {max} 个字符";
    longer_than_bytes(max: text) = "must not be longer than {max} bytes" | "长度不能超过 {max} 字节";
    larger_than_bytes(max: text) = "must not be larger than {max} bytes" | "大小不能超过 {max} 字节";
    more_entries_than(max: text) = "must not be more than {max}" | "数量不能超过 {max}";
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
}
