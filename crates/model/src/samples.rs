//! A valid spec for tests, with nothing in it that a test does not ask for. Only with the feature `test-support`.

use std::sync::Arc;

use crate::{Control, Identity, Labels, Lifetime, Limits, Ownership, Policy, Spec};

/// A resident process `p` of root without commands, changed as the test wants.
#[allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "for tests, of constants")]
pub fn spec(change: impl FnOnce(&mut Spec)) -> Arc<Spec> {
    let mut spec = Spec {
        identity: Identity {
            proc_name: "p".parse().unwrap(),
            setup_path: "/".parse().unwrap(),
            pid_path: "/p.pid".parse().unwrap(),
            config_path: None,
            log_path: None,
            user: "root".parse().unwrap(),
            index_key: String::new(),
        },
        control: Control::default(),
        limits: Limits::default(),
        policy: Policy::new(Lifetime::Resident),
        ownership: Ownership::default(),
        report_id: None,
        configmap: Vec::new(),
        labels: Labels::default(),
    };
    change(&mut spec);
    Arc::new(spec)
}
