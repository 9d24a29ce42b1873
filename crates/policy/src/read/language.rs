//! `[language]`: what an interpreter of the language tier holds by itself.

use super::{Reader, fault};
use crate::diagnostic::quote;
use crate::document::Node;
use crate::value::Language;

pub(crate) const LANGUAGE: &[&str] = &["modules", "steps", "recursion"];

/// What an interpreter's own stack holds.
pub(crate) const MAX_RECURSION: u32 = 1000;

impl Reader<'_> {
    pub(crate) fn language(&mut self, tree: &Node, language: &mut Language) {
        let Some(node) = tree.get("language") else { return };
        if self.table("language", node, LANGUAGE).is_none() {
            return;
        }
        self.put(tree, "language.modules", &mut language.modules, |r, p, n| r.limit(p, n, Self::modules));
        self.put(tree, "language.steps", &mut language.steps, |r, p, n| {
            r.limit(p, n, |r, p, n| r.whole(p, n, 1000, 1 << 60))
        });
        self.put(tree, "language.recursion", &mut language.recursion, |r, p, n| {
            r.limit(p, n, |r, p, n| r.small(p, n, 10, MAX_RECURSION))
        });
    }

    fn modules(&mut self, path: &str, node: &Node) -> Option<Vec<String>> {
        let mut list = Vec::new();
        for item in self.items(path, node)? {
            let Some(name) = self.text(path, item) else { continue };
            let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if first && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                list.push(name);
                continue;
            }
            let what = format!("{} is not a name of a module", quote(&name));
            let fix = "name whole modules, as `import` does: \"math\", \"json\"";
            self.note(path, item.place, fault("value/module", what, "a module is allowed with all that it has", fix));
        }
        list.sort();
        list.dedup();
        Some(list)
    }
}
