//! The result of an operation on one target, and why a process is not running.

super::catalogue! { Agent:
    // How an operation ended.
    success_but(note: message) = "success: {note}" | "success: {note}";
    one_instance_runs(asked: text) =
        "1 instance runs instead of {asked}: pid_path has no {instance} to tell them apart" |
        "只运行 1 个实例，而不是 {asked} 个：pid_path 中没有 {instance} 来区分实例";
    fewer_instances_run(most: text, asked: text) =
        "{most} instances run instead of {asked}: there cannot be more on a host" |
        "运行 {most} 个实例，而不是 {asked} 个：一台主机上最多这么多";
    of_instance(number: text, message: message) = "instance {number}: {message}" | "实例 {number}：{message}";
    two_lines(first: message, second: message) = "{first}\n{second}" | "{first}\n{second}";
    released_while_evicted() =
        "released, but the process was already being ended for its use of resources; it is not started again" |
        "已取消托管，但进程因资源用量正在被结束，不会再次启动";
    released_while_unhealthy() =
        "released, but the process was already being ended because it is unhealthy; it is not started again" |
        "已取消托管，但进程因不健康正在被结束，不会再次启动";
    process_runs_already(pid: text) = "process {pid} is already running" | "进程 {pid} 已在运行";
    scheduled_run_under_way() = "a scheduled run is in progress" | "定时执行正在进行";
    process_not_running(reason: message) = "the process is not running: {reason}" | "进程未运行：{reason}";
    process_not_alive(operation: message, reason: message) =
        "{operation}: the process is not alive: {reason}" |
        "{operation}：进程未存活：{reason}";
    ended_between_checks(operation: message, pid: text) =
        "{operation}: process {pid} ended between its two start checks" |
        "{operation}：进程 {pid} 在两次启动检查之间已结束";
    // Clients look for `stop` at the beginning of a message of 836: the operation is not translated there.
    still_alive_after_stop(pid: text, secs: text) =
        "stop: process {pid} is still alive after {secs} s" |
        "stop: 进程 {pid} 在 {secs} 秒后仍在运行";
    still_there_after_sigkill(pid: text) = "kill: process {pid} is still running after SIGKILL" | "kill: 进程 {pid} 在 SIGKILL 后仍然存在";
    sigkill_not_sent(pid: text, reason: text) =
        "kill: SIGKILL could not be sent to process {pid}: {reason}" |
        "kill: 无法向进程 {pid} 发送 SIGKILL：{reason}";
    nothing_was_done(operation: text, reason: message) = "{operation}: nothing was done: {reason}" | "{operation}: 未执行任何操作：{reason}";
    nothing_was_done_released(operation: text, reason: message) =
        "{operation}: nothing was done: {reason}; it is no longer managed" |
        "{operation}: 未执行任何操作：{reason}；进程已取消托管";
    operation_unclear(operation: message, reason: message) = "{operation}: {reason}" | "{operation}：{reason}";
    unclear_whether_it_runs(reason: message) =
        "it cannot be told whether the process runs: {reason}" |
        "无法判断进程是否在运行：{reason}";

    // Commands.
    command_not_run(command: message, reason: message) =
        "the {command} command could not be run: {reason}" |
        "{command}命令无法执行：{reason}";
    too_many_commands() = "too many commands run on this host; try again" | "该主机上正在执行的命令过多，请重试";
    because(reason: text) = "{reason}" | "{reason}";
    command_killed(command: message, output: text) = "the {command} command was killed: {output}" | "{command}命令已被终止：{output}";
    command_timed_out(command: message, secs: text, output: text) =
        "the {command} command did not end within {secs} s and was killed: {output}" |
        "{command}命令在 {secs} 秒内未结束，已被终止：{output}";
    command_ended_with(command: message, exit: message) = "the {command} command ended with {exit}" | "{command}命令结束，{exit}";
    command_end_unknown(command: message) =
        "the {command} command exited, but its result is unknown" |
        "{command}命令已结束，但结果未知";
    exit_code(code: text) = "exit code {code}" | "退出码 {code}";
    exit_signal(signal: text) = "signal {signal}" | "信号 {signal}";
    no_start_command() = "there is no start_cmd" | "没有 start_cmd";
    no_reload_command() = "there is no reload_cmd" | "没有 reload_cmd";

    // Cut short.
    expired() = "the time for this operation was over before it could begin" | "该操作在开始之前已超时";
    cancelled_before() = "cancelled before it began: nothing was done" | "在开始之前已取消，未执行任何操作";
    registered_elsewhere_before() =
        "the process was registered with another pid file or program before this operation could begin: nothing was done" |
        "在该操作开始之前，进程已用其他 pid 文件或程序重新注册，未执行任何操作";
    interrupted_before(by: message) =
        "interrupted by a later {by} before it began: nothing was done" |
        "在开始之前被之后的{by}打断，未执行任何操作";
    cancelled_during(operation: message, step: message, state: message) =
        "the {operation} was cancelled while its {step} was in progress; {state}" |
        "{operation}在{step}期间被取消；{state}";
    interrupted_during(operation: message, by: message, step: message, state: message) =
        "the {operation} was interrupted by a later {by} while its {step} was in progress; {state}" |
        "{operation}在{step}期间被之后的{by}打断；{state}";
    start_command() = "start command" | "启动命令";
    stop_command() = "stop command" | "停止命令";
    reload_command() = "reload command" | "重新加载命令";
    process_runs(pid: text) = "process {pid} is running" | "进程 {pid} 正在运行";
    no_process_runs() = "no process is running" | "没有进程在运行";
    no_process_runs_after(exit: message) = "no process is running, the last one exited with {exit}" | "没有进程在运行，上一个进程结束，{exit}";
    after_a_failure(cut: message, failure: message) = "{cut}, after a failure: {failure}" | "{cut}，此前失败：{failure}";
    agent_restarted_during(operation: message) =
        "the agent restarted during the {operation}; its result is unknown" |
        "Agent 在{operation}期间重启，结果未知";
    agent_restarted_before(operation: message) =
        "the agent restarted before the start command of the {operation} was run" |
        "Agent 在{operation}的启动命令执行之前重启";
    agent_restarted_before_managed(operation: message) =
        "the agent restarted before the start command of the {operation} was run; it is managed, so it is started now by \
         supervision" |
        "Agent 在{operation}的启动命令执行之前重启；进程处于托管状态，现由托管启动";
    host_restarted_during() = "the host restarted during the operation" | "主机在操作期间重启";
    process_forgotten_during(process: text, operation: message) =
        "process {process} was forgotten during the {operation}" |
        "进程 {process} 在{operation}期间被移除";
    released_during_restart() = "it was released while it was being restarted" | "进程在重启期间被取消托管";

    status_changes_nothing() = "a status query changes nothing" | "状态查询不做任何更改";
    no_instances() = "the process has no instances" | "进程没有实例";
    simulated_failure() = "the simulated command failed" | "模拟的命令失败";

    // Leftovers.
    leftovers_ended(failure: message, count: text) =
        "{failure} (leftover processes of the start that were ended: {count})" |
        "{failure}（启动遗留的 {count} 个进程已被结束）";
    leftovers_not_ended(reason: text) =
        "what an earlier life left behind could not be ended: {reason}" |
        "无法结束之前运行遗留的进程：{reason}";
    leftovers_survive(count: text) =
        "leftover processes of an earlier life that survived SIGKILL: {count}" |
        "之前运行遗留的 {count} 个进程在 SIGKILL 后仍然存在";
    reason_of_instance(number: text, reason: message) = "instance {number}: {reason}" | "实例 {number}：{reason}";
    registration_waits() =
        "a registration with another pid file or program waits until the operation in progress has finished" |
        "使用其他 pid 文件或程序的注册正在等待当前操作结束";
    with_note(message: message, note: message) = "{message} ({note})" | "{message}（{note}）";
    not_started(reason: message) = "not started: {reason}" | "未启动：{reason}";
    not_running_but(operation: text, reason: message) =
        "{operation}: the process is not running, but {reason}" |
        "{operation}: 进程未运行，但{reason}";
    ended_but_left_behind(operation: text, count: text) =
        "{operation}: the process ended, but leftovers of it survived SIGKILL: {count}" |
        "{operation}: 进程已结束，但其遗留的 {count} 个进程在 SIGKILL 后仍然存在";

    // Refused on the host.
    too_many_waiting(max: text) = "{max} operations are waiting for this process already" | "该进程已有 {max} 个操作在等待";
    too_many_arrived(max: text) =
        "{max} operations wait until the paths of this process are resolved" |
        "已有 {max} 个操作在等待解析该进程的路径";
    process_not_registered(process: text) = "process {process} is not registered on this host" | "进程 {process} 未在该主机上注册";
    operation_not_understood(reason: text) =
        "this agent does not understand the operation: {reason}" |
        "该 Agent 不支持此操作：{reason}";

    ledger_not_written() =
        "the agent cannot write its ledger (is its disk full?); until it can, it only stops and kills" |
        "Agent 无法写入其账本（磁盘是否已满？）；在恢复之前只能停止和强制终止进程";

    // Why the owner of the host does not allow it.
    refused_by_policy(file: text, line: message, problem: message) =
        "refused by the host's policy {file}, {line}: {problem}" |
        "被主机策略 {file} 拒绝，{line}：{problem}";
    policy_line(list: text) = "line `{list}`" | "`{list}` 行";
    policy_line_of_rule(list: text, number: text) = "line `{list}` of rule {number}" | "规则 {number} 的 `{list}` 行";
    policy_without_operation(operation: text) = "operation '{operation}' is not allowed" | "不允许操作 '{operation}'";
    policy_without_user(user: text) = "user '{user}' is not allowed" | "不允许用户 '{user}'";
    policy_without_logs() = "reading logs is not allowed" | "不允许读取日志";
    policy_says_nothing_of_logs() =
        "operations are restricted, and `logs = true` is not set" |
        "操作受限，且未设置 `logs = true`";
    path_problem(field: text, path: text, problem: message) = "{field} '{path}' {problem}" | "{field} '{path}' {problem}";
    path_outside() = "is outside the allowed paths" | "不在允许的路径内";
    path_leads_outside(real: text) = "leads to '{real}', outside the allowed paths" | "指向 '{real}'，不在允许的路径内";
    path_is_a_link_to_nothing() = "is a link to nothing" | "是指向不存在目标的链接";
    path_not_resolved(error: text) = "cannot be resolved: {error}" | "无法解析：{error}";
    path_leads_nowhere() = "cannot be resolved" | "无法解析";
    path_without_answer(name: text) =
        "the {name} cannot be resolved: the file system does not answer" |
        "{name} 无法解析：文件系统没有响应";
    pid_path_in_use(process: text, path: text) =
        "process {process} of this host is managed, or being operated, with the same pid_path {path}: stop or release it first" |
        "该主机上的进程 {process} 使用相同的 pid_path {path}，正被托管或操作：请先停止或取消托管";

    // Why it is not there.
    no_pid_file(path: text) = "no pid file {path}" | "没有 pid 文件 {path}";
    pid_file_is_a_link(path: text) = "pid file {path} is a symbolic link" | "pid 文件 {path} 是符号链接";
    pid_file_behind_links(path: text) =
        "pid file {path} is not read: its path leads through links of /proc, or through too many links" |
        "未读取 pid 文件 {path}：其路径经过 /proc 的链接或过多链接";
    pid_file_not_regular(path: text, kind: text) = "pid file {path} is a {kind}, not a regular file" | "pid 文件 {path} 是 {kind}，不是普通文件";
    pid_file_not_readable(path: text) =
        "pid file {path} is not readable for the process's user" |
        "进程的用户无权读取 pid 文件 {path}";
    pid_file_cannot_be_opened(path: text, error: text) = "pid file {path} cannot be opened: {error}" | "pid 文件 {path} 无法打开：{error}";
    pid_file_cannot_be_read(path: text, error: text) = "pid file {path} cannot be read: {error}" | "pid 文件 {path} 无法读取：{error}";
    pid_file_of_another_user(path: text, user: text) = "pid file {path} belongs to {user}" | "pid 文件 {path} 属于 {user}";
    pid_file_did_not_answer(path: text) = "pid file {path} did not answer" | "读取 pid 文件 {path} 超时";
    pid_file_has_no_pid_line(path: text) =
        "pid file {path} does not begin with a pid in a line of its own" |
        "pid 文件 {path} 的第一行不是 pid";
    pid_file_is_empty(path: text) = "pid file {path} is empty" | "pid 文件 {path} 为空";
    pid_file_has_no_pid(path: text) = "pid file {path} does not hold a pid" | "pid 文件 {path} 中没有 pid";
    pid_file_holds_0(path: text) = "pid file {path} holds 0, which is no pid" | "pid 文件 {path} 中是 0，不是 pid";
    pid_file_holds_1(path: text) = "pid file {path} holds 1, the pid of init" | "pid 文件 {path} 中是 1，即 init 的 pid";
    pid_file_holds_too_much(path: text) =
        "pid file {path} holds a number above every pid of Linux" |
        "pid 文件 {path} 中的数字超出 Linux 的 pid 范围";
    pid_does_not_run(pid: text, path: text) = "pid {pid} of {path} does not run" | "{pid} 号进程（{path}）没有运行";
    pid_has_just_ended(pid: text, path: text) = "pid {pid} of {path} has just ended" | "{pid} 号进程（{path}）刚刚结束";
    pid_is_a_zombie(pid: text, path: text) =
        "pid {pid} of {path} is a zombie" |
        "{pid} 号进程（{path}）已死亡，其父进程尚未回收";
    pid_is_a_thread(pid: text, path: text) = "pid {pid} of {path} is a thread, not a process" | "{pid}（{path}）是线程，不是进程";
    pid_is_a_kernel_thread(pid: text, path: text) = "pid {pid} of {path} is a thread of the kernel" | "{pid}（{path}）是内核线程";
    pid_cannot_be_looked_at(pid: text, path: text, error: text) =
        "pid {pid} of {path} cannot be inspected: {error}" |
        "无法查看 {pid} 号进程（{path}）：{error}";
    pid_is_another_program(pid: text, path: text, found: text, expected: text) =
        "pid {pid} of {path} is '{found}', not '{expected}'" |
        "{pid} 号进程（{path}）是 '{found}'，而不是 '{expected}'";
    pid_runs_as_another_user(pid: text, path: text, found: text, expected: text) =
        "pid {pid} of {path} runs as {found}, not as {expected}" |
        "{pid} 号进程（{path}）以 {found} 运行，而不是 {expected}";
    pid_of_another_process(path: text) =
        "the pid in {path} is that of another managed process" |
        "{path} 中的 pid 属于另一个托管进程";
    user_does_not_exist(user: text) = "user '{user}' does not exist on this host" | "用户 '{user}' 在该主机上不存在";
    user_without_answer(user: text) =
        "user '{user}' was not looked up in time" |
        "查询用户 '{user}' 超时";
    rights_cannot_be_taken(user: text, error: text) =
        "cannot assume the rights of user '{user}': {error}" |
        "无法获取用户 '{user}' 的权限：{error}";
    pid_file_is_stale(pid: text, path: text) =
        "process {pid} began after pid file {path} was written: the file is stale and the pid another's, or the clock \
         was set; if {pid} is the process run `touch {path}`, and if it is not remove the file" |
        "进程 {pid} 的启动时间晚于 pid 文件 {path} 的写入时间：文件已过期、pid 属于其他进程，或时钟被调整；如果 {pid} 就是该进程，请执行 `touch {path}`，否则请删除该文件";
    pid_started_for_another(pid: text, path: text) =
        "process {pid} began after pid file {path} was written, and was started for another managed process" |
        "进程 {pid} 的启动时间晚于 pid 文件 {path} 的写入时间，且是为另一个托管进程启动的";
    pid_file_holds_own_pid(path: text, pid: text) = "pid file {path} holds {pid}, the agent's own pid" | "pid 文件 {path} 中是 Agent 自己的 pid {pid}";
    process_of_before_runs(pid: text) = "the previous process {pid} is still running" | "之前的进程 {pid} 仍在运行";
    process_ended(pid: text) = "process {pid} ended" | "进程 {pid} 已结束";
    process_ended_with(pid: text, exit: message) = "process {pid} ended with {exit}" | "进程 {pid} 已结束，{exit}";
}
