//! The documents' own examples, what clients send instead, and what is rejected.

use std::sync::Arc;

use proctor_model::{Lifetime, Limits, OperationKind, Percent, Policy, Seconds, Spec, Weight};
use serde_json::{Value, json};

use super::*;
use crate::api::fields::testing::with;

/// As register_proc_info reads it.
fn registration(params: &crate::api::json::Value<'_>) -> Result<(Process, Arc<Spec>)> {
    let (process, given) = super::registration(params, RegisterMode::Create)?;
    Ok((process, given.spec))
}

fn secs(number: u32) -> Seconds {
    Seconds::try_from(number).unwrap()
}

/// The example of register_proc_info, on a host of ours.
fn register_example() -> Value {
    json!({
        "meta": {"namespace": "gse", "name": "proc-test", "labels": {"proc_name": "proc-test"}},
        "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 1, "bk_supplier_id": 2}],
        "spec": {
            "identity": {"index_key": "", "proc_name": "proc-test", "setup_path": "/data/gsetest/",
                "pid_path": "/data/gsetest/proc-test.pid", "config_path": "/data/gsetest/proc-test.conf",
                "log_path": "/data/gsetest/logs/", "user": "root"},
            "control": {"start_cmd": "./start.sh", "stop_cmd": "./stop.sh", "restart_cmd": "./restart.sh",
                "reload_cmd": "./reload.sh", "kill_cmd": "./kill.sh", "version_cmd": "./version.sh",
                "health_cmd": "./health.sh"},
            "resource": {"cpu": 10.0, "mem": 10.0, "fd": 10000, "disk": 100, "net": 0},
            "monitor_policy": {"auto_type": 1, "start_check_secs": 5, "stop_check_secs": 5, "start_retries": 3,
                "start_interval": 20, "crotab_rule": ""},
            "warn_report_policy": {"report_id": 0},
            "configmap": [{"path": "", "md5": ""}]
        }
    })
}

fn operate_example(op_type: i64) -> Value {
    json!({
        "meta": {"namespace": "gse", "name": "proc-test", "labels": {"proc_name": "proc-test"}},
        "op_type": op_type,
        "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 1, "bk_supplier_id": 2}]
    })
}

fn group_example() -> Value {
    json!({
        "meta": {"namespace": "gse", "name": "", "labels": {}},
        "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 1, "bk_supplier_id": 2}],
        "spec": {"process_group": [{"id": "gse", "resource": {
            "cpu_pool_limit": 20, "mem_pool_limit": 20, "cpu_pool_weight": 0, "mem_pool_weight": 0}}]}
    })
}

/// The example of an operation of the second generation.
fn operation_with_spec_example() -> Value {
    let mut body = operate_example(0);
    body["spec"] = register_example()["spec"].clone();
    body
}

#[test]
fn the_example_of_register_is_kept_field_by_field() {
    let (process, spec) = registration(&(&register_example()).into()).unwrap();

    assert_eq!(process.key.to_string(), "gse/proc-test");
    assert_eq!(process.row_keys, ["1:2:10.0.0.1:gse:proc-test"]);
    assert_eq!(spec.identity.setup_path.as_str(), "/data/gsetest/");
    assert_eq!(spec.identity.config_path.as_ref().unwrap().as_str(), "/data/gsetest/proc-test.conf");
    assert_eq!(spec.control.health.as_ref().unwrap().as_str(), "./health.sh");
    let ten = Percent::try_from(10.0).ok();
    assert_eq!(spec.limits, Limits { cpu: ten, memory: ten, fd: Some(10000), disk: Some(100), net: Some(0) });
    let expected = Policy { start_retries: 3, start_interval: secs(20), ..Policy::new(Lifetime::Resident) };
    assert_eq!(spec.policy, expected);
    assert_eq!(spec.report_id, Some(0));
    assert!(spec.configmap.is_empty());
    assert_eq!(spec.labels.get("proc_name"), Some("proc-test"));
}

#[test]
fn the_example_of_operate_operates_what_is_registered() {
    let items = operation_v1(&(&operate_example(0)).into()).unwrap();

    assert_eq!(items.len(), 1);
    assert_eq!(items[0].kind, Some(OperationKind::Start));
    assert!(matches!(items[0].spec, SpecSource::Registered));
    assert_eq!(items[0].targets[0].row_key, "1:2:10.0.0.1:gse:proc-test");
}

#[test]
fn the_example_of_groups_is_one_pool() {
    let change = pool_change(&(&group_example()).into()).unwrap();

    assert_eq!(change.row_keys, ["1:2:10.0.0.1:gse"]);
    assert_eq!(change.pools.len(), 1);
    assert_eq!(change.pools[0].id.as_str(), "gse");
    assert_eq!(change.pools[0].limits.cpu.get(), 20.0);
    assert_eq!(change.pools[0].limits.memory_weight, Weight::Usage);
}

#[test]
fn a_policy_may_have_its_other_name_and_hold_zeroes_and_nulls() {
    let policy = json!({"auto_type": "2", "start_check_secs": 0, "stop_check_secs": 0, "start_retries": null,
        "start_interval": 0, "op_timeout": null, "crontab_rule": "*/5 * * * *"});
    let mut body = with(register_example(), "/spec/alive_monitor_policy", policy);
    body["spec"].as_object_mut().unwrap().remove("monitor_policy");

    let (_, spec) = registration(&(&body).into()).unwrap();

    let expected = Policy {
        start_check: secs(0),
        start_interval: secs(0),
        crontab_rule: Some("*/5 * * * *".parse().unwrap()),
        ..Policy::new(Lifetime::Once)
    };
    assert_eq!(spec.policy, expected);
}

#[test]
fn empty_texts_and_zero_limits_mean_that_there_is_none() {
    let body = with(register_example(), "/spec/control", json!({"start_cmd": "", "stop_cmd": " ", "kill_cmd": null}));
    let body = with(body, "/spec/resource", json!({"cpu": 0, "mem": null}));
    let body = with(body, "/spec/identity/config_path", json!(""));

    let (_, spec) = registration(&(&body).into()).unwrap();

    assert_eq!(spec.control, proctor_model::Control::default());
    assert_eq!(spec.limits, Limits::default());
    assert_eq!(spec.identity.config_path, None);
}

#[test]
fn labels_of_any_scalar_type_become_text() {
    let body = with(register_example(), "/meta/labels", json!({"a": 7001, "b": true, "c": "x", "d": null}));

    let (_, spec) = registration(&(&body).into()).unwrap();

    let labels: Vec<&str> = spec.labels.iter().map(|(_, value)| value).collect();
    assert_eq!(labels, ["7001", "true", "x", ""]);
}

#[test]
fn agent_ids_win_over_hosts_and_are_echoed_as_written() {
    let mut body = operation_with_spec_example();
    body["agent_id_list"] = json!(["020000000242010a00002f17521298676503", "0:10.0.0.2"]);

    let items = operation_v2(&(&body).into()).unwrap();

    let keys: Vec<&str> = items[0].targets.iter().map(|target| target.row_key.as_str()).collect();
    assert_eq!(keys, ["020000000242010a00002f17521298676503:gse:proc-test", "0:10.0.0.2:gse:proc-test"]);
    assert!(matches!(items[0].targets[0].host, HostRef::Agent(_)));
    assert!(matches!(items[0].targets[1].host, HostRef::Key(_)));
}

#[test]
fn an_empty_agent_id_list_leaves_the_word_to_hosts() {
    let mut body = operation_with_spec_example();
    body["agent_id_list"] = json!([]);

    let items = operation_v2(&(&body).into()).unwrap();

    assert_eq!(items[0].targets[0].row_key, "1:10.0.0.1:gse:proc-test");
}

#[test]
fn a_status_query_takes_any_spec_and_uses_one_that_is_complete() {
    let complete = with(operation_with_spec_example(), "/op_type", json!(2));
    let zeroes = with(complete.clone(), "/spec/identity/setup_path", json!(""));
    let none = operate_example(2);

    for (body, is_given) in [(complete, true), (zeroes, false), (none, false)] {
        let items = operation_v2(&(&body).into()).unwrap();

        assert_eq!(items[0].kind, Some(OperationKind::Status));
        assert_eq!(matches!(items[0].spec, SpecSource::Given(_)), is_given);
    }
}

#[test]
fn an_op_type_that_means_nothing_is_left_to_the_rows() {
    for op_type in [-1, 5, 6, 10] {
        let items = operation_v2(&(&operate_example(op_type)).into()).unwrap();

        assert_eq!(items[0].kind, None);
    }
}

#[test]
fn thirty_thousand_targets_are_one_item() {
    let ids: Vec<String> = (0..30_000).map(|number| format!("agent-{number}")).collect();
    let item = with(operate_example(2), "/agent_id_list", json!(ids));

    let items = batch(&(&json!({"proc_operate_req": [item]})).into()).unwrap();

    assert_eq!(items[0].targets.len(), 30_000);
}

#[test]
fn what_does_not_fit_a_registration_is_refused_by_its_path() {
    let long = "x".repeat(129);
    let cases = [
        ("/meta", json!(null), "meta: is missing"),
        ("/meta", json!([]), "meta: must be an object, not a list"),
        ("/meta/namespace", json!(null), "meta.namespace: is missing"),
        ("/meta/namespace", json!("a:b"), "meta.namespace: must not contain ':'"),
        ("/meta/name", json!(""), "meta.name: must not be empty"),
        ("/meta/name", json!("a\nb"), "meta.name: must not contain control characters"),
        ("/meta/name", json!(long), "meta.name: must not be longer than 128 characters"),
        ("/meta/labels", json!({"a": [1]}), "meta.labels.a: must be text, a number or a boolean"),
        ("/hosts", json!(null), "hosts: is missing"),
        ("/hosts", json!([]), "hosts: must name at least one host"),
        ("/hosts", json!("10.0.0.1"), "hosts: must be a list, not text"),
        ("/hosts/0", json!("10.0.0.1"), "hosts[0]: must be an object, not text"),
        ("/hosts/0/ip", json!(7), "hosts[0].ip: must be text, not a number"),
        ("/hosts/0/ip", json!("a\tb"), "hosts[0].ip: must not contain control characters"),
        ("/hosts/0/ip", json!(long), "hosts[0].ip: must not be longer than 128 characters"),
        ("/hosts/0/ip", json!(null), "hosts[0].ip: is missing"),
        ("/hosts/0/bk_cloud_id", json!(-1), "hosts[0].bk_cloud_id: -1 must not be negative"),
        ("/hosts/0/bk_cloud_id", json!(0.5), "hosts[0].bk_cloud_id: 0.5 is not an integer"),
        ("/hosts/0/bk_cloud_id", json!("x"), "hosts[0].bk_cloud_id: \"x\" is not an integer"),
        ("/hosts/0/bk_cloud_id", json!(null), "hosts[0].bk_cloud_id: is missing"),
        ("/hosts/0/bk_supplier_id", json!(-2), "hosts[0].bk_supplier_id: -2 must not be negative"),
        ("/agent_id_list", json!([7]), "agent_id_list[0]: must be text, not a number"),
        ("/agent_id_list", json!(["a", long]), "agent_id_list[1]: must not be longer than 128 characters"),
        ("/spec", json!(null), "spec: is missing"),
        ("/spec/identity", json!(null), "spec.identity: is missing"),
        ("/spec/identity/user", json!(null), "spec.identity.user: is missing"),
        ("/spec/identity/user", json!(""), "spec.identity.user: must not be empty"),
        ("/spec/identity/proc_name", json!("a/b"), "spec.identity.proc_name: must be a file name without '/'"),
        ("/spec/identity/setup_path", json!("data"), "spec.identity.setup_path: 'data' must be an absolute path"),
        ("/spec/identity/pid_path", json!("/a/../b"), "spec.identity.pid_path: '/a/../b' must not contain '..'"),
        ("/spec/identity/log_path", json!("x"), "spec.identity.log_path: 'x' must be an absolute path"),
        ("/spec/control", json!(null), "spec.control: is missing"),
        ("/spec/control/start_cmd", json!(7), "spec.control.start_cmd: must be text, not a number"),
        ("/spec/resource", json!(null), "spec.resource: is missing"),
        ("/spec/resource/cpu", json!(100.5), "spec.resource.cpu: 100.5 is not a percentage between 0 and 100"),
        ("/spec/resource/mem", json!("many"), "spec.resource.mem: \"many\" is not a number"),
        ("/spec/resource/fd", json!(-1), "spec.resource.fd: -1 must not be negative"),
        ("/spec/monitor_policy", json!(null), "spec.monitor_policy: is missing"),
        ("/spec/monitor_policy/auto_type", json!(null), "spec.monitor_policy.auto_type: is missing"),
        (
            "/spec/monitor_policy/auto_type",
            json!(3),
            "spec.monitor_policy.auto_type: 3 is none of 0 (periodic), 1 (resident), 2 (once)",
        ),
        (
            "/spec/monitor_policy/auto_type",
            json!(0),
            "spec.monitor_policy.crontab_rule: is missing: a periodic process needs a schedule",
        ),
        (
            "/spec/monitor_policy/start_check_secs",
            json!(-5),
            "spec.monitor_policy.start_check_secs: -5 must not be negative",
        ),
        (
            "/spec/monitor_policy/op_timeout",
            json!(604_801),
            "spec.monitor_policy.op_timeout: 604801 is more than 604800 seconds",
        ),
        ("/spec/configmap/0/path", json!("etc"), "spec.configmap[0].path: 'etc' must be an absolute path"),
    ];
    for (pointer, value, expected) in cases {
        let error = registration(&(&with(register_example(), pointer, value)).into()).unwrap_err();

        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_bad_schedule_is_refused_under_either_spelling() {
    for field in ["crontab_rule", "crotab_rule"] {
        let body = with(register_example(), &format!("/spec/monitor_policy/{field}"), json!("60 * * * *"));

        let error = registration(&(&body).into()).unwrap_err();

        assert_eq!(error.field, format!("spec.monitor_policy.{field}"));
    }
}

#[test]
fn a_target_that_is_repeated_with_the_same_request_is_one() {
    let one = operation_with_spec_example();
    let twice = with(one.clone(), "/hosts", json!([one["hosts"][0], one["hosts"][0]]));
    let elsewhere = with(one.clone(), "/hosts/0/ip", json!("10.0.0.2"));

    let in_one_item = operation_v2(&(&twice).into()).unwrap();
    let in_items = batch(&(&json!({"proc_operate_req": [one, elsewhere, twice]})).into()).unwrap();
    let v1 = operation_v1(&(&with(operate_example(0), "/hosts", twice["hosts"].clone())).into()).unwrap();
    let (registered, _) = registration(&(&with(register_example(), "/hosts", twice["hosts"].clone())).into()).unwrap();

    assert_eq!(in_one_item[0].targets.len(), 1);
    let keys: Vec<&str> = in_items.iter().flat_map(|item| &item.targets).map(|target| &*target.row_key).collect();
    assert_eq!(keys, ["1:10.0.0.1:gse:proc-test", "1:10.0.0.2:gse:proc-test"]);
    assert_eq!((v1[0].targets.len(), registered.row_keys.len()), (1, 1));
}

#[test]
fn a_target_that_is_repeated_with_another_request_is_refused_with_both_paths() {
    let one = operation_with_spec_example();
    let stop = with(one.clone(), "/op_type", json!(1));
    let other_spec = with(one.clone(), "/spec/control/start_cmd", json!("./other.sh"));
    let other_labels = with(one.clone(), "/meta/labels", json!(null));
    let by_id = |body: &Value| with(with(body.clone(), "/agent_id_list", json!(["a", "b"])), "/hosts", json!(null));

    for other in [stop.clone(), other_spec, other_labels] {
        let error = batch(&(&json!({"proc_operate_req": [one, other]})).into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "proc_operate_req[1].hosts[0]: target 1:10.0.0.1:gse:proc-test is also at proc_operate_req[0].hosts[0], \
             with another operation or spec"
        );
    }
    let mixed = batch(&(&json!({"proc_operate_req": [by_id(&one), by_id(&stop)]})).into()).unwrap_err();
    assert_eq!(mixed.field, "proc_operate_req[1].agent_id_list[0]");
    assert!(mixed.problem.contains(" at proc_operate_req[0].agent_id_list[0],"), "{mixed}");
}

#[test]
fn names_of_one_host_that_differ_have_a_row_each() {
    let by_supplier =
        json!([{"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_supplier_id": 1}, {"ip": "10.0.0.1", "bk_cloud_id": 0}]);
    let by_spelling = json!([{"ip": "fe80::1", "bk_cloud_id": 0}, {"ip": "fe80:0::1", "bk_cloud_id": 0}]);

    let keys = |hosts| registration(&(&with(register_example(), "/hosts", hosts)).into()).unwrap().0.row_keys;

    assert_eq!(keys(by_supplier), ["0:1:10.0.0.1:gse:proc-test", "0:0:10.0.0.1:gse:proc-test"]);
    assert_eq!(keys(by_spelling), ["0:0:fe80::1:gse:proc-test", "0:0:fe80:0::1:gse:proc-test"]);
}

#[test]
fn an_address_or_id_that_can_be_none_keeps_its_row() {
    let address = with(operation_with_spec_example(), "/hosts/0/ip", json!(""));
    let ids = with(operation_with_spec_example(), "/agent_id_list", json!(["0:", "x:10.0.0.1", "a b", "", "0:None"]));

    let by_address = operation_v2(&(&address).into()).unwrap();
    let by_id = operation_v2(&(&ids).into()).unwrap();
    let (registered, _) = registration(&(&with(register_example(), "/hosts/0/ip", json!("host-a"))).into()).unwrap();

    assert_eq!(by_address[0].targets[0].row_key, "1::gse:proc-test");
    let keys: Vec<&str> = by_id[0].targets.iter().map(|target| target.row_key.split(":gse").next().unwrap()).collect();
    assert_eq!(keys, ["0:", "x:10.0.0.1", "a b", "", "0:None"]);
    assert!(by_id[0].targets.iter().all(|target| matches!(target.host, HostRef::Unusable(_))));
    assert_eq!(registered.row_keys, ["1:2:host-a:gse:proc-test"]);
}

#[test]
fn an_operation_on_no_host_is_refused_by_the_field_that_the_caller_used() {
    let one = operation_with_spec_example();
    let of = |hosts: Value, ids: Value| {
        let body = with(with(one.clone(), "/hosts", hosts), "/agent_id_list", ids);
        operation_v2(&(&body).into()).unwrap_err().to_string()
    };

    assert_eq!(of(json!([]), json!(null)), "hosts: must name at least one host");
    assert_eq!(of(json!([]), json!([])), "hosts: must name at least one host");
    assert_eq!(of(json!(null), json!([])), "agent_id_list: must name at least one host");
    assert_eq!(of(json!(null), json!(null)), "hosts: is missing");
}

#[test]
fn a_query_of_no_host_is_no_mistake() {
    let none = json!({"meta": {"namespace": "a", "name": "b"}, "agent_id_list": []});

    assert!(status_query(&(&none).into(), KeyStyle::WithoutSupplier).unwrap().1.is_empty());
    assert!(agent_query(&(&none).into()).unwrap().is_empty());
    assert!(pool_query(&(&none).into()).unwrap().1.is_empty());
    assert_eq!(agent_query(&(&json!({})).into()).unwrap_err().to_string(), "hosts: is missing");
}

#[test]
fn a_periodic_process_needs_a_schedule_where_its_spec_is_stored() {
    let periodic = with(operation_with_spec_example(), "/spec/monitor_policy", json!(null));
    let periodic = with(periodic, "/spec/alive_monitor_policy", json!({"auto_type": 0}));
    let of = |op_type: i64, body: &Value| operation_v2(&(&with(body.clone(), "/op_type", json!(op_type))).into());

    for stores in [0, 3, 7] {
        assert_eq!(
            of(stores, &periodic).unwrap_err().to_string(),
            "spec.alive_monitor_policy.crontab_rule: is missing: a periodic process needs a schedule"
        );
        for (field, value) in [("crontab_rule", json!("* * * * *")), ("cycle_time", json!(31_622_400))] {
            let scheduled = with(periodic.clone(), &format!("/spec/alive_monitor_policy/{field}"), value);
            assert!(of(stores, &scheduled).is_ok(), "{field}");
        }
    }
    for only_uses in [1, 2, 4, 8, 9] {
        assert!(matches!(of(only_uses, &periodic).unwrap()[0].spec, SpecSource::Given(_)), "{only_uses}");
    }
}

#[test]
fn what_a_call_omits_is_known_to_be_omitted() {
    let omitted = |body: &Value| match &operation_v2(&body.into()).unwrap()[0].spec {
        SpecSource::Given(given) => (given.omitted.labels, given.omitted.limits),
        SpecSource::Registered | SpecSource::Again(_) => panic!("the spec is given"),
    };
    let whole = operation_with_spec_example();
    let empty = with(with(whole.clone(), "/meta/labels", json!({})), "/spec/resource", json!({}));
    let less = with(with(whole.clone(), "/meta/labels", json!(null)), "/spec/resource", json!(null));
    let update = with(register_example(), "/spec/resource", json!(null));

    assert_eq!((omitted(&whole), omitted(&empty), omitted(&less)), ((false, false), (false, false), (true, true)));
    let (_, given) = super::registration(&(&update).into(), RegisterMode::Upsert).unwrap();
    assert!(given.omitted.limits && !given.omitted.labels);
    assert_eq!(registration(&(&update).into()).unwrap_err().to_string(), "spec.resource: is missing");
}

#[test]
fn what_does_not_fit_a_batch_is_refused_by_its_path() {
    let good = operation_with_spec_example();
    let cases = [
        (json!({}), "proc_operate_req: is missing"),
        (json!({"proc_operate_req": []}), "proc_operate_req: must hold at least one operation"),
        (json!({"proc_operate_req": [7]}), "proc_operate_req[0]: must be an object, not a number"),
        (
            json!({"proc_operate_req": [good.clone(), with(good.clone(), "/op_type", json!(null))]}),
            "proc_operate_req[1].op_type: is missing",
        ),
        (
            json!({"proc_operate_req": [with(good.clone(), "/op_type", json!("x"))]}),
            "proc_operate_req[0].op_type: \"x\" is not an integer",
        ),
        (
            json!({"proc_operate_req": [with(good, "/spec/identity/pid_path", json!(null))]}),
            "proc_operate_req[0].spec.identity.pid_path: is missing",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(batch(&(&body).into()).unwrap_err().to_string(), expected);
    }
}

#[test]
fn what_does_not_fit_a_pool_is_refused_by_its_path() {
    let group = group_example()["spec"]["process_group"][0].clone();
    let at = "spec.process_group";
    let cases = [
        ("/spec/process_group", json!([]), format!("{at}: must hold at least one group")),
        ("/spec/process_group", json!(null), format!("{at}: is missing")),
        ("/spec/process_group", json!([group, group]), format!("{at}[1].id: group 'gse' is listed twice")),
        ("/spec/process_group/0/id", json!(""), format!("{at}[0].id: must not be empty")),
        (
            "/spec/process_group/0/resource/cpu_pool_weight",
            json!(2),
            format!("{at}[0].resource.cpu_pool_weight: 2 is neither 0 nor 1"),
        ),
        (
            "/spec/process_group/0/resource/mem_pool_weight",
            json!(null),
            format!("{at}[0].resource.mem_pool_weight: is missing"),
        ),
        (
            "/spec/process_group/0/resource/cpu_pool_limit",
            json!(-1),
            format!("{at}[0].resource.cpu_pool_limit: -1 is not a percentage between 0 and 100"),
        ),
        (
            "/spec/process_group/0/resource/mem_pool_limit",
            json!(null),
            format!("{at}[0].resource.mem_pool_limit: is missing"),
        ),
    ];
    for (pointer, value, expected) in cases {
        let error = pool_change(&(&with(group_example(), pointer, value)).into()).unwrap_err();

        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn pages_have_at_most_a_thousand_rows() {
    let query = |page| listing(&(&json!({"meta": {"namespace": "gse"}, "page": page})).into());

    let given = query(json!({"start": 2000, "limit": 500, "return_total": true})).unwrap();
    let default = query(json!({"start": 0, "limit": 0})).unwrap();
    let refused = query(json!({"start": 0, "limit": 1001})).unwrap_err();

    assert_eq!((given.offset, given.limit), (2000, Some(500)));
    assert_eq!((default.offset, default.limit), (0, Some(1000)));
    assert_eq!(refused.to_string(), "page.limit: 1001 is more than 1000");
}

#[test]
fn a_change_of_groups_has_a_bound() {
    let group = |number: usize| with(group_example(), "/spec/process_group/0/id", json!(format!("g{number}")));
    let groups: Vec<Value> = (0..1001).map(|number| group(number)["spec"]["process_group"][0].clone()).collect();
    let body = |count: usize| with(group_example(), "/spec/process_group", json!(groups[..count]));

    assert_eq!(pool_change(&(&body(1000)).into()).unwrap().pools.len(), 1000);
    let refused = pool_change(&(&body(1001)).into()).unwrap_err().to_string();
    assert_eq!(refused, "spec.process_group: more than 1000 groups in one request: split it");
}

#[test]
fn a_cloud_has_one_spelling_and_no_id_is_long() {
    let ids = with(operate_example(2), "/agent_id_list", json!(["0:10.0.0.1", "00:10.0.0.1", "+0:10.0.0.1"]));
    let long = format!("{}:10.0.0.1", "0".repeat(200));
    let long = with(operate_example(2), "/agent_id_list", json!([long]));

    let hosts: Vec<HostRef> =
        operation_v2(&(&ids).into()).unwrap()[0].targets.iter().map(|target| target.host.clone()).collect();
    let refused = operation_v2(&(&long).into()).unwrap_err().to_string();

    assert!(matches!(hosts[..], [HostRef::Key(_), HostRef::Unusable(_), HostRef::Unusable(_)]), "{hosts:?}");
    assert_eq!(refused, "agent_id_list[0]: must not be longer than 128 characters");
}
