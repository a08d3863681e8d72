//! The part of the NATS client protocol that request and reply need.
//!
//! Promised: pure; a line and a payload have limits. Absent: headers, TLS, authentication.

use anyhow::{Context, Result, bail, ensure};

/// The first line of a server, `INFO`, is the longest.
const LINE_MAX: usize = 16 * 1024;
const PAYLOAD_MAX: usize = 1024 * 1024;

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    Info,
    Ok,
    Ping,
    Pong,
    Message { subject: &'a str, reply_to: Option<&'a str> },
}

/// What the buffer begins with and how many bytes it takes; None while it is not complete.
pub(super) fn parse(buffer: &[u8]) -> Result<Option<(Said<'_>, usize)>> {
    let Some(end) = buffer.windows(2).take(LINE_MAX).position(|window| window == b"\r\n") else {
        ensure!(buffer.len() < LINE_MAX, "the NATS server sent a line of more than {LINE_MAX} bytes");
        return Ok(None);
    };
    let line = std::str::from_utf8(&buffer[..end]).context("the NATS server sent a line that is no text")?;
    let after_line = end + 2;
    let mut words = line.split_ascii_whitespace();
    let said = match words.next() {
        Some("INFO") => Said::Info,
        Some("+OK") => Said::Ok,
        Some("PING") => Said::Ping,
        Some("PONG") => Said::Pong,
        Some("MSG") => return message(buffer, words.collect::<Vec<_>>().as_slice(), after_line),
        _ => bail!("the NATS server said {line:?}"),
    };
    Ok(Some((said, after_line)))
}

/// `MSG SUBJECT SID [REPLY-TO] BYTES`, then the payload.
fn message<'a>(buffer: &[u8], words: &[&'a str], payload_at: usize) -> Result<Option<(Said<'a>, usize)>> {
    let (subject, reply_to, bytes) = match words {
        [subject, _, bytes] => (*subject, None, *bytes),
        [subject, _, reply_to, bytes] => (*subject, Some(*reply_to), *bytes),
        _ => bail!("the NATS server sent a message with {} fields", words.len()),
    };
    let bytes: usize = bytes.parse().context("a message of the NATS server has no length")?;
    ensure!(bytes <= PAYLOAD_MAX, "the NATS server sent a message of {bytes} bytes");
    let end = payload_at + bytes + 2;
    Ok((buffer.len() >= end).then_some((Said::Message { subject, reply_to }, end)))
}

/// `PUB`, with its payload.
pub(super) fn publish(into: &mut Vec<u8>, subject: &str, reply_to: &str, payload: &[u8]) {
    let space = if reply_to.is_empty() { "" } else { " " };
    into.extend_from_slice(format!("PUB {subject} {reply_to}{space}{}\r\n", payload.len()).as_bytes());
    into.extend_from_slice(payload);
    into.extend_from_slice(b"\r\n");
}

/// What a client says first, with its one subscription. The server answers with `PONG` once it knows both.
pub(super) fn greeting(subject: &str) -> Vec<u8> {
    format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"0\"}}\r\nSUB {subject} 1\r\nPING\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_once_its_payload_is_complete() {
        let whole = b"MSG fleet.7 1 _INBOX.7 5\r\nhello\r\nPING\r\n";

        for end in 0..33 {
            assert_eq!(parse(&whole[..end]).unwrap(), None, "{end}");
        }
        let (said, taken) = parse(whole).unwrap().unwrap();
        assert_eq!((said, taken), (Said::Message { subject: "fleet.7", reply_to: Some("_INBOX.7") }, 33));
        assert_eq!(parse(&whole[taken..]).unwrap(), Some((Said::Ping, 6)));
        let without_reply = parse(b"MSG a 1 0\r\n\r\n").unwrap();
        assert_eq!(without_reply, Some((Said::Message { subject: "a", reply_to: None }, 13)));
    }

    #[test]
    fn errors_and_what_is_too_long_are_refused() {
        assert!(parse(b"-ERR 'Authorization Violation'\r\n").unwrap_err().to_string().contains("Authorization"));
        assert!(parse(&[b'x'; LINE_MAX]).is_err());
        assert!(parse(b"MSG a 1 99999999\r\n").is_err());
        assert!(parse(b"MSG a 1 many\r\n").is_err());
        assert!(parse(b"MSG a\r\n").is_err());
    }

    #[test]
    fn what_is_published_has_its_length() {
        let mut sent = Vec::new();
        publish(&mut sent, "fleet.7", "_INBOX.7", b"hello");
        publish(&mut sent, "_INBOX.7", "", b"");

        assert_eq!(sent, b"PUB fleet.7 _INBOX.7 5\r\nhello\r\nPUB _INBOX.7 0\r\n\r\n");
    }
}
