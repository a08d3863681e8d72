//! Writes log lines to stderr without ever blocking the program.
//!
//! Promised: writing a line neither blocks, nor fails, nor panics, whatever stderr is: a full disk, a
//! closed pipe, a pipe that nobody reads. Lines that cannot be written in time are dropped and counted,
//! and the count is logged once writing works again. Absent: levels, formats, other destinations.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines that wait for stderr; none are lost if its reader pauses for a moment.
const QUEUED_BYTES_MAX: usize = 256 * 1024;
/// A longer line is truncated, so that one cannot take the whole queue.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// The thread only copies bytes.
const STACK_BYTES: usize = 64 * 1024;

/// Takes log lines; clones share one queue and one thread that writes.
#[derive(Clone, Debug)]
pub struct LogSink {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queued: Vec<u8>,
    dropped: u64,
    is_writing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogSink {
    /// Starts the thread that writes to stderr.
    pub fn stderr() -> io::Result<Self> {
        Self::to(io::stderr())
    }

    fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("log".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || write_all(&of_thread, out))?;
        Ok(Self { shared })
    }

    /// Queues one line, without its line feed.
    pub fn line(&self, text: &str) {
        self.push(format!("{text}\n").as_bytes());
    }

    /// Waits until everything is written, at most `patience`; call it before the program exits.
    pub fn flush_within(&self, patience: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.queued.is_empty();
        drop(self.shared.changed.wait_timeout_while(self.shared.lock(), patience, is_busy));
    }

    /// Sends panic messages here too: the default hook writes to stderr itself, and may block.
    pub fn take_panics(&self) {
        let sink = self.clone();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            sink.line(&format!("thread '{}' {panic}", thread.name().unwrap_or("unnamed")));
        }));
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.shared.lock();
        let is_long = line.len() > LINE_BYTES_MAX;
        let kept = if is_long { &line[..LINE_BYTES_MAX] } else { line };
        if state.queued.len() + kept.len() > QUEUED_BYTES_MAX {
            state.dropped += 1;
            return;
        }
        state.queued.extend_from_slice(kept);
        if is_long {
            state.queued.extend_from_slice(b" (cut)\n");
        }
        self.shared.changed.notify_all();
    }
}

/// Each write is one line, as the layers of `tracing_subscriber` do it.
impl Write for LogSink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs as long as the program.
fn write_all(shared: &Shared, mut out: impl Write) {
    let mut batch = Vec::new();
    loop {
        let dropped = {
            let is_idle = |state: &mut State| state.queued.is_empty();
            let mut state = shared.changed.wait_while(shared.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
            state.is_writing = true;
            batch.clear();
            std::mem::swap(&mut batch, &mut state.queued);
            std::mem::take(&mut state.dropped)
        };
        let lost = write_batch(&mut out, &batch, dropped);
        let mut state = shared.lock();
        state.is_writing = false;
        state.dropped += lost;
        shared.changed.notify_all();
    }
}

/// Returns how many lines are still to be reported as dropped.
fn write_batch(out: &mut impl Write, batch: &[u8], dropped: u64) -> u64 {
    let lines = || batch.iter().filter(|byte| **byte == b'\n').count() as u64;
    let mut write = |bytes: &[u8]| out.write_all(bytes).and_then(|()| out.flush());
    if dropped > 0 && write(format!("{dropped} log lines were dropped: stderr was blocked\n").as_bytes()).is_err() {
        return dropped + lines();
    }
    if write(batch).is_err() { lines() } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Records what it was given; accepts, fails, or waits as the test wants.
    struct Fake {
        written: mpsc::Sender<String>,
        results: mpsc::Receiver<io::Result<()>>,
    }

    impl Write for Fake {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.send(String::from_utf8_lossy(bytes).into_owned()).unwrap();
            self.results.recv().unwrap_or(Ok(())).map(|()| bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn fake() -> (LogSink, mpsc::Receiver<String>, mpsc::Sender<io::Result<()>>) {
        let ((written, of_test), (answer, results)) = (mpsc::channel(), mpsc::channel());
        (LogSink::to(Fake { written, results }).unwrap(), of_test, answer)
    }

    #[test]
    fn lines_are_written_in_their_order() {
        let (mut sink, written, answer) = fake();
        drop(answer);

        sink.line("one");
        sink.write_all(b"two\n").unwrap();
        sink.flush_within(Duration::from_secs(60));

        assert_eq!(written.try_iter().collect::<String>(), "one\ntwo\n");
    }

    #[test]
    fn a_reader_that_does_not_read_holds_up_nobody_and_hears_how_much_it_missed() {
        let (sink, written, answer) = fake();
        sink.line("first");
        assert_eq!(written.recv().unwrap(), "first\n"); // the thread hangs in this write from now on

        let line = "x".repeat(1023);
        for _ in 0..300 {
            sink.line(&line);
        }
        sink.flush_within(Duration::from_millis(1));
        answer.send(Ok(())).unwrap();

        assert_eq!(written.recv().unwrap(), "44 log lines were dropped: stderr was blocked\n");
        answer.send(Ok(())).unwrap();
        assert_eq!(written.recv().unwrap().len(), QUEUED_BYTES_MAX);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported_when_it_works_again() {
        let (sink, written, answer) = fake();

        sink.line("lost\nlost too");
        written.recv().unwrap();
        answer.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        sink.line("kept");

        assert_eq!(written.recv().unwrap(), "2 log lines were dropped: stderr was blocked\n");
        answer.send(Ok(())).unwrap();
        assert_eq!(written.recv().unwrap(), "kept\n");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let (sink, written, _answer) = fake();

        sink.line(&"x".repeat(10 * LINE_BYTES_MAX));

        let line = written.recv().unwrap();
        assert!(line.ends_with("x (cut)\n") && line.len() < LINE_BYTES_MAX + 10, "{}", line.len());
    }
}
