//! The files of `proctor apply`. A file is TOML or JSON and holds one registration, as `proctor register` takes it,
//! or lists `process` and `pool`. Promised: an error names the file, the entry and the field; an unknown field is
//! an error. Absent: whether the server accepts it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use proctor_client::{Hosts, PoolSetting};
use proctor_model::{FieldError, HostKey, ProcessKey};
use serde_json::{Map, Value, json};

use crate::commands::processes::read_body;

const FILES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 16;

/// Everything that the files ask for.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) processes: Vec<DeclaredProcess>,
    pub(super) pools: Vec<DeclaredPool>,
}

#[derive(Debug)]
pub(super) struct DeclaredProcess {
    /// Where it stands, for errors.
    pub(super) location: String,
    pub(super) key: ProcessKey,
    pub(super) hosts: Hosts,
    /// A registration without its hosts.
    pub(super) body: Map<String, Value>,
}

#[derive(Debug)]
pub(super) struct DeclaredPool {
    /// Where it stands, for errors.
    pub(super) location: String,
    pub(super) hosts: Hosts,
    pub(super) setting: PoolSetting,
}

/// Reads files, and the TOML and JSON files below directories, in the order of their names.
pub(super) fn read(paths: &[PathBuf]) -> Result<Declared> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            collect(path, 0, &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    let mut declared = Declared::default();
    for file in &files {
        let body = read_body(file)?;
        declared.add(&file.display().to_string(), body)?;
    }
    if declared.processes.is_empty() && declared.pools.is_empty() {
        bail!("the files declare no process and no pool");
    }
    Ok(declared)
}

fn collect(dir: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let context = || format!("cannot read directory {}", dir.display());
    if depth > DEPTH_MAX {
        bail!("{} lies more than {DEPTH_MAX} directories deep", dir.display());
    }
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(context)? {
        let entry = entry.with_context(context)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, depth + 1, files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml" || extension == "json") {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            bail!("there are more than {FILES_MAX} files");
        }
    }
    Ok(())
}

impl Declared {
    fn add(&mut self, file: &str, body: Value) -> Result<()> {
        let Value::Object(body) = body else { bail!("{file}: must be an object with meta, or with process and pool") };
        if body.contains_key("meta") {
            self.processes.push(process(file.to_owned(), body)?);
            return Ok(());
        }
        for (name, list) in body {
            let Value::Array(list) = list else { bail!("{file}: {name}: must be a list of tables") };
            for (index, entry) in list.into_iter().enumerate() {
                let location = format!("{file}: {name}[{index}]");
                let Value::Object(entry) = entry else { bail!("{location}: must be a table") };
                match name.as_str() {
                    "process" => self.processes.push(process(location, entry)?),
                    "pool" => self.pools.push(pool(location, entry)?),
                    _ => bail!("{file}: {name}: is not known here; there are process and pool"),
                }
            }
        }
        Ok(())
    }
}

fn process(location: String, mut body: Map<String, Value>) -> Result<DeclaredProcess> {
    let hosts = take_hosts(&location, &mut body)?;
    if let Some(other) = body.keys().find(|name| !matches!(name.as_str(), "meta" | "spec")) {
        bail!("{location}: {other}: is not known here; there are meta, spec, and hosts, business or all");
    }
    let meta = |field: &str| {
        let text = body.get("meta").and_then(|meta| meta.get(field)).and_then(Value::as_str);
        text.with_context(|| format!("{location}: meta.{field}: is missing or not text"))
    };
    let wrong = |field: &str, error: FieldError| anyhow!("{location}: meta.{field}: {}", error.problem);
    let namespace = meta("namespace")?.parse().map_err(|error| wrong("namespace", error))?;
    let name = meta("name")?.parse().map_err(|error| wrong("name", error))?;
    if !body.get("spec").is_some_and(Value::is_object) {
        bail!("{location}: spec: is missing or not a table");
    }
    Ok(DeclaredProcess { key: ProcessKey::new(namespace, name), location, hosts, body })
}

/// By default, a pool is that of its whole namespace and scores usage alone.
fn pool(location: String, mut body: Map<String, Value>) -> Result<DeclaredPool> {
    let hosts = take_hosts(&location, &mut body)?;
    if let (false, Some(namespace)) = (body.contains_key("id"), body.get("namespace").cloned()) {
        body.insert("id".into(), namespace);
    }
    for weight in ["cpu_weight", "memory_weight"] {
        let value = body.entry(weight).or_insert_with(|| json!(0));
        *value = match value.as_u64() {
            Some(0) => json!("usage"),
            Some(1) => json!("usage_by_limit"),
            Some(_) | None => bail!("{location}: {weight}: must be 0 or 1"),
        };
    }
    let setting = serde_path_to_error::deserialize(Value::Object(body)).map_err(|error| {
        let field = error.path().to_string();
        let field = if field == "." { String::new() } else { format!("{field}: ") };
        anyhow!("{location}: {field}{}", error.into_inner())
    })?;
    Ok(DeclaredPool { location, hosts, setting })
}

/// Exactly one of hosts (with its other spelling agent_id_list), business and all.
fn take_hosts(location: &str, body: &mut Map<String, Value>) -> Result<Hosts> {
    let mut found = Vec::new();
    for field in ["hosts", "agent_id_list", "business", "all"] {
        if let Some(value) = body.remove(field) {
            found.push((field, value));
        }
    }
    let [(field, value)] = found.as_slice() else {
        bail!("{location}: hosts: exactly one of hosts, business and all must be there");
    };
    match (*field, value) {
        ("all", Value::Bool(true)) => Ok(Hosts::All),
        ("business", value) => {
            let id =
                value.as_u64().with_context(|| format!("{location}: business: must be the number of a business"))?;
            Ok(Hosts::Business(id))
        }
        ("hosts" | "agent_id_list", Value::Array(list)) if !list.is_empty() => {
            let named = list.iter().enumerate().map(|(index, host)| {
                one_host(host).with_context(|| {
                    format!("{location}: {field}[{index}]: must be an IP address, CLOUD:IP, an agent id, or have ip")
                })
            });
            Ok(Hosts::These(named.collect::<Result<_>>()?))
        }
        ("all", _) => bail!("{location}: all: can only be true"),
        _ => bail!("{location}: {field}: must be a list of hosts, and not empty"),
    }
}

/// `CLOUD:IP` if an address is given in any form, otherwise the agent id.
fn one_host(host: &Value) -> Option<String> {
    if let Some(text) = host.as_str() {
        let name = text.parse::<HostKey>().map_or_else(|_| text.to_owned(), |key| key.to_string());
        return (!name.is_empty()).then_some(name);
    }
    let ip: std::net::IpAddr = host.get("ip")?.as_str()?.parse().ok()?;
    let cloud = host.get("bk_cloud_id").map_or(Some(0), Value::as_u64)?;
    Some(format!("{cloud}:{ip}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(name: &str, text: &str) -> Result<Declared> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        read(&[path])
    }

    fn error_of(name: &str, text: &str) -> String {
        format!("{:#}", read_one(name, text).unwrap_err())
    }

    #[test]
    fn a_file_holds_processes_and_pools() {
        let declared = read_one(
            "web.toml",
            r#"
            [[process]]
            meta = { namespace = "web", name = "进程" }
            hosts = ["10.0.0.1", "3:10.0.0.2", "a-1", { ip = "10.0.0.3", bk_cloud_id = 7 }]
            spec = { control = { start_cmd = "x" } }

            [[pool]]
            namespace = "web"
            cpu = 50
            memory = 40.5
            memory_weight = 1
            business = 3
            "#,
        )
        .unwrap();

        let process = &declared.processes[0];
        assert_eq!(process.key.to_string(), "web/进程");
        let hosts = ["0:10.0.0.1", "3:10.0.0.2", "a-1", "7:10.0.0.3"].map(String::from);
        assert_eq!(process.hosts, Hosts::These(hosts.to_vec()));
        assert!(process.location.ends_with("web.toml: process[0]"), "{}", process.location);
        let pool = &declared.pools[0];
        assert_eq!((pool.setting.id.as_str(), pool.setting.memory.get()), ("web", 40.5));
        assert_eq!(pool.hosts, Hosts::Business(3));
    }

    #[test]
    fn the_file_of_a_registration_is_taken_as_it_is() {
        let text = r#"{"meta": {"namespace": "web", "name": "a"}, "hosts": [{"ip": "10.0.0.1"}], "spec": {}}"#;

        assert_eq!(read_one("a.json", text).unwrap().processes.len(), 1);
    }

    #[test]
    fn a_mistake_is_reported_with_its_file_entry_and_field() {
        let process = |fields: &str| format!("[[process]]\nspec = {{}}\n{fields}");
        let cases = [
            (process("meta = { namespace = 'w', name = 'n' }"), "x.toml: process[0]: hosts: exactly one"),
            (process("meta = { namespace = 'w' }\nall = true"), "process[0]: meta.name: is missing"),
            (process("meta = { namespace = 'a:b', name = 'n' }\nall = true"), "process[0]: meta.namespace: "),
            (
                process("meta = { namespace = 'w', name = 'n' }\nall = true\nlables = {}"),
                "process[0]: lables: is not known",
            ),
            (process("meta = { namespace = 'w', name = 'n' }\nhosts = [1]"), "process[0]: hosts[0]: must be"),
            (process("meta = { namespace = 'w', name = 'n' }\nhosts = []"), "process[0]: hosts: must be a list"),
            ("[[pool]]\nnamespace = 'w'\ncpu = 101\nmemory = 1\nall = true".into(), "pool[0]: cpu: "),
            ("[[pool]]\nnamespace = 'w'\ncpu = 1\nall = true".into(), "missing field `memory`"),
            (
                "[[pool]]\nnamespace = 'w'\ncpu = 1\nmemory = 1\ncpu_weight = 2\nall = true".into(),
                "pool[0]: cpu_weight",
            ),
            ("[[proces]]\nx = 1".into(), "x.toml: proces: is not known"),
            ("x = [".into(), "x.toml is not well-formed TOML"),
            (String::new(), "declare no process and no pool"),
        ];
        for (text, expected) in cases {
            let error = error_of("x.toml", &text);
            assert!(error.contains(expected), "{text}\n{error}");
        }
    }

    #[test]
    fn a_directory_is_read_in_the_order_of_names_without_hidden_and_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, process: &str| {
            let text =
                format!("[[process]]\nmeta = {{ namespace = 'w', name = '{process}' }}\nall = true\nspec = {{}}");
            std::fs::write(dir.path().join(name), text).unwrap();
        };
        std::fs::create_dir(dir.path().join("a")).unwrap();
        write("b.toml", "second");
        write("a/x.toml", "first");
        write(".hidden.toml", "never");
        std::fs::write(dir.path().join("README.md"), "no").unwrap();

        let declared = read(&[dir.path().to_owned()]).unwrap();

        let names: Vec<String> = declared.processes.iter().map(|process| process.key.to_string()).collect();
        assert_eq!(names, ["w/first", "w/second"]);
    }
}
