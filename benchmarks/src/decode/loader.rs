//! Whole loaders on two cores: batches of 64 random crops, from a `TierLoader` whose agent transforms with two
//! threads, and from a `DataLoader` with two workers. By default the tiers may keep decoded images, which is
//! quicker where they fit; a second `TierLoader` keeps them as they are stored, and decodes every time.
//!
//! A turn is a process of its own, which takes batches as quickly as they come. Its first epochs are not measured:
//! they pay for the start of the workers and of the agent, and use what was staged before training began. When the
//! measured part begins, neither side has more ahead than when it ends.

use std::{path::Path, process::Command};

use anyhow::Context as _;

use tierfeed_harness::output::step;

use super::{Side, Turn, side};
use crate::processes::said;

/// The least number of photographs in the measured epochs of a turn.
const MEASURED: usize = 1024;

pub(super) struct Loaders<'a> {
    pub(super) tierfeed: &'a Path,
    pub(super) python: &'a Path,
    pub(super) script: &'a Path,
    pub(super) photographs: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) rounds: usize,
}

impl Loaders<'_> {
    /// The figures of all sides, whose turns alternate; the first is that of the ratios.
    pub(super) fn compare(&self) -> anyhow::Result<Vec<Side>> {
        let names = [super::STORED, super::BY_DEFAULT, super::DATA_LOADER];
        let mut turns = [const { Vec::new() }; 3];
        for round in 1..=self.rounds {
            for (name, turns) in names.into_iter().zip(&mut turns) {
                step(&format!("{name}: turn {round} of {}", self.rounds));
                turns.push(self.turn(name).with_context(|| name.to_owned())?);
            }
        }
        let sides = names.into_iter().zip(&turns).map(|(name, turns)| side(name, turns));
        let mut sides: Vec<Side> = sides.collect::<Option<_>>().context("no turn")?;
        let ours = sides[0].images_per_s;
        for side in &mut sides {
            side.ratio = ours / side.images_per_s;
            // Workers and agent are other processes.
            side.images_per_cpu_s = None;
        }
        Ok(sides)
    }

    fn turn(&self, name: &str) -> anyhow::Result<Turn> {
        let mut command = Command::new(self.python);
        command
            .args(["-W", "ignore"])
            .arg(self.script)
            .args(["loader", name])
            .arg(self.photographs)
            .arg(MEASURED.to_string())
            .env("TIERFEED_EXE", self.tierfeed)
            .current_dir(self.folder);
        let said = said(&mut command)?;
        let line = said.lines().last().unwrap_or_default();
        serde_json::from_str(line).with_context(|| format!("it said '{said}'"))
    }
}
