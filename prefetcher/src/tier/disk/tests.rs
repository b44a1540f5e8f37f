use std::{collections::BTreeMap, os::unix::fs::MetadataExt as _};

use proptest::prelude::*;
use tierfeed_core::tier::Locality;
use tierfeed_numa_memory::{Pages, Region, Request};

use super::{windows::WINDOWS_MAX, *};

const CHUNK: Bytes = Bytes(3 * WINDOW + 64 * 1024);

fn region(len: u64) -> Region {
    let (len, locality) = (Bytes(len), Locality::Anywhere);
    Region::allocate(&Request { len, locality, name: "disk", pages: Pages::Small }).unwrap()
}

/// A chunk in a file of the build directory, which lies on a disk where `/tmp` may be memory.
fn chunk(windows: &Arc<Windows>) -> Arc<DiskChunk> {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    nix::fcntl::posix_fallocate(&file, 0, i64::try_from(CHUNK.0).unwrap()).unwrap();
    Arc::new(DiskChunk::new(file, CHUNK, windows))
}

fn buffered(windows: &Arc<Windows>) -> Arc<DiskChunk> {
    let mut chunk = Arc::into_inner(chunk(windows)).unwrap();
    direct::set_caching(&chunk.file, Caching::Used).unwrap();
    chunk.block = None;
    Arc::new(chunk)
}

struct Side {
    chunk: Arc<DiskChunk>,
    origin: Region,
    copy: Region,
    bounce: Bounce,
}

impl Side {
    fn of(chunk: Arc<DiskChunk>) -> Self {
        let bounce = Bounce::default();
        Self { chunk, origin: region(CHUNK.0), copy: region(CHUNK.0), bounce }
    }

    fn write(&mut self, offset: u64, len: u64, value: u8) {
        self.origin.fill(Bytes(0), Bytes(len), value).unwrap();
        self.chunk.write(Bytes(offset), (&self.origin, Bytes(0)), Bytes(len), None).unwrap();
    }

    fn read(&mut self, offset: u64, len: u64) -> Vec<u8> {
        self.copy.fill(Bytes(0), Bytes(len), 0xee).unwrap();
        let sink = (Stores::Cached, None);
        let to = (&*self.copy, Bytes(0));
        self.chunk.read(Bytes(offset), to, Bytes(len), sink, &mut self.bounce).unwrap();
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        self.copy.read(Bytes(0), &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn a_window_that_is_full_goes_out_as_one_write_and_one_that_is_not_waits() {
    let windows = Arc::default();
    let mut side = Side::of(chunk(&windows));
    side.write(0, WINDOW - 64, 1);
    assert_eq!(windows.written(), Bytes(0));
    assert_eq!(side.read(100, 8), [1; 8], "it is read from memory");
    side.write(WINDOW - 64, 128, 2);
    assert_eq!(windows.written(), Bytes(WINDOW), "the window, and not the 64 B behind it");
    assert_eq!(side.read(WINDOW - 100, 164), [[1; 36].as_slice(), &[2; 128]].concat());
    let mut on_disk = vec![0; 4096];
    side.chunk.file.read_exact_at(AlignedBuffer::zeroed(4096).as_mut_slice(), 0).unwrap();
    let mut aligned = AlignedBuffer::zeroed(4096);
    side.chunk.file.read_exact_at(aligned.as_mut_slice(), WINDOW).unwrap();
    on_disk.copy_from_slice(aligned.as_slice());
    assert_eq!(on_disk, [0; 4096], "what is not full was not written");
}

#[test]
fn the_edges_of_a_partial_write_keep_what_the_file_had() {
    let windows = Arc::default();
    let mut side = Side::of(chunk(&windows));
    side.write(0, WINDOW, 7);
    side.write(100, 50, 9);
    side.write(5000, 10, 8);
    side.chunk.flush(0);
    let bytes = side.read(0, 8192);
    let expected = |at: usize| match at {
        100..150 => 9,
        5000..5010 => 8,
        _ => 7,
    };
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)), "invariant 3");
}

#[test]
fn more_chunks_than_windows_share_the_memory() {
    let windows: Arc<Windows> = Arc::default();
    let mut sides: Vec<_> = (0..WINDOWS_MAX + 5).map(|_| Side::of(chunk(&windows))).collect();
    for (value, side) in (0..).zip(&mut sides) {
        side.write(64, 1000, value);
    }
    assert_eq!(windows.written(), Bytes(5 * 1000), "invariant 2: the oldest went out");
    for (value, side) in (0..).zip(&mut sides) {
        assert_eq!(side.read(64, 1000), [value; 1000], "invariant 1");
    }
    drop(sides);
    assert_eq!(windows.written(), Bytes(5 * 1000), "what is dropped is not written");
    let mut again = Side::of(chunk(&windows));
    for part in 0..3 {
        again.write(part * WINDOW, 64, 1);
    }
    assert_eq!(windows.written(), Bytes(5 * 1000), "and its memory came back");
}

#[test]
fn a_write_that_fails_is_counted_and_frees_its_memory() {
    let windows: Arc<Windows> = Arc::default();
    let mut side = Side::of(chunk(&windows));
    let chunk = Arc::get_mut(&mut side.chunk).unwrap();
    // Cannot be written to; stands in for a disk that went away.
    chunk.file = File::open("/dev/null").unwrap();
    for _ in 0..2 * WINDOWS_MAX {
        side.write(0, WINDOW, 3);
    }
    assert_eq!(windows.failed(), 2 * WINDOWS_MAX as u64);
    assert_eq!(windows.written(), Bytes(0));
}

#[test]
fn threads_that_write_more_windows_than_there_are_all_get_through() {
    let windows: Arc<Windows> = Arc::default();
    std::thread::scope(|scope| {
        for value in 1..13_u8 {
            let windows = &windows;
            scope.spawn(move || {
                let mut side = Side::of(chunk(windows));
                for round in 0..3 {
                    side.write(round * WINDOW + u64::from(value) * 64, 5000, value);
                }
                for round in 0..3 {
                    let read = side.read(round * WINDOW + u64::from(value) * 64, 5000);
                    assert_eq!(read, [value; 5000]);
                }
            });
        }
    });
    assert_eq!(windows.failed(), 0);
}

#[test]
fn a_file_that_was_cut_off_is_an_error() {
    let windows = Arc::default();
    let mut side = Side::of(chunk(&windows));
    side.write(0, WINDOW, 3);
    side.chunk.file.set_len(4096).unwrap();
    let (to, sink) = ((&*side.copy, Bytes(0)), (Stores::Cached, None));
    let read = side.chunk.read(Bytes(8192), to, Bytes(64), sink, &mut side.bounce);
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_was_written_last_is_read_whatever_went_out_in_between(
        acts in prop::collection::vec((0..CHUNK.0 / 64, 1_u64..40_000, any::<u8>(), 0_u8..8), 1..30),
        is_direct: bool,
    ) {
        let windows = Arc::default();
        let mut side = Side::of(if is_direct { chunk(&windows) } else { buffered(&windows) });
        let mut expected: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        for (grain, len, value, act) in acts {
            let offset = grain * 64;
            let len = (len * 7 % (2 * WINDOW)).clamp(1, CHUNK.0 - offset);
            // Places never overlap while they are used: what is written over is forgotten.
            expected.retain(|start, (other, _)| start + *other <= offset || offset + len <= *start);
            side.write(offset, len, value);
            expected.insert(offset, (len, value));
            if act == 0 {
                side.chunk.flush(usize::try_from(offset / WINDOW).unwrap());
            }
            for (start, (len, value)) in &expected {
                let read = side.read(*start, *len);
                prop_assert!(read.iter().all(|it| it == value), "invariant 1 at {start}");
            }
        }
        prop_assert_eq!(windows.failed(), 0);
        prop_assert_eq!(side.chunk.file.metadata().unwrap().size(), CHUNK.0);
    }
}
