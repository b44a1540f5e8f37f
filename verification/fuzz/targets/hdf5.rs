//! The output of the HDF5 indexer, for a file of which only signature and length matter.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use tierfeed_dataset::format::hdf5::{self, Samples};
use tierfeed_fuzz::{assert_records_within, assert_within, mutate_numbers, parsed, slice};

/// Length of the fixture whose outputs are the seeds.
const FILE_BYTES: usize = 23_096;
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_numbers(data, size, max_size, seed)
});

fuzz_target!(|input: &[u8]| {
    // For any bytes, the signature is at the returned offset.
    if let Some(at) = parsed(input, hdf5::check_signature) {
        assert!(input[usize::try_from(at).expect("a place in memory")..].starts_with(SIGNATURE));
    }
    let mut file = [0; FILE_BYTES];
    file[..SIGNATURE.len()].copy_from_slice(SIGNATURE);
    let Some(dataset) = parsed(&file, |object| hdf5::parse(input, object)) else { return };
    match dataset.samples {
        Samples::Rows(rows) => {
            assert_records_within(file.len() as u64, rows);
            assert_eq!(dataset.shape.first(), Some(&rows.count));
        }
        Samples::Chunks(chunks) => {
            let ranges: Vec<_> = chunks.chunks.iter().map(|chunk| chunk.range).collect();
            assert_within(&file, &ranges);
            let tiles =
                dataset.shape.iter().zip(&chunks.shape).map(|(axis, len)| axis.div_ceil(*len));
            assert_eq!(tiles.product::<u64>(), ranges.len() as u64);
            assert!(ranges.iter().all(|range| !slice(&file, range).is_empty()));
        }
    }
});
