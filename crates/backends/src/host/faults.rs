//! Faults of the programs that backends start, which later releases do not have.

/// A release, as numbers.
pub(super) type Release = [u32; 3];

/// The numbers that it begins with; what is left out is 0.
pub(super) fn release(version: &str) -> Option<Release> {
    let mut parts = version.split('.').map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part.get(..end).and_then(|digits| digits.parse::<u32>().ok())
    });
    let first = parts.next()??;
    Some([first, parts.next().flatten().unwrap_or(0), parts.next().flatten().unwrap_or(0)])
}

/// A fault that later releases do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its public number.
    pub id: &'static str,
    /// The first release without it, of each series that was mended.
    pub mended: &'static str,
    /// What it lets through.
    pub what: &'static str,
}

/// Those of a table that a release still has. A line is `number releases words`.
pub(super) fn known(table: &'static str, of: Release) -> impl Iterator<Item = Fault> {
    let one = |line: &'static str| {
        let mut words = line.splitn(3, ' ');
        Some(Fault { id: words.next()?, mended: words.next()?, what: words.next()? })
    };
    let all = table.lines().filter(|line| !line.starts_with('#')).filter_map(one);
    all.filter(move |fault| !is_mended(fault.mended, of))
}

/// Whether a release is as new as the newest of these, or as the one of its own series.
fn is_mended(mended: &str, of: Release) -> bool {
    let all: Vec<Release> = mended.split(',').filter_map(release).collect();
    let series = |one: &Release| one.iter().take(2).eq(of.iter().take(2));
    all.iter().max().is_some_and(|newest| of >= *newest) || all.iter().any(|one| series(one) && of >= *one)
}

/// That every line of a table is read.
#[cfg(test)]
pub(super) fn assert_read(table: &'static str) {
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
    assert!(lines > 0 && known(table, [0; 3]).count() == lines);
    assert_eq!(known(table, [u32::MAX; 3]).count(), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_as_mended_as_its_series() {
        let mended = "7.2.11,8.2.3,9.0.0";
        for (of, holds) in [
            ([7, 2, 10], false),
            ([7, 2, 11], true),
            ([8, 0, 9], false),
            ([8, 2, 2], false),
            ([8, 2, 3], true),
            ([9, 0, 0], true),
            ([10, 1, 0], true),
            ([0, 0, 0], false),
        ] {
            assert_eq!(is_mended(mended, of), holds, "{of:?}");
        }
    }
}
