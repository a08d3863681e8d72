//! What `proctor dev` prints when everything is up.

use std::path::Path;

use anyhow::{Context, Result};
use proctor_server::Server;
use serde_json::{Value, json};

use crate::demo::Demo;
use crate::profile::Profile;

const GSE: &str = "api/c/compapi/v2/gse";

pub(super) struct Welcome<'a> {
    pub(super) server: &'a Server,
    pub(super) dir: &'a Path,
    pub(super) profile: &'a Profile,
    pub(super) demo: &'a Demo,
    /// The account that the pasted process runs as.
    pub(super) user: &'a str,
    /// Where a browser is signed in, once.
    pub(super) console: String,
}

impl Welcome<'_> {
    pub(super) fn text(&self) -> Result<String> {
        let url = self.profile.server.as_deref().unwrap_or_default();
        let dir = self.dir.to_str().with_context(|| format!("{} is not UTF-8", self.dir.display()))?;
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let field = |text: &Option<String>| text.clone().unwrap_or_default();
        let (code, secret) = (field(&self.profile.app_code), field(&self.profile.app_secret));
        let (register, start) =
            (self.curl("register_proc_info", &registration(dir, self.user)), self.curl("operate_proc", &start()));
        let profile = quoted(&format!("{dir}/{}", super::PROFILE_FILE));
        Ok(format!(
            "Proctor serves.\n\
             \n\
             \x20 console     {url}{console}   (signs in once; later: proctor user sign-in-link)\n\
             \x20 HTTP        {url}   ({url}/healthz)\n\
             \x20 agents      {link}\n\
             \x20 data        {dir}\n\
             \x20 app code    {code}\n\
             \x20 app secret  {secret}\n\
             \n\
             {demo} writes a heartbeat into {log}. Kill it and watch it come back:\n\
             \n\
             \x20 kill -9 $(cat {pid}); sleep 1; tail -n 3 {log}\n\
             \n\
             Three commands to paste: register a process, start it, see how all are.\n\
             \n\
             {register}\n\
             \n\
             {start}\n\
             \n\
             {program} --profile {profile} ps\n\
             \n",
            console = self.console,
            link = self.server.link,
            demo = Demo::key(),
            log = quoted(&self.demo.log_file().to_string_lossy()),
            pid = quoted(&self.demo.pid_file().to_string_lossy()),
            program = quoted(&program.to_string_lossy()),
        ))
    }

    fn curl(&self, call: &str, body: &Value) -> String {
        let who = json!({
            "bk_app_code": self.profile.app_code,
            "bk_app_secret": self.profile.app_secret,
            "bk_username": self.profile.user,
        });
        let url = self.profile.server.as_deref().unwrap_or_default();
        format!(
            "curl -sS -w '\\n' {} -H {} -d {}",
            quoted(&format!("{url}/{GSE}/{call}/")),
            quoted(&format!("X-Bkapi-Authorization: {who}")),
            quoted(&body.to_string())
        )
    }
}

fn host() -> Value {
    json!({ "ip": super::HOST.ip, "bk_cloud_id": super::HOST.cloud, "bk_supplier_id": super::HOST.supplier })
}

fn meta() -> Value {
    json!({ "namespace": "demo", "name": "sleeper" })
}

/// A process that needs nothing but a shell.
fn registration(dir: &str, user: &str) -> Value {
    json!({
        "meta": meta(),
        "hosts": [host()],
        "spec": {
            "identity": {
                "proc_name": "sleep",
                "setup_path": format!("{dir}/demo"),
                "pid_path": format!("{dir}/demo/sleeper.pid"),
                "user": user,
            },
            "control": {
                "start_cmd": "sleep 1000 >/dev/null 2>&1 & echo $! > sleeper.pid",
                "stop_cmd": "kill $(cat sleeper.pid)",
            },
            "resource": { "cpu": 10, "mem": 10 },
            "monitor_policy": { "auto_type": 1, "start_check_secs": 1 },
        },
    })
}

fn start() -> Value {
    json!({ "meta": meta(), "op_type": 0, "hosts": [host()] })
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_stays_one_word() {
        assert_eq!(quoted("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
