//! Whether a path is inside one of several roots, by its components and by where its symlinks lead.
//!
//! Promised: `/data` does not allow `/database`; the existing part of a path is resolved, and what cannot be resolved
//! is not inside.
//! Absent: any guarantee about what happens to a path afterwards.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use proctor_model::{AbsolutePath, Message, messages};

/// By its text only.
pub(super) fn is_inside(path: &Path, roots: &[AbsolutePath]) -> bool {
    roots.iter().any(|root| path.starts_with(root.as_str()))
}

/// The error is the second half of a sentence about the path.
pub(super) fn stays_inside(path: &Path, roots: &[AbsolutePath]) -> Result<(), Message> {
    let real = resolve(path)?;
    if leads_inside(&real, roots) { Ok(()) } else { Err(outside(&real)) }
}

/// Whether a path without symlinks is inside a root. A root may be a symlink itself; then what is inside it is where
/// it leads.
pub(super) fn leads_inside(real: &Path, roots: &[AbsolutePath]) -> bool {
    roots.iter().any(|root| resolve(Path::new(root.as_str())).is_ok_and(|root| real.starts_with(root)))
}

pub(super) fn outside(real: &Path) -> Message {
    messages::path_leads_outside(real.display())
}

/// A pid path that is a directory stands for a file in it.
pub(super) fn pid_file(pid_path: &Path, proc_name: &str) -> PathBuf {
    if pid_path.is_dir() { pid_path.join(format!("{proc_name}.pid")) } else { pid_path.to_owned() }
}

/// The path without links; what does not exist yet stays as it is.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, Message> {
    for existing in path.ancestors() {
        match existing.canonicalize() {
            // Component by component: joining nothing would leave a slash at the end.
            Ok(real) => return Ok(real.components().chain(rest_of(path, existing).components()).collect()),
            // Whoever creates its target later decides where it leads.
            Err(error) if error.kind() == ErrorKind::NotFound && existing.is_symlink() => {
                return Err(messages::path_is_a_link_to_nothing());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(messages::path_not_resolved(error)),
        }
    }
    Err(messages::path_leads_nowhere())
}

fn rest_of<'a>(path: &'a Path, existing: &Path) -> &'a Path {
    path.strip_prefix(existing).unwrap_or(path)
}
