//! What a copy costs beside reading in place: samples of a tier are copied to staging memory and read there, or read
//! where they lie.
//!
//! A copy is what an agent and its trainer do: two threads take the samples of a chunk to staging memory, then one
//! thread reads them there. In place, one thread reads them through a read-only mapping of the shared tier. Both read
//! by the same loop, the checksum, which touches every byte once. The chunk is longer than any cache. Main memory
//! stands for the tier.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::{fmt::Debug, sync::Arc, thread};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{
    Checksum, Mapping, Pages, ReadView, Region, Request, SharedPool, SharedPoolRequest, Span,
    kernels,
};

const CHUNK: Bytes = Bytes::mib(128);
const SAMPLE: u64 = 112 << 10;
const THREADS: usize = 2;
/// Not zeros: pages that were never written may all be the kernel's zero page.
const FILLED: u8 = 0x5a;

/// A chunk of the tier, as mapped by the agent and by a trainer, and staging memory.
struct Memory {
    tier: Span,
    seen: ReadView,
    staging: Region,
}

impl Memory {
    fn take() -> Self {
        let (locality, name) = (Locality::Anywhere, "tierfeed-bench-direct");
        let request = SharedPoolRequest { piece: CHUNK, pieces_max: 1, locality, name };
        let pool = Arc::new(SharedPool::reserve(&request).expect("memory of a tier"));
        let tier = pool.take().expect("its one piece");
        let shared = pool.fd().try_clone_to_owned().expect("a descriptor");
        let seen = ReadView::map(shared, pool.len()).expect("a second mapping");
        let request = Request { len: CHUNK, locality, name, pages: Pages::Huge };
        let staging = Region::allocate(&request).expect("staging memory");
        tier.fill(Bytes(0), CHUNK, FILLED).expect("it has this length");
        Self { tier, seen, staging }
    }

    /// Copies every sample, divided over all threads.
    fn copy(&self) {
        thread::scope(|scope| {
            for number in 0..THREADS {
                let own = samples().skip(number).step_by(THREADS);
                scope.spawn(move || own.for_each(|(at, len)| self.copy_one(at, len)));
            }
        });
    }

    fn copy_one(&self, at: Bytes, len: Bytes) {
        let (staging, tier): (&Mapping, &Mapping) = (&self.staging, &self.tier);
        let copied = if kernels::has_non_temporal_stores() {
            staging.copy_from_non_temporal(at, tier, at, len)
        } else {
            staging.copy_from(at, tier, at, len)
        };
        copied.expect("samples lie in both");
    }
}

fn read<E: Debug>(sum_into: impl Fn(Bytes, Bytes, &mut Checksum) -> Result<(), E>) {
    for (at, len) in samples() {
        sum_into(at, len, &mut Checksum::of_len(len.0)).expect("samples lie in it");
    }
}

/// The start and the length of each sample.
fn samples() -> impl Iterator<Item = (Bytes, Bytes)> {
    let starts = (0..CHUNK.0.div_ceil(SAMPLE)).map(|index| index * SAMPLE);
    starts.map(|start| (Bytes(start), Bytes(SAMPLE.min(CHUNK.0 - start))))
}

fn direct(c: &mut Criterion) {
    let memory = Memory::take();
    memory.copy();
    let mut last = [0];
    memory.staging.read(Bytes(CHUNK.0 - 1), &mut last).expect("its last byte");
    assert_eq!(last, [FILLED], "every sample is copied");
    let mut group = c.benchmark_group("direct");
    group.sample_size(15).throughput(Throughput::Bytes(CHUNK.0));
    group.bench_function("copied and read", |it| {
        it.iter(|| {
            memory.copy();
            read(|at, len, sum| memory.staging.sum_into(at, len, sum));
        });
    });
    group.bench_function("read in place", |it| {
        it.iter(|| read(|at, len, sum| memory.seen.sum_into(at, len, sum)));
    });
    group.finish();
}

criterion_group!(benches, direct);
criterion_main!(benches);
