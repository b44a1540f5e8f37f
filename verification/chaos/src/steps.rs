//! Ranks that keep step, as those of a training that adds up gradients: none begins a step before all have made
//! as many. A rank that is stopped or restarted holds up the others.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// The steps that a rank has made, beside those of the others: a file for each rank.
#[derive(Debug)]
pub(crate) struct Steps {
    folder: PathBuf,
    own: File,
    made: u64,
}

impl Steps {
    /// Makes the folder; no rank has made a step yet.
    pub(crate) fn make(folder: &Path, mut ranks: impl Iterator<Item = u32>) -> io::Result<()> {
        fs::create_dir(folder)?;
        ranks.try_for_each(|rank| fs::write(folder.join(rank.to_string()), 0_u64.to_le_bytes()))
    }

    /// Opens the folder for a rank that has made `made` steps.
    pub(crate) fn open(folder: &Path, rank: u32, made: u64) -> io::Result<Self> {
        let own = OpenOptions::new().write(true).open(folder.join(rank.to_string()))?;
        own.write_all_at(&made.to_le_bytes(), 0)?;
        Ok(Self { folder: folder.to_owned(), own, made })
    }

    pub(crate) fn add(&mut self) -> io::Result<()> {
        self.made += 1;
        self.own.write_all_at(&self.made.to_le_bytes(), 0)
    }

    /// Whether all ranks have made at least as many steps as this one.
    pub(crate) fn are_even(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.folder)? {
            let mut made = [0; 8];
            File::open(entry?.path())?.read_exact_at(&mut made, 0)?;
            if u64::from_le_bytes(made) < self.made {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rank_begins_a_step_before_all_have_made_as_many() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("steps");
        Steps::make(&folder, 0..2).unwrap();
        let mut first = Steps::open(&folder, 0, 0).unwrap();
        assert!(first.are_even().unwrap());
        first.add().unwrap();
        assert!(!first.are_even().unwrap());
        let second = Steps::open(&folder, 1, 1).unwrap();
        assert!(first.are_even().unwrap() && second.are_even().unwrap());
    }
}
