//! Samples in objects of a bucket or of a web server, read by blocking threads.
//!
//! The requests are those of the [`ObjectFetcher`](crate::fetcher::ObjectFetcher), one for each sample. Used
//! where each read has a thread: for emulated links and by processes without a data plane.
//!
//! Deliberately absent: several requests for parts of one sample, which need tasks that share its target.

use std::{io, sync::Arc};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::Index;
use tierfeed_object_stores::Client;

use crate::{
    fetcher::objects::{NETWORK_THREADS, ObjectSettings, Put, Requests},
    network::Network,
};
use tierfeed_dataset::read::{PartSource, ReadError, Source, Target, part_of};

#[derive(Debug)]
pub struct ObjectSource {
    requests: Requests,
    network: Network,
}

impl ObjectSource {
    /// `index` must be built from the objects of `client`, which must not repeat requests itself.
    ///
    /// # Errors
    ///
    /// If the threads for the network cannot be started.
    pub fn new(index: Arc<Index>, client: Client, settings: ObjectSettings) -> io::Result<Self> {
        let network = Network::start("tierfeed-objects", NETWORK_THREADS)?;
        Ok(Self { requests: Requests::new(index, client, settings), network })
    }

    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.requests.index
    }

    /// Reads all bytes of `sample` into `buffer`, which must be exactly as long.
    ///
    /// For a process without a data plane, which has no staging memory.
    ///
    /// # Errors
    ///
    /// The content of `buffer` is undefined then.
    pub fn read_into(&self, sample: SampleId, buffer: &mut [u8]) -> Result<(), ReadError> {
        let len = Bytes(buffer.len() as u64);
        self.read_blocking(sample, len, &mut |at, piece| {
            let start = usize::try_from(at).unwrap_or(usize::MAX);
            let rest = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..piece.len()));
            rest.ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(piece);
            Ok(())
        })
    }

    fn read_blocking(&self, sample: SampleId, len: Bytes, put: Put<'_>) -> Result<(), ReadError> {
        let read = self.network.wait_blocking(self.requests.read(sample, len, put));
        read.unwrap_or_else(|| {
            let path = self.requests.path(sample);
            Err(ReadError::Io { path, source: io::ErrorKind::Interrupted.into() })
        })
    }
}

impl Source for ObjectSource {
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError> {
        self.read_blocking(sample, to.len(), &mut |at, piece| to.write(Bytes(at), piece))
    }

    fn stop(&self) {
        self.network.stop();
    }
}

impl PartSource for ObjectSource {
    fn read_part(
        &self,
        sample: SampleId,
        from: Bytes,
        buffer: &mut [u8],
    ) -> Result<usize, ReadError> {
        let samples = self.requests.index.len();
        if sample.0 >= samples {
            return Err(ReadError::Unknown { sample, samples });
        }
        let part = part_of(&self.requests.index.extent(sample), from, buffer.len());
        let len = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
        let mut put = |at: u64, piece: &[u8]| {
            let start = usize::try_from(at.saturating_sub(from.0)).unwrap_or(usize::MAX);
            let rest = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..piece.len()));
            rest.ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(piece);
            Ok(())
        };
        let read = self.network.wait_blocking(self.requests.read_part(sample, part, &mut put));
        let interrupted = || {
            let path = self.requests.path(sample);
            Err(ReadError::Io { path, source: io::ErrorKind::Interrupted.into() })
        };
        read.unwrap_or_else(interrupted).map(|()| len)
    }
}

#[cfg(test)]
mod tests;
