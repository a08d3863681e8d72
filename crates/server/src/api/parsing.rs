//! Where the JSON of bodies is parsed, and how much of it.
//!
//! Promised: a body beyond [`INLINE_BYTES_MAX`] is parsed on a thread for blocking work, so that it holds up no other
//! call; [`AT_ONCE`] such bodies of callers who are known at a time, and as many of others. Of those, one with more than
//! [`VALUES_MAX`] values is refused before any is built: two bytes of `0,` would become a value of 32.
//! Absent: what the values mean.

use proctor_model::messages;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::Semaphore;

use super::error::{ApiError, Problem};

/// About a millisecond of parsing.
const INLINE_BYTES_MAX: usize = 256 * 1024;
const AT_ONCE: usize = 2;
/// Ten for each of the most targets that a call may name.
const VALUES_MAX: usize = 2_000_000;
/// Who waits longer is told to come again.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Whose bodies.
#[derive(Debug)]
pub(super) struct Parsing {
    pub(super) of_callers: Lane,
    /// Of senders whose credentials are in the body that is parsed.
    pub(super) of_strangers: Lane,
}

impl Default for Parsing {
    fn default() -> Self {
        let lane = || Lane(Arc::new(Semaphore::new(AT_ONCE)));
        Self { of_callers: lane(), of_strangers: lane() }
    }
}

#[derive(Debug)]
pub(super) struct Lane(Arc<Semaphore>);

impl Lane {
    /// What `parse` makes of the body.
    pub(super) async fn run<T, E, F>(&self, body: &Bytes, parse: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<ApiError> + Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    {
        if body.len() <= INLINE_BYTES_MAX {
            return parse(body);
        }
        let slot = tokio::time::timeout(WAIT_MAX, self.0.clone().acquire_owned()).await;
        let slot = slot.map_err(|_| ApiError::busy(messages::too_many_large_bodies()))?;
        let slot = slot.expect("the semaphore is never closed");
        let body = body.clone();
        let parsed = tokio::task::spawn_blocking(move || {
            let parsed = if has_too_many_values(&body) { Err(too_many_values().into()) } else { parse(&body) };
            drop(slot);
            parsed
        });
        parsed.await.map_err(|_| ApiError::new(Problem::Internal, "the body could not be read"))?
    }
}

fn too_many_values() -> ApiError {
    ApiError::new(Problem::BodyTooLarge, messages::body_has_too_many_values(VALUES_MAX))
}

/// Each value but the first comes after one of `,`, `[` and `{`. What is not JSON is left to the parser.
fn has_too_many_values(body: &[u8]) -> bool {
    let (mut values, mut is_in_text, mut is_escaped) = (1, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_text => is_escaped = true,
            b'"' => is_in_text = !is_in_text,
            b',' | b'[' | b'{' if !is_in_text => values += 1,
            _ => {}
        }
    }
    values > VALUES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn length(lane: &Lane, body: &Bytes) -> Result<usize, ApiError> {
        lane.run(body, |body| Ok(body.len())).await
    }

    #[tokio::test]
    async fn a_body_of_many_values_is_refused_before_they_are_built() {
        let lanes = Parsing::default();
        let list = |values: usize| Bytes::from(format!("[{}0]", "0,".repeat(values - 1)));
        let text = Bytes::from(format!(r#"["a\"{}"]"#, ",".repeat(VALUES_MAX + 1)));

        let most = list(VALUES_MAX - 1);
        assert_eq!(length(&lanes.of_callers, &most).await.unwrap(), most.len());
        assert_eq!(length(&lanes.of_callers, &text).await.unwrap(), text.len());
        let error = length(&lanes.of_callers, &list(VALUES_MAX)).await.unwrap_err();
        assert_eq!(error.problem, Problem::BodyTooLarge);
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_a_slot_and_small_ones_do_not() {
        let lanes = Parsing::default();
        let _slots = lanes.of_callers.0.acquire_many(AT_ONCE as u32).await.unwrap();
        let (large, small) = (Bytes::from(vec![b' '; INLINE_BYTES_MAX + 1]), Bytes::from_static(b"{}"));

        assert_eq!(length(&lanes.of_callers, &small).await.unwrap(), 2);
        assert!(length(&lanes.of_callers, &large).await.unwrap_err().message.starts_with("too many large bodies"));
        assert!(length(&lanes.of_strangers, &large).await.is_ok());
    }
}
