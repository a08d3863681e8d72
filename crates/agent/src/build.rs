//! The version of this program, readable from its file without running it.

use proctor_model::{BUILD_MARK, VERSION_BYTES_MAX};

const MARK_BYTES: usize = BUILD_MARK.len();

/// The mark, the version, and NULs.
#[used]
static BUILD: [u8; MARK_BYTES + VERSION_BYTES_MAX] = {
    let (mark, version) = (BUILD_MARK.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes());
    assert!(version.len() < VERSION_BYTES_MAX, "a NUL ends it");
    let mut build = [0; MARK_BYTES + VERSION_BYTES_MAX];
    let mut at = 0;
    while at < mark.len() {
        build[at] = mark[at];
        at += 1;
    }
    at = 0;
    while at < version.len() {
        build[MARK_BYTES + at] = version[at];
        at += 1;
    }
    build
};

/// Of this program, as the mark in its file says.
pub fn version() -> &'static str {
    let version = &std::hint::black_box(&BUILD)[MARK_BYTES..];
    let end = version.iter().position(|byte| *byte == 0).unwrap_or(version.len());
    std::str::from_utf8(&version[..end]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_says_the_version_of_the_package() {
        assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    }
}
