//! What a filter says about a call, before it is a program.

use std::borrow::Cow;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It runs.
    Allow,
    /// It fails with this errno.
    Errno(u16),
    /// The whole process dies by SIGSYS.
    Kill,
}

/// How much of an argument counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// The low 32 bits, where the kernel takes an `int`: comparing more would let the high half hide a value.
    Int,
    /// All 64.
    Long,
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// `value & mask` is one of these.
    MaskedIn {
        /// Which bits count.
        mask: u64,
        /// What they may be.
        values: Cow<'static, [u64]>,
    },
    /// It is anything but this.
    Ne(u64),
    /// It is at most this.
    Le(u64),
}

/// A test of one argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// 0 to 5.
    pub argument: u8,
    /// How much of it.
    pub width: Width,
    /// The test.
    pub test: Test,
}

/// Conditions that must all hold.
pub type All = Cow<'static, [Condition]>;

/// What a filter says about one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The same whatever the arguments.
    Always(Action),
    /// `then` when any of these holds, else `otherwise`.
    When {
        /// Alternatives.
        any: Cow<'static, [All]>,
        /// For a call that fits one.
        then: Action,
        /// For all others.
        otherwise: Action,
    },
}

/// Verdicts by number. A table, since a start fills it and the numbers of calls are dense: its memory grows with the
/// highest number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls(Vec<Option<Verdict>>);

impl Calls {
    /// An empty one, with room for all calls that have a name today.
    #[must_use]
    pub fn new() -> Self {
        Self(Vec::with_capacity(512))
    }

    /// What is said about a call.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Verdict> {
        self.0.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// Says it, in place of what was said before.
    pub fn insert(&mut self, number: u32, verdict: Verdict) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if self.0.len() <= at {
            self.0.resize(at.saturating_add(1), None);
        }
        if let Some(place) = self.0.get_mut(at) {
            *place = Some(verdict);
        }
    }

    /// (number, verdict) of each call that something is said about, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Verdict)> {
        (0..).zip(&self.0).filter_map(|(number, verdict)| Some((number, verdict.as_ref()?)))
    }
}

/// A whole filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Per number, below the x32 bit.
    pub calls: Calls,
    /// For numbers not named: ENOSYS, so that programs that try a newer call take their older way.
    pub unknown: Action,
}

impl Condition {
    /// Whether an argument passes.
    #[must_use]
    pub fn holds(&self, arguments: [u64; 6]) -> bool {
        let value = arguments.get(usize::from(self.argument)).copied().unwrap_or(0);
        let value = match self.width {
            Width::Int => value & 0xffff_ffff,
            Width::Long => value,
        };
        match &self.test {
            Test::MaskedIn { mask, values } => values.contains(&(value & mask)),
            Test::Ne(other) => value != *other,
            Test::Le(most) => value <= *most,
        }
    }
}

impl Verdict {
    /// What it says for these arguments: the meaning that a compiled program must have.
    #[must_use]
    pub fn judge(&self, arguments: [u64; 6]) -> Action {
        match self {
            Self::Always(action) => *action,
            Self::When { any, then, otherwise } => {
                let fits = any.iter().any(|all| all.iter().all(|condition| condition.holds(arguments)));
                if fits { *then } else { *otherwise }
            }
        }
    }
}
