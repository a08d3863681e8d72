//! The tables of docs/operations/metrics.md against what a real server and agent expose. `scripts/check-rules`
//! compares alert rules and dashboards with the tables; together they show that the rules refer to existing series.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use proctor_testkit::{Fleet, binary};

const IP: &str = "127.0.0.1";
/// Labels with a few values, all of them documented. Others come from routes, versions, codes and operations.
const CLOSED: [&str; 6] = ["change", "queue", "kind", "file", "certificate", "result"];
/// Its result is the name of any error.
const OF_CALLS: &str = "proctor_http_requests_total";

/// What the documents say about a metric: its labels, and the words in backticks next to it.
#[derive(Debug, Default)]
struct Row {
    labels: BTreeSet<String>,
    words: BTreeSet<String>,
}

fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn documented() -> BTreeMap<String, Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations/metrics.md");
    let mut rows = BTreeMap::<String, Row>::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let cells: Vec<&str> = line.splitn(4, '|').map(str::trim).collect();
        let [_, names, labels, what] = cells[..] else { continue };
        if !names.starts_with('`') {
            continue;
        }
        for name in quoted(names) {
            let row = rows.entry(name).or_default();
            row.labels.extend(labels.split(',').map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned));
            row.words.extend(quoted(what));
        }
    }
    assert!(rows.len() > 40, "{:?}", rows.keys());
    rows
}

/// Name and labels of a series: no value has a quotation mark in it.
fn series(line: &str) -> (&str, BTreeMap<&str, &str>) {
    let Some((name, rest)) = line.split_once('{') else { return (line.split(' ').next().unwrap(), BTreeMap::new()) };
    let (inside, _) = rest.rsplit_once('}').unwrap();
    let words: Vec<&str> = inside.split('"').collect();
    let labels = words.chunks_exact(2).map(|pair| (pair[0].trim_matches([',', '=']), pair[1]));
    (name, labels.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_their_values_are_those_of_the_documents() {
    let rows = documented();
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    fleet.get("/api/v1/hosts").await.unwrap();
    let of_server = fleet.question("/metrics").send().await.unwrap().text().await.unwrap();
    let of_agent = Command::new(binary("proctor-agent"))
        .args(["ctl", "metrics", "--state-dir"])
        .arg(agent.state_dir())
        .output()
        .unwrap();

    let mut compared = BTreeSet::new();
    let of_agent = String::from_utf8(of_agent.stdout).unwrap();
    for line in of_server.lines().chain(of_agent.lines()).filter(|line| !line.starts_with('#')) {
        let (name, mut labels) = series(line);
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let (name, row) =
            [Some(name), base].into_iter().flatten().find_map(|name| Some((name, rows.get(name)?))).unwrap();
        labels.remove("le");

        let names: BTreeSet<String> = labels.keys().map(|label| (*label).to_owned()).collect();
        assert_eq!(names, row.labels, "{line}");
        for (label, value) in labels {
            let is_open = !CLOSED.contains(&label) || name == OF_CALLS;
            assert!(is_open || row.words.contains(value), "{line}: '{value}' is not documented: {:?}", row.words);
        }
        compared.insert(name);
    }
    for name in ["proctor_http_requests_total", "proctor_store_operation_duration_seconds", "proctor_agent_queued"] {
        assert!(compared.contains(name), "{compared:?}");
    }
}
