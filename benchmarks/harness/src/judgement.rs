//! The judgement of a bench about the promises behind it; a command fails if one was not kept.

#![expect(
    clippy::neg_cmp_op_on_partial_ord,
    reason = "a figure that is not a number reaches no mark"
)]

use serde::Serialize;

/// The outcome of a bench: a document whose keys name their units, and the promises behind it.
pub trait Judged: Serialize {
    /// Keys of single turns and the like, which are in the JSON document and not in the text.
    const DETAILS: &'static [&'static str] = &[];

    fn judged(&self) -> Judgement;
}

/// Sentences about promises that a run did not show to be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Promises that were certainly not kept.
    pub missed: Vec<String>,
    /// The machine was too noisy, or there were too few rounds, to say.
    pub inconclusive: Vec<String>,
}

impl Judgement {
    /// Notes `what` as missed unless `figure` is at least `least`.
    #[must_use]
    pub fn at_least(mut self, what: &str, figure: f64, least: f64) -> Self {
        // Written so that NaN counts as missed.
        if !(figure >= least) {
            self.missed.push(format!("{what}: {figure:.3}, at least {least} is promised"));
        }
        self
    }

    /// Notes `what` as missed unless `figure` is at most `most`.
    #[must_use]
    pub fn at_most(mut self, what: &str, figure: f64, most: f64) -> Self {
        if !(figure <= most) {
            self.missed.push(format!("{what}: {figure:.3}, at most {most} is promised"));
        }
        self
    }

    #[must_use]
    pub fn and(mut self, mut other: Self) -> Self {
        self.missed.append(&mut other.missed);
        self.inconclusive.append(&mut other.inconclusive);
        self
    }

    /// Adds a figure with a verdict of the bench's own.
    #[must_use]
    pub fn verdict(mut self, what: String, verdict: &str) -> Self {
        match verdict {
            "missed" | "differs" => self.missed.push(what),
            "inconclusive" => self.inconclusive.push(what),
            _ => (),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_misses_its_mark_or_not() {
        let judged = Judgement::default().at_least("a", 3.0, 3.0).at_most("b", 1.0, 1.0);
        assert_eq!(judged, Judgement::default());
        let judged = judged.at_least("rate", 2.9, 3.0).at_most("time", f64::NAN, 1.0);
        assert_eq!(
            judged.missed,
            ["rate: 2.900, at least 3 is promised", "time: NaN, at most 1 is promised"]
        );
    }

    #[test]
    fn an_inconclusive_figure_is_neither_kept_nor_missed() {
        let judged = ["kept", "missed", "inconclusive", "agrees", "differs"]
            .into_iter()
            .fold(Judgement::default(), |judged, it| judged.verdict(it.to_owned(), it));
        assert_eq!(judged.missed, ["missed", "differs"]);
        assert_eq!(judged.inconclusive, ["inconclusive"]);
    }
}
