//! Rows as values.

use rusqlite::Row;
use rusqlite::types::Type;

use super::super::memory::{Memory, Pattern};
use super::super::{ParkedCall, State};

pub(super) const CALL: &str = "id, state, tool, server, args, hash, rule, reason, agent, session, bound_to, created, \
                               expires, answered, by, why, used";
pub(super) const MEMORY: &str = "id, tool, server, agent, session, pattern, bound_to, created, expires, by, call, \
                                 revoked, revoked_by, uses";

pub(super) fn call_of(row: &Row<'_>) -> rusqlite::Result<ParkedCall> {
    let word: String = row.get(1)?;
    Ok(ParkedCall {
        id: row.get(0)?,
        state: State::parse(&word).ok_or_else(|| odd(1, &word))?,
        tool: row.get(2)?,
        server: row.get(3)?,
        args: row.get(4)?,
        hash: row.get(5)?,
        rule: row.get(6)?,
        reason: row.get(7)?,
        agent: row.get(8)?,
        session: row.get(9)?,
        bound_to: row.get(10)?,
        created: whole(row, 11)?,
        expires: whole(row, 12)?,
        answered: row.get::<_, Option<i64>>(13)?.map(positive),
        by: row.get(14)?,
        why: row.get(15)?,
        used: row.get::<_, Option<i64>>(16)?.map(positive),
    })
}

pub(super) fn memory_of(row: &Row<'_>) -> rusqlite::Result<Memory> {
    let text: String = row.get(5)?;
    let pattern = serde_json::from_str(&text).ok().as_ref().and_then(Pattern::from_json);
    let revoked: Option<i64> = row.get(11)?;
    let by: Option<String> = row.get(12)?;
    Ok(Memory {
        id: row.get(0)?,
        tool: row.get(1)?,
        server: row.get(2)?,
        agent: row.get(3)?,
        session: row.get(4)?,
        pattern: pattern.ok_or_else(|| odd(5, &text))?,
        bound_to: row.get(6)?,
        created: whole(row, 7)?,
        expires: whole(row, 8)?,
        by: row.get(9)?,
        call: row.get(10)?,
        revoked: revoked.map(|at| (positive(at), by.unwrap_or_default())),
        uses: whole(row, 13)?,
    })
}

fn whole(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(positive)
}

fn positive(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

fn odd(index: usize, text: &str) -> rusqlite::Error {
    let why = format!("{} is nothing that was written here", policy::diagnostic::quote(text));
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, why.into())
}
