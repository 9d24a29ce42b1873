//! The controls of one clause together.

use super::{Control, Filter, Strength};
use crate::value::Threat;

/// The controls of one clause. The first one holds it; the others stand behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Controls(Vec<Control>);

impl Controls {
    /// These, the one that holds the clause first.
    #[must_use]
    pub fn new(first: Control, others: impl IntoIterator<Item = Control>) -> Self {
        Self(std::iter::once(first).chain(others).collect())
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Control> {
        self.0.iter()
    }

    /// Their names, each once, with `+` between.
    #[must_use]
    pub fn enforcer(&self) -> String {
        let mut names: Vec<String> = Vec::with_capacity(self.0.len());
        for control in &self.0 {
            let name = control.name();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join("+")
    }

    /// Who holds the clause.
    #[must_use]
    pub fn strength(&self) -> Strength {
        self.0.first().map_or(Strength::Supervisor, Control::strength)
    }

    /// Against whom the clause holds.
    #[must_use]
    pub fn against(&self) -> Threat {
        let closed =
            |filter: &Filter| self.0.iter().any(|control| matches!(control, Control::Filter(own) if own == filter));
        match self.0.first() {
            // Nothing is left by which a program could hide from those who look.
            Some(Control::Watch(watch)) if watch.hidden_by().is_some_and(|all| all.iter().all(closed)) => {
                Threat::Hostile
            }
            Some(first) => first.against(),
            None => Threat::Mistakes,
        }
    }

    /// How far the clause may be passed, in words; `None` = not at all.
    #[must_use]
    pub fn overshoot(&self) -> Option<String> {
        let mut all: Vec<&str> = Vec::new();
        for words in self.0.iter().filter_map(Control::overshoot) {
            if !all.contains(&words) {
                all.push(words);
            }
        }
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What must be seen before *go*, each once.
    #[must_use]
    pub fn evidence(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for control in &self.0 {
            let words = control.evidence().to_string();
            if !all.contains(&words) {
                all.push(words);
            }
        }
        all
    }
}

impl From<Control> for Controls {
    fn from(control: Control) -> Self {
        Self(vec![control])
    }
}
