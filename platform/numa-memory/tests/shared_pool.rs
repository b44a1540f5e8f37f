//! A pool: pieces of memory that are allocated and freed in one address space, and who may access
//! them.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{fs, os::fd::OwnedFd, sync::Arc};

use memmap2::MmapOptions;
use nix::{errno::Errno, sys::stat::fstat, unistd::write};
use tierfeed_numa_memory::{
    AllocateError, Placement, ReadView, SharedPool, SharedPoolRequest, View,
};
use tierfeed_test_needs::{Need, requires};
use tierfeed_units::{Bytes, Locality, NumaNode};

const PIECE: Bytes = Bytes::mib(1);

fn pool(pieces_max: u32, locality: Locality) -> Arc<SharedPool> {
    let request = SharedPoolRequest { piece: PIECE, pieces_max, locality, name: "test-pool" };
    Arc::new(SharedPool::reserve(&request).unwrap())
}

fn fd(pool: &SharedPool) -> OwnedFd {
    pool.fd().try_clone_to_owned().unwrap()
}

fn held(pool: &SharedPool) -> Bytes {
    Bytes(u64::try_from(fstat(pool.fd()).unwrap().st_blocks).unwrap() * 512)
}

fn word(view: &ReadView, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    view.read(Bytes(offset), &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn who_maps_a_pool_once_reads_every_piece_that_is_ever_taken() {
    let pool = pool(4, Locality::Anywhere);
    let first = pool.take().unwrap();
    first.write(Bytes(64), &7_u64.to_le_bytes()).unwrap();
    let view = ReadView::map(fd(&pool), pool.len()).unwrap();
    assert_eq!(word(&view, first.offset().0 + 64), 7);
    let second = pool.take().unwrap();
    assert_ne!(first.offset(), second.offset());
    second.write(Bytes(0), &9_u64.to_le_bytes()).unwrap();
    assert_eq!(word(&view, second.offset().0), 9);
    assert_eq!(word(&view, first.offset().0 + 64), 7);
    let beyond = view.read(pool.len(), &mut [0]);
    assert!(beyond.is_err(), "{beyond:?}");
}

#[test]
fn no_other_process_can_write_to_a_pool() {
    let pool = pool(2, Locality::Anywhere);
    let piece = pool.take().unwrap();
    assert!(View::map(fd(&pool), pool.len()).is_err(), "a writable mapping");
    let length = usize::try_from(pool.len().0).unwrap();
    let raw = MmapOptions::new().len(length).map_raw(&fd(&pool));
    assert_eq!(raw.unwrap_err().raw_os_error(), Some(libc::EACCES));
    assert_eq!(write(fd(&pool), b"x"), Err(Errno::EBADF));
    let mode = fstat(pool.fd()).unwrap().st_mode & 0o777;
    assert_eq!(mode, 0o400, "opening it anew for writing takes an intention");
    piece.write(Bytes(0), b"mine").unwrap();
}

#[test]
fn a_piece_has_memory_only_while_it_is_there_and_the_next_one_starts_empty() {
    let pool = pool(1 << 20, Locality::Anywhere);
    assert_eq!((held(&pool), pool.len()), (Bytes(0), Bytes(1 << 40)));
    let pieces = [pool.take().unwrap(), pool.take().unwrap()];
    assert_eq!(held(&pool), Bytes(2 * PIECE.0));
    let view = ReadView::map(fd(&pool), pool.len()).unwrap();
    let [first, second] = pieces;
    first.fill(Bytes(0), PIECE, 0xaa).unwrap();
    let offset = first.offset();
    assert_eq!(word(&view, offset.0), 0xaaaa_aaaa_aaaa_aaaa);
    drop(first);
    assert_eq!(held(&pool), PIECE);
    let again = pool.take().unwrap();
    assert_eq!(again.offset(), offset, "the lowest place that is free");
    assert_eq!(word(&view, offset.0), 0, "also in an earlier mapping");
    again.write(Bytes(0), &5_u64.to_le_bytes()).unwrap();
    assert_eq!(word(&view, offset.0), 5);
    drop((again, second));
    assert_eq!(held(&pool), Bytes(0));
}

#[test]
fn a_pool_gives_as_many_pieces_as_it_was_asked_for() {
    let pool = pool(2, Locality::Anywhere);
    let pieces = [pool.take().unwrap(), pool.take().unwrap()];
    let none = pool.take();
    assert!(matches!(none, Err(AllocateError::NoRoom { wanted: PIECE, .. })), "{none:?}");
    drop(pieces);
    assert!(pool.take().is_ok());
}

#[test]
fn lengths_that_no_address_space_has_are_refused() {
    let reserve = |piece, pieces_max| {
        let locality = Locality::Anywhere;
        SharedPool::reserve(&SharedPoolRequest { piece, pieces_max, locality, name: "test-pool" })
    };
    assert!(matches!(reserve(Bytes(0), 1), Err(AllocateError::Empty)));
    assert!(matches!(reserve(PIECE, 0), Err(AllocateError::Empty)));
    assert!(matches!(reserve(Bytes(u64::MAX), 1), Err(AllocateError::TooLarge { .. })));
    let beyond = reserve(Bytes(1 << 40), u32::MAX);
    assert!(beyond.is_err(), "{beyond:?}");
}

#[test]
fn pieces_lie_on_the_node_that_was_asked_for() {
    let list = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap();
    let is_one = list.trim() == "0";
    assert!(!is_one || !requires(Need::SeveralNodes), "{list}");
    let ranges = list.trim().split(',').map(|it| it.split_once('-').unwrap_or((it, it)));
    for (first, last) in ranges {
        for node in first.parse::<u32>().unwrap()..=last.parse().unwrap() {
            let node = NumaNode(node);
            let pool = pool(3, Locality::Numa(node));
            let pieces = [pool.take().unwrap(), pool.take().unwrap()];
            for piece in &pieces {
                let Placement::Verified { node: on, pages_sampled, pages_on_node } =
                    piece.placement_now().unwrap()
                else {
                    panic!("{:?}", piece.placement());
                };
                assert_eq!((on, pages_sampled, pages_on_node), (node, 16, 16));
            }
        }
    }
}

#[test]
fn who_reads_a_pool_reads_on_when_its_maker_is_gone() {
    let pool = pool(2, Locality::Anywhere);
    let pieces = [pool.take().unwrap(), pool.take().unwrap()];
    pieces[1].fill(Bytes(0), PIECE, 0xaa).unwrap();
    let (view, offset) = (ReadView::map(fd(&pool), pool.len()).unwrap(), pieces[1].offset());
    pool.keep_for_readers();
    drop((pieces, pool));
    assert_eq!(word(&view, offset.0), 0xaaaa_aaaa_aaaa_aaaa);
}

#[test]
fn a_piece_that_was_taken_empty_gets_its_memory_range_by_range() {
    let pool = pool(2, Locality::Anywhere);
    let [first, second] = [pool.take_empty().unwrap(), pool.take_empty().unwrap()];
    assert_eq!(held(&pool), Bytes(0));
    let half = Bytes(PIECE.0 / 2);
    second.populate(half, half).unwrap();
    assert_eq!(held(&pool), half);
    let view = ReadView::map(fd(&pool), pool.len()).unwrap();
    second.write(half, &7_u64.to_le_bytes()).unwrap();
    second.populate(Bytes(0), PIECE).unwrap();
    assert_eq!((word(&view, second.offset().0 + half.0), held(&pool)), (7, PIECE));
    for outside in [first.populate(half, PIECE), first.populate(PIECE, Bytes(u64::MAX))] {
        assert!(matches!(outside, Err(AllocateError::Outside { .. })), "{outside:?}");
    }
    assert_eq!(held(&pool), PIECE, "nothing of the neighbour was given back");
    drop((first, second));
    assert_eq!(held(&pool), Bytes(0));
}
