//! Passes fetches of a job with several datasets on to the fetcher of each.

use tierfeed_core::id::SampleId;

use super::{Fetch, Fetcher};

/// A fetcher for each dataset of a job. Samples are numbered over all of them; the fetchers number those of
/// their own dataset from 0.
#[derive(Debug)]
pub struct DatasetFetchers {
    first: Box<dyn Fetcher>,
    further: Vec<(SampleId, Box<dyn Fetcher>)>,
}

impl DatasetFetchers {
    /// `further` is ascending by the first sample of each dataset.
    #[must_use]
    pub fn new(first: Box<dyn Fetcher>, further: Vec<(SampleId, Box<dyn Fetcher>)>) -> Self {
        Self { first, further }
    }
}

impl Fetcher for DatasetFetchers {
    fn start(&self, mut fetch: Fetch) {
        let of_dataset = self.further.iter().rev().find(|(begin, _)| *begin <= fetch.sample);
        match of_dataset {
            None => self.first.start(fetch),
            Some((begin, fetcher)) => {
                fetch.sample.0 -= begin.0;
                fetcher.start(fetch);
            }
        }
    }

    fn waits_for(&self, sample: SampleId) -> Option<String> {
        match self.further.iter().rev().find(|(begin, _)| *begin <= sample) {
            None => self.first.waits_for(sample),
            Some((begin, fetcher)) => fetcher.waits_for(SampleId(sample.0 - begin.0)),
        }
    }

    /// The engine of the first dataset, which most reads are from.
    fn backend(&self) -> &'static str {
        self.first.backend()
    }

    fn stop(&self) {
        self.first.stop();
        self.further.iter().for_each(|(_, fetcher)| fetcher.stop());
    }
}
