//! A person is asked about a destination that no rule names: the engine passes the question on, and knows nobody who answers.

/// What a program wants to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The run.
    pub run: String,
    /// Name and digest of its policy.
    pub policy: String,
    /// The name that was looked up; checked to be one.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Takes the answer: whether this connection may be made. Dropped, it is no.
pub type Reply = Box<dyn FnOnce(bool) + Send>;

/// Somebody who gets questions answered.
pub trait Asker: Send + Sync + std::fmt::Debug {
    /// Passes a question on, and does not wait. What is not answered within 30 s is denied by the broker itself.
    fn ask(&self, question: Question, reply: Reply);
}
