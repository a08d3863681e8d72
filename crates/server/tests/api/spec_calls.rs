//! Every call that carries a spec, from the router's own tables, and a body for each.

use axum::http::Method;
use proctor_model::{OperationKind, ProcessKey};
use proctor_server::api;
use serde_json::{Value, json};

pub(crate) const IP: &str = "10.0.0.1";

/// The numbers that GSE and JOB's operate_process give to the operations.
pub(crate) const OPERATIONS: [(i64, OperationKind); 8] = [
    (0, OperationKind::Start),
    (1, OperationKind::Stop),
    (2, OperationKind::Status),
    (3, OperationKind::Manage),
    (4, OperationKind::Release),
    (7, OperationKind::Restart),
    (8, OperationKind::Reload),
    (9, OperationKind::Kill),
];

/// How a call writes a spec down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Register,
    NativeRegister,
    NativePlan,
    Operate,
    OperateBatch,
    Job,
    /// Its commands are fixed names, so it cannot carry others.
    JobScripts,
    /// Its op_type is 1 for manage and 2 for release.
    JobManage,
}

use Shape::{Job, JobManage, JobScripts, NativePlan, NativeRegister, Operate, OperateBatch, Register};

/// One route.
#[derive(Clone, Debug)]
pub(crate) struct SpecCall {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) shape: Shape,
}

/// What a spec says, as far as tests change it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<'a> {
    pub(crate) user: &'a str,
    pub(crate) setup_path: &'a str,
    pub(crate) pid_path: &'a str,
    pub(crate) config_path: Option<&'a str>,
    pub(crate) log_path: Option<&'a str>,
    /// Where the dialect has one.
    pub(crate) configmap: Option<&'a str>,
    /// Before the name of each command.
    pub(crate) command: &'a str,
}

impl Given<'_> {
    fn command(&self, name: &str) -> String {
        format!("{}{name}", self.command)
    }

    fn spec(&self) -> Value {
        let mut identity = json!({ "proc_name": "m", "setup_path": self.setup_path, "pid_path": self.pid_path,
                                   "user": self.user });
        for (field, path) in [("config_path", self.config_path), ("log_path", self.log_path)] {
            if let Some(path) = path {
                identity[field] = json!(path);
            }
        }
        let files: Vec<Value> = self.configmap.iter().map(|path| json!({ "path": path, "md5": "abc" })).collect();
        json!({
            "identity": identity,
            "control": {
                "start_cmd": self.command("start"), "stop_cmd": self.command("stop"),
                "restart_cmd": self.command("restart"), "reload_cmd": self.command("reload"),
                "kill_cmd": self.command("kill"), "version_cmd": self.command("version"),
                "health_cmd": self.command("health"),
            },
            "resource": { "cpu": 10, "mem": 10 },
            "monitor_policy": { "auto_type": 1 },
            "configmap": files,
        })
    }

    fn process_info(&self, name: &str) -> Value {
        let mut info = json!({
            "proc_name": name, "setup_path": self.setup_path, "pid_path": self.pid_path, "account": self.user, "type": 1,
            "start_cmd": self.command("start"), "stop_cmd": self.command("stop"),
            "restart_cmd": self.command("restart"), "reload_cmd": self.command("reload"),
            "kill_cmd": self.command("kill"), "ip_list": [{ "bk_cloud_id": 0, "ip": IP }],
        });
        for (field, path) in [("cfg_path", self.config_path), ("log_path", self.log_path)] {
            if let Some(path) = path {
                info[field] = json!(path);
            }
        }
        info
    }
}

/// All of them: a route that carries a spec and is not told apart here is missing from every walk.
pub(crate) fn spec_calls() -> Vec<SpecCall> {
    let of = |route: api::RouteInfo| {
        let name = route.path.rsplit('/').next()?;
        let is_job = route.path.contains("/job");
        let shape = match (route.method.as_str(), name) {
            ("POST", "processes") if route.path.starts_with("/api/v1/") => NativeRegister,
            ("POST", "plan") if route.path == "/api/v1/processes/plan" => NativePlan,
            ("POST", "register_proc_info" | "update_proc_info") | ("POST" | "PUT", "procinfo") => Register,
            ("POST", "operate_process") => Job,
            ("POST", "operate_proc") if is_job => JobScripts,
            ("POST", "manage_proc") => JobManage,
            ("POST", "operate_proc_v2") => Operate,
            ("POST", "operate") if route.path.contains("/v2/proc/") => Operate,
            ("POST", "operate_proc_multi" | "multioperate") => OperateBatch,
            _ => return None,
        };
        Some(SpecCall { method: route.method, path: route.path.replace("{stage}", "prod"), shape })
    };
    let calls: Vec<SpecCall> = api::routes().into_iter().filter_map(of).collect();
    // On the ESB 4, on three paths of the gateway 4 each, 4 of the backend, on two of JOB 3 each, and 2 native ones.
    assert_eq!(calls.len(), 4 + 3 * 4 + 4 + 2 * 3 + 2, "{calls:?}");
    calls
}

impl SpecCall {
    pub(crate) fn is_job(&self) -> bool {
        matches!(self.shape, Job | JobScripts | JobManage)
    }

    pub(crate) fn is_native(&self) -> bool {
        matches!(self.shape, NativeRegister | NativePlan)
    }

    /// Whether it makes a task.
    pub(crate) fn operates(&self) -> bool {
        matches!(self.shape, Operate | OperateBatch | Job | JobScripts | JobManage)
    }

    /// Whether this is another path of calls that the walk has seen elsewhere.
    pub(crate) fn is_alias(&self) -> bool {
        ["/api/v2/", "/api/c/compapi/v2/gse/api/v2/", "/api/c/compapi/v2/job/"]
            .iter()
            .any(|prefix| self.path.starts_with(prefix))
    }

    /// What a call answers that is refused as a whole.
    pub(crate) fn refused_code(&self) -> i64 {
        match () {
            () if self.is_job() => 9_900_403,
            () if self.path.contains("/api/v2/") => 1_640_301,
            () => 1_306_403,
        }
    }

    pub(crate) fn operations(&self) -> Vec<(i64, OperationKind)> {
        let is_offered = |kind| match self.shape {
            JobManage => matches!(kind, OperationKind::Manage | OperationKind::Release),
            Operate | OperateBatch | Job | JobScripts => true,
            Register | NativeRegister | NativePlan => kind == OperationKind::Manage,
        };
        OPERATIONS.into_iter().filter(|(_, kind)| is_offered(*kind)).collect()
    }

    /// Of the process `name` on the only host; `op_type` as in [`OPERATIONS`].
    pub(crate) fn body(&self, name: &str, op_type: i64, given: &Given<'_>) -> Value {
        let hosts = json!([{ "ip": IP, "bk_cloud_id": 0 }]);
        let registration =
            json!({ "meta": { "namespace": "web", "name": name }, "hosts": hosts, "spec": given.spec() });
        let mut item = registration.clone();
        item["op_type"] = json!(op_type);
        let job = |op_type| json!({ "bk_biz_id": 2, "op_type": op_type, "process_infos": [given.process_info(name)] });
        match self.shape {
            Register | NativeRegister | NativePlan => registration,
            Operate => item,
            OperateBatch => json!({ "proc_operate_req": [item] }),
            Job | JobScripts => job(op_type),
            JobManage => job(op_type - 2),
        }
    }

    pub(crate) fn key(&self, name: &str, setup_path: &str) -> ProcessKey {
        match self.is_job() {
            true => format!("job/{setup_path}/{name}").parse().unwrap(),
            false => format!("web/{name}").parse().unwrap(),
        }
    }
}
