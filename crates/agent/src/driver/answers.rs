//! Answers from tasks that may fail.
//!
//! Promised: a task that panics still answers, so that no machine waits forever.
//! Absent: answers during shutdown, when nobody reads them.

use std::future::Future;

use proctor_runtime::Tasks;

use super::{Inbox, Input};

/// What is shown instead of an answer.
pub(super) const PANICKED: &str = "the agent failed to find out; its log says why";

/// An answer that a task owes to the driver.
#[derive(Debug)]
pub(super) struct AnswerGuard {
    inbox: Inbox,
    tasks: Tasks,
    on_panic: Option<Box<Input>>,
}

impl AnswerGuard {
    pub(super) fn new(inbox: &Inbox, tasks: &Tasks, on_panic: Input) -> Self {
        Self { inbox: inbox.clone(), tasks: tasks.clone(), on_panic: Some(Box::new(on_panic)) }
    }

    pub(super) async fn send(mut self, answer: Input) {
        self.on_panic = None;
        let _ = self.inbox.send(answer).await;
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        let Some(answer) = self.on_panic.take().filter(|_| std::thread::panicking()) else { return };
        let inbox = self.inbox.clone();
        self.tasks.spawn("late answer", async move { drop(inbox.send(*answer).await) });
    }
}

/// Sends the driver the result of `work`, or `on_panic` if it panics.
pub(super) fn spawn_owed<F>(inbox: &Inbox, tasks: &Tasks, name: &'static str, on_panic: Input, work: F)
where
    F: Future<Output = Input> + Send + 'static,
{
    let owed = AnswerGuard::new(inbox, tasks, on_panic);
    tasks.spawn(name, async move {
        let answer = work.await;
        owed.send(answer).await;
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::inbox;
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_has_answered_also_where_the_inbox_is_full() {
        let (inbox, mut received) = inbox();
        let tasks = Tasks::default();
        while inbox.try_send(Input::Disconnected).is_ok() {}
        let owed = AnswerGuard { inbox, tasks: tasks.clone(), on_panic: Some(Box::new(Input::Beat)) };

        tasks.spawn("look", async move {
            let _owed = owed;
            panic!("on purpose")
        });

        let answer = async { while !matches!(received.recv().await.expect("somebody owes an answer"), Input::Beat) {} };
        tokio::time::timeout(Duration::from_secs(60), answer).await.unwrap();
    }

    #[tokio::test]
    async fn work_that_panics_has_answered_and_other_work_once() {
        let (inbox, mut received) = inbox();
        let tasks = Tasks::default();

        spawn_owed(&inbox, &tasks, "end", Input::Beat, async { panic!("on purpose") });
        let panicked = tokio::time::timeout(Duration::from_secs(60), received.recv()).await.unwrap();
        spawn_owed(&inbox, &tasks, "end", Input::Beat, async { Input::Disconnected });
        let answered = tokio::time::timeout(Duration::from_secs(60), received.recv()).await.unwrap();

        assert!(matches!((panicked, answered), (Some(Input::Beat), Some(Input::Disconnected))));
        assert!(tasks.end(Duration::from_secs(60)).await && received.try_recv().is_err());
    }

    #[tokio::test]
    async fn who_answers_answers_once_and_who_is_ended_not_at_all() {
        let (inbox, mut received) = inbox();
        let tasks = Tasks::default();
        let owed = || AnswerGuard {
            inbox: inbox.clone(),
            tasks: tasks.clone(),
            on_panic: Some(Box::new(Input::Disconnected)),
        };

        owed().send(Input::Beat).await;
        drop(owed());
        drop(inbox);

        assert!(matches!(received.try_recv(), Ok(Input::Beat)));
        assert!(received.try_recv().is_err());
        assert!(tasks.end(Duration::from_secs(60)).await);
    }
}
