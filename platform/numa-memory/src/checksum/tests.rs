#![expect(clippy::similar_names, clippy::cast_possible_truncation, reason = "small numbers")]

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tierfeed_units::{Bytes, Locality};
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::{Pages, Region, Request};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|it| u8::try_from((it * 131 + it / 251) % 256).unwrap()).collect()
}

fn sum_of(pieces: &[&[u8]]) -> u64 {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut sum = Checksum::of_len(len as u64);
    pieces.iter().for_each(|piece| sum.update(piece));
    sum.finish()
}

#[test]
fn every_length_up_to_some_blocks_gives_the_sum_of_xxh3() {
    let bytes = bytes(2200);
    for len in 0..bytes.len() {
        assert_eq!(sum_of(&[&bytes[..len]]), xxh3_64(&bytes[..len]), "{len} B");
    }
}

#[test]
fn a_sum_of_other_bytes_than_were_announced_is_another_sum() {
    let bytes = bytes(5000);
    let mut sum = Checksum::of_len(4000);
    sum.update(&bytes);
    assert_ne!(sum.finish(), xxh3_64(&bytes[..4000]));
    let mut short = Checksum::of_len(100);
    short.update(&bytes);
    let _any_sum_will_do = short.finish();
}

/// Another thread writes one of two values into every byte of the origin all the time. The stored
/// bytes must be the summed bytes, independent of which value was read.
#[test]
fn bytes_that_change_meanwhile_are_the_same_in_the_sum_and_in_the_copy() {
    let (locality, pages) = (Locality::Anywhere, Pages::Small);
    let region = |name| {
        let request = Request { len: Bytes(1 << 16), locality, name, pages };
        Region::allocate(&request).unwrap()
    };
    let (origin, copy) = (region("changing"), region("copy"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in (0..=u8::MAX).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                origin.fill(Bytes(0), origin.len(), value).unwrap();
            }
        });
        for round in 0..20_000_u64 {
            let (at, len) = (round % 70, [1, 60, 130, 250, 1000, 5000][round as usize % 6]);
            let stores = [Stores::Cached, Stores::NonTemporal][round as usize / 6 % 2];
            let mut sum = Checksum::of_len(len);
            let len = Bytes(len);
            copy.copy_from_summed(Bytes(at), &origin, Bytes(at), len, stores, &mut sum).unwrap();
            let mut stored = vec![0; len.0 as usize];
            copy.read(Bytes(at), &mut stored).unwrap();
            assert_eq!(sum.finish(), xxh3_64(&stored), "{} bytes in round {round}", len.0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

proptest! {
    #[test]
    fn a_sum_does_not_depend_on_the_pieces(
        len in 0..10_000_usize,
        cuts in prop::collection::vec(0..10_000_usize, 0..12),
        grain in prop_oneof![Just(1_usize), Just(64)],
    ) {
        let bytes = bytes(len);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| (cut / grain * grain).min(len)).collect();
        cuts.extend([0, len]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        prop_assert_eq!(sum_of(&pieces), xxh3_64(&bytes), "invariant 1");
    }

    /// The copy starts and ends at any offset, and the bytes around it stay unchanged.
    #[test]
    fn what_is_summed_is_what_is_stored(
        len in 0..6_000_usize,
        from in 0..70_usize,
        to in 0..70_usize,
        cut in 0..6_000_usize,
        stores in prop_oneof![Just(Stores::Cached), Just(Stores::NonTemporal)],
    ) {
        let source = bytes(len + from);
        let mut target = vec![0xa5_u8; to + len + 70];
        let mut sum = Checksum::of_len(len as u64);
        let cut = cut.min(len);
        for (start, end) in [(0, cut), (cut, len)] {
            let place = target[to + start..].as_mut_ptr();
            let piece = &source[from + start..from + end];
            // SAFETY:
            // - Both are valid for `end - start` bytes and parts of different vectors.
            #[expect(unsafe_code, reason = "the function under test")]
            unsafe { feed(&mut sum, piece.as_ptr(), Some(place), piece.len(), stores) };
        }
        prop_assert_eq!(&target[to..to + len], &source[from..]);
        prop_assert!(target[..to].iter().chain(&target[to + len..]).all(|it| *it == 0xa5));
        prop_assert_eq!(sum.finish(), xxh3_64(&source[from..]), "invariant 2");
    }

    /// The processor of the test machine runs only one of the two in the tests above.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn with_vectors_and_without_the_lanes_and_the_copies_are_the_same(
        count in 0..150_usize,
        first in 0..STRIPES_PER_BLOCK,
        from in 0..70_usize,
        to in 0..70_usize,
        stores in prop_oneof![
            Just(None), Just(Some(Stores::Cached)), Just(Some(Stores::NonTemporal)),
        ],
    ) {
        if !is_x86_feature_detected!("avx2") {
            return Ok(());
        }
        let source = bytes(from + count * STRIPE);
        let run = |accumulate: unsafe fn(&mut Accumulators, stripes::Ends, usize, usize)| {
            let (mut lanes, mut target) = (Accumulators::new(), vec![0xa5_u8; count * STRIPE + 140]);
            let to = stores.map(|_| target[to..].as_mut_ptr());
            let stores = stores.unwrap_or(Stores::Cached);
            let ends = stripes::Ends { from: source[from..].as_ptr(), to, stores };
            // SAFETY:
            // - Both ends are valid for `count` stripes and parts of different vectors, and the
            //   processor has AVX2.
            #[expect(unsafe_code, reason = "the function under test")]
            unsafe { accumulate(&mut lanes, ends, first, count) };
            (lanes, target)
        };
        prop_assert_eq!(run(stripes::accumulate_avx2), run(stripes::accumulate_anywhere));
    }
}
