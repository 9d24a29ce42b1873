//! A filter into classic BPF: a balanced tree over ranges of numbers with equal verdict, argument tests in its leaves.
//!
//! *Kernel facts*: at installation the kernel runs the program once for every call number to fill a bitmap of calls
//! that are always allowed (kernel/seccomp.c), so steps per number count, not size. A jump reaches 255 instructions
//! forward; a program holds at most 4096.

use super::rule::{Action, Condition, Filter, Test, Verdict, Width};

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

const MOST: usize = 4096;
const ARCH_X86_64: u32 = 0xc000_003e;
const X32_BIT: u32 = 0x4000_0000;
const RETURN: u16 = 0x06;
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_AT_LEAST: u16 = 0x35;
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

impl Filter {
    /// Compiles it. Foreign architectures and x32 numbers kill.
    ///
    /// # Errors
    /// It is too long for the kernel.
    pub fn compile(&self) -> Result<Program, CompileError> {
        let mut backwards = Vec::with_capacity(512);
        tree(&self.ranges(), &mut backwards)?;
        backwards.extend([
            load(NUMBER),
            answer(Action::Kill),
            Instruction { code: JUMP_EQUAL, jt: 1, jf: 0, k: ARCH_X86_64 },
            load(ARCH),
        ]);
        if backwards.len() > MOST {
            return Err(CompileError::TooLong(backwards.len()));
        }
        backwards.reverse();
        Ok(Program { instructions: backwards })
    }

    /// (first number, verdict) of each range; neighbours with equal verdict are one. The x32 half is the last but one,
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
        for (number, verdict) in self.calls.range(..X32_BIT) {
            if *number > next {
                push(next, &unknown);
            }
            push(*number, verdict);
            next = number.saturating_add(1);
        }
        if next < X32_BIT {
            push(next, &unknown);
        }
        push(X32_BIT, &Verdict::Always(Action::Kill));
        push(u32::MAX, &unknown);
        ranges
    }
}

/// First number, verdict.
type Range = (u32, Verdict);

/// Written from the last instruction to the first: how far a jump goes is known when it is written. The left half comes
/// first in the program, so that "below the middle" falls through and "at least" jumps over it.
fn tree(ranges: &[Range], backwards: &mut Vec<Instruction>) -> Result<(), CompileError> {
    let (left, right) = ranges.split_at(ranges.len() / 2);
    let Some((middle, only)) = right.first() else { return Ok(()) };
    if left.is_empty() {
        return leaf(*middle, only, backwards);
    }
    tree(right, backwards)?;
    let before = backwards.len();
    tree(left, backwards)?;
    let far = backwards.len().saturating_sub(before);
    match u8::try_from(far) {
        Ok(far) => backwards.push(Instruction { code: JUMP_AT_LEAST, jt: far, jf: 0, k: *middle }),
        Err(_too_far) => {
            let far = u32::try_from(far).map_err(|_far_too_far| CompileError::TooLong(far))?;
            backwards.push(Instruction { code: JUMP, jt: 0, jf: 0, k: far });
            backwards.push(Instruction { code: JUMP_AT_LEAST, jt: 0, jf: 1, k: *middle });
        }
    }
    Ok(())
}

fn leaf(number: u32, verdict: &Verdict, backwards: &mut Vec<Instruction>) -> Result<(), CompileError> {
    match verdict {
        Verdict::Always(action) => backwards.push(answer(*action)),
        Verdict::When { any, then, otherwise } => {
            backwards.push(answer(*otherwise));
            for all in any.iter().rev() {
                let code = alternative(all, *then).ok_or(CompileError::TooManyTests(number))?;
                backwards.extend(code.into_iter().rev());
            }
        }
    }
    Ok(())
}

/// The tests of one alternative, its answer, and every failing test jumping behind that.
fn alternative(all: &[Condition], then: Action) -> Option<Vec<Instruction>> {
    let mut steps = Vec::new();
    for condition in all {
        test(condition, &mut steps);
    }
    let end = steps.len().checked_add(1)?;
    let mut code = Vec::with_capacity(end);
    for (at, step) in steps.iter().enumerate() {
        let after = at.checked_add(1)?;
        let go = |target: Target| match target {
            Target::Next => Some(0),
            Target::Over(steps) => Some(steps),
            Target::Pass => u8::try_from(step.rest).ok(),
            Target::Fail => u8::try_from(end.checked_sub(after)?).ok(),
        };
        code.push(Instruction { code: step.code, jt: go(step.yes)?, jf: go(step.no)?, k: step.k });
    }
    code.push(answer(then));
    Some(code)
}

#[derive(Clone, Copy, PartialEq)]
enum Target {
    /// The next step.
    Next,
    /// Over so many steps.
    Over(u8),
    /// Behind this condition.
    Pass,
    /// Behind this alternative.
    Fail,
}

/// An instruction whose jumps are still words.
struct Step {
    code: u16,
    k: u32,
    yes: Target,
    no: Target,
    /// How many steps of the same condition follow.
    rest: usize,
}

fn test(condition: &Condition, steps: &mut Vec<Step>) {
    let start = steps.len();
    let low_at = ARGUMENTS.saturating_add(u32::from(condition.argument).saturating_mul(8));
    let high_at = low_at.saturating_add(4);
    let long = condition.width == Width::Long;
    let mut step = |code, k, yes, no| steps.push(Step { code, k, yes, no, rest: 0 });
    match &condition.test {
        Test::MaskedIn { mask, values } => {
            let mut left = values.iter().peekable();
            if !long {
                step(LOAD, low_at, Target::Next, Target::Next);
                if low(*mask) != u32::MAX {
                    step(AND, low(*mask), Target::Next, Target::Next);
                }
            }
            while let Some(value) = left.next() {
                let fail = if left.peek().is_none() { Target::Fail } else { Target::Next };
                if long {
                    step(LOAD, high_at, Target::Next, Target::Next);
                    step(AND, high(*mask), Target::Next, Target::Next);
                    // A high half that differs: over the three steps of the low half, to the next value.
                    let skip = if fail == Target::Fail { Target::Fail } else { Target::Over(3) };
                    step(JUMP_EQUAL, high(*value), Target::Next, skip);
                    step(LOAD, low_at, Target::Next, Target::Next);
                    step(AND, low(*mask), Target::Next, Target::Next);
                }
                step(JUMP_EQUAL, low(*value), Target::Pass, fail);
            }
        }
        Test::Ne(value) => {
            if long {
                step(LOAD, high_at, Target::Next, Target::Next);
                step(JUMP_EQUAL, high(*value), Target::Next, Target::Pass);
            }
            step(LOAD, low_at, Target::Next, Target::Next);
            step(JUMP_EQUAL, low(*value), Target::Fail, Target::Next);
        }
        Test::Le(most) => {
            if long {
                step(LOAD, high_at, Target::Next, Target::Next);
                step(JUMP_GREATER, high(*most), Target::Fail, Target::Next);
                step(JUMP_EQUAL, high(*most), Target::Next, Target::Pass);
            }
            step(LOAD, low_at, Target::Next, Target::Next);
            step(JUMP_GREATER, low(*most), Target::Fail, Target::Next);
        }
    }
    let end = steps.len();
    for (at, step) in steps.iter_mut().enumerate().skip(start) {
        step.rest = end.saturating_sub(at).saturating_sub(1);
    }
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
