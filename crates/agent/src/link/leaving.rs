//! How an agent leaves on a clean shutdown: it says goodbye, and is offline at once. One that vanishes gets a grace
//! period.

use std::time::Duration;

use proctor_wire::FromAgent;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::report_sender::ReportSender;

/// For the last word; the end of the agent waits no longer for a link that is slow.
const GOODBYE_LIMIT: Duration = Duration::from_millis(500);

/// Clones are of the same agent.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    asked: CancellationToken,
    /// There is no session left to send it on.
    done: CancellationToken,
}

impl Leaving {
    /// Requested when this token is cancelled.
    pub(crate) fn new(asked: CancellationToken) -> Self {
        Self { asked, done: CancellationToken::new() }
    }

    pub(super) async fn asked(&self) {
        self.asked.cancelled().await;
    }

    pub(super) async fn say_goodbye<S: AsyncRead + AsyncWrite + Unpin>(&self, sender: &mut ReportSender<S>) {
        let goodbye = async {
            sender.feed(FromAgent::Goodbye).await?;
            sender.flush().await
        };
        // The server sees the end of the connection in any case.
        let _ = tokio::time::timeout(GOODBYE_LIMIT, goodbye).await;
        self.done.cancel();
    }

    /// Returns when the agent may exit: it was asked to, and has said goodbye if it could (`is_connected`).
    pub(crate) async fn is_over(&self, is_connected: impl Fn() -> bool) {
        self.asked.cancelled().await;
        if is_connected() {
            let _ = tokio::time::timeout(2 * GOODBYE_LIMIT, self.done.cancelled()).await;
        }
    }
}
