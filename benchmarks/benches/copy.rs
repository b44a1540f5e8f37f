//! A copy between two chunks, as tiers make it, beside `memcpy` between private memory of the same
//! size on the same thread. The ratio of the two is the promise; the rates are the machine's.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Pages, Region, Request};

const LEN: Bytes = Bytes::mib(64);

/// A sample of ImageNet, and a piece that is larger than any cache.
const PIECES: [Bytes; 2] = [Bytes(114_688), Bytes::mib(16)];

fn region(name: &str) -> Region {
    let request = Request { len: LEN, locality: Locality::Anywhere, name, pages: Pages::Small };
    Region::allocate(&request).expect("the bench needs 256 MiB of free memory")
}

fn copies(criterion: &mut Criterion) {
    let (from, to) = (region("bench-from"), region("bench-to"));
    let len = usize::try_from(LEN.0).expect("64 MiB fits");
    let (source, mut target) = (vec![1_u8; len], vec![2_u8; len]);
    for piece in PIECES {
        let mut group = criterion.benchmark_group(format!("copy of {piece}"));
        group.throughput(Throughput::Bytes(piece.0)).sample_size(30);
        let mut offsets = (0..LEN.0 / piece.0).map(|i| Bytes(i * piece.0)).cycle();
        group.bench_function("chunk to chunk", |bencher| {
            bencher.iter(|| {
                let offset = offsets.next().expect("a cycle has no end");
                to.copy_from(offset, &from, offset, piece).expect("the range lies inside");
            });
        });
        let piece_len = usize::try_from(piece.0).expect("16 MiB fits");
        let mut starts = (0..len / piece_len).map(|i| i * piece_len).cycle();
        group.bench_function("memcpy", |bencher| {
            bencher.iter(|| {
                let range = starts.next().map(|start| start..start + piece_len);
                let range = range.expect("a cycle has no end");
                target[range.clone()].copy_from_slice(&source[range]);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, copies);
criterion_main!(benches);
