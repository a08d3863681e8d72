//! Events: the newest, those after an id, long polls, and a stream.
//!
//! A stream pulls: it reads the next page from the store when its client has taken the previous one, so that a slow
//! client holds no more than a page. It ends when its caller may no longer read these events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::Stream;
use proctor_api::{EventHistogram, EventList, EventQuery, EventView, HistogramQuery, LIMIT, StreamQuery};
use proctor_model::{EventKind, FieldError, messages};
use proctor_runtime::clock;
use proctor_store::{EventCountQuery, StoredEvent};

use super::body::{Params, bounded, page_limit};
use super::caller::Authenticated;
use super::hosts::{parse_host_param, unknown_host};
use super::{ApiState, Result};
use crate::api::error::ApiError;
use crate::api::limits::QuotaPermit;
use crate::control::{Caller, Control, ControlError, LiveCaller};
use crate::event_json::event_view;

/// Below what proxies in front usually wait for.
const WAIT_SECS_MAX: u64 = 30;
/// Of a histogram, by default.
const STEP_SECS: u32 = 3600;
const STEPS: i64 = 24;
const STEP_SECS_MAX: u32 = 7 * 24 * 3600;
const STEPS_MAX: u32 = 500;
/// How often an idle stream sends a keep-alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The newest events, or those after an id; on request, waits for new ones.
#[utoipa::path(get, path = "/events", operation_id = "events", params(EventQuery), tag = "events",
               responses((status = 200, body = EventList)))]
pub(super) async fn list(
    mut caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<EventQuery>,
) -> Result<Json<EventList>> {
    let wait = bounded("wait", query.wait.unwrap_or(0), WAIT_SECS_MAX)?;
    let excluded = [("after", query.after.is_some()), ("wait", query.wait.is_some())];
    if let Some((field, _)) = excluded.into_iter().find(|(_, is_there)| *is_there && query.before.is_some()) {
        return Err(FieldError::new(field, messages::not_together_with("before")).into());
    }
    let wanted = Wanted { host: query.host, namespace: query.namespace, name: query.name, kinds: query.kinds };
    let limit = page_limit(query.limit)?;
    let wanted = proctor_store::EventQuery {
        before: query.before,
        since: query.since_ms,
        until: query.until_ms,
        ..wanted.resolve(&state.control, &caller.who, query.after, limit).await?
    };
    let _ticket = match wait {
        0 => None,
        _ => Some(state.border.waits.take(&caller.who).map_err(ApiError::from)?),
    };
    if wait > 0 {
        caller.waits();
    }
    let mut standing = state.control.live_caller(caller.who);
    let mut page = state.control.follow_events(&mut standing, wanted, Duration::from_secs(wait)).await?;
    if query.before.is_some() {
        let has_more = page.events.len() >= limit as usize;
        page.next = page.events.first().filter(|_| has_more).map_or(0, |oldest| oldest.id);
        page.events.reverse();
    }
    Ok(Json(EventList { events: page.events.iter().map(event_view).collect(), next: page.next }))
}

/// How many events of each type were stored in each step of time.
#[utoipa::path(get, path = "/events/histogram", operation_id = "event_histogram", params(HistogramQuery),
               tag = "events", responses((status = 200, body = EventHistogram)))]
pub(super) async fn histogram(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<HistogramQuery>,
) -> Result<Json<EventHistogram>> {
    let Steps { from, step, steps } = Steps::of(&query, clock::unix_millis() / 1000 + 1)?;
    let wanted = Wanted { host: query.host, namespace: query.namespace, name: query.name, kinds: query.kinds };
    let which = wanted.resolve(&state.control, &caller.who, None, 0).await?;
    let step_ms = NonZeroU32::MIN.saturating_add(step.saturating_mul(1000) - 1);
    let counted = EventCountQuery { which, from: from.saturating_mul(1000), step_ms, steps };
    let series = state.control.count_events(&caller.who, &counted).await?;
    Ok(Json(EventHistogram { step, from, series }))
}

/// The steps of a histogram, in seconds.
#[derive(Debug, PartialEq, Eq)]
struct Steps {
    from: i64,
    step: u32,
    steps: u32,
}

impl Steps {
    /// `now` is the next full second.
    fn of(query: &HistogramQuery, now: i64) -> std::result::Result<Self, FieldError> {
        let step = query.step.unwrap_or(STEP_SECS);
        if !(1..=STEP_SECS_MAX).contains(&step) {
            return Err(FieldError::new("step", messages::must_be_between(1, STEP_SECS_MAX)));
        }
        let until = query.until.unwrap_or(now);
        let from = query.since.unwrap_or_else(|| until.saturating_sub(i64::from(step) * STEPS));
        let length = until.saturating_sub(from);
        if length <= 0 {
            return Err(FieldError::new("since", messages::must_be_before_until()));
        }
        let steps = length.saturating_add(i64::from(step) - 1) / i64::from(step);
        match u32::try_from(steps) {
            Ok(steps) if steps <= STEPS_MAX => Ok(Self { from, step, steps }),
            Ok(_) | Err(_) => Err(FieldError::new("step", messages::makes_too_many_steps(steps, STEPS_MAX))),
        }
    }
}

/// Events as they happen (server-sent events): `id` is the event's id, `event` its type, `data` the event as in the
/// list.
///
/// With the header `Last-Event-ID` it continues after that event.
#[utoipa::path(get, path = "/events/stream", operation_id = "event_stream", tag = "events",
               params(StreamQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Goes before `after`.")),
               responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn stream(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<StreamQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = std::result::Result<Event, Infallible>>>> {
    let after = last_event_id(&headers)?.or(query.after);
    let wanted = Wanted { host: query.host, namespace: query.namespace, name: query.name, kinds: query.kinds };
    let wanted = wanted.resolve(&state.control, &caller.who, after, LIMIT).await?;
    let ticket = state.border.streams.take(&caller.who).map_err(ApiError::from)?;
    let follower = Follower::begin(state.control, caller.who, wanted, ticket).await?;
    let events = futures::stream::unfold(follower, |mut follower| async {
        let event = follower.next().await?;
        Some((Ok(sse_event(&event)), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

fn last_event_id(headers: &HeaderMap) -> std::result::Result<Option<u64>, FieldError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| FieldError::new("Last-Event-ID", messages::not_an_event_id()))
}

fn sse_event(event: &EventView) -> Event {
    let json = serde_json::to_string(event).expect("an event has only string keys");
    Event::default().id(event.id.to_string()).event(&event.kind).data(json)
}

/// One client of a stream, and how far it has come.
struct Follower {
    control: Control,
    standing: LiveCaller,
    query: proctor_store::EventQuery,
    ahead: VecDeque<StoredEvent>,
    _ticket: QuotaPermit,
}

impl Follower {
    /// A stream without an id to start after starts now.
    async fn begin(
        control: Control,
        caller: Caller,
        mut query: proctor_store::EventQuery,
        ticket: QuotaPermit,
    ) -> Result<Self> {
        let mut standing = control.live_caller(caller);
        if query.after.is_none() {
            let newest = proctor_store::EventQuery { limit: 0, ..query.clone() };
            query.after = Some(control.follow_events(&mut standing, newest, Duration::ZERO).await?.next);
        } else {
            control.require_event_access(&mut standing, &query).await?;
        }
        Ok(Self { control, standing, query, ahead: VecDeque::new(), _ticket: ticket })
    }

    /// None when the server shuts down, when the store cannot be read, or when the caller's permissions have ended:
    /// the client comes back by itself, with the id of its last event, and is told why it may not.
    async fn next(&mut self) -> Option<EventView> {
        let shutdown = self.control.shutdown();
        loop {
            if !self.ahead.is_empty() && self.standing.is_stale() {
                let check = self.control.require_event_access(&mut self.standing, &self.query).await;
                check.inspect_err(stream_ended).ok()?;
            }
            if let Some(event) = self.ahead.pop_front() {
                return Some(event_view(&event));
            }
            if shutdown.is_cancelled() {
                return None;
            }
            let wait = Duration::from_secs(WAIT_SECS_MAX);
            let page = self.control.follow_events(&mut self.standing, self.query.clone(), wait).await;
            let page = page.inspect_err(stream_ended).ok()?;
            self.query.after = Some(page.next);
            self.ahead = page.events.into();
        }
    }
}

fn stream_ended(error: &ControlError) {
    tracing::info!(%error, "event stream ended");
}

/// What the queries of a list and of a stream share.
struct Wanted {
    host: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    kinds: Option<String>,
}

impl Wanted {
    async fn resolve(
        self,
        control: &Control,
        caller: &Caller,
        after: Option<u64>,
        limit: u32,
    ) -> Result<proctor_store::EventQuery> {
        let mut query = proctor_store::EventQuery {
            after,
            namespace: self.namespace.as_deref().map(str::parse).transpose()?,
            name: self.name.as_deref().map(str::parse).transpose()?,
            kinds: self.kinds.as_deref().map_or(Ok(Vec::new()), kinds)?,
            limit,
            ..proctor_store::EventQuery::default()
        };
        if let Some(host) = parse_host_param(self.host.as_deref())? {
            let hosts = std::slice::from_ref(&host);
            let readable = control.readable_sites(caller, hosts, query.namespace.as_ref()).await?.remove(0);
            let record = readable.ok_or_else(|| unknown_host(&host))?;
            query.agent = Some(record.agent);
        }
        Ok(query)
    }
}

/// Comma-separated names.
fn kinds(text: &str) -> std::result::Result<Vec<EventKind>, FieldError> {
    text.split(',').map(|name| name.trim().parse()).collect()
}
