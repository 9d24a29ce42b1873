//! What one reader of a program is still to be given: bounded, in order, and as fast as he gives credit.

use std::collections::VecDeque;

use agent::frame::{Kind, Lane, MAX_DATA};

use crate::wire;
use crate::words::Lost;

/// Most bytes that wait for a reader before he is skipped.
pub(super) const MAX_WAITING: usize = 1 << 20;

#[derive(Debug)]
enum Item {
    Data(Lane, Vec<u8>),
    Lost(u64),
}

/// The way to one reader.
#[derive(Debug)]
pub(super) struct Pump {
    stream: u32,
    /// Bytes that he takes.
    credit: u64,
    items: VecDeque<Item>,
    /// Bytes in `items`.
    waiting: usize,
    /// What to say last.
    end: Option<Vec<u8>>,
}

impl Pump {
    pub(super) fn new(stream: u32) -> Self {
        let credit = u64::from(agent::frame::WINDOW);
        Self { stream, credit, items: VecDeque::new(), waiting: 0, end: None }
    }

    /// Bytes that wait for him.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// One more piece; one who is too far behind loses it, and is told how much it was.
    pub(super) fn push(&mut self, lane: Lane, bytes: &[u8]) {
        if self.waiting.saturating_add(bytes.len()) <= MAX_WAITING {
            self.waiting = self.waiting.saturating_add(bytes.len());
            self.items.push_back(Item::Data(lane, bytes.to_vec()));
        } else {
            let more = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            match self.items.back_mut() {
                Some(Item::Lost(lost)) => *lost = lost.saturating_add(more),
                Some(Item::Data(..)) | None => self.items.push_back(Item::Lost(more)),
            }
        }
    }

    /// He takes so many bytes more.
    pub(super) fn credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(u64::from(bytes));
    }

    /// Nothing more comes but this `End`.
    pub(super) fn close(&mut self, end: Vec<u8>) {
        self.end.get_or_insert(end);
    }

    /// Whatever he takes or not: the sandbox is over, and this connection soon.
    pub(super) fn flush(&mut self) {
        self.credit = u64::MAX;
    }

    /// The frames that can go now, and whether his `End` was among them.
    pub(super) fn flow(&mut self) -> (Vec<Vec<u8>>, bool) {
        let mut frames = Vec::new();
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Lost(lost) => {
                    let words = serde_json::to_vec(&Lost { lost }).unwrap_or_default();
                    frames.extend(wire::encode(Kind::Event, self.stream, &words));
                }
                Item::Data(lane, mut bytes) => {
                    let most = usize::try_from(self.credit).unwrap_or(usize::MAX).min(MAX_DATA - 1);
                    if most == 0 {
                        self.items.push_front(Item::Data(lane, bytes));
                        return (frames, false);
                    }
                    let rest = bytes.split_off(bytes.len().min(most));
                    self.waiting = self.waiting.saturating_sub(bytes.len());
                    self.credit = self.credit.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                    frames.extend(wire::data(self.stream, lane, &bytes));
                    if !rest.is_empty() {
                        self.items.push_front(Item::Data(lane, rest));
                    }
                }
            }
        }
        let end = self.end.take();
        let ended = end.is_some();
        frames.extend(end);
        (frames, ended)
    }
}

#[cfg(test)]
mod tests {
    use agent::frame::first;

    use super::*;

    fn kinds(frames: &[Vec<u8>]) -> Vec<(Kind, usize)> {
        frames.iter().map(|bytes| first(bytes).unwrap().unwrap().0).map(|f| (f.kind, f.payload.len())).collect()
    }

    #[test]
    fn who_reads_is_given_everything_in_order_and_who_does_not_is_told_what_he_lost() {
        let mut pump = Pump::new(3);
        for _ in 0..40 {
            pump.push(Lane::Out, &[7; 50_000]);
        }
        pump.close(wire::encode(Kind::End, 3, b"{\"ok\":null}").unwrap());
        let (frames, ended) = pump.flow();
        let sent: usize = kinds(&frames).iter().map(|(_, length)| length - 1).sum();
        assert_eq!((sent, ended), (256 * 1024, false), "no more than the window");
        pump.credit(u32::MAX);
        let (frames, ended) = pump.flow();
        let kinds = kinds(&frames);
        assert!(ended);
        assert_eq!(kinds.iter().filter(|(kind, _)| *kind == Kind::Event).count(), 1);
        assert_eq!(kinds[kinds.len() - 2].0, Kind::Event, "the loss is told where it happened");
        let more: usize = kinds.iter().filter(|(kind, _)| *kind == Kind::Data).map(|(_, length)| length - 1).sum();
        assert_eq!(sent + more, 20 * 50_000);
        assert_eq!(pump.waiting(), 0);
    }
}
