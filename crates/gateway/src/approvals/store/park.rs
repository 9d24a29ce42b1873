//! A new question: answered already, waiting already, one too many, or parked.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::super::memory::Memory;
use super::super::{ApprovalAnswer, ApprovalError, Ask, ParkedCall, Settings};
use super::rows::{CALL, MEMORY, call_of, memory_of};
use super::{Store, fresh_id, int, is_alive, overdue, seal};
use policy::tools::Approval;

/// What is known of a question when it is asked.
#[derive(Debug)]
pub(in super::super) struct ParkResult {
    /// The parked call, if one is.
    pub(in super::super) call: Option<ParkedCall>,
    /// The answer, if it is known.
    pub(in super::super) answer: Option<ApprovalAnswer>,
    /// Whether it was parked just now.
    pub(in super::super) is_new: bool,
}

impl Store {
    pub(in super::super) fn park(&self, ask: &Ask, settings: &Settings, now: u64) -> Result<ParkResult, ApprovalError> {
        let args = gate::json::canonical(&ask.args);
        if args.len() > settings.most_bytes {
            return Err(ApprovalError::TooLarge { bytes: args.len(), most: settings.most_bytes });
        }
        let (id, seal) = (fresh_id('a')?, seal(ask));
        self.write(|t| {
            overdue(t, now)?;
            if let Some(found) = answered(t, &seal, settings, now)? {
                return Ok(found);
            }
            if let Some(memory) = covering(t, ask, &settings.bound_to, now)? {
                t.execute("UPDATE memories SET uses = uses + 1 WHERE id = ?1", [&memory.id])?;
                let answer = ApprovalAnswer::Approved { id: memory.call, by: memory.by, remembered: Some(memory.id) };
                return Ok(Ok(ParkResult { call: None, answer: Some(answer), is_new: false }));
            }
            if let Some(call) = left_behind(t, &seal, "state = 'waiting'", 0)? {
                t.execute("UPDATE calls SET waiter = ?2 WHERE id = ?1", params![call.id, self.waiter])?;
                return Ok(Ok(ParkResult { call: Some(call), answer: None, is_new: false }));
            }
            if let Some(full) = full(t, ask, settings)? {
                return Ok(Err(full));
            }
            let patience = u64::try_from(settings.patience.as_millis()).unwrap_or(u64::MAX);
            t.execute(
                "INSERT INTO calls (id, seal, tool, server, args, hash, rule, reason, agent, session, bound_to, first,
                                    created, expires, state, waiter)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 'waiting', ?15)",
                params![
                    id,
                    seal,
                    ask.tool,
                    ask.server,
                    args,
                    ask.hash,
                    ask.rule,
                    ask.reason,
                    ask.agent,
                    ask.session,
                    settings.bound_to,
                    ask.approval == Approval::First,
                    int(now),
                    int(now.saturating_add(patience)),
                    self.waiter
                ],
            )?;
            let call = t.query_row(&format!("SELECT {CALL} FROM calls WHERE id = ?1"), [&id], call_of)?;
            Ok(Ok(ParkResult { call: Some(call), answer: None, is_new: true }))
        })
    }
}

/// An approval that nobody used yet, or a denial that still stands.
fn answered(
    t: &Transaction<'_>,
    seal: &str,
    settings: &Settings,
    now: u64,
) -> rusqlite::Result<Option<Result<ParkResult, ApprovalError>>> {
    let since =
        |duration: std::time::Duration| now.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    // Whoever waited for it is gone: a restart, or a caller that asked for an id and came back.
    let unused = left_behind(t, seal, "state = 'approved' AND used IS NULL", since(settings.patience))?;
    if let Some(call) = unused {
        t.execute("UPDATE calls SET used = ?2 WHERE id = ?1", params![call.id, int(now)])?;
        let by = call.by.clone().unwrap_or_default();
        let answer = ApprovalAnswer::Approved { id: call.id.clone(), by, remembered: None };
        return Ok(Some(Ok(ParkResult { call: Some(call), answer: Some(answer), is_new: false })));
    }
    let sql = format!(
        "SELECT {CALL} FROM calls WHERE seal = ?1 AND state = 'denied' AND answered > ?2 ORDER BY answered DESC LIMIT 1"
    );
    let denied = t.query_row(&sql, params![seal, int(since(settings.denial_stands))], call_of).optional()?;
    Ok(denied.map(|call| {
        Err(ApprovalError::DeniedBefore {
            by: call.by.unwrap_or_default(),
            why: call.why.unwrap_or_default(),
            seconds: now.saturating_sub(call.answered.unwrap_or(now)) / 1000,
        })
    }))
}

/// The oldest call of this seal and state that no living process waits for.
fn left_behind(t: &Transaction<'_>, seal: &str, state: &str, since: u64) -> rusqlite::Result<Option<ParkedCall>> {
    let sql = format!(
        "SELECT {CALL}, waiter FROM calls WHERE seal = ?1 AND {state} AND coalesce(answered, created) >= ?2 ORDER BY created"
    );
    let mut query = t.prepare(&sql)?;
    let mut rows = query.query(params![seal, int(since)])?;
    while let Some(row) = rows.next()? {
        let waiter: Option<String> = row.get("waiter")?;
        if !waiter.is_some_and(|waiter| is_alive(&waiter)) {
            return call_of(row).map(Some);
        }
    }
    Ok(None)
}

/// Whether one more would be too many, and whose.
fn full(t: &Transaction<'_>, ask: &Ask, settings: &Settings) -> rusqlite::Result<Option<ApprovalError>> {
    let (session, agent, all): (u32, u32, u32) = t.query_row(
        "SELECT coalesce(sum(agent = ?1 AND session = ?2), 0), coalesce(sum(agent = ?1), 0), count(*)
         FROM calls WHERE state = 'waiting'",
        params![ask.agent, ask.session],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let counts = [
        ("this session", session, settings.most_per_session),
        ("this agent", agent, settings.most_per_agent),
        ("all agents", all, settings.most_in_total),
    ];
    let over = counts.into_iter().find(|(_, waiting, most)| waiting >= most);
    Ok(over.map(|(whose, waiting, _)| ApprovalError::TooMany { whose, waiting }))
}

/// The remembered approval that covers a call.
pub(super) fn covering(
    connection: &Connection,
    ask: &Ask,
    bound_to: &str,
    now: u64,
) -> rusqlite::Result<Option<Memory>> {
    if ask.approval == Approval::Always {
        return Ok(None);
    }
    let sql = format!(
        "SELECT {MEMORY} FROM memories WHERE tool = ?1 AND agent = ?2 AND server IS ?3 AND (session IS NULL OR session = ?4)
         AND bound_to = ?5 AND revoked IS NULL AND expires > ?6 ORDER BY created, id"
    );
    let mut query = connection.prepare(&sql)?;
    let wanted = params![ask.tool, ask.agent, ask.server, ask.session, bound_to, int(now)];
    for memory in query.query_map(wanted, memory_of)? {
        let memory = memory?;
        if memory.pattern.covers(&ask.args) {
            return Ok(Some(memory));
        }
    }
    Ok(None)
}
