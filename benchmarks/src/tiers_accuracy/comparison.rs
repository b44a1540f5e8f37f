//! One figure of tierfeed beside that of a reference, in turns.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    paired::{Figure, Pair, Ratio, Verdict, is_enough, judge, median_of_sorted},
    sample::Statistic,
};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) reference: &'static str,
    /// Threads that compute, or requests in flight.
    pub(super) parallel: usize,
    pub(super) statistic: Statistic,
    /// `bytes_per_s`, `ns` or `per_s`.
    pub(super) unit: &'static str,
    /// The largest distance of the ratio from one.
    pub(super) tolerance: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) what: &'static str,
    pub(crate) reference: &'static str,
    /// Threads that computed, or requests in flight.
    pub(crate) parallel: usize,
    pub(crate) statistic: Statistic,
    /// The medians of both sides over all undisturbed turns: `ours_ns`, `reference_ns`, in other units likewise.
    #[serde(flatten)]
    pub(crate) figures: BTreeMap<String, f64>,
    /// The ratio of ours and the reference's, within pairs.
    pub(crate) ratio: Option<Ratio>,
    pub(crate) tolerance: f64,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    /// Every pair, in order, including those that do not count.
    pub(crate) pairs: Vec<Pair>,
}

/// One turn of a side: a figure for each row.
pub(super) type Turn = Vec<Figure>;

/// Runs both sides in turns until each row has `pairs` undisturbed pairs, or twice as many at all.
pub(super) fn alternate(
    rows: &[Row],
    pairs: usize,
    mut ours: impl FnMut() -> anyhow::Result<Turn>,
    mut reference: impl FnMut() -> anyhow::Result<Turn>,
) -> anyhow::Result<Vec<Comparison>> {
    let mut found: Vec<Vec<Pair>> = vec![Vec::new(); rows.len()];
    for _ in 0..2 * pairs {
        if found.iter().all(|of_row| is_enough(of_row, pairs)) {
            break;
        }
        let (ours, reference) = (ours()?, reference()?);
        anyhow::ensure!(
            ours.len() == rows.len() && reference.len() == rows.len(),
            "a turn lacks figures"
        );
        for ((of_row, ours), reference) in found.iter_mut().zip(ours).zip(reference) {
            of_row.push(Pair { ours, reference });
        }
    }
    Ok(rows.iter().zip(found).map(|(row, pairs)| row.compared(pairs)).collect())
}

impl Row {
    fn compared(&self, pairs: Vec<Pair>) -> Comparison {
        let (ratio, verdict) = judge(&pairs, self.tolerance);
        self.comparison(pairs, ratio, verdict)
    }

    /// The comparison without a reference, or without a figure of ours.
    pub(super) fn without_figures(&self, why: &str) -> Comparison {
        self.comparison(Vec::new(), None, Verdict::inconclusive(why))
    }

    fn comparison(&self, pairs: Vec<Pair>, ratio: Option<Ratio>, verdict: Verdict) -> Comparison {
        Comparison {
            what: self.what,
            reference: self.reference,
            parallel: self.parallel,
            statistic: self.statistic,
            figures: self.figures(&pairs).unwrap_or_default(),
            ratio,
            tolerance: self.tolerance,
            verdict,
            pairs,
        }
    }

    /// Medians over the undisturbed turns, over all where none was.
    fn figures(&self, pairs: &[Pair]) -> Option<BTreeMap<String, f64>> {
        let is_any_undisturbed = pairs.iter().any(Pair::is_undisturbed);
        let counted = || pairs.iter().filter(|it| it.is_undisturbed() || !is_any_undisturbed);
        let middle = |of: fn(&Pair) -> f64| {
            let mut values: Vec<f64> = counted().map(of).collect();
            values.sort_by(f64::total_cmp);
            (!values.is_empty()).then(|| median_of_sorted(&values))
        };
        let ours = middle(|pair| pair.ours.value)?;
        let reference = middle(|pair| pair.reference.value)?;
        let named = |(side, figure)| (format!("{side}_{}", self.unit), figure);
        Some([("ours", ours), ("reference", reference)].map(named).into())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const ROW: Row = Row {
        what: "copy",
        reference: "another",
        parallel: 1,
        statistic: Statistic::Best,
        unit: "bytes_per_s",
        tolerance: 0.05,
    };

    fn figure(value: f64, cpu_share: f64) -> Figure {
        Figure { value, cpu_share: Some(cpu_share), page_share: Some(1.0) }
    }

    #[test]
    fn the_sides_take_turns_until_there_are_enough_pairs() {
        let order = RefCell::new(String::new());
        let side = |name| {
            order.borrow_mut().push(name);
            Ok(vec![figure(2.0, 1.0)])
        };
        let compared = alternate(&[ROW], 6, || side('a'), || side('b')).unwrap();
        assert_eq!(order.into_inner(), "abababababab");
        assert_eq!((compared[0].verdict.name, compared[0].pairs.len()), ("agrees", 6));
    }

    #[test]
    fn disturbed_pairs_are_repeated_and_kept_in_the_document() {
        let mut turn = 0;
        let ours = || {
            turn += 1;
            Ok(vec![figure(2.0, if turn % 2 == 0 { 0.5 } else { 1.0 })])
        };
        let compared = alternate(&[ROW], 6, ours, || Ok(vec![figure(2.0, 1.0)])).unwrap();
        assert_eq!((compared[0].verdict.name, compared[0].pairs.len()), ("agrees", 11));
    }

    #[test]
    fn a_machine_that_is_never_quiet_ends_the_turns() {
        let busy = || Ok(vec![figure(2.0, 0.5)]);
        let compared = alternate(&[ROW], 6, busy, busy).unwrap();
        assert_eq!((compared[0].verdict.name, compared[0].pairs.len()), ("inconclusive", 12));
        assert!(compared[0].verdict.reason.as_ref().unwrap().contains("CPU share"));
        assert!(compared[0].figures.contains_key("ours_bytes_per_s"));
    }

    #[test]
    fn the_document_has_units_in_its_keys() {
        let side = || Ok(vec![figure(2.0, 1.0)]);
        let compared = alternate(&[ROW], 6, side, side).unwrap();
        let document = serde_json::to_value(&compared[0]).unwrap();
        assert_eq!(document["ours_bytes_per_s"], 2.0);
        assert_eq!(document["reference_bytes_per_s"], 2.0);
        assert_eq!(document["ratio"]["low"], 1.0);
        let missing = serde_json::to_value(ROW.without_figures("no compiler")).unwrap();
        assert_eq!(
            (&missing["verdict"], &missing["reason"]),
            (&"inconclusive".into(), &"no compiler".into())
        );
    }
}
