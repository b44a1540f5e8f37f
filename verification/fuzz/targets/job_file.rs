//! Job files; one that is accepted has an order.
#![no_main]

use std::path::Path;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use tierfeed_fuzz::{assert_same, mutate_numbers};
use tierfeed_workload_analyzer::Job;

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_numbers(data, size, max_size, seed)
});

fuzz_target!(|input: &[u8]| {
    let Ok(text) = str::from_utf8(input) else { return };
    let parse = || Job::parse(text, Path::new("/jobs/fuzz.yaml"));
    let job = parse();
    assert_same(&job, &parse());
    let Ok(job) = job else { return };
    assert!(job.batch_size > 0 && job.epochs > 0 && job.staged_batches() >= 2);
    assert!(job.chunk.is_none_or(|chunk| chunk.0 > 0));
    assert!(!job.tiers.is_empty(), "main memory is always there");
    for samples in [0, 1, 1000, u32::MAX] {
        if let Err(error) = job.order(samples) {
            let _ = error.to_string();
        }
    }
});
