//! The documents' own examples, the defaults, and what is rejected.

use serde_json::{Value, json};

use super::*;
use crate::api::fields::testing::with;
use crate::control::HostRef;

/// The example of manage_proc, on a host of ours.
fn manage_example() -> Value {
    json!({
        "bk_scope_type": "biz", "bk_scope_id": "1", "op_type": 1,
        "process_infos": [{
            "proc_name": "nginx", "proc_owner": "root", "setup_path": "/data/home/nginx/bin/",
            "cfg_path": "/data/etc/nginx.conf", "log_path": "/data/logs/nginx/", "pid_path": "/data/var/run/nginx/",
            "start_cmd": "echo start", "stop_cmd": "echo stop", "restart_cmd": "echo restart",
            "reload_cmd": "echo reload", "kill_cmd": "echo kill", "func_id": "", "instance_id": "",
            "value_key": "key_test", "type": 2, "cpu_lmt": 20, "mem_lmt": 30, "cycle_time": 10, "instance_num": 2,
            "start_check_begin_time": 5, "start_check_end_time": 5, "op_timeout": 5,
            "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]
        }]
    })
}

/// The example of operate_process.
fn operate_example() -> Value {
    json!({
        "bk_biz_id": 1, "op_type": 1,
        "process_infos": [{
            "setup_path": "/usr/local/xxx", "proc_name": "gseagent", "pid_path": "/usr/local/xxx", "account": "root",
            "contact": "root", "cpu_lmt": 50, "mem_lmt": 30, "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]
        }]
    })
}

fn spec_of(item: &SubmittedItem) -> &Spec {
    match &item.spec {
        SpecSource::Given(given) => &given.spec,
        SpecSource::Registered | SpecSource::Again(_) => panic!("every call of this family has a spec"),
    }
}

#[test]
fn the_example_of_manage_is_kept_field_by_field() {
    let items = manage_proc(&(&manage_example()).into()).unwrap().items;

    let spec = spec_of(&items[0]);
    assert_eq!(items[0].kind, Some(OperationKind::Manage));
    assert_eq!(items[0].key.to_string(), "job/key_test");
    assert_eq!(items[0].targets[0].row_key, "key_test:0:10.0.0.1");
    assert_eq!(spec.identity.pid_path.as_str(), "/data/var/run/nginx/");
    assert_eq!(spec.identity.user.as_str(), "root");
    assert_eq!(spec.ownership.contact, "root");
    assert_eq!(spec.control.reload.as_ref().unwrap().as_str(), "echo reload");
    assert_eq!(spec.limits.memory.unwrap().get(), 30.0);
    assert_eq!(spec.policy.lifetime, Lifetime::Once);
    assert_eq!((spec.policy.cycle.unwrap().get(), spec.policy.instances), (10, 2));
    assert_eq!((spec.policy.op_timeout.get(), spec.policy.start_check.get()), (5, 5));
    assert_eq!(spec.policy.start_check_end.unwrap().get(), 5);
}

#[test]
fn the_first_and_the_last_check_of_a_start_are_two_times() {
    let body = with(manage_example(), "/process_infos/0/start_check_begin_time", json!(3));
    let body = with(body, "/process_infos/0/start_check_end_time", json!(9));

    let items = manage_proc(&(&body).into()).unwrap().items;

    let policy = &spec_of(&items[0]).policy;
    assert_eq!((policy.start_check.get(), policy.start_check_end.unwrap().get()), (3, 9));
}

#[test]
fn manage_releases_by_2_and_knows_no_other_number() {
    let items = manage_proc(&(&with(manage_example(), "/op_type", json!(2))).into()).unwrap().items;
    let error = manage_proc(&(&with(manage_example(), "/op_type", json!(3))).into()).unwrap_err();

    assert_eq!(items[0].kind, Some(OperationKind::Release));
    assert_eq!(error.to_string(), "op_type: 3 is neither 1 (manage) nor 2 (release)");
}

#[test]
fn the_example_of_operate_takes_the_defaults() {
    let items = operate_process(&(&operate_example()).into()).unwrap().items;

    let spec = spec_of(&items[0]);
    assert_eq!(items[0].kind, Some(OperationKind::Stop));
    assert_eq!(items[0].key.name.as_str(), "/usr/local/xxx/gseagent");
    assert_eq!(items[0].targets[0].row_key, "/usr/local/xxx/gseagent:0:10.0.0.1");
    assert_eq!(spec.policy, Policy::new(Lifetime::Resident));
}

#[test]
fn a_managed_process_without_a_type_is_periodic_and_needs_its_cycle() {
    let of = |op_type: i64, lifetime: Value, cycle: Value| {
        let body = with(manage_example(), "/op_type", json!(op_type));
        let body = with(body, "/process_infos/0/type", lifetime);
        let body = with(body, "/process_infos/0/cycle_time", cycle);
        manage_proc(&(&body).into()).map(|call| spec_of(&call.items[0]).policy.clone())
    };

    for lifetime in [json!(null), json!(0)] {
        for cycle in [json!(null), json!(0)] {
            assert_eq!(of(2, lifetime.clone(), cycle.clone()).unwrap().lifetime, Lifetime::Periodic);
            let error = of(1, lifetime.clone(), cycle).unwrap_err();
            assert_eq!(
                error.to_string(),
                "process_infos[0].cycle_time: is missing: a periodic process needs a schedule"
            );
        }
        assert_eq!(of(1, lifetime, json!(60)).unwrap().lifetime, Lifetime::Periodic);
    }
    assert_eq!(of(1, json!(1), json!(null)).unwrap().lifetime, Lifetime::Resident);
}

#[test]
fn an_operated_process_without_a_type_is_periodic_where_it_has_a_cycle() {
    let of = |op_type: i64, lifetime: Value, cycle: Value| {
        let body = with(operate_example(), "/op_type", json!(op_type));
        let body = with(body, "/process_infos/0/type", lifetime);
        let body = with(body, "/process_infos/0/cycle_time", cycle);
        operate_process(&(&body).into()).map(|call| spec_of(&call.items[0]).policy.clone())
    };

    assert_eq!(of(0, json!(null), json!(60)).unwrap().lifetime, Lifetime::Periodic);
    assert_eq!(of(0, json!(null), json!(0)).unwrap().lifetime, Lifetime::Resident);
    for stores in [0, 3, 7] {
        let error = of(stores, json!(0), json!(null)).unwrap_err();
        assert_eq!(error.to_string(), "process_infos[0].cycle_time: is missing: a periodic process needs a schedule");
    }
    for only_uses in [1, 2, 4, 8, 9] {
        assert_eq!(of(only_uses, json!(0), json!(null)).unwrap().lifetime, Lifetime::Periodic);
    }
}

#[test]
fn a_cycle_has_up_to_366_days() {
    let of = |cycle: u32| {
        let body = with(manage_example(), "/process_infos/0/cycle_time", json!(cycle));
        manage_proc(&(&body).into()).map(|call| spec_of(&call.items[0]).policy.cycle.unwrap().get())
    };

    assert_eq!(of(31_622_400), Ok(31_622_400));
    assert_eq!(
        of(31_622_401).unwrap_err().to_string(),
        "process_infos[0].cycle_time: 31622401 is more than 31622400 seconds"
    );
}

#[test]
fn the_paths_of_configuration_and_log_may_be_relative() {
    let body = with(operate_example(), "/process_infos/0/cfg_path", json!("../etc/x.conf"));
    let body = with(body, "/process_infos/0/log_path", json!("log"));

    let items = operate_process(&(&body).into()).unwrap().items;

    let Identity { config_path, log_path, .. } = &spec_of(&items[0]).identity;
    assert_eq!((config_path.as_ref().unwrap().as_str(), log_path.as_ref().unwrap().as_str()), ("../etc/x.conf", "log"));
}

#[test]
fn a_scope_is_looked_at_before_a_business() {
    let scope = |body: Value| operate_process(&(&body).into()).unwrap().scope;
    let set = with(with(operate_example(), "/bk_scope_type", json!("biz_set")), "/bk_scope_id", json!("7"));
    let same = with(with(operate_example(), "/bk_scope_type", json!("biz")), "/bk_scope_id", json!("1"));

    assert_eq!(scope(operate_example()), JobScope::Business(1));
    assert_eq!(scope(set), JobScope::BusinessSet(7));
    assert_eq!(scope(same), JobScope::Business(1));
}

#[test]
fn limits_and_labels_that_a_call_omits_are_known_to_be_omitted() {
    let omitted = |body: Value| match &operate_process(&(&body).into()).unwrap().items[0].spec {
        SpecSource::Given(given) => given.omitted,
        SpecSource::Registered | SpecSource::Again(_) => panic!("every call of this family has a spec"),
    };
    let without =
        with(with(operate_example(), "/process_infos/0/cpu_lmt", json!(null)), "/process_infos/0/mem_lmt", json!(null));

    assert_eq!(omitted(operate_example()), Omitted { labels: true, limits: false });
    assert_eq!(omitted(without), Omitted { labels: true, limits: true });
}

#[test]
fn a_target_that_is_repeated_is_one_unless_it_contradicts_itself() {
    let info = operate_example()["process_infos"][0].clone();
    let body = |infos: Value| with(operate_example(), "/process_infos", infos);
    let host = info["ip_list"][0].clone();
    let twice = with(info.clone(), "/ip_list", json!([host, host]));
    let other = with(info.clone(), "/stop_cmd", json!("./stop.sh"));

    let merged = operate_process(&(&body(json!([twice, info]))).into()).unwrap().items;
    let error = operate_process(&(&body(json!([info, other]))).into()).unwrap_err();

    assert_eq!((merged.len(), merged[0].targets.len()), (1, 1));
    assert_eq!(
        error.to_string(),
        "process_infos[1].ip_list[0]: target /usr/local/xxx/gseagent:0:10.0.0.1 is also at \
         process_infos[0].ip_list[0], with another operation or spec"
    );
}

#[test]
fn an_address_that_can_be_none_keeps_its_row() {
    for written in ["", "x"] {
        let body = with(operate_example(), "/process_infos/0/ip_list/0/ip", json!(written));

        let items = operate_process(&(&body).into()).unwrap().items;

        assert_eq!(items[0].targets[0].row_key, format!("/usr/local/xxx/gseagent:0:{written}"));
        assert_eq!(items[0].targets[0].host, HostRef::Unusable(written.into()));
    }
}

#[test]
fn a_setup_path_with_a_slash_at_its_end_makes_the_same_index() {
    let body = with(operate_example(), "/process_infos/0/setup_path", json!("/usr/local/xxx/"));

    let items = operate_process(&(&body).into()).unwrap().items;

    assert_eq!(items[0].targets[0].row_key, "/usr/local/xxx/gseagent:0:10.0.0.1");
}

#[test]
fn limits_outside_the_range_are_none_and_a_blank_account_is_root() {
    let body = with(operate_example(), "/process_infos/0/cpu_lmt", json!(101));
    let body = with(body, "/process_infos/0/mem_lmt", json!(-1));
    let body = with(body, "/process_infos/0/account", json!(""));

    let items = operate_process(&(&body).into()).unwrap().items;

    assert_eq!(spec_of(&items[0]).limits, Limits::default());
    assert_eq!(spec_of(&items[0]).identity.user.as_str(), "root");
}

#[test]
fn operate_proc_runs_scripts_of_fixed_names() {
    let body = with(operate_example(), "/process_infos/0/proc_name", json!("it's; rm"));
    let body = with(body, "/process_infos/0/cpu_lmt", json!(null));

    let items = operate_proc(&(&body).into()).unwrap().items;

    let spec = spec_of(&items[0]);
    assert_eq!(spec.control.start.as_ref().unwrap().as_str(), r"./start.sh 'it'\''s; rm' &");
    assert_eq!(spec.control.kill, None);
    assert_eq!((spec.limits.cpu.unwrap().get(), spec.limits.memory.unwrap().get()), (50.0, 30.0));
    assert_eq!((spec.policy.lifetime, spec.policy.op_timeout.get()), (Lifetime::Resident, 10));
}

#[test]
fn operate_proc_knows_the_scripts_of_windows() {
    let body = with(operate_example(), "/process_infos/0/cmd_shell_ext", json!("bat"));

    let items = operate_proc(&(&body).into()).unwrap().items;

    assert_eq!(spec_of(&items[0]).control.stop.as_ref().unwrap().as_str(), "stop.bat gseagent");
}

#[test]
fn a_result_is_asked_for_with_text_from_a_query() {
    assert_eq!(task_id(&(&json!({"bk_biz_id": "2", "bk_gse_taskid": "GSETASK:1"})).into()).unwrap(), "GSETASK:1");
    assert_eq!(task_id(&(&json!({"bk_biz_id": "2"})).into()).unwrap_err().to_string(), "bk_gse_taskid: is missing");
}

#[test]
fn what_does_not_fit_is_refused_by_its_path() {
    let cases = [
        ("/bk_biz_id", json!(0), "bk_biz_id: 0 must be greater than 0"),
        ("/bk_biz_id", json!(null), "bk_biz_id: is missing, and so is bk_scope_type"),
        ("/op_type", json!(null), "op_type: is missing"),
        ("/op_type", json!(5), "op_type: 5 is none of 0, 1, 2, 3, 4, 7, 8, 9"),
        ("/process_infos", json!([]), "process_infos: must hold at least one process"),
        ("/process_infos/0/setup_path", json!(null), "process_infos[0].setup_path: is missing"),
        ("/process_infos/0/proc_name", json!(" "), "process_infos[0].proc_name: must not be empty"),
        ("/process_infos/0/pid_path", json!(""), "process_infos[0].pid_path: must not be empty"),
        ("/process_infos/0/type", json!(7), "process_infos[0].type: 7 is none of 0 (periodic), 1 (resident), 2 (once)"),
        ("/process_infos/0/ip_list", json!([]), "process_infos[0].ip_list: must name at least one host"),
        ("/process_infos/0/ip_list", json!(null), "process_infos[0].ip_list: is missing"),
        (
            "/process_infos/0/ip_list/0/ip",
            json!("a\nb"),
            "process_infos[0].ip_list[0].ip: must not contain control characters",
        ),
        (
            "/process_infos/0/ip_list/0/bk_cloud_id",
            json!(-1),
            "process_infos[0].ip_list[0].bk_cloud_id: -1 must not be negative",
        ),
    ];
    for (pointer, value, expected) in cases {
        let error = operate_process(&(&with(operate_example(), pointer, value)).into()).unwrap_err();

        assert_eq!(error.to_string(), expected);
    }
    let scope = with(manage_example(), "/bk_scope_type", json!("team"));
    assert_eq!(
        manage_proc(&(&scope).into()).unwrap_err().to_string(),
        "bk_scope_type: 'team' is neither biz nor biz_set"
    );
    let id = with(manage_example(), "/bk_scope_id", json!("x"));
    assert_eq!(manage_proc(&(&id).into()).unwrap_err().to_string(), "bk_scope_id: \"x\" is not an integer");
}
