//! Where requests of HTTP/1 begin and end on a connection, read as strictly as the standard allows a reader to be.
//!
//! The proxy's own parser is somebody else's and forgives much. This one stands before it and forgives nothing: lengths said
//! twice, `Transfer-Encoding` beside `Content-Length`, folded lines, line ends without CR, chunk extensions. A request that
//! passes here has one meaning for every reader (no request smuggling).

/// Most bytes of a request's line and headers.
pub const MAX_HEAD: usize = 64 << 10;
/// Most headers of one request.
pub const MAX_HEADERS: usize = 100;
/// Most bytes of the line that says a chunk's length.
const MAX_CHUNK_LINE: usize = 18;

/// Follows the bytes of one connection.
#[derive(Debug)]
pub struct Framing {
    state: State,
    /// What there is of an unfinished head, line or trailer.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
    ChunkLine,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    Raw,
}

impl Default for Framing {
    fn default() -> Self {
        Self { state: State::Head, held: Vec::new() }
    }
}

impl Framing {
    /// From now on bytes are not HTTP/1 (the server agreed to another protocol).
    pub fn raw(&mut self) {
        self.state = State::Raw;
        self.held = Vec::new();
    }

    /// Whether the next byte begins a request.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.state == State::Head && self.held.is_empty()
    }

    /// How many bytes there are of a head, line or trailer that does not end yet.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.held.len()
    }

    /// Follows the next bytes.
    ///
    /// # Errors
    /// What is ambiguous or malformed, in words; nothing that came with it may be passed on.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            let taken = match self.state {
                State::Head => self.head(bytes)?,
                State::Body(left) => self.counted(bytes, left, State::Head, State::Body),
                State::ChunkLine => self.chunk_line(bytes)?,
                State::Chunk(left) => self.counted(bytes, left, State::ChunkEnd, State::Chunk),
                State::ChunkEnd => self.chunk_end(bytes)?,
                State::Trailers => self.trailers(bytes)?,
                State::Raw => bytes.len(),
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    fn counted(&mut self, bytes: &[u8], left: u64, after: State, more: fn(u64) -> State) -> usize {
        let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
        self.state = if left == 0 { after } else { more(left) };
        taken
    }

    fn head(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let before = self.held.len();
        // Readers differ in whether they pass over empty lines before a request.
        if !self.held.first().or(bytes.first()).is_some_and(u8::is_ascii_alphabetic) {
            return Err("a request that begins with no method");
        }
        let Some(end) = self.hold(bytes, b"\r\n\r\n", MAX_HEAD).map_err(|()| "a request head that is too long")? else {
            // At once: another reader takes two line ends without CR for the end.
            plain_lines(&self.held, before)?;
            // The first line when it is there, whatever came with it.
            let line = self.held.iter().position(|byte| *byte == b'\n').filter(|end| *end >= before);
            if let Some(line) = line.and_then(|end| self.held.get(..=end)) {
                parsed(line, &mut [httparse::EMPTY_HEADER; MAX_HEADERS])?;
            }
            return Ok(bytes.len());
        };
        let head = std::mem::take(&mut self.held);
        self.state = framed(head.get(..end).unwrap_or_default())?;
        Ok(end.saturating_sub(before))
    }

    /// Adds to what is held until `mark` is in it; how long it is with the mark.
    fn hold(&mut self, bytes: &[u8], mark: &[u8], at_most: usize) -> Result<Option<usize>, ()> {
        let from = self.held.len().saturating_sub(mark.len());
        let room = at_most.saturating_sub(self.held.len());
        self.held.extend_from_slice(bytes.get(..bytes.len().min(room.saturating_add(1))).unwrap_or_default());
        let searched = self.held.get(from..).unwrap_or_default();
        let found = searched.windows(mark.len()).position(|window| window == mark);
        match found.map(|at| from.saturating_add(at).saturating_add(mark.len())) {
            Some(end) if end <= at_most => Ok(Some(end)),
            None if self.held.len() <= at_most => Ok(None),
            Some(_) | None => Err(()),
        }
    }

    fn chunk_line(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let before = self.held.len();
        let end = self.hold(bytes, b"\r\n", MAX_CHUNK_LINE).map_err(|()| "a chunk with an extension or a long size")?;
        let Some(end) = end else { return Ok(bytes.len()) };
        let line = std::mem::take(&mut self.held);
        let digits = line.get(..end.saturating_sub(2)).unwrap_or_default();
        let plain = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let size = std::str::from_utf8(digits).ok().filter(|_| plain).and_then(|d| u64::from_str_radix(d, 16).ok());
        self.state = match size.ok_or("a chunk whose size is no plain number")? {
            0 => State::Trailers,
            size => State::Chunk(size),
        };
        Ok(end.saturating_sub(before))
    }

    fn chunk_end(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let wanted = b"\r\n".get(self.held.len()..).unwrap_or_default();
        let count = wanted.len().min(bytes.len());
        if bytes.get(..count) != wanted.get(..count) {
            return Err("a chunk that is longer than it said");
        }
        self.held.extend_from_slice(wanted.get(..count).unwrap_or_default());
        if self.held.len() == 2 {
            self.held.clear();
            self.state = State::ChunkLine;
        }
        Ok(count)
    }

    /// Trailers are headers by another name, and few clients send any: each line must be plain, and none may frame.
    fn trailers(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let before = self.held.len();
        let long = |()| "trailers that are too long";
        let empty = self.held.iter().chain(bytes).take(2).eq(b"\r\n");
        let mark: &[u8] = if empty { b"\r\n" } else { b"\r\n\r\n" };
        let Some(end) = self.hold(bytes, mark, MAX_HEAD).map_err(long)? else {
            plain_lines(&self.held, before)?;
            return Ok(bytes.len());
        };
        let held = std::mem::take(&mut self.held);
        if !empty {
            let lines = held.get(..end).unwrap_or_default();
            plain_lines(lines, 0)?;
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let Ok(httparse::Status::Complete((_, headers))) = httparse::parse_headers(lines, &mut headers) else {
                return Err("trailers that are no headers");
            };
            let frames = ["content-length", "transfer-encoding", "host"];
            if headers.iter().any(|header| frames.iter().any(|name| header.name.eq_ignore_ascii_case(name))) {
                return Err("a trailer that belongs into the head");
            }
        }
        self.state = State::Head;
        Ok(end.saturating_sub(before))
    }
}

/// What follows a head.
fn framed(head: &[u8]) -> Result<State, &'static str> {
    plain_lines(head, 0)?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let (request, length) = parsed(head, &mut headers)?;
    if length != Some(head.len()) {
        return Err("a request head that does not end where its empty line is");
    }
    let values = |name: &str| {
        let fits = move |header: &&&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        request.headers.iter().collect::<Vec<_>>().iter().filter(fits).map(|header| header.value).collect::<Vec<_>>()
    };
    let (lengths, encodings) = (values("content-length"), values("transfer-encoding"));
    match (lengths.as_slice(), encodings.as_slice()) {
        ([], []) => Ok(State::Head),
        ([], [one]) if one.eq_ignore_ascii_case(b"chunked") && request.version == Some(1) => Ok(State::ChunkLine),
        ([], _) => Err("a Transfer-Encoding that is not `chunked` alone"),
        ([one], []) => {
            let plain = (1..=18).contains(&one.len()) && one.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(one).ok().filter(|_| plain).and_then(|digits| digits.parse().ok());
            match length.ok_or("a Content-Length that is no plain number")? {
                0 => Ok(State::Head),
                length => Ok(State::Body(length)),
            }
        }
        (_, []) => Err("more than one Content-Length"),
        (_, _) => Err("a Content-Length beside a Transfer-Encoding"),
    }
}

/// The path (without its query) by which a request is judged whose line says these words; by the reader of connections, so that
/// who asks beforehand is told the same.
///
/// # Errors
/// As [`Framing::feed`], which lets no such request through.
pub fn path_of((method, target): (&str, &str), host: &str) -> Result<String, &'static str> {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    Framing::default().feed(head.as_bytes())?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let (request, _) = parsed(head.as_bytes(), &mut headers)?;
    // Words that have a blank or an end of a line in them say another request.
    let uri =
        target.parse::<::http::Uri>().ok().filter(|_| (request.method, request.path) == (Some(method), Some(target)));
    uri.map(|uri| uri.path().to_owned()).ok_or("a malformed request head")
}

/// What there is of a head, and its length once it is whole.
fn parsed<'a, 'b>(
    head: &'b [u8],
    headers: &'a mut [httparse::Header<'b>],
) -> Result<(httparse::Request<'a, 'b>, Option<usize>), &'static str> {
    let mut request = httparse::Request::new(headers);
    let length = match request.parse(head) {
        Ok(httparse::Status::Complete(length)) => Some(length),
        Ok(httparse::Status::Partial) => None,
        Err(httparse::Error::TooManyHeaders) => return Err("too many headers"),
        Err(_) => return Err("a malformed request head"),
    };
    if request.path.is_some_and(|target| target.parse::<::http::Uri>().is_err()) {
        return Err("a request for what is no path");
    }
    Ok((request, length))
}

/// Every line ends with CR and LF, none holds one of them, or NUL, and none goes on the line before; looked at from a place on.
fn plain_lines(text: &[u8], from: usize) -> Result<(), &'static str> {
    let mut before = from.checked_sub(1).and_then(|at| text.get(at)).copied().unwrap_or(b'\n');
    for (at, byte) in text.iter().enumerate().skip(from) {
        match (before, byte) {
            (_, 0) => return Err("a NUL in a head"),
            (b'\r', b'\n') => {}
            (b'\r', _) => return Err("a CR alone in a head"),
            (_, b'\n') => return Err("a line that ends without CR"),
            (b'\n', b' ' | b'\t') if at > 0 => return Err("a folded line in a head"),
            _ => {}
        }
        before = *byte;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds whole, then byte by byte: the verdict must be the same.
    fn fed(text: &[u8]) -> Result<bool, &'static str> {
        let mut whole = Framing::default();
        let result = whole.feed(text);
        let mut slow = Framing::default();
        let slowly = text.iter().try_for_each(|byte| slow.feed(std::slice::from_ref(byte)));
        assert_eq!(result.is_ok(), slowly.is_ok(), "{:?} {:?} {:?}", String::from_utf8_lossy(text), result, slowly);
        if result.is_ok() {
            assert_eq!((whole.state, &whole.held), (slow.state, &slow.held));
        }
        result.map(|()| whole.is_between())
    }

    #[test]
    fn requests_end_where_they_say() {
        for whole in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.0\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(fed(whole.as_bytes()), Ok(true), "{whole:?}");
            assert_eq!(fed(&whole.as_bytes()[..whole.len() - 1]), Ok(false), "{whole:?} without its last byte");
        }
    }

    #[test]
    fn what_has_two_meanings_is_refused() {
        for bad in [
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\ncontent-length: 4\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 0x3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length:\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\n\n",
            "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\0\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "GET /\r\n\r\n",
            "GET /\r\n",
            "GET ?x HTTP/1.1\r\n",
            "GET /a /b HTTP/1.1\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx y\r\n\r\n",
        ] {
            assert!(fed(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(fed(many.as_bytes()), Err("too many headers"));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(MAX_HEAD));
        assert_eq!(Framing::default().feed(long.as_bytes()), Err("a request head that is too long"));
    }

    #[test]
    fn after_an_upgrade_anything_goes() {
        let mut framing = Framing::default();
        framing.feed(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n").unwrap();
        framing.raw();
        framing.feed(&[0x81, 0, 10, 13]).unwrap();
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_verdict(text in "(GET|POST) /[a-z]{0,4} HTTP/1\\.[01]\r?\n(Content-Length: [0-9]{1,2}\r\n|Transfer-Encoding: chunked\r\n|[ a]: b\r\n){0,3}\r\n[0-9a-f\r\n]{0,24}") {
            let folded = text.contains(" HTTP/1.1\r\n : b") || text.contains(" HTTP/1.0\r\n : b");
            prop_assert!(fed(text.as_bytes()).is_err() || !folded);
        }

        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(fed(&bytes).is_err() || bytes.first().is_none_or(u8::is_ascii_alphabetic));
        }
    }
}
