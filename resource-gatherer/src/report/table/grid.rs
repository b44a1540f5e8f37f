//! Lays cells out in columns as wide as their widest cell.

use super::{super::style::Paint, Style};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lean {
    Left,
    Right,
}

/// A table, with lines of text between its rows.
#[derive(Debug)]
pub(super) struct Grid {
    leans: Vec<Lean>,
    lines: Vec<Line>,
}

#[derive(Debug)]
enum Line {
    Header(Vec<String>),
    Row(Vec<String>),
    Text(String),
    Warning(String),
}

impl Grid {
    pub(super) fn new<const N: usize>(columns: [(&str, Lean); N]) -> Self {
        Self::with_columns(columns.iter().map(|(name, lean)| ((*name).to_owned(), *lean)).collect())
    }

    pub(super) fn with_columns(columns: Vec<(String, Lean)>) -> Self {
        let (names, leans) = columns.into_iter().unzip();
        Self { leans, lines: vec![Line::Header(names)] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(Line::Row(cells.into_iter().collect()));
    }

    pub(super) fn text(&mut self, text: String) {
        self.lines.push(Line::Text(text));
    }

    /// Adds a line that should be read with the row before.
    pub(super) fn warning(&mut self, text: String) {
        self.lines.push(Line::Warning(text));
    }

    pub(super) fn show(&self, style: Style) -> String {
        let widths = self.widths();
        let mut shown = String::new();
        for line in &self.lines {
            match line {
                Line::Header(cells) => {
                    shown += &style.paint(&self.line(cells, &widths), Paint::Label);
                }
                Line::Row(cells) => shown += &self.line(cells, &widths),
                Line::Text(text) => shown += text,
                Line::Warning(text) => shown += &style.paint(text, Paint::Warning),
            }
            shown.push('\n');
        }
        shown
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.leans.len()];
        for line in &self.lines {
            if let Line::Header(cells) | Line::Row(cells) = line {
                for (width, cell) in widths.iter_mut().zip(cells) {
                    *width = (*width).max(cell.chars().count());
                }
            }
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let padded = cells.iter().zip(widths).zip(&self.leans);
        let padded = padded.map(|((cell, width), lean)| match lean {
            Lean::Left => format!("{cell:<width$}"),
            Lean::Right => format!("{cell:>width$}"),
        });
        let line: Vec<String> = padded.collect();
        line.join("  ").trim_end().to_owned()
    }
}

/// Lines of at most `columns`, each after `indent` blanks; a longer word stays whole.
pub(super) fn wrapped(text: &str, indent: usize, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(" ".repeat(indent) + word),
        }
    }
    lines
}
