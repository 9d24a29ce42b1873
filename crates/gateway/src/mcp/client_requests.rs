//! What servers ask of clients, and how a client is asked: at once where the conversation goes both ways, or by letting the
//! call wait while the client comes back with its answers (2026-07-28).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::allow::{Allow, Asking, is_plain_uri};
use super::peer::Peer;
use super::protocol::{self, Client};
use super::pushed::Pushed;
use super::wire::{self, Id, Outcome, RpcError};

/// Most that one call may ask of its client.
const MAX_ASKED: usize = 16;
/// Most bytes of one question.
const MAX_BYTES: usize = 256 << 10;
/// How long a call waits for a client to come back.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(600);
/// Most calls of one session that wait so.
const MAX_WAITING: usize = 64;

/// A question to a client, on its way.
#[derive(Debug)]
pub(super) struct ClientRequest {
    method: String,
    params: Json,
    reply: oneshot::Sender<Outcome>,
}

#[derive(Clone, Debug)]
enum Channel {
    /// By a request, on the stream of a request of the client's if there is one.
    Direct(Peer, Option<Id>),
    /// By the answer to its own request.
    Waiting(mpsc::Sender<ClientRequest>),
}

/// Which server asks, and what it may say.
#[derive(Clone, Copy, Debug)]
pub(super) struct From<'s> {
    pub(super) server: &'s str,
    pub(super) pushed: &'s Pushed,
}

/// A client that can be asked.
#[derive(Clone, Debug)]
pub(super) struct Askable {
    channel: Channel,
    client: Client,
}

impl Askable {
    /// A client with a conversation that goes both ways.
    #[must_use]
    pub(super) fn direct(peer: Peer, route: Option<Id>, client: Client) -> Self {
        Self { channel: Channel::Direct(peer, route), client }
    }

    /// A client that comes back; the needs arrive at the receiver.
    #[must_use]
    pub(super) fn waiting(client: Client) -> (Self, mpsc::Receiver<ClientRequest>) {
        let (sender, receiver) = mpsc::channel(MAX_ASKED);
        (Self { channel: Channel::Waiting(sender), client }, receiver)
    }

    /// The client.
    #[must_use]
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The request of the client's on whose stream it is asked.
    #[must_use]
    pub(super) fn route(&self) -> Option<Id> {
        match &self.channel {
            Channel::Direct(_, route) => route.clone(),
            Channel::Waiting(_) => None,
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The client's error, or that it is gone.
    pub(super) async fn ask(&self, method: &str, params: Json) -> Outcome {
        match &self.channel {
            Channel::Direct(peer, route) => {
                peer.request(method, params, route.as_ref()).answer().await.map_err(super::peer::Failure::into_rpc)
            }
            Channel::Waiting(requests) => {
                let (reply, answer) = oneshot::channel();
                let gone = || RpcError::new(wire::UNAVAILABLE, "the client did not come back");
                requests
                    .send(ClientRequest { method: method.to_owned(), params, reply })
                    .await
                    .map_err(|_gone| gone())?;
                answer.await.unwrap_or_else(|_| Err(gone()))
            }
        }
    }
}

/// Passes a question of a server on, if that is allowed.
///
/// # Errors
/// Why it is not, or the client's error.
pub(super) async fn pass(allow: &Allow, from: From<'_>, method: &str, params: Json, to: &Askable) -> Outcome {
    let asking = Asking::of(method).ok_or_else(|| RpcError::no_method(method))?;
    if !allow.asks(from.server, asking) {
        return Err(RpcError::new(
            wire::METHOD_NOT_FOUND,
            format!("`{}` is not allowed for this server: mcp.{} does not name it", method, asking.as_str()),
        ));
    }
    if !to.client.can(asking.as_str()) {
        return Err(RpcError::no_method(method));
    }
    let params = fit(from, asking, &params)?;
    to.ask(method, params).await
}

/// A question as a person or a model may see it: who asks stands in it, nothing hides in it.
fn fit(from: From<'_>, asking: Asking, params: &Json) -> Outcome {
    let bad = |why: &str| Err(RpcError::new(wire::INVALID_PARAMS, why));
    if serde_json::to_vec(params).map_or(usize::MAX, |bytes| bytes.len()) > MAX_BYTES {
        return bad("the question is larger than 256 KiB");
    }
    let mut params = from.pushed.question(params)?;
    let Some(map) = params.as_object_mut() else { return Ok(json!({})) };
    let meta = protocol::strip_meta(map.get("_meta"));
    map.remove("_meta");
    map.remove("task");
    if !meta.is_empty() {
        map.insert("_meta".to_owned(), Json::Object(meta));
    }
    match asking {
        Asking::Elicitation => {
            let message = map.get("message").and_then(Json::as_str).unwrap_or_default();
            let message = format!("[server `{}` asks] {message}", from.server);
            map.insert("message".to_owned(), message.into());
            let url = map.get("url").and_then(Json::as_str);
            if url.is_some_and(|url| !url.starts_with("https://") || !is_plain_uri(url)) {
                return bad("an address that a person is sent to begins with https:// and hides nothing");
            }
        }
        Asking::Sampling | Asking::Roots => {}
    }
    Ok(params)
}

/// Answers the questions in a result that says `input_required`, and makes the parameters of the next round.
///
/// # Errors
/// The first question that is not allowed, or not answered.
pub(super) async fn next_round(
    allow: &Allow,
    from: From<'_>,
    result: &Json,
    to: &Askable,
) -> Result<Map<String, Json>, RpcError> {
    let mut answers = Map::new();
    let asked = result.get("inputRequests").and_then(Json::as_object);
    for (count, (key, request)) in asked.into_iter().flatten().enumerate() {
        if count >= MAX_ASKED {
            return Err(RpcError::new(
                wire::UNAVAILABLE,
                format!("the server asks more than {MAX_ASKED} questions at once"),
            ));
        }
        let method = request.get("method").and_then(Json::as_str).unwrap_or_default();
        let params = request.get("params").cloned().unwrap_or_default();
        answers.insert(key.clone(), pass(allow, from, method, params, to).await?);
    }
    let mut next = Map::new();
    if !answers.is_empty() {
        next.insert("inputResponses".to_owned(), Json::Object(answers));
    }
    // Opaque state of the server goes back to the server alone; the client never holds it.
    if let Some(state) = result.get("requestState") {
        next.insert("requestState".to_owned(), state.clone());
    }
    Ok(next)
}

/// A call that runs while its client may be away.
#[derive(Debug)]
pub(super) struct Running {
    task: JoinHandle<Outcome>,
    requests: mpsc::Receiver<ClientRequest>,
    cancel: CancellationToken,
}

impl Running {
    /// A call, where its needs arrive, and what makes it end by itself.
    #[must_use]
    pub(super) fn new(
        task: JoinHandle<Outcome>,
        requests: mpsc::Receiver<ClientRequest>,
        cancel: CancellationToken,
    ) -> Self {
        Self { task, requests, cancel }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

#[derive(Debug)]
struct Away {
    running: Running,
    binding: String,
    replies: BTreeMap<String, oneshot::Sender<Outcome>>,
    until: Instant,
}

/// Calls whose clients are away. Each waits under a handle that nobody can guess, bound to what was called with what.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    away: Mutex<HashMap<String, Away>>,
}

impl Waiting {
    /// Goes on with a call until it is done or needs its client again; then it waits, and this is what the client gets.
    ///
    /// # Errors
    /// Of the call itself.
    pub(super) async fn go_on(&self, mut running: Running, binding: String, unwanted: &CancellationToken) -> Outcome {
        let first = tokio::select! {
            biased;
            Some(need) = running.requests.recv() => need,
            done = &mut running.task => return ended(done),
            () = unwanted.cancelled() => {
                // The call sees it, ends, and is written down as what it is.
                running.cancel.cancel();
                return ended((&mut running.task).await);
            }
        };
        let mut asked = vec![first];
        while let Ok(next) = running.requests.try_recv() {
            asked.push(next);
        }
        let handle = handle()?;
        let (mut requests, mut replies) = (Map::new(), BTreeMap::new());
        for (number, ClientRequest { method, params, reply }) in asked.into_iter().enumerate() {
            let key = format!("q{number}");
            requests.insert(key.clone(), json!({ "method": method, "params": params }));
            replies.insert(key, reply);
        }
        {
            let now = Instant::now();
            let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
            away.retain(|_, waiting| waiting.until > now);
            if away.len() >= MAX_WAITING {
                return Err(RpcError::new(
                    wire::UNAVAILABLE,
                    format!("more than {MAX_WAITING} calls wait for this client"),
                ));
            }
            let until = now.checked_add(CLIENT_TIMEOUT).unwrap_or(now);
            away.insert(handle.clone(), Away { running, binding, replies, until });
        }
        Ok(json!({ "resultType": "input_required", "inputRequests": requests, "requestState": handle }))
    }

    /// Takes a call up again with what its client brings.
    ///
    /// # Errors
    /// A state that is unknown, used, too old, or of another call.
    pub(super) fn resume(&self, state: &str, binding: &str, answers: Option<&Json>) -> Result<Running, RpcError> {
        let wrong = || {
            RpcError::new(
                wire::INVALID_PARAMS,
                "this `requestState` is not of a call that waits here with these arguments",
            )
        };
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        // A state that is tried with another call stays with its own.
        if !away.get(state).is_some_and(|waiting| waiting.binding == binding && waiting.until > Instant::now()) {
            return Err(wrong());
        }
        let Away { running, replies, .. } = away.remove(state).ok_or_else(wrong)?;
        drop(away);
        for (key, reply) in replies {
            let answer = answers.and_then(|answers| answers.get(&key)).cloned();
            let answer =
                answer.ok_or_else(|| RpcError::new(wire::INVALID_PARAMS, "the client came back without an answer"));
            if reply.send(answer).is_err() {
                // Whoever asked has gone meanwhile.
            }
        }
        Ok(running)
    }
}

fn ended(done: Result<Outcome, tokio::task::JoinError>) -> Outcome {
    done.unwrap_or_else(|_| Err(RpcError::new(wire::INTERNAL, "the call broke off")))
}

/// 128 random bits.
///
/// # Errors
/// If the kernel gives none.
pub(super) fn handle() -> Result<String, RpcError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| RpcError::new(wire::INTERNAL, format!("no random bytes: {error}")))?;
    Ok(policy::json::hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client {
            protocol: protocol::Protocol::Stateless,
            version: protocol::STATELESS.to_owned(),
            name: "t".to_owned(),
            capabilities: json!({"elicitation": {}}),
        }
    }

    async fn parked(waiting: &Waiting) -> (String, String) {
        let (askable, requests) = Askable::waiting(client());
        let task = tokio::spawn(async move {
            let answer = askable.ask("elicitation/create", json!({"message": "?"})).await?;
            Ok(json!({ "got": answer }))
        });
        let result = waiting
            .go_on(
                Running::new(task, requests, CancellationToken::new()),
                "call 1".to_owned(),
                &CancellationToken::new(),
            )
            .await
            .unwrap();
        assert_eq!(result["resultType"], "input_required");
        let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        (result["requestState"].as_str().unwrap().to_owned(), key)
    }

    #[tokio::test]
    async fn a_call_goes_on_when_its_client_comes_back() {
        let waiting = Waiting::default();
        let (state, key) = parked(&waiting).await;
        let running = waiting.resume(&state, "call 1", Some(&json!({ key: {"action": "accept"} }))).unwrap();
        let result = waiting.go_on(running, "call 1".to_owned(), &CancellationToken::new()).await.unwrap();
        assert_eq!(result, json!({"got": {"action": "accept"}}));
        assert!(waiting.resume(&state, "call 1", None).is_err(), "a state is good for once");
    }

    #[tokio::test]
    async fn a_state_is_bound_to_its_call_and_a_wrong_try_does_not_use_it_up() {
        let waiting = Waiting::default();
        let (state, _) = parked(&waiting).await;
        assert!(waiting.resume(&state, "call 2", None).is_err());
        assert!(waiting.resume("0123456789abcdef", "call 1", None).is_err());
        let running = waiting.resume(&state, "call 1", None).unwrap();
        let error = waiting.go_on(running, "call 1".to_owned(), &CancellationToken::new()).await.unwrap_err();
        assert!(error.message.contains("without an answer"));
    }

    #[tokio::test]
    async fn waiting_calls_are_bounded() {
        let waiting = Waiting::default();
        for _ in 0..MAX_WAITING {
            parked(&waiting).await;
        }
        let (askable, requests) = Askable::waiting(client());
        let task = tokio::spawn(async move { askable.ask("x", Json::Null).await });
        let error = waiting
            .go_on(
                Running::new(task, requests, CancellationToken::new()),
                "one more".to_owned(),
                &CancellationToken::new(),
            )
            .await
            .unwrap_err();
        assert_eq!(error.code, wire::UNAVAILABLE);
    }

    #[test]
    fn a_question_names_who_asks_and_leads_nowhere_else() {
        let rule =
            policy::tools::ResultRule { max: policy::units::Bytes(1 << 20), redact: Vec::new(), types: Vec::new() };
        let bounds = gate::result::Bounds::new(&rule).unwrap();
        let pushed = Pushed::new(Some(std::sync::Arc::new(bounds)));
        let git = From { server: "git", pushed: &pushed };
        let asked =
            fit(git, Asking::Elicitation, &json!({"message": "pass\u{202e}word?", "_meta": {"progressToken": 1}}))
                .unwrap();
        assert_eq!(asked, json!({"message": "[server `git` asks] pass\\u{202e}word?"}));
        for url in ["http://x/", "javascript:alert(1)", "https://a/\n", "file:///x", "https://x/$(id) "] {
            assert!(
                fit(git, Asking::Elicitation, &json!({"message": "m", "mode": "url", "url": url})).is_err(),
                "{url}"
            );
        }
        assert!(fit(git, Asking::Sampling, &json!({"messages": "x".repeat(MAX_BYTES)})).is_err());
    }
}
