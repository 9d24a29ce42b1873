//! A condition as it is evaluated: names resolved, functions known, patterns compiled.

use std::ops::Range;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use regex::Regex;

/// One part of an expression, and which bytes of the text it is.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) range: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Literal(Literal),
    Name(Name),
    /// A variable of `all`, `map`, ...; counted from the outermost.
    Local(usize),
    Field(Box<Node>, Arc<str>),
    Has(Box<Node>, Arc<str>),
    Index(Box<[Node; 2]>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Not(Box<Node>),
    Negative(Box<Node>),
    If(Box<[Node; 3]>),
    Math(Math, Box<[Node; 2]>),
    Order(Order, Box<[Node; 2]>),
    /// `true`: must be equal; `false`: must differ.
    Equal(bool, Box<[Node; 2]>),
    In(Box<[Node; 2]>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Call(Function, Vec<Node>),
    Matches(Box<Node>, Regex),
    Each(Each, Box<Node>, Vec<Node>),
}

#[derive(Clone, Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Arc<str>),
    Time(Timestamp),
    Span(SignedDuration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Args,
    Session,
    Agent,
    Now,
    CountTool,
    CountSession,
    CountTotal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Math {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// `list.all(x, condition)` and the like. The nodes: the condition, or (of `map`) the optional condition and the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Each {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

/// Functions that take values only; the receiver is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    LowerAscii,
    UpperAscii,
    Int,
    Double,
    String,
    Bool,
    Timestamp,
    Duration,
    FullYear,
    Month,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

/// Which types a part can have: a set, since arguments have any until their schema says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u16);

impl Types {
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOL: Self = Self(2);
    pub(super) const INT: Self = Self(4);
    pub(super) const DOUBLE: Self = Self(8);
    pub(super) const TEXT: Self = Self(16);
    pub(super) const LIST: Self = Self(32);
    pub(super) const MAP: Self = Self(64);
    pub(super) const TIME: Self = Self(128);
    pub(super) const SPAN: Self = Self(256);
    pub(super) const NUMBER: Self = Self::INT.or(Self::DOUBLE);
    /// What JSON can be.
    pub(super) const JSON: Self = Self(127);
    pub(super) const ANY: Self = Self(511);
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn meets(self, other: Self) -> bool {
        !self.and(other).is_none()
    }

    /// `text`, `a number`, `text or a list`.
    pub(super) fn describe(self) -> String {
        const NAMES: [(Types, &str); 10] = [
            (Types::NULL, "null"),
            (Types::BOOL, "true or false"),
            (Types::NUMBER, "a number"),
            (Types::INT, "an integer"),
            (Types::DOUBLE, "a floating-point number"),
            (Types::TEXT, "text"),
            (Types::LIST, "a list"),
            (Types::MAP, "a map"),
            (Types::TIME, "a timestamp"),
            (Types::SPAN, "a duration"),
        ];
        let mut left = self;
        let mut words = Vec::new();
        for (types, name) in NAMES {
            if left.and(types) == types {
                words.push(name);
                left = Self(left.0 & !types.0);
            }
        }
        words.join(" or ")
    }
}

impl Function {
    /// Called on a receiver.
    const OF_A_RECEIVER: [(&'static str, Self); 16] = [
        ("size", Self::Size),
        ("contains", Self::Contains),
        ("startsWith", Self::StartsWith),
        ("endsWith", Self::EndsWith),
        ("lowerAscii", Self::LowerAscii),
        ("upperAscii", Self::UpperAscii),
        ("getFullYear", Self::FullYear),
        ("getMonth", Self::Month),
        ("getDate", Self::Date),
        ("getDayOfMonth", Self::DayOfMonth),
        ("getDayOfWeek", Self::DayOfWeek),
        ("getDayOfYear", Self::DayOfYear),
        ("getHours", Self::Hours),
        ("getMinutes", Self::Minutes),
        ("getSeconds", Self::Seconds),
        ("getMilliseconds", Self::Milliseconds),
    ];

    /// Called on none.
    const OF_NONE: [(&'static str, Self); 7] = [
        ("size", Self::Size),
        ("int", Self::Int),
        ("double", Self::Double),
        ("string", Self::String),
        ("bool", Self::Bool),
        ("timestamp", Self::Timestamp),
        ("duration", Self::Duration),
    ];

    /// By name, number of values (the receiver included), and whether it is called on a receiver.
    pub(super) fn find(name: &str, values: usize, on_receiver: bool) -> Option<Self> {
        let table = if on_receiver { Self::OF_A_RECEIVER.as_slice() } else { Self::OF_NONE.as_slice() };
        let (_, found) = table.iter().find(|(known, _)| *known == name)?;
        found.counts().contains(&values).then_some(*found)
    }

    /// All names, for suggestions.
    pub(super) const NAMES: &'static [&'static str] = &[
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "lowerAscii",
        "upperAscii",
        "int",
        "double",
        "string",
        "bool",
        "timestamp",
        "duration",
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
        "matches",
        "has",
        "all",
        "exists",
        "exists_one",
        "filter",
        "map",
    ];

    /// Whether it reads a part of a time.
    pub(super) const fn is_of_time(self) -> bool {
        matches!(
            self,
            Self::FullYear
                | Self::Month
                | Self::Date
                | Self::DayOfMonth
                | Self::DayOfWeek
                | Self::DayOfYear
                | Self::Hours
                | Self::Minutes
                | Self::Seconds
                | Self::Milliseconds
        )
    }

    fn counts(self) -> std::ops::RangeInclusive<usize> {
        if matches!(self, Self::Contains | Self::StartsWith | Self::EndsWith) {
            2..=2
        } else if self.is_of_time() {
            1..=2
        } else {
            1..=1
        }
    }

    /// What its values may be (a second one is always text), and what comes out.
    pub(super) const fn types(self) -> ([Types; 2], Types) {
        let (first, out) = match self {
            Self::Size => (Types::TEXT.or(Types::LIST).or(Types::MAP), Types::INT),
            Self::Contains | Self::StartsWith | Self::EndsWith => (Types::TEXT, Types::BOOL),
            Self::LowerAscii | Self::UpperAscii => (Types::TEXT, Types::TEXT),
            Self::Int => (Types::NUMBER.or(Types::TEXT).or(Types::TIME), Types::INT),
            Self::Double => (Types::NUMBER.or(Types::TEXT), Types::DOUBLE),
            Self::String => {
                (Types::NUMBER.or(Types::TEXT).or(Types::BOOL).or(Types::TIME).or(Types::SPAN), Types::TEXT)
            }
            Self::Bool => (Types::BOOL.or(Types::TEXT), Types::BOOL),
            Self::Timestamp => (Types::TEXT.or(Types::INT).or(Types::TIME), Types::TIME),
            Self::Duration => (Types::TEXT.or(Types::SPAN), Types::SPAN),
            Self::FullYear | Self::Month | Self::Date | Self::DayOfMonth | Self::DayOfWeek | Self::DayOfYear => {
                (Types::TIME, Types::INT)
            }
            Self::Hours | Self::Minutes | Self::Seconds | Self::Milliseconds => {
                (Types::TIME.or(Types::SPAN), Types::INT)
            }
        };
        ([first, Types::TEXT], out)
    }
}
