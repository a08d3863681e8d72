//! Puts the built console (`web/dist`) beside the crate's code, each text compressed once. A checkout
//! where it was not built gets a page that says how.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

const NOT_BUILT: &str = include_str!("src/api/console/not_built.html");

fn main() -> std::io::Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/dist");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("console");
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=src/api/console/not_built.html");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    if dist.join("index.html").is_file() {
        copy(&dist, &out)
    } else {
        fs::write(out.join("index.html.gz"), gzip(NOT_BUILT.as_bytes())?)
    }
}

/// Every file of `from`, compressed.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, mut target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&source, &target)?;
        } else {
            target.as_mut_os_string().push(".gz");
            fs::write(target, gzip(&fs::read(source)?)?)?;
        }
    }
    Ok(())
}

/// The same bytes for the same input: no time and no name.
fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}
