//! Messages of a kernel as a WebSocket carries them: as JSON, as JSON with buffers behind it, and in the binary form of
//! `v1.kernel.websocket.jupyter.org`.

use axum::body::Bytes;
use axum::extract::ws::Message as Packet;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use live::kernel::words::{Channel, Spoken};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value as Json, json};

/// The protocol in which each part of a message has its place.
pub(super) const V1: &str = "v1.kernel.websocket.jupyter.org";
/// Most parts of a binary message.
const MAX_PARTS: usize = 1024;

/// A line of a kernel.
#[derive(Deserialize)]
struct Line {
    message: Heard,
}

/// A message of a kernel. What it says is nobody's concern here.
#[derive(Deserialize)]
pub(super) struct Heard {
    channel: String,
    header: Box<RawValue>,
    parent_header: Box<RawValue>,
    #[serde(default = "empty")]
    metadata: Box<RawValue>,
    content: Box<RawValue>,
    #[serde(default)]
    buffers: Vec<String>,
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    msg_id: Json,
    #[serde(default)]
    msg_type: Json,
}

fn empty() -> Box<RawValue> {
    to_raw_value(&json!({})).unwrap_or_default()
}

/// A line of a kernel as a packet; none where it is no message.
pub(super) fn outward(line: &[u8], v1: bool) -> Option<Packet> {
    let Line { mut message } = serde_json::from_slice(line).ok()?;
    message.content = without_e2b(message.content);
    let buffers: Vec<Vec<u8>> =
        message.buffers.iter().map(|buffer| STANDARD.decode(buffer).ok()).collect::<Option<_>>()?;
    if v1 {
        let named = [&message.header, &message.parent_header, &message.metadata, &message.content];
        let mut parts = vec![message.channel.as_bytes()];
        parts.extend(named.map(|part| part.get().as_bytes()));
        parts.extend(buffers.iter().map(Vec::as_slice));
        return Some(Packet::Binary(Bytes::from(joined_v1(&parts)?)));
    }
    let Head { msg_id, msg_type } = serde_json::from_str(message.header.get()).ok()?;
    let Heard { channel, header, parent_header, metadata, content, .. } = &message;
    let plain = Plain { header, msg_id, msg_type, parent_header, metadata, content, buffers: [], channel };
    let text = serde_json::to_string(&plain).ok()?;
    if buffers.is_empty() {
        return Some(Packet::Text(text.into()));
    }
    let parts: Vec<&[u8]> = std::iter::once(text.as_bytes()).chain(buffers.iter().map(Vec::as_slice)).collect();
    Some(Packet::Binary(Bytes::from(joined(&parts)?)))
}

/// Forms of results that E2B's clients know: a notebook that holds them is none.
fn without_e2b(content: Box<RawValue>) -> Box<RawValue> {
    if !content.get().contains("\"e2b/") {
        return content;
    }
    let mut value: Json = serde_json::from_str(content.get()).unwrap_or_default();
    let Some(data) = value.get_mut("data").and_then(Json::as_object_mut) else { return content };
    data.retain(|name, _| !name.starts_with("e2b/"));
    to_raw_value(&value).unwrap_or(content)
}

/// The fields in the order in which Jupyter's own server writes them.
#[derive(serde::Serialize)]
struct Plain<'a> {
    header: &'a RawValue,
    msg_id: Json,
    msg_type: Json,
    parent_header: &'a RawValue,
    metadata: &'a RawValue,
    content: &'a RawValue,
    buffers: [u8; 0],
    channel: &'a str,
}

/// Offsets in 8 bytes, the lowest first: where each part begins, and where the last one ends.
fn joined_v1(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let count = parts.len().checked_add(1)?;
    let mut at = count.checked_add(1)?.checked_mul(8)?;
    let mut bytes = u64::try_from(count).ok()?.to_le_bytes().to_vec();
    bytes.extend(u64::try_from(at).ok()?.to_le_bytes());
    for part in parts {
        at = at.checked_add(part.len())?;
        bytes.extend(u64::try_from(at).ok()?.to_le_bytes());
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Some(bytes)
}

/// Offsets in 4 bytes, the highest first: how many parts, and where each begins.
fn joined(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let mut at = parts.len().checked_add(1)?.checked_mul(4)?;
    let mut bytes = u32::try_from(parts.len()).ok()?.to_be_bytes().to_vec();
    for part in parts {
        bytes.extend(u32::try_from(at).ok()?.to_be_bytes());
        at = at.checked_add(part.len())?;
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Some(bytes)
}

/// What a client says as a line for a kernel; none where it is no message, or for no channel of a kernel.
pub(super) fn inward(packet: &Packet, v1: bool) -> Option<Vec<u8>> {
    let spoken = match packet {
        Packet::Text(text) if !v1 => serde_json::from_str(text).ok()?,
        Packet::Binary(bytes) if v1 => read_v1(bytes)?,
        Packet::Binary(bytes) => read(bytes)?,
        Packet::Text(_) | Packet::Ping(_) | Packet::Pong(_) | Packet::Close(_) => return None,
    };
    let mut line = serde_json::to_vec(&spoken).ok()?;
    // Between the parts of raw JSON a newline is a blank; within a text it stands as an escape.
    line.retain(|byte| !matches!(byte, b'\n' | b'\r'));
    line.push(b'\n');
    Some(line)
}

fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(bytes).ok()
}

/// A whole number of 8 bytes, the lowest first.
fn number_v1(bytes: &[u8], at: usize) -> Option<usize> {
    let part = bytes.get(at..)?.first_chunk::<8>()?;
    usize::try_from(u64::from_le_bytes(*part)).ok()
}

fn read_v1(bytes: &[u8]) -> Option<Spoken> {
    let count = number_v1(bytes, 0).filter(|count| (6..=MAX_PARTS).contains(count))?;
    let offset = |index: usize| number_v1(bytes, index.checked_add(1)?.checked_mul(8)?);
    let part = |index: usize| bytes.get(offset(index)?..offset(index.checked_add(1)?)?);
    let channel = match part(0)? {
        b"shell" => Channel::Shell,
        b"control" => Channel::Control,
        b"stdin" => Channel::Stdin,
        _ => return None,
    };
    let buffers = (5..count.checked_sub(1)?).map(|index| Some(STANDARD.encode(part(index)?)));
    Some(Spoken {
        channel,
        header: raw(part(1)?)?,
        parent_header: raw(part(2)?)?,
        metadata: raw(part(3)?)?,
        content: raw(part(4)?)?,
        buffers: buffers.collect::<Option<_>>()?,
    })
}

fn read(bytes: &[u8]) -> Option<Spoken> {
    let number = |at: usize| {
        let part = bytes.get(at.checked_mul(4)?..)?.first_chunk::<4>()?;
        usize::try_from(u32::from_be_bytes(*part)).ok()
    };
    let count = number(0).filter(|count| (1..=MAX_PARTS).contains(count))?;
    let part = |index: usize| {
        let end = if index == count { bytes.len() } else { number(index.checked_add(1)?)? };
        bytes.get(number(index)?..end)
    };
    let mut spoken: Spoken = serde_json::from_slice(part(1)?).ok()?;
    spoken.buffers = (2..=count).map(|index| Some(STANDARD.encode(part(index)?))).collect::<Option<_>>()?;
    Some(spoken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = r#"{"message":{"channel":"iopub","header":{"msg_id":"1","msg_type":"comm_msg"},"parent_header":{},"metadata":{},"content":{"a":[1,2.50]},"buffers":["AAEC","/w=="]}}"#;

    /// The answer to a request as if a client had said it.
    fn spoken(packet: &Packet, v1: bool) -> Json {
        serde_json::from_slice(&inward(packet, v1).unwrap()).unwrap()
    }

    #[test]
    fn what_goes_out_in_each_form_can_be_said_in_the_same() {
        let line = LINE.replace("iopub", "shell");
        for v1 in [false, true] {
            let packet = outward(line.as_bytes(), v1).unwrap();
            let back = spoken(&packet, v1);
            let Json::Object(mut there) = serde_json::from_str::<Json>(&line).unwrap()["message"].take() else {
                panic!()
            };
            there.sort_keys();
            let Json::Object(mut back) = back else { panic!() };
            back.sort_keys();
            assert_eq!(back, there, "v1: {v1}");
        }
        // A kernel's publications are not to be said to it.
        assert!(inward(&outward(LINE.as_bytes(), true).unwrap(), true).is_none());
        assert!(inward(&outward(LINE.as_bytes(), false).unwrap(), false).is_none());
    }

    #[test]
    fn without_buffers_it_is_text_as_jupyters_own_server_writes_it() {
        let line = r#"{"message":{"channel":"iopub","header":{"msg_id":"1","msg_type":"status"},"parent_header":{"session":"s"},"content":{"execution_state":"idle"}}}"#;
        let expected = r#"{"header":{"msg_id":"1","msg_type":"status"},"msg_id":"1","msg_type":"status","parent_header":{"session":"s"},"metadata":{},"content":{"execution_state":"idle"},"buffers":[],"channel":"iopub"}"#;
        assert_eq!(outward(line.as_bytes(), false), Some(Packet::Text(expected.into())));
        let Some(Packet::Binary(bytes)) = outward(line.as_bytes(), true) else { panic!() };
        assert_eq!(number_v1(&bytes, 0), Some(6));
        assert_eq!((number_v1(&bytes, 8), bytes.get(56..61)), (Some(56), Some(&b"iopub"[..])));
    }

    #[test]
    fn forms_that_no_notebook_may_hold_are_left_out() {
        let of = |content: &str| without_e2b(RawValue::from_string(content.to_owned()).unwrap()).get().to_owned();
        let shown = r#"{"data":{"image/png":"x","e2b/chart":{"a":1}},"metadata":{}}"#;
        assert_eq!(of(shown), r#"{"data":{"image/png":"x"},"metadata":{}}"#);
        for same in [r#"{"text":"\"e2b/chart\""}"#, r#"{"data":["e2b/chart"]}"#, r#"["e2b/"]"#] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn a_client_cannot_say_two_lines_or_what_is_no_message() {
        let text = "{\"channel\":\"shell\",\n\"header\":{\"msg_id\":\"1\"},\"parent_header\":{},\"metadata\":{},\"content\":{}}";
        let line = inward(&Packet::Text(text.into()), false).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        for bad in ["", "7", "{}", "{\"channel\":\"iopub\",\"header\":{},\"content\":{}}", "{\"op\":\"interrupt\"}"] {
            assert!(inward(&Packet::Text(bad.into()), false).is_none(), "{bad}");
            assert!(inward(&Packet::Text(bad.into()), true).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200), numbers in proptest::collection::vec(0_u64..200, 0..10)) {
            let mut offsets: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            offsets.extend(&bytes);
            for packet in [&bytes, &offsets] {
                for v1 in [false, true] {
                    let packet = Packet::Binary(Bytes::from(packet.clone()));
                    if let Some(line) = inward(&packet, v1) {
                        prop_assert!(serde_json::from_slice::<Spoken>(&line).is_ok());
                    }
                }
                prop_assert!(outward(packet, true).is_none() || serde_json::from_slice::<Json>(packet).is_ok());
            }
        }
    }
}
