//! A parked call is put to the client's own user, where the client can do that.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use serde_json::{Value as Json, json};

use super::client_requests::Askable;
use super::protocol::Protocol;
use super::session::Session;
use crate::approvals::{Approvals, Asker, Listening, ParkedCall, sanitize_json};

/// Asks a client about a call of its session.
#[derive(Debug)]
struct Client {
    askable: Askable,
    tool: String,
    session: Weak<Session>,
}

impl Session {
    /// The client of a call is asked about it from now on, if it can ask its user; until the answer is dropped.
    pub(super) fn approvals_by(self: &Arc<Self>, tool: &str, askable: &Askable) -> Option<Listening> {
        let approvals = self.gateway.broker.approvals();
        if !askable.client().can("elicitation") {
            return None;
        }
        let asker = Client { askable: askable.clone(), tool: tool.to_owned(), session: Arc::downgrade(self) };
        let asker = Arc::new(asker);
        Some(approvals.listen(Some(&self.caller.session), asker))
    }
}

impl Asker for Client {
    fn is_the_callers(&self) -> bool {
        true
    }

    fn asked<'a>(
        &'a self,
        call: &'a ParkedCall,
        approvals: &'a Approvals,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            // Calls that run side by side are told of each other's questions: each is asked once.
            let mine =
                call.tool == self.tool && self.session.upgrade().is_some_and(|session| session.ask_once(&call.id));
            if !mine {
                return;
            }
            let Ok(answer) =
                self.askable.ask("elicitation/create", question(call, self.askable.client().protocol)).await
            else {
                // Whoever cannot be asked leaves the call to others: the command line, a webhook, the time.
                return;
            };
            let by = format!("the user of {}", self.askable.client().name);
            let content = answer.get("content").and_then(|content| content.get("decision")).and_then(Json::as_str);
            let done = match (answer.get("action").and_then(Json::as_str), content) {
                (Some("accept"), Some("approve")) => approvals.approve(&call.id, &by, None).map(drop),
                (Some("accept" | "decline"), _) => approvals.deny(&call.id, &by, "declined in the client").map(drop),
                // The question was put away without an answer: somebody else may still answer.
                _ => return,
            };
            if done.is_err() {
                // Somebody else was faster, or the time was up.
            }
        })
    }
}

fn question(call: &ParkedCall, protocol: Protocol) -> Json {
    let args: Json = serde_json::from_str(&call.args).unwrap_or_default();
    let look = sanitize_json(&args);
    let message = format!(
        "[fumehood] {} wants to call `{}` with these arguments:\n{}\nwhy you are asked: {}\nhash: {}\nApprove this one call?",
        crate::approvals::sanitize_text(&call.agent),
        crate::approvals::sanitize_text(&call.tool),
        look.text,
        crate::approvals::sanitize_text(&call.reason),
        call.hash,
    );
    let mut params = json!({
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { "decision": {
                "type": "string", "title": "Decision", "enum": ["deny", "approve"], "default": "deny",
            } },
            "required": ["decision"],
        },
    });
    if protocol == Protocol::Stateless
        && let Some(map) = params.as_object_mut()
    {
        map.insert("mode".to_owned(), "form".into());
    }
    params
}
