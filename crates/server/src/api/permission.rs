//! What a refused caller lacks, in the format of BlueKing's services, so that a console can show what to apply for.

use proctor_model::HostKey;
use serde::Serialize;

use crate::control::Missing;

const SYSTEM: &str = "proctor";
const SYSTEM_NAME: &str = "Proctor";
const HOST: &str = "host";

/// The `permission` object of an answer.
#[derive(Clone, Debug, Serialize)]
pub struct Permission {
    system_id: &'static str,
    system_name: &'static str,
    actions: [Action; 1],
}

#[derive(Clone, Debug, Serialize)]
struct Action {
    /// A class of operations: read, operate, register, limits or admin.
    id: &'static str,
    name: &'static str,
    /// Empty where the class is needed everywhere.
    related_resource_types: Vec<Resources>,
}

#[derive(Clone, Debug, Serialize)]
struct Resources {
    system_id: &'static str,
    system_name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    type_name: &'static str,
    /// Each is a path of one step.
    instances: Vec<[Instance; 1]>,
}

#[derive(Clone, Debug, Serialize)]
struct Instance {
    #[serde(rename = "type")]
    kind: &'static str,
    type_name: &'static str,
    id: String,
    name: String,
}

impl From<&Missing> for Permission {
    fn from(missing: &Missing) -> Self {
        let is_host = |target: &&String| target.parse::<HostKey>().is_ok();
        let instance = |host: &String| [Instance { kind: HOST, type_name: HOST, id: host.clone(), name: host.clone() }];
        let instances: Vec<[Instance; 1]> = missing.targets.iter().filter(is_host).map(instance).collect();
        let hosts = Resources { system_id: SYSTEM, system_name: SYSTEM_NAME, kind: HOST, type_name: HOST, instances };
        let resources = if hosts.instances.is_empty() { Vec::new() } else { vec![hosts] };
        let class = missing.class.as_str();
        let action = Action { id: class, name: class, related_resource_types: resources };
        Self { system_id: SYSTEM, system_name: SYSTEM_NAME, actions: [action] }
    }
}
