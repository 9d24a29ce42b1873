//! What was let through, where somebody learns what a program needs: each kind once, as far as there is room.

use std::cell::RefCell;
use std::collections::HashSet;

use egress::denial::To;
use egress::wire::{AllowedTraffic, FromBroker, MAX_SEEN, MAX_TEXT};

use crate::records::Records;

/// What was told so far; nothing is kept where nobody asked.
#[derive(Debug)]
pub(crate) struct Observed {
    asked: bool,
    told: RefCell<HashSet<AllowedTraffic>>,
}

impl Observed {
    pub(crate) fn new(asked: bool) -> Self {
        Self { asked, told: RefCell::default() }
    }

    /// Whether somebody asked.
    pub(crate) const fn is_asked(&self) -> bool {
        self.asked
    }

    /// Something was let through.
    pub(crate) fn see(&self, records: &Records, (to, port): (&To, u16), request: Option<(&str, &str)>) {
        if !self.asked {
            return;
        }
        let (method, path) = request.unzip();
        // One that no rule can name is told as none: the engine takes no other bytes.
        let is_plain = |path: &str| path.len() <= MAX_TEXT && path.bytes().all(|byte| byte.is_ascii_graphic());
        let path = path.map(|path| if is_plain(path) { path } else { "" });
        let seen = AllowedTraffic {
            host: to.to_string(),
            port,
            method: method.map(str::to_owned),
            path: path.map(str::to_owned),
        };
        let mut told = self.told.borrow_mut();
        if told.len() < MAX_SEEN && told.insert(seen.clone()) {
            records.say(FromBroker::Seen(seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_once_and_only_to_who_asked() {
        let (to, records) = (To::Name("a.example".to_owned()), Records::default());
        let silent = Observed::new(false);
        silent.see(&records, (&to, 80), None);
        assert_eq!(records.fresh(), []);
        let observed = Observed::new(true);
        for path in ["/x", "/x", "/y"] {
            observed.see(&records, (&to, 80), Some(("GET", path)));
        }
        for path in [&*"/".repeat(MAX_TEXT + 1), "/\u{e9}", "/a b"] {
            observed.see(&records, (&to, 80), Some(("GET", path)));
        }
        let paths: Vec<_> = records
            .fresh()
            .into_iter()
            .map(|frame| if let FromBroker::Seen(seen) = frame { seen.path.unwrap() } else { panic!("{frame:?}") })
            .collect();
        assert_eq!(paths, ["/x", "/y", ""]);
        for number in 0..2 * MAX_SEEN {
            observed.see(&records, (&to, 80), Some(("GET", &format!("/{number}"))));
        }
        assert_eq!(records.fresh().len(), MAX_SEEN - 3);
    }
}
