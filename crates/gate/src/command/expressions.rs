//! `test` and `[`: forms in which every operator is written out.
//!
//! `test -v 'a[$(x)]'` runs what stands in the brackets, also when the operator comes out of a variable: so the operator must be
//! literal and listed, in a form where bash cannot take an operand for one.

use super::options::{Check, ParsedArguments, blocked};
use super::table::Kind;
use super::words::{Value, Word};
use crate::blocked::Blocked;
use policy::diagnostic::quote;

const UNARY: &[&str] = &[
    "-a", "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-L", "-n", "-p", "-r", "-s", "-S", "-t", "-u", "-w", "-x",
    "-z", "-O", "-G", "-N",
];
const BINARY: &[&str] = &["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"];

/// Those of them that look at no file.
const OF_TEXT: &[&str] = &["-n", "-t", "-z"];

static ANY: Kind = Kind::Any;
static PATH: Kind = Kind::Path;

/// Whether an operator of one operand is harmless.
pub(super) fn is_unary(operator: &str) -> bool {
    UNARY.contains(&operator)
}

pub(super) fn test(program: &str, words: &[Word], given: &mut ParsedArguments<'_>) -> Result<(), Blocked> {
    let words = if program == "[" {
        match words.split_last() {
            Some((last, rest)) if last.text() == Some("]") => rest,
            Some(_) | None => return Err(wrong(program, words)),
        }
    } else {
        words
    };
    let one = |word: &Word| matches!(word.value, Value::Literal(_) | Value::One(_));
    if !words.iter().all(one) {
        return Err(wrong(program, words));
    }
    let literal = |at: usize| words.get(at).and_then(Word::text);
    let negated = usize::from(literal(0) == Some("!") && words.len() > 2);
    let operands: Vec<&Word> = match words.len().saturating_sub(negated) {
        0 => Vec::new(),
        1 => words.iter().skip(negated).collect(),
        2 if literal(negated).is_some_and(is_unary) => words.iter().skip(negated).skip(1).collect(),
        3 if literal(negated.saturating_add(1)).is_some_and(|operator| BINARY.contains(&operator)) => {
            words.iter().skip(negated).step_by(2).collect()
        }
        _ => return Err(wrong(program, words)),
    };
    let of_file = operands.len() == 1 && literal(negated).is_some_and(|operator| !OF_TEXT.contains(&operator));
    for word in operands {
        // Where a variable leads only running tells; all that is learned of the file is whether it is there.
        let is_file = of_file && words.len() > negated.saturating_add(1) && word.text().is_some();
        given.checks.push(Check {
            word: word.clone(),
            kind: if is_file { &PATH } else { &ANY },
            role: format!("operand {}", quote(&word.raw)),
            operand: true,
        });
    }
    Ok(())
}

fn wrong(program: &str, words: &[Word]) -> Blocked {
    let shown: Vec<&str> = words.iter().map(|word| word.raw.as_str()).collect();
    blocked(
        "commands.builtin/expression",
        format!("the expression {} of `{program}` is not one that can be proven", quote(&shown.join(" "))),
        "some operators evaluate text, and an operator may come out of a variable or a pattern",
        "[ -f FILE ], [ \"$a\" = b ], [ ! -d FOLDER ]; join several with && and ||",
    )
}
