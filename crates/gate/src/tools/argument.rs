//! Which part of the arguments a guard is about: `to`, `message.to`, `recipients[]`, `rows[].name`.

use serde_json::{Map, Value as Json};

use crate::blocked::Blocked;
use crate::guard::Compiled;
use crate::schema::{Step, beginnings};

/// The way to a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) steps: Vec<Step>,
}

impl Argument {
    /// Of `rows[].name`; shapes were checked when the policy was read.
    pub(super) fn new(path: &str) -> Self {
        let mut steps = Vec::new();
        for part in path.split('.') {
            let name = part.trim_end_matches("[]");
            steps.push(Step::Name(name.to_owned()));
            let each = part.len().saturating_sub(name.len()) / 2;
            steps.extend(std::iter::repeat_n(Step::Each, each));
        }
        Self { steps }
    }

    /// As a policy writes it.
    pub(super) fn shown(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            match step {
                Step::Name(name) if text.is_empty() => text.push_str(name),
                Step::Name(name) => text.extend([".", name.as_str()]),
                Step::Each => text.push_str("[]"),
            }
        }
        text
    }

    /// Whether it leads into the argument of this name.
    pub(super) fn begins_at(&self, argument: &str) -> bool {
        beginnings(&self.steps).any(|(name, _)| name == argument)
    }

    /// Lets a guard judge every value that the way leads to, and puts what passed in its place. An argument that is not
    /// given is not judged: whether it must be given, the schema says.
    pub(super) fn pass(&self, args: &mut Json, guard: &Compiled, blocked: &mut Vec<(String, Blocked)>) {
        walk(&self.steps, args, "args", guard, blocked);
    }
}

fn walk(steps: &[Step], value: &mut Json, at: &str, guard: &Compiled, blocked: &mut Vec<(String, Blocked)>) {
    let Some((step, rest)) = steps.split_first() else {
        match guard.pass(value) {
            Ok(passed) => *value = passed,
            Err(why) => blocked.push((at.to_owned(), why)),
        }
        return;
    };
    match (step, value) {
        (Step::Name(_), Json::Object(map)) => members(steps, map, at, guard, blocked),
        (Step::Each, Json::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                walk(rest, item, &format!("{at}[{index}]"), guard, blocked);
            }
        }
        (step, _) => {
            let wanted = if *step == Step::Each { "a list" } else { "an object" };
            let why = Blocked {
                id: "tools.guard/shape",
                what: format!("`{at}` is not {wanted}"),
                why: "the guard is about a part of it, and there are no parts".to_owned(),
                instead: format!("give {wanted}"),
            };
            blocked.push((at.to_owned(), why));
        }
    }
}

/// Each member that a way may mean: `user.email` is the member `email` of `user`, and one that is called `user.email`. What has
/// no parts is only judged for that where no member has the longer name.
fn members(
    steps: &[Step],
    map: &mut Map<String, Json>,
    at: &str,
    guard: &Compiled,
    blocked: &mut Vec<(String, Blocked)>,
) {
    let meant: Vec<(String, &[Step])> = beginnings(steps).filter(|(name, _)| map.contains_key(name)).collect();
    for (index, (name, rest)) in meant.iter().enumerate() {
        let longer = meant.len() > index.saturating_add(1);
        let Some(part) = map.get_mut(name) else { continue };
        let partless = matches!(rest.first(), Some(Step::Name(_))) && !part.is_object();
        if !(longer && partless) {
            walk(rest, part, &format!("{at}.{name}"), guard, blocked);
        }
    }
}

/// Where there is no schema, guards alone say which arguments there are: the first that none of them names.
pub(super) fn unnamed(args: &Json, guards: &[&[Step]]) -> Option<String> {
    match args {
        Json::Object(map) => in_object(map, guards),
        Json::Array(items) => {
            let below = of_each(guards);
            items
                .iter()
                .enumerate()
                .find_map(|(index, item)| below_of(item, &below).map(|name| format!("[{index}]{name}")))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
    }
}

fn in_object(map: &Map<String, Json>, guards: &[&[Step]]) -> Option<String> {
    map.iter().find_map(|(name, value)| {
        let below = of_member(guards, name);
        below_of(value, &below).map(|rest| format!(".{name}{rest}"))
    })
}

fn below_of(value: &Json, below: &[&[Step]]) -> Option<String> {
    if below.is_empty() {
        return Some(String::new());
    }
    // Judged as a whole: its parts are the guard's business.
    if below.iter().any(|steps| steps.is_empty()) { None } else { unnamed(value, below) }
}

fn of_each<'s>(guards: &[&'s [Step]]) -> Vec<&'s [Step]> {
    guards
        .iter()
        .filter_map(|steps| steps.split_first())
        .filter(|(first, _)| **first == Step::Each)
        .map(|(_, rest)| rest)
        .collect()
}

fn of_member<'s>(guards: &[&'s [Step]], name: &str) -> Vec<&'s [Step]> {
    guards.iter().copied().flat_map(beginnings).filter(|(begun, _)| begun == name).map(|(_, rest)| rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ways_are_read() {
        let name = |name: &str| Step::Name(name.to_owned());
        assert_eq!(Argument::new("to").steps, [name("to")]);
        assert_eq!(Argument::new("rows[].name").steps, [name("rows"), Step::Each, name("name")]);
        assert_eq!(Argument::new("a[][]").steps, [name("a"), Step::Each, Step::Each]);
        for way in ["to", "rows[].name", "a[][]", "a.b.c"] {
            assert_eq!(Argument::new(way).shown(), way);
        }
        assert!(Argument::new("a.b[].c").begins_at("a") && Argument::new("a.b[].c").begins_at("a.b"));
        assert!(!Argument::new("a.b[].c").begins_at("a.b[].c") && !Argument::new("a.b").begins_at("b"));
    }

    #[test]
    fn what_no_guard_names_is_found_at_any_depth() {
        let ways: Vec<Argument> = ["to", "message.to", "rows[].id"].map(Argument::new).to_vec();
        let ways: Vec<&[Step]> = ways.iter().map(|way| way.steps.as_slice()).collect();
        assert_eq!(unnamed(&json!({"to": {"x": 1}, "message": {"to": 1}, "rows": [{"id": 1}]}), &ways), None);
        assert_eq!(unnamed(&json!({"message.to": 1}), &ways), None);
        assert_eq!(unnamed(&json!({"message.bcc": 1}), &ways), Some(".message.bcc".to_owned()));
        assert_eq!(unnamed(&json!({"bcc": 1}), &ways), Some(".bcc".to_owned()));
        assert_eq!(unnamed(&json!({"message": {"to": 1, "bcc": 2}}), &ways), Some(".message.bcc".to_owned()));
        assert_eq!(unnamed(&json!({"rows": [{"id": 1}, {"id": 1, "x": 2}]}), &ways), Some(".rows[1].x".to_owned()));
    }
}
