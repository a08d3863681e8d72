//! The signals that stop this program, around the moment when it execs another one.
//!
//! A handler takes a signal and reports it later; a program that execs in between has lost it.

/// From now on SIGTERM and SIGINT end this process, whatever handled them before.
pub fn restore_default() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        #[allow(unsafe_code, reason = "neither rustix nor our features of nix have dispositions")]
        // SAFETY: the default action needs no handler.
        unsafe {
            libc::signal(signal, libc::SIG_DFL)
        };
    }
}
