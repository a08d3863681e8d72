//! Puts the built console (`web/dist`) beside the crate's code, each text compressed once. A checkout
//! where it was not built gets a page that says how.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

const NOT_BUILT: &str = include_str!("src/api/console/not_built.html");

fn main() -> std::io::Result<()> {
    // As it is now, not as it was when this program was compiled: a checkout can be moved with its target directory.
    let dist = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../web/dist");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("console");
    // cargo takes a path that is not there for one that has changed, and would compile the server each time.
    let _ = fs::create_dir_all(&dist);
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=src/api/console/not_built.html");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        list(&dist, &mut files)?;
    }
    files.sort();
    let mut table = String::from("[\n");
    for (number, file) in files.iter().enumerate() {
        let name = file.strip_prefix(&dist).expect("it was found below").display().to_string();
        table += &entry(&out, number, &name, &fs::read(file)?)?;
    }
    if files.is_empty() {
        table += &entry(&out, 0, "index.html", NOT_BUILT.as_bytes())?;
    }
    fs::write(out.join("files.rs"), table + "]\n")
}

/// Every file below the directory.
fn list(from: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// A row of the table: the name and the compressed bytes.
fn entry(out: &Path, number: usize, name: &str, bytes: &[u8]) -> std::io::Result<String> {
    let compressed = out.join(format!("{number}.gz"));
    fs::write(&compressed, gzip(bytes)?)?;
    Ok(format!("    ({name:?}, include_bytes!({:?})),\n", compressed.display().to_string()))
}

/// The same bytes for the same input: no time and no name.
fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}
