//! Frames as a hostile inside could make them: whatever comes is judged, and nothing passes that the protocol does not allow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use agent::frame::{Kind, Lane, WINDOW};
use agent::words::Request;
use proptest::prelude::*;
use tokio::sync::mpsc::unbounded_channel;

use crate::supervisor::line::{Agent, To};
use crate::wire::Owned;

const KINDS: [Kind; 9] =
    [Kind::Open, Kind::Reply, Kind::Event, Kind::Data, Kind::Eof, Kind::Credit, Kind::Control, Kind::Cancel, Kind::End];

/// Payloads that are right for something, so that what follows is reached; and any bytes.
fn payloads() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "{}",
        "null",
        "{\"pid\":9}",
        "{\"ok\":null}",
        "{\"ok\":{\"code\":0}}",
        "{\"ok\":{}}",
        "{\"entries\":[]}",
        "{\"error\":{\"code\":\"failed\",\"message\":\"\"}}",
        "{\"error\":{}}",
        "[",
    ]);
    let data = (0_u8..4, 0_usize..70_000).prop_map(|(lane, length)| {
        let mut bytes = vec![b'x'; length];
        bytes.insert(0, lane);
        bytes
    });
    prop_oneof![words.prop_map(|text| text.as_bytes().to_vec()), data, proptest::collection::vec(any::<u8>(), 0..16)]
}

fn frames() -> impl Strategy<Value = Vec<Owned>> {
    let frame = (prop::sample::select(KINDS.to_vec()), 0_u32..8, payloads());
    proptest::collection::vec(frame.prop_map(|(kind, stream, payload)| Owned { kind, stream, payload }), 0..60)
}

fn asked() -> Vec<Request> {
    let program = serde_json::from_value(serde_json::json!({"argv": ["x"]})).unwrap();
    let path = || "/a".to_owned();
    vec![
        Request::Start(program),
        Request::Stat { path: path(), follow: false },
        Request::Read { path: path(), offset: 0, length: None },
        Request::Remove { path: path() },
        Request::Processes {},
        Request::Port { port: 1 },
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_frames_passes_what_is_not_allowed(frames in frames()) {
        let (out, _taken) = unbounded_channel();
        let mut agent = Agent::new(out, Arc::new(AtomicUsize::new(0)));
        let requests = asked();
        for (at, request) in requests.iter().enumerate() {
            agent.open(request, To::Client(1, u32::try_from(at).unwrap())).unwrap();
        }
        // What passed on each stream, and those that ended.
        let (mut bytes, mut replies, mut ended) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for frame in &frames {
            let Ok(to) = agent.judge(frame) else { break };
            let place = usize::try_from(frame.stream).unwrap().checked_sub(1);
            let request = place.and_then(|at| requests.get(at));
            prop_assert!(request.is_some() && !ended.contains(&frame.stream), "{frame:?}");
            prop_assert_eq!(to, To::Client(1, frame.stream - 1));
            match frame.kind {
                Kind::Data => {
                    let (lane, data) = Lane::split(&frame.payload).unwrap();
                    let takes = matches!(request, Some(Request::Start(_) | Request::Read { .. } | Request::Port { .. }));
                    prop_assert!(takes && lane != Lane::In);
                    let sum: &mut usize = bytes.entry(frame.stream).or_default();
                    *sum += data.len();
                    prop_assert!(*sum <= usize::try_from(WINDOW).unwrap());
                }
                Kind::Reply => prop_assert!(replies.insert(frame.stream, ()).is_none()),
                Kind::End => ended.push(frame.stream),
                Kind::Event | Kind::Eof | Kind::Credit => {}
                Kind::Open | Kind::Control | Kind::Cancel => prop_assert!(false, "{:?} passed", frame.kind),
            }
        }
    }
}
