//! Measured figures, as JSON beside the page: a run adds its figures, and those of earlier runs stay.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::{figure::Figure, papers};

/// Figures of one run or several, in the order of the papers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Record {
    measured: Vec<Measured>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Measured {
    /// The machine and the extent of the run.
    machine: String,
    figure: Figure,
}

impl Record {
    /// Reads a record; an empty one if there is no such file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is no record.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(file);
        let record = text.map_err(anyhow::Error::new).and_then(|it| Ok(serde_json::from_str(&it)?));
        record.with_context(|| format!("{} is no record of figures", file.display()))
    }

    /// Adds figures in the place of those with the same names.
    pub fn add(&mut self, figures: &[Figure], machine: &str) {
        self.measured.retain(|old| figures.iter().all(|new| new.name != old.figure.name));
        let measured =
            |figure: &Figure| Measured { machine: machine.to_owned(), figure: figure.clone() };
        self.measured.extend(figures.iter().map(measured));
        let names = papers::names();
        let place = |name: &str| names.iter().position(|it| *it == name).unwrap_or(names.len());
        self.measured.sort_by_key(|Measured { figure, .. }| {
            (figure.paper, number(&figure.name).unwrap_or(u32::MAX), place(&figure.name))
        });
    }

    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        self.measured.iter().map(|it| it.figure.clone()).collect()
    }

    /// The machines of the figures; with the names of figures, if there was more than one run.
    #[must_use]
    pub fn machine(&self) -> String {
        let mut runs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for Measured { machine, figure } in &self.measured {
            runs.entry(machine).or_default().push(&figure.name);
        }
        match runs.len() {
            0 | 1 => runs.into_keys().map(str::to_owned).collect(),
            _ => {
                let run = |(machine, names): (&str, Vec<&str>)| {
                    format!("{}: {machine}", names.join(", "))
                };
                runs.into_iter().map(run).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// The number of a figure, as 8 of `deep-memory-8`.
fn number(name: &str) -> Option<u32> {
    name.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Paper;

    fn figure(name: &str, title: &str) -> Figure {
        let paper = match name {
            "loaders" => Paper::Loaders,
            name if name.starts_with("deep") => Paper::DeepMemory,
            _ => Paper::Lobster,
        };
        Figure { command: String::new(), ..Figure::named(paper, name, "", title) }
    }

    #[test]
    fn a_figure_takes_the_place_of_an_earlier_one_and_others_stay() {
        let mut record = Record::default();
        record.add(&[figure("loaders", "old"), figure("lobster-7", "old")], "here.");
        assert_eq!(record.machine(), "here.");
        let others =
            ["lobster-hits", "deep-memory-13", "deep-memory-9"].map(|it| figure(it, "new"));
        record.add(&[&others[..], &[figure("lobster-7", "new")]].concat(), "there.");
        let titles = record.figures().into_iter().map(|it| (it.name, it.title));
        let new = ["deep-memory-9", "deep-memory-13", "lobster-7", "lobster-hits"];
        let expected = new.map(|name| (name, "new")).into_iter().chain([("loaders", "old")]);
        assert!(titles.eq(expected.map(|(name, title)| (name.to_owned(), title.to_owned()))));
        assert_eq!(
            record.machine(),
            "loaders: here. deep-memory-9, deep-memory-13, lobster-7, lobster-hits: there."
        );
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let file = std::env::temp_dir().join(format!("record-{}.json", std::process::id()));
        assert!(Record::read(&file).unwrap().figures().is_empty());
        let mut record = Record::default();
        record.add(&[figure("lobster-7", "new")], "here.");
        fs::write(&file, serde_json::to_string(&record).unwrap()).unwrap();
        let read = Record::read(&file).unwrap();
        fs::write(&file, "{}").unwrap();
        let error = Record::read(&file).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert_eq!(read.machine(), "here.");
        assert!(error.contains("no record of figures"), "{error}");
    }
}
