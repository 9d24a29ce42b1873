//! A filter into classic BPF: a balanced tree over ranges of numbers with equal verdict, argument tests in its leaves.
//!
//! *Kernel facts*: at installation the kernel runs the program once for every call number to fill a bitmap of calls
//! that are always allowed (kernel/seccomp.c), so steps per number count, not size. A jump reaches 255 instructions
//! forward; a program holds at most 4096.

use super::rule::{Action, Condition, Filter, Test, Verdict, Width};
use crate::arch::{AUDIT_ARCH, FIRST_FOREIGN_CALL};

/// One instruction, `struct sock_filter` of linux/filter.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// How far to jump when true.
    pub jt: u8,
    /// How far to jump when false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// A compiled filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    instructions: Vec<Instruction>,
}

/// A filter cannot be a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// More than the kernel takes.
    #[error("the filter needs {0} instructions, the kernel takes 4096")]
    TooLong(usize),
    /// The tests of one call are further apart than a jump reaches.
    #[error("the argument tests of call number {0} are too long")]
    TooManyTests(u32),
}

const MAX: usize = 4096;
const RETURN: u16 = 0x06;
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY: u16 = 0x45;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

impl Program {
    #[cfg(test)]
    pub(super) fn from_instructions(instructions: Vec<Instruction>) -> Self {
        Self { instructions }
    }

    /// The instructions.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The bytes of the instructions, as `struct sock_fprog` points to them.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.instructions.len().saturating_mul(8));
        for Instruction { code, jt, jf, k } in &self.instructions {
            bytes.extend(code.to_le_bytes());
            bytes.extend([*jt, *jf]);
            bytes.extend(k.to_le_bytes());
        }
        bytes
    }
}

/// A program that asks whoever holds its listener about these calls, and lets all others pass: what else is allowed is another
/// filter's to say.
#[must_use]
pub fn asking(numbers: &[u32]) -> Program {
    const ASK: u32 = 0x7fc0_0000;
    let length = u8::try_from(numbers.len()).unwrap_or(u8::MAX);
    let mut instructions = vec![
        load(ARCH),
        Instruction { code: JUMP_EQUAL, jt: 0, jf: length.saturating_add(1), k: AUDIT_ARCH },
        load(NUMBER),
    ];
    instructions.extend((0..length).zip(numbers).map(|(before, number)| Instruction {
        code: JUMP_EQUAL,
        jt: length.saturating_sub(before),
        jf: 0,
        k: *number,
    }));
    instructions.push(answer(Action::Allow));
    instructions.push(Instruction { code: RETURN, jt: 0, jf: 0, k: ASK });
    Program { instructions }
}

impl Filter {
    /// Compiles it. Calls of foreign architectures kill, and so do numbers of another ABI.
    ///
    /// # Errors
    /// It is too long for the kernel.
    pub fn compile(&self) -> Result<Program, CompileError> {
        let mut code = Backwards::default();
        let first = code.tree(&self.ranges())?;
        code.fall_through(first)?;
        code.push(load(NUMBER));
        code.push(answer(Action::Kill));
        code.push(Instruction { code: JUMP_EQUAL, jt: 1, jf: 0, k: AUDIT_ARCH });
        code.push(load(ARCH));
        let mut instructions = code.instructions;
        if instructions.len() > MAX {
            return Err(CompileError::TooLong(instructions.len()));
        }
        instructions.reverse();
        Ok(Program { instructions })
    }

    /// (first number, verdict) of each range; neighbours with equal verdict are one. Numbers of another ABI are the last but one,
    /// -1 the last: a tracer writes it to skip a call, and it runs nothing.
    fn ranges(&self) -> Vec<Range> {
        let unknown = Verdict::Always(self.unknown);
        let mut ranges: Vec<Range> = Vec::with_capacity(256);
        let mut push = |first: u32, verdict: &Verdict| {
            if ranges.last().is_none_or(|(_, last)| last != verdict) {
                ranges.push((first, verdict.clone()));
            }
        };
        let mut next = 0;
        for (number, verdict) in self.calls.iter().take_while(|(number, _)| *number < FIRST_FOREIGN_CALL) {
            if number > next {
                push(next, &unknown);
            }
            push(number, verdict);
            next = number.saturating_add(1);
        }
        if next < FIRST_FOREIGN_CALL {
            push(next, &unknown);
        }
        push(FIRST_FOREIGN_CALL, &Verdict::Always(Action::Kill));
        push(u32::MAX, &unknown);
        ranges
    }
}

/// First number, verdict.
type Range = (u32, Verdict);

/// How far a conditional jump reaches.
const REACH: usize = 255;

/// A place in the program: how many instructions come behind it.
type OffsetFromEnd = usize;

/// The program, written from its last instruction to its first: all that an instruction jumps to is there before it is
/// written, and one answer serves all who can reach it. Half of the instructions would be answers otherwise.
#[derive(Default)]
struct Backwards {
    instructions: Vec<Instruction>,
    /// The nearest answer of each kind.
    answers: Vec<(Action, OffsetFromEnd)>,
}

impl Backwards {
    fn push(&mut self, instruction: Instruction) -> OffsetFromEnd {
        self.instructions.push(instruction);
        self.instructions.len().saturating_sub(1)
    }

    /// From the instruction that is written next.
    fn distance(&self, to: OffsetFromEnd) -> usize {
        self.instructions.len().saturating_sub(to).saturating_sub(1)
    }

    /// An answer that is in reach even when `room` more instructions are written before it is used.
    fn answer(&mut self, action: Action, room: usize) -> OffsetFromEnd {
        let near = self.answers.iter().find(|(other, _)| *other == action).map(|(_, place)| *place);
        if let Some(place) = near
            && self.distance(place).saturating_add(room) <= REACH
        {
            return place;
        }
        let place = self.push(answer(action));
        self.answers.retain(|(other, _)| *other != action);
        self.answers.push((action, place));
        place
    }

    /// The same, in reach of an instruction that is written after at most one more.
    fn near(&mut self, to: OffsetFromEnd) -> Result<OffsetFromEnd, CompileError> {
        let far = self.distance(to);
        if far < REACH {
            return Ok(to);
        }
        match self.instructions.get(to) {
            Some(there) if there.code == RETURN => Ok(self.push(*there)),
            Some(_) | None => self.jump(far),
        }
    }

    fn jump(&mut self, far: usize) -> Result<OffsetFromEnd, CompileError> {
        let k = u32::try_from(far).map_err(|_far_too_far| CompileError::TooLong(far))?;
        Ok(self.push(Instruction { code: JUMP, jt: 0, jf: 0, k }))
    }

    /// What is written next runs into `to`.
    fn fall_through(&mut self, to: OffsetFromEnd) -> Result<(), CompileError> {
        match self.distance(to) {
            0 => Ok(()),
            far => self.jump(far).map(drop),
        }
    }

    fn branch(&mut self, code: u16, k: u32, yes: OffsetFromEnd, no: OffsetFromEnd) -> Option<OffsetFromEnd> {
        let jt = u8::try_from(self.distance(yes)).ok()?;
        let jf = u8::try_from(self.distance(no)).ok()?;
        Some(self.push(Instruction { code, jt, jf, k }))
    }

    /// The tree over ranges: below the middle to the left, else to the right.
    fn tree(&mut self, ranges: &[Range]) -> Result<OffsetFromEnd, CompileError> {
        let (left, right) = ranges.split_at(ranges.len() / 2);
        let Some((middle, only)) = right.first() else { return Ok(self.answer(Action::Kill, 0)) };
        if left.is_empty() {
            return self.leaf(*middle, only);
        }
        let above = self.tree(right)?;
        let below = self.tree(left)?;
        let above = self.near(above)?;
        let below = self.near(below)?;
        self.branch(JUMP_AT_LEAST, *middle, above, below).ok_or(CompileError::TooManyTests(*middle))
    }

    fn leaf(&mut self, number: u32, verdict: &Verdict) -> Result<OffsetFromEnd, CompileError> {
        match verdict {
            Verdict::Always(action) => Ok(self.answer(*action, 0)),
            Verdict::When { any, then, otherwise } => {
                // Of a value, of a bound: six instructions at most.
                let each = |condition: &Condition| match &condition.test {
                    Test::MaskedIn { values, .. } => values.len().saturating_mul(6),
                    Test::Ne(_) | Test::Le(_) => 6,
                };
                let room = any.iter().flat_map(|all| all.iter()).map(each).fold(2, usize::saturating_add);
                let mut fail = self.answer(*otherwise, room);
                let pass = self.answer(*then, room);
                for all in any.iter().rev() {
                    fail = self.alternative(all, pass, fail).ok_or(CompileError::TooManyTests(number))?;
                }
                Ok(fail)
            }
        }
    }

    /// Conditions that must all hold.
    fn alternative(&mut self, all: &[Condition], pass: OffsetFromEnd, fail: OffsetFromEnd) -> Option<OffsetFromEnd> {
        all.iter().rev().try_fold(pass, |pass, condition| self.condition(condition, pass, fail))
    }

    fn condition(&mut self, condition: &Condition, pass: OffsetFromEnd, fail: OffsetFromEnd) -> Option<OffsetFromEnd> {
        let low_at = ARGUMENTS.saturating_add(u32::from(condition.argument).saturating_mul(8));
        let high_at = low_at.saturating_add(4);
        let long = condition.width == Width::Long;
        match &condition.test {
            Test::MaskedIn { mask, values } if long => {
                let mut fail = fail;
                for value in values.iter().rev() {
                    self.branch(JUMP_EQUAL, low(*value), pass, fail)?;
                    let low_half = self.masked(low_at, low(*mask));
                    self.branch(JUMP_EQUAL, high(*value), low_half, fail)?;
                    fail = self.masked(high_at, high(*mask));
                }
                Some(fail)
            }
            Test::MaskedIn { mask, values } => {
                if **values == [0] {
                    self.branch(JUMP_IF_ANY, low(*mask), fail, pass)?;
                    return Some(self.push(load(low_at)));
                }
                let mut fail = fail;
                for (first, last) in runs(values).into_iter().rev() {
                    fail = if first == last {
                        self.branch(JUMP_EQUAL, first, pass, fail)?
                    } else {
                        let inside = self.branch(JUMP_GREATER, last, fail, pass)?;
                        self.branch(JUMP_AT_LEAST, first, inside, fail)?
                    };
                }
                Some(if values.is_empty() { fail } else { self.masked(low_at, low(*mask)) })
            }
            Test::Ne(value) => {
                self.branch(JUMP_EQUAL, low(*value), fail, pass)?;
                let low_half = self.push(load(low_at));
                if !long {
                    return Some(low_half);
                }
                self.branch(JUMP_EQUAL, high(*value), low_half, pass)?;
                Some(self.push(load(high_at)))
            }
            Test::Le(most) => {
                self.branch(JUMP_GREATER, low(*most), fail, pass)?;
                let low_half = self.push(load(low_at));
                if !long {
                    return Some(low_half);
                }
                let equal = self.branch(JUMP_EQUAL, high(*most), low_half, pass)?;
                self.branch(JUMP_GREATER, high(*most), fail, equal)?;
                Some(self.push(load(high_at)))
            }
        }
    }

    /// Loads half of an argument, as far as the mask lets it count.
    fn masked(&mut self, at: u32, mask: u32) -> OffsetFromEnd {
        if mask != u32::MAX {
            self.push(Instruction { code: AND, jt: 0, jf: 0, k: mask });
        }
        self.push(load(at))
    }
}

/// The low halves of values as (first, last) of what follows each other, where that is shorter than one by one.
fn runs(values: &[u64]) -> Vec<(u32, u32)> {
    let mut sorted: Vec<u32> = values.iter().map(|value| low(*value)).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut found = Vec::with_capacity(sorted.len());
    for run in sorted.chunk_by(|one, next| one.checked_add(1) == Some(*next)) {
        match run {
            [first, .., last] if run.len() > 2 => found.push((*first, *last)),
            few => found.extend(few.iter().map(|value| (*value, *value))),
        }
    }
    found
}

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, jt: 0, jf: 0, k: offset }
}

fn answer(action: Action) -> Instruction {
    let k = match action {
        Action::Allow => 0x7fff_0000,
        Action::Errno(errno) => 0x0005_0000 | u32::from(errno),
        Action::Kill => 0x8000_0000,
    };
    Instruction { code: RETURN, jt: 0, jf: 0, k }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX)
}

fn high(value: u64) -> u32 {
    u32::try_from(value >> 32).unwrap_or(u32::MAX)
}
