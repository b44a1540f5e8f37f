//! A source behind an emulated link: a slow cold store on a fast disk.

use tierfeed_core::{id::SampleId, tier::Speed, units::Bytes};

use crate::{
    pace::{Link, Pace},
    read::{PartSource, ReadError, Source, Target},
};

/// Reads from `S`, and returns no earlier than a link of the given speed would allow.
#[derive(Debug)]
pub struct ThrottledSource<S> {
    source: S,
    link: Link,
    pace: Pace,
}

impl<S> ThrottledSource<S> {
    #[must_use]
    pub fn new(source: S, speed: Speed) -> Self {
        Self { source, link: Link::new(speed), pace: Pace::start() }
    }
}

impl<S: Source> Source for ThrottledSource<S> {
    /// The link is reserved even if the read fails: a store takes time for an error, too.
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError> {
        let deadline = self.link.reserve(&self.pace, to.len());
        let outcome = self.source.read(sample, to);
        self.pace.wait_until_blocking(deadline);
        outcome
    }

    fn stop(&self) {
        self.pace.release();
        self.source.stop();
    }
}

impl<S: PartSource> PartSource for ThrottledSource<S> {
    fn read_part(
        &self,
        sample: SampleId,
        from: Bytes,
        buffer: &mut [u8],
    ) -> Result<usize, ReadError> {
        let deadline = self.link.reserve(&self.pace, Bytes(buffer.len() as u64));
        let outcome = self.source.read_part(sample, from, buffer);
        self.pace.wait_until_blocking(deadline);
        outcome
    }
}
