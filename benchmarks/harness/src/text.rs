//! A document as text: figures by their keys, which name their units, and tables of rows.

use std::fmt::Write as _;

use serde::Serialize;
use serde_yaml::{Mapping, Value};

const INDENT: usize = 2;
/// Significant digits of a number.
const DIGITS: i32 = 4;

/// The text of `document` without the keys of `left_out`.
///
/// # Errors
///
/// If the document has keys that are no text.
pub(crate) fn text(
    document: &impl Serialize,
    left_out: &[&str],
) -> Result<String, serde_yaml::Error> {
    let document = serde_yaml::to_value(document)?;
    let mut page = Page { left_out, text: String::new() };
    if let Value::Mapping(all) = &document {
        page.figures(all, 0);
    }
    Ok(page.text)
}

struct Page<'a> {
    left_out: &'a [&'a str],
    text: String,
}

impl Page<'_> {
    fn figures(&mut self, all: &Mapping, indent: usize) {
        for (key, value) in self.shown(all) {
            match value {
                Value::Mapping(inner) => {
                    self.line(indent, key);
                    self.figures(inner, indent + INDENT);
                }
                Value::Sequence(rows) if is_table(value) => {
                    self.line(indent, key);
                    self.rows(rows, indent + INDENT);
                }
                value => self.line(indent, &format!("{key}: {}", cell(key, value))),
            }
        }
    }

    /// A table, or one group of lines after the other if rows have tables themselves.
    fn rows(&mut self, rows: &[Value], indent: usize) {
        let rows: Vec<&Mapping> = rows.iter().filter_map(Value::as_mapping).collect();
        let has_table = |row: &&Mapping| self.shown(row).iter().any(|(_, value)| is_table(value));
        if rows.iter().any(has_table) {
            for row in rows {
                self.figures(row, indent);
                self.text.push('\n');
            }
            return;
        }
        let rows: Vec<Vec<(String, String)>> =
            rows.into_iter().map(|row| self.cells(row)).collect();
        let mut titles: Vec<&str> = Vec::new();
        for (title, _) in rows.iter().flatten() {
            if !titles.contains(&title.as_str()) {
                titles.push(title);
            }
        }
        let of_row = |row: &Vec<(String, String)>| -> Vec<String> {
            let found = |title: &&str| row.iter().find(|(it, _)| it == title);
            titles
                .iter()
                .map(|it| found(it).map_or(String::new(), |(_, cell)| cell.clone()))
                .collect()
        };
        let heads = titles.iter().map(|title| (*title).to_owned()).collect();
        let lines: Vec<Vec<String>> = [heads].into_iter().chain(rows.iter().map(of_row)).collect();
        let width =
            |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..titles.len()).map(width).collect();
        for line in &lines {
            let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            self.line(indent, padded.collect::<Vec<_>>().join("  ").trim_end());
        }
    }

    /// The titles and cells of a row; those of a mapping in it have its key before theirs.
    fn cells(&self, row: &Mapping) -> Vec<(String, String)> {
        let cells_of = |(key, value): (&str, &Value)| match value {
            Value::Mapping(inner) => {
                let inner = self.cells(inner).into_iter();
                inner.map(|(title, cell)| (format!("{key}.{title}"), cell)).collect()
            }
            value => vec![(key.to_owned(), cell(key, value))],
        };
        self.shown(row).into_iter().flat_map(cells_of).collect()
    }

    fn shown<'b>(&self, all: &'b Mapping) -> Vec<(&'b str, &'b Value)> {
        let named = all.iter().filter_map(|(key, value)| Some((key.as_str()?, value)));
        named.filter(|(key, _)| !self.left_out.contains(key)).collect()
    }

    fn line(&mut self, indent: usize, line: &str) {
        _ = writeln!(self.text, "{:indent$}{line}", "");
    }
}

fn is_table(value: &Value) -> bool {
    value.as_sequence().is_some_and(|rows| rows.iter().any(Value::is_mapping))
}

fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(bytes) if key.contains("bytes") => scaled(bytes),
            Some(figure) if number.is_f64() => digits(figure),
            _ => number.to_string(),
        },
        // Nothing in a name controls the terminal.
        Value::String(text) => text.replace(char::is_control, " ").trim().to_owned(),
        Value::Sequence(values) => {
            values.iter().map(|value| cell(key, value)).collect::<Vec<_>>().join(", ")
        }
        Value::Tagged(tagged) => format!("{} {}", tagged.tag, cell(key, &tagged.value)),
        Value::Mapping(_) => String::new(),
    }
}

/// A number of bytes with the unit in which it has few digits.
fn scaled(bytes: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.iter().find(|(unit, _)| bytes.abs() >= *unit) {
        Some((unit, name)) => format!("{} {name}", digits(bytes / unit)),
        None => format!("{bytes} B"),
    }
}

fn digits(figure: f64) -> String {
    if figure == 0.0 || !figure.is_finite() {
        return figure.to_string();
    }
    #[expect(clippy::cast_possible_truncation, reason = "the exponent of a float is small")]
    let before_point = figure.abs().log10().floor() as i32 + 1;
    let decimals = usize::try_from(DIGITS - before_point).unwrap_or(0);
    format!("{figure:.decimals$}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_a_table_whose_columns_are_their_keys() {
        let document = json!({
            "rows": [
                { "name": "ours", "rate_bytes_per_s": 2_500_000_000_u64, "ratio": { "low": 0.98765 } },
                { "name": "theirs", "rate_bytes_per_s": null, "ratio": { "low": 1.0 }, "pairs": [1] },
            ],
        });
        let expected = "rows\n  name    rate_bytes_per_s  ratio.low\n  \
                        ours    2.500 GB          0.9877\n  theirs  -                 1.000\n";
        assert_eq!(text(&document, &["pairs"]).unwrap(), expected);
    }

    #[test]
    fn rows_with_tables_of_their_own_stand_below_each_other() {
        let document = json!({
            "kinds": [{ "best": true, "sides": [{ "name": "a" }, { "name": "b" }] }],
        });
        let expected = "kinds\n  best: yes\n  sides\n    name\n    a\n    b\n\n";
        assert_eq!(text(&document, &[]).unwrap(), expected);
    }

    #[test]
    fn numbers_have_four_digits_and_no_text_controls_the_terminal() {
        let figures = [0.000_012_34, 0.5, 123.456, 98_765.4, 0.0, f64::NAN].map(digits);
        assert_eq!(figures, ["0.00001234", "0.5000", "123.5", "98765", "0", "NaN"]);
        let document =
            json!({ "name": "\u{1b}[2Jgone\r\u{9b}", "of": ["a", "b"], "size_bytes": 7 });
        assert_eq!(text(&document, &[]).unwrap(), "name: [2Jgone\nof: a, b\nsize_bytes: 7 B\n");
    }
}
