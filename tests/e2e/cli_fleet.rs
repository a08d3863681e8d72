//! The CLI for fleet operators: files, roles, audit, doctor.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use proctor_store::{AuditDraft, AuditPhase};
use proctor_testkit::{Fleet, Subject, binary};
use serde_json::{Value, json};

use crate::cli::{out, proctor};
use crate::hosts;

const IP: &str = "127.0.0.1";

fn json_out(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_compared_applied_and_pruned() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let dir = fleet.dir().join("declared");
    std::fs::create_dir(&dir).unwrap();
    let subjects = ["one", "two"].map(|name| Subject::new(fleet.dir(), name).unwrap());
    let write = |subject: &Subject, reload: &str| {
        let mut spec = subject.spec();
        spec["control"]["reload_cmd"] = json!(reload);
        let body = json!({"process": [{"meta": subject.meta(), "hosts": [IP], "spec": spec}]});
        std::fs::write(dir.join(format!("{}.json", subject.name)), body.to_string()).unwrap();
    };
    let path = dir.to_str().unwrap();
    write(&subjects[0], "echo a");
    write(&subjects[1], "echo a");
    std::fs::write(dir.join("pool.toml"), "[[pool]]\nnamespace = \"e2e\"\ncpu = 50\nmemory = 50\nall = true\n")
        .unwrap();

    let planned = proctor(&fleet, &["diff", "-f", path, "-o", "json"]);
    assert_eq!(planned.status.code(), Some(1), "{planned:?}");
    assert!(json_out(&planned).as_array().unwrap().iter().all(|step| step["action"] == "create"), "{planned:?}");
    let only_told = out(&proctor(&fleet, &["apply", "-f", path, "--plan"]));
    assert!(only_told.contains("+ process e2e/one on 0:127.0.0.1"), "{only_told}");
    assert!(!out(&proctor(&fleet, &["ps"])).contains("e2e/one"), "a plan changes nothing");

    out(&proctor(&fleet, &["apply", "-f", path]));
    let same = out(&proctor(&fleet, &["diff", "-f", path]));
    assert_eq!(same, "0 created, 0 changed, 0 deleted, 3 unchanged, 0 refused or failed\n");

    write(&subjects[0], "echo b");
    std::fs::remove_file(dir.join("two.json")).unwrap();
    let changed = out(&proctor(&fleet, &["apply", "-f", path]));
    assert!(
        changed.contains("~ process e2e/one on 0:127.0.0.1\n    control.reload: \"echo a\" -> \"echo b\"\n"),
        "{changed}"
    );
    assert!(out(&proctor(&fleet, &["ps"])).contains("e2e/two"), "nothing goes without --prune");

    std::fs::write(dir.join("zz.toml"), "[[process]]\nmeta = { namespace = \"e2e\" }\nall = true\nspec = {}\n")
        .unwrap();
    write(&subjects[0], "echo c");
    let bad = proctor(&fleet, &["apply", "-f", path, "--prune"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("zz.toml: process[0]: meta.name"), "{bad:?}");
    assert!(!out(&proctor(&fleet, &["show", "e2e/one", "-o", "json"])).contains("echo c"), "a bad file stops them all");
    let unknown = json!({"process": [{"meta": {"namespace": "e2e", "name": "x"}, "hosts": [IP], "spec": {}}]});
    std::fs::write(dir.join("zz.toml"), "").unwrap();
    std::fs::write(dir.join("zz.json"), unknown.to_string()).unwrap();
    let bad = proctor(&fleet, &["apply", "-f", path, "--prune"]);
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
    assert!(String::from_utf8_lossy(&bad.stderr).contains("zz.json: process[0]: spec"), "{bad:?}");
    let mut spec = subjects[0].spec();
    spec["control"]["strat_cmd"] = json!("true");
    let misspelt = json!({"process": [{"meta": {"namespace": "e2e", "name": "x"}, "hosts": [IP], "spec": spec}]});
    std::fs::write(dir.join("zz.json"), misspelt.to_string()).unwrap();
    let bad = proctor(&fleet, &["apply", "-f", path, "--prune"]);
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
    let told = String::from_utf8_lossy(&bad.stderr);
    assert!(told.contains("zz.json: process[0]: spec.control.strat_cmd: is not a field"), "{told}");
    std::fs::remove_file(dir.join("zz.json")).unwrap();

    let pruned = out(&proctor(&fleet, &["apply", "-f", path, "--prune"]));
    assert!(pruned.contains("- process e2e/two on 0:127.0.0.1"), "{pruned}");
    let left = out(&proctor(&fleet, &["ps"]));
    assert!(left.contains("e2e/one") && !left.contains("e2e/two"), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_one_namespace_is_refused_elsewhere_and_the_audit_knows() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    for (namespace, name) in [("mine", "subject-a"), ("theirs", "subject-b")] {
        let subject = Subject::new(fleet.dir(), name).unwrap();
        let body =
            json!({"meta": {"namespace": namespace, "name": name}, "hosts": hosts(&[IP]), "spec": subject.spec()});
        let file = fleet.dir().join(format!("{name}.json"));
        std::fs::write(&file, body.to_string()).unwrap();
        out(&proctor(&fleet, &["register", "-f", file.to_str().unwrap()]));
    }
    let url = fleet.url("");
    let made =
        out(&proctor(&fleet, &["app", "create", "limited", "--role", "operator@namespace:mine", "--server", &url]));
    let limited = |arguments: &[&str]| {
        Command::new(binary("proctor"))
            .args(arguments)
            .env("PROCTOR_SERVER", &url)
            .env("PROCTOR_APP_CODE", "limited")
            .env("PROCTOR_APP_SECRET", made.trim())
            .env("PROCTOR_USER", "limited")
            .output()
            .unwrap()
    };

    out(&limited(&["start", "mine/subject-a", "--host", IP]));
    let refused = limited(&["start", "theirs/subject-b", "--host", IP]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("may not operate in namespace theirs"), "{refused:?}");
    let not_admin = limited(&["user", "create", "x"]);
    assert_eq!(not_admin.status.code(), Some(3), "{not_admin:?}");
    out(&limited(&["stop", "mine/subject-a", "--host", IP]));

    let who = out(&limited(&["whoami"]));
    assert!(who.contains("app     limited\n") && who.contains("may     operate   on namespace:mine\n"), "{who}");
    let looked = out(&limited(&["doctor"]));
    assert!(looked.contains("read, operate on namespace:mine"), "{looked}");
    assert!(looked.lines().any(|line| line.starts_with("not checked  audit ")), "{looked}");

    assert!(out(&proctor(&fleet, &["binding", "list", "--subject", "app:limited"])).contains("namespace:mine"));
    let listed = out(&proctor(&fleet, &["audit", "list", "--app", "limited"]));
    assert!(listed.contains("refused"), "{listed}");
    let exported = out(&proctor(&fleet, &["audit", "export"]));
    assert!(exported.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert!(out(&proctor(&fleet, &["audit", "verify"])).contains("intact"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_belong_to_businesses_and_the_doctor_finds_who_is_away() {
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let csv = fleet.dir().join("hosts.csv");
    std::fs::write(&csv, format!("cloud,ip,business,business_name\n0,{IP},3,蓝鲸\n")).unwrap();

    out(&proctor(&fleet, &["hosts", "import", csv.to_str().unwrap()]));
    assert!(out(&proctor(&fleet, &["business", "list", "-o", "yaml"])).contains("name: 蓝鲸"));
    assert!(out(&proctor(&fleet, &["hosts", "--business", "3"])).contains(IP));
    assert!(!out(&proctor(&fleet, &["hosts", "--business", "4"])).contains(IP));
    let to_where = proctor(&fleet, &["hosts", "place", IP]);
    assert_eq!(to_where.status.code(), Some(2), "{to_where:?}");
    assert!(String::from_utf8_lossy(&to_where.stderr).contains("--nowhere"), "{to_where:?}");
    assert_eq!(out(&proctor(&fleet, &["hosts", "place", IP, "--nowhere"])), "1 host placed\n");
    assert!(!out(&proctor(&fleet, &["hosts", "--business", "3"])).contains(IP));
    let well = out(&proctor(&fleet, &["doctor"]));
    assert!(well.contains("1 of 1 are connected"), "{well}");
    let is_well = |line: &str| line.starts_with("ok ") || line.starts_with("not checked  server certificate ");
    assert!(well.lines().skip(1).all(is_well), "{well}");
    for found in ["1 agree with the server's", "the first expires in ", "no host has a policy", " days)"] {
        assert!(well.contains(found), "{found}: {well}");
    }
    // Only if two looks agree is it certain what the doctor saw.
    let told = proctor_testkit::eventually("nothing grows for a moment", || async {
        let before = fleet.get("/api/v1/storage").await.ok()?;
        let told = out(&proctor(&fleet, &["doctor"]));
        (fleet.get("/api/v1/storage").await.ok()?["tables"] == before["tables"]).then_some((before, told))
    })
    .await;
    assert_sizes_are_told(&told.0, &told.1);
    drop(agent);
    proctor_testkit::eventually("the doctor misses the agent", || async {
        let output = proctor(&fleet, &["doctor"]);
        String::from_utf8_lossy(&output.stdout).contains("1 of 1 are not connected").then_some(())
    })
    .await;
    let nobody = Command::new(binary("proctor"))
        .args(["doctor", "--server", "http://127.0.0.1:1", "--user-token", "x"])
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
}

/// The size of the whole, and the five largest tables with their sizes and rows.
fn assert_sizes_are_told(storage: &Value, told: &str) {
    let size = |bytes: &Value| match bytes.as_u64().unwrap() / 1024 {
        kibibytes @ ..1024 => format!("{kibibytes}K"),
        kibibytes => format!("{}M", kibibytes / 1024),
    };
    let tables = storage["tables"].as_array().unwrap();
    assert!(tables.iter().any(|table| table["rows"].as_u64() > Some(0)), "{storage}");
    let largest = tables.iter().take(5).map(|table| {
        format!("{} {} ({} rows)", table["table"].as_str().unwrap(), size(&table["bytes"]), table["rows"])
    });
    let expected = format!("{}: {}", size(&storage["bytes"]), largest.collect::<Vec<_>>().join(", "));
    let line = told.lines().find(|line| line.contains(" storage ")).unwrap_or_else(|| panic!("no sizes: {told}"));
    assert!(line.contains(&format!("  {expected}  ")), "{line}, not {expected}");
}

/// A data directory whose audit log fills a file of the archive, all of it old.
async fn old_audit(dir: &std::path::Path) {
    let data = dir.join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    let store = SqliteStore::open(&data.join("proctor.db")).await.unwrap();
    let draft = AuditDraft {
        phase: AuditPhase::Done,
        of: None,
        app: "old".to_owned(),
        user: "u".to_owned(),
        remote: None,
        request_id: String::new(),
        action: "start".to_owned(),
        classes: [].into_iter().collect(),
        target_count: 0,
        targets: Vec::new(),
        outcome: "done".to_owned(),
    };
    let appended = (0..10_003).map(|_| store.append_audit(draft.clone(), 7));
    futures::future::try_join_all(appended).await.unwrap();
    for _ in 0..2 {
        store.advance_uptime(std::time::Duration::from_secs(2 * 3600)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_audit_is_verified_together_with_the_store_and_changes_are_found() {
    let dir = tempfile::tempdir().unwrap();
    old_audit(dir.path()).await;
    let fleet = Fleet::start_in(dir, &["--keep-audit", "1m"]).await.unwrap();
    let archive = fleet.dir().join("data/audit");
    let file = archive.join("audit-000000000001-000000010000.jsonl");
    proctor_testkit::eventually("old entries are archived", || async {
        let verdict = fleet.get("/api/v1/audit/verify").await.unwrap();
        (verdict["archived"] == 10_000).then_some(())
    })
    .await;
    let verify = || proctor(&fleet, &["audit", "verify", "--archive", archive.to_str().unwrap()]);

    let whole = verify();
    let entries = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, entries.replacen("\"start\"", "\"stop\"", 1)).unwrap();
    let changed = verify();
    std::fs::write(&file, entries.lines().take(9_000).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let cut = verify();
    std::fs::remove_file(&file).unwrap();
    let missing = verify();

    out(&whole);
    let told = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told(&whole).contains("10000 archived entries in 1 files are intact."), "{whole:?}");
    for (bad, words) in [
        (&changed, "the archive is broken"),
        (&cut, "entries 9001 to 10000 are missing"),
        (&missing, "entries 1 to 10000 are missing"),
    ] {
        assert_eq!(bad.status.code(), Some(1), "{bad:?}");
        assert!(told(bad).contains(words), "{bad:?}");
    }
    assert!(out(&proctor(&fleet, &["audit", "verify"])).contains("intact"), "the store alone is a chain, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn local_administration_is_audited_and_makes_neither_a_second_app_nor_a_second_store() {
    let fleet = Fleet::start().await.unwrap();
    let (data, typo) = (fleet.dir().join("data"), fleet.dir().join("dada"));
    let local = |arguments: &[&str], dir: &std::path::Path| {
        let output = Command::new(binary("proctor")).args(arguments).arg("--data-dir").arg(dir).output().unwrap();
        (output.status.code(), out_of(&output.stdout), out_of(&output.stderr))
    };

    let (made, first, _) = local(&["app", "create", "local"], &data);
    let (twice, nothing, told) = local(&["app", "create", "local", "--trusted"], &data);
    let (rotated, second, _) = local(&["app", "rotate", "local"], &data);
    let (unknown, _, _) = local(&["app", "rotate", "nobody"], &data);
    let (lost, _, hint) = local(&["app", "create", "lost"], &typo);
    let (no_token, _, _) = local(&["token", "create"], &typo);

    assert_eq!((made, rotated), (Some(0), Some(0)));
    assert!(!first.is_empty() && !second.is_empty() && first != second);
    assert_eq!((twice, nothing.as_str()), (Some(2), ""), "{told}");
    assert!(told.contains("app local exists already: rotate its secret (`proctor app rotate local`)"), "{told}");
    assert_eq!((unknown, lost, no_token), (Some(2), Some(2), Some(2)));
    assert!(hint.contains("dada holds no store of a server (proctor.db): check --data-dir"), "{hint}");
    assert!(!typo.exists());
    let entries = fleet.get("/api/v1/audit?app=local:cli&limit=100").await.unwrap()["entries"].clone();
    let ended = entries.as_array().unwrap().iter().filter(|entry| entry["phase"] == "ended");
    let ended: Vec<(&str, &str)> =
        ended.map(|entry| (entry["action"].as_str().unwrap(), entry["outcome"].as_str().unwrap())).collect();
    assert_eq!(
        ended,
        [
            ("create_app", "done"), // the fleet's own
            ("create_app", "done"),
            ("create_app", "refused: app local exists already: rotate its secret (`proctor app rotate local`)"),
            ("rotate_app_secret", "done"),
            ("rotate_app_secret", "refused: app nobody is not known"),
        ]
    );
    assert_eq!(fleet.get("/api/v1/audit/verify").await.unwrap()["intact"], true);
}

fn out_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
