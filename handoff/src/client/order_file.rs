//! Writes the order of an epoch into the file in memory that the agent made for it.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::fd::OwnedFd,
};

use tierfeed_core::id::SampleId;

/// Writes the numbers of `samples`, 32 bits each, little-endian.
pub(crate) fn fill_order(file: OwnedFd, samples: &[SampleId]) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(64 * 1024, File::from(file));
    for sample in samples {
        writer.write_all(&sample.0.to_le_bytes())?;
    }
    writer.flush()
}
