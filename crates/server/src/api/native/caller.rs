//! Who is calling, and changes that only administrators may make.

use std::sync::Arc;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use parking_lot::Mutex;
use proctor_api::Removed;
use proctor_model::{Class, messages};
use proctor_store::Refusal;

use super::error::{Kind, NativeError};
use super::{ApiState, Result};
use crate::ServerError;
use crate::api::auth::{Credentials, SessionProof};
use crate::api::bodies::{BodySender, Reservation};
use crate::api::connections::{Connection, IdleGuard};
use crate::api::limits::CallTurn;
use crate::api::request::{admitted, origin_of};
use crate::control::{AuditAction, Caller, Control, ControlError};

/// A handler that takes this is reached only by callers who have proved who they are. It comes
/// first among the arguments, so that nothing of a stranger's body is read.
#[derive(Debug)]
pub(super) struct Authenticated {
    pub(super) who: Caller,
    /// Paused while the body is read, and once the call only waits.
    turn: CallTurn,
    connection: Option<Arc<Connection>>,
    waiting: Option<IdleGuard>,
    _rooms: HeldRooms,
}

/// Whose body is read after the caller is known.
#[derive(Clone, Debug)]
pub(super) struct BodyOf(pub(super) BodySender);

/// What the body of a call and what was built of it take in memory, held as long as its [`Authenticated`].
#[derive(Clone, Debug, Default)]
pub(super) struct HeldRooms(Arc<Mutex<Vec<Reservation>>>);

impl HeldRooms {
    pub(super) fn hold(&self, rooms: impl IntoIterator<Item = Reservation>) {
        self.0.lock().extend(rooms);
    }
}

impl FromRequestParts<ApiState> for Authenticated {
    type Rejection = NativeError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self> {
        let session = || SessionProof::from_headers(&parts.method, &parts.headers).map(Credentials::Session);
        let credentials = Credentials::from_headers(&parts.headers)?.or_else(session).unwrap_or_default();
        let origin = origin_of(&parts.headers, &parts.extensions);
        let take_turn = |who: &Caller| Ok(state.border.calls.take_turn(who)?);
        let (who, turn) = admitted(state, &credentials, &parts.extensions, origin, take_turn).await?;
        if let Some(needs) = parts.extensions.get::<RouteRequirement>().cloned() {
            needs.check(&state.control, &who).await?;
            if let Some(class) = needs.class.filter(|_| !who.has_any_permission()) {
                parts.extensions.insert(WithoutPermissions { who: who.clone(), class, needs });
            }
        }
        parts.extensions.insert(BodyOf(BodySender::caller(&who)));
        let connection = parts.extensions.get::<Arc<Connection>>().cloned();
        let rooms = HeldRooms::default();
        parts.extensions.insert(rooms.clone());
        parts.extensions.insert(turn.clone());
        Ok(Self { who, turn, connection, waiting: None, _rooms: rooms })
    }
}

/// What a route takes, as the table says. Calls for administrators end here for everybody else, before
/// anything of their body is read; the other classes depend on targets and are checked with them.
#[derive(Clone, Debug)]
pub(super) struct RouteRequirement {
    /// None: nothing but to have proved who they are.
    pub(super) class: Option<Class>,
    pub(super) mutates: bool,
    /// In the words of the audit.
    pub(super) action: String,
}

impl RouteRequirement {
    async fn check(&self, control: &Control, who: &Caller) -> Result<()> {
        if self.class != Some(Class::Admin) {
            return Ok(());
        }
        self.audited(control, who, who.require(Class::Admin)).await
    }

    /// Leaves a trace of what was refused and would have changed something.
    async fn audited(
        &self,
        control: &Control,
        who: &Caller,
        check: std::result::Result<(), ControlError>,
    ) -> Result<()> {
        if !self.mutates {
            return Ok(check?);
        }
        Ok(control.audit_refusal(who, &AuditAction::new(self.action.clone(), self.class), check).await?)
    }
}

/// A caller without any role, on a route that takes one: nothing large of theirs is parsed.
#[derive(Clone, Debug)]
pub(super) struct WithoutPermissions {
    who: Caller,
    class: Class,
    needs: RouteRequirement,
}

impl WithoutPermissions {
    pub(super) async fn refuse(&self, control: &Control) -> Result<()> {
        let Self { who, class, needs } = self;
        needs.audited(control, who, who.require_anywhere(*class)).await
    }
}

impl Authenticated {
    /// From now on the call only waits: others may take its turn, and its connection may give way.
    pub(super) fn waits(&mut self) {
        self.waiting = self.connection.as_ref().map(Connection::mark_idle);
        self.turn.pause();
    }

    /// A change that only administrators may make, with its trace in the audit. What the store
    /// refuses is reported to the caller.
    pub(super) async fn administer<T, E, F, Fut>(
        &self,
        state: &ApiState,
        action: &'static str,
        targets: impl IntoIterator<Item = String, IntoIter: ExactSizeIterator>,
        work: F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Control) -> Fut + Send + 'static,
        Fut: Future<Output = std::result::Result<std::result::Result<T, Refusal>, E>> + Send + 'static,
        E: Into<ServerError> + std::fmt::Display + Send + 'static,
    {
        self.administer_telling(state, action, targets, work, |_| "done".to_owned()).await
    }

    /// As [`Self::administer`]; `done` describes the result.
    pub(super) async fn administer_telling<T, E, F, Fut>(
        &self,
        state: &ApiState,
        action: &'static str,
        targets: impl IntoIterator<Item = String, IntoIter: ExactSizeIterator>,
        work: F,
        done: fn(&T) -> String,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Control) -> Fut + Send + 'static,
        Fut: Future<Output = std::result::Result<std::result::Result<T, Refusal>, E>> + Send + 'static,
        E: Into<ServerError> + std::fmt::Display + Send + 'static,
    {
        let work = |control: Control| async move { Ok(work(control).await) };
        let audit_result = move |ended: &std::result::Result<std::result::Result<T, Refusal>, E>| match ended {
            Ok(Ok(made)) => done(made),
            Ok(Err(refusal)) => format!("refused: {refusal}"),
            Err(error) => format!("failed: {error}"),
        };
        let done = state.control.administer(&self.who, action, targets, work, audit_result).await?;
        state.forget_verified();
        Ok(done.map_err(Into::into)??)
    }

    /// A removal that only administrators may make; `what` was there, or is not found. `before` is what the audit
    /// says of it.
    pub(super) async fn remove<F, Fut>(
        &self,
        state: &ApiState,
        action: &'static str,
        what: String,
        before: Option<String>,
        work: F,
    ) -> Result<Json<Removed>>
    where
        F: FnOnce(Control) -> Fut + Send + 'static,
        Fut: Future<Output = proctor_store::Result<bool>> + Send + 'static,
    {
        let work = async move |control| work(control).await.map(Ok);
        let target = before.map_or_else(|| what.clone(), |before| format!("{what}: {before}"));
        if !self.administer(state, action, [target], work).await? {
            return Err(NativeError::new(Kind::NotFound, messages::no_such_thing(what)));
        }
        Ok(Json(Removed { removed: what }))
    }
}
