//! What a supervisor does from outside and writes down: changes shown, changes taken, snapshots, rules of the network replaced.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::words::{Code, Failure, Reason};
use policy::Policy;
use policy::value::{Net, secrets_document};
use rustix::io::Errno;
use sandbox::audit::{Kind, Log};
use sandbox::changes::{Applied, Guarded, Request};
use sandbox::fault::{Fault, show_path};
use sandbox::snapshot::{SnapshotRequest, begin};
use sandbox::state::{PathText, Places, State};
use sandbox::{Error, Handle};
use serde::Serialize;
use serde_json::{Value, json};

use crate::create::Layer;
use crate::restore::RestoreSettings;
use crate::words::{Apply, Changed, Left, Replaced, RulesRefused, Snapshotted, Taken};

/// A list in an answer is cut when it takes so many bytes; the rest of a frame holds the other lists.
const LIST: usize = 64 * 1024;

/// What is needed beside the run itself.
#[derive(Debug)]
pub(crate) struct Files {
    places: Places,
    /// Where what was applied is written down.
    log: Log,
    /// What a snapshot says of how another sandbox is made of it.
    kept: RestoreSettings,
    /// The workspace on the host, for people.
    workspace: String,
    /// The rules of its network; held for no longer than they are read or written.
    rules: Mutex<Present>,
    /// Held while they are replaced: one after the other.
    replacing: Mutex<()>,
    /// What its secrets are for.
    secrets: Value,
}

/// The rules of a network as they are now.
#[derive(Debug)]
struct Present {
    net: Net,
    /// They are not those of its plan any more.
    replaced: bool,
}

impl Files {
    /// Must be called where the caller stands: his folders may be named from there.
    pub(crate) fn new(places: &Places, log: Log, policy: &Policy) -> Self {
        let workspace = policy.workspace.path.as_deref().map(show_path).unwrap_or_default();
        let whole =
            |path: &Option<PathBuf>| path.as_ref().map(|path| std::path::absolute(path).unwrap_or(path.clone()));
        let places = Places {
            fumehood_state: whole(&places.fumehood_state),
            fumehood_keys: whole(&places.fumehood_keys),
            ..places.clone()
        };
        let rules = Mutex::new(Present { net: policy.net.clone(), replaced: false });
        let secrets = secrets_document(&policy.secrets);
        let replacing = Mutex::default();
        Self { places, log, kept: RestoreSettings::default(), workspace, rules, replacing, secrets }
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules of its network, as a document has them.
    pub(crate) fn rules(&self) -> Value {
        self.present().net.document()
    }

    /// With what a snapshot is to say.
    pub(crate) fn kept(self, kept: RestoreSettings) -> Self {
        Self { kept, ..self }
    }

    pub(crate) fn changes(handle: &Handle) -> Result<Changed, Failure> {
        handle.changes().map(|report| Changed { counts: report.counts }).map_err(failure)
    }

    pub(crate) fn apply(&self, handle: &Handle, wanted: &Apply) -> Result<Taken, Failure> {
        let applied = handle.apply(request(wanted)).map_err(failure)?;
        if let Applied::Done { digest, paths, left, keys, refused: _ } = &applied {
            let body =
                json!({ "workspace": self.workspace, "digest": digest, "paths": paths, "left": left, "keys": keys });
            self.log.append(handle.id(), &Kind::workspace_applied(), &body).map_err(|error| failure(error.into()))?;
        }
        Ok(taken(applied))
    }

    /// Replaces the rules of the network.
    pub(crate) fn network(&self, handle: &Handle, net: &Value, secrets: Option<&Value>) -> Result<Replaced, Failure> {
        let read = read(net)?;
        // What holds at the end is what the broker said last.
        let _turn = self.turn();
        self.replace(handle, &read, secrets)
    }

    /// Replaces whom they allow; what is denied, the limits and the rest stay as they are when it is this one's turn.
    pub(crate) fn hosts(&self, handle: &Handle, net: &Value) -> Result<Replaced, Failure> {
        let read = read(net)?;
        let _turn = self.turn();
        let rest = self.present().net.clone();
        self.replace(handle, &with_hosts(read, rest), None)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.replacing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First it is written down that somebody wants it, then what came of it.
    fn replace(&self, handle: &Handle, read: &Net, secrets: Option<&Value>) -> Result<Replaced, Failure> {
        let digest = policy::json::digest(&read.document());
        let record = |what: &str, more: &str| {
            let body = json!({ "state": what, "digest": digest, "rules": read.document(), "why": more });
            self.log.append(handle.id(), &Kind::egress_rules(), &body).map_err(|error| failure(error.into()))
        };
        record("asked", "")?;
        let done = if secrets.is_none_or(|named| *named == self.secrets) {
            handle.replace_rules(read)
        } else {
            Err(other_secrets())
        };
        let refused = match done {
            Ok(digest) => {
                *self.present() = Present { net: read.clone(), replaced: true };
                return record("taken", "").map(|_| Replaced::Done { digest });
            }
            Err(Error::Refused(faults)) => faults.into_iter().next().map(rules_refused),
            Err(error @ (Error::Mistakes(_) | Error::Unheld(_) | Error::Failed(_))) => {
                let failure = failure(error);
                record("refused", &failure.message)?;
                return Err(failure);
            }
        };
        let refused = refused.ok_or_else(|| failure(Error::Refused(Vec::new())))?;
        record("refused", &format!("{}: {}; {}", refused.clause, refused.why, refused.fix))?;
        Ok(Replaced::Refused(refused))
    }

    pub(crate) fn snapshot(
        &self,
        handle: &Handle,
        name: Option<String>,
        (labels, idle_ms): (BTreeMap<String, String>, Option<u64>),
    ) -> Result<Snapshotted, Failure> {
        let failed = |message: &str| Failure::new(Code::Failed, message.to_owned());
        let run = handle.id().parse().map_err(|_odd| failed("the id of the run cannot be read"))?;
        let state = State::open(&self.places).map_err(|error| failure(error.into()))?;
        let mut kept = RestoreSettings { labels, idle_ms, ..self.kept.clone() };
        // What begins as this begins under its rules as they are now, and not as they were once.
        let present = self.present();
        if present.replaced {
            kept.layers.extend(present.net.layers().into_iter().map(Layer::Set));
        }
        drop(present);
        let writer = begin(state, &run, SnapshotRequest { name, layers: json!(kept) });
        let snapshot = writer.map_err(Error::from).and_then(|writer| handle.snapshot(writer)).map_err(failure)?;
        let about = snapshot.about();
        let left_out = u64::try_from(about.left_out.len()).unwrap_or(u64::MAX);
        Ok(Snapshotted { id: about.id.clone(), name: about.name.clone(), bytes: about.bytes, left_out })
    }
}

/// A whole `[net]` table.
fn read(net: &Value) -> Result<Net, Failure> {
    Net::from_document(net).map_err(|mistakes| {
        let first = mistakes.list.first().map_or("nothing says why", |mistake| mistake.what.as_str());
        Failure::new(Code::Invalid, format!("`net` cannot be read: {first}"))
    })
}

/// Whom one table allows, with the rest of another.
fn with_hosts(hosts: Net, rest: Net) -> Net {
    Net { mode: hosts.mode, presets: hosts.presets, allow: hosts.allow, ..rest }
}

/// As it is told to whoever asked; its place is the clause.
fn rules_refused(fault: Fault) -> RulesRefused {
    let Fault { id, place, why, fix, what: _ } = fault;
    RulesRefused { id: id.to_owned(), clause: place, why, fix }
}

fn other_secrets() -> Error {
    Error::Refused(vec![Fault {
        id: "net/rules-refused",
        what: "the rules of the network are as they were".to_owned(),
        place: "secrets".to_owned(),
        why: "secrets are read when a sandbox starts, and these are not the ones that it has".to_owned(),
        fix: "leave `[secrets]` out or as it was, or create another sandbox with these".to_owned(),
    }])
}

fn request(wanted: &Apply) -> Request {
    let plain = |paths: &[PathText]| paths.iter().map(|path| path.0.clone()).collect();
    let guarded = match (wanted.take_protected.is_empty(), wanted.leave_protected) {
        (false, _) => Guarded::Take(plain(&wanted.take_protected)),
        (true, true) => Guarded::Leave,
        (true, false) => Guarded::Refuse,
    };
    Request {
        paths: wanted.paths.as_deref().map(plain),
        digest: wanted.digest.clone(),
        guarded,
        leaving_links: wanted.leaving_links,
    }
}

fn taken(applied: Applied) -> Taken {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    match applied {
        Applied::Done { digest, paths, left, keys, refused } => Taken::Done {
            digest,
            count: number(paths.len()),
            paths: cut(paths.into_iter()),
            left: number(left),
            keys: cut(keys.into_iter().map(|one| Left::new(one.path, "", one.keys))),
            refused: cut(refused.into_iter().map(|one| Left::new(one.path, "", one.why))),
        },
        Applied::Conflicts(conflicts) => {
            Taken::Conflicts(cut(conflicts.into_iter().map(|one| Left::new(one.path, one.id, one.why))))
        }
    }
}

impl Left {
    fn new(path: PathBuf, id: &str, why: String) -> Self {
        Self { path: PathText(path), id: id.to_owned(), why }
    }
}

/// The first of them that fit.
fn cut<T: Serialize>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut room = LIST;
    all.map_while(|one| {
        // And a comma.
        let size = serde_json::to_vec(&one).map_or(LIST, |words| words.len().saturating_add(1));
        room = room.checked_sub(size)?;
        Some(one)
    })
    .collect()
}

/// The same in one line.
fn failure(error: Error) -> Failure {
    let refused = error.is_refusal();
    let faults = error.into_faults();
    let Some(Fault { id, what, why, fix, .. }) = faults.into_iter().next() else {
        return Failure::new(Code::Failed, "it was refused, and nothing says why".to_owned());
    };
    let code = match id {
        "run/not-frozen" | "run/no-changes" | "net/no-rules" | "live/vm-snapshot" => Code::Unsupported,
        "snapshot/taken" => Code::Exists,
        "snapshot/too-many" => Code::TooMany,
        "changes/none" | "changes/no-such-path" => Code::NotFound,
        "changes/ended" | "snapshot/ended" => Code::Ended,
        // What was shown is not what is there.
        "changes/digest" => Code::Invalid,
        // The workspace on the host is no folder any more, or a link on its way: whoever has it can put it back.
        "run/workspace" if [Errno::LOOP, Errno::NOTDIR, Errno::NOENT].iter().any(|gone| why == lower(*gone)) => {
            Code::Invalid
        }
        _ if refused => Code::Invalid,
        _ => Code::Failed,
    };
    let message = format!("{what}: {why}; {fix}").replace('\n', " ");
    Failure { reason: Some(Box::new(Reason { what, why, fix })), ..Failure::new(code, message) }
}

fn lower(errno: Errno) -> String {
    errno.to_string().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_caller_can_change_and_what_has_ended_are_no_failures_of_ours() {
        let code = |id: &'static str, why: String| {
            let fault = Fault { id, what: String::new(), place: String::new(), why, fix: String::new() };
            failure(Error::Failed(vec![fault])).code
        };
        let [what, why, fix] = ["a: b", "c; d", "e\nf"].map(str::to_owned);
        let fault = Fault { id: "net/no-rules", what, place: String::new(), why, fix };
        let told = failure(Error::Failed(vec![fault]));
        let reason = told.reason.unwrap();
        assert_eq!(
            (&*told.message, &*reason.what, &*reason.why, &*reason.fix),
            ("a: b: c; d; e f", "a: b", "c; d", "e\nf")
        );
        assert_eq!(code("run/workspace", lower(Errno::LOOP)), Code::Invalid);
        assert_eq!(code("run/workspace", lower(Errno::IO)), Code::Failed);
        for id in ["changes/ended", "snapshot/ended"] {
            assert_eq!(code(id, String::new()), Code::Ended);
        }
    }

    #[test]
    fn other_hosts_leave_what_is_denied_and_the_limits() {
        let net = |more: Value| {
            let mut whole = Net::closed().document();
            whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(&whole).unwrap()
        };
        let rest = net(json!({ "mode": "allow", "allow": ["a.test"], "deny": ["b.test"], "connections": 3 }));
        let mixed = with_hosts(net(json!({ "mode": "allow", "allow": ["b.test", "c.test"], "connections": 9 })), rest);
        let expected =
            net(json!({ "mode": "allow", "allow": ["b.test", "c.test"], "deny": ["b.test"], "connections": 3 }));
        assert_eq!(mixed.document(), expected.document());
    }

    #[test]
    fn an_answer_fits_a_frame_however_much_was_taken() {
        let path = |number: usize| PathText(format!("{number}-{}", "x".repeat(200)).into());
        let paths: Vec<PathText> = (0..10_000).map(path).collect();
        let conflict =
            |path: &PathText| sandbox::changes::Conflict { path: path.0.clone(), id: "changed", why: "w".repeat(100) };
        let conflicts = Applied::Conflicts(paths.iter().map(conflict).collect());
        let done = Applied::Done { digest: String::new(), paths, left: 0, keys: Vec::new(), refused: Vec::new() };
        let done = serde_json::to_value(taken(done)).unwrap();
        assert_eq!(done["done"]["count"], 10_000);
        let conflicts = serde_json::to_value(taken(conflicts)).unwrap();
        for list in [&done["done"]["paths"], &conflicts["conflicts"]] {
            assert!(list.as_array().unwrap().len() > 100 && list.to_string().len() <= LIST + 1);
        }
    }
}
