//! Words and phrases that are inserted into messages. They are not messages of their own.

super::catalogue! { Agent:
    null() = "null" | "null";
    a_boolean() = "a boolean" | "布尔值";
    true_or_false() = "true or false" | "true 或 false";
    a_number() = "a number" | "数字";
    an_integer() = "an integer" | "整数";
    some_text() = "text" | "文本";
    a_list() = "a list" | "列表";
    an_object() = "an object" | "对象";

    start() = "start" | "启动";
    stop() = "stop" | "停止";
    status() = "status" | "查询状态";
    manage() = "manage" | "托管";
    release() = "release" | "取消托管";
    restart() = "restart" | "重启";
    reload() = "reload" | "重新加载";
    kill() = "kill" | "强制终止";

    class_read() = "read" | "查看（read）";
    class_operate() = "operate" | "操作（operate）";
    class_register() = "register" | "注册（register）";
    class_limits() = "limits" | "限额（limits）";
    class_admin() = "admin" | "管理（admin）";

    user_named(user: text) = "user {user}" | "用户 {user}";
    app_named(app: text) = "app {app}" | "应用 {app}";
    app_for_user(app: text, user: text) = "app {app} for user {user}" | "应用 {app}（用户 {user}）";
    everything() = "everything" | "所有资源";
    anything() = "anything" | "任何资源";
    /// Hosts, or anything else that has a name.
    named(names: text) = "{names}" | "{names}";
    concurrent_requests() = "concurrent requests" | "并发请求";
    waiting_requests() = "requests that wait for events" | "等待事件的请求";
    fleet_questions() = "queries of the whole fleet" | "对整个集群的查询";
    event_streams() = "event streams and audit exports" | "事件流和审计导出";
    business(id: text) = "business {id}" | "业务 {id}";
    business_set(id: text) = "business set {id}" | "业务集 {id}";
}
