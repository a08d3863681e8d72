//! Archived audit entries: files of one JSON object a line, whose chain the store continues.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use proctor_client::AuditVerdict;
use proctor_store::AuditAnchor;
use proctor_store::audit::{FIRST_HASH, verify_line};

/// Checks that the files hold every entry from the first to the last archived one, and that the store continues
/// from that one. Returns the number of files.
pub(super) fn verify(paths: &[PathBuf], verdict: &AuditVerdict) -> Result<usize> {
    let files = files(paths)?;
    let mut last = AuditAnchor { seq: 0, hash: FIRST_HASH };
    for path in &files {
        last = verify_file(path, last).with_context(|| path.display().to_string())?;
    }
    if last.seq < verdict.archived {
        bail!("entries {} to {} are missing: name all files of the archive", last.seq + 1, verdict.archived);
    }
    // A file written right before a crash may hold entries that are also still in the store.
    if last.seq == verdict.archived && last.hash_hex() != verdict.archived_hash {
        bail!("the store does not continue from entry {} of the archive", last.seq);
    }
    Ok(files.len())
}

/// Files that were named, and those of directories that were named; the names sort like the entries in them.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        for entry in entries {
            let found = entry.with_context(|| format!("cannot read {}", path.display()))?.path();
            if found.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(found);
            }
        }
    }
    files.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    Ok(files)
}

fn verify_file(path: &Path, mut last: AuditAnchor) -> Result<AuditAnchor> {
    let file = File::open(path).context("cannot open it")?;
    for line in BufReader::new(file).lines() {
        last = verify_line(last, &line.context("cannot read it")?)?;
    }
    Ok(last)
}
