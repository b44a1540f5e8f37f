//! Parses the text that [`super::Families`] writes, for the live view.

use std::collections::BTreeMap;

pub const SCRAPE_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scrape {
    series: BTreeMap<String, Vec<Series>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Series {
    labels: BTreeMap<String, String>,
    value: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the metrics is {text:?}; it should be NAME{{LABEL=\"VALUE\"}} NUMBER")]
pub struct ScrapeError {
    /// Counted from 1.
    pub line: usize,
    /// The line, cut if it is long.
    pub text: String,
}

/// Characters of a wrong line that are shown.
const SHOWN_MAX: usize = 120;

impl Scrape {
    /// Reads `OpenMetrics` text.
    ///
    /// # Errors
    ///
    /// [`ScrapeError`] names the first line that is neither a comment nor a figure.
    pub fn parse(text: &str) -> Result<Self, ScrapeError> {
        let mut series: BTreeMap<String, Vec<Series>> = BTreeMap::new();
        let lines = (1..).zip(text.lines());
        for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
            let wrong = || ScrapeError { line, text: text.chars().take(SHOWN_MAX).collect() };
            let (name, labels, value) = figure(text).ok_or_else(wrong)?;
            series.entry(name.to_owned()).or_default().push(Series { labels, value });
        }
        Ok(Self { series })
    }

    /// The sum over all series of a name; `None` if there is none.
    #[must_use]
    pub fn sum(&self, name: &str) -> Option<f64> {
        Some(self.series.get(name)?.iter().map(|series| series.value).sum())
    }

    /// The sums over all series of a name by the value of one label.
    #[must_use]
    pub fn by(&self, name: &str, label: &str) -> BTreeMap<&str, f64> {
        let mut sums = BTreeMap::new();
        for series in self.series.get(name).into_iter().flatten() {
            if let Some(value) = series.labels.get(label) {
                *sums.entry(value.as_str()).or_default() += series.value;
            }
        }
        sums
    }

    /// The value of a label of the first series of a name, for info metrics.
    #[must_use]
    pub fn label(&self, name: &str, label: &str) -> Option<&str> {
        self.series.get(name)?.first()?.labels.get(label).map(String::as_str)
    }
}

type Labels = BTreeMap<String, String>;

fn figure(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let value = rest.strip_prefix(' ')?.split(' ').next()?;
    Some((name, labels, value.parse().ok()?))
}

/// The labels up to the closing brace, and the text behind it.
fn labels(mut text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        labels.insert(name.to_owned(), value);
        text = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// A value up to its closing quote, without its escapes.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn figures_are_found_by_name_and_summed_by_label() {
        let text = "# TYPE a counter\n# HELP a Words, {not} labels.\n\
                    a_total{tier=\"cold\",source=\"s3\"} 3\n\
                    a_total{tier=\"cold\",source=\"cache\"} 4.5\n\
                    a_total{tier=\"scratch\",source=\"cache\"} 1e3\n\
                    b 7\nb_bucket{le=\"+Inf\"} 9 # {} 1\n# EOF\n";
        let scrape = Scrape::parse(text).unwrap();
        assert_eq!(scrape.sum("a_total"), Some(1007.5));
        assert_eq!(scrape.by("a_total", "tier"), [("cold", 7.5), ("scratch", 1000.0)].into());
        assert_eq!(scrape.by("a_total", "rank"), BTreeMap::new());
        assert_eq!(
            (scrape.sum("b"), scrape.sum("b_bucket"), scrape.sum("a")),
            (Some(7.0), Some(9.0), None)
        );
        assert_eq!(scrape.label("a_total", "source"), Some("s3"));
    }

    #[test]
    fn labels_lose_their_escapes_and_nothing_else() {
        let text = "a{b=\"x\\\"y\\\\z\\n}, \",c=\"\"} 1";
        let scrape = Scrape::parse(text).unwrap();
        assert_eq!(scrape.label("a", "b"), Some("x\"y\\z\n}, "));
        assert_eq!(scrape.label("a", "c"), Some(""));
    }

    #[test]
    fn a_line_that_is_no_figure_is_named() {
        for wrong in ["a", "a{b=\"1\" 2", "a{b} 1", "a one", "{b=\"1\"} 1", "a{b=\"1\"}"] {
            let error = Scrape::parse(&format!("# x\nok 1\n{wrong}\n")).unwrap_err();
            assert_eq!((error.line, error.text.as_str()), (3, wrong));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_panic(text in "[ -~\n\\\\{}\"=,é]{0,200}") {
            let _ = Scrape::parse(&text);
        }
    }
}
