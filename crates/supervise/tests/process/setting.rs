//! What the world is made of: a spec, and how the commands of its process behave.

use std::sync::Arc;

use proctor_model::Spec;

/// What the commands of the process under test do.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub start_takes_ms: u64,
    pub start_exit: i32,
    /// After the end of the start command; None: no process comes.
    pub appears_after_ms: Option<u64>,
    /// The start command is the process itself and ends with it.
    pub foreground: bool,
    /// How the health command exits; None: it gets no turn.
    pub health_exit: Option<i32>,
    pub health_takes_ms: u64,
    /// What the start command forks beside the process, and lives on when the command is ended.
    pub start_forks: u32,
    /// Commands of supervision get no slot among those of the host.
    pub no_slot: bool,
    /// What a life forks; they outlive it.
    pub children: u32,
    /// Not even SIGKILL ends them.
    pub children_resist: bool,
    /// What is left behind can be neither found nor ended.
    pub cannot_clear: bool,
    /// None: lives for ever.
    pub lives_ms: Option<u64>,
    pub stop_takes_ms: u64,
    pub stop_exit: i32,
    /// After the end of the stop command or a SIGTERM; None: it does not care.
    pub dies_after_ms: Option<u64>,
    /// Until the signals of a kill are sent, as on a machine with much else to kill.
    pub kill_sent_after_ms: u64,
    /// How many kills fail before their signals are sent.
    pub kills_fail: u32,
    /// After a SIGKILL, which may come while it is in uninterruptible sleep.
    pub killed_after_ms: u64,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            start_takes_ms: 20,
            start_exit: 0,
            appears_after_ms: Some(30),
            foreground: false,
            health_exit: Some(0),
            health_takes_ms: 10,
            start_forks: 0,
            no_slot: false,
            children: 0,
            children_resist: false,
            cannot_clear: false,
            lives_ms: None,
            stop_takes_ms: 20,
            stop_exit: 0,
            dies_after_ms: Some(50),
            kill_sent_after_ms: 0,
            kills_fail: 0,
            killed_after_ms: 0,
        }
    }
}

pub(crate) fn spec(change: impl FnOnce(&mut Spec)) -> Arc<Spec> {
    proctor_model::samples::spec(|spec| {
        spec.identity.pid_path = "/run/p.pid".parse().unwrap();
        spec.control.start = Some("start".parse().unwrap());
        spec.control.stop = Some("stop".parse().unwrap());
        change(spec);
    })
}
