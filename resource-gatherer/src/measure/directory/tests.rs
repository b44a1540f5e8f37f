use std::{collections::BTreeSet, os::unix::fs::FileExt as _};

use tierfeed_file_io::AlignedBuffer;

use super::{
    stream::{RANDOM_BLOCK, random_blocks, random_offset},
    *,
};
use crate::measure::limits::Budget;

const MIB: u64 = 1 << 20;

fn limits(file: Bytes) -> Limits {
    Limits { file, cell: Nanoseconds(30_000_000), ..Budget::Quick.limits() }
}

fn bench(directory: &tempfile::TempDir, time: Nanoseconds) -> Bench {
    let file = DirectFile::create_in(directory.path()).unwrap();
    Bench::new(file, (Engine::best(), BUFFER_COUNT), time, Abort::default()).unwrap()
}

fn site(path: &Path, medium: Medium) -> Site {
    let inventory = Inventory::read(crate::Sysroot::live()).unwrap();
    let mount = mount::holding(&inventory.mounts, path).cloned();
    Site { path: path.to_owned(), mount: mount.map(|mount| Mount { medium, ..mount }) }
}

#[test]
fn the_file_is_whole_blocks_within_the_limit_and_a_quarter_of_the_room() {
    let len = |free: u64, file: u64| {
        file_len(
            Bytes(free * MIB),
            (Medium::SolidState, Locality::Anywhere),
            &limits(Bytes(file * MIB)),
        )
    };
    assert_eq!(len(10_000, 257).unwrap(), Bytes::mib(257));
    assert_eq!(len(103, 256).unwrap(), Bytes::mib(25));
    assert_eq!(len(10_000, 1).unwrap(), FILE_MIN);
    let refused = len(31, 256).unwrap_err();
    assert_eq!(refused.to_string(), "31 MiB are free, at least 32 MiB are needed");
}

#[test]
fn a_file_in_memory_is_limited_by_memory_too() {
    let everything = Bytes(1 << 60);
    let memory =
        file_len(everything, (Medium::Memory, Locality::Anywhere), &limits(everything)).unwrap();
    let disk = file_len(everything, (Medium::SolidState, Locality::Anywhere), &limits(everything))
        .unwrap();
    assert!(memory < disk);
}

#[test]
fn a_chunk_is_no_longer_than_its_file() {
    assert_eq!(chunk_len(Bytes::mib(8)).unwrap(), Bytes::mib(8));
    assert!(chunk_len(Bytes::mib(1 << 30)).unwrap() <= CHUNK);
}

#[test]
fn the_whole_file_is_written_and_repeats_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = bench(&directory, Nanoseconds(u64::MAX));
    let len = 80 * MIB;
    assert!(bench.fill_file(Bytes(len)).unwrap().is_some());
    assert_eq!(bench.len, len);
    let file = bench.file.shared();
    assert_eq!(file.metadata().unwrap().len(), len);
    let mut pages = BTreeSet::new();
    for start in (0..len).step_by(BLOCK) {
        let mut block = AlignedBuffer::zeroed(BLOCK);
        file.read_exact_at(block.as_mut_slice(), start).unwrap();
        pages.extend(block.as_slice().chunks(RANDOM_BLOCK).map(<[u8]>::to_vec));
    }
    assert_eq!(pages.len() as u64, len / RANDOM_BLOCK as u64, "some page repeats");
}

#[test]
fn writing_ends_with_the_time_but_not_before_the_least_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = bench(&directory, Nanoseconds(0));
    bench.fill_file(Bytes::mib(256)).unwrap();
    assert!(bench.len >= FILE_MIN.0 && bench.len < 128 * MIB, "{}", bench.len);
    assert_eq!(bench.file.shared().metadata().unwrap().len(), bench.len);
}

#[test]
fn everything_is_measured_within_the_budget_and_no_name_appears() {
    let directory = tempfile::tempdir().unwrap();
    for medium in [Medium::SolidState, Medium::Memory] {
        let site = site(directory.path(), medium);
        let found = site.measure(&limits(FILE_MIN), &Request::default()).unwrap();
        let storage = &found.storage;
        assert_eq!(storage.file_bytes, FILE_MIN.0);
        let depths: Vec<u32> = storage.random_reads.iter().map(|it| it.depth).collect();
        assert_eq!(depths, [1, RANDOM_READ_DEPTH]);
        let figures = found.figures;
        assert_eq!(figures.read_bytes_per_s, storage.sequential_read_bytes_per_s);
        assert_eq!(figures.copy_bytes_per_s, storage.chunk_read_bytes_per_s);
        let rates: Vec<_> = storage.random_reads.iter().map(|it| it.iops).collect();
        let most = figures.random_read_iops.unwrap();
        assert!(rates.contains(&most) && rates.iter().all(|it| it.median <= most.median));
        let latency = figures.idle_latency_ns.unwrap();
        // A slow machine may not reach the 20 samples of a published median.
        let p50 = storage.random_reads[0].latency.p50_ns;
        assert!(p50.is_none_or(|p50| p50.to_bits() == latency.median.to_bits()));
        for figure in [figures.write_bytes_per_s, figures.copy_bytes_per_s] {
            assert!(figure.unwrap().low > 0.0);
        }
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}

#[test]
fn both_engines_measure_the_same_figures() {
    let directory = tempfile::tempdir().unwrap();
    for engine in [Engine::Threads, Engine::best()] {
        let mut bench = bench(&directory, Nanoseconds(20_000_000));
        bench.engine = engine;
        bench.fill_file(Bytes::mib(8)).unwrap();
        assert!(bench.read_in_order().unwrap().is_some());
        assert!(bench.read_chunks(Bytes::mib(4)).unwrap().is_some());
        let settled = bench.read_randomly(4).unwrap().unwrap();
        assert!(settled.access.iops.low > 0.0 && settled.access.latency.samples > 0);
    }
}

#[test]
fn a_read_behind_the_end_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = bench(&directory, Nanoseconds(1 << 40));
    bench.fill_file(Bytes::mib(8)).unwrap();
    bench.len = 1 << 40;
    for depth in [1, 32] {
        let error = bench.read_randomly(depth).unwrap_err();
        let DirectoryError::Io(error) = error else { panic!("{error}") };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn an_abort_ends_every_job() {
    let directory = tempfile::tempdir().unwrap();
    let request = Request::default();
    request.abort.clone().abort();
    let outcome = site(directory.path(), Medium::SolidState).measure(&limits(FILE_MIN), &request);
    assert!(matches!(outcome, Err(DirectoryError::Aborted)));
}

#[test]
fn a_directory_that_takes_too_long_is_given_up_and_its_job_told_to_end() {
    let inventory = Inventory::read(crate::Sysroot::live()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let request = Request { patience: Some(Nanoseconds(1)), ..Request::default() };
    let outcome = measure(&inventory, directory.path(), &limits(FILE_MIN), &request);
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("no answer within 1 ns"), "{error}");
    assert!(matches!(request.abort.check(), Err(DirectoryError::Aborted)));
}

#[test]
fn a_measurement_that_was_given_up_takes_no_more_memory() {
    let abort = Abort::default();
    abort.abort();
    let found = random_blocks(usize::MAX, BLOCK, &mut fastrand::Rng::with_seed(1), &abort);
    assert!(matches!(found, Err(DirectoryError::Aborted)));
}

#[test]
fn only_a_directory_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    assert_eq!(existing(&path.join(".")).unwrap(), path);
    assert_eq!(
        existing(Path::new("/proc/version")).unwrap_err().kind(),
        io::ErrorKind::NotADirectory
    );
    assert_eq!(existing(&path.join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn random_offsets_are_blocks_inside_the_file() {
    let mut random = fastrand::Rng::with_seed(3);
    let offsets: Vec<u64> = (0..1000).map(|_| random_offset(&mut random, 3 * 4096)).collect();
    for block in [0, 4096, 8192] {
        assert!(offsets.contains(&block));
    }
    assert!(offsets.iter().all(|offset| offset % 4096 == 0 && *offset < 3 * 4096));
}
