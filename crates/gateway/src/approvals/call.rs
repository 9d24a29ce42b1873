//! A call that waits for a person, and what became of it.

use gate::verdict::Reason;
use policy::tools::{Approval, ApprovalBy};
use serde_json::{Value as Json, json};

use super::ApprovalError;

/// What stands where a tool does when a program in a sandbox asks for a destination that no rule names; its arguments are `host`
/// and `port`. No tool's name begins so.
pub const DESTINATION: &str = "net:connect";

/// The same for a request of which a rule asks: `host`, `port`, `method` and `path`.
pub const REQUEST: &str = "net:request";

/// What a person is asked about.
#[derive(Clone, Debug)]
pub struct Ask {
    /// `tool` or `server.tool`.
    pub tool: String,
    /// The server, where the tool is one's.
    pub server: Option<String>,
    /// The arguments as the tool would get them.
    pub args: Json,
    /// [`gate::json::hash`] of tool and arguments.
    pub hash: String,
    /// The rule that asks.
    pub rule: String,
    /// Why it asks, for the person.
    pub reason: String,
    /// Who calls.
    pub agent: String,
    /// In which conversation.
    pub session: String,
    /// `First`: an approval also covers the same call later in this session. `Always`: nothing remembered counts.
    pub approval: Approval,
    /// Who may answer: where a person must, the client that makes the call is not asked.
    pub by: ApprovalBy,
}

/// What became of a parked call. Every state but the first is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has answered.
    Waiting,
    /// Somebody agreed; good for one call.
    Approved,
    /// Somebody refused.
    Denied,
    /// Nobody answered in time.
    TimedOut,
    /// The caller went away.
    Cancelled,
}

impl State {
    /// `waiting`, `approved`, `denied`, `timed-out`, `cancelled`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Waiting, Self::Approved, Self::Denied, Self::TimedOut, Self::Cancelled]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// A parked call, as people and programs see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParkedCall {
    /// `a-` and 26 characters of 130 random bits.
    pub id: String,
    /// Where it stands.
    pub state: State,
    /// `tool` or `server.tool`.
    pub tool: String,
    /// The server, where the tool is one's.
    pub server: Option<String>,
    /// The arguments as the tool would get them: canonical JSON.
    pub args: String,
    /// Hash of tool and arguments.
    pub hash: String,
    /// The rule that asks.
    pub rule: String,
    /// Why it asks.
    pub reason: String,
    /// Who calls.
    pub agent: String,
    /// In which conversation.
    pub session: String,
    /// What remembered approvals are bound to.
    pub bound_to: String,
    /// When it was parked, in milliseconds since the epoch.
    pub created: u64,
    /// When it is denied for want of an answer.
    pub expires: u64,
    /// When it was answered.
    pub answered: Option<u64>,
    /// By whom.
    pub by: Option<String>,
    /// What was said with a denial.
    pub why: Option<String>,
    /// When an approval was used.
    pub used: Option<u64>,
}

impl ParkedCall {
    /// Whether it is about a destination of the network ([`DESTINATION`], [`REQUEST`]).
    #[must_use]
    pub fn is_destination(&self) -> bool {
        is_destination(&self.tool, self.server.as_deref())
    }

    /// The form of `approvals show --json`, HTTP and webhook.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let args: Json = serde_json::from_str(&self.args).unwrap_or_default();
        let mut json = json!({
            "id": self.id, "state": self.state.as_str(), "tool": self.tool, "server": self.server, "args": args,
            "hash": self.hash, "rule": self.rule, "reason": self.reason, "agent": self.agent, "session": self.session,
            "created": time(self.created), "expires": time(self.expires), "answered": self.answered.map(time),
            "by": self.by, "why": self.why, "used": self.used.map(time),
        });
        if self.is_destination()
            && let (Some(json), Some(args)) = (json.as_object_mut(), args.as_object())
        {
            let keys = ["host", "port", "method", "path"];
            json.extend(keys.into_iter().filter_map(|key| Some((key.to_owned(), args.get(key)?.clone()))));
        }
        json
    }
}

/// Whether a tool is a destination of the network: no server's own tool, whatever it is called.
pub(super) fn is_destination(tool: &str, server: Option<&str>) -> bool {
    server.is_none() && [DESTINATION, REQUEST].contains(&tool)
}

/// RFC 3339 in UTC.
pub(super) fn time(millis: u64) -> String {
    let time = i64::try_from(millis).map(jiff::Timestamp::from_millisecond);
    time.ok().and_then(Result::ok).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// What a person, a time-out or nobody said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// The call may be made, once.
    Approved {
        /// The parked call; empty where an approval was remembered.
        id: String,
        /// Who said so.
        by: String,
        /// The remembered approval that covers it, if nobody was asked.
        remembered: Option<String>,
    },
    /// The call may not be made.
    Denied {
        /// The parked call.
        id: String,
        /// Who said so.
        by: String,
        /// For the model.
        why: String,
    },
    /// Nobody answered in time.
    TimedOut {
        /// The parked call.
        id: String,
    },
    /// The answer is of no use: the call was taken back, its approval was used by another, or the store failed.
    Lost {
        /// The parked call.
        id: String,
        /// Why.
        why: ApprovalError,
    },
}

impl ApprovalAnswer {
    /// Whether the call may be made.
    #[must_use]
    pub const fn is_approved(&self) -> bool {
        matches!(self, Self::Approved { .. })
    }

    /// The reason of the denial, if it is one.
    #[must_use]
    pub fn denial(&self, rule: &str) -> Option<Reason> {
        let (id, what, why, instead) = match self {
            Self::Approved { .. } => return None,
            Self::Denied { by, why, .. } => (
                "tools.approval/denied",
                format!("{} denied this call", policy::diagnostic::quote(by)),
                if why.is_empty() { "no reason was given".to_owned() } else { why.clone() },
                "do something else; asking again for the same is denied".to_owned(),
            ),
            Self::TimedOut { .. } => (
                "tools.approval/timed-out",
                "nobody answered in time".to_owned(),
                "a call that nobody agrees to is not made".to_owned(),
                "tell your user that `fumehood approvals ls` shows what waits, and try again later".to_owned(),
            ),
            Self::Lost { why, .. } => return Some(why.denial(rule)),
        };
        Some(Reason {
            id,
            rule: rule.to_owned(),
            at: None,
            decision: policy::tools::Decision::Deny,
            what,
            why,
            instead,
        })
    }
}
