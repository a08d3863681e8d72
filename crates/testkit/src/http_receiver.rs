//! The other end of an HTTP client, one request at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;

/// More than any test sends.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Waits for one request and answers it with 200: its first line and its body.
pub fn receive_request(listener: &TcpListener) -> io::Result<(String, Vec<u8>)> {
    let mut stream = BufReader::new(listener.accept()?.0);
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        match line.trim().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; BODY_BYTES_MAX.min(length)];
    stream.read_exact(&mut body)?;
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    Ok((first.trim().to_owned(), body))
}
