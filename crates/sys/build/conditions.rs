//! What stands in the texts of a rule: its actions, and conditions on arguments.

use super::rule::{Action, All, Condition, Test, Width};

/// `allow`, `kill`, `done`, or the name of an errno that the profiles use.
pub fn action(text: &str) -> Option<Action> {
    const ACTIONS: [(&str, Action); 11] = [
        ("allow", Action::Allow),
        ("kill", Action::Kill),
        // It is not executed, and its caller is told that it was.
        ("done", Action::Errno(0)),
        ("EPERM", Action::Errno(1)),
        ("ENOMEM", Action::Errno(12)),
        ("EACCES", Action::Errno(13)),
        ("EINVAL", Action::Errno(22)),
        ("ENOSPC", Action::Errno(28)),
        ("ENOSYS", Action::Errno(38)),
        ("EOPNOTSUPP", Action::Errno(95)),
        ("EAFNOSUPPORT", Action::Errno(97)),
    ];
    ACTIONS.into_iter().find(|(name, _)| *name == text).map(|(_, action)| action)
}

/// `int0 in 2 10 and int1 & 0xf = 1 and long2 <= 4`: conditions on arguments 0 to 5, `int` for the low 32 bits.
///
/// # Errors
/// The condition that does not fit.
pub fn conditions(text: &str) -> Result<All, String> {
    let one = |one: &str| condition(one.trim()).ok_or_else(|| format!("`{one}` is no condition on an argument"));
    text.split(" and ").map(one).collect()
}

fn condition(text: &str) -> Option<Condition> {
    let mut words = text.split_ascii_whitespace();
    let argument = words.next()?;
    let (width, digit) = match (argument.strip_prefix("int"), argument.strip_prefix("long")) {
        (Some(digit), _) => (Width::Int, digit),
        (None, Some(digit)) => (Width::Long, digit),
        (None, None) => return None,
    };
    let argument = digit.parse().ok().filter(|argument| *argument < 6u8)?;
    let every = if width == Width::Int { 0xffff_ffff } else { u64::MAX };
    let mut operator = words.next()?;
    let mut mask = every;
    if operator == "&" {
        mask = number(words.next()?)?;
        operator = words.next()?;
    }
    let values: Vec<u64> = words.map(number).collect::<Option<_>>()?;
    let (first, more) = values.split_first()?;
    let fits = values.iter().all(|value| value & !mask == 0) && mask & !every == 0;
    let test = match operator {
        "=" if more.is_empty() => Test::MaskedIn { mask, values: values.into() },
        "in" => Test::MaskedIn { mask, values: values.into() },
        "!=" if more.is_empty() && mask == every => Test::Ne(*first),
        "<=" if more.is_empty() && mask == every => Test::Le(*first),
        _ => return None,
    };
    fits.then_some(Condition { argument, width, test })
}

fn number(text: &str) -> Option<u64> {
    match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) => u64::from_str_radix(digits, 8).ok(),
        (None, None) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_and_conditions_parse_and_nonsense_does_not() {
        let parsed = conditions("int0 in 2 10 and int1 & 0xf = 1 and long2 <= 4 and int3 != 0o7").unwrap();
        assert_eq!(parsed.len(), 4);
        assert_eq!(parsed[1].test, Test::MaskedIn { mask: 0xf, values: vec![1].into() });
        assert_eq!((parsed[2].argument, parsed[2].width), (2, Width::Long));
        for bad in [
            "int6 = 1",
            "int0 == 1",
            "0 = 1",
            "int0 = ",
            "int0 & 1 = 2",
            "int0 = 0x100000000",
            "int0 & 3 <= 1",
            "int0 = 1 2",
        ] {
            assert!(conditions(bad).is_err(), "{bad}");
        }
        assert_eq!([action("done"), action("EPERM")], [Some(Action::Errno(0)), Some(Action::Errno(1))]);
        assert_eq!([action("ENOENT"), action("")], [None, None]);
    }
}
