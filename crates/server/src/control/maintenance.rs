//! Maintenance of hosts: cordons, and the approval of new hosts.
//!
//! Promised: while a host is cordoned, the fleet starts nothing on it (start, restart and manage end with
//! [`Code::Cordoned`], each with the reason, including the targets of a rolling task whose turn comes meanwhile);
//! stop, kill, release, reload and status still work, the agent keeps supervising, and its events are stored as
//! muted: webhooks do not get them. A cordon with an end expires on its own. A host that awaits approval has no
//! session and gets no work.
//! Absent: operations in progress when the cordon begins; cancel them to stop them.

use std::collections::HashMap;

use proctor_model::{
    AgentId, Class, Code, FieldError, HostKey, OperationId, OperationKind, Outcome, is_hidden, messages,
};
use proctor_runtime::clock;
use proctor_store::{Cordon, HostLocation, Millis, OpenTarget};

use super::{AuditAction, Caller, Control, HostRef, Result};

/// Hosts by the agents that serve them.
pub(super) type Sites = HashMap<AgentId, HostLocation>;

/// Maintenance that takes longer is no maintenance.
pub const CORDON_SECS_MAX: u64 = 366 * 24 * 3600;
const REASON_CHARS_MAX: usize = 200;

/// Why a host is cordoned, as an operator writes it: one meaningful line.
pub fn cordon_reason(text: &str) -> std::result::Result<String, FieldError> {
    let text = text.trim();
    let problem = if text.is_empty() {
        messages::cordon_reason_is_empty()
    } else if text.chars().count() > REASON_CHARS_MAX {
        messages::longer_than_chars(REASON_CHARS_MAX)
    } else if text.chars().any(is_hidden) {
        messages::has_hidden_characters()
    } else {
        return Ok(text.to_owned());
    };
    Err(FieldError::new("reason", problem))
}

/// When a cordon that begins now ends: at a time in Unix seconds, after some seconds, or never on its own.
pub fn cordon_until(
    until: Option<i64>,
    ttl_secs: Option<u64>,
    now: Millis,
) -> std::result::Result<Option<Millis>, FieldError> {
    let days = CORDON_SECS_MAX / (24 * 3600);
    let latest = now / 1000 + CORDON_SECS_MAX.cast_signed();
    match (until, ttl_secs) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(FieldError::new("until", messages::not_together_with("ttl_secs"))),
        (Some(until), None) if until <= now / 1000 => Err(FieldError::new("until", messages::is_in_the_past())),
        (Some(until), None) if until > latest => Err(FieldError::new("until", messages::is_too_many_days_away(days))),
        (Some(until), None) => Ok(Some(until * 1000)),
        (None, Some(secs)) if secs == 0 || secs > CORDON_SECS_MAX => {
            Err(FieldError::new("ttl_secs", messages::must_last_days_at_most(days)))
        }
        (None, Some(secs)) => Ok(Some(now + secs.cast_signed() * 1000)),
    }
}

impl Control {
    /// Sets the cordon of a host, instead of the one that it has. False for a host that is not known, or that the
    /// caller may not see.
    pub async fn cordon(
        &self,
        caller: &Caller,
        host: &HostRef,
        reason: String,
        until: Option<Millis>,
    ) -> Result<Option<(HostKey, Cordon)>> {
        let end = until.map_or_else(|| "without an end".to_owned(), |until| format!("until {}", until / 1000));
        let told = format!("{host}, {end}: {reason}");
        let Some(site) = self.maintained(caller, host, "cordon_host", &told).await? else { return Ok(None) };
        let key = site.key;
        let by = caller.name().into_text();
        let cordon = Cordon { reason, by, since: clock::unix_millis(), until, held_since: None };
        let deed = AuditAction::new("cordon_host", [Class::Operate]).on([&told]);
        let set = cordon.clone();
        let work = move |control: Self| async move { control.put_cordon(&key, Some(set)).await };
        let before = self.audited(caller, deed, work, |before| done(before.is_some())).await?;
        Ok(before.map(|_| (key, cordon)))
    }

    /// Ends the cordon of a host. None for a host that is not known, or that the caller may not see; otherwise whether
    /// there was one.
    pub async fn uncordon(&self, caller: &Caller, host: &HostRef) -> Result<Option<bool>> {
        let told = host.to_string();
        let Some(site) = self.maintained(caller, host, "uncordon_host", &told).await? else { return Ok(None) };
        let deed = AuditAction::new("uncordon_host", [Class::Operate]).on([&told]);
        let work = move |control: Self| async move { control.put_cordon(&site.key, None).await };
        let before = self.audited(caller, deed, work, |before| done(before.is_some())).await?;
        let now = clock::unix_millis();
        Ok(before.map(|cordon| cordon.is_some_and(|cordon| cordon.holds_at(now))))
    }

    /// In the store, and then in memory. None for a host that is not known any more.
    async fn put_cordon(&self, host: &HostKey, cordon: Option<Cordon>) -> Result<Option<Option<Cordon>>> {
        let before = self.inner.store.set_cordon(host, cordon).await?;
        self.inner.cordons.read_host(&*self.inner.store, host).await?;
        Ok(before)
    }

    /// The host, where the caller may operate all of it.
    async fn maintained(
        &self,
        caller: &Caller,
        host: &HostRef,
        action: &'static str,
        told: &str,
    ) -> Result<Option<HostLocation>> {
        let deed = AuditAction::new(action, [Class::Operate]).on([told]);
        self.audit_refusal(caller, &deed, caller.require_anywhere(Class::Operate)).await?;
        let site = self.sites(std::slice::from_ref(host)).await?.pop().flatten();
        let is_seen = |site: &HostLocation| {
            caller.is_allowed(Class::Read, site, None) || caller.is_allowed(Class::Operate, site, None)
        };
        let Some(site) = site.filter(is_seen) else { return Ok(None) };
        self.audit_refusal(caller, &deed, caller.require_on(Class::Operate, [&site], None)).await?;
        Ok(Some(site))
    }

    /// The hosts of agents, as they are now.
    pub(super) async fn sites_of(&self, agents: Vec<AgentId>) -> Result<Sites> {
        let sites = self.inner.store.sites_by_agent(&agents).await?;
        Ok(agents.into_iter().zip(sites).filter_map(|(agent, site)| Some((agent, site?))).collect())
    }

    /// Delivers targets whose turn has come, except on hosts that accept no starts: those end.
    pub(super) async fn dispatch_admitted(&self, targets: Vec<OpenTarget>, sites: &Sites) {
        let (admitted, refused) = parted(targets, sites);
        self.dispatch_now(admitted);
        self.record_all(&refused).await;
    }
}

/// Those that their hosts take, and the outcomes of the others.
pub(super) fn parted(targets: Vec<OpenTarget>, sites: &Sites) -> (Vec<OpenTarget>, Vec<(OperationId, Outcome)>) {
    let now = clock::unix_millis();
    let (mut admitted, mut refused) = (Vec::with_capacity(targets.len()), Vec::new());
    for target in targets {
        let site = target.agent.as_ref().and_then(|agent| sites.get(agent));
        match site.and_then(|site| refusal(site, target.kind, now)) {
            Some(outcome) => refused.push((target.operation, outcome)),
            None => admitted.push(target),
        }
    }
    (admitted, refused)
}

fn done(was_known: bool) -> String {
    if was_known { "done" } else { "not known" }.to_owned()
}

/// The outcome of an operation that the host does not take.
pub(super) fn refusal(host: &HostLocation, kind: OperationKind, now: Millis) -> Option<Outcome> {
    if host.awaits_approval {
        let message = messages::host_awaits_approval(host.key);
        return Some(Outcome::new(Code::AgentAbsent, message, false));
    }
    let cordon = host.cordon_at(now).filter(|_| brings_up(kind))?;
    let end = cordon.until.and_then(|until| jiff::Timestamp::from_second(until / 1000).ok());
    let message = match end {
        None => messages::host_cordoned(host.key, &cordon.by, &cordon.reason),
        Some(end) => messages::host_cordoned_until(host.key, &cordon.by, end, &cordon.reason),
    };
    Some(Outcome::new(Code::Cordoned, message, false))
}

/// Whether a process may run afterwards that did not before.
pub(super) fn brings_up(kind: OperationKind) -> bool {
    use OperationKind::{Kill, Manage, Release, Reload, Restart, Start, Status, Stop};
    match kind {
        Start | Restart | Manage => true,
        Stop | Kill | Release | Reload | Status => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_000_000;

    fn host(cordon: Option<Cordon>, awaits_approval: bool) -> HostLocation {
        HostLocation {
            key: "0:10.0.0.1".parse().unwrap(),
            agent: "a".parse().unwrap(),
            alias: None,
            business: None,
            cordon: cordon.map(Box::new),
            awaits_approval,
        }
    }

    #[test]
    fn a_cordon_refuses_what_brings_processes_up_until_its_end() {
        let (reason, by) = ("new disk".to_owned(), "user ada".to_owned());
        let cordon = |until| Cordon { reason: reason.clone(), by: by.clone(), since: 0, until, held_since: None };
        let held = host(Some(cordon(Some(NOW + 1))), false);

        for kind in OperationKind::ALL {
            let expected = matches!(kind, OperationKind::Start | OperationKind::Restart | OperationKind::Manage);
            let outcome = refusal(&held, kind, NOW);
            assert_eq!(outcome.as_ref().map(|outcome| outcome.code), expected.then_some(Code::Cordoned), "{kind:?}");
            assert_eq!(refusal(&held, kind, NOW + 1), None);
        }
        let message = refusal(&held, OperationKind::Start, NOW).unwrap().message;
        assert_eq!(message, "host 0:10.0.0.1 is cordoned by user ada until 1970-01-01T00:16:40Z: new disk");
        let endless = refusal(&host(Some(cordon(None)), false), OperationKind::Start, i64::MAX).unwrap().message;
        assert!(endless.contains("until somebody ends it"), "{endless}");
    }

    #[test]
    fn a_host_that_awaits_approval_takes_nothing() {
        let outcome = refusal(&host(None, true), OperationKind::Status, NOW).unwrap();

        assert_eq!(outcome.code, Code::AgentAbsent);
        assert!(outcome.message.contains("proctor hosts approve 0:10.0.0.1"), "{}", outcome.message);
    }

    #[test]
    fn bad_reasons_and_ends_name_their_field() {
        let field = |until, ttl| cordon_until(until, ttl, NOW).unwrap_err().field;

        assert_eq!(cordon_reason("  new disk ").unwrap(), "new disk");
        assert_eq!(cordon_reason(" ").unwrap_err().field, "reason");
        assert_eq!(cordon_reason("a\nb").unwrap_err().field, "reason");
        for hidden in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{2028}', '\u{e0041}', '\u{ad}'] {
            assert_eq!(cordon_reason(&format!("a{hidden}b")).unwrap_err().field, "reason", "{hidden:?}");
        }
        assert_eq!(cordon_reason("новый диск – 换盘 🛠").unwrap(), "новый диск – 换盘 🛠");
        assert_eq!(cordon_reason(&"x".repeat(REASON_CHARS_MAX + 1)).unwrap_err().field, "reason");
        assert_eq!(cordon_until(None, None, NOW), Ok(None));
        assert_eq!(cordon_until(Some(1001), None, NOW), Ok(Some(NOW + 1000)));
        assert_eq!(cordon_until(None, Some(2), NOW), Ok(Some(NOW + 2000)));
        assert_eq!(field(Some(1000), None), "until");
        assert_eq!(field(Some(i64::MAX), None), "until");
        assert_eq!(field(Some(2000), Some(5)), "until");
        assert_eq!(field(None, Some(0)), "ttl_secs");
        assert_eq!(field(None, Some(u64::MAX)), "ttl_secs");
    }
}
