//! The audit log: read in pages, exported as a whole, and verified.

use std::collections::VecDeque;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use proctor_api::{AuditFilter, AuditPage, AuditQuery, AuditVerdict, AuditView, LIMIT_MAX, SortOrder};
use proctor_model::Class;
use proctor_pki::hex;
use proctor_store::{AuditAnchor, AuditEntry, audit};

use super::body::{Params, page_limit};
use super::caller::Authenticated;
use super::{ApiState, Result};
use crate::api::error::ApiError;
use crate::api::limits::QuotaPermit;
use crate::control::{Control, ControlError, LiveCaller};

/// Audit entries, oldest first or newest first.
#[utoipa::path(get, path = "/audit", operation_id = "audit", params(AuditQuery), tag = "audit",
               responses((status = 200, body = AuditPage)))]
pub(super) async fn list(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<AuditQuery>,
) -> Result<Json<AuditPage>> {
    let AuditQuery { after, before, order, limit, app, user, action, since, until } = query;
    let filter = AuditFilter { app, user, action, since, until };
    let (after, limit, newest) = (after.unwrap_or(0), page_limit(limit)?, order == Some(SortOrder::Desc));
    let wanted = proctor_store::AuditQuery { before, newest, ..wanted(&filter, after, limit) };
    let mut entries = state.control.audit_entries(&wanted).await?;
    let next = match newest {
        true => entries.first().filter(|_| entries.len() >= limit as usize).map_or(0, |oldest| oldest.seq),
        false => entries.last().map_or(after, |entry| entry.seq),
    };
    if newest {
        entries.reverse();
    }
    Ok(Json(AuditPage { entries: entries.iter().map(view).collect(), next }))
}

/// All matching audit entries, one JSON object per line, oldest first.
#[utoipa::path(get, path = "/audit/export", operation_id = "export_audit", params(AuditFilter), tag = "audit",
               responses((status = 200, body = String, content_type = "application/x-ndjson")))]
pub(super) async fn export(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(filter): Params<AuditFilter>,
) -> Result<Response> {
    let ticket = state.border.streams.take(&caller.who).map_err(ApiError::from)?;
    let standing = state.control.live_caller(caller.who);
    let reader = Reader { control: state.control, standing, filter, after: 0, ahead: VecDeque::new(), _ticket: ticket };
    let lines = futures::stream::try_unfold(reader, |mut reader| async {
        let line = reader.next().await?;
        Ok::<_, ControlError>(line.map(|line| (line, reader)))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Page after page, so that an export of any length holds no more than one, and ends with its caller's permissions.
struct Reader {
    control: Control,
    standing: LiveCaller,
    filter: AuditFilter,
    after: u64,
    ahead: VecDeque<AuditEntry>,
    _ticket: QuotaPermit,
}

impl Reader {
    async fn next(&mut self) -> std::result::Result<Option<Bytes>, ControlError> {
        // Also before each entry that was read ahead: a client may read a page slowly.
        if self.ahead.is_empty() || self.standing.is_stale() {
            self.standing.current(&self.control).await?.require(Class::Admin)?;
        }
        if self.ahead.is_empty() {
            let query = wanted(&self.filter, self.after, LIMIT_MAX);
            self.ahead = self.control.audit_entries(&query).await?.into();
        }
        let Some(entry) = self.ahead.pop_front() else { return Ok(None) };
        self.after = entry.seq;
        let mut line = serde_json::to_vec(&view(&entry)).expect("an entry has only string keys");
        line.push(b'\n');
        Ok(Some(line.into()))
    }
}

/// Verifies the whole hash chain.
#[utoipa::path(get, path = "/audit/verify", operation_id = "verify_audit", tag = "audit",
               responses((status = 200, body = AuditVerdict)))]
pub(super) async fn verify(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<AuditVerdict>> {
    // It may take as long as an export.
    let _ticket = state.border.streams.take(&caller.who).map_err(ApiError::from)?;
    let control = &state.control;
    let mut standing = control.live_caller(caller.who);
    let begin = control.audit_anchor().await?;
    let mut last = begin;
    let mut verdict = AuditVerdict {
        intact: true,
        entries: 0,
        last_hash: String::new(),
        broken_at: None,
        problem: None,
        archived: begin.seq,
        archived_hash: hex(&begin.hash),
    };
    loop {
        standing.current(control).await?.require(Class::Admin)?;
        let page = control.audit_entries(&wanted(&AuditFilter::default(), last.seq, LIMIT_MAX)).await?;
        let Some(newest) = page.last() else { break };
        verdict.entries += page.len() as u64;
        if let Err(broken) = audit::verify_after(last, &page) {
            verdict.intact = false;
            verdict.broken_at = Some(broken.at());
            verdict.problem = Some(broken.to_string());
        }
        last = AuditAnchor { seq: newest.seq, hash: newest.hash };
        if !verdict.intact {
            break;
        }
    }
    Ok(Json(AuditVerdict { last_hash: hex(&last.hash), ..verdict }))
}

fn wanted(filter: &AuditFilter, after: u64, limit: u32) -> proctor_store::AuditQuery {
    proctor_store::AuditQuery {
        after,
        limit,
        before: None,
        newest: false,
        app: filter.app.clone(),
        user: filter.user.clone(),
        action: filter.action.clone(),
        since: filter.since.map(|secs| secs.saturating_mul(1000)),
        until: filter.until.map(|secs| secs.saturating_mul(1000)),
    }
}

fn view(entry: &AuditEntry) -> AuditView {
    let draft = entry.draft.clone();
    AuditView {
        seq: entry.seq,
        at: entry.at,
        phase: draft.phase.as_str().to_owned(),
        of: draft.of,
        app: draft.app,
        user: draft.user,
        remote: draft.remote.map(|remote| remote.to_string()),
        request_id: draft.request_id,
        action: draft.action,
        classes: draft.classes.iter().map(|class| class.to_string()).collect(),
        target_count: draft.target_count,
        targets: draft.targets,
        outcome: draft.outcome,
        prev_hash: hex(&entry.prev_hash),
        hash: hex(&entry.hash),
    }
}
