//! Reads extents of files with direct I/O, so that neither the page cache answers nor anything is left there.

use std::{
    fs::File,
    io,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    path::PathBuf,
    sync::Arc,
};

use tierfeed_core::units::Bytes;
use tierfeed_file_io::{
    AlignedBuffer,
    buffer::ALIGNMENT,
    direct::{self, Caching},
};
use tierfeed_numa_memory::cached;

use super::{Aim, ColdReads, Progress};

/// The most that is read of an extent.
const EXTENT_MAX: u64 = 8 << 20;

const PIECE: usize = 1 << 20;

/// Threads that read files at the same time.
const FILES_AT_A_TIME: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileExtent {
    pub path: PathBuf,
    pub offset: u64,
    pub len: u64,
}

/// Files that are read past the page cache.
#[derive(Debug)]
pub struct ColdFiles(pub Vec<FileExtent>);

impl ColdReads for ColdFiles {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn at_a_time(&self) -> usize {
        FILES_AT_A_TIME
    }

    fn read(&self, number: usize, progress: &Arc<Progress>) -> io::Result<()> {
        let extent = &self.0[number];
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot read {}: {error}", extent.path.display()))
        };
        read(extent, progress).map_err(named)
    }
}

fn read(extent: &FileExtent, progress: &Progress) -> io::Result<()> {
    let file = File::open(&extent.path)?;
    let mut is_direct = bypasses_page_cache(&file)?;
    if !is_direct {
        refuse_cached(&file, extent)?;
    }
    // Whole units, which direct I/O asks for.
    let unit = ALIGNMENT as u64;
    let mut at = extent.offset / unit * unit;
    let end = extent.offset.saturating_add(extent.len.min(EXTENT_MAX)).next_multiple_of(unit);
    let mut buffer = AlignedBuffer::zeroed(PIECE);
    let mut piece = if progress.aim() == Aim::FirstByte { ALIGNMENT } else { PIECE };
    while at < end {
        let len = piece.min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let count = match file.read_at(&mut buffer.as_mut_slice()[..len], at) {
            // Some file systems take the flag and refuse the first access.
            Err(error) if is_direct && error.kind() == io::ErrorKind::InvalidInput => {
                is_direct = false;
                direct::set_caching(&file, Caching::Used)?;
                refuse_cached(&file, extent)?;
                continue;
            }
            outcome => outcome?,
        };
        if count > 0 {
            progress.arrived(wanted(extent, at, count as u64))?;
        }
        // At the end of the file, which direct I/O reads to its last byte.
        if count < len {
            return Ok(());
        }
        at += count as u64;
        piece = PIECE;
    }
    Ok(())
}

/// How many of the `count` bytes that were read at `at` belong to the extent. A small sample is one of many
/// in the unit that direct I/O reads, and the store gives samples no faster for that.
fn wanted(extent: &FileExtent, at: u64, count: u64) -> Bytes {
    let end = extent.offset.saturating_add(extent.len.min(EXTENT_MAX));
    Bytes(end.min(at + count).saturating_sub(extent.offset.max(at)))
}

/// Whether reads of the file go past the page cache from now on, as far as the file system says.
fn bypasses_page_cache(file: &File) -> io::Result<bool> {
    let is_aligned =
        direct::alignment(file)?.is_some_and(|it| it.memory.0.max(it.offset.0) <= ALIGNMENT as u64);
    Ok(is_aligned && direct::set_caching(file, Caching::Bypassed).is_ok())
}

/// Refuses an extent that the page cache holds: the rate would not be that of the store.
fn refuse_cached(file: &File, extent: &FileExtent) -> io::Result<()> {
    let refused = |why: String| io::Error::new(io::ErrorKind::Unsupported, why);
    let len = Bytes(extent.len.min(EXTENT_MAX));
    let held = cached(file.as_fd(), Bytes(extent.offset), len).map_err(|error| {
        refused(format!("no direct I/O, and what the page cache holds is not known: {error}"))
    })?;
    if held > Bytes(0) {
        return Err(refused("no direct I/O, and the page cache holds it".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tierfeed_core::units::Nanoseconds;

    use super::*;
    use crate::measure::cold::{ColdError, ColdLimits, measure};

    const LIMITS: ColdLimits = ColdLimits {
        latency: Nanoseconds(20_000_000),
        rate: Nanoseconds(50_000_000),
        total: Nanoseconds(5_000_000_000),
        bytes: Bytes::mib(4),
    };

    #[test]
    fn parts_of_files_are_read_whatever_their_alignment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard");
        fs::write(&path, vec![7; (1 << 20) + 123]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let extent =
            |number: u64| FileExtent { path: path.clone(), offset: number * 10_007, len: 10_007 };
        let files = ColdFiles((0..104).map(extent).collect());
        let reads: Arc<dyn ColdReads> = Arc::new(files);
        match measure(&reads, &LIMITS) {
            Ok(found) => {
                assert!(found.read.0 > 9 * 10_007 && found.read_bytes_per_s.median > 0.0);
            }
            // A file system without direct I/O, whose page cache holds what was just written.
            Err(error) => assert!(matches!(error, ColdError::NoAnswer(_) | ColdError::Failed(_))),
        }
    }

    #[test]
    fn only_bytes_of_the_sample_count() {
        let extent = FileExtent { path: PathBuf::new(), offset: 4_000, len: 200 };
        assert_eq!(wanted(&extent, 0, 4_096), Bytes(96));
        assert_eq!(wanted(&extent, 4_096, 4_096), Bytes(104));
        assert_eq!(wanted(&extent, 8_192, 4_096), Bytes(0));
        let whole = FileExtent { len: 1 << 30, ..extent };
        assert_eq!(wanted(&whole, 4_096, 1 << 20), Bytes(1 << 20));
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let gone = FileExtent { path: "/no/such/shard".into(), offset: 0, len: 10 };
        let reads: Arc<dyn ColdReads> = Arc::new(ColdFiles(vec![gone]));
        let error = measure(&reads, &LIMITS).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /no/such/shard: "), "{error}");
    }
}
