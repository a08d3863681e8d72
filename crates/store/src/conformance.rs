//! What every store must do, as tests that know only [`Store`].
//!
//! Promised: one case for each promise of the trait; each case works on an empty store of its own.
//! Absent: anything about files, connections or crashes; a store tests those itself. Run the suite
//! with [`conformance_suite!`](crate::conformance_suite) from an integration test.

#![allow(clippy::unwrap_used, reason = "a test suite: a failure should stop the case")]

pub mod access;
pub mod apps;
pub mod audit;
pub mod businesses;
pub mod enrolment;
pub mod events;
pub mod fleet;
pub mod host_state;
pub mod hosts;
pub mod identity;
mod joining;
pub mod maintenance;
pub mod nonces;
pub mod pools;
pub mod process_lists;
pub mod process_queries;
pub mod processes;
pub mod relays;
pub mod retention;
pub mod revisions;
pub mod task_control;
pub mod task_pages;
pub mod tasks;
pub mod upgrades;
pub mod users;
pub mod webhooks;

pub use joining::{Joining, opening_of};

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use proctor_model::{AgentId, Control, HostKey, Identity, Limits, Ownership, Policy, ProcessKey, Spec};

use crate::{Business, EndedSession, Enrolment, JoinToken, Millis, Prune, Registration, SessionOpening, Store};

/// Makes one `#[tokio::test]` of each case. `$open` is an `async fn` without arguments that returns
/// an empty store and whatever must live as long as it (a temporary directory, a database).
#[macro_export]
macro_rules! conformance_suite {
    ($open:path) => {
        $crate::conformance_suite! { @cases $open;
            access::roles_are_the_built_in_ones_and_then_those_by_name,
            access::a_built_in_role_is_neither_changed_nor_deleted,
            access::a_role_that_is_deleted_takes_its_bindings_along,
            access::bindings_are_read_back_oldest_first_and_deleted,
            access::what_is_given_twice_is_there_once,
            access::a_binding_that_names_nothing_is_refused,
            access::permissions_are_those_of_all_subjects_together,
            access::a_disabled_user_refuses_whoever_acts_in_their_name,
            access::a_name_that_was_disabled_stays_so_when_its_user_is_deleted,
            access::a_binding_keeps_its_bounds_and_other_bounds_make_another_binding,
            access::a_binding_on_a_set_follows_its_members,
            access::what_was_given_does_not_come_back_with_the_name,
            apps::an_app_is_read_back_and_replaced_by_its_code,
            apps::apps_are_listed_by_code_and_deleted,
            apps::a_new_app_comes_with_its_bindings_or_not_at_all,
            apps::a_code_is_given_to_one_app_however_many_ask_at_once,
            apps::the_hash_of_an_app_is_renewed_only_while_it_is_the_old_one,
            apps::a_new_secret_changes_nothing_else_of_an_app,
            apps::an_unknown_app_is_none,
            apps::the_first_secret_wins,
            apps::a_secret_is_replaced_only_by_who_knows_it,
            apps::a_control_plane_begins_with_the_first_epoch,
            apps::of_many_first_secrets_all_see_the_same,
            audit::an_entry_is_read_back_exactly_with_its_number_and_time,
            audit::entries_that_come_at_once_make_one_chain,
            audit::a_long_entry_is_cut_and_its_count_is_kept,
            audit::entries_are_narrowed_by_every_field_of_the_query,
            task_control::a_new_user_owns_nothing_that_was_done_in_that_name_before,
            task_control::a_name_that_is_given_again_owns_nothing_of_before,
            businesses::businesses_are_listed_by_id_and_renamed,
            businesses::a_number_that_cannot_be_kept_exactly_is_refused,
            businesses::a_set_is_read_back_and_replaced_whole,
            businesses::a_set_with_an_unknown_member_is_refused_and_changes_nothing,
            businesses::a_set_that_is_deleted_is_gone_and_its_members_stay,
            businesses::a_host_is_placed_moved_and_taken_out,
            businesses::a_host_can_be_placed_before_it_enrols,
            businesses::an_unknown_business_refuses_all_placements,
            businesses::an_import_makes_businesses_and_places_hosts,
            businesses::an_import_that_is_refused_changes_nothing,
            businesses::a_business_that_is_deleted_leaves_sets_hosts_and_tokens,
            businesses::a_tokens_business_becomes_that_of_a_new_host,
            businesses::a_token_never_moves_an_address_from_another_business,
            businesses::a_token_of_an_unknown_business_is_not_kept,
            businesses::a_repeated_enrolment_leaves_the_host_where_it_was_placed_since,
            businesses::a_host_that_changes_its_address_keeps_its_business,
            enrolment::enrolling_binds_the_host_to_the_agent,
            enrolment::a_token_lets_exactly_its_uses_in_however_many_come_at_once,
            enrolment::a_repetition_with_the_same_key_costs_no_use,
            enrolment::one_use_of_a_token_lets_no_second_host_of_the_same_key_in,
            enrolment::a_token_that_is_put_again_keeps_the_count_of_its_uses,
            enrolment::unknown_tokens_and_wrong_secrets_are_refused_alike,
            enrolment::an_expired_token_is_refused_even_to_a_repetition,
            enrolment::a_token_for_one_cloud_area_is_refused_in_another,
            enrolment::a_known_host_is_not_given_to_another_key_connected_or_not,
            enrolment::a_refused_enrolment_costs_no_use,
            enrolment::a_token_that_names_a_host_takes_it_over_with_its_registrations_and_nothing_else,
            enrolment::a_host_that_may_rejoin_opens_to_another_key_once_and_in_time,
            enrolment::only_the_present_key_of_a_host_opens_sessions,
            enrolment::one_use_of_a_token_lets_no_host_move_to_another_address,
            enrolment::an_older_copy_of_settled_state_opens_no_session_unless_it_may_rejoin,
            enrolment::tokens_are_listed_with_their_uses_and_deleted,
            enrolment::enrolments_are_audited_and_refusals_only_with_a_known_token_and_up_to_a_bound,
            enrolment::an_agent_whose_machine_changed_its_address_keeps_its_registrations,
            enrolment::an_agent_that_moves_to_a_known_host_gets_that_hosts_registrations_as_new,
            identity::a_revoked_key_opens_nothing_and_does_not_enrol_again,
            identity::a_revoked_key_does_not_enrol_for_a_host_that_its_agent_has_left,
            identity::a_key_is_revoked_on_all_of_its_hosts_at_once,
            identity::a_revoked_key_enrols_nowhere_after_its_host_has_another_or_is_removed,
            identity::a_host_that_is_removed_is_new_when_it_comes_back,
            identity::a_host_whose_agent_has_left_is_listed_revoked_and_removed,
            identity::a_removal_that_was_cut_short_leaves_nothing_to_who_enrols_there_next,
            identity::an_agent_that_comes_back_with_its_ledger_after_a_removal_is_told_everything,
            identity::a_host_with_many_processes_is_removed_whole,
            nonces::a_nonce_is_taken_once_until_its_end,
            nonces::a_step_of_the_clock_makes_no_nonce_new,
            nonces::old_nonces_go_in_slices_and_others_stay,
            events::events_are_read_back_in_order_with_their_host_and_time,
            events::an_event_about_a_process_that_the_host_does_not_have_is_about_the_host_alone,
            events::an_event_has_only_a_report_id_that_its_process_has_or_had,
            events::an_event_that_comes_again_is_kept_once,
            events::what_was_seen_stays_seen_after_it_is_forgotten,
            events::events_of_an_older_epoch_and_of_unbound_agents_are_dropped,
            events::each_agent_has_numbers_of_its_own,
            events::events_of_the_server_are_kept_beside_those_of_the_agent,
            events::events_are_narrowed_by_every_field_of_the_query,
            events::a_page_says_where_to_go_on_past_what_does_not_match,
            events::without_a_cursor_the_newest_are_read,
            events::events_are_read_backwards_from_an_id,
            events::events_are_counted_in_steps_of_time,
            events::ids_are_not_given_out_again_after_everything_was_forgotten,
            fleet::the_fleet_has_every_host_and_process_with_what_was_observed,
            fleet::a_reason_of_the_fleet_can_be_told_in_every_language,
            fleet::a_reason_is_told_of_processes_of_the_same_business_alone,
            fleet::a_later_fleet_is_that_of_its_moment_and_shares_what_has_not_changed,
            hosts::hosts_are_found_by_cloud_and_ip_whatever_the_supplier,
            hosts::hosts_are_found_by_agent_and_unknown_ones_are_none,
            hosts::thousands_of_hosts_are_found_in_the_order_of_the_question,
            hosts::the_sites_of_hosts_are_those_of_their_records,
            hosts::hosts_are_listed_by_cloud_and_ip,
            hosts::hosts_are_narrowed_by_every_field_of_the_query,
            hosts::a_cursor_leads_through_all_hosts_once,
            hosts::every_session_has_a_higher_epoch,
            hosts::a_session_of_an_unbound_agent_is_refused,
            hosts::a_session_keeps_the_facts_and_the_time_of_the_change,
            hosts::the_end_of_an_older_session_does_not_mark_a_newer_one_offline,
            hosts::ends_of_sessions_are_told_unless_a_newer_one_is_open,
            hosts::a_host_answers_to_the_id_that_it_was_given_last,
            hosts::an_id_that_is_another_hosts_is_not_given_away,
            hosts::an_id_that_a_host_answers_to_is_not_taken_by_another_agent,
            hosts::a_host_keeps_its_second_id_when_its_agent_is_replaced_and_loses_it_with_its_last,
            relays::a_relay_enrols_with_a_token_of_its_area_and_kind,
            relays::a_relay_is_met_by_its_key_until_it_is_revoked,
            relays::a_session_through_a_relay_is_of_its_area_and_noted,
            relays::who_is_out_of_reach_is_remembered_until_somebody_is_told,
            maintenance::a_cordon_is_read_back_with_the_host_and_replaced,
            maintenance::events_of_a_cordoned_host_are_muted_until_its_end,
            maintenance::a_new_host_that_needs_approval_opens_no_session_before_it,
            maintenance::an_approved_host_needs_approval_for_another_address,
            maintenance::a_known_host_needs_no_approval_and_keeps_its_cordon,
            maintenance::whom_a_peer_trusts_is_kept_replaced_and_forgotten,
            maintenance::what_a_peer_said_of_its_trust_ends_with_its_enrolment,
            maintenance::an_agent_with_an_expired_certificate_comes_back_once_an_operator_says_so,
            maintenance::a_cordoned_target_registers_nothing,
            maintenance::a_cordoned_target_is_no_failure_of_an_open_rollout,
            pools::pools_are_set_on_every_bound_agent,
            pools::pools_are_narrowed_by_namespace_and_agent,
            pools::a_pool_is_assigned_again_only_when_its_limits_change,
            pools::a_pool_that_is_deleted_is_gone_and_its_agent_learns_of_it,
            pools::pools_and_processes_of_a_host_share_one_generation,
            process_lists::the_fleet_is_narrowed_as_the_list_is,
            process_lists::processes_are_narrowed_by_what_was_observed_of_them,
            process_lists::processes_are_narrowed_by_the_cordon_of_their_host,
            process_lists::processes_are_narrowed_by_their_trouble,
            process_lists::processes_are_narrowed_by_part_of_their_name_host_or_version,
            process_lists::processes_are_narrowed_by_lifetime,
            process_lists::a_cursor_leads_through_every_order_once,
            process_lists::the_number_of_all_is_left_out_on_request,
            process_lists::a_process_is_in_its_phase_since_it_was_first_seen_in_it,
            process_lists::nothing_that_was_observed_survives_a_tombstone,
            process_queries::processes_know_the_business_of_their_host,
            process_queries::processes_are_read_by_host_and_key_in_the_order_of_the_question,
            process_queries::processes_are_narrowed_by_agent_and_told_in_their_own_order,
            process_queries::processes_are_narrowed_by_several_names_at_once,
            process_queries::processes_are_narrowed_by_business,
            process_queries::processes_are_narrowed_to_the_scopes_of_a_caller,
            process_queries::processes_are_narrowed_by_labels,
            process_queries::processes_are_narrowed_by_their_last_phase,
            process_queries::a_cursor_leads_through_all_processes_once,
            process_queries::a_cursor_goes_on_though_its_process_is_gone,
            host_state::the_state_of_a_host_is_what_an_agent_says_that_has_the_same,
            host_state::whatever_changes_what_is_registered_changes_the_state_of_the_host,
            host_state::what_was_never_observed_or_was_changed_by_others_is_in_the_state_of_no_agent,
            processes::creating_twice_says_exists_and_changes_nothing,
            processes::the_last_observations_of_an_agent_are_read_as_they_were_made,
            processes::an_upsert_with_an_equal_spec_changes_nothing,
            processes::an_upsert_with_another_spec_raises_the_generation_and_keeps_the_rest,
            processes::a_registration_for_an_unbound_agent_has_no_host,
            processes::answers_come_in_the_order_of_the_registrations,
            processes::thousands_of_registrations_are_made_at_once,
            processes::a_process_that_is_named_twice_on_a_host_is_changed_twice,
            processes::generations_rise_on_every_host,
            processes::unregistering_twice_is_true_then_false,
            processes::assignments_are_what_changed_after_a_generation_with_tombstones,
            processes::assignments_of_many_agents_come_in_the_order_of_the_question_and_share_equal_specs,
            processes::from_nothing_there_are_no_tombstones,
            processes::a_process_can_be_registered_again_after_its_tombstone,
            processes::an_observation_is_kept_exactly_and_says_whether_it_is_managed,
            processes::who_is_managed_when_an_operation_ends_is_kept,
            processes::observations_of_an_older_epoch_are_dropped,
            processes::observations_of_unregistered_processes_are_dropped,
            processes::a_reading_that_is_no_number_does_no_harm,
            processes::processes_are_sorted_by_namespace_name_cloud_and_ip_as_bytes,
            processes::processes_are_narrowed_by_every_field_of_the_query,
            processes::a_page_comes_with_the_number_before_paging,
            retention::a_finished_task_goes_when_servers_have_run_long_enough_and_an_open_one_never,
            retention::a_large_task_goes_slice_by_slice_and_cannot_be_read_meanwhile,
            retention::status_queries_go_before_operations,
            retention::tasks_of_which_nothing_reached_a_host_go_before_operations,
            retention::the_oldest_upgrades_go_slice_by_slice,
            retention::no_slice_holds_the_writer_for_more_than_a_thousand_rows,
            retention::old_events_and_those_beyond_the_bound_go,
            retention::events_beyond_the_bound_are_taken_from_the_hosts_that_have_most,
            retention::what_is_young_by_uptime_stays_whatever_the_clock_says,
            retention::a_tombstone_stays_until_its_agent_knows_of_it,
            retention::an_agent_older_than_a_deleted_tombstone_is_told_everything,
            retention::an_agent_that_moves_is_not_measured_by_what_another_one_had_seen,
            retention::tokens_go_a_while_after_they_are_over,
            retention::a_token_that_is_good_again_starts_anew,
            retention::specs_go_when_nothing_refers_to_them,
            retention::archived_audit_entries_go_and_the_chain_goes_on,
            retention::every_table_has_a_size,
            revisions::every_change_of_a_spec_is_a_revision_newest_first,
            revisions::a_task_that_registers_makes_a_revision,
            revisions::the_last_twenty_revisions_are_kept,
            revisions::what_was_never_registered_has_no_history,
            task_control::a_repeated_key_finds_the_first_task_and_writes_nothing,
            task_control::a_key_is_unique_only_for_its_app,
            task_control::of_many_calls_with_one_key_one_makes_the_task,
            task_control::a_key_is_free_again_when_its_task_is_forgotten,
            task_control::a_task_that_was_refused_leaves_its_key_free,
            task_control::a_retry_names_the_task_that_it_tries_again,
            task_control::a_rollout_is_kept_and_replaced,
            task_control::open_rollouts_are_those_that_go_on_or_still_have_open_targets,
            task_control::a_rollout_that_ends_gives_its_unreleased_targets_their_outcome,
            task_control::a_rollout_that_is_over_never_goes_on,
            task_control::a_cancelled_task_ends_its_rollout_with_its_unreleased_targets,
            task_control::what_was_judged_is_kept_and_the_first_verdict_counts,
            task_control::a_task_is_cancelled_once_and_its_targets_stay_open,
            task_control::a_finished_or_unknown_task_is_not_cancelled,
            task_pages::a_summary_counts_each_target_once,
            task_pages::a_summary_names_the_first_processes,
            task_pages::a_task_is_finished_when_its_last_outcome_is_known,
            task_pages::tasks_are_listed_newest_first_in_pages,
            task_pages::tasks_are_narrowed_by_every_field_of_the_query,
            task_pages::a_row_of_a_page_is_the_target_with_its_item_and_outcome,
            task_pages::targets_are_paged_by_what_became_of_them,
            task_pages::the_tasks_of_a_process_come_newest_first_with_its_targets_alone,
            task_pages::there_is_no_target_behind_the_last_and_none_of_an_unknown_task,
            tasks::a_large_task_is_read_back_in_order_with_its_known_outcomes,
            tasks::an_unknown_task_is_none,
            tasks::a_task_id_is_used_once,
            tasks::a_task_that_contradicts_itself_is_refused_whole,
            tasks::a_task_registers_its_targets,
            tasks::a_task_tells_the_generations_of_what_it_registers,
            tasks::a_task_and_its_audit_entry_are_written_together,
            tasks::a_task_without_register_registers_nothing,
            tasks::open_targets_are_exactly_those_without_an_outcome_oldest_task_first,
            tasks::the_first_outcome_of_a_target_is_kept_and_the_second_dropped,
            tasks::outcomes_of_unknown_targets_are_dropped,
            tasks::outcomes_that_arrive_at_once_are_each_recorded_by_one_caller,
            tasks::an_outcome_is_read_back_exactly,
            tasks::the_newest_tasks_are_listed_first,
            tasks::what_is_new_in_a_task_is_what_was_not_known,
            users::users_are_listed_by_name_and_disabled,
            users::a_name_is_given_to_one_user_however_many_ask_at_once,
            users::a_name_that_was_disabled_when_its_user_was_removed_stays_so_until_somebody_has_it,
            users::a_user_that_is_disabled_keeps_the_tokens_and_a_deleted_one_does_not,
            users::tokens_are_listed_of_one_user_or_of_all_oldest_first,
            users::a_token_of_an_unknown_user_is_refused,
            users::a_user_token_that_is_deleted_is_gone,
            users::a_session_ends_with_the_token_that_opened_it,
            users::a_user_keeps_the_newest_sessions_and_every_token,
            users::a_new_password_closes_the_users_sessions_and_no_others,
            users::a_password_is_replaced_only_while_the_expected_credential_is_the_present_one,
            users::a_session_is_kept_only_while_what_it_rests_on_holds,
            users::disabling_a_user_closes_the_sessions,
            upgrades::an_upgrade_is_read_back_exactly_with_its_hosts_in_order,
            upgrades::the_hosts_of_an_upgrade_are_counted_by_ring_and_read_in_pages,
            upgrades::the_reason_of_an_upgrade_is_read_back_with_its_phrase,
            upgrades::one_upgrade_is_under_way_at_a_time_until_its_last_host_is_done,
            upgrades::a_host_that_is_final_stays_so_and_keeps_its_reason_in_every_language,
            upgrades::who_resumes_an_upgrade_answers_for_it_from_then_on,
            upgrades::a_host_that_was_done_can_have_failed_after_all,
            webhooks::a_webhook_is_read_back_exactly_and_replaced_by_its_id,
            webhooks::a_cursor_moves_forward_only,
            webhooks::a_webhook_that_is_deleted_is_gone_and_nothing_brings_it_back,
        }
    };
    (@cases $open:path; $($area:ident :: $case:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let (store, _keeper) = $open().await;
                $crate::conformance::$area::$case(std::sync::Arc::new(store)).await;
            }
        )*
    };
}

const SECRET: &str = "hash of the token's secret";
const EXPIRES_AT: Millis = 1_000_000;

fn agent(number: usize) -> AgentId {
    format!("agent-{number}").parse().unwrap()
}

/// Host `number` in cloud area 0.
fn host(number: usize) -> HostKey {
    let [_, _, high, low] = u32::try_from(number).unwrap().to_be_bytes();
    HostKey::new(0, 0, IpAddr::V4(Ipv4Addr::new(10, 0, high, low)))
}

fn key(text: &str) -> ProcessKey {
    text.parse().unwrap()
}

/// A spec that differs only in its `proc_name`.
pub fn spec(proc_name: &str) -> Arc<Spec> {
    Arc::new(Spec {
        identity: Identity {
            proc_name: proc_name.parse().unwrap(),
            setup_path: "/opt/app".parse().unwrap(),
            pid_path: "/run/app.pid".parse().unwrap(),
            config_path: None,
            log_path: None,
            user: "root".parse().unwrap(),
            index_key: String::new(),
        },
        control: Control { start: Some("./start.sh".parse().unwrap()), ..Control::default() },
        // A number whose shortest decimal form is long: it must survive exactly.
        limits: Limits { cpu: Some((100.0 / 7.0).try_into().unwrap()), ..Limits::default() },
        policy: Policy::new(proctor_model::Lifetime::Resident),
        ownership: Ownership::default(),
        report_id: None,
        configmap: Vec::new(),
        labels: [("tier".to_owned(), "网关".to_owned())].into_iter().collect(),
    })
}

fn registration(number: usize, process: &str, proc_name: &str) -> Registration {
    Registration { agent: agent(number), key: key(process), spec: spec(proc_name) }
}

fn business(id: u64) -> Business {
    Business { id, name: format!("business {id}") }
}

fn token(id: &str, uses: u32) -> JoinToken {
    JoinToken {
        id: id.to_owned(),
        secret_hash: SECRET.to_owned(),
        uses,
        expires_at: EXPIRES_AT,
        cloud: None,
        business: None,
        host: None,
    }
}

/// An enrolment of agent `number` for host `number` with a key of its own.
fn enrolment(token: &str, number: usize) -> Enrolment {
    Enrolment {
        token_id: token.to_owned(),
        token_secret_hash: SECRET.to_owned(),
        host: host(number),
        agent: agent(number),
        key_fingerprint: format!("key-{number}"),
        remote: None,
        needs_approval: false,
    }
}

/// The end of a session of agent `number`.
fn ended(number: usize, epoch: u64) -> EndedSession {
    let event = events::event(0, proctor_model::EventKind::AgentOffline, None);
    EndedSession { agent: agent(number), epoch, event: Some(event), untold: false }
}

/// A session of agent `number` with its own key.
fn opening(number: usize) -> SessionOpening {
    SessionOpening::new(agent(number), format!("key-{number}"))
}

/// Enrols agents 0 to `count` (exclusive) for the hosts of the same numbers.
async fn enrol(store: &dyn Store, count: usize) {
    store.put_token(token("fixture", u32::MAX)).await.unwrap();
    for number in 0..count {
        store.enrol(enrolment("fixture", number), 0).await.unwrap().unwrap();
    }
}

/// Deletes all slices; returns how many rows.
async fn prune(store: &dyn Store, what: Prune) -> u64 {
    let mut all = 0;
    loop {
        match store.prune(what).await.unwrap() {
            0 => return all,
            rows => all += rows,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_the_suite() {
        let areas = [
            ("access", include_str!("conformance/access.rs")),
            ("apps", include_str!("conformance/apps.rs")),
            ("audit", include_str!("conformance/audit.rs")),
            ("businesses", include_str!("conformance/businesses.rs")),
            ("enrolment", include_str!("conformance/enrolment.rs")),
            ("events", include_str!("conformance/events.rs")),
            ("fleet", include_str!("conformance/fleet.rs")),
            ("hosts", include_str!("conformance/hosts.rs")),
            ("pools", include_str!("conformance/pools.rs")),
            ("process_lists", include_str!("conformance/process_lists.rs")),
            ("process_queries", include_str!("conformance/process_queries.rs")),
            ("processes", include_str!("conformance/processes.rs")),
            ("relays", include_str!("conformance/relays.rs")),
            ("retention", include_str!("conformance/retention.rs")),
            ("revisions", include_str!("conformance/revisions.rs")),
            ("task_control", include_str!("conformance/task_control.rs")),
            ("task_pages", include_str!("conformance/task_pages.rs")),
            ("tasks", include_str!("conformance/tasks.rs")),
            ("users", include_str!("conformance/users.rs")),
            ("webhooks", include_str!("conformance/webhooks.rs")),
        ];
        for (area, source) in areas {
            for case in source.split("\npub async fn ").skip(1) {
                let name = case.split('(').next().unwrap();
                let listed = format!("            {area}::{name},\n");
                assert!(include_str!("conformance.rs").contains(&listed), "{area}::{name} is not in the suite");
            }
        }
    }
}
