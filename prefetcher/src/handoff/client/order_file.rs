//! Writes the order of an epoch into a file in memory that nobody can change any more.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::fd::OwnedFd,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use tierfeed_core::id::SampleId;

/// A sealed memfd with the numbers of `samples`, 32 bits each, little-endian.
pub(in crate::handoff) fn sealed_order(samples: &[SampleId]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut writer = BufWriter::new(File::from(memfd_create("tierfeed-order", flags)?));
    for sample in samples {
        writer.write_all(&sample.0.to_le_bytes())?;
    }
    let file = writer.into_inner()?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}
