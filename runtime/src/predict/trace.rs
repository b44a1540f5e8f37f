//! Writes each read of a simulated run as a line of JSON.

use std::io::{self, Write};

use serde::Serialize;
use tierfeed_core::simulator::{Read, Source};

/// A writer of reads.
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
    policy: &'static str,
    tiers: Vec<&'static str>,
    failed: Option<io::Error>,
}

/// The JSON object of one read.
#[derive(Serialize)]
struct Line {
    policy: &'static str,
    epoch: u32,
    step: u32,
    rank: u32,
    sample: u32,
    bytes: u64,
    /// A kind of tier, or `cold`.
    from: &'static str,
    issued_ns: u64,
    arrived_ns: u64,
    needed_ns: u64,
    late_ns: u64,
    ready: bool,
}

impl<W: Write> TraceWriter<W> {
    /// A writer to `out` for nodes with these `tiers`.
    pub const fn new(out: W, tiers: Vec<&'static str>) -> Self {
        Self { out, policy: "", tiers, failed: None }
    }

    /// Sets the policy of the following lines.
    pub const fn begin(&mut self, policy: &'static str) {
        self.policy = policy;
    }

    /// Writes a line, unless an earlier one could not be written.
    pub fn read(&mut self, read: &Read) {
        let from = match read.source {
            Source::Cold => None,
            Source::Peers => Some("peer"),
            Source::Tier(tier) => self.tiers.get(usize::from(tier.0)).copied(),
        };
        let line = Line {
            policy: self.policy,
            epoch: read.batch.epoch.0,
            step: read.batch.step.0,
            rank: read.batch.rank.0,
            sample: read.sample.0,
            bytes: read.len.0,
            from: from.unwrap_or("cold"),
            issued_ns: read.issued.0,
            arrived_ns: read.arrived.0,
            needed_ns: read.needed.0,
            late_ns: read.late().0,
            ready: read.is_ready(),
        };
        if self.failed.is_none() {
            self.failed = self.write(&line).err();
        }
    }

    /// The first error since the last call.
    ///
    /// # Errors
    ///
    /// The first error of the writer.
    pub fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Flushes all lines.
    ///
    /// # Errors
    ///
    /// The first error of the writer.
    pub fn finish(mut self) -> io::Result<()> {
        self.check()?;
        self.out.flush()
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}
