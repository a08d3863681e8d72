//! Pid files: any bytes. Compared with a second, naive reading of what a pid file may say.

#![no_main]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

const BYTES_READ: usize = 64;

/// In memory if possible: the parser is reached through a file.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let directory = if memory.is_dir() { memory } else { std::env::temp_dir() };
    directory.join(format!("proctor-fuzz-{}.pid", std::process::id()))
});

fuzz_target!(|data: &[u8]| {
    let mut file = OpenOptions::new().write(true).create_new(true).open(&*FILE).expect("nobody else uses this name");
    file.write_all(data).expect("there is room for a small file");
    let read = proctor_host::fuzz::pid_file(&FILE);
    fs::remove_file(&*FILE).expect("it was made here");

    match (&read, expected(data)) {
        (Ok(pid), Some(number)) => assert_eq!(i64::from(*pid), number),
        (Ok(pid), None) => panic!("{pid} is read from what is no pid"),
        (Err(reason), Some(number)) => panic!("{number} is refused: {reason}"),
        (Err(reason), None) => {
            assert!(reason.len() < 256, "a long reason: {reason}");
            assert!(reason.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "bytes of others shown: {reason:?}");
        }
    }
});

/// One to ten digits alone in the first line, blanks around them, that end before the bound.
fn expected(data: &[u8]) -> Option<i64> {
    let data = &data[..data.len().min(BYTES_READ)];
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let line = std::str::from_utf8(&data[..end]).ok()?;
    let digits = line.trim_matches([' ', '\t', '\r', '\x0c']);
    let is_number = (1..=10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if end == BYTES_READ || !is_number {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    ((2..=4_194_304).contains(&number) && number != i64::from(std::process::id())).then_some(number)
}
