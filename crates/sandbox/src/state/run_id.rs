//! The name of a run: sortable by time, unguessable enough not to collide, safe as a file name.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};

use super::StateError;

/// `r-YYYYMMDD-HHMMSS-xxxxxx`, in UTC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(String);

/// How long a run id is, in bytes.
const LENGTH: usize = "r-20261122-013045-7f3a9c".len();

impl RunId {
    /// A new id for this moment.
    ///
    /// # Errors
    /// [`StateError::NoRandom`] if the kernel gives no random bytes.
    pub fn new(now: Timestamp) -> Result<Self, StateError> {
        let mut random = [0; 3];
        if !sys::random::fill(&mut random) {
            return Err(StateError::NoRandom);
        }
        let [a, b, c] = random;
        let t = now.to_zoned(TimeZone::UTC);
        Ok(Self(format!(
            "r-{:04}{:02}{:02}-{:02}{:02}{:02}-{a:02x}{b:02x}{c:02x}",
            t.year(),
            t.month(),
            t.day(),
            t.hour(),
            t.minute(),
            t.second()
        )))
    }

    /// When it was made, to the second; `None` if its digits are no moment.
    #[must_use]
    pub fn time(&self) -> Option<Timestamp> {
        let moment = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", self.0.get(2..17)?).ok()?;
        Some(moment.to_zoned(TimeZone::UTC).ok()?.timestamp())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = StateError;

    fn from_str(text: &str) -> Result<Self, StateError> {
        let shape = |(i, b): (usize, u8)| match i {
            0 => b == b'r',
            1 | 10 | 17 => b == b'-',
            18.. => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
            2..=9 | 11..=16 => b.is_ascii_digit(),
        };
        if text.len() == LENGTH && text.bytes().enumerate().all(shape) {
            Ok(Self(text.to_owned()))
        } else {
            Err(StateError::RunId { text: text.chars().take(64).collect() })
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_read_back() {
        let at = |s: &str| s.parse::<Timestamp>().map(RunId::new).unwrap().unwrap();
        let early = at("2026-11-22T01:30:45Z");
        assert!(early.as_str().starts_with("r-20261122-013045-"), "{early}");
        assert!(early < at("2026-11-22T01:30:46Z") && early < at("2027-01-01T00:00:00Z"));
        assert_eq!(early.as_str().parse::<RunId>().unwrap(), early);
        assert_eq!(early.time(), Some("2026-11-22T01:30:45Z".parse().unwrap()));
        assert_eq!("r-20269922-013045-7f3a9c".parse::<RunId>().unwrap().time(), None);
    }

    #[test]
    fn what_could_be_a_path_is_no_id() {
        for text in [
            "",
            "..",
            "r-20261122-013045-7f3a9/",
            "r-20261122-013045-7f3a9C",
            "r-20261122-013045-7f3a9c\n",
            "r-2026112２-013045-7f3a9",
            "../../etc/passwd/aaaaaaaa",
        ] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }
}
