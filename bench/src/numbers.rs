//! Medians, tenth percentiles, and ratios taken within a round.

/// The value below which `share` (0 to 1) of the values lie; `None` of nothing.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = (share * last as f64).round() as usize;
    sorted.get(at).copied()
}

/// The middle value.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// One series for each contestant, one value for each round; a round that failed is `NaN`.
#[derive(Default)]
pub struct Rounds {
    series: Vec<(String, Vec<f64>)>,
}

impl Rounds {
    /// Adds the value of one contestant in the running round.
    pub fn push(&mut self, id: &str, value: f64) {
        match self.series.iter_mut().find(|(name, _)| name == id) {
            Some((_, values)) => values.push(value),
            None => self.series.push((id.to_owned(), vec![value])),
        }
    }

    /// All values of a contestant; empty when it did not take part.
    pub fn of(&self, id: &str) -> &[f64] {
        self.series.iter().find(|(name, _)| name == id).map_or(&[], |(_, values)| values)
    }

    /// How many rounds of a contestant failed.
    pub fn failures(&self, id: &str) -> usize {
        self.of(id).iter().filter(|value| value.is_nan()).count()
    }

    /// The ratios of two contestants, each within one round: never numbers of two moments.
    pub fn ratios(&self, id: &str, to: &str) -> Vec<f64> {
        self.of(id).iter().zip(self.of(to)).map(|(ours, theirs)| ours / theirs).collect()
    }

    /// The median of the ratios within rounds.
    pub fn ratio(&self, id: &str, to: &str) -> Option<f64> {
        median(&self.ratios(id, to))
    }

    /// The ratio of the tenth percentiles: what both cost when nothing interferes.
    pub fn best_ratio(&self, id: &str, to: &str) -> Option<f64> {
        Some(quantile(self.of(id), 0.1)? / quantile(self.of(to), 0.1)?)
    }
}
