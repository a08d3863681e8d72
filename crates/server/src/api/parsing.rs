//! Where JSON bodies are parsed, and how much at once.
//!
//! Promised: a body beyond [`INLINE_BYTES_MAX`] is parsed on the blocking pool, so that it delays no other call;
//! [`AT_ONCE`] such bodies of authenticated callers at a time, and as many of others. Of those, one with more than
//! [`VALUES_MAX`] values, or too many objects, is rejected before any is built: two bytes of `0,` would become a
//! value of 32. The parsed form of a body beyond [`UNCOUNTED_BYTES_MAX`] reserves memory first, held by the parsing
//! and then by its result. A body that waits for a slot or for room does not count as a call, and no caller has more
//! than a share of those waiting for a slot.
//! Absent: what the values mean.

use proctor_model::messages;

use axum::body::Bytes;

use super::bodies::{Bodies, BodySender, Reservation};
use super::error::{ApiError, Problem};
use super::heavy::Heavy;
use super::limits::{CallTurn, Exceeded, Quota, QuotaPermit};

/// The parsed form of a smaller body is bounded by the number of calls.
const UNCOUNTED_BYTES_MAX: usize = 64 * 1024;
/// About a millisecond of parsing.
const INLINE_BYTES_MAX: usize = 256 * 1024;
const AT_ONCE: usize = 2;
/// Ten for each of the most targets that a call may name.
const VALUES_MAX: usize = 2_000_000;
/// An object takes as much memory as this many values in addition to its own: its map starts with room for eleven.
const VALUES_PER_OBJECT: usize = 9;
/// With what objects take; at most what one sender may have built at a time.
const WEIGHT_MAX: usize = 2 * VALUES_MAX;

/// Whose bodies.
#[derive(Debug)]
pub(super) struct Parsing {
    pub(super) of_callers: Lane,
    /// Of senders whose credentials are in the body that is parsed.
    pub(super) of_strangers: Lane,
}

impl Default for Parsing {
    fn default() -> Self {
        let lane = || Lane { slots: Heavy::new(AT_ONCE, messages::too_many_large_bodies()), quota: Quota::parsing() };
        Self { of_callers: lane(), of_strangers: lane() }
    }
}

#[derive(Debug)]
pub(super) struct Lane {
    slots: Heavy,
    /// Those at work, and those that wait for a slot.
    quota: Quota,
}

/// Whether a body takes a slot to be parsed.
pub(super) fn is_large(body: &[u8]) -> bool {
    body.len() > INLINE_BYTES_MAX
}

/// The parsed form of a body, and the room it takes; none if it is small.
#[derive(Debug)]
pub(super) struct Parsed<T> {
    pub(super) value: T,
    pub(super) room: Option<Reservation>,
}

impl Lane {
    /// What `parse` makes of the body of this sender. The turn of its call is paused while that may wait.
    pub(super) async fn run<T, E, F>(
        &self,
        bodies: &Bodies,
        sender: &BodySender,
        turn: Option<&CallTurn>,
        body: &Bytes,
        parse: F,
    ) -> Result<Parsed<T>, E>
    where
        T: Send + 'static,
        E: From<ApiError> + Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    {
        if body.len() <= UNCOUNTED_BYTES_MAX {
            return Ok(Parsed { value: parse(body)?, room: None });
        }
        let permit = if is_large(body) { Some(self.take_permit(sender, turn)?) } else { None };
        if let Some(turn) = turn {
            turn.pause();
        }
        let parsed = self.run_counted(bodies, sender, body, parse).await?;
        drop(permit);
        turn.map(CallTurn::resume).transpose().map_err(ApiError::from)?;
        Ok(parsed)
    }

    fn take_permit(&self, sender: &BodySender, turn: Option<&CallTurn>) -> Result<QuotaPermit, ApiError> {
        let permit = match turn {
            Some(turn) => turn.share_of(&self.quota),
            None => self.quota.take_as(sender.name().to_owned(), false),
        };
        permit.map_err(|Exceeded { what, .. }| ApiError::busy(what))
    }

    async fn run_counted<T, E, F>(
        &self,
        bodies: &Bodies,
        sender: &BodySender,
        body: &Bytes,
        parse: F,
    ) -> Result<Parsed<T>, E>
    where
        T: Send + 'static,
        E: From<ApiError> + Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    {
        let count = self.off_workers(body, |body| Ok::<_, ApiError>(Count::of(body))).await?;
        if count.values > VALUES_MAX || count.weight() > WEIGHT_MAX {
            return Err(too_many_values().into());
        }
        let room = Some(bodies.room_for_values(count.weight(), sender).await?);
        // The room goes with the work: a caller that disconnects does not end the parsing.
        self.off_workers(body, |body| Ok(Parsed { value: parse(body)?, room })).await
    }

    /// As [`Self::run`], for a `parse` that builds only what it looks for.
    pub(super) async fn look<T, E, F>(&self, body: &Bytes, parse: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<ApiError> + Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    {
        self.off_workers(body, parse).await
    }

    /// On a thread for blocking work where the body is large, in its turn.
    async fn off_workers<T, E, F>(&self, body: &Bytes, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<ApiError> + Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    {
        if !is_large(body) {
            return work(body);
        }
        let body = body.clone();
        self.slots.run(move || work(&body)).await?
    }
}

fn too_many_values() -> ApiError {
    ApiError::new(Problem::BodyTooLarge, messages::body_has_too_many_values(VALUES_MAX))
}

/// What is in a body. What is not JSON is left to the parser.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    values: usize,
    objects: usize,
}

impl Count {
    /// Each value but the first comes after one of `,`, `[` and `{`.
    fn of(body: &[u8]) -> Self {
        let (mut count, mut is_in_text, mut is_escaped) = (Self { values: 1, objects: 0 }, false, false);
        for byte in body {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_in_text => is_escaped = true,
                b'"' => is_in_text = !is_in_text,
                b',' | b'[' if !is_in_text => count.values += 1,
                b'{' if !is_in_text => {
                    count.values += 1;
                    count.objects += 1;
                }
                _ => {}
            }
        }
        count
    }

    /// In values.
    fn weight(self) -> usize {
        self.values + VALUES_PER_OBJECT * self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Caller;

    const MIB: usize = 1024 * 1024;

    fn sender() -> BodySender {
        BodySender::Caller("a".to_owned())
    }

    async fn length(lane: &Lane, body: &Bytes) -> Result<usize, ApiError> {
        lane.run(&Bodies::default(), &sender(), None, body, |body| Ok(body.len())).await.map(|parsed| parsed.value)
    }

    fn list(values: usize) -> Bytes {
        Bytes::from(format!("[{}0]", "0,".repeat(values - 1)))
    }

    #[tokio::test]
    async fn a_body_of_many_values_is_refused_before_they_are_built() {
        let lanes = Parsing::default();
        let text = Bytes::from(format!(r#"["a\"{}"]"#, ",".repeat(VALUES_MAX + 1)));

        let most = list(VALUES_MAX - 1);
        assert_eq!(length(&lanes.of_callers, &most).await.unwrap(), most.len());
        assert_eq!(length(&lanes.of_callers, &text).await.unwrap(), text.len());
        let error = length(&lanes.of_callers, &list(VALUES_MAX)).await.unwrap_err();
        assert_eq!(error.problem, Problem::BodyTooLarge);
    }

    #[tokio::test]
    async fn objects_weigh_more_than_their_values() {
        let lanes = Parsing::default();
        let objects = |count: usize| Bytes::from(format!("[{}0]", r#"{"a":0},"#.repeat(count)));

        assert!(length(&lanes.of_callers, &objects(300_000)).await.is_ok());
        let error = length(&lanes.of_callers, &objects(400_000)).await.unwrap_err();
        assert_eq!(error.problem, Problem::BodyTooLarge);
    }

    #[tokio::test]
    async fn a_caller_who_hangs_up_leaves_the_room_with_the_work() {
        let (lanes, bodies, body) = (Parsing::default(), Bodies::default(), list(VALUES_MAX - 1));
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let sender = BodySender::Caller("a".to_owned());
        let work = move |_: &[u8]| {
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
            Ok::<_, ApiError>(())
        };
        let mut parsing = Box::pin(lanes.of_callers.run(&bodies, &sender, None, &body, work));

        tokio::select! {
            _ = &mut parsing => panic!("it cannot be done yet"),
            begun = has_begun => begun.unwrap(),
        }
        drop(parsing);

        let has_room = async |values| futures::poll!(Box::pin(bodies.room_for_values(values, &sender))).is_ready();
        let (has_rest, has_all) = (has_room(VALUES_MAX).await, has_room(2 * VALUES_MAX).await);
        go_on.send(()).unwrap();
        assert!(has_rest && !has_all);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_built_of_bodies_has_room_first_and_holds_it() {
        let (lanes, bodies) = (Parsing::default(), Bodies::default());
        let body = list(VALUES_MAX - 1);
        let run = |name: &str| {
            let (lane, sender) = (&lanes.of_callers, BodySender::Caller(name.to_owned()));
            let (bodies, body) = (&bodies, &body);
            async move { lane.run(bodies, &sender, None, body, |body| Ok::<_, ApiError>(body.len())).await }
        };
        assert!(body.len() < 4 * MIB);

        let held = [run("a").await.unwrap(), run("a").await.unwrap()];
        let third = run("a").await.unwrap_err();
        let of_others = [run("b").await.unwrap(), run("b").await.unwrap()];
        let full = run("c").await.unwrap_err();

        assert_eq!((third.problem, full.problem), (Problem::ConcurrencyLimited, Problem::ConcurrencyLimited));
        drop((held, of_others));
        assert!(run("a").await.unwrap().room.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_a_slot_and_small_ones_do_not() {
        let lanes = Parsing::default();
        let _slots = lanes.of_callers.slots.turns().acquire_many(AT_ONCE as u32).await.unwrap();
        let (large, small) = (Bytes::from(vec![b' '; INLINE_BYTES_MAX + 1]), Bytes::from_static(b"{}"));

        assert_eq!(length(&lanes.of_callers, &small).await.unwrap(), 2);
        assert!(length(&lanes.of_callers, &large).await.unwrap_err().message.starts_with("too many large bodies"));
        assert!(length(&lanes.of_strangers, &large).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_whose_large_body_waits_holds_no_call_and_only_a_part_of_the_lane() {
        let (lanes, bodies, calls) = (Parsing::default(), Bodies::default(), Quota::calls(512.try_into().unwrap()));
        let slots = lanes.of_callers.slots.turns().acquire_many(AT_ONCE as u32).await.unwrap();
        let large = Bytes::from(vec![b' '; INLINE_BYTES_MAX + 1]);
        let parse = |user: &str| {
            let (lane, bodies, large) = (&lanes.of_callers, &bodies, &large);
            let turn = calls.take_turn(&Caller { app: "app".to_owned(), ..Caller::local(user) });
            Box::pin(async move {
                let turn = turn.unwrap();
                lane.run(bodies, &sender(), Some(&turn), large, |body| Ok::<_, ApiError>(body.len())).await
            })
        };
        let mut waiting: Vec<_> = (0..16).map(|_| parse("ana")).collect();
        for waiting in &mut waiting {
            assert!(futures::poll!(waiting).is_pending());
        }

        assert_eq!(calls.taken(), 0, "who waits holds no call");
        let refused = parse("ana").await.unwrap_err();
        assert!(refused.message.starts_with("too many large bodies"), "{}", refused.message);
        let mut other = parse("bob");
        assert!(futures::poll!(&mut other).is_pending(), "others still get a slot");
        drop((slots, waiting));
        assert_eq!(other.await.unwrap().value, large.len());
        assert_eq!((lanes.of_callers.quota.taken(), calls.taken()), (0, 0));
    }
}
