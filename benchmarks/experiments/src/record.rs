//! Measured figures as JSON, to which a run adds its figures, and their floors.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use tierfeed_harness::failure::Failure;

use crate::{
    figure::Figure,
    floors::{self, Floors},
};

/// What is made of figures beside what is printed.
#[derive(Debug, Clone, Default, Args)]
pub struct Recording {
    /// Fails if a claim falls below what this file says that it reached.
    #[arg(long, value_name = "FILE")]
    pub floors: Option<PathBuf>,
    /// Writes what claims reach, as floors of later runs; those of other figures stay.
    #[arg(long, value_name = "FILE", conflicts_with = "floors")]
    pub record_floors: Option<PathBuf>,
    /// Writes the figures as JSON; figures there that do not run again stay.
    #[arg(long, value_name = "FILE")]
    pub figures: Option<PathBuf>,
}

impl Recording {
    /// The floors in the file; none without a file.
    pub(crate) fn floors(&self) -> Result<Floors, Failure> {
        self.floors.as_deref().map_or_else(|| Ok(Floors::new()), read_floors)
    }

    /// Writes the figures of a run; `order` has the names of all figures.
    pub(crate) fn write(
        &self,
        figures: &[Figure],
        machine: &str,
        order: &[&str],
    ) -> Result<(), Failure> {
        if let Some(file) = &self.figures {
            let mut record = Record::read(file).map_err(Failure::Input)?;
            record.add(figures, machine, order);
            write(file, &record)?;
        }
        if let Some(file) = &self.record_floors {
            let mut all = if file.exists() { read_floors(file)? } else { Floors::new() };
            all.extend(floors::floors(figures));
            write(file, &all)?;
        }
        Ok(())
    }
}

fn read_floors(file: &Path) -> Result<Floors, Failure> {
    let read = fs::read_to_string(file).map_err(anyhow::Error::new);
    let floors = read.and_then(|text| Ok(serde_json::from_str(&text)?));
    floors.with_context(|| file.display().to_string()).map_err(Failure::Input)
}

fn write(file: &Path, document: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(document).context("figures are no JSON")?;
    fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}

/// Figures of one run or several, in the order of the papers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Record {
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
    fn read(file: &Path) -> anyhow::Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(file);
        let record = text.map_err(anyhow::Error::new).and_then(|it| Ok(serde_json::from_str(&it)?));
        record.with_context(|| format!("{} is no record of figures", file.display()))
    }

    /// Adds figures in the place of those with the same names.
    fn add(&mut self, figures: &[Figure], machine: &str, order: &[&str]) {
        self.measured.retain(|old| figures.iter().all(|new| new.name != old.figure.name));
        let measured =
            |figure: &Figure| Measured { machine: machine.to_owned(), figure: figure.clone() };
        self.measured.extend(figures.iter().map(measured));
        let place = |name: &str| order.iter().position(|it| *it == name).unwrap_or(order.len());
        self.measured.sort_by_key(|Measured { figure, .. }| {
            (figure.paper, number(&figure.name).unwrap_or(u32::MAX), place(&figure.name))
        });
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
        record.add(&[figure("loaders", "old"), figure("lobster-7", "old")], "here.", &[]);
        let others =
            ["lobster-hits", "deep-memory-13", "deep-memory-9"].map(|it| figure(it, "new"));
        record.add(&[&others[..], &[figure("lobster-7", "new")]].concat(), "there.", &[]);
        let of =
            |it: &Measured| (it.figure.name.clone(), it.figure.title.clone(), it.machine.clone());
        let new = ["deep-memory-9", "deep-memory-13", "lobster-7", "lobster-hits"];
        let new = new.map(|name| (name, "new", "there.")).into_iter();
        let expected = new.chain([("loaders", "old", "here.")]);
        let expected = expected.map(|(name, title, at)| (name.into(), title.into(), at.into()));
        assert_eq!(
            record.measured.iter().map(of).collect::<Vec<_>>(),
            expected.collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let file = std::env::temp_dir().join(format!("record-{}.json", std::process::id()));
        assert!(Record::read(&file).unwrap().measured.is_empty());
        let mut record = Record::default();
        record.add(&[figure("lobster-7", "new")], "here.", &[]);
        write(&file, &record).unwrap();
        let read = Record::read(&file).unwrap();
        fs::write(&file, "{}").unwrap();
        let error = Record::read(&file).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert_eq!(read.measured[0].machine, "here.");
        assert!(error.contains("no record of figures"), "{error}");
    }
}
