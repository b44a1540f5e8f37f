//! The guarantees of a ring of reads into regions.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc, time::Duration};

use tierfeed_file_io::{
    io_uring_available,
    reads::{Destination, Ended, RANGES_MAX, Read, ReadRefusal, ReadRing, RegionRange, Waker},
};
use tierfeed_numa_memory::{Pages, Region, Request, late_holes};
use tierfeed_test_needs::{Need, skip};
use tierfeed_units::{Bytes, Locality};

const BLOCK: usize = 4096;

/// A ring, if this machine has `io_uring`.
#[track_caller]
fn ring(depth: u16) -> Option<(ReadRing, Waker)> {
    if let Err(reason) = io_uring_available() {
        skip(Need::IoUring, reason);
        return None;
    }
    let waker = Waker::new().unwrap();
    Some((ReadRing::new(depth, waker.clone()).unwrap(), waker))
}

fn region(len: usize) -> Arc<Region> {
    let len = Bytes(len as u64);
    let request = Request { len, locality: Locality::Anywhere, name: "test", pages: Pages::Small };
    Arc::new(Region::allocate(&request).unwrap())
}

/// A file of so many blocks, each filled with its number plus `salt`.
fn blocks(count: u8, salt: u8) -> Arc<File> {
    let file = tempfile::tempfile().unwrap();
    for block in 0..count {
        file.write_all_at(&[block + salt; BLOCK], u64::from(block) * BLOCK as u64).unwrap();
    }
    Arc::new(file)
}

fn range(region: &Arc<Region>, offset: usize, len: usize) -> RegionRange {
    RegionRange { region: Arc::clone(region), offset: Bytes(offset as u64), len: Bytes(len as u64) }
}

fn read(file: &Arc<File>, offset: usize, to: Destination, token: u64) -> Read {
    Read { file: Arc::clone(file), offset: offset as u64, to, token }
}

fn wait_for(ring: &mut ReadRing, count: usize) -> Vec<Ended> {
    let mut ended = Vec::new();
    while ended.len() < count {
        ring.wait(None, &mut ended).unwrap();
    }
    ended.sort_by_key(|it| it.token);
    ended
}

fn bytes(region: &Region, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(Bytes(offset as u64), &mut bytes).unwrap();
    bytes
}

#[test]
fn one_read_fills_many_places_one_behind_the_other_and_nothing_beside_them() {
    let Some((mut ring, _)) = ring(4) else { return };
    let (file, region) = (blocks(3, 1), region(64 << 10));
    let ranges = vec![range(&region, 100, 1000), range(&region, 5000, 7000), range(&region, 64, 1)];
    ring.push(read(&file, 90, Destination::Ranges(ranges), 7)).unwrap();
    let ended = wait_for(&mut ring, 1).pop().unwrap();
    assert_eq!((ended.token, ended.outcome.unwrap()), (7, 8001));
    let mut whole = vec![0; 3 * BLOCK];
    file.read_exact_at(&mut whole, 0).unwrap();
    assert_eq!(bytes(&region, 100, 1000), whole[90..1090]);
    assert_eq!(bytes(&region, 5000, 7000), whole[1090..8090]);
    assert_eq!(bytes(&region, 64, 1), whole[8090..8091]);
    for (start, end) in [(0, 64), (65, 100), (1100, 5000), (12_000, 64 << 10)] {
        assert!(bytes(&region, start, end - start).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn more_files_and_regions_than_have_numbers_are_not_mixed_up() {
    let Some((mut ring, _)) = ring(3) else { return };
    let files: Vec<_> = (0..100).map(|salt| blocks(1, salt)).collect();
    let regions: Vec<_> = (0..70).map(|_| region(BLOCK)).collect();
    for round in 0..4 {
        for (at, file) in files.iter().enumerate() {
            // Every round uses other descriptions of the same files, so that numbers run out.
            let file = Arc::new(file.try_clone().unwrap());
            let region = &regions[(at + round) % regions.len()];
            region.fill(Bytes(0), Bytes(BLOCK as u64), 0xee).unwrap();
            let to = Destination::Ranges(vec![range(region, 0, BLOCK)]);
            ring.push(read(&file, 0, to, 0)).unwrap();
            let ended = wait_for(&mut ring, 1).pop().unwrap();
            assert_eq!(ended.outcome.unwrap(), BLOCK);
            let salt = u8::try_from(at).unwrap();
            assert!(bytes(region, 0, BLOCK).iter().all(|byte| *byte == salt), "{round}, {at}");
        }
    }
}

#[test]
fn a_region_that_is_no_longer_held_is_forgotten_and_one_that_is_held_is_not() {
    let Some((mut ring, _)) = ring(2) else { return };
    let (file, kept, dropped) = (blocks(1, 9), region(BLOCK), region(BLOCK));
    for region in [&kept, &dropped] {
        let to = Destination::Ranges(vec![range(region, 0, BLOCK)]);
        ring.push(read(&file, 0, to, 0)).unwrap();
        wait_for(&mut ring, 1);
    }
    if let Err(error) = ring.registration() {
        skip(Need::IoUring, format_args!("memory cannot be registered: {error:?}"));
        return;
    }
    drop(dropped);
    assert!(ring.forget_regions(), "one is held still");
    drop(kept);
    assert!(!ring.forget_regions());
}

#[test]
fn a_read_to_a_buffer_brings_it_back_and_another_ring_does_not_trust_its_number() {
    let Some((mut ring_of_it, _)) = ring(2) else { return };
    let Some((mut other, _)) = ring(2) else { return };
    // Both have a first buffer, under the same number.
    let (first, bystander) = (ring_of_it.bounce(BLOCK), other.bounce(BLOCK));
    let file = blocks(2, 5);
    let to = Destination::Bounce(first, BLOCK);
    ring_of_it.push(read(&file, 0, to, 1)).unwrap();
    let bounce = wait_for(&mut ring_of_it, 1).pop().unwrap().bounce.unwrap();
    assert!(bounce.as_slice().iter().all(|byte| *byte == 5));
    other.push(read(&file, BLOCK, Destination::Bounce(bounce, 100), 2)).unwrap();
    let ended = wait_for(&mut other, 1).pop().unwrap();
    assert_eq!(ended.outcome.unwrap(), 100);
    let bounce = ended.bounce.unwrap();
    assert!(bounce.as_slice()[..100].iter().all(|byte| *byte == 6));
    assert!(bounce.as_slice()[100..].iter().all(|byte| *byte == 5));
    assert!(bystander.as_slice().iter().all(|byte| *byte == 0), "the other buffer is untouched");
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some((mut ring, _)) = ring(1) else { return };
    let (file, region) = (blocks(1, 0), region(BLOCK));
    let ranges = |count, len| Destination::Ranges(vec![range(&region, 0, len); count]);
    for to in [ranges(0, 1), ranges(1, 0), ranges(RANGES_MAX + 1, 1)] {
        let refused = ring.push(read(&file, 0, to, 0));
        assert!(matches!(refused, Err(ReadRefusal::Shape { .. })), "{refused:?}");
    }
    let outside = Destination::Ranges(vec![range(&region, 1, BLOCK)]);
    let refused = ring.push(read(&file, 0, outside, 0));
    assert!(matches!(refused, Err(ReadRefusal::Range(_))), "{refused:?}");
    let bounce = ring.bounce(BLOCK);
    let refused = ring.push(read(&file, 0, Destination::Bounce(bounce, BLOCK + 1), 0));
    assert!(matches!(refused, Err(ReadRefusal::Shape { .. })), "{refused:?}");
    ring.push(read(&file, 0, ranges(1, 1), 0)).unwrap();
    let refused = ring.push(read(&file, 0, ranges(1, 1), 0));
    assert!(matches!(refused, Err(ReadRefusal::Full { depth: 1 })), "{refused:?}");
    assert_eq!(wait_for(&mut ring, 1).len(), 1);
    assert!(ring.has_room());
}

#[test]
fn a_read_across_the_end_is_short_and_one_of_a_wrong_descriptor_fails_alone() {
    let Some((mut ring, _)) = ring(4) else { return };
    let (file, region) = (blocks(1, 3), region(4 * BLOCK));
    let write_only = tempfile::NamedTempFile::new().unwrap();
    let write_only = Arc::new(File::options().write(true).open(write_only.path()).unwrap());
    let to = |at: usize| Destination::Ranges(vec![range(&region, at * BLOCK, BLOCK)]);
    ring.push(read(&file, 4000, to(0), 0)).unwrap();
    ring.push(read(&file, 2 * BLOCK, to(1), 1)).unwrap();
    ring.push(read(&write_only, 0, to(2), 2)).unwrap();
    ring.push(read(&file, 0, to(3), 3)).unwrap();
    let mut ended = wait_for(&mut ring, 4).into_iter().map(|it| it.outcome);
    assert_eq!(ended.next().unwrap().unwrap(), 96);
    assert_eq!(ended.next().unwrap().unwrap(), 0);
    assert!(ended.next().unwrap().is_err());
    assert_eq!(ended.next().unwrap().unwrap(), BLOCK);
}

#[test]
fn a_waker_ends_the_wait_before_and_while_it_lasts_and_so_does_the_timeout() {
    let Some((mut ring, waker)) = ring(1) else { return };
    let mut ended = Vec::new();
    for _ in 0..3 {
        waker.wake();
        ring.wait(None, &mut ended).unwrap();
    }
    let ringer = std::thread::spawn(move || waker.wake());
    ring.wait(None, &mut ended).unwrap();
    ringer.join().unwrap();
    ring.wait(Some(Duration::from_millis(1)), &mut ended).unwrap();
    assert!(ended.is_empty() && ring.in_flight() == 0);
}

#[test]
fn a_dropped_ring_writes_nothing_any_more() {
    let Some((mut ring, _)) = ring(8) else { return };
    let (file, region) = (blocks(8, 1), region(8 * BLOCK));
    for at in 0..8 {
        let to = Destination::Ranges(vec![range(&region, at * BLOCK, BLOCK)]);
        ring.push(read(&file, at * BLOCK, to, 0)).unwrap();
    }
    ring.start();
    drop(ring);
    assert_eq!(Arc::strong_count(&region), 1);
    region.fill(Bytes(0), Bytes(8 * BLOCK as u64), 0xee).unwrap();
    assert!(bytes(&region, 0, 8 * BLOCK).iter().all(|byte| *byte == 0xee));
}

/// The bug: a ring registered the whole piece of a region again after its end had been given back.
/// The kernel filled the hole to pin it, so that memory was taken back when it was short.
#[test]
fn memory_that_was_given_back_is_not_taken_again_for_a_read_beside_it() {
    let Some((mut ring, _)) = ring(2) else { return };
    let (file, half) = (blocks(1, 7), 16 << 20);
    let region = region(2 * half);
    let mut read_at = |offset: usize| {
        let to = Destination::Ranges(vec![range(&region, offset, BLOCK)]);
        ring.push(read(&file, 0, to, 0)).unwrap();
        assert_eq!(wait_for(&mut ring, 1).pop().unwrap().outcome.unwrap(), BLOCK);
        assert!(bytes(&region, offset, BLOCK).iter().all(|byte| *byte == 7));
        ring.registration().map_err(io::Error::kind)?;
        Ok::<_, io::ErrorKind>(ring.forget_regions())
    };
    if read_at(0).is_err() {
        return skip(Need::LockedMemory, "memory cannot be registered here");
    }
    let len = Bytes(half as u64);
    region.give_back(len, len).unwrap();
    for offset in [0, half - BLOCK, 0] {
        assert_eq!(read_at(offset), Ok(true), "what is left is registered");
        assert_eq!(region.resident().unwrap(), len, "after a read at {offset}");
    }
    region.restore(len, len).unwrap();
    assert_eq!(read_at(2 * half - BLOCK), Ok(true));
    assert_eq!(region.resident().unwrap(), region.len());
}

/// The bug: the count by which a ring knows that memory was given back rose before the memory was
/// released. A ring that registered in between pinned pages under the new count that the region
/// then lost, and bytes that it read there after the memory had come back were lost silently.
#[test]
fn what_is_read_into_memory_that_came_back_is_there_however_a_ring_registers_meanwhile() {
    let Some((mut first, _)) = ring(2) else { return };
    let (len, rounds) = (64 << 20, 10);
    let (half, last) = (len / 2, len - BLOCK);
    let (region, file) = (region(len), blocks(2, 7));
    let to = Destination::Ranges(vec![range(&region, 0, BLOCK)]);
    first.push(read(&file, 0, to, 0)).unwrap();
    assert_eq!(wait_for(&mut first, 1).pop().unwrap().outcome.unwrap(), BLOCK);
    if first.registration().is_err() {
        return skip(Need::LockedMemory, "memory cannot be registered here");
    }
    drop(first);
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let (answer, answered) = std::sync::mpsc::channel::<()>();
    let reader = {
        let (region, file) = (Arc::clone(&region), Arc::clone(&file));
        std::thread::spawn(move || {
            let mut ring = ReadRing::new(2, Waker::new().unwrap()).unwrap();
            let mut read_at = |from: usize, offset: usize| {
                let to = Destination::Ranges(vec![range(&region, offset, BLOCK)]);
                ring.push(read(&file, from, to, 0)).unwrap();
                assert_eq!(wait_for(&mut ring, 1).pop().unwrap().outcome.unwrap(), BLOCK);
            };
            loop {
                read_at(0, 0);
                match asked.try_recv() {
                    Ok(()) => {
                        read_at(BLOCK, last);
                        answer.send(()).unwrap();
                    }
                    Err(std::sync::mpsc::TryRecvError::Empty) => (),
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                }
            }
        })
    };
    let range = (Bytes(half as u64), Bytes(half as u64));
    late_holes::give_back_late(Duration::from_millis(20));
    for round in 0..rounds {
        region.give_back(range.0, range.1).unwrap();
        assert_eq!(region.resident().unwrap(), range.0, "round {round}");
        region.restore(range.0, range.1).unwrap();
        ask.send(()).unwrap();
        answered.recv().unwrap();
        assert!(bytes(&region, last, BLOCK).iter().all(|byte| *byte == 8), "round {round}");
    }
    late_holes::give_back_late(Duration::ZERO);
    drop(ask);
    reader.join().unwrap();
}
