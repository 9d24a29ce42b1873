//! `approvals.db`: parked calls and remembered approvals, shared by the processes of one user.
//!
//! Each transition is one statement that names the state it leaves, inside a transaction that took the write lock first:
//! of two that race one changes a row and the other changes none. WAL, so that readers never wait for a person's answer.
//!
//! Must not: decide anything by a pattern over text in SQL; rows are compared by values made here.

mod park;
mod rows;

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::memory::{Holder, MAX_MEMORY_MS, MEMORY_MS, Memory, Pattern, Remember, Wide};
use super::{AnswerError, Ask, ParkedCall, State, StoreError};
use rows::{CALL, MEMORY, call_of, memory_of};

pub(super) use park::ParkResult;

const FILE: &str = "approvals.db";
const VERSION: i64 = 1;
/// How long another process may hold the write lock before the store counts as broken.
const BUSY: Duration = Duration::from_secs(5);

const TABLES: &str = "
CREATE TABLE calls (
  id TEXT PRIMARY KEY, seal TEXT NOT NULL, tool TEXT NOT NULL, server TEXT, args TEXT NOT NULL, hash TEXT NOT NULL,
  rule TEXT NOT NULL, reason TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, bound_to TEXT NOT NULL,
  first INTEGER NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'approved', 'denied', 'timed-out', 'cancelled')),
  answered INTEGER, by TEXT, why TEXT, used INTEGER, waiter TEXT
) STRICT;
CREATE INDEX calls_by_state ON calls (state, expires);
CREATE INDEX calls_by_seal ON calls (seal);
CREATE TABLE memories (
  id TEXT PRIMARY KEY, tool TEXT NOT NULL, server TEXT, agent TEXT NOT NULL, session TEXT, pattern TEXT NOT NULL,
  bound_to TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL, by TEXT NOT NULL, call TEXT NOT NULL,
  revoked INTEGER, revoked_by TEXT, uses INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX memories_by_tool ON memories (tool, agent);
";

/// The open file.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// This process, as written beside the calls that it waits for.
    waiter: String,
}

impl Store {
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        own_folder(dir)?;
        let path = dir.join(FILE);
        let failed = |why: String| StoreError::File { path: path.clone(), why };
        // Made by us and not by SQLite, so that no moment exists in which others may read it.
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default())
            .open(&path)
            .map_err(|error| failed(error.to_string()))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&path, flags).map_err(|error| failed(error.to_string()))?;
        let version = prepare(&mut connection).map_err(|error| failed(error.to_string()))?;
        if version != VERSION {
            return Err(StoreError::Version { path, version });
        }
        Ok(Self { path, connection: Mutex::new(connection), waiter: this_process() })
    }

    /// Runs `work` in a transaction that holds the write lock from its begin.
    fn write<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<Result<T, E>, rusqlite::Error>,
    ) -> Result<T, E> {
        let mut connection = self.lock();
        let inner = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            // Overdue calls were timed out on the way: that holds also where the work itself had no effect.
            transaction.commit()?;
            Ok(done)
        };
        inner().map_err(|error: rusqlite::Error| E::from(self.failed(&error)))?
    }

    fn failed(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::File { path: self.path.clone(), why: error.to_string() }
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Times out what is overdue and forgets what is old.
    pub(super) fn sweep(&self, now: u64, keep: Duration) -> Result<(), StoreError> {
        let before = int(now.saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX)));
        self.write(|t| {
            overdue(t, now)?;
            t.execute(
                "DELETE FROM calls WHERE state <> 'waiting' AND coalesce(used, answered, expires) < ?1",
                [before],
            )?;
            t.execute("DELETE FROM memories WHERE min(expires, coalesce(revoked, expires)) < ?1", [before])?;
            Ok(Ok(()))
        })
    }

    /// waiting -> approved, and what is remembered with it, in one step.
    pub(super) fn approve(
        &self,
        id: &str,
        by: &str,
        remember: Option<&Remember>,
        now: u64,
    ) -> Result<ParkedCall, AnswerError> {
        let memory_id = fresh_id('m')?;
        self.write(|t| {
            let call = match answer(t, id, State::Approved, (by, None), now)? {
                Ok(call) => call,
                Err(lost) => return Ok(Err(lost)),
            };
            let first: bool = t.query_row("SELECT first FROM calls WHERE id = ?1", [id], |row| row.get(0))?;
            // `approval = "first"`: the answer is also for the same call later in this session.
            let day = Some(24 * 3600 * 1000);
            let session = Remember { args: Wide::But(Vec::new()), holder: Holder::Session, millis: day };
            let Some(remember) = remember.or(first.then_some(&session)) else { return Ok(Ok(call)) };
            match memory(&call, memory_id, by, remember, now) {
                Ok(memory) => keep(t, &memory).map(|()| Ok(call)),
                Err(why) => {
                    // Nothing was answered: the whole step is taken back.
                    t.execute(
                        "UPDATE calls SET state = 'waiting', answered = NULL, by = NULL WHERE id = ?1",
                        params![id],
                    )?;
                    Ok(Err(AnswerError::Remember { why }))
                }
            }
        })
    }

    /// waiting -> one of the other final states.
    pub(super) fn finish(&self, id: &str, to: State, by: &str, why: &str, now: u64) -> Result<ParkedCall, AnswerError> {
        self.write(|t| answer(t, id, to, (by, Some(why)), now))
    }

    /// Whoever made the call no longer wants it: the question is taken back, and an approval that nothing came of as well.
    pub(super) fn withdraw(&self, id: &str, now: u64) -> Result<(), StoreError> {
        let sql = "UPDATE calls SET state = 'cancelled', answered = ?2, used = NULL
                   WHERE id = ?1 AND state IN ('waiting', 'approved')";
        self.write(|t| t.execute(sql, params![id, int(now)]).map(|_| Ok(())))
    }

    /// The same of all that a session asked and nobody used; what is remembered for it alone ends as well.
    pub(super) fn withdraw_of(&self, session: &str, now: u64) -> Result<(), StoreError> {
        let calls = "UPDATE calls SET state = 'cancelled', answered = ?2
                     WHERE session = ?1 AND state IN ('waiting', 'approved') AND used IS NULL";
        let memories = "UPDATE memories SET expires = ?2 WHERE session = ?1 AND expires > ?2";
        self.write(|t| {
            t.execute(calls, params![session, int(now)])?;
            t.execute(memories, params![session, int(now)]).map(|_| Ok(()))
        })
    }

    /// Uses an approval up; `false` if it is none or was used.
    pub(super) fn consume(&self, id: &str, now: u64) -> Result<bool, StoreError> {
        let sql = "UPDATE calls SET used = ?2 WHERE id = ?1 AND state = 'approved' AND used IS NULL";
        self.write(|t| Ok(Ok(t.execute(sql, params![id, int(now)])? == 1)))
    }

    /// Sets when a waiting call is denied for want of an answer, never later than it was.
    pub(super) fn hurry(&self, id: &str, expires: u64) -> Result<(), StoreError> {
        let sql = "UPDATE calls SET expires = min(expires, ?2) WHERE id = ?1 AND state = 'waiting'";
        self.write(|t| t.execute(sql, params![id, int(expires)]).map(|_| Ok(())))
    }

    /// Nobody in this process waits for the call any more, but it may still be answered and then used.
    pub(super) fn leave(&self, id: &str) -> Result<(), StoreError> {
        self.write(|t| t.execute("UPDATE calls SET waiter = NULL WHERE id = ?1", params![id]).map(|_| Ok(())))
    }

    pub(super) fn list(&self, all: bool, now: u64) -> Result<Vec<ParkedCall>, StoreError> {
        let only = if all { "" } else { "WHERE state = 'waiting'" };
        self.write(|t| {
            overdue(t, now)?;
            let mut query = t.prepare(&format!("SELECT {CALL} FROM calls {only} ORDER BY created, id LIMIT 10000"))?;
            query.query_map([], call_of)?.collect::<Result<_, _>>().map(Ok)
        })
    }

    pub(super) fn get(&self, id: &str, now: u64) -> Result<Option<ParkedCall>, StoreError> {
        self.write(|t| {
            overdue(t, now)?;
            one(t, id).map(Ok)
        })
    }

    /// As [`Store::get`], without taking the write lock: for those who look again and again.
    pub(super) fn peek(&self, id: &str) -> Result<Option<ParkedCall>, StoreError> {
        one(&self.lock(), id).map_err(|error| self.failed(&error))
    }

    pub(super) fn covering(&self, ask: &Ask, bound_to: &str, now: u64) -> Result<Option<Memory>, StoreError> {
        park::covering(&self.lock(), ask, bound_to, now).map_err(|error| self.failed(&error))
    }

    pub(super) fn memories(&self, all: bool, now: u64) -> Result<Vec<Memory>, StoreError> {
        let sql = format!(
            "SELECT {MEMORY} FROM memories WHERE ?1 OR (revoked IS NULL AND expires > ?2) ORDER BY created, id LIMIT 10000"
        );
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<Memory>> {
            connection.prepare(&sql)?.query_map(params![all, int(now)], memory_of)?.collect()
        };
        read().map_err(|error| self.failed(&error))
    }

    pub(super) fn revoke(&self, id: &str, by: &str, now: u64) -> Result<bool, StoreError> {
        let sql =
            "UPDATE memories SET revoked = ?2, revoked_by = ?3 WHERE id = ?1 AND revoked IS NULL AND expires > ?2";
        self.write(|t| Ok(Ok(t.execute(sql, params![id, int(now), by])? == 1)))
    }
}

/// WAL, the tables, and the version that they have.
fn prepare(connection: &mut Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // An answer that a power cut could undo would let a call be made twice.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()?;
    Ok(if version == 0 { VERSION } else { version })
}

/// One transition out of `waiting`, or why it did not happen.
fn answer(
    t: &Transaction<'_>,
    id: &str,
    to: State,
    (by, why): (&str, Option<&str>),
    now: u64,
) -> rusqlite::Result<Result<ParkedCall, AnswerError>> {
    overdue(t, now)?;
    let sql = "UPDATE calls SET state = ?2, answered = ?3, by = ?4, why = ?5 WHERE id = ?1 AND state = 'waiting'";
    let changed = t.execute(sql, params![id, to.as_str(), int(now), by, why])?;
    Ok(match one(t, id)? {
        Some(call) if changed == 1 => Ok(call),
        Some(call) => Err(AnswerError::Over { state: call.state, by: call.by }),
        None => Err(AnswerError::Unknown { id: id.to_owned() }),
    })
}

/// Calls whose time is over are denied, whoever looks first.
fn overdue(t: &Transaction<'_>, now: u64) -> rusqlite::Result<usize> {
    let sql = "UPDATE calls SET state = 'timed-out', answered = expires WHERE state = 'waiting' AND expires <= ?1";
    t.execute(sql, [int(now)])
}

fn one(connection: &Connection, id: &str) -> rusqlite::Result<Option<ParkedCall>> {
    connection.query_row(&format!("SELECT {CALL} FROM calls WHERE id = ?1"), [id], call_of).optional()
}

/// What is remembered of a call, if that can be.
fn memory(call: &ParkedCall, id: String, by: &str, remember: &Remember, now: u64) -> Result<Memory, String> {
    let lasts = match (remember.millis, remember.holder) {
        (Some(millis), _) => millis,
        // No other run has its name, so that it covers nothing when the run is over.
        (None, Holder::Session) if call.is_destination() => MAX_MEMORY_MS,
        (None, Holder::Session | Holder::Agent) => MEMORY_MS,
    };
    if lasts == 0 || lasts > MAX_MEMORY_MS {
        return Err("an approval is remembered for at most 30 days".to_owned());
    }
    // A destination is agreed to by its name and port, a request by method and path too: none may be anything.
    let exact = Wide::But(Vec::new());
    let wide = match (&remember.args, remember.holder) {
        (Wide::Any, Holder::Session) if call.is_destination() => &exact,
        (Wide::But(any), _) if any.is_empty() => &remember.args,
        (Wide::Any | Wide::But(_), _) if call.is_destination() => {
            return Err("a destination is remembered as it is: `--remember args`, or `session`".to_owned());
        }
        (Wide::Any | Wide::But(_), _) => &remember.args,
    };
    let args: Json = serde_json::from_str(&call.args).map_err(|error| error.to_string())?;
    Ok(Memory {
        id,
        tool: call.tool.clone(),
        server: call.server.clone(),
        agent: call.agent.clone(),
        session: (remember.holder == Holder::Session).then(|| call.session.clone()),
        pattern: Pattern::of(wide, &args)?,
        bound_to: call.bound_to.clone(),
        created: now,
        expires: now.saturating_add(lasts),
        by: by.to_owned(),
        call: call.id.clone(),
        revoked: None,
        uses: 0,
    })
}

fn keep(t: &Transaction<'_>, memory: &Memory) -> rusqlite::Result<()> {
    let Memory { id, tool, server, agent, session, pattern, bound_to, created, expires, by, call, revoked: _, uses: _ } =
        memory;
    t.execute(
        "INSERT INTO memories (id, tool, server, agent, session, pattern, bound_to, created, expires, by, call)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        params![
            id,
            tool,
            server,
            agent,
            session,
            pattern.to_json().to_string(),
            bound_to,
            int(*created),
            int(*expires),
            by,
            call
        ],
    )
    .map(|_| ())
}

/// What an approval is bound to, beside its id.
fn seal(ask: &Ask) -> String {
    let mut digest = Sha256::new();
    for part in [&ask.tool, ask.server.as_ref().unwrap_or(&String::new()), &ask.agent, &ask.session, &ask.hash] {
        digest.update(part.len().to_le_bytes());
        digest.update(part.as_bytes());
    }
    policy::json::hex(&digest.finalize())
}

/// 130 random bits that are easy to read out loud: no `i`, `l`, `o`, `u`.
fn fresh_id(kind: char) -> Result<String, StoreError> {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut random = [0_u8; 26];
    if getrandom::fill(&mut random).is_err() {
        return Err(StoreError::NoRandom);
    }
    let letter = |byte: &u8| LETTERS.get(usize::from(*byte & 31)).copied().map_or('0', char::from);
    Ok(format!("{kind}-{}", random.iter().map(letter).collect::<String>()))
}

/// The folder must be there, or be made, for the caller alone.
pub(super) fn own_folder(dir: &Path) -> Result<(), StoreError> {
    let wrong = || StoreError::Folder { path: dir.to_owned() };
    let failed = |error: std::io::Error| StoreError::File { path: dir.to_owned(), why: error.to_string() };
    match std::fs::symlink_metadata(dir) {
        Ok(found) => {
            let alone =
                found.is_dir() && found.mode() & 0o077 == 0 && found.uid() == rustix::process::geteuid().as_raw();
            if alone { Ok(()) } else { Err(wrong()) }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::DirBuilder::new().mode(0o700).create(dir).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// `BOOT PID START`: tells whether whoever waits for a call is still there.
fn this_process() -> String {
    let pid = std::process::id();
    // Without /proc nobody can be found alive: a call of ours may then be taken over, which is still used once.
    boot().zip(started(pid)).map_or_else(String::new, |(boot, start)| format!("{boot} {pid} {start}"))
}

fn is_alive(waiter: &str) -> bool {
    let mut words = waiter.split(' ');
    let (Some(then), Some(pid), Some(start)) = (words.next(), words.next(), words.next()) else { return false };
    let pid = pid.parse().ok();
    boot().as_deref() == Some(then) && pid.and_then(started).as_deref() == Some(start)
}

fn boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Field 22 of `/proc/PID/stat`; the name before it may hold blanks and brackets. A process that was killed and that nobody
/// has reaped yet still has an entry (state `Z`): it waits for nothing any more.
fn started(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") { None } else { fields.nth(18).map(str::to_owned) }
}

/// `SQLite` has signed integers; times beyond them are not ours.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
