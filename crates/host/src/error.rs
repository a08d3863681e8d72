//! What can fail on the host, apart from the reasons that [`crate::Host`] returns for display.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot create directory {path}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot open a pidfd of ourselves (Linux 5.3 or later is needed)")]
    Pidfd { source: io::Error },
    #[error("cannot become the parent of orphaned processes")]
    Subreaper { source: io::Error },
    #[error("cannot watch for child exits")]
    Listen { source: io::Error },
    #[error("cannot signal process {pid}")]
    Signal { pid: i32, source: io::Error },
    #[error("cannot change the cgroup {leaf}")]
    Leaf { leaf: String, source: io::Error },
}
