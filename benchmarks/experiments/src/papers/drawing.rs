//! Draws a figure from what trials measured: its charts, its claims and its texts.

use anyhow::{Context as _, ensure};
use serde_json::Value as Json;

use super::{
    expansion::replaced,
    file::{ChartFile, ClaimFile, FigureFile, Kind, PaperFile, SeriesFile},
    measure::{Measure, Outcome},
    scatter,
};
use crate::{
    claim::{
        at_least, at_most, falls, fewer_points, less_time, no_slower, times_as_fast, times_as_much,
    },
    figure::{Along, Chart, Figure, Headline, Series, Value, Verdict},
};

pub(super) struct Drawing<'a> {
    pub(super) file: &'a FigureFile,
    pub(super) outcomes: &'a [Outcome],
}

impl Drawing<'_> {
    /// # Errors
    ///
    /// If a text names what is not known.
    pub(super) fn figure(&self, paper: &PaperFile) -> anyhow::Result<Figure> {
        let FigureFile { name, number, title, setting, emulated, .. } = self.file;
        let mut told = Vec::new();
        for text in emulated {
            // One for each trial, where they differ.
            for outcome in self.shown() {
                let text = self.text(text, outcome)?;
                if !text.is_empty() && !told.contains(&text) {
                    told.push(text);
                }
            }
        }
        let first = self.shown().next().context("a figure shows a trial")?;
        let claims = self.file.claims.iter().map(|it| self.claim(it, first));
        Ok(Figure {
            setting: self.text(setting, first)?,
            charts: self.file.charts.iter().filter_map(|it| self.chart(it)).collect(),
            headlines: claims.filter_map(Result::transpose).collect::<anyhow::Result<_>>()?,
            emulated: told,
            ..Figure::named(paper.paper, name, number, title)
        })
    }

    fn shown(&self) -> impl Iterator<Item = &Outcome> {
        let names = &self.file.trials;
        self.outcomes.iter().filter(move |it| names.is_empty() || names.contains(&it.name))
    }

    fn of_side(&self, side: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|it| it.turns.contains_key(side))
    }

    /// The first value of a measure, which most have alone.
    fn value(&self, side: &str, measure: Measure) -> Option<Value> {
        self.of_side(side)?.values(side, measure).first().copied().flatten()
    }

    /// The text, with what stands for its names.
    fn text(&self, text: &str, outcome: &Outcome) -> anyhow::Result<String> {
        let mut unknown = None;
        let told = replaced(text, |name| {
            let told = match name.split_once(" @ ") {
                _ if name == "trials" => self.settings(),
                Some((measure, side)) => self.median(measure, side),
                None => outcome.told.get(name).cloned(),
            };
            if told.is_none() {
                unknown = Some(name.to_owned());
            }
            told
        });
        ensure!(unknown.is_none(), "{}: {unknown:?} is not known in {text:?}", self.file.name);
        Ok(told)
    }

    /// The settings of all trials that are shown.
    fn settings(&self) -> Option<String> {
        let of = |it: &Outcome| self.text(it.told.get("trial")?, it).ok();
        Some(self.shown().map(of).collect::<Option<Vec<_>>>()?.join(" "))
    }

    /// The median of a `measure`, or of `measure in %`.
    fn median(&self, measure: &str, side: &str) -> Option<String> {
        let (name, is_percent) =
            measure.strip_suffix(" in %").map_or((measure, false), |name| (name, true));
        let measure = serde_json::from_value(Json::String(name.to_owned())).ok()?;
        let median = self.value(side, measure).map_or(f64::NAN, |it| it.median);
        Some(if is_percent { format!("{:.0}", 100.0 * median) } else { format!("{median:.1}") })
    }

    /// Without series and groups of sides that did not run; `None` if nothing is left.
    fn chart(&self, file: &ChartFile) -> Option<Chart> {
        if let Some(points) = &file.scatter {
            return scatter::chart((&file.x, &file.y), points, self.of_side(&points.bucket)?);
        }
        let has_run =
            |side: &Option<String>| side.as_ref().is_some_and(|it| self.of_side(it).is_some());
        let is_drawn = |it: &&SeriesFile| {
            it.published.is_some()
                || it.side.is_some() && has_run(&it.side)
                || it.sides.iter().any(has_run)
        };
        if file.faster_than.is_some() && !has_run(&file.faster_than) {
            return None;
        }
        let drawn: Vec<&SeriesFile> = file.series.iter().filter(is_drawn).collect();
        let of_sides: Vec<_> = drawn.iter().filter(|it| !it.sides.is_empty()).collect();
        let is_kept = |at: &usize| {
            let mut cells = of_sides.iter().filter_map(|it| it.sides.get(*at));
            of_sides.is_empty() || cells.any(has_run)
        };
        let mut series = Vec::new();
        for it in &drawn {
            let mut values = self.series(file, it)?;
            values.truncate(file.places().unwrap_or(values.len()));
            let values = (0..values.len()).filter(is_kept).map(|at| values[at]);
            series.push(Series {
                name: it.name.clone(),
                source: it.source(),
                values: values.collect(),
            });
        }
        let count = series.iter().map(|it| it.values.len()).max()?;
        let along = match (&file.groups, &file.positions) {
            (Some(groups), _) => Along::Groups(
                (0..groups.len()).filter(is_kept).map(|at| groups[at].clone()).collect(),
            ),
            (None, Some(places)) => {
                Along::Positions((0..places.len()).filter(is_kept).map(|at| places[at]).collect())
            }
            (None, None) => Along::Positions((0_u32..).take(count).map(f64::from).collect()),
        };
        let is_published = series.iter().all(|it| it.source == crate::figure::Source::Published);
        let chart = Chart::new(&file.x, &file.y, along, series).titled(&file.title);
        (!is_published).then_some(chart)
    }

    fn series(&self, chart: &ChartFile, file: &SeriesFile) -> Option<Vec<Option<Value>>> {
        if let Some(published) = &file.published {
            let unit = file.of.map_or(1.0, |of| 100.0 / of);
            return Some(
                published.iter().map(|it| it.map(|it| Value::exactly(it * unit))).collect(),
            );
        }
        let measure = file.measure.or(chart.measure).or(self.file.measure)?;
        let values = match &file.side {
            Some(side) => {
                let outcome = self.of_side(side)?;
                let turns =
                    if file.first_turn { &outcome.turns[side][..1] } else { &outcome.turns[side] };
                outcome.of_turns(turns, measure)
            }
            None => file.sides.iter().map(|it| self.value(it.as_ref()?, measure)).collect(),
        };
        let median = |side: &String| self.value(side, measure).map(|it| it.median);
        let percent_of = chart.percent_of.as_ref().and_then(median);
        let faster_than = chart.faster_than.as_ref().and_then(median);
        let percent_of = percent_of.or(chart.in_percent.then_some(1.0));
        let scaled = |Value { median, least, most }: Value| match (percent_of, faster_than) {
            (Some(of), _) => {
                let [median, least, most] = [median, least, most].map(|it| 100.0 * it / of);
                Value { median, least, most }
            }
            (None, Some(of)) => Value { median: of / median, least: of / most, most: of / least },
            (None, None) => Value { median, least, most },
        };
        Some(values.into_iter().map(|it| it.map(scaled)).collect())
    }

    /// `None` if a side of it did not run.
    fn claim(&self, file: &ClaimFile, first: &Outcome) -> anyhow::Result<Option<Headline>> {
        let what = &file.what;
        let measure = file.measure.or(self.file.measure);
        let measure = measure.with_context(|| format!("{what}: of which measure?"))?;
        let value = |side: &String| self.value(side, measure);
        let (mut ours, mut theirs) =
            (file.ours.as_ref().and_then(value), file.theirs.as_ref().and_then(value));
        let least = file.theirs_least.iter().filter_map(value);
        theirs = theirs.or(least.min_by(|a, b| a.median.total_cmp(&b.median)));
        let ratios = file.over.iter().filter_map(|pair| {
            Some((&pair.name[..], relative(value(&pair.ours)?, value(&pair.theirs)?)))
        });
        let ratios: Vec<_> = ratios.collect();
        if let Some(ratio) = mean(&ratios) {
            (ours, theirs) = (Some(ratio), Some(Value::exactly(1.0)));
        }
        let published = file.published;
        let claim = match file.kind {
            Kind::LessTime => less_time(what, published, ours, theirs),
            Kind::Falls => falls(what, theirs, ours),
            Kind::NoSlower => no_slower(what, ours, theirs),
            Kind::TimesAsFast => times_as_fast(what, published, ours, theirs),
            Kind::TimesAsMuch => times_as_much(what, published, ours, theirs),
            Kind::FewerPoints => fewer_points(what, published, ours, theirs),
            Kind::AtLeast => at_least(what, published, ours),
            Kind::AtMost => at_most(what, published, ours),
            Kind::Ratio => times_as_much(what, published, ours, theirs).zip(ours.zip(theirs)).map(
                |(claim, (ours, theirs))| Headline {
                    here: format!("{:.2} x", ours.median / theirs.median),
                    ..claim
                },
            ),
            Kind::Line => self.line(file),
        };
        let Some(mut claim) = claim else { return Ok(None) };
        match &ratios[..] {
            [] => (),
            [(name, _)] => claim.here = format!("{}, {name}", claim.here),
            several => claim.here = format!("{}, mean of {} models", claim.here, several.len()),
        }
        if let (Some(tolerance), Some(here)) = (file.tolerance, ours) {
            claim.verdict = beside(published, tolerance, here);
        }
        if let Some(printed) = &file.printed {
            claim.published.clone_from(printed);
        }
        if file.unmeasured {
            claim.measured = None;
        }
        Ok(Some(match &file.unjudged {
            Some(why) => claim.not_comparable(&self.text(why, first)?),
            None if file.because.is_empty() && !file.waits_of.is_empty() => {
                claim.because(&self.waits(file))
            }
            None => claim.because(&self.text(&file.because, first)?),
        }))
    }

    /// The time that tierfeed waits, as a part of its times: it can gain no more.
    fn waits(&self, file: &ClaimFile) -> String {
        let all = file.waits_of.iter().filter_map(|of| {
            let [waited, total] =
                [Measure::WaitedS, Measure::TotalS].map(|it| self.value(&of.side, it));
            Some(format!("{:.1} of {:.1} s ({})", waited?.median, total?.median, of.name))
        });
        let all = all.collect::<Vec<_>>().join(", ");
        format!("tierfeed waits for batches for {all}; the rest is what steps take")
    }

    fn line(&self, file: &ClaimFile) -> Option<Headline> {
        let points = self.file.charts.iter().find_map(|it| it.scatter.as_ref())?;
        let explained = scatter::r_squared(&points.here(self.of_side(&points.bucket)?));
        Some(Headline {
            what: file.what.clone(),
            published: String::new(),
            here: format!("a line explains {:.1} % of the variance", 100.0 * explained),
            measured: None,
            verdict: Verdict::NotComparable,
            why: String::new(),
        })
    }
}

/// The verdict on a figure of which less is better, where a difference of `tolerance` says nothing.
fn beside(published: f64, tolerance: f64, here: Value) -> Verdict {
    match here.median - published {
        less if less < -tolerance => Verdict::Beaten,
        more if more > tolerance => Verdict::NotReached,
        _ => Verdict::Reproduced,
    }
}

/// A time as a share of another.
fn relative(ours: Value, theirs: Value) -> Value {
    Value {
        median: ours.median / theirs.median,
        least: ours.least / theirs.most,
        most: ours.most / theirs.least,
    }
}

#[expect(clippy::cast_precision_loss, reason = "few ratios")]
fn mean(ratios: &[(&str, Value)]) -> Option<Value> {
    let mean = |figure: fn(&Value) -> f64| {
        ratios.iter().map(|(_, it)| figure(it)).sum::<f64>() / ratios.len() as f64
    };
    let [median, least, most] = [mean(|it| it.median), mean(|it| it.least), mean(|it| it.most)];
    (!ratios.is_empty()).then_some(Value { median, least, most })
}
