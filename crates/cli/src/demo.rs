//! The demo process of `proctor dev`: a shell script that prints a heartbeat every second, meant to be killed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use proctor_model::{
    Control as Commands, HostKey, Identity, Labels, Lifetime, Limits, OperationKind, Outcome, Ownership, Policy,
    ProcessKey, Seconds, Spec, TaskId,
};
use proctor_server::control::{
    Caller, Control, HostRef, SpecSource, Submission, SubmitOptions, SubmittedItem, SubmittedTarget,
};
use proctor_store::{ProcessQuery, RegisterMode};
use std::sync::Arc;

const SCRIPT_NAME: &str = "heartbeat.sh";
const SCRIPT: &str = include_str!("heartbeat.sh");
/// A demo that takes longer to start counts as failed in the welcome text.
const START_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// The directory of the demo.
#[derive(Debug)]
pub(crate) struct Demo {
    dir: PathBuf,
    user: String,
}

impl Demo {
    /// Writes the script.
    pub(crate) fn prepare(dir: PathBuf, user: String) -> Result<Self> {
        crate::serve::make_dir(&dir)?;
        let script = dir.join(SCRIPT_NAME);
        write_script(&script).with_context(|| format!("cannot write {}", script.display()))?;
        Ok(Self { dir, user })
    }

    pub(crate) fn key() -> ProcessKey {
        "demo/heartbeat".parse().expect("a constant that is well formed")
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.dir.join("heartbeat.pid")
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.dir.join("heartbeat.log")
    }

    /// Registers it, and starts it the first time; later it is as it was left.
    pub(crate) async fn play(&self, control: &Control, caller: &Caller, host: HostKey) -> Result<()> {
        let key = Self::key();
        let query = ProcessQuery {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            ..ProcessQuery::default()
        };
        let (known, _) = control.processes(caller, query, None).await?;
        let hosts = [HostRef::Key(host)];
        let outcomes =
            control.register(caller, &key, &Arc::new(self.spec()?).into(), &hosts, RegisterMode::Upsert).await?;
        if let Some(failed) = outcomes.iter().find(|outcome| !outcome.code.is_success()) {
            anyhow::bail!("the demo process cannot be registered: {}", failed.message);
        }
        if known > 0 {
            return Ok(());
        }
        let targets = hosts.map(|host| SubmittedTarget { row_key: host.to_string(), host });
        let item = SubmittedItem {
            key,
            kind: Some(OperationKind::Start),
            spec: SpecSource::Registered,
            targets: targets.to_vec(),
        };
        let options = SubmitOptions::default();
        let submission = Submission { caller: caller.clone(), family: "native", items: vec![item], options };
        let task = control.submit(submission).await?.task;
        let outcome = tokio::time::timeout(START_MAX, outcome_of(control, caller, task)).await;
        match outcome.context("the demo process gave no sign of life")?? {
            outcome if outcome.code.is_success() => Ok(()),
            outcome => anyhow::bail!("the demo process does not start: {}", outcome.message),
        }
    }

    fn spec(&self) -> Result<Spec> {
        let path = |path: &Path| {
            let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            text.parse().with_context(|| format!("cannot use {text}"))
        };
        let command = |word: &str| format!("./{SCRIPT_NAME} {word}").parse();
        let seconds = |count| Seconds::try_from(count);
        Ok(Spec {
            identity: Identity {
                proc_name: SCRIPT_NAME.parse()?,
                setup_path: path(&self.dir)?,
                pid_path: path(&self.pid_file())?,
                config_path: None,
                log_path: Some(path(&self.log_file())?.into()),
                user: self.user.parse()?,
                index_key: String::new(),
            },
            control: Commands {
                start: Some(command("start")?),
                stop: Some(command("stop")?),
                version: Some(command("version")?),
                ..Commands::default()
            },
            limits: Limits::default(),
            policy: Policy { start_check: seconds(0)?, start_interval: seconds(2)?, ..Policy::new(Lifetime::Resident) },
            ownership: Ownership::default(),
            report_id: None,
            configmap: Vec::new(),
            labels: Labels::default(),
        })
    }
}

/// Written to a new file and renamed: a running script must not change under its interpreter.
fn write_script(path: &Path) -> std::io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|text| text == SCRIPT) {
        return Ok(());
    }
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside); // it may have another mode
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(&beside)?;
    file.write_all(SCRIPT.as_bytes())?;
    drop(file);
    fs::rename(&beside, path)
}

async fn outcome_of(control: &Control, caller: &Caller, task: TaskId) -> Result<Outcome> {
    loop {
        let view = control.task(caller, task).await?.context("the demo's task is gone")?;
        if let Some(outcome) = view.targets.into_iter().find_map(|target| target.outcome) {
            return Ok(outcome);
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_a_legal_process_and_its_script_can_run() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();

        let demo = Demo::prepare(dir.path().join("demo"), "root".into()).unwrap();

        assert_eq!(demo.spec().unwrap().identity.proc_name.as_str(), SCRIPT_NAME);
        let script = dir.path().join("demo").join(SCRIPT_NAME);
        assert_eq!(fs::metadata(script).unwrap().permissions().mode() & 0o777, 0o755);
    }
}
