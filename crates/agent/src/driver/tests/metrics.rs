//! What a scrape gets, and whether `ops/` and the documents name only that.

use std::collections::BTreeSet;

use tokio::sync::oneshot;

use super::*;
use crate::local::{LocalAnswer, LocalCall, LocalRequest};

/// Series and their values, by family. Refuses what Prometheus would: samples without a family of their name, a family
/// or series in two places, numbers that are none.
type Families = BTreeMap<String, BTreeMap<String, f64>>;

fn parsed(text: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            current = rest.split_once(' ').expect("a name and a text").0.to_owned();
            assert!(families.insert(current.clone(), BTreeMap::new()).is_none(), "{current} is there twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest.split_once(' ').unwrap().0, current);
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            let name = series.split('{').next().unwrap();
            assert!(name.starts_with(&current), "{line} in {current}");
            assert!(families.get_mut(&current).unwrap().insert(series.to_owned(), value).is_none(), "{line}");
        }
    }
    families
}

impl Stage {
    async fn scrape(&self, processes: bool) -> Families {
        let (answer, answered) = oneshot::channel();
        let request = LocalRequest::Metrics { processes };
        self.inbox.send(Input::Local(LocalCall { request, uid: 0, answer })).await.unwrap();
        let LocalAnswer::Metrics { text } = answered.await.unwrap() else { panic!("not metrics") };
        parsed(&text)
    }
}

#[tokio::test]
async fn a_scrape_tells_what_was_done_and_what_there_is() {
    let mut stage = Stage::new().await;
    let spec = stage.spec(|spec| spec.control.start = Some("exit 3".parse().unwrap()));
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_ne!(stage.outcome(start).await.code, Code::Success);

    let plain = stage.scrape(false).await;
    let full = stage.scrape(true).await;

    assert_eq!(plain["proctor_agent_commands_total"]["proctor_agent_commands_total{command=\"start\"}"], 1.0);
    assert_eq!(plain["proctor_agent_outcomes_total"].values().sum::<f64>(), 1.0);
    assert_eq!(plain["proctor_agent_processes"].values().sum::<f64>(), 1.0);
    assert!(plain["proctor_agent_ledger_write_seconds"]["proctor_agent_ledger_write_seconds_count"] >= 1.0);
    assert!(plain["proctor_agent_ledger_bytes"]["proctor_agent_ledger_bytes"] > 0.0);
    assert!(plain["process_resident_memory_bytes"]["process_resident_memory_bytes"] > 1e6);
    assert!(!plain.contains_key("proctor_agent_process_running"));
    let running = "proctor_agent_process_running{namespace=\"ns\",process=\"p\"}";
    assert_eq!(full["proctor_agent_process_running"][running], 0.0);
}

fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| word.starts_with("proctor_agent_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

#[tokio::test]
async fn dashboard_alerts_and_documents_name_what_there_is() {
    let stage = Stage::new().await;
    let metrics = stage.scrape(true).await;
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Only an agent with a link has these.
    let of_link = ["proctor_agent_server_heard_seconds", "proctor_agent_certificate_expiry_timestamp_seconds"];

    for file in ["ops/agent-dashboard.json", "ops/agent-alerts.yml"] {
        let names = named(&std::fs::read_to_string(top.join(file)).unwrap());
        assert!(names.len() > 8, "{file}: {names:?}");
        for name in names {
            let family = name.strip_suffix("_bucket").unwrap_or(&name);
            assert!(metrics.contains_key(family) || of_link.contains(&family), "{file} names {name}");
        }
    }
    let dashboard = std::fs::read_to_string(top.join("ops/agent-dashboard.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
    let documented = named(&std::fs::read_to_string(top.join("docs/operations/metrics.md")).unwrap());
    let missing: Vec<_> = metrics.keys().filter(|name| !documented.contains(*name)).collect();
    assert!(missing.is_empty(), "docs/operations/metrics.md lacks {missing:?}");
}
