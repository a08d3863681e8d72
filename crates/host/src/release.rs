//! Releases a held command with a byte on the socket it waits on.
//!
//! Promised: releasing is immediate, on the caller's own thread. The byte outlives the writer, so a released command
//! runs even if the agent exits, or becomes another program, in the next moment. If either side is dropped without a
//! release, the command exits and has done nothing.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

/// The releasing side.
#[derive(Debug)]
pub struct CommandRelease(Arc<Mutex<State>>);

/// The command's side.
#[derive(Debug)]
pub struct HeldCommand(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    /// There is no command yet.
    #[default]
    Empty,
    Waiting(UnixStream),
    Released,
}

/// Both sides of one command.
pub fn command_release() -> (CommandRelease, HeldCommand) {
    let held = Arc::default();
    (CommandRelease(Arc::clone(&held)), HeldCommand(held))
}

impl CommandRelease {
    /// Releases the command, now or as soon as it exists.
    pub fn proceed(self) {
        if let State::Waiting(command) = std::mem::replace(&mut *self.0.lock(), State::Released) {
            let_go(command);
        }
    }
}

impl HeldCommand {
    /// The command waits at the other end of this.
    pub fn hold(self, command: UnixStream) {
        let mut state = self.0.lock();
        match *state {
            State::Released => let_go(command),
            State::Empty | State::Waiting(_) => *state = State::Waiting(command),
        }
    }
}

fn let_go(mut command: UnixStream) {
    let _ = command.write_all(&[1]); // there is room for one byte; a command that has ended needs none
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn said(mut command: UnixStream) -> Vec<u8> {
        let mut said = Vec::new();
        command.read_to_end(&mut said).unwrap();
        said
    }

    #[test]
    fn the_word_stays_when_its_writer_is_gone() {
        let ((release, held), (ours, theirs)) = (command_release(), UnixStream::pair().unwrap());
        held.hold(ours);
        release.proceed();

        assert_eq!(said(theirs), [1]);
    }

    #[test]
    fn without_a_word_the_command_hears_of_the_end() {
        let ((release, held), (ours, theirs)) = (command_release(), UnixStream::pair().unwrap());
        held.hold(ours);
        drop(release);
        let ((gone, held), (ours, others)) = (command_release(), UnixStream::pair().unwrap());
        drop(gone);
        held.hold(ours);

        assert_eq!((said(theirs), said(others)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_word_may_come_first() {
        let ((release, held), (ours, theirs)) = (command_release(), UnixStream::pair().unwrap());
        release.proceed();
        held.hold(ours);

        assert_eq!(said(theirs), [1]);
    }
}
