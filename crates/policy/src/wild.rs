//! Wildcards that stand for any number of items: letters of a name, segments of a path.

/// Whether items are what a pattern names. `any` says which items of the pattern stand for any number of items, none included;
/// `same` whether another one means an item. One pass with one way back and no recursion: the time is the product of the
/// lengths at most.
#[must_use]
pub fn matches<P, T>(pattern: &[P], items: &[T], any: impl Fn(&P) -> bool, same: impl Fn(&P, &T) -> bool) -> bool {
    let (mut p, mut i) = (0_usize, 0_usize);
    let mut back: Option<(usize, usize)> = None;
    while let Some(item) = items.get(i) {
        match pattern.get(p) {
            Some(one) if any(one) => {
                back = Some((p, i));
                p = p.saturating_add(1);
            }
            Some(one) if same(one, item) => {
                p = p.saturating_add(1);
                i = i.saturating_add(1);
            }
            Some(_) | None => {
                let Some((star, from)) = back else { return false };
                back = Some((star, from.saturating_add(1)));
                p = star.saturating_add(1);
                i = from.saturating_add(1);
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(any)
}
