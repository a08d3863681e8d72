//! Where the requests of one HTTP/1 connection end, as far as that can be seen from outside hyper.
//!
//! Promised: after a call it tells whether the peer has sent more than the call's own request, so that partial
//! headers read together with a complete request count as headers in progress. If it cannot tell (a request that was
//! itself read together with the previous one), it says that there may be more.
//! Absent: any influence on how requests are parsed; a wrong guess only changes how long a connection may wait.

#[derive(Debug, Default)]
pub(super) struct Framing {
    at: At,
    /// Of the body of the current call; None if it is chunked.
    length: Option<u64>,
    tail: [u8; 3],
}

#[derive(Clone, Copy, Debug, Default)]
enum At {
    /// Nothing of a request has been seen.
    #[default]
    Start,
    Head {
        after_newline: bool,
    },
    /// The head is whole, and so many bytes came after it.
    Beyond(u64),
    /// The head came together with an earlier request: only hyper has it.
    Unseen,
}

impl Framing {
    /// Bytes came from the peer; outside of calls they belong to a head.
    pub(super) fn read(&mut self, bytes: &[u8], is_in_call: bool) {
        for byte in &bytes[bytes.len().saturating_sub(self.tail.len())..] {
            self.tail.rotate_left(1);
            self.tail[2] = *byte;
        }
        match self.at {
            At::Beyond(before) => self.at = At::Beyond(before + bytes.len() as u64),
            At::Start | At::Head { .. } if !is_in_call => self.scan(bytes),
            At::Start | At::Head { .. } | At::Unseen => {}
        }
    }

    fn scan(&mut self, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            self.at = match (self.at, byte) {
                (At::Start, b'\r' | b'\n') => At::Start, // empty lines before a request are skipped
                (At::Head { after_newline: true }, b'\n') => {
                    self.at = At::Beyond((bytes.len() - index - 1) as u64);
                    return;
                }
                (At::Head { after_newline }, b'\r') => At::Head { after_newline },
                (At::Start | At::Head { .. } | At::Beyond(_) | At::Unseen, byte) => {
                    At::Head { after_newline: *byte == b'\n' }
                }
            };
        }
    }

    /// A call has begun, with a body of this length.
    pub(super) fn begin(&mut self, length: Option<u64>) {
        if !matches!(self.at, At::Beyond(_)) {
            self.at = At::Unseen;
        }
        self.length = length;
    }

    /// The call is over; returns whether part of a next request may have arrived already.
    pub(super) fn end(&mut self) -> bool {
        let ends_blank = self.tail.ends_with(b"\n\r\n") || self.tail.ends_with(b"\n\n");
        match (std::mem::take(&mut self.at), self.length) {
            (At::Beyond(came), Some(length)) => came > length,
            // The last chunk ends with an empty line, and so does a head without a body.
            (_, None | Some(0)) => !ends_blank,
            (At::Start | At::Head { .. } | At::Unseen, Some(_)) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    const HALF: &str = "GET / HTTP/1.1\r\nX: 1\r\n";

    /// What is told after a call whose bytes came in pieces of this size.
    fn after(request: &str, length: Option<u64>, more: &str, piece: usize) -> bool {
        let (mut framing, bytes) = (Framing::default(), format!("{request}{more}").into_bytes());
        let head = request.find("\r\n\r\n").unwrap() + 4;
        let mut is_in_call = false;
        let mut came = 0;
        for piece in bytes.chunks(piece) {
            framing.read(piece, is_in_call);
            came += piece.len();
            if came >= head && !is_in_call {
                framing.begin(length);
                is_in_call = true;
            }
        }
        framing.end()
    }

    #[test]
    fn what_comes_behind_a_whole_request_is_noticed_however_it_is_cut() {
        for piece in [1, 2, 3, 7, 1000] {
            for (request, length) in
                [(GET.to_owned(), Some(0)), (format!("{POST}{{\n\n}}"), Some(4)), (format!("{CHUNKED}0\r\n\r\n"), None)]
            {
                assert!(!after(&request, length, "", piece), "{request} {piece}");
                assert!(!after(&format!("\r\n{request}"), length, "", piece), "{request} {piece}");
                assert!(after(&request, length, HALF, piece), "{request} {piece}");
                assert!(after(&request, length, "G", piece), "{request} {piece}");
            }
        }
    }

    #[test]
    fn behind_a_request_that_came_with_the_one_before_it_more_is_supposed() {
        let mut framing = Framing::default();
        framing.read(format!("{GET}{POST}{{\n\n}}").as_bytes(), false);
        framing.begin(Some(0));
        assert!(framing.end());

        framing.begin(Some(4));

        assert!(framing.end());
        framing.read(GET.as_bytes(), false);
        framing.begin(Some(0));
        assert!(!framing.end(), "a request that came alone is known again");
    }
}
