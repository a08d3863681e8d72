//! The body of a registration: the form of register_proc_info, without unknown fields.
//!
//! One table defines the fields; the OpenAPI document and [`Registration::check`] are made from it. Absent: what
//! the values mean. The server reads them as it reads those of register_proc_info, liberal about forms (`"5"` for
//! 5, null for absent).

use proctor_model::{FieldError, messages};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// `meta`, `hosts` (or `agent_id_list`) and `spec`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Registration(pub Value);

enum Shape {
    Text,
    Integer,
    Number,
    /// Any names.
    Labels,
    Object(&'static [Field]),
    List(&'static Self),
}

struct Field {
    name: &'static str,
    shape: Shape,
    required: bool,
}

const fn must(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: true }
}

const fn may(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false }
}

const BODY: &[Field] = &[
    must("meta", Shape::Object(META)),
    may("hosts", Shape::List(&Shape::Object(HOST))),
    may("agent_id_list", Shape::List(&Shape::Text)),
    must("spec", Shape::Object(SPEC)),
];

const META: &[Field] = &[must("namespace", Shape::Text), must("name", Shape::Text), may("labels", Shape::Labels)];

const HOST: &[Field] =
    &[must("ip", Shape::Text), must("bk_cloud_id", Shape::Integer), may("bk_supplier_id", Shape::Integer)];

const SPEC: &[Field] = &[
    must("identity", Shape::Object(IDENTITY)),
    must("control", Shape::Object(CONTROL)),
    must("resource", Shape::Object(RESOURCE)),
    may("monitor_policy", Shape::Object(POLICY)),
    // Its other name in the documents.
    may("alive_monitor_policy", Shape::Object(POLICY)),
    may("warn_report_policy", Shape::Object(&[may("report_id", Shape::Integer)])),
    may("configmap", Shape::List(&Shape::Object(&[may("path", Shape::Text), may("md5", Shape::Text)]))),
];

const IDENTITY: &[Field] = &[
    must("proc_name", Shape::Text),
    must("setup_path", Shape::Text),
    must("pid_path", Shape::Text),
    must("user", Shape::Text),
    may("config_path", Shape::Text),
    may("log_path", Shape::Text),
    may("index_key", Shape::Text),
];

const CONTROL: &[Field] = &[
    may("start_cmd", Shape::Text),
    may("stop_cmd", Shape::Text),
    may("restart_cmd", Shape::Text),
    may("reload_cmd", Shape::Text),
    may("kill_cmd", Shape::Text),
    may("version_cmd", Shape::Text),
    may("health_cmd", Shape::Text),
];

const RESOURCE: &[Field] = &[
    may("cpu", Shape::Number),
    may("mem", Shape::Number),
    may("fd", Shape::Integer),
    may("disk", Shape::Integer),
    may("net", Shape::Integer),
];

const POLICY: &[Field] = &[
    must("auto_type", Shape::Integer),
    may("start_check_secs", Shape::Integer),
    may("stop_check_secs", Shape::Integer),
    may("start_retries", Shape::Integer),
    may("start_interval", Shape::Integer),
    may("op_timeout", Shape::Integer),
    may("crontab_rule", Shape::Text),
    // As all examples in the documents misspell it.
    may("crotab_rule", Shape::Text),
    may("cycle_time", Shape::Integer),
    may("instance_num", Shape::Integer),
    may("health_check", Shape::Object(HEALTH)),
];

const HEALTH: &[Field] = &[
    may("interval_secs", Shape::Integer),
    may("timeout_secs", Shape::Integer),
    may("failures", Shape::Integer),
    may("grace_secs", Shape::Integer),
];

impl Registration {
    /// Refuses an unknown field, so that a misspelt one is noticed.
    pub fn check(&self) -> Result<(), FieldError> {
        Shape::Object(BODY).check(&self.0)
    }
}

impl Shape {
    /// A value of an entirely different kind is left to whoever reads it.
    fn check(&self, value: &Value) -> Result<(), FieldError> {
        match (self, value) {
            (Self::Object(fields), Value::Object(given)) => {
                for (name, value) in given {
                    let field = fields.iter().find(|field| field.name == name).ok_or_else(|| unknown(name, fields))?;
                    field.shape.check(value).map_err(|error| error.inside(name))?;
                }
                Ok(())
            }
            (Self::List(item), Value::Array(items)) => {
                let one = |(index, value)| item.check(value).map_err(|error| error.inside(&format!("[{index}]")));
                items.iter().enumerate().try_for_each(one)
            }
            (Self::Object(_) | Self::List(_) | Self::Text | Self::Integer | Self::Number | Self::Labels, _) => Ok(()),
        }
    }

    fn schema(&self) -> RefOr<Schema> {
        let of = |kind| ObjectBuilder::new().schema_type(kind);
        let schema: Schema = match self {
            Self::Text => of(Type::String).build().into(),
            Self::Integer => of(Type::Integer).build().into(),
            Self::Number => of(Type::Number).build().into(),
            Self::Labels => ObjectBuilder::new()
                .additional_properties(Some(AdditionalProperties::RefOr(Self::Text.schema())))
                .build()
                .into(),
            Self::List(item) => ArrayBuilder::new().items(item.schema()).build().into(),
            Self::Object(fields) => object(fields).build().into(),
        };
        RefOr::T(schema)
    }
}

fn unknown(name: &str, fields: &[Field]) -> FieldError {
    let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
    FieldError::new(name, messages::is_not_a_field(known.join(", ")))
}

fn object(fields: &[Field]) -> ObjectBuilder {
    let closed = ObjectBuilder::new().additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    fields.iter().fold(closed, |object, field| {
        let object = object.property(field.name, field.shape.schema());
        if field.required { object.required(field.name) } else { object }
    })
}

impl PartialSchema for Registration {
    fn schema() -> RefOr<Schema> {
        let words = "The shape of register_proc_info, see docs/api.md; a field that is not here is refused.";
        object(BODY).description(Some(words)).build().into()
    }
}

impl ToSchema for Registration {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(body: Value) -> String {
        Registration(body).check().unwrap_err().to_string()
    }

    #[test]
    fn a_misspelt_field_is_named_by_its_path_with_what_there_is() {
        assert_eq!(
            problem(json!({ "meta": { "nmespace": "x" } })),
            "meta.nmespace: is not a field of this call; there are: namespace, name, labels"
        );
        let cases = [
            (json!({ "spec": { "control": { "strat_cmd": "x" } } }), "spec.control.strat_cmd: "),
            (
                json!({ "spec": { "monitor_policy": { "health_check": { "x": 1 } } } }),
                "spec.monitor_policy.health_check.x: ",
            ),
            (json!({ "hosts": [{ "ip": "10.0.0.1" }, { "pi": "10.0.0.2" }] }), "hosts[1].pi: "),
            (json!({ "spec": { "configmap": [{ "path": "/x", "sha": "" }] } }), "spec.configmap[0].sha: "),
            (json!({ "extra": null }), "extra: "),
        ];
        for (body, path) in cases {
            let problem = problem(body);
            assert!(problem.starts_with(path), "{problem}");
        }
    }

    #[test]
    fn labels_have_any_name_and_other_kinds_are_left_to_the_reader() {
        for body in [json!({ "meta": { "labels": { "any": 1 } } }), json!([]), json!({ "spec": [], "hosts": {} })] {
            assert_eq!(Registration(body).check(), Ok(()));
        }
    }
}
