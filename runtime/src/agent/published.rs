//! Orders that trainers published, stored in files: the report needs them at the end, and they may exceed
//! the memory budget of the job.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tierfeed_core::id::{Epoch, Rank, SampleId};

use crate::observe::report::Published;

#[derive(Debug, Clone)]
pub struct PublishedOrders(PathBuf);

impl PublishedOrders {
    /// `folder` is created with the first order.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Takes 4 B for each sample.
    pub fn keep(&self, rank: Rank, epoch: Epoch, samples: &[SampleId]) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.0.to_le_bytes()).collect();
        fs::write(self.file(rank, epoch), bytes)
    }

    /// Removes the orders of earlier processes.
    pub fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn file(&self, rank: Rank, epoch: Epoch) -> PathBuf {
        self.0.join(Path::new(&format!("rank{}-epoch{}", rank.0, epoch.0)))
    }
}

impl Published for PublishedOrders {
    fn samples(&self, rank: Rank, epoch: Epoch) -> Option<Vec<SampleId>> {
        let bytes = fs::read(self.file(rank, epoch)).ok()?;
        let (words, _) = bytes.as_chunks::<4>();
        Some(words.iter().map(|word| SampleId(u32::from_le_bytes(*word))).collect())
    }
}

/// No orders if there is no folder.
impl Published for Option<PublishedOrders> {
    fn samples(&self, rank: Rank, epoch: Epoch) -> Option<Vec<SampleId>> {
        self.as_ref()?.samples(rank, epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_order_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let orders = PublishedOrders::new(folder.path().join("published"));
        let samples = vec![SampleId(3), SampleId(u32::MAX), SampleId(0)];
        orders.keep(Rank(1), Epoch(2), &samples).unwrap();
        assert_eq!(orders.samples(Rank(1), Epoch(2)), Some(samples));
        assert_eq!(orders.samples(Rank(2), Epoch(1)), None);
        orders.clear().unwrap();
        orders.clear().unwrap();
        assert_eq!(orders.samples(Rank(1), Epoch(2)), None);
    }
}
