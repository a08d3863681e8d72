//! Any value of every message.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    AgentId, AgentState, BootId, CODES, Code, ConfigFile, Control, Event, EventKind, HostFacts, HostKey, Identity,
    LOG_LINES_MAX, Labels, Lifetime, Limits, LogPosition, LogQuery, LogState, LogTail, Message, OperationId,
    OperationKind, Outcome, Ownership, Percent, Period, Phase, Policy, Pool, PoolLimits, ProcessKey, Seconds, Snapshot,
    Spec, Spread, StateHash, TaskId, UpgradeStep, Usage, UsageHistory, UsageKept, UsagePoint, UsageRange, Weight,
    messages,
};
use proctor_wire::{
    Announced, Assign, FromAgent, FromServer, RegisteredPart, Signed, Trusted, UpgradeOrder, WelcomeProof,
};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug> + std::fmt::Debug>(
    regex: &'static str,
) -> impl Strategy<Value = T> {
    regex.prop_map(|text| text.parse().expect("the regex only makes legal texts"))
}

fn text() -> impl Strategy<Value = String> {
    ".{0,40}"
}

fn agent() -> impl Strategy<Value = AgentId> {
    parsed("[A-Za-z0-9._-]{1,64}")
}

pub(crate) fn key() -> impl Strategy<Value = ProcessKey> {
    parsed("[a-z进0-9_.-]{1,30}/[a-z程0-9_.-]{1,30}")
}

pub(crate) fn operation() -> impl Strategy<Value = OperationId> {
    (any::<u128>(), any::<u32>(), any::<u32>()).prop_map(|(task, index, attempt)| OperationId {
        task: TaskId::from_uuid(uuid::Uuid::from_u128(task)),
        index,
        attempt,
        part: 0,
    })
}

fn host() -> impl Strategy<Value = HostKey> {
    (any::<u32>(), any::<u32>(), any::<IpAddr>()).prop_map(|(cloud, supplier, ip)| HostKey { cloud, supplier, ip })
}

fn facts() -> impl Strategy<Value = HostFacts> {
    (text(), text(), text(), any::<u32>(), any::<u64>(), text(), of(text())).prop_map(
        |(hostname, os, arch, cpus, memory_bytes, agent_version, policy)| HostFacts {
            hostname,
            os,
            arch,
            cpus,
            memory_bytes,
            agent_version,
            policy,
        },
    )
}

fn finite() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("usage is finite", |number| number.is_finite())
}

fn usage() -> impl Strategy<Value = Usage> {
    let numbers = (finite(), finite(), finite(), any::<u64>(), any::<u32>());
    (numbers, text(), text(), any::<[u64; 4]>()).prop_map(|(numbers, state, command_line, times)| Usage {
        cpu_percent: numbers.0,
        cpu_percent_average: numbers.1,
        memory_percent: numbers.2,
        memory_bytes: numbers.3,
        threads: numbers.4,
        state,
        command_line,
        user_ticks: times[0],
        system_ticks: times[1],
        elapsed_secs: times[2],
        fds: times[3],
    })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let phases = vec![
        Phase::Unknown,
        Phase::Stopped,
        Phase::Starting,
        Phase::Running,
        Phase::Stopping,
        Phase::Waiting,
        Phase::Failed,
    ];
    let state = (select(phases), any::<bool>(), of(any::<i32>()), usage());
    (state, [text(), text(), text()], any::<[i64; 4]>(), any::<u32>(), any::<i32>()).prop_map(
        |((phase, managed, pid, usage), [version, health, reason], times, restarts, utc_offset_secs)| Snapshot {
            phase,
            managed,
            pid,
            usage,
            version,
            health,
            started_at: times[0],
            registered_at: times[1],
            reported_at: times[2],
            restarts,
            reason,
            reason_phrase: None,
            utc_offset_secs,
            next_run_at: times[3],
        },
    )
}

fn code() -> impl Strategy<Value = Code> {
    (0..CODES.len()).prop_map(|index| CODES[index].code)
}

/// Plain text, or a phrase that agents use.
fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        text().prop_map(Message::foreign),
        (any::<i32>(), text())
            .prop_map(|(pid, path)| { messages::process_not_running(messages::pid_does_not_run(pid, path)) }),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    (code(), message(), text(), any::<bool>(), of(snapshot()), vec(snapshot(), 0..3)).prop_map(
        |(code, message, output, managed, snapshot, instances)| Outcome {
            code,
            message,
            output,
            managed,
            snapshot,
            instances,
        },
    )
}

fn percent() -> impl Strategy<Value = Percent> {
    (0.0..=100.0_f64).prop_map(|number| Percent::try_from(number).expect("it is between 0 and 100"))
}

fn seconds() -> impl Strategy<Value = Seconds> {
    (0..=604_800_u32).prop_map(|number| Seconds::try_from(number).expect("it is at most a week"))
}

fn identity() -> impl Strategy<Value = Identity> {
    let path = || parsed("/[a-z0-9 ]{1,10}(/[a-z进0-9]{1,10}){0,3}");
    let shown = || parsed("(\\.\\.)?/?[a-z0-9]{1,10}(/[a-z进0-9]{1,10}){0,3}");
    (parsed("[a-z]{1,20}"), path(), path(), of(shown()), of(shown()), parsed("[a-z]{1,8}"), text()).prop_map(
        |(proc_name, setup_path, pid_path, config_path, log_path, user, index_key)| Identity {
            proc_name,
            setup_path,
            pid_path,
            config_path,
            log_path,
            user,
            index_key,
        },
    )
}

fn control() -> impl Strategy<Value = Control> {
    let command = || of(parsed("\\./[a-z]{1,8}\\.sh( \"[^\u{0}]{0,20}\")?"));
    (command(), command(), command(), command(), command(), command(), command()).prop_map(
        |(start, stop, restart, reload, kill, version, health)| Control {
            start,
            stop,
            restart,
            reload,
            kill,
            version,
            health,
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    (of(percent()), of(percent()), of(any::<u64>()), of(any::<u64>()), of(any::<u64>()))
        .prop_map(|(cpu, memory, fd, disk, net)| Limits { cpu, memory, fd, disk, net })
}

fn policy() -> impl Strategy<Value = Policy> {
    let lifetimes = select(vec![Lifetime::Resident, Lifetime::Periodic, Lifetime::Once]);
    let period = (1..=31_622_400_u32).prop_map(|period| Period::try_from(period).expect("it is at most 366 days"));
    let times = (seconds(), seconds(), seconds(), seconds(), of(period), of(seconds()));
    (lifetimes, times, any::<u32>(), of(parsed("([0-9]|\\*/5) \\* \\* \\* [0-6]")), any::<u32>()).prop_map(
        |(lifetime, times, start_retries, crontab_rule, instances)| Policy {
            lifetime,
            start_check: times.0,
            stop_check: times.1,
            start_retries,
            start_interval: times.2,
            op_timeout: times.3,
            crontab_rule,
            cycle: times.4,
            instances,
            start_check_end: times.5,
            health: Policy::new(lifetime).health,
        },
    )
}

pub(crate) fn spec() -> impl Strategy<Value = Arc<Spec>> {
    let ownership = [text(), text(), text()].prop_map(|[contact, func_id, instance_id]| Ownership {
        contact,
        func_id,
        instance_id,
    });
    let file = (parsed("/[a-z/]{1,20}"), text()).prop_map(|(path, md5)| ConfigFile { path, md5 });
    let rest = (of(any::<i64>()), vec(file, 0..3), btree_map(text(), text(), 0..4).prop_map(Labels::from));
    (identity(), control(), limits(), policy(), ownership, rest).prop_map(
        |(identity, control, limits, policy, ownership, (report_id, configmap, labels))| {
            Arc::new(Spec { identity, control, limits, policy, ownership, report_id, configmap, labels })
        },
    )
}

fn pool() -> impl Strategy<Value = Pool> {
    let weight = || select(vec![Weight::Usage, Weight::UsageByLimit]);
    let limits = (percent(), percent(), weight(), weight(), any::<bool>()).prop_map(
        |(cpu, memory, cpu_weight, memory_weight, dry_run)| PoolLimits {
            cpu,
            memory,
            cpu_weight,
            memory_weight,
            dry_run,
        },
    );
    (parsed("[a-z0-9]{1,20}"), parsed("[a-z0-9]{1,20}"), limits).prop_map(|(namespace, id, limits)| Pool {
        namespace,
        id,
        limits,
    })
}

fn registered() -> impl Strategy<Value = RegisteredPart> {
    let pools = vec(pool().prop_map(|pool| (pool.namespace, pool.id)), 0..4);
    (any::<u32>(), vec(key(), 0..4), pools, any::<bool>())
        .prop_map(|(offset, processes, pools, is_last)| RegisteredPart { offset, processes, pools, is_last })
}

fn duration() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_millis)
}

fn assign() -> impl Strategy<Value = Assign> {
    (any::<u64>(), key(), of(spec()), any::<bool>(), any::<i64>()).prop_map(
        |(generation, key, spec, managed, registered_at)| Assign { generation, key, spec, managed, registered_at },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let origin = (any::<u64>(), any::<i64>(), of(key()), text(), of(any::<i64>()));
    (origin, select(&EventKind::ALL[..]), message(), btree_map(text(), text(), 0..4)).prop_map(
        |((sequence, at, process, proc_name, report_id), kind, content, details)| Event {
            sequence,
            at,
            process,
            proc_name,
            report_id,
            kind,
            content,
            details,
        },
    )
}

fn spread() -> impl Strategy<Value = Spread> {
    [0.0..=100.0_f32, 0.0..=100.0_f32, 0.0..=100.0_f32].prop_map(|mut numbers| {
        numbers.sort_by(f32::total_cmp);
        Spread { min: Some(numbers[0]).filter(|_| numbers[0] > 20.0), avg: numbers[1], max: numbers[2] }
    })
}

fn usage_history() -> impl Strategy<Value = UsageHistory> {
    let kept = select(vec![UsageKept::Kept, UsageKept::NotKept, UsageKept::NotRegistered]);
    let point = (1..20_000_000_000_i64, spread(), spread(), any::<bool>());
    (kept, any::<u32>(), vec(point, 0..9)).prop_map(|(kept, step_secs, steps)| {
        let mut at = 0;
        let points = steps.into_iter().map(|(later, cpu, memory, restarted)| {
            at += later;
            UsagePoint { at, cpu, memory, restarted }
        });
        UsageHistory { kept, step_secs, points: points.collect() }
    })
}

fn log_position() -> impl Strategy<Value = LogPosition> {
    (any::<u64>(), any::<u64>()).prop_map(|(file, offset)| LogPosition { file, offset })
}

fn log_query() -> impl Strategy<Value = LogQuery> {
    (1..=LOG_LINES_MAX, of(log_position())).prop_map(|(lines, since)| LogQuery { lines, since })
}

fn log_tail() -> impl Strategy<Value = LogTail> {
    let state = select(&LogState::ALL[..]);
    let numbers = (any::<u64>(), any::<i64>(), any::<u64>());
    (state, text(), text(), bytes(), log_position(), numbers, any::<bool>()).prop_map(
        |(state, path, problem, bytes, end, (size, modified_at, skipped), restarted)| LogTail {
            state,
            path,
            problem,
            bytes,
            end,
            size,
            modified_at,
            restarted,
            skipped,
        },
    )
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn proof() -> impl Strategy<Value = WelcomeProof> {
    (any::<u64>(), any::<bool>(), bytes(), bytes()).prop_map(
        |(control_epoch, signed_reports, signer_der, signature)| WelcomeProof {
            control_epoch,
            signed_reports,
            signer_der,
            signature,
        },
    )
}

fn signed() -> impl Strategy<Value = Signed> {
    let beat = || proctor_wire::encode_part(FromAgent::Beat);
    (any::<u64>(), 0..4_usize, bytes(), any::<u32>(), vec(any::<[u8; 32]>(), 0..4), of(bytes())).prop_map(
        move |(sequence, count, signature, leaf, path, signer_der)| Signed {
            sequence,
            messages: std::iter::repeat_with(beat).take(count).collect(),
            signature,
            leaf,
            path,
            signer_der,
        },
    )
}

fn upgrade() -> impl Strategy<Value = uuid::Uuid> {
    any::<u128>().prop_map(uuid::Uuid::from_u128)
}

fn upgrade_step() -> impl Strategy<Value = UpgradeStep> {
    select(vec![UpgradeStep::Fetching, UpgradeStep::Trying, UpgradeStep::Done, UpgradeStep::Failed])
}

fn upgrade_order() -> impl Strategy<Value = UpgradeOrder> {
    (upgrade(), "[0-9.a-z-]{1,20}", "[a-z0-9_]{1,8}", any::<[u8; 32]>(), any::<u64>(), any::<bool>(), duration())
        .prop_map(|(upgrade, version, arch, sha256, size, allow_downgrade, health_deadline)| UpgradeOrder {
            upgrade,
            version,
            arch,
            sha256,
            size,
            allow_downgrade,
            health_deadline,
        })
}

fn agent_state() -> impl Strategy<Value = AgentState> {
    let hash = || any::<[u8; 16]>().prop_map(|bytes| StateHash::of_bytes(&bytes).expect("a hash has 16 bytes"));
    (hash(), hash()).prop_map(|(assigned, observed)| AgentState { assigned, observed })
}

pub(crate) fn from_agent() -> impl Strategy<Value = FromAgent> {
    let der = bytes;
    prop_oneof![
        (text(), text(), der(), of(agent()), host()).prop_map(|(token_id, token_secret, csr_der, agent, host)| {
            FromAgent::Enrol { token_id, token_secret, csr_der, agent, host }
        }),
        (
            agent(),
            text(),
            facts(),
            any::<u64>(),
            vec(any::<u8>(), 0..64),
            any::<Option<i64>>(),
            any::<Option<u64>>(),
            (any::<bool>(), of(der()), any::<bool>(), any::<bool>(), of(agent_state()))
        )
            .prop_map(|(agent, boot, facts, seen_generation, nonce, time_ms, seen_epoch, told)| {
                FromAgent::Hello {
                    agent,
                    boot: BootId::from(boot),
                    facts,
                    seen_generation,
                    nonce,
                    time_ms,
                    seen_epoch,
                    answers_usage: told.0,
                    challenge: told.1,
                    upgrades: told.2,
                    answers_logs: told.3,
                    state: told.4,
                }
            }),
        (any::<u64>(), any::<bool>()).prop_map(|(epoch, recorded)| FromAgent::Settled { epoch, recorded }),
        Just(FromAgent::Beat),
        (operation(), outcome()).prop_map(|(operation, outcome)| FromAgent::Outcome { operation, outcome }),
        vec((key(), snapshot()), 0..5).prop_map(|observations| FromAgent::Observed { observations }),
        any::<u64>().prop_map(|generation| FromAgent::Seen { generation }),
        der().prop_map(|csr_der| FromAgent::Renew { csr_der }),
        der().prop_map(|certificate_der| FromAgent::Return { certificate_der }),
        (vec(text(), 0..4), text())
            .prop_map(|(authorities, certified_by)| FromAgent::Trusted(Trusted { authorities, certified_by })),
        vec(event(), 0..4).prop_map(|events| FromAgent::Events { events }),
        (any::<u64>(), usage_history()).prop_map(|(request, history)| FromAgent::UsageHistory { request, history }),
        (any::<u64>(), log_tail()).prop_map(|(request, tail)| FromAgent::LogTail { request, tail }),
        any::<u64>().prop_map(|number| FromAgent::Pong { number }),
        duration().prop_map(|beat_interval| FromAgent::Paced { beat_interval }),
        Just(FromAgent::Goodbye),
        signed().prop_map(FromAgent::Signed),
        (upgrade(), any::<u64>(), any::<u32>()).prop_map(|(upgrade, offset, length)| FromAgent::FetchBuild {
            upgrade,
            offset,
            length
        }),
        (upgrade(), upgrade_step(), message()).prop_map(|(upgrade, step, reason)| FromAgent::UpgradeReport {
            upgrade,
            step,
            reason
        }),
        Just(FromAgent::Unknown),
    ]
}

pub(crate) fn from_server() -> impl Strategy<Value = FromServer> {
    let kind = select(&OperationKind::ALL[..]);
    prop_oneof![
        (agent(), text(), text(), of(bytes())).prop_map(|(agent, certificate_pem, authority_pem, signer_der)| {
            FromServer::Enrolled { agent, certificate_pem, authority_pem, signer_der }
        }),
        (text(), any::<bool>()).prop_map(|(reason, retry)| FromServer::Refused { reason, retry }),
        (any::<u64>(), duration(), any::<i64>(), of(proof()), any::<bool>()).prop_map(
            |(epoch, beat_interval, server_time_ms, proof, state_known)| {
                FromServer::Welcome { epoch, beat_interval, server_time_ms, proof, state_known }
            }
        ),
        duration().prop_map(|retry_after| FromServer::Busy { retry_after }),
        (operation(), key(), kind, of(spec()), duration()).prop_map(|(operation, key, kind, spec, expires_in)| {
            FromServer::Operate { operation, key, kind, spec, expires_in }
        }),
        vec(operation(), 0..5).prop_map(|operations| FromServer::Acknowledge { operations }),
        vec(operation(), 0..5).prop_map(|operations| FromServer::Cancel { operations }),
        vec(assign(), 0..3).prop_map(|assignments| FromServer::Assign { assignments }),
        vec((any::<u64>(), pool()), 0..4).prop_map(|pools| FromServer::AssignPools { pools }),
        Just(FromServer::Beat),
        text().prop_map(|certificate_pem| FromServer::Renewed { certificate_pem }),
        (text(), text())
            .prop_map(|(authorities_pem, issuing)| { FromServer::Authorities(Announced { authorities_pem, issuing }) }),
        any::<u64>().prop_map(|up_to| FromServer::EventsSeen { up_to }),
        (any::<u64>(), key(), select(&UsageRange::ALL[..])).prop_map(|(request, key, range)| FromServer::QueryUsage {
            request,
            key,
            range
        }),
        (any::<u64>(), key(), log_query()).prop_map(|(request, key, query)| FromServer::QueryLog {
            request,
            key,
            query
        }),
        any::<u64>().prop_map(|number| FromServer::Ping { number }),
        duration().prop_map(|beat_interval| FromServer::Pace { beat_interval }),
        registered().prop_map(FromServer::Registered),
        signed().prop_map(FromServer::Signed),
        upgrade_order().prop_map(FromServer::Upgrade),
        (upgrade(), any::<u64>(), bytes()).prop_map(|(upgrade, offset, bytes)| FromServer::BuildPart {
            upgrade,
            offset,
            bytes
        }),
        Just(FromServer::Unknown),
    ]
}
