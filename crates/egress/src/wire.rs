//! What the engine and the broker of a run say to each other, over one unix stream socket.
//!
//! A frame is a length (32 bits, little endian) and so many bytes of JSON. The engine speaks first: [`ToBroker::Orders`], with
//! the sandbox's sockets beside its bytes (SCM_RIGHTS, in the order of `sockets`, at most [`DESCRIPTORS`] in one message). What
//! the broker says is a record of what it did and believed in nothing more: it reads hostile bytes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base64::Engine as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// The version of what is said here; another one is refused.
pub const VERSION: u32 = 4;
/// Most bytes of JSON in one frame.
pub const MAX_FRAME: usize = 1 << 20;
/// Most descriptors beside one message (the kernel takes 253).
pub const DESCRIPTORS: usize = 250;
/// Most sockets in one orders frame.
pub const MAX_SOCKETS: usize = 4096;
/// Most kinds of [`AllowedTraffic`] that are told; a program that does more is learnt from in part.
pub const MAX_SEEN: usize = 1000;
/// Most destinations about which [`FromBroker::Whose`] asks.
pub const MAX_WHOSE: usize = 200;
/// Most secrets in [`FromBroker::Used`].
pub const MAX_USED: usize = 1000;
/// Most hosts of which [`FromBroker::Unreached`] tells.
pub const MAX_UNREACHED: usize = 16;
/// Most bytes of one text of a record; what is longer is cut by [`FromBroker::bounded`].
pub const MAX_TEXT: usize = 512;

/// What the engine says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToBroker {
    /// The first frame, and only the first.
    Orders(Box<Orders>),
    /// The rules from now on; connections that no longer fit are cut.
    Rules {
        /// The resolved `[net]` table, as the policy's own JSON.
        net: Value,
    },
    /// A person's answer to [`FromBroker::Ask`].
    Answer {
        /// Which question.
        id: u64,
        /// Whether it may.
        allow: bool,
        /// For what it holds.
        scope: Scope,
    },
    /// It was looked for whom [`FromBroker::Whose`] asks about.
    Looked {
        /// Which question.
        id: u64,
    },
    /// Say what was counted so far, and then [`FromBroker::Told`]. (With braces, as the next one.)
    Tell {},
    /// Cut everything, say the last counts, end. (With braces: only so does serde refuse unknown fields.)
    End {},
}

/// What the broker is to do, for which run, with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// [`VERSION`].
    pub version: u32,
    /// The id of the run.
    pub run: String,
    /// The resolved `[net]` table, as the policy's own JSON.
    pub net: Value,
    /// The sandbox's sockets, as the descriptors follow one another.
    pub sockets: Vec<Socket>,
    /// What is put into requests.
    pub secrets: Secrets,
    /// With what TLS is opened, where rules judge requests.
    pub opening: Option<Opening>,
    /// `USER:PASSWORD` for the proxy that `net` names.
    pub proxy_login: Option<Hidden>,
    /// What is let through is to be said too ([`FromBroker::Seen`]).
    pub observe: bool,
}

/// The secrets of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// The `[secrets]` table, as the policy's own JSON: what each is for.
    pub table: Value,
    /// Their values by name.
    pub values: BTreeMap<String, Hidden>,
    /// What stands for them inside, by name.
    pub placeholders: BTreeMap<String, String>,
}

/// A value that is wiped when dropped, and that no `Debug` shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hidden(pub Zeroizing<String>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden")
    }
}

impl Secrets {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// SHA-256, in hex, of which secrets are held for which requests, and what stands for them. No value is part of it.
    #[must_use]
    pub fn digest(&self) -> String {
        let names: Vec<&String> = self.values.keys().collect();
        policy::json::digest(&json!({ "table": self.table, "held": names, "placeholders": self.placeholders }))
    }
}

/// With what TLS is opened on the program's side, and verified on the server's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// The certificate of the run's authority, PEM.
    pub certificate: String,
    /// Its key.
    pub key: Key,
    /// Names (and what lies below them) for which it may sign.
    pub names: Vec<String>,
    /// The roots by which servers are verified, PEM.
    pub roots: String,
}

impl Opening {
    /// SHA-256, in hex, of the authority's certificate (DER).
    ///
    /// # Errors
    /// It is no PEM.
    pub fn digest(&self) -> Result<String, String> {
        let body: String = self.certificate.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = base64::engine::general_purpose::STANDARD.decode(body.trim()).map_err(|error| error.to_string())?;
        Ok(policy::json::sha256_hex(&der))
    }
}

/// A private key, PEM; never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub Zeroizing<String>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// One socket that was made inside the sandbox's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Socket {
    /// What it is.
    pub kind: SocketKind,
    /// The port that it is bound to; 0 for a spare one.
    pub port: u16,
}

/// What a socket of the sandbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketKind {
    /// Listens on 0.0.0.0 and its port.
    Tcp4,
    /// Listens on `[::]` and its port, IPv6 alone.
    Tcp6,
    /// Bound to 0.0.0.0 and its port, with IP_PKTINFO.
    Udp4,
    /// Bound to `[::]` and its port, IPv6 alone, with IPV6_RECVPKTINFO.
    Udp6,
    /// Neither bound nor listening: the broker binds it to a name's own address and port.
    SpareTcp4,
    /// As `SpareTcp4`, for IPv6.
    SpareTcp6,
}

impl SocketKind {
    /// Whether it is of datagrams.
    #[must_use]
    pub fn is_udp(self) -> bool {
        match self {
            Self::Udp4 | Self::Udp6 => true,
            Self::Tcp4 | Self::Tcp6 | Self::SpareTcp4 | Self::SpareTcp6 => false,
        }
    }

    /// Whether the broker has still to bind it.
    #[must_use]
    pub fn is_spare(self) -> bool {
        match self {
            Self::SpareTcp4 | Self::SpareTcp6 => true,
            Self::Tcp4 | Self::Tcp6 | Self::Udp4 | Self::Udp6 => false,
        }
    }
}

/// How long an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This connection alone.
    Once,
    /// This host and port until the run ends.
    Run,
}

/// What the broker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case", deny_unknown_fields)]
pub enum FromBroker {
    /// It holds the sockets and judges by these rules; also after [`ToBroker::Rules`].
    Ready {
        /// [`digest`] of the rules that it read.
        digest: String,
        /// SHA-256 of the certificate of the authority with which it opens TLS, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authority: Option<String>,
    },
    /// Said before [`FromBroker::Ready`] where there are secrets: it holds them.
    Holds {
        /// [`Secrets::digest`] of those that it holds.
        digest: String,
    },
    /// Something was stopped. One record for each kind: the first is said at once, what follows of its kind is counted and said
    /// again with the count so far.
    Denied(Denied),
    /// Something was let through, where the orders ask to be told: once for each kind.
    Seen(AllowedTraffic),
    /// What was used so far; at most once a second, and at the end.
    Usage(Usage),
    /// It is there, and has had nothing else to say for a moment.
    Alive {},
    /// All that was counted until [`ToBroker::Tell`] came has been said.
    Told {},
    /// How often each secret was put into a request so far; said with the counts.
    Used {
        /// By name, those that were.
        secrets: BTreeMap<String, u64>,
    },
    /// A person is to answer: `unknown = "ask"`, or a rule with `decision = "ask"`.
    Ask {
        /// The question's number, for the answer.
        id: u64,
        /// The name (or the address, where none was looked up).
        host: String,
        /// The port.
        port: u16,
        /// The request of which a rule asks; none: the connection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<Head>,
    },
    /// A connection is about to be denied and held until [`ToBroker::Looked`]: which program has it is to be looked for. At
    /// most [`MAX_WHOSE`] times, once for each destination.
    Whose {
        /// The question's number.
        id: u64,
        /// The program's side of it.
        from: SocketAddr,
        /// What was connected to.
        to: SocketAddr,
    },
    /// What may be reached could not be, outside: that is no denial. Once for each host, of at most [`MAX_UNREACHED`].
    Unreached {
        /// The name, or the address where none was looked up.
        host: String,
        /// The port; 0 for a look-up.
        port: u16,
        /// Why.
        why: String,
    },
    /// [`ToBroker::Rules`] were not taken, and those before hold.
    Refused {
        /// Why.
        why: String,
    },
    /// It cannot go on; the last frame.
    Failed {
        /// What failed.
        what: String,
        /// Why.
        why: String,
    },
}

/// One kind of denial. `{id, clause, what, why, instead}` is what a program inside is told, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Denied {
    /// A stable id, `net/...`.
    pub id: String,
    /// The clause of the policy that says so.
    pub clause: String,
    /// What was tried.
    pub what: String,
    /// Why it was stopped.
    pub why: String,
    /// What to do instead.
    pub instead: String,
    /// The name that was meant, or the address where none was looked up.
    pub host: String,
    /// The port; 0 for a look-up.
    pub port: u16,
    /// How often so far.
    pub count: u64,
}

impl Denied {
    /// The same with texts of at most [`MAX_TEXT`] bytes.
    #[must_use]
    pub fn bounded(self) -> Self {
        let Self { id, clause, what, why, instead, host, port, count } = self;
        let [id, clause, what, why, instead, host] = [id, clause, what, why, instead, host].map(cut);
        Self { id, clause, what, why, instead, host, port, count }
    }
}

/// A request of which a person is asked, as rules judge it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The method.
    pub method: String,
    /// The path as it was sent, without the query.
    pub path: String,
    /// It opens a WebSocket, behind which nothing is judged.
    pub websocket: bool,
}

/// A connection that was passed on, or a request that was read on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedTraffic {
    /// The name, or the address where none was looked up.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The method of a request; none: the bytes were not read.
    pub method: Option<String>,
    /// Its path without the query; empty where it is longer than [`MAX_TEXT`], or not of visible ASCII alone.
    pub path: Option<String>,
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Bytes from inside to outside, on connections.
    pub sent: u64,
    /// Bytes from outside to inside.
    pub received: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections that were passed on, in all.
    pub connections: u64,
    /// Names looked up, in all.
    pub lookups: u64,
}

impl FromBroker {
    /// The same with every text cut to [`MAX_TEXT`] bytes.
    #[must_use]
    pub fn bounded(self) -> Self {
        match self {
            Self::Ready { digest, authority } => Self::Ready { digest: cut(digest), authority: authority.map(cut) },
            Self::Holds { digest } => Self::Holds { digest: cut(digest) },
            Self::Denied(denied) => Self::Denied(denied.bounded()),
            Self::Seen(seen) => Self::Seen(AllowedTraffic {
                host: cut(seen.host),
                port: seen.port,
                method: seen.method.map(cut),
                path: seen.path.map(cut),
            }),
            Self::Usage(usage) => Self::Usage(usage),
            Self::Alive {} => Self::Alive {},
            Self::Told {} => Self::Told {},
            Self::Used { secrets } => Self::Used {
                secrets: secrets.into_iter().take(MAX_USED).map(|(name, count)| (cut(name), count)).collect(),
            },
            Self::Ask { id, host, port, request } => {
                let request = request.map(|head| Head {
                    method: cut(head.method),
                    path: cut(head.path),
                    websocket: head.websocket,
                });
                Self::Ask { id, host: cut(host), port, request }
            }
            Self::Whose { id, from, to } => Self::Whose { id, from, to },
            Self::Unreached { host, port, why } => Self::Unreached { host: cut(host), port, why: cut(why) },
            Self::Refused { why } => Self::Refused { why: cut(why) },
            Self::Failed { what, why } => Self::Failed { what: cut(what), why: cut(why) },
        }
    }
}

/// SHA-256, in hex, of the canonical JSON (RFC 8785) of a `[net]` table: both sides make it from `net`.
#[must_use]
pub fn digest(net: &Value) -> String {
    policy::json::digest(net)
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A length above [`MAX_FRAME`].
    TooLong(usize),
    /// No JSON of this shape; what the reader said of it.
    Shape(String),
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(length) => write!(f, "a frame of {length} bytes, at most {MAX_FRAME} may be"),
            Self::Shape(why) => write!(f, "a frame that is not understood: {why}"),
        }
    }
}

impl std::error::Error for Malformed {}

/// A value as one frame.
///
/// # Errors
/// [`Malformed::TooLong`]: it needs more than [`MAX_FRAME`] bytes.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Malformed> {
    encode_into(vec![0; 4], value)
}

/// [`encode`] for a frame with secrets: its bytes are wiped, and it is never moved to a larger place while it is made. It is
/// measured first: what is wiped is touched, page by page.
///
/// # Errors
/// As [`encode`].
pub fn encode_hidden<T: Serialize>(value: &T) -> Result<Zeroizing<Vec<u8>>, Malformed> {
    let mut length = Length(4);
    serde_json::to_writer(&mut length, value).map_err(|e| Malformed::Shape(e.to_string()))?;
    let mut frame = Vec::with_capacity(length.0);
    frame.resize(4, 0);
    encode_into(frame, value).map(Zeroizing::new)
}

/// Counts what is written.
struct Length(usize);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn encode_into<T: Serialize>(mut frame: Vec<u8>, value: &T) -> Result<Vec<u8>, Malformed> {
    serde_json::to_writer(&mut frame, value).map_err(|e| Malformed::Shape(e.to_string()))?;
    let length = frame.len().saturating_sub(4);
    let Some(known) = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME) else {
        return Err(Malformed::TooLong(length));
    };
    for (to, from) in frame.iter_mut().zip(known.to_le_bytes()) {
        *to = from;
    }
    Ok(frame)
}

/// The first frame of `bytes` and how many bytes it took; `None`: it is not whole yet.
///
/// # Errors
/// A length out of bounds (said before so many bytes came), or what is no value of this type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(T, usize)>, Malformed> {
    let Some(length) = length(bytes)? else { return Ok(None) };
    let Some(body) = bytes.get(4..length) else { return Ok(None) };
    let value = serde_json::from_slice(body).map_err(|e| Malformed::Shape(e.to_string()))?;
    Ok(Some((value, length)))
}

/// How many bytes the first frame takes, its length included; `None`: that did not come yet.
///
/// # Errors
/// [`Malformed::TooLong`].
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > MAX_FRAME { Err(Malformed::TooLong(length)) } else { Ok(Some(length.saturating_add(4))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_and_says_how_long_it_was() {
        let orders = ToBroker::Orders(Box::new(Orders {
            version: VERSION,
            run: "r-1".to_owned(),
            net: serde_json::json!({"mode": "allow"}),
            sockets: vec![Socket { kind: SocketKind::Udp6, port: 53 }, Socket { kind: SocketKind::SpareTcp4, port: 0 }],
            secrets: Secrets::default(),
            opening: None,
            proxy_login: None,
            observe: false,
        }));
        let mut bytes = encode(&orders).unwrap();
        let whole = bytes.len();
        assert!(String::from_utf8_lossy(&bytes).contains(r#"{"kind":"spare-tcp4","port":0}"#));
        bytes.extend_from_slice(b"more");
        assert_eq!(decode(&bytes).unwrap(), Some((orders, whole)));
        for short in 0..whole {
            assert_eq!(decode::<ToBroker>(&bytes[..short]).unwrap(), None, "{short} bytes are no frame");
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_came() {
        let length = u32::try_from(MAX_FRAME + 1).unwrap();
        assert_eq!(decode::<ToBroker>(&length.to_le_bytes()), Err(Malformed::TooLong(MAX_FRAME + 1)));
        let text = "x".repeat(MAX_FRAME);
        assert!(encode(&FromBroker::Failed { what: text, why: String::new() }).is_err());
    }

    #[test]
    fn unknown_fields_and_frames_are_refused() {
        for text in [r#"{"frame":"end","more":1}"#, r#"{"frame":"stop"}"#, r#"{"frame":"rules"}"#, "[]", ""] {
            let mut bytes = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
            bytes.extend_from_slice(text.as_bytes());
            assert!(matches!(decode::<ToBroker>(&bytes), Err(Malformed::Shape(_))), "{text}");
        }
    }

    #[test]
    fn texts_of_the_broker_are_cut_between_characters() {
        let long = "ä".repeat(MAX_TEXT);
        let FromBroker::Ask { host, .. } = (FromBroker::Ask { id: 1, host: long, port: 1, request: None }).bounded()
        else {
            panic!()
        };
        assert_eq!(host.len(), MAX_TEXT);
    }
}
