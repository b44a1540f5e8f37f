//! Claims of papers, and their outcome here.

use crate::figure::{Headline, Value, Verdict};

/// "So many per cent less time", as published, and for `ours` against `theirs` here. `None` where a side has
/// no turn.
pub(crate) fn less_time(
    what: &str,
    published_percent: f64,
    ours: Option<Value>,
    theirs: Option<Value>,
) -> Option<Headline> {
    let (ours, theirs) = (ours?, theirs?);
    let less = |ours: f64, theirs: f64| 100.0 * (1.0 - ours / theirs);
    let here = less(ours.median, theirs.median);
    let (low, high) = (less(ours.most, theirs.least), less(ours.least, theirs.most));
    let digits = usize::from(published_percent.fract() > 0.0);
    Some(Headline {
        what: what.to_owned(),
        published: format!("-{published_percent:.digits$} %"),
        here: format!("{:+.digits$} % ({:+.digits$} to {:+.digits$})", -here, -low, -high),
        measured: Some(Value { median: here, least: low, most: high }),
        verdict: verdict(published_percent, here, low, high),
        why: String::new(),
    })
}

/// "Time falls": by how many per cent from `first` to `last`. The paper has no figure for it.
pub(crate) fn falls(what: &str, first: Option<Value>, last: Option<Value>) -> Option<Headline> {
    let claim = less_time(what, 0.0, last, first)?;
    let verdict = match claim.verdict {
        Verdict::Beaten => Verdict::Reproduced,
        Verdict::Reproduced => Verdict::Inconclusive,
        other => other,
    };
    Some(Headline { published: "falls".to_owned(), verdict, ..claim })
}

/// "So many times as fast", as published, and for `ours` over `theirs` here, in a unit of which more is
/// better.
pub(crate) fn times_as_much(
    what: &str,
    published: f64,
    ours: Option<Value>,
    theirs: Option<Value>,
) -> Option<Headline> {
    let (ours, theirs) = (ours?, theirs?);
    let here = ours.median / theirs.median;
    let (low, high) = (ours.least / theirs.most, ours.most / theirs.least);
    Some(Headline {
        what: what.to_owned(),
        published: format!("{published:.2} x"),
        here: format!("{here:.2} x ({low:.2} to {high:.2})"),
        measured: Some(Value { median: here, least: low, most: high }),
        verdict: verdict(published, here, low, high),
        why: String::new(),
    })
}

/// "So many times as fast", as published, and for `ours` over `theirs` here, in a unit of which less is
/// better, such as time.
pub(crate) fn times_as_fast(
    what: &str,
    published: f64,
    ours: Option<Value>,
    theirs: Option<Value>,
) -> Option<Headline> {
    times_as_much(what, published, theirs, ours)
}

/// "So many points less of something unwanted": a difference of shares, as published, and for `ours` against
/// `theirs` here.
pub(crate) fn fewer_points(
    what: &str,
    published: f64,
    ours: Option<Value>,
    theirs: Option<Value>,
) -> Option<Headline> {
    let (ours, theirs) = (ours?, theirs?);
    let less = Value {
        median: theirs.median - ours.median,
        least: theirs.least - ours.most,
        most: theirs.most - ours.least,
    };
    let points = |share: f64| format!("{:+.1}", -100.0 * share);
    let Value { median, least, most } = less;
    Some(Headline {
        what: what.to_owned(),
        published: format!("{} points", points(published)),
        here: format!("{} points ({} to {})", points(median), points(least), points(most)),
        measured: Some(less),
        verdict: verdict(published, median, least, most),
        why: String::new(),
    })
}

/// "No slower than another side". The paper has no figure for it.
pub(crate) fn no_slower(
    what: &str,
    ours: Option<Value>,
    theirs: Option<Value>,
) -> Option<Headline> {
    let claim = less_time(what, 0.0, ours, theirs)?;
    let verdict = match claim.verdict {
        Verdict::Beaten => Verdict::Reproduced,
        other => other,
    };
    // Not per cent of about nothing, of which floors would allow a part of about nothing.
    let Headline { measured, .. } = times_as_fast(what, 1.0, ours, theirs)?;
    let why = match verdict {
        Verdict::Inconclusive => "the ranges of the turns overlap".to_owned(),
        _ => claim.why,
    };
    Some(Headline { published: "no slower".to_owned(), measured, verdict, why, ..claim })
}

/// A share of which more is better, as published and here.
pub(crate) fn at_least(what: &str, published: f64, ours: Option<Value>) -> Option<Headline> {
    let Value { median, least, most } = ours?;
    let percent = |share: f64| 100.0 * share;
    Some(Headline {
        what: what.to_owned(),
        published: format!("{:.1} %", percent(published)),
        here: format!("{:.1} % ({:.1} to {:.1})", percent(median), percent(least), percent(most)),
        measured: ours,
        verdict: verdict(published, median, least, most),
        why: String::new(),
    })
}

impl Headline {
    /// Adds the reason for a claim that was not reached, or not clearly.
    pub(crate) fn because(self, why: &str) -> Self {
        match self.verdict {
            Verdict::Beaten | Verdict::Reproduced => self,
            _ => Self { why: why.to_owned(), ..self },
        }
    }

    pub(crate) fn not_comparable(self, why: &str) -> Self {
        Self { verdict: Verdict::NotComparable, why: why.to_owned(), ..self }
    }
}

/// A share of which less is better, as published and here.
pub(crate) fn at_most(what: &str, published: f64, ours: Option<Value>) -> Option<Headline> {
    let Value { median, least, most } = ours?;
    let of_rest = Value { median: 1.0 - median, least: 1.0 - most, most: 1.0 - least };
    let Headline { verdict, measured, .. } = at_least(what, 1.0 - published, Some(of_rest))?;
    Some(Headline { measured, verdict, ..at_least(what, published, ours)? })
}

/// The verdict on a figure of which more is better, with the range of its turns.
fn verdict(published: f64, here: f64, low: f64, high: f64) -> Verdict {
    match published {
        // One turn has no range, and shows no more than that.
        published if low > published && high > low => Verdict::Beaten,
        published if here >= published => Verdict::Reproduced,
        published if high >= published => Verdict::Inconclusive,
        _ => Verdict::NotReached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_beaten_only_if_all_turns_beat_it() {
        let value = |least, median, most| Some(Value { median, least, most });
        let claim = |ours, theirs| less_time("time", 30.0, ours, theirs).map(|it| it.verdict);
        let theirs = value(100.0, 100.0, 100.0);
        assert_eq!(claim(value(50.0, 60.0, 69.0), theirs), Some(Verdict::Beaten));
        assert_eq!(claim(value(50.0, 60.0, 71.0), theirs), Some(Verdict::Reproduced));
        assert_eq!(claim(value(60.0, 75.0, 90.0), theirs), Some(Verdict::Inconclusive));
        assert_eq!(claim(value(75.0, 80.0, 90.0), theirs), Some(Verdict::NotReached));
        assert_eq!(claim(None, theirs), None);
    }

    #[test]
    fn a_claim_is_told_as_exactly_as_it_was_published() {
        let value = |seconds| Some(Value::exactly(seconds));
        let told = |percent| {
            let claim = less_time("time", percent, value(14.41), value(100.0))?;
            Some((claim.published, claim.here))
        };
        let both = |published: &str, here: &str| Some((published.to_owned(), here.to_owned()));
        assert_eq!(told(85.6), both("-85.6 %", "-85.6 % (-85.6 to -85.6)"));
        assert_eq!(told(86.0), both("-86 %", "-86 % (-86 to -86)"));
    }

    #[test]
    fn one_turn_beats_no_claim() {
        let claim =
            less_time("time", 30.0, Some(Value::exactly(50.0)), Some(Value::exactly(100.0)));
        assert_eq!(claim.map(|it| it.verdict), Some(Verdict::Reproduced));
    }

    #[test]
    fn a_side_is_no_slower_if_its_median_is_not_and_slower_only_if_no_turn_is_as_fast() {
        let value = |least, median, most| Some(Value { median, least, most });
        let claim = |ours| no_slower("time", ours, value(95.0, 100.0, 105.0)).map(|it| it.verdict);
        assert_eq!(claim(value(50.0, 60.0, 70.0)), Some(Verdict::Reproduced));
        assert_eq!(claim(value(90.0, 100.0, 110.0)), Some(Verdict::Reproduced));
        assert_eq!(claim(value(104.0, 106.0, 110.0)), Some(Verdict::Inconclusive));
        assert_eq!(claim(value(106.0, 108.0, 110.0)), Some(Verdict::NotReached));
    }

    #[test]
    fn a_reason_stands_only_where_a_claim_is_not_reached() {
        let value = |seconds| Some(Value::exactly(seconds));
        let why = |ours| less_time("time", 30.0, ours, value(100.0)).map(|it| it.because("so").why);
        assert_eq!(why(value(60.0)).as_deref(), Some(""));
        assert_eq!(why(value(80.0)).as_deref(), Some("so"));
    }

    #[test]
    fn fewer_points_are_a_difference_of_shares() {
        let value = |least, median, most| Some(Value { median, least, most });
        let theirs = value(0.5, 0.5, 0.55);
        let claim = |ours| fewer_points("imbalance", 0.25, ours, theirs);
        let beaten = claim(value(0.1, 0.2, 0.22)).map(|it| (it.verdict, it.published, it.here));
        let here = "-30.0 points (-28.0 to -45.0)".to_owned();
        assert_eq!(beaten, Some((Verdict::Beaten, "-25.0 points".to_owned(), here)));
        let less = claim(value(0.4, 0.4, 0.4)).map(|it| it.verdict);
        assert_eq!(less, Some(Verdict::NotReached));
    }

    #[test]
    fn less_of_what_is_unwanted_beats_a_claim() {
        let claim = |least, most| {
            let ours = Value { median: least, least, most };
            at_most("imbalance", 0.2, Some(ours)).map(|it| (it.verdict, it.here))
        };
        assert_eq!(claim(0.1, 0.15), Some((Verdict::Beaten, "10.0 % (10.0 to 15.0)".to_owned())));
        assert_eq!(claim(0.1, 0.3).map(|it| it.0), Some(Verdict::Reproduced));
        assert_eq!(claim(0.3, 0.4).map(|it| it.0), Some(Verdict::NotReached));
    }

    #[test]
    fn time_falls_only_if_it_does_in_all_turns() {
        let value = |least, median, most| Some(Value { median, least, most });
        let claim = |last| falls("time", value(90.0, 100.0, 110.0), last).map(|it| it.verdict);
        assert_eq!(claim(value(70.0, 80.0, 89.0)), Some(Verdict::Reproduced));
        assert_eq!(claim(value(70.0, 80.0, 91.0)), Some(Verdict::Inconclusive));
        assert_eq!(claim(value(111.0, 120.0, 130.0)), Some(Verdict::NotReached));
    }
}
