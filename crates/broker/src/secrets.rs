//! Secrets in requests and answers: put in after the judge allowed a request, taken out of what comes back.
//!
//! Every answer on a connection that a secret may be for is searched, also where none was put: a server may say later what it
//! was sent before. What cannot be searched does not come inside.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use egress::denial::{Reason, To};
use egress::http::is_spelling;
use egress::secret::scrub::{Forms, Scrub};
use egress::secret::{LoadedSecret, RequestTarget, is_in_other_charset, searchable, sign};
use egress::wire;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName, IF_RANGE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body as _, Frame, SizeHint};
use sys::memory::Locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::error::BrokerError;

pub(crate) type Body = BoxBody<Bytes, hyper::Error>;

/// Most bytes of a body in which placeholders are looked for; in what is longer they stay what they are.
const MAX_BODY: usize = 1 << 20;
/// Most such bodies at once; others wait for them.
const MAX_BODIES: usize = 32;
/// How long such a body may take to come.
const BODY_TIME: Duration = Duration::from_secs(30);
/// What servers say as a coding of a body that is as it is; names of charsets are no codings, and clients read past them.
const NO_CODINGS: [&str; 5] = ["identity", "none", "utf-8", "utf8", "us-ascii"];
/// What to do where a secret cannot be put into a request.
const PLAINLY: &str = "send a plain request over TLS, whole and at once";

/// What to do where a body cannot have one.
const IN_TEXT: &str = "send it in a header, or in a text of a body of JSON or of a form, in UTF-8";

/// The secrets of the run.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    held: Vec<LoadedSecret>,
    /// The pages of their values; gone after these are wiped.
    _locked: Vec<Locked>,
    digest: Option<String>,
    bodies: Bodies,
    /// In how many requests each went to a server, and what of it was said.
    used: RefCell<BTreeMap<String, u64>>,
    said: RefCell<BTreeMap<String, u64>>,
}

/// Places for bodies that are held.
#[derive(Debug)]
struct Bodies(Arc<Semaphore>);

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BODIES)))
    }
}

/// A request that may go out, with what is put into it.
pub(crate) struct Put<'a> {
    pub(crate) request: Request<Body>,
    /// What its answer is searched for, where any secret is for this host at all.
    pub(crate) search: Option<Search>,
    /// The secrets that are in it, for [`Secrets::sent`].
    pub(crate) names: Vec<&'a str>,
}

/// Why a request does not go out.
#[derive(Debug)]
pub(crate) enum NotPut {
    /// It may not.
    Denied(Reason),
    /// The program broke off.
    Broken(hyper::Error),
}

impl Secrets {
    /// Those of the orders.
    ///
    /// # Errors
    /// A table that the policy's reader refuses, values that are not those of the table, or that cannot be used.
    pub(crate) fn read(orders: &wire::Secrets) -> Result<Self, BrokerError> {
        if orders.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |name: &str, why: &str| BrokerError::Orders(format!("the secret {name} {why}"));
        let table = policy::part::secrets(&orders.table)
            .map_err(|_mistakes| BrokerError::Orders("the table of secrets cannot be read".to_owned()))?;
        if !table.keys().eq(orders.values.keys()) {
            return Err(BrokerError::Orders("the table of secrets has other names than their values".to_owned()));
        }
        let held = table.into_iter().zip(orders.values.values()).map(|((name, secret), value)| {
            let placeholder = orders.placeholders.get(&name).cloned();
            LoadedSecret::new(name.clone(), secret, &value.0, placeholder).map_err(|why| wrong(&name, why))
        });
        let held = held.collect::<Result<Vec<_>, _>>()?;
        let mut locked = Vec::new();
        for one in &held {
            for value in one.values() {
                let lock = sys::memory::lock(value.as_bytes()).map_err(|error| wrong(one.name(), &unlocked(&error)));
                locked.push(lock?);
            }
        }
        Ok(Self { held, _locked: locked, digest: Some(orders.digest()), ..Self::default() })
    }

    /// How often each was used, if that changed since it was asked last.
    pub(crate) fn used(&self) -> Option<BTreeMap<String, u64>> {
        let used = self.used.borrow();
        if *used == *self.said.borrow() {
            return None;
        }
        self.said.borrow_mut().clone_from(&used);
        Some(used.clone())
    }

    /// Counts those that are in a request which goes to a server now: of one that nobody was reached for none was used.
    pub(crate) fn sent(&self, names: &[&str]) {
        let mut used = self.used.borrow_mut();
        for name in names {
            let count = used.entry((*name).to_owned()).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// The digest of which ones they are, if there are any.
    pub(crate) fn digest(&self) -> Option<String> {
        self.digest.clone()
    }

    /// The hosts that may see any of them.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.held.iter().flat_map(LoadedSecret::hosts)
    }

    /// Whether requests to this host and port have to be read one by one.
    pub(crate) fn is_for(&self, to: &To, port: u16) -> bool {
        self.held.iter().any(|held| held.is_for(to, port))
    }

    /// Puts secrets into a request that may go out.
    pub(crate) async fn put(
        &self,
        (to, port): (&To, u16),
        verified: bool,
        request: Request<Body>,
    ) -> Result<Put<'_>, NotPut> {
        let near: Vec<&LoadedSecret> = self.held.iter().filter(|held| held.is_for(to, port)).collect();
        if near.is_empty() {
            return Ok(Put { request, search: None, names: Vec::new() });
        }
        let denied = |why| not_put(why, PLAINLY);
        let (mut parts, mut body) = request.into_parts();
        let is_searched = near.iter().any(|held| !held.is_public());
        if is_searched && parts.headers.contains_key(UPGRADE) {
            let why = "a WebSocket cannot be searched for them";
            return Err(not_put(why, "do without a WebSocket, as most clients do by HTTPS"));
        }
        // What a server is never sent it cannot say back: of such its answers may come in parts, or compressed.
        let can_return = near.iter().any(|held| !held.is_public() && !held.stays_here());
        if can_return && is_part_asked(&parts.headers) {
            let why = "it asks for a part of an answer (`Range`), which could not be searched for them";
            return Err(not_put(why, "ask for the whole: a client that loads parts has a setting for it"));
        }
        let (method, path) = (parts.method.as_str().to_owned(), parts.uri.path().to_owned());
        let asked = RequestTarget { to, port, verified, method: &method, path: &path };
        let fitting: Vec<&LoadedSecret> = near.iter().copied().filter(|held| held.fits(&asked)).collect();
        let mut put = vec![false; fitting.len()];
        // Before the head is looked at: one that is put into a header may be what says how the body is read.
        for (held, put) in fitting.iter().zip(&mut put) {
            *put |= held.put(&asked, &mut parts).map_err(denied)?;
        }
        if can_return {
            if is_in_other_charset(&parts.headers) {
                return Err(denied("its body is in a charset in which ASCII is not ASCII"));
            }
            searchable(&mut parts.headers);
        }
        if fitting.iter().any(|held| held.is_placeholder()) && !body.is_end_stream() {
            let place = timeout(BODY_TIME, Arc::clone(&self.bodies.0).acquire_owned()).await;
            let place = place.ok().and_then(Result::ok);
            let place =
                place.ok_or_else(|| denied("too many bodies are read at once, in which a placeholder may be"))?;
            let held = timeout(BODY_TIME, in_body((&fitting, &mut put), &mut parts, body, place)).await;
            body = held.map_err(|_late| denied("its body did not come in time"))??;
        }
        let mut signers = fitting.iter().zip(&mut put).filter(|(held, _)| held.signs());
        if let Some((signer, put)) = signers.next()
            && !sign::is_presigned(&parts)
        {
            if signers.next().is_some() {
                return Err(denied("two of them would sign it"));
            }
            body = self.sign(signer, &asked, &mut parts, body).await?;
            *put = true;
        }
        let names = fitting.iter().zip(&put).filter(|(_, put)| **put).map(|(held, _)| held.name()).collect();
        let search = is_searched.then(|| Search { forms: Arc::new(Forms::of(near)), can_return });
        Ok(Put { request: Request::from_parts(parts, body), search, names })
    }
}

impl Secrets {
    /// Signs a request whose other secrets are in it. Where the signature is over the body, the body is read first.
    async fn sign(
        &self,
        signer: &LoadedSecret,
        asked: &RequestTarget<'_>,
        parts: &mut Parts,
        body: Body,
    ) -> Result<Body, NotPut> {
        let denied = |why| not_put(why, PLAINLY);
        let (payload, body) = match signer.payload(asked, parts).map_err(denied)? {
            Some(stated) => (stated, body),
            None if body.is_end_stream() => (sign::digest(&[]), body),
            None => {
                let place = Arc::clone(&self.bodies.0).try_acquire_owned();
                let place = place.map_err(|_full| denied("too many bodies are read at once, and it signs its own"))?;
                let read = timeout(BODY_TIME, Read::of(body)).await;
                let read = read.map_err(|_late| denied("its body did not come in time"))?.map_err(NotPut::Broken)?;
                if read.rest.is_some() {
                    return Err(denied("its body has more than 1 MiB, and it is signed with it"));
                }
                (sign::digest(&read.whole), read.replayed(place))
            }
        };
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        signer.sign(asked, parts, (&payload, &now)).map_err(denied)?;
        Ok(body)
    }
}

fn unlocked(error: &sys::error::Error) -> String {
    // How long it is is nobody's business.
    format!("cannot be kept in locked memory ({}): RLIMIT_MEMLOCK may be too low", error.errno)
}

/// A body that was read as far as it may be held.
struct Read {
    /// With values of secrets in it, perhaps: wiped when it was sent.
    whole: Zeroizing<Vec<u8>>,
    trailers: Option<Frame<Bytes>>,
    /// It is longer: what was not read.
    rest: Option<Body>,
}

impl Read {
    async fn of(mut body: Body) -> Result<Self, hyper::Error> {
        let (mut whole, mut trailers) = (Zeroizing::new(Vec::new()), None);
        while whole.len() <= MAX_BODY {
            let Some(frame) = body.frame().await.transpose()? else { break };
            match frame.into_data() {
                Ok(data) => whole.extend_from_slice(&data),
                Err(other) => trailers = Some(other),
            }
        }
        let rest = (whole.len() > MAX_BODY).then_some(body);
        Ok(Self { whole, trailers, rest })
    }

    fn replayed(self, place: OwnedSemaphorePermit) -> Body {
        let first = [Some(Frame::data(Bytes::from_owner(self.whole))), self.trailers].into_iter().flatten().collect();
        BodyExt::boxed(Replayed { first, rest: self.rest, place: Some(place) })
    }
}

/// Reads a body that is not too long, and puts values where placeholders are.
async fn in_body(
    (fitting, put): (&[&LoadedSecret], &mut [bool]),
    parts: &mut Parts,
    body: Body,
    place: OwnedSemaphorePermit,
) -> Result<Body, NotPut> {
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY) {
        return Ok(body);
    }
    let mut read = Read::of(body).await.map_err(NotPut::Broken)?;
    if read.rest.is_some() {
        return Ok(read.replayed(place));
    }
    let media = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    for (held, put) in fitting.iter().zip(put) {
        let with = held.in_body(&media, &read.whole).map_err(|why| not_put(why, IN_TEXT))?;
        if let Some(with) = with {
            read.whole = with;
            *put = true;
        }
    }
    if length.is_some() {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(read.whole.len()));
    }
    Ok(read.replayed(place))
}

/// What was read of a body, and what is not read yet.
struct Replayed {
    first: VecDeque<Frame<Bytes>>,
    rest: Option<Body>,
    /// Free again when what was read went on.
    place: Option<OwnedSemaphorePermit>,
}

impl hyper::body::Body for Replayed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        if let Some(frame) = this.first.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        this.place = None;
        match &mut this.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let known = self.rest.is_none() && self.first.iter().all(Frame::is_data);
        let count = self.first.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
        if known { SizeHint::with_exact(count) } else { SizeHint::default() }
    }
}

fn not_put(why: &'static str, instead: &'static str) -> NotPut {
    NotPut::Denied(Reason::Secret { why, instead })
}

/// Whether a request asks for less than the whole answer, and may take that for a part. All from the first byte on is the whole; who
/// says `If-Range` asks for the whole where it is another one by now.
fn is_part_asked(headers: &HeaderMap) -> bool {
    let is_range = |name: &HeaderName| ["range", "request-range"].iter().any(|range| is_spelling(name.as_str(), range));
    let is_whole = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"bytes=0-");
    !headers.contains_key(IF_RANGE) && headers.iter().any(|(name, value)| is_range(name) && !is_whole(value))
}

/// What the answer to a request is searched for.
#[derive(Debug)]
pub(crate) struct Search {
    forms: Arc<Forms>,
    /// Whether a server of this host was ever sent any of it.
    can_return: bool,
}

impl Search {
    /// The answer without secrets.
    ///
    /// # Errors
    /// It cannot be searched.
    pub(crate) fn answer(self, response: Response<Body>) -> Result<Response<Body>, Reason> {
        let (mut parts, body) = response.into_parts();
        // Of an answer to HEAD, or one that says that nothing changed, the headers are all that comes.
        if self.can_return && !body.is_end_stream() {
            is_searchable(parts.status, &parts.headers)?;
        }
        // The reason phrase, and names of headers as they were written.
        parts.extensions.clear();
        mask(&self.forms, &mut parts.headers);
        let scrub = Scrub::new(Arc::clone(&self.forms));
        Ok(Response::from_parts(
            parts,
            BodyExt::boxed(Scrubbed { scrub, forms: self.forms, body, last: None, over: false }),
        ))
    }
}

/// Whether a value that is in the body of an answer stands there as it is searched for.
fn is_searchable(status: StatusCode, headers: &HeaderMap) -> Result<(), Reason> {
    let in_part = matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::IM_USED);
    // A server that has no such part says with it how long the whole is.
    if in_part || (headers.contains_key(CONTENT_RANGE) && status != StatusCode::RANGE_NOT_SATISFIABLE) {
        return Err(Reason::Secret {
            why: "its answer is a part of one, which nobody asked for: it cannot be searched",
            instead: "take the answer whole, of a server that sends it so",
        });
    }
    if is_coded(headers) {
        return Err(Reason::Secret {
            why: "its answer is compressed though it was asked not to be: it cannot be searched",
            instead: "take an answer that is not compressed, of a server that sends it so",
        });
    }
    if is_in_other_charset(headers) {
        return Err(Reason::Secret {
            why: "its answer is in a charset in which ASCII is not ASCII: it cannot be searched",
            instead: "take the answer in UTF-8, of a server that sends it so",
        });
    }
    Ok(())
}

/// Whether a body is written otherwise than as it is.
fn is_coded(headers: &HeaderMap) -> bool {
    let words = |name: HeaderName| {
        let values = headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or("unreadable").to_owned());
        values.collect::<Vec<_>>().join(",")
    };
    let plain = |text: &str, known: &[&str]| {
        text.split(',')
            .map(str::trim)
            .all(|word| word.is_empty() || known.iter().any(|one| word.eq_ignore_ascii_case(one)))
    };
    let inside = [HeaderName::from_static("grpc-encoding"), HeaderName::from_static("connect-content-encoding")];
    inside.into_iter().any(|name| !plain(&words(name), &["identity"]))
        || !plain(&words(CONTENT_ENCODING), &NO_CODINGS)
        || !plain(&words(TRANSFER_ENCODING), &["chunked", "identity"])
}

/// Overwrites values in headers; a header whose name has one is left out.
fn mask(forms: &Forms, headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers.keys().filter(|name| forms.is_in_name(name.as_str())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        let mut bytes = value.as_bytes().to_vec();
        if forms.mask(&mut bytes) {
            *value = HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static(""));
        }
    }
}

/// A body without secrets, of the same length.
struct Scrubbed {
    scrub: Scrub,
    forms: Arc<Forms>,
    body: Body,
    /// Comes after what was held back.
    last: Option<Frame<Bytes>>,
    over: bool,
}

impl hyper::body::Body for Scrubbed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        loop {
            if this.over {
                return Poll::Ready(this.last.take().map(Ok));
            }
            let next = ready!(Pin::new(&mut this.body).poll_frame(cx)).transpose()?.map(Frame::into_data);
            let piece = match next {
                Some(Ok(data)) => this.scrub.push(&data),
                Some(Err(frame)) => {
                    this.last = frame.into_trailers().ok().map(|mut trailers| {
                        mask(&this.forms, &mut trailers);
                        Frame::trailers(trailers)
                    });
                    this.over = true;
                    this.scrub.finish()
                }
                None => {
                    this.over = true;
                    this.scrub.finish()
                }
            };
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece)))));
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.scrub.held() as u64;
        match self.body.size_hint().exact() {
            Some(rest) if !self.over => SizeHint::with_exact(rest.saturating_add(held)),
            Some(_) | None => SizeHint::default(),
        }
    }
}
