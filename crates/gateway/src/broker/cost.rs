//! What a call did cost, as its result says: in millionths, exactly, rounded up. What is no cost is not believed.

use gate::ToolJudgement;
use gate::demand::Want;
use gate::result::ToolResult;
use serde_json::Value as Json;

/// Costs by the number of their demand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    /// What to settle to.
    pub(super) actual: Vec<(usize, u64)>,
    /// What was reported and not believed.
    pub(super) refused: Vec<String>,
}

/// Reads the costs that a result reports. Where there is none, or nonsense, the worst case stands.
pub(super) fn reported(result: &ToolResult, judged: &ToolJudgement) -> Costs {
    let mut costs = Costs::default();
    for (demand, pointer) in &judged.reported {
        let reserved = match judged.limits.get(*demand).map(|demand| demand.want) {
            Some(Want::Budget { cost, .. }) => cost,
            Some(Want::Rate { .. } | Want::Concurrency(_)) | None => continue,
        };
        let found = find(result, pointer);
        match found.and_then(millionths) {
            Some(cost) if cost <= reserved => costs.actual.push((*demand, cost)),
            Some(_) => costs.refused.push(format!("`{pointer}` is more than the reserved worst case")),
            None if found.is_some() => costs.refused.push(format!("`{pointer}` is no cost")),
            None => costs.refused.push(format!("`{pointer}` is missing")),
        }
    }
    costs
}

/// In the structured content, else in `_meta`; both also by their names in MCP.
fn find<'r>(result: &'r ToolResult, pointer: &str) -> Option<&'r Json> {
    let (structured, meta) = (result.structured.as_ref(), result.meta.as_ref());
    if let Some(below) = pointer.strip_prefix("/_meta") {
        return meta?.pointer(below);
    }
    if let Some(below) = pointer.strip_prefix("/structuredContent") {
        return structured?.pointer(below);
    }
    structured.and_then(|value| value.pointer(pointer)).or_else(|| meta?.pointer(pointer))
}

/// A number of units as millionths; the digits are read, so that no binary fraction rounds down.
fn millionths(value: &Json) -> Option<u64> {
    let Json::Number(number) = value else { return None };
    if let Some(whole) = number.as_u64() {
        return whole.checked_mul(1_000_000);
    }
    let double = number.as_f64().filter(|double| double.is_finite() && *double >= 0.0)?.abs();
    // Display of a double is its shortest decimal form, without an exponent.
    let text = double.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let (kept, rest) = part.split_at_checked(part.len().min(6))?;
    let padded = format!("{kept:0<6}");
    let mut amount = whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(padded.parse::<u64>().ok()?)?;
    if rest.bytes().any(|digit| digit != b'0') {
        amount = amount.checked_add(1)?;
    }
    Some(amount)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn costs_are_exact_and_rounded_up() {
        for (value, cost) in [
            (json!(0), Some(0)),
            (json!(2), Some(2_000_000)),
            (json!(0.02), Some(20_000)),
            (json!(0.1), Some(100_000)),
            (json!(0.000_001), Some(1)),
            (json!(0.000_000_1), Some(1)),
            (json!(1.000_000_01), Some(1_000_001)),
            (json!(1e-300), Some(1)),
            (json!(-0.0), Some(0)),
            (json!(-1), None),
            (json!(-0.5), None),
            (json!(1e300), None),
            (json!(u64::MAX), None),
            (json!("1"), None),
            (json!(null), None),
            (json!([1]), None),
        ] {
            assert_eq!(millionths(&value), cost, "{value}");
        }
    }
}
