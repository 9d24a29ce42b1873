//! A person is asked about a destination that no rule names: the engine passes the question on, and knows nobody who answers.

/// What a program wants to reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The run.
    pub run: String,
    /// Name and digest of its policy, and the digest of its rules where others hold by now.
    pub policy: String,
    /// The name that was looked up; checked to be one.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The request of which a rule asks; none: the connection.
    pub request: Option<RequestHead>,
}

/// What rules judge of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestHead {
    /// The method.
    pub method: String,
    /// The path, without its query.
    pub path: String,
    /// It opens a WebSocket, behind which nothing is judged.
    pub websocket: bool,
}

/// Something that was let through: a connection, or a request that was read on it. The broker says it, and it is believed in
/// nothing: its parts are of their form, and no more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowedAccess {
    /// The name, or the address where none was looked up.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Method and path of a request; the path is empty where it is too long to be told.
    pub request: Option<(String, String)>,
}

/// Takes the answer: whether this connection may be made. Dropped, it is no.
pub type Reply = Box<dyn FnOnce(bool) + Send>;

/// Somebody who gets questions answered.
pub trait Asker: Send + Sync + std::fmt::Debug {
    /// Passes a question on, and does not wait. What is not answered within 30 s is denied by the broker itself.
    fn ask(&self, question: Question, reply: Reply);

    /// The network of this run is over: what was asked for it needs no answer any more. Said where something was.
    fn ended(&self, _run: &str) {}

    /// Whether it learns what a program needs, and is to hear what is let through.
    fn observes(&self) -> bool {
        false
    }

    /// Something was let through; said only where it observes.
    fn passed(&self, _passed: AllowedAccess) {}
}
